# Who is next and when: sprio, sshare, expected starts, the default time limit.
load helper

submit() { sbatch --parsable -o "$work/out.%j" "$@"; }
state_is() { [[ $(squeue -h -j "$1" -t all -o %T) == "$2" ]]; }
reason_is() { [[ $(squeue -h -j "$1" -o %r) == "$2" ]]; }
local_only() { [[ $ENGINE == local ]] || skip "Slurm decides by its own settings"; }

@test "sprio: words that are none" {
  start_engine
  run_case sprio_word 'sprio foo'
  run_case sprio_bad_id 'sprio -jx'
  run_case sprio_usage 'sprio --usage'
  run_case sshare_field 'sshare -o nope'
}

@test "sprio and sshare without a daemon" {
  local_only
  run sprio
  [ "$status" -eq 1 ]
  [[ $output == *"Unable to contact slurm controller"* ]]
  run sshare
  [ "$status" -eq 1 ]
  [[ $output == *"Unable to contact slurm controller"* ]]
}

@test "sprio shows the sum, squeue and scontrol its total" {
  local_only
  start_engine
  run_case sprio_none 'sprio'
  run_case sprio_weights 'sprio -w; sprio -l -w; sprio -n -w'
  run_case sprio_unknown 'sprio -j99'
  local first waiting nice held
  first=$(submit --gres=gpu:4 --time=1:00:00 --wrap "$until_go")
  eventually state_is "$first" RUNNING
  waiting=$(submit --gres=gpu:1 --time=1:00:00 --wrap true)
  nice=$(submit --gres=gpu:1 --time=1:00:00 --nice=50 --wrap true)
  held=$(submit --hold --wrap true)
  eventually reason_is "$nice" Priority
  run sprio -h -S -Y -o '%i %r %N %u'
  [ "$output" = "$waiting main 0 $(id -un)"$'\n'"$nice main 50 $(id -un)" ]
  local total parts
  total=$(sprio -h -j"$waiting" -o %Y)
  parts=$(sprio -h -j "$waiting" -o '%A+%F+%J+%P+%Q')
  [ "$((parts))" -eq "$total" ]
  [ "$(squeue -h -j "$waiting" -o %Q)" = "$total" ]
  [[ $(scontrol show job "$waiting") == *"Priority=$total Nice=0"* ]]
  [[ $(scontrol show job "$held") == *"Priority=0 "* ]]
  scontrol update "JobId=$nice" Priority=300000
  [ "$(sprio -h -j"$nice" -o '%Y %S %F')" = "300000 300000 0" ]
  run sshare -U -h -P -o User,RawShares
  [ "$output" = "$(id -un)|1" ]
}

@test "what a user has had is there after a restart" {
  local_only
  start_engine
  local id usage
  id=$(submit --gres=gpu:2 --wrap "sleep 2")
  eventually state_is "$id" COMPLETED
  usage=$(sshare -U -n -P -o RawUsage)
  [ "$usage" -ge 2 ]
  kill "$daemon" && wait "$daemon" || true
  start_engine
  [ "$(sshare -U -n -P -o RawUsage)" -ge "$((usage - 1))" ]
  run sshare
  [ "${lines[0]}" = "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare " ]
  [[ ${lines[2]} == root* ]]
}

@test "every waiting job has an expected start, and why says what would help" {
  local_only
  start_engine
  local first big mine
  first=$(submit --gres=gpu:2 --time=2:05:00 --wrap "$until_go")
  eventually state_is "$first" RUNNING
  big=$(submit --gres=gpu:4 --time=1:00:00 --wrap true)
  mine=$(submit --gres=gpu:1 --wrap true)
  eventually reason_is "$mine" Priority
  run squeue --start -h -o '%i %S'
  [ "${#lines[@]}" -eq 2 ]
  [[ $output != *N/A* ]]
  [ "$(squeue -h -j "$big" -o %S)" = "$(squeue -h -j "$first" -o %e)" ]
  run sbatch --test-only --gres=gpu:1 --time=10:00:00 --wrap true
  [ "$status" -eq 0 ]
  [[ $output == *"to start at "* ]]
  [[ ! $output < "sbatch: Job $((mine + 1)) to start at $(squeue -h -j "$mine" -o %S)" ]]
  run "$ALIQUOT_BIN/aliquot" why "$mine"
  [[ $output == *"One job is before it in the queue: job $big."* ]]
  [[ $output == *"Job $big waits for 4 GPUs; add --time=1:"*" and yours can start now"* ]]
  [[ $output == *"ended after the default, 1-00:00:00"* ]]
  local limit
  limit=$(sed -n 's/.*TimeLimit=\([0-9:]*\).*/\1/p' <<<"$output")
  scontrol update "JobId=$mine" "TimeLimit=$limit"
  eventually state_is "$mine" COMPLETED
  state_is "$big" PENDING
}

@test "no --time is a day, UNLIMITED is none" {
  local_only
  start_engine
  local id
  id=$(submit --hold --wrap true)
  [[ $(scontrol show job "$id") == *"TimeLimit=1-00:00:00 "* ]]
  id=$(submit --hold --time=UNLIMITED --wrap true)
  [[ $(scontrol show job "$id") == *"TimeLimit=UNLIMITED "* ]]
  id=$(submit --hold --time=0 --wrap true)
  [[ $(scontrol show job "$id") == *"TimeLimit=UNLIMITED "* ]]
}

# The sentence at the head of docs/placement.md.
@test "shares go together, and those of one job to GPUs of their own" {
  local_only
  start_engine
  local i ids=()
  on() { scontrol show job -d "$1" | grep -o 'IDX:[0-9,-]*'; }
  for i in 1 2 3 4; do ids+=("$(submit --gpu-share=20% --wrap "$until_go")"); done
  for i in "${ids[@]}"; do eventually state_is "$i" RUNNING; [ "$(on "$i")" = IDX:0 ]; done
  # 20 % are left of it, and then none.
  for i in 1 2 3 4; do ids+=("$(submit --gpu-share=5% --wrap "$until_go")"); done
  for i in "${ids[@]}"; do eventually state_is "$i" RUNNING; [ "$(on "$i")" = IDX:0 ]; done
  i=$(submit --gpu-share=5% --wrap "$until_go")
  eventually state_is "$i" RUNNING
  [ "$(on "$i")" = IDX:1 ]
  scancel --me
  all_gone() { [[ -z $(squeue -h) ]]; }
  eventually all_gone
  ids=()
  for i in 1 2 3 4 5 6; do ids+=("$(submit --gpu-share=5% --wrap "$until_go")"); done
  for i in "${ids[@]}"; do eventually state_is "$i" RUNNING; [ "$(on "$i")" = IDX:0 ]; done
  i=$(submit -n 4 --gpus-per-task=1 --gpu-share=10% --wrap "$until_go")
  eventually state_is "$i" RUNNING
  [ "$(on "$i")" = IDX:0-3 ]
  go
}
