# The end of one job harms no other on the same MPS server, whichever way it is ended: a client that is killed in the middle
# of a long kernel would take all of them along.
load helper

teardown() {
  scancel -u games 2>/dev/null
  eventually no_jobs
  kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
  cd / && rm -rf "${work:?}"
}

# Kernels of 0.8 s; those of the neighbour take 2 ms.
busy="$ALIQUOT_BIN/aliquot-load --mem 1G --seconds 600 --iterations 400000000"
# Processes with these words that have been in their kernels for a while.
on_gpu() {
  local shown
  shown=$("$ALIQUOT_BIN/../standin/aliquot-standin-ctl" show | grep -E ' kind=client .* gpu_ms=[0-9]{2,}\.')
  for pid in $(pgrep -f -- "aliquot-load .*$1"); do [[ $shown != *"pid=$pid "* ]] || return 0; done
  return 1
}

# start_neighbour [SETTINGS]: and the daemon.
start_neighbour() {
  start_users --simulate h200:1 "$(settings "[jobs]
kill_wait = 1
$*")"
  export ALIQUOT_STANDIN_STATE=$work/state/standin
  neighbour=$(as games sbatch --parsable -o neighbour --gpu-mem=2G --wrap "$ALIQUOT_BIN/aliquot-load --mem 1G --seconds 600 --json; echo rc=\$?")
  eventually on_gpu json
}
runs_busy() { eventually on_gpu 400000000; }
nobody_busy() { ! on_gpu 400000000; }

neighbour_lives() {
  eventually nobody_busy
  # What happens to the neighbours happens at once.
  sleep 0.5
  cat "$work/games/neighbour"
  has_state "$neighbour" RUNNING
  [ ! -s "$work/games/neighbour" ]
}

@test "scancel" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "$busy")
  runs_busy
  as games scancel "$id"
  eventually has_state "$id" CANCELLED
  neighbour_lives
}

@test "scancel of what has caught SIGTERM: its grace, and then the end" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "trap '' TERM; $busy")
  runs_busy
  as games scancel "$id"
  eventually has_state "$id" CANCELLED
  neighbour_lives
}

@test "scancel -s KILL, of the script, of its steps and of everything" {
  start_neighbour
  local -A scripts=([-b]="exec $busy" [-v]="LD_PRELOAD= srun $busy" [-f]="$busy")
  for how in "${!scripts[@]}"; do
    id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "${scripts[$how]}")
    runs_busy
    as games scancel -s KILL $how "$id"
    eventually over "$id"
    neighbour_lives
  done
}
over() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }

@test "a script that ends before what it started" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "$busy & until [ -e go ]; do sleep 0.05; done")
  runs_busy
  touch "$work/games/go"
  eventually over "$id"
  neighbour_lives
}

@test "the time limit" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "$busy")
  runs_busy
  scontrol update JobId="$id" TimeLimit=0:01
  eventually has_state "$id" TIMEOUT
  neighbour_lives
}

@test "requeue" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "[ -e again ] || { touch again; $busy; }")
  runs_busy
  as games scontrol requeue "$id"
  eventually has_state "$id" COMPLETED
  neighbour_lives
}

@test "an srun that is cancelled" {
  start_neighbour
  as games srun --gpu-mem=2G $busy >out 2>&1 3>&- &
  client=$!
  runs_busy
  as games scancel "$(squeue -h -t R -o %i -S -i | head -1)"
  wait "$client" || true
  neighbour_lives
}

@test "an srun that is told to end, and one that is killed" {
  start_neighbour
  for signal in TERM KILL; do
    as games srun --gpu-mem=2G $busy >out 2>&1 3>&- &
    client=$!
    runs_busy
    pkill -"$signal" -u games -f '^srun --gpu-mem=2G'
    wait "$client" || true
    neighbour_lives
  done
}

@test "the end of an salloc" {
  start_neighbour
  as games salloc --gpu-mem=2G bash -c "$busy & until [ -e go ]; do sleep 0.05; done" >out 2>&1 3>&- &
  client=$!
  runs_busy
  touch "$work/games/go"
  wait "$client" || true
  neighbour_lives
}

@test "a step whose other task fails" {
  start_neighbour
  as games srun -n2 -K --gpu-mem=2G bash -c "((SLURM_PROCID)) || exec $busy; until [ -e go ]; do sleep 0.05; done; exit 1" >out 2>&1 3>&- &
  client=$!
  runs_busy
  touch "$work/games/go"
  wait "$client" || true
  neighbour_lives
}

@test "a supervisor that hangs: the daemon ends the job" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "$busy")
  runs_busy
  pkill -STOP -f "aliquot-stepd $work/state/jobs/$id"
  as games scancel "$id"
  eventually over "$id"
  neighbour_lives
}

@test "a control daemon that hangs keeps no job from ending" {
  start_neighbour
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap "$busy")
  runs_busy
  control=$(cat "$work"/state/run/mps/*/p/nvidia-cuda-mps-control.pid)
  kill -STOP "$control"
  as games scancel "$id"
  eventually has_state "$id" CANCELLED
  kill -CONT "$control"
}
