# The sandbox itself: whatever happens to it, it comes up again, and down leaves nothing.
load helper

setup() {
  local why
  why=$(no_sandbox)
  [[ -z $why ]] || skip "$why"
  sandbox=$(sandbox_program)
  first=$(mktemp -d /var/tmp/aq-sandbox.XXXXXX)
  second=$(mktemp -d /var/tmp/aq-sandbox.XXXXXX)
  chmod 755 "$first" "$second"
  ports=$(free_ports 29200)
  other_ports=$(free_ports 29300)
}

teardown() {
  local folder
  for folder in "${first:-}" "${second:-}"; do
    [[ -n $folder ]] && box down --dir "$folder" && rm -rf "$folder"
  done
}

# Daemons must not keep bats waiting.
box() { "$sandbox" "$@" >"$BATS_TEST_TMPDIR/said" 2>&1 </dev/null 3>&- || { cat "$BATS_TEST_TMPDIR/said"; return 1; }; }
on() { "$sandbox" exec --dir "$1" "${@:2}"; }
pid() { cut -d' ' -f1 "$first/run/$1.pid"; }

left_behind() { # FOLDER: what is still there of its sandbox
  [[ ! -e $1 ]] || echo "$1"
  grep -lzxF "ALIQUOT_SANDBOX_DAEMON=$1" /proc/[0-9]*/environ 2>/dev/null
  grep -F "$1/" /proc/self/mountinfo
  find /run/aliquot-sandbox -name "$(cksum <<<"$1" | cut -d' ' -f1)*" 2>/dev/null
  true
}

@test "two side by side, jobs that stay, and nothing is left of either" {
  box up --dir "$first" --port-base "$ports" --nodes 2 --gpus 2 --no-aliquot
  box up --dir "$second" --port-base "$other_ports" --nodes 1 --gpus 2 --model t4 --no-aliquot --no-db
  [ "$(on "$first" sinfo -h -o '%D %G')" = "2 gpu:h200:2,shard:h200:280" ]
  [ "$(on "$second" sinfo -h -o '%D %G')" = "1 gpu:t4:2,shard:t4:30" ]
  # A job finds the GPUs of its node, with nobody's help.
  run on "$first" srun -w n2 --gres=gpu:1 "$ALIQUOT_BIN/aliquot-load" --mem 1G --seconds 0 --json
  echo "$output"
  [[ $output == *'"device":"NVIDIA H200 (simulated)"'* ]]
  for folder in "$first" "$second"; do
    on "$folder" sbatch -D / -o /dev/null --gres=shard:1 --wrap 'setsid sleep 1000 & exec sleep 1000'
    eventually eval '[[ $(on "$folder" squeue -h -o %t) == R ]]'
  done
  box down --dir "$first"
  [ -z "$(left_behind "$first")" ]
  [ "$(on "$second" squeue -h -o %t)" = R ]
  box down --dir "$second"
  [ -z "$(left_behind "$second")" ]
  [ -z "$(ls -d /sys/fs/cgroup/*/slurm_n*/uid_*/job_{"$ports","$other_ports"}[0-9]* 2>/dev/null)" ]
}

@test "a job may open its own GPU and no other" {
  box up --dir "$first" --port-base "$ports" --nodes 1 --gpus 2 --no-aliquot --no-db
  grep -q '^ProctrackType=proctrack/cgroup' "$first/etc/slurm.conf" || skip "no cgroups to write here"
  run on "$first" srun --gres=gpu:1 bash -c "cat $first/dev/n1/nvidia0; cat $first/dev/n1/nvidia1"
  echo "$output"
  [[ $output == *"nvidia0: No such device or address"* ]]
  [[ $output == *"nvidia1: Operation not permitted"* ]]
}

@test "killed daemons are started again by up, and a killed sandbox goes down" {
  box up --dir "$first" --port-base "$ports" --nodes 2
  run "$sandbox" status --dir "$first"
  [ "$status" -eq 0 ]
  # The agents and the balancer come back by themselves.
  agent=$(pid agent-n1)
  kill -9 "$agent"
  eventually eval '[[ $(pid agent-n1) != "$agent" ]] && "$sandbox" status --dir "$first" >/dev/null'
  # One that is stopped answers nobody, and is shown as that.
  agent=$(pid agent-n1)
  kill -STOP "$agent"
  run "$sandbox" status --dir "$first"
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"agent-n1 "*"$agent is stopped and answers nobody: kill -CONT $agent"* ]]
  run on "$first" timeout 60 "$ALIQUOT_BIN/aliquot" slurm check
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"FAIL  agent of n1"*"does not answer within 5 s"*"ok    agent of n2"* ]]
  kill -CONT "$agent"
  # The others when asked.
  kill -9 "$(pid slurmctld)" "$(pid slurmd-n2)" "$(pid munged)" "$(pid mariadbd)"
  run "$sandbox" status --dir "$first"
  [ "$status" -eq 1 ]
  box up --dir "$first"
  run "$sandbox" status --dir "$first"
  echo "$output"
  [ "$status" -eq 0 ]
  [ "$(on "$first" srun hostname | wc -l)" -eq 1 ]
  for file in "$first"/run/*.pid; do kill -9 "$(cut -d' ' -f1 "$file")" 2>/dev/null || true; done
  box down --dir "$first"
  [ -z "$(left_behind "$first")" ]
}

@test "restart, by name" {
  box up --dir "$first" --port-base "$ports" --nodes 1 --no-aliquot --no-db
  before=$(pid slurmctld)
  box restart --dir "$first" slurmctld
  [ "$(pid slurmctld)" != "$before" ]
  run "$sandbox" restart --dir "$first" nonsense
  [ "$status" -eq 1 ]
  [[ $output == "slurm-sandbox: there is no daemon 'nonsense': there are munged slurmctld slurmd-n1" ]]
}

@test "what cannot be is refused in one line" {
  refused() { # TEXT ARGUMENT…
    run "$sandbox" "${@:2}"
    echo "$output"
    [ "$status" -ne 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == *"$1"* ]]
  }
  refused "--nodes 0: use 1" up --dir "$first" --nodes 0
  refused "--gpus x: use 1" up --dir "$first" --gpus x
  refused "--port-base 80: use 1024" up --dir "$first" --port-base 80
  refused "there are" up --dir "$first" --model abacus
  refused "'--nonsense' is not an option" up --nonsense
  refused "'nonsense' is not a command" nonsense
  refused "there is no sandbox in $first" status --dir "$first"
  refused "write section.key=value" up --dir "$first" --set nonsense
  touch "$first/file"
  refused "is not a sandbox and not empty" up --dir "$first"
  refused "is not a sandbox" down --dir "$first"
  rm "$first/file"
  ln -s / "$first/link"
  refused "use a folder below another one" up --dir "$first/link"
  chown games "$second"
  refused "is not a folder of root's" up --dir "$second"
  chown root "$second"
  rm "$first/link"
}

@test "settings are handed on, and lines of slurm.conf" {
  # A line that Slurm does not know is told as that, and at once.
  echo "Nonsense=77" >"$BATS_TEST_TMPDIR/extra"
  run "$sandbox" up --dir "$first" --port-base "$ports" --nodes 1 --extra "$BATS_TEST_TMPDIR/extra"
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"Slurm does not read $first/etc/slurm.conf, which has the lines of $BATS_TEST_TMPDIR/extra:"*"Nonsense"* ]]
  [[ $output != *"slurmctld did not come up"* ]]
  [ -z "$(left_behind "$first")" ]
  echo "SuspendTimeout=77" >"$BATS_TEST_TMPDIR/extra"
  box up --dir "$first" --port-base "$ports" --nodes 1 --set share.overcommit=2.0 --set partition.main.overcommit=3.0 \
    --extra "$BATS_TEST_TMPDIR/extra"
  grep -qx 'overcommit = 2.0' "$first/n1/slurm.toml"
  grep -x -A1 '\[partition.main\]' "$first/n1/slurm.toml" | grep -qx 'overcommit = 3.0'
  on "$first" scontrol show config | grep -q 'SuspendTimeout.*77'
}

@test "an up that fails leaves nothing, and one on a sandbox changes nothing of it" {
  run "$sandbox" up --dir "$first" --port-base "$ports" --nodes 1 --set share.overcomit=2
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"slurm-sandbox: it did not come up: what there was of it in $first is removed"* ]]
  [ -z "$(left_behind "$first")" ]
  box up --dir "$first" --port-base "$ports" --nodes 1 --bare --no-db
  grep -q "^Slurm .* with 1 node of 4 h200 is up" "$BATS_TEST_TMPDIR/said"
  [ "$(on "$first" sinfo -h -o '%P %D %G')" = "main* 1 (null)" ]
  box up --dir "$first" --nodes 1 --bare
  run "$sandbox" up --dir "$first" --nodes 6 --no-aliquot --set share.overcommit=2.0
  echo "$output"
  [ "$status" -eq 1 ]
  [ "$output" = "slurm-sandbox: the sandbox in $first has 1 node and has Aliquot and has no --set: 'down' first, or leave that option out" ]
  [ "$(on "$first" sinfo -h -o %D)" = 1 ]
}
