# The disk under the daemon's state is full: nothing is lost, nobody's job ends, and it gets over it by itself.
load helper

on_small_disk() {
  [[ $EUID -eq 0 ]] || skip "needs root"
  mkdir "$work/small"
  mount -t tmpfs -o size=16m,mode=755 none "$work/small" 2>/dev/null || skip "cannot mount a file system"
  start_users --state-dir "$work/small/state" --run-dir "$work/run"
}
fill() { dd if=/dev/zero of="$work/small/filler" bs=64k 2>/dev/null || true; }

teardown() {
  scancel -u games 2>/dev/null
  scancel -u news 2>/dev/null
  eventually no_jobs 2>/dev/null
  kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
  pkill -KILL -f "aliquot-stepd $work/" 2>/dev/null
  umount -l "$work/small" 2>/dev/null
  cd / && rm -rf "${work:?}"
}

over() { [[ $(squeue -h -t all -j "$1" -o '%T') == "$2" ]]; }

@test "refused with a sentence while it is full, and nothing of what runs or has ended is lost" {
  on_small_disk
  printf '#!/bin/sh\nwhile [ ! -e %s/games/go ]; do sleep 0.1; done; touch %s/games/gone; exit 3\n' "$work" "$work" >"$work/games/wait.sh"
  chown games "$work/games/wait.sh"
  id=$(as games sbatch --parsable -o "$work/games/out" wait.sh)
  stays=$(as games sbatch --parsable -o /dev/null --wrap "touch $work/games/runs; sleep 1000")
  # On record as running is not enough: one whose files find no room goes back to the queue.
  eventually test -e "$work/games/runs"
  fill
  run answer_as news /v1/jobs '{"script":"#!/bin/sh\n","work_dir":"/"}'
  [[ $output == "503 "*'"EAGAIN"'*"database or disk is full"*"try again later"* ]]
  # It ends meanwhile.
  touch "$work/games/go"
  eventually test -e "$work/games/gone"
  run as games scancel "$stays"
  [ "$status" -ne 0 ]
  [[ $output == *"disk is full"* ]]
  kill -0 "$daemon"
  [ "$(as news squeue -h -j "$stays" -o %T)" = RUNNING ]
  grep -q 'running jobs go on' "$work/aliquotd.log"
  # sbatch waits for better times.
  as news sbatch -H -o /dev/null --wrap true >"$work/said" 2>&1 &
  local patient=$!
  as news srun -J waits true >"$work/said.srun" 2>&1 3>&- &
  local interactive=$!
  eventually grep -q 'sleeping and retrying' "$work/said"
  eventually grep -q 'srun: error: Slurm temporarily unable to accept job, sleeping and retrying' "$work/said.srun"
  run as news srun -I true 3>&-  # now or not at all
  [ "$status" -ne 0 ]
  rm "$work/small/filler"
  eventually over "$id" FAILED
  [ "$(field "$id" ExitCode)" = 3:0 ]
  wait "$patient"
  wait "$interactive"
  grep -q 'Submitted batch job' "$work/said"
  grep -q 'is written again' "$work/aliquotd.log"
  [ "$(squeue -h -j "$stays" -o %T)" = RUNNING ]
  # On the record, not only in memory.
  kill "$daemon"; wait "$daemon" || true
  start_engine --state-dir "$work/small/state" --run-dir "$work/run"
  [ "$(squeue -h -j "$stays" -o %T)" = RUNNING ]
  [ "$(field "$id" ExitCode)" = 3:0 ]
}

@test "a job for whose files there is no room waits for it" {
  on_small_disk
  mkdir -p "$work/small/state/jobs"
  # Its place is taken by what cannot be written to; the database has room.
  mount -t tmpfs -o size=4k,mode=711 none "$work/small/state/jobs"
  printf 'x%.0s' {1..4096} >"$work/small/state/jobs/filler"
  id=$(as games sbatch --parsable -o /dev/null --wrap 'exit 5')
  waits() { [[ $(squeue -h -j "$id" -o '%T %r') == "PENDING BeginTime" ]]; }
  eventually waits
  [[ $(as games squeue -h -j "$id" -O Why:200) == *"No space left on device"* ]]
  umount "$work/small/state/jobs"
  eventually over "$id" FAILED
  [ "$(field "$id" ExitCode)" = 5:0 ]
}
