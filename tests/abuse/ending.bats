# A job ends when it is told to, whatever its user does against it, and nobody waits for another's.
load helper

over() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }

@test "a pipe that nobody reads keeps no job" {
  start_users
  as games mkfifo err
  # Not by `as`: $! has to be the reader itself, or it outlives the test. And it must not keep the test's own output open.
  setpriv --reuid=games --regid=games --clear-groups bash -c 'exec 9<>"$1"; exec sleep 1000' - "$work/games/err" >/dev/null 3>&- &
  reader=$!
  id=$(as games sbatch --parsable -o /dev/null -e err --wrap 'head -c 65530 /dev/zero >&2; touch full; sleep 1000')
  eventually test -e "$work/games/full"
  scancel "$id"
  eventually has_state "$id" CANCELLED
  kill "$reader"
  wait "$reader" || true
}

# Processes outside of the job that carry its mark.
pretend() {
  local mark=$1
  while [[ -e $work/pretending ]]; do
    as games env ALIQUOT_JOB="$mark" SLURM_STEP_ID=0 sleep 0.3 &
    sleep 0.02
  done
}

@test "nobody waits for another's job, and a late removal does not touch the next run" {
  start_users
  first=$(as games sbatch --parsable -o /dev/null --wrap 'echo $ALIQUOT_JOB >mark; srun sleep 1000; sleep 1000')
  other=$(as news sbatch --parsable -o /dev/null --wrap 'sleep 1000')
  eventually test -s "$work/games/mark"
  eventually has_state "$other" RUNNING
  touch "$work/pretending"
  pretend "$(cat "$work/games/mark")" 3>&- &
  pretender=$!
  sleep 1 # a slow machine proves less with it; it cannot fail of it
  for i in {1..8}; do as games scancel -s KILL "$first.0" || true; done
  scancel "$other"
  eventually over "$other"
  as games scancel "$first"
  eventually has_state "$first" CANCELLED
  as games scontrol requeue "$first"
  eventually has_state "$first" RUNNING
  rm "$work/pretending"
  wait "$pretender" || true
  eventually test -p "$work/state/jobs/$first.1/control"
  [ ! -e "$work/state/jobs/$first" ]
  scancel "$first"
  eventually has_state "$first" CANCELLED
}
