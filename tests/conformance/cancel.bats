# scancel against a running engine.
load helper

@test "a job that is not there is no error, unless one wants to know" {
  start_engine
  run_case scancel_missing 'scancel 99999'
  run scancel -v 99999
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "scancel: error: Kill job error on job id 99999: Invalid job id specified" ]
}

@test "what is no id of a job is refused" {
  start_engine
  for id in abc last_1 'last_[1-2]' 1_x 1.x; do
    run scancel "$id"
    [ "$status" -eq 1 ]
    [ "$output" = "scancel: error: Invalid job id $id" ]
  done
}

@test "-v says what is done" {
  start_engine
  id=$(sbatch --parsable -o /dev/null sleep.sh 600)
  run_case scancel_v "scancel -v $id"
}

@test "another user's job" {
  [[ $EUID -eq 0 && $ENGINE == local ]] || skip "needs root"
  start_engine
  id=$(sbatch --parsable -o /dev/null sleep.sh 600)
  chmod 755 "$work"
  run_case scancel_denied "setpriv --reuid=games --regid=games --clear-groups scancel $id"
}

@test "by name, and by what is waiting" {
  start_engine
  sbatch -o /dev/null -J keep -H sleep.sh
  sbatch -o /dev/null -J go -H sleep.sh
  scancel -n go
  [ "$(squeue -h -o %j)" = keep ]
  scancel --me -t PENDING
  [ -z "$(squeue -h)" ]
}

@test "a job that ends after it was listed is no error" {
  start_engine
  id=$(sbatch --parsable -o /dev/null --wrap "$until_go")
  # The question comes after the list: the job ends before the answer.
  mkfifo answer
  { scancel -i --me <answer >asked.txt 2>said.txt && echo 0 >status || echo "$?" >status; } 3>&- &
  exec 7>answer
  eventually grep -q "job_id=$id " asked.txt
  go
  eventually ended "$id"
  echo y >&7
  exec 7>&-
  eventually test -s status
  [ "$(cat status)" = 0 ]
  [ ! -s said.txt ]
}
ended() { [[ -z $(squeue -h -j "$1") ]]; }

@test "cancelled together, none starts because another one went" {
  [[ $ENGINE == local ]] || skip "how the controller schedules is its own"
  start_engine
  sbatch -o /dev/null -G 2 sleep.sh 600
  runs_one() { [[ -n $(squeue -h -t R) ]]; }
  eventually runs_one
  # The first one keeps the others waiting.
  ids=$(sbatch --parsable -o /dev/null -G 4 --wrap 'touch ran')
  for i in {1..12}; do ids+=" $(sbatch --parsable -o /dev/null -G 1 --wrap 'touch ran')"; done
  scancel -t PENDING --me
  run sacct -n -X -P -o nodelist,state -j "${ids// /,}"
  echo "$output"
  [ "$(sort -u <<<"$output")" = "None assigned|CANCELLED by $(id -u)" ]
  [ ! -e ran ]
}

@test "elements of an array" {
  start_engine
  id=$(sbatch --parsable -o /dev/null -H --array=1-4 sleep.sh)
  scancel "${id}_[1-2]" "${id}_4"
  [ "$(squeue -h -r -o %i)" = "${id}_3" ]
}

@test "-s signals and does not end" {
  start_engine
  printf '#!/bin/bash\ntrap "echo got >got.out" USR1\ntouch ready\nfor i in {1..1000}; do sleep 0.1; [ -e got.out ] && exit 0; done; exit 9\n' >trap.sh
  sbatch -o /dev/null trap.sh
  eventually test -e ready
  scancel -b -s USR1 --me
  eventually test -e got.out
}
