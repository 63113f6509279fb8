# What users see of a Slurm cluster: the same commands and words as on one machine.
bats_require_minimum_version 1.5.0
load helper
load submit_helper

setup_file() { start_sandbox 4 --nodes 2 --gpus 2; }
teardown_file() { stop_sandbox; }
setup() {
  need_sandbox
  unset ALIQUOT_ENGINE
  export ALIQUOT_SOCKET=$BATS_TEST_TMPDIR/no-daemon
}
teardown() {
  [[ -n ${SANDBOX_MISSING:-} ]] && return
  end_foreign
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

@test "status and check know what the limit of the QOS counts" {
  command -v sacctmgr >/dev/null || skip "no sacctmgr"
  look_at_gpus
  limit() { sacctmgr -i modify qos normal set "MaxTRESPerUser=$1" >/dev/null; }
  limit gres/gpu=1
  run -0 as games aliquot status
  echo "$output"
  [[ $output == *"games: using 0 of 4 GPUs (gres/gpu=1 of QOS normal counts "* ]]
  run -0 aliquot slurm check
  echo "$output"
  [[ $output == *"warn  limits"*"QOS normal: MaxTRESPerUser=gres/gpu=1 counts "* ]]
  # What it says to do helps: the second GPU waits, whole or shared, and CPUs are billed and free.
  cure=$(grep -o 'sacctmgr modify qos normal .*' <<<"$output")
  [ "$cure" = "sacctmgr modify qos normal set MaxTRESPerUser=billing=$((all * 1000 + 999))" ]
  ${cure/sacctmgr/sacctmgr -i} >/dev/null
  run -0 as games aliquot status
  [[ $output == *"games: using 0/1 GPUs allowed"* ]]
  run -0 aliquot slurm check
  [[ $output == *"ok    limits"* ]]
  first=$(keep --gres=gpu:1)
  eventually has_state "$first" RUNNING
  second=$(keep --gres=gpu:1)
  third=$(keep --gpu-share=10%)
  cpus=$(keep -c 30)
  eventually has_state "$cpus" RUNNING
  eventually waits_for "$second" QOSMaxBillingPerUser
  eventually waits_for "$third" QOSMaxBillingPerUser
  [[ $(field "$cpus" TRES) == *billing=30* || $(field "$cpus" AllocTRES) == *billing=30* ]]
  # And an undo does not go by them.
  run aliquot slurm setup --undo --apply
  echo "${lines[-1]}"
  [ "$status" -eq 1 ]
  [[ $output == *"waiting job(s) with a part of a GPU"*"--force does it all the same"* ]]
  grep -q "BEGIN aliquot" "$SLURM_CONF"
  limit gres/gpu=-1
  limit billing=-1
}

@test "GPUs of a drained node are not free, and a silent one keeps its size" {
  scontrol update nodename=n2 state=drain reason=test
  run -0 aliquot status
  echo "$output"
  [[ ${lines[0]} == "GPUs 0/4 in use · 2 free · 2 down or drained · free nodes 1/2 · 4 x h200 on 2 nodes" ]]
  run -1 aliquot slurm check
  [[ $output == *"FAIL  node n2"*"DRAIN"*"test"* ]]
  scontrol update nodename=n2 state=resume
  memory() { aliquot status | sed -n "s|.*n1 gpu0 .* 0/\([0-9]*G\) .*|\1|p"; }
  eventually eval '[[ $(memory) == 139G ]]'
  kill -STOP "$(agent_pid n1)"
  unheard() { aliquot status | grep -q 'n1 gpu0 .*[?] busy'; }
  eventually unheard
  size=$(memory)
  kill -CONT "$(agent_pid n1)"
  [ "$size" = 139G ]
}

@test "status and gpus show a process outside the queue" {
  foreign n1 0%
  seen() { aliquot gpus | grep -E 'outside the queue: pid [0-9]+ root +1(\.[0-9])?G'; }
  eventually seen
  run -0 aliquot status
  echo "$output"
  [[ $output == *"n1 gpu0 "*"jobs -  + processes outside the queue"* ]]
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
  # Of several each is told.
  run -1 aliquot why 999999999 "$job"
  echo "$output"
  [[ $output == *"Slurm knows no job 999999999"*"job $job is PENDING"* ]]
}

@test "why counts the nodes that reservations leave to a job" {
  scontrol create reservation reservationname=rr starttime=now duration=1:00:00 nodes=n2 users=games,root flags=ignore_jobs
  keep --gres=gpu:1 --reservation=rr
  whole=$(keep --gres=gpu:1 --reservation=rr)
  eventually has_state "$whole" RUNNING
  inside=$(keep --gpu-share=25% --reservation=rr)
  eventually waits_for "$inside" Resources
  run -0 as games aliquot why "$inside"
  echo "$output"
  [[ $output == *"gpu0 on n2 is held whole"*"Its reservation 'rr' has n2: it can start nowhere else."* ]]
  [[ $output != *"There is room"* ]]
  outside=$(keep --gpu-share=25% -w n2)
  run -0 as games aliquot why "$outside"
  echo "$output"
  [[ $output == *"n2 is for the reservation 'rr', which it is not in."* ]]
  scancel -u games
  eventually idle
  scontrol delete reservationname=rr
}

@test "top prints once where nobody watches" {
  job=$(as games sbatch --parsable -o /dev/null --gres=gpu:1 -w n2 --wrap 'exec aliquot-load --mem 4G --seconds 600 --busy 100%')
  eventually has_state "$job" RUNNING
  busy() { aliquot top --once | grep -E "^  $job +games .* ([5-9][0-9]|100)% .* n2/gpu0:whole"; }
  eventually busy
  run -0 aliquot top --json
  [[ $output == '{"cluster":'*'"engine":"slurm"'* ]]
}

@test "top and the record tell apart what jobs on a shared GPU use" {
  idle=$(keep --gpu-mem=8G -w n1)
  busy=$(as games sbatch --parsable -o /dev/null --gpu-mem=8G -w n1 \
    --wrap "aliquot-load --mem 4G --seconds 600 --busy 100% & $until_go; kill \$!")
  eventually has_state "$busy" RUNNING
  shown() {
    aliquot top --once >"$BATS_TEST_TMPDIR/top"
    grep -E "^  $busy +games .* ([5-9][0-9]|100)% +4(\.[0-9])?G" "$BATS_TEST_TMPDIR/top" &&
      ! grep -E "^  $idle +games .* ([5-9][0-9]|100)%" "$BATS_TEST_TMPDIR/top"
  }
  eventually shown
  has_computed() { driver n1 | grep "name=.*aliquot-load$" | grep -qE ' gpu_ms=[0-9]*[4-9][0-9]{3}\.'; }
  eventually has_computed
  go
  eventually has_state "$busy" COMPLETED
  recorded() { [[ $(scontrol show job "$busy") =~ "used "([0-9]+)\.[0-9]" s "([0-9]+)"M on n1" ]]; }
  eventually recorded
  [[ ${BASH_REMATCH[1]} -ge 3 && ${BASH_REMATCH[2]} -ge 4096 ]]
  command -v sacctmgr >/dev/null || return 0
  accounted() { sacct -X -n -P -j "$busy" -o AdminComment | grep -q ' s [0-9]*M on n1'; }
  eventually accounted
}

@test "ALIQUOT_ENGINE decides whom to ask" {
  ALIQUOT_ENGINE=embedded run -1 aliquot squeue
  [[ $output == *"Unable to contact slurm controller (connect failure): Aliquot's own"* ]]
  ALIQUOT_ENGINE=embedded run -1 aliquot status
  [[ $output == *"no daemon answers"* ]]
  ALIQUOT_ENGINE=slurm run -0 aliquot status
  for command in status squeue logs doctor up; do
    ALIQUOT_ENGINE=k8s run -1 aliquot $command
    [[ $output == *"write slurm, kube or embedded"* ]]
  done
  # Slurm's own commands, also by our names for them.
  ln -s "$ALIQUOT_BIN/aliquot" "$BATS_TEST_TMPDIR/sbatch"
  export ALIQUOT_ENGINE=slurm
  job=$(as games env PATH="$BATS_TEST_TMPDIR:$PATH" sbatch --parsable -D "$SANDBOX/out" --wrap 'echo hello from $SLURM_JOB_ID')
  ended() { aliquot sacct -j "$job" -n -X -o State | grep -q COMPLETED; }
  eventually ended
  run -0 aliquot squeue --version
  [[ $output == slurm* ]]
  run -0 as games aliquot logs "$job"
  [ "$output" = "hello from $job" ]
  run -0 as games aliquot logs last
  [ "$output" = "hello from $job" ]
  run -1 aliquot logs 999999999
  [[ $output == "aliquot: Slurm does not know job 999999999"* ]]
  run -0 aliquot doctor
  [[ $output == *"ok    slurm.conf"* ]]
  run -1 aliquot up
  [[ $output == "aliquot: up: ALIQUOT_ENGINE is slurm, and this is about the daemon of one machine: "* ]]
  PATH=$ALIQUOT_BIN run -1 "$ALIQUOT_BIN/aliquot" seff 1
  [[ $output == "aliquot: ALIQUOT_ENGINE is slurm, and Slurm's own seff is not on the PATH"* ]]
}

@test "an agent tells Prometheus of its node, and shows it as a page" {
  free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
  get() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "http://127.0.0.1:$1"; }
  port=$(free_port)
  printf '[page]\nport = %s\n' "$port" >>"$SANDBOX/n1/slurm.toml"
  kill "$(agent_pid n1)"
  eventually get "$port/metrics"
  job=$(keep --gpu-mem=8G -w n1 -J follow)
  has() { get "$port/metrics" | grep -qE "$1"; }
  granted="^aliquot_share_memory_limit_bytes\{gpu=\"[01]\",uuid=\"GPU-[^\"]*\",job=\"$job\",user=\"games\".*\} 8589934592$"
  eventually has "$granted"
  [ "$(get "$port/metrics" | grep -c '^aliquot_gpu_info{')" -eq 2 ]
  shown() { get "$port/" | grep -q follow; }
  eventually shown
  # The page takes no orders, and the figures are there without it.
  run -1 python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], data=b"")' "http://127.0.0.1:$port/"
  [[ $output == *"405"* ]]
  if command -v promtool >/dev/null; then
    get "$port/metrics" >"$BATS_TEST_TMPDIR/text"
    run -0 promtool check metrics <"$BATS_TEST_TMPDIR/text"
    [ -z "$output" ]
  fi
  if command -v prometheus >/dev/null; then
    own=$(free_port)
    cat >"$BATS_TEST_TMPDIR/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: aliquot, honor_labels: true, static_configs: [{targets: ["127.0.0.1:$port"]}]}
END
    prometheus --config.file="$BATS_TEST_TMPDIR/prometheus.yml" --storage.tsdb.path="$BATS_TEST_TMPDIR/tsdb" \
      --web.listen-address="127.0.0.1:$own" >/dev/null 2>&1 3>&- &
    prometheus=$!
    scraped() { get "$own/api/v1/query?query=aliquot_share_memory_limit_bytes" | grep -q "\"job\":\"$job\""; }
    eventually scraped
    kill "$prometheus"
  fi
  as games scancel "$job"
  gone() { ! has "$granted"; }
  eventually gone
}
