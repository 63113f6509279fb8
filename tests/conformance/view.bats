# The viewing commands against a running engine.
load helper

submit() { sbatch --parsable -o "$work/out.%j" "$@"; }
state_is() { [[ $(squeue -h -j "$1" -t all -o %T) == "$2" ]]; }

@test "ids that are none" {
  start_engine
  run_case squeue_missing "squeue -h -j 99999 -o '%T %B'"
  run_case squeue_many_ids 'squeue -j 99998,99999; echo rc=$?'
  run_case scontrol_show_job_missing 'scontrol show job 99999'
  run_case scontrol_update_bad 'scontrol update JobId=99999 TimeLimit=5:00'
  run_case sacct_missing 'sacct -j 99999'
  run_case sinfo_R 'sinfo -R'
}

@test "our own words for jobs that are not there" {
  [[ $ENGINE == local ]] || skip "ours alone"
  start_engine
  local command
  for command in why logs; do
    run "$ALIQUOT_BIN/aliquot" "$command" 99999
    [ "$status" -eq 1 ]
    [ "$output" = "aliquot: there is no job 99999" ]
    run "$ALIQUOT_BIN/aliquot" "$command"
    [ "$output" = "aliquot: you have no job yet" ]
  done
}

@test "a job in every view, from waiting to its end" {
  start_engine
  id=$(submit -J look --gres=gpu:1 --wrap "echo said; $until_go")
  eventually state_is "$id" RUNNING
  run squeue -h -j "$id" -o '%i %j %T %D'
  [ "$output" = "$id look RUNNING 1" ]
  run squeue -h --me -o '%i|%t'
  [ "$output" = "$id|R" ]
  run scontrol show job "$id"
  [[ $output == "JobId=$id JobName=look"*"JobState=RUNNING Reason=None"*"TresPerNode=gres/gpu:1"* ]]
  run sinfo -h -o '%t'
  [ "$output" = mix ]
  run "$ALIQUOT_BIN/aliquot" status
  [ "$status" -eq 0 ]
  [[ $output == *"GPUs 1/4 in use"*"simulated"*look* ]]
  run "$ALIQUOT_BIN/aliquot" gpus
  [[ $output == *"(simulated)"* ]]
  run "$ALIQUOT_BIN/aliquot" why "$id"
  [ "$status" -eq 0 ]
  (sleep 0.5; go) 3>&- &
  run timeout 120 "$ALIQUOT_BIN/aliquot" logs -f last
  [ "$status" -eq 0 ]
  [ "$output" = said ]
  eventually state_is "$id" COMPLETED
  run squeue -h -j "$id"
  [ "$status" -eq 0 ]
  [ "$output" = "" ]
  run sacct -X -n -P -j "$id" -o jobid,jobname,state,exitcode
  [ "$output" = "$id|look|COMPLETED|0:0" ]
  run sacct -n -P -j "$id" -o jobid
  [ "$output" = "$id"$'\n'"$id.batch" ]
  run seff "$id"
  [ "$status" -eq 0 ]
  [[ $output == "Job ID: $id"*"State: COMPLETED (exit code 0)"*"GPU Share: "* ]]
}

@test "hold, release, change and requeue" {
  start_engine
  id=$(submit -H -J held --wrap 'sleep 600')
  run squeue -h -j "$id" -o '%r'
  [ "$output" = JobHeldUser ]
  scontrol update JobId="$id" TimeLimit=5:00 Name=renamed
  run squeue -h -j "$id" -o '%j %l'
  [ "$output" = "renamed 5:00" ]
  scontrol release "$id"
  eventually state_is "$id" RUNNING
  run scontrol wait_job "$id"
  [ "$status" -eq 0 ]
  run scontrol write batch_script "$id" -
  [[ $output == "#!/bin/sh"*"sleep 600"* ]]
  scontrol requeuehold "$id"
  held() { [[ $(squeue -h -j "$id" -o '%T %r') == "PENDING JobHeld"* ]]; }
  eventually held
  run scancel "$id"
}

@test "an array is one line until it is asked for element by element" {
  start_engine
  id=$(submit -H -a 1-6%2 -J arr --wrap true)
  run squeue -h -o %i
  [ "$output" = "${id}_[1-6%2]" ]
  run squeue -h -r -o %i
  [ "${#lines[@]}" -eq 6 ]
  [ "${lines[0]}" = "${id}_1" ]
}

@test "a drained node says why" {
  start_engine
  node=$(sinfo -h -o %n)
  scontrol update nodename="$node" state=drain reason='bad gpu 2'
  run sinfo -h -o '%t %E'
  [ "$output" = "drain bad gpu 2" ]
  run sinfo -R -h
  [[ $output == "bad gpu 2 "* ]]
  scontrol update nodename="$node" state=resume
  run sinfo -h -o %t
  [ "$output" = idle ]
}

@test "JSON is JSON" {
  start_engine
  python=$(command -v python3) || skip "no python3 to read it with"
  "$ALIQUOT_BIN/aliquot" status --json | "$python" -c 'import json,sys; assert json.load(sys.stdin)["jobs"] == []'
  submit -J look --wrap true >/dev/null
  local line
  for line in 'squeue --json' 'sinfo --json' 'sacct --json' 'scontrol --json show job' 'seff --json last' \
    'aliquot status --json' 'aliquot gpus --json' 'aliquot why --json last' 'aliquot doctor --json' 'aliquot logs --json last'; do
    [[ $line != aliquot* ]] || line=$ALIQUOT_BIN/$line
    $line | "$python" -c 'import json,sys; json.load(sys.stdin)' || { echo "$line" >&2; return 1; }
  done
}

@test "up and down, once and again" {
  [[ $ENGINE == local ]] || skip "ours alone"
  run "$ALIQUOT_BIN/aliquot" up --simulate h100:2 --state-dir "$work/state" 3>&-
  [ "$status" -eq 0 ]
  [[ $output == "started aliquotd (pid "*"simulated GPUs (h100:2)"* ]]
  run "$ALIQUOT_BIN/aliquot" up
  [ "$status" -eq 0 ]
  [[ $output =~ ^"aliquotd is already running (pid "[0-9]+")"$ ]]
  run "$ALIQUOT_BIN/aliquot" up --simulate h100:2 --state-dir "$work/state"
  [ "$status" -eq 0 ]
  run "$ALIQUOT_BIN/aliquot" up --simulate t4:1
  [ "$status" -eq 1 ]
  [[ $output == *"aliquotd is already running (pid "*"), and not with --simulate t4:1: 'aliquot down' first" ]]
  run sinfo -h -o %G
  [ "$output" = gpu:h100:2 ]
  [[ $("$ALIQUOT_BIN/aliquot" doctor) == *"free for the queue's state in $work/state"* ]]
  run "$ALIQUOT_BIN/aliquot" down
  [ "$status" -eq 0 ]
  [[ $output == "stopped aliquotd"* ]]
  run "$ALIQUOT_BIN/aliquot" down
  [ "$output" = "no daemon is running" ]
}

@test "up on a full disk says so" {
  [[ $ENGINE == local ]] || skip "ours alone"
  [[ $EUID -eq 0 ]] || skip "needs root, to have a disk that is full"
  mkdir full
  mount -t tmpfs -o size=256k none full 2>/dev/null || skip "nothing may be mounted here"
  dd if=/dev/zero of=full/fill bs=4k 2>/dev/null || true
  run "$ALIQUOT_BIN/aliquot" up --simulate h100:1 --state-dir "$work/full" 3>&-
  umount -l full
  [ "$status" -eq 1 ]
  [[ $output == *"the disk of $work/full/aliquotd.log is full"* ]]
}
