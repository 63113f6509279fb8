# A node whose agent is away, hung or unable loses no job and takes no more of them until it is well; a slurmctld that
# does not answer keeps nobody waiting; an agent that comes before the driver waits for it.
bats_require_minimum_version 1.5.0
load helper

setup_file() { start_sandbox 9 --nodes 3 --gpus 2 --no-db --set agent.patience=6; }
teardown_file() { stop_sandbox; }
setup() { need_sandbox; }
teardown() {
  local node
  end_foreign
  [[ -z ${SANDBOX:-} ]] || for node in n1 n2 n3; do kill -CONT "$(agent_pid "$node")" 2>/dev/null || true; done
  [[ -z ${SANDBOX:-} ]] || kill -CONT "$(controller_pid)" 2>/dev/null || true
  # What one case leaves behind when it fails is not the next one's failure.
  [[ -z ${SANDBOX:-} || -n ${own_sandbox:-} ]] || standin n3 heal 0 || true
  if [[ -n ${own_sandbox:-} ]]; then
    pkill -f "^slurmd -D -f $SANDBOX/" || true
    stop_sandbox
  fi
}

reason() { scontrol show node "$1" | sed -n 's/^ *Reason=\(.*\) \[.*/\1/p'; }
drained() { [[ $(sinfo -h -n "$1" -N -o %T | head -1) == drain* && $(reason "$1") == "$2" ]]; }
takes_jobs() { [[ $(sinfo -h -n "$1" -N -o %T | head -1) =~ ^(idle|mixed|allocated|completing)$ ]]; }
silent="aliquot-agent does not answer"

stop_agent() { kill -STOP "$(agent_pid "$1")"; }
go_on() { kill -CONT "$(agent_pid "$1")"; }

controller_pid() { cut -d' ' -f1 "$SANDBOX/run/slurmctld.pid"; }

# Requeued jobs wait for 6 s, and machines are slow.
patiently() {
  local i
  for ((i = 0; i < 900; i++)); do
    "$@" && return 0
    sleep 0.2
  done
  return 1
}

@test "a hung agent loses none of 100 jobs, and its node takes no more until it answers" {
  stop_agent n1
  job=$(submit games "touch $SANDBOX/out/pinned" -w n1 --gpu-share=50%)
  array=$(as games sbatch --parsable -o /dev/null --array=1-100 --gpu-share=50% \
    --wrap "touch $SANDBOX/out/done-\$SLURM_ARRAY_TASK_ID")
  patiently drained n1 "$silent"
  all_done() { [[ $(ls "$SANDBOX/out" | grep -c ^done-) -eq 100 ]]; }
  patiently all_done
  # The node's own job is in the queue, and runs when the agent is there again.
  [[ $(field "$job" JobState) == PENDING && $(field "$job" Restarts) -ge 1 ]]
  drained n1 "$silent"
  go_on n1
  patiently has_state "$job" COMPLETED
  [[ -e $SANDBOX/out/pinned ]]
  takes_jobs n1
  run -0 scontrol -o show job "$array"
  [[ $(grep -c JobState=COMPLETED <<<"$output") -eq 100 ]]
}

@test "a slurmctld that does not answer keeps no job from starting, and puts right what was given" {
  # 33 % are 40 of 120 shards, which are a little more; what the script of the second one takes of that stays its own.
  part=$(($(sed -n 's/.*name = "h200", memory = \([0-9]*\),.*/\1/p' "$SANDBOX/etc/aliquot_submit.lua") * 33 / 100))
  stop_agent n2
  load="aliquot-load --grow --step 256M --busy 1% --json"
  words=$(submit games "touch $SANDBOX/out/early.1; $load --seconds 0.1" -H -w n2 --gpu-mem=8G --gpu-share=10%)
  later=$(submit games "touch $SANDBOX/out/early.2; $until_go; exec $load --seconds 0.1" -H -w n2 --gres=mps:33)
  taker=$(submit games "touch $SANDBOX/out/early.3; $load --seconds 1000 & $until_go; kill -0 \$! && echo lives; kill \$!" -H -w n2 --gres=mps:33)
  # Together: none of them has waited for the agent for as long as it may when slurmctld stops.
  scontrol release "$words,$later,$taker"
  for job in "$words" "$later" "$taker"; do eventually has_state "$job" RUNNING; done
  kill -STOP "$(controller_pid)"
  go_on n2
  # By what slurmstepd knows: slurmctld does not answer before the jobs have begun.
  for i in 1 2 3; do patiently test -e "$SANDBOX/out/early.$i"; done
  beyond() { [[ $(driver n2 | sed -n 's/^pid=.* bytes=\([0-9]*\).*name=.*aliquot-load$/\1/p' | sort -n | tail -1) -gt $part ]]; }
  patiently beyond
  kill -CONT "$(controller_pid)"
  put_right() { grep -q "job $1: slurmctld answers, and its share is put right" "$SANDBOX"/log/agent-n2*; }
  for job in "$later" "$taker"; do eventually put_right "$job"; done
  grep -q "job $taker: it holds more already, and keeps " "$SANDBOX"/log/agent-n2*
  # It is looked at before its neighbour ends: what is held is compared with what was granted four times a second.
  sleep 1
  go
  for job in "$words" "$later" "$taker"; do
    patiently has_state "$job" COMPLETED
    [[ $(field "$job" Restarts) -eq 0 ]]
  done
  allocated() { number allocated "$SANDBOX/out/$1"; }
  [[ $(allocated "$words") -gt $((6 << 30)) && $(allocated "$words") -le $((8 << 30)) ]]
  [[ $(allocated "$later") -gt $((part - (2 << 30))) && $(allocated "$later") -le $part ]]
  [[ $(<"$SANDBOX/out/$taker") == *lives* ]]
  patiently takes_jobs n2
}

@test "an array loses nothing while slurmctld and an agent are stopped" {
  array=$(as games sbatch --parsable -o /dev/null --array=1-60 --gpu-share=50% --wrap "touch $SANDBOX/out/storm-\$SLURM_ARRAY_TASK_ID")
  stop_agent n1
  kill -STOP "$(controller_pid)"
  sleep 5
  kill -CONT "$(controller_pid)"
  go_on n1
  all_ran() { [[ $(ls "$SANDBOX/out" | grep -c ^storm-) -eq 60 ]]; }
  patiently all_ran
  completed() { [[ $(scontrol -o show job "$array" | grep -c JobState=COMPLETED) -eq 60 ]]; }
  patiently completed
  patiently healthy
}

@test "an administrator's drain stays" {
  stop_agent n2
  job=$(submit games true -w n2 --gpu-mem=4G)
  eventually has_state "$job" RUNNING
  scontrol update nodename=n2 state=drain reason="bad fan"
  patiently has_state "$job" PENDING
  [[ $(reason n2) == "bad fan" ]]
  go_on n2
  # What it would undo is undone at once (above), and looked for again after 2 s. (On a slow machine this proves less.)
  sleep 3
  drained n2 "bad fan"
  scontrol update nodename=n2 state=resume
  patiently has_state "$job" COMPLETED
}

@test "who waits for a shell hears why, in a sentence" {
  stop_agent n2
  run as games srun -w n2 --gpu-mem=8G true
  [[ $status -ne 0 ]]
  [[ $output == *"the node agent does not answer"*"try again; node n2 takes no more jobs until it does"* ]]
  drained n2 "$silent"
  go_on n2
  eventually takes_jobs n2
}

@test "a later srun of a script that runs waits for its agent, and the job goes on" {
  job=$(submit games "$until_go; srun true && echo ended" -w n2 --gpu-mem=4G)
  patiently has_state "$job" RUNNING
  patiently eval '[[ -n $(held n2) ]]'
  stop_agent n2
  go
  patiently drained n2 "$silent"
  sleep 2
  has_state "$job" RUNNING
  go_on n2
  patiently has_state "$job" COMPLETED
  [[ $(<"$SANDBOX/out/$job") == *"the step waits until it does"*ended* && $(field "$job" Restarts) == 0 ]]
  patiently takes_jobs n2
}

@test "--no-requeue keeps nothing from starting elsewhere, and stays" {
  stop_agent n3
  job=$(submit games "touch $SANDBOX/out/once" -w n3 --gpu-mem=4G --no-requeue)
  patiently drained n3 "$silent"
  eventually has_state "$job" PENDING
  not_to_be_requeued() { [[ $(field "$job" Requeue) == 0 ]]; }
  eventually not_to_be_requeued
  go_on n3
  patiently has_state "$job" COMPLETED
  [[ -e $SANDBOX/out/once && $(field "$job" Requeue) == 0 ]]
}

@test "an agent that cannot hold a share sends the job away, too" {
  mv "$SANDBOX/n3/run/jobs" "$SANDBOX/n3/run/away"
  job=$(submit games true -w n3 --gpu-mem=4G)
  patiently drained n3 "aliquot-agent cannot hold shares"
  eventually has_state "$job" PENDING
  [[ $(<"$SANDBOX/out/$job") == *"cannot hold shares"*"the job goes back to the queue"* ]]
  mv "$SANDBOX/n3/run/away" "$SANDBOX/n3/run/jobs"
  kill -9 "$(agent_pid n3)"
  patiently has_state "$job" COMPLETED
}

@test "a GPU that breaks takes no more jobs, its jobs are told, and all goes on when it is well" {
  job=$(submit games "$until_go" -w n3 --gpu-mem=4G)
  eventually has_state "$job" RUNNING
  its_job_is_held() { [[ $(held n3) == *"$job"* ]]; }
  eventually its_job_is_held
  standin n3 xid 0 79
  broken="aliquot-agent: GPU 0 is broken: Xid 79, it has fallen off the bus"
  eventually drained n3 "$broken"
  told() { grep -q "GPU 0 .* which it holds, is broken: Xid 79" "$SANDBOX/out/$job"; }
  eventually told
  noted() { [[ $(scontrol show job "$job") == *"; broken GPU on n3"* ]]; }
  eventually noted
  run -0 aliquot why "$job"
  [[ $output == *"A GPU that it held on n3 broke"* ]]
  shown() { aliquot gpus | grep -E '^n3 +0 .*Xid 79, it has fallen off the bus'; }
  eventually shown
  run aliquot slurm check
  [[ $status -eq 1 && $output == *"FAIL  gpu0 of n3"*"broken: Xid 79"* ]]
  grep -q 'GPU 0 .* takes no more jobs: Xid 79' "$SANDBOX"/log/agent-n3*
  scancel "$job"
  standin n3 heal 0
  eventually takes_jobs n3
  run -0 as games srun -w n3 --gpu-mem=4G true
}

@test "a job that is computing when its GPU breaks, and fails of it, is told" {
  # It outlives what failed by as long as a slow slurmctld takes for the note: after a job's end it takes none.
  job=$(submit games "aliquot-load --mem 1G --seconds 1000; code=\$?; $until_go; exit \$code" -w n3 --gpu-mem=4G)
  computes() { aliquot gpus --json | grep -q "\"job_id\":$job"; }
  eventually has_state "$job" RUNNING
  eventually computes
  standin n3 xid 0 79
  noted() { [[ $(scontrol show job "$job") == *"; broken GPU on n3"* ]]; }
  eventually noted
  go
  eventually has_state "$job" FAILED
  noted
  run -0 aliquot why "$job"
  [[ $output == *"A GPU that it held on n3 broke"* ]]
  standin n3 heal 0
  eventually takes_jobs n3
}

@test "memory that processes of no job hold is not given to a share" {
  foreign n1 0% 100G
  heavy() { scontrol show node n1 | grep -qE 'Extra=aliquot:0=.*:root:10[0-9]{4}M'; }
  patiently heavy
  # Slurm itself would put it there.
  job=$(submit games "touch $SANDBOX/out/fits" -w n1 --gpu-mem=80G)
  patiently drained n1 "aliquot-agent: processes of no job hold memory of GPU 0 that was given to jobs"
  patiently has_state "$job" PENDING
  [[ $(<"$SANDBOX/out/$job") == *"processes of no job hold 10"*"the job goes back to the queue"* ]]
  run -0 aliquot why "$job"
  [[ $output == *"Processes of no job hold 10"*"of gpu0 on n1"* || $output == *"not to start before its time"* ]]
  run aliquot slurm check
  [[ $output == *"warn  gpu0 of n1"*"processes of no job hold"* ]]
  end_foreign
  patiently takes_jobs n1
  patiently has_state "$job" COMPLETED
  [[ -e $SANDBOX/out/fits ]]
}

@test "an agent without room for a grant ends nothing, and sends the job away" {
  mount -t tmpfs -o size=64k,mode=711 none "$SANDBOX/n3/run/grants" || skip "nothing can be mounted here"
  before=$(agent_pid n3)
  job=$(submit games true -w n3 --gpu-mem=4G)
  patiently drained n3 "aliquot-agent cannot hold shares"
  eventually has_state "$job" PENDING
  [[ $(<"$SANDBOX/out/$job") == *"cannot hold shares"*"No space left"*"the job goes back to the queue"* ]]
  umount "$SANDBOX/n3/run/grants"
  [[ $(agent_pid n3) == "$before" ]]
  kill -9 "$before"
  patiently has_state "$job" COMPLETED
}

@test "an agent that comes before the driver finds its GPUs" {
  local standin=$ALIQUOT_BIN/../standin program=$ALIQUOT_BIN/aliquot-agent dir=$BATS_TEST_TMPDIR
  [[ -d $standin ]] || standin=$ALIQUOT_BIN/../lib/aliquot/standin program=$ALIQUOT_BIN/../sbin/aliquot-agent
  mkdir "$dir/lib"
  sed -e "s,^socket = .*,socket = \"$dir/agent.sock\"," -e "s,^run_dir = .*,run_dir = \"$dir/run\"," -e '/^simulate/d' \
    "$SANDBOX/n1/slurm.toml" >"$dir/slurm.toml"
  ALIQUOT_STANDIN=h200:2 ALIQUOT_STANDIN_STATE=$dir/state LD_LIBRARY_PATH=$dir/lib \
    "$program" --foreground --config "$dir/slurm.toml" >"$dir/log" 2>&1 3>&- &
  agent=$!
  says() { grep -q "$1" "$dir/log"; }
  eventually says '; 0 GPUs' || { cat "$dir/log"; return 1; }
  eventually says 'listening'
  ln -s "$(readlink -f "$standin")"/* "$dir/lib/"
  eventually says '; 2 GPUs'
  kill "$agent"
}

# slurmd finds its name by the host's, and slurmstepd has none in its environment.
@test "a node that is not named as its host is drained all the same" {
  stop_sandbox
  own_sandbox=yes
  start_sandbox 9 --nodes 1 --gpus 2 --no-db --set agent.patience=6
  stop_agent n1
  kill "$(pgrep -f "^slurmd -D -N n1 -f $SANDBOX/")"
  env -u SLURMD_NODENAME PATH="$PATH:/usr/sbin" slurmd -D -f "$SANDBOX/etc/slurm.conf" >"$SANDBOX/log/slurmd.by-hand" 2>&1 3>&- &
  patiently takes_jobs n1
  job=$(submit games true --gpu-share=50%)
  patiently drained n1 "$silent"
  patiently has_state "$job" PENDING
}
