# What users see of a Slurm cluster: the same commands and words as on one machine.
bats_require_minimum_version 1.5.0
load helper

setup_file() { start_sandbox 4 --nodes 2 --gpus 2; }
teardown_file() { stop_sandbox; }
setup() {
  need_sandbox
  unset ALIQUOT_ENGINE
  export ALIQUOT_SOCKET=$BATS_TEST_TMPDIR/no-daemon
}
teardown() {
  [[ -n ${SANDBOX_MISSING:-} ]] && return
  scancel -u games
  eventually idle
}

idle() { [[ -z $(squeue -h) ]]; }
keep() { # OPTION…: a job that stays
  as games sbatch --parsable -o /dev/null "$@" --wrap 'sleep 300'
}

@test "status shows every GPU with its jobs, and mine" {
  whole=$(keep --gres=gpu:1 -w n1)
  share=$(keep --gpu-share=25% -w n2)
  eventually has_state "$whole" RUNNING
  eventually has_state "$share" RUNNING
  run -0 as games aliquot status
  echo "$output"
  [[ ${lines[0]} == "GPUs 2/4 in use · 2 free · free nodes 0/2 · 4 x h200 on 2 nodes" ]]
  [[ $output == *"n1 gpu0  [##########]"*"jobs $whole (whole)"* ]]
  [[ $output == *"n2 gpu0  [##........]"*"jobs $share"* ]]
  [[ $output == *"games: using 1.25 "*"2 running, 0 waiting"* ]]
  [[ $output == *"n2/gpu0:"*",25%"* ]]
}

@test "status knows the limit of the QOS" {
  command -v sacctmgr >/dev/null || skip "no sacctmgr"
  sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=4 >/dev/null
  run -0 as games aliquot status
  sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=-1 >/dev/null
  echo "$output"
  [[ $output == *"games: using 0/4 GPUs allowed"* ]]
}

@test "gpus shows what is granted, and by whom it is held" {
  job=$(keep --gpu-mem=8G --gpu-share=50% -w n1)
  eventually has_state "$job" RUNNING
  run -0 aliquot gpus
  echo "$output"
  [[ ${lines[0]} == "NODE GPU "* ]]
  [[ $output == *"job $job games wrap: 8G, 50% of compute"* ]]
  run -0 bash -c 'aliquot gpus --json | python3 -c "import json, sys; print(len(json.load(sys.stdin)[\"nodes\"]))"'
  [[ $output == 2 ]]
}

@test "why says which GPUs lack what" {
  for node in n1 n2; do
    keep --gres=gpu:1 -w $node
    job=$(keep --gpu-mem=100G -w $node)
  done
  eventually has_state "$job" RUNNING
  waits=$(keep --gpu-mem=60G)
  eventually waits_for "$waits" Resources
  run -0 as games aliquot why "$waits"
  echo "$output"
  [[ ${lines[0]} == "job $waits is PENDING (Resources)" ]]
  [[ $output == *"No GPU has 60 GiB of memory free"* ]]
  [[ $output == *"gpu0 on n1 is held whole by job"* ]]
  [[ $output == *"gpu1 on n2 lacks "*" of memory: job $job holds"* ]]
  run -0 as games aliquot why last --json
  [[ $output == *"\"job_id\":$waits"* ]]
}
waits_for() { [[ $(field "$1" Reason) == "$2" ]]; }

@test "why turns Slurm's other words into sentences" {
  job=$(keep --gpu-mem=1G --hold)
  run -0 aliquot why "$job"
  [[ $output == *"scontrol release"* ]]
  job=$(keep --gpu-mem=1G --begin=now+1hour)
  eventually waits_for "$job" BeginTime
  run -0 aliquot why "$job"
  [[ $output == *"not to start before its time"* ]]
  run -1 aliquot why 999999999
  [[ $output == "aliquot: Slurm knows no job 999999999" ]]
}

@test "top prints once where nobody watches" {
  job=$(as games sbatch --parsable -o /dev/null --gres=gpu:1 -w n2 --wrap 'exec aliquot-load --mem 4G --seconds 60 --busy 100%')
  eventually has_state "$job" RUNNING
  busy() { aliquot top --once | grep -E "^  $job +games .* ([5-9][0-9]|100)% .* n2/gpu0:whole"; }
  eventually busy
  run -0 aliquot top --json
  [[ $output == '{"cluster":'*'"engine":"slurm"'* ]]
}

@test "ALIQUOT_ENGINE decides whom to ask" {
  ALIQUOT_ENGINE=embedded run -1 aliquot status
  [[ $output == *"no daemon answers"* ]]
  ALIQUOT_ENGINE=slurm run -0 aliquot status
  ALIQUOT_ENGINE=k8s run -1 aliquot status
  [[ $output == *"write slurm or embedded"* ]]
}
