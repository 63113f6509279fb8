# No word is swallowed: every option that Slurm 22.05 has is in effect, or refused with a sentence, or cannot matter on
# one machine. options-22.05.txt lists them; src/cli/jobs/unused_words.cpp says which are not in effect.
load helper

@test "the list of options is that of Slurm's manual" {
  [[ $(dpkg-query -W -f '${Version}' slurm-client 2>/dev/null) == 22.05.* ]] || skip "no slurm-client 22.05"
  man -w sbatch >/dev/null 2>&1 || skip "no manual pages"
  diff "$here/options-22.05.txt" <("$here/list-options")
}

@test "every option is known" {
  [[ $ENGINE == local ]] || skip "ours"
  local command option said unknown=()
  while read -r command option; do
    said=$("$command" "--$option=1" --version 2>&1 >/dev/null) || true
    [[ $said == *unrecognized* || $said == *ambiguous* ]] && unknown+=("$command --$option")
  done <"$here/options-22.05.txt"
  printf '%s\n' "${unknown[@]}"
  [ ${#unknown[@]} -eq 0 ]
}

@test "what cannot be had is refused with a sentence" {
  [[ $ENGINE == local ]] || skip "ours"
  start_engine
  local command option
  for option in container=foo batch=x bb=x bbf=x cluster-constraint=x core-spec=1 cpu-freq=high exclusive=user \
    gpu-freq=high gpus-per-socket=1 licenses=a mcs-label=x nodefile=x power=x prefer=a100 profile=task reboot \
    signal=R:USR1 thread-spec=1 tmp=1G; do
    for command in 'sbatch --wrap true' 'srun true' 'salloc true'; do
      [[ $option == batch=* && $command != sbatch* ]] && continue
      set -- $command
      run "$1" "--$option" "${@:2}"
      echo "$1 --$option: $status $output"
      [ "$status" -eq 1 ]
      [[ ${lines[0]} == "$1: error: --${option}: "* ]]
      [ "${#lines[@]}" -eq 1 ]
    done
  done
  for option in accel-bind=g epilog=/bin/true prolog=/bin/true task-prolog=/bin/true task-epilog=/bin/true \
    relative=1 resv-ports=2 het-group=0 no-allocate; do
    run srun "--$option" true
    echo "srun --$option: $status $output"
    [ "$status" -eq 1 ]
    [[ ${lines[0]} == "srun: error: --${option}: "* ]]
  done
  [ -z "$(squeue -h -t all)" ]
}

@test "words that are none are refused as by Slurm" {
  run sbatch --mail-type=FOO --wrap true
  [ "$status" -eq 255 ]
  [ "$output" = "sbatch: error: Invalid --mail-type specification" ]
  run srun --gpu-bind=foo true
  [ "$status" -ne 0 ]
  [ "${lines[0]}" = "srun: error: Invalid --gpu-bind argument: gpu:foo" ]
  run sbatch --ntasks-per-gpu=2 --gpus-per-task=1 --wrap true
  [ "$status" -eq 1 ]
  [ "$output" = "sbatch: fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU" ]
}

@test "--gpu-bind says which GPU a task sees" {
  start_engine
  # Which of the step's GPUs, in the order of the tasks.
  sees() {
    srun -n4 -G2 "$@" -l bash -c 'echo $CUDA_VISIBLE_DEVICES' | sort -n | sed 's/^[0-9]*: //' >seen
    sed 's/,/\n/g' seen | sort -u >gpus
    while read -r line; do for gpu in ${line//,/ }; do grep -nx -- "$gpu" gpus | cut -d: -f1; done | paste -sd,; done <seen | paste -sd' '
  }
  [ "$(sees --gpu-bind=map_gpu:0,1,0,1)" = "1 2 1 2" ]
  [ "$(sees --gpu-bind=single:2)" = "1 1 2 2" ]
  [ "$(sees --gpu-bind=mask_gpu:1,3,2,1)" = "1 1,2 2 1" ]
  [ "$(sees --gpu-bind=none)" = "1,2 1,2 1,2 1,2" ]
  [ "$(sees --ntasks-per-gpu=2)" = "1 1 2 2" ]
  run srun -n1 -G2 --gpu-bind=map_gpu:7 true
  [ "$status" -ne 0 ]
}

@test "--cpus-per-gpu and --mincpus give CPUs" {
  start_engine
  cpus() { srun "$@" bash -c 'squeue -h -j $SLURM_JOB_ID -o %C' | sort -u; }
  [ "$(cpus -G2 --cpus-per-gpu=2)" = 4 ]
  [ "$(cpus --mincpus=3)" = 3 ]
  [ "$(cpus -n4 -O)" = 1 ]
}

@test "--ntasks-per-gpu makes tasks" {
  start_engine
  [ "$(srun -G2 --ntasks-per-gpu=2 bash -c 'echo $SLURM_NTASKS' | sort | uniq -c | xargs)" = "4 4" ]
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2 --ntasks-per-gpu=2 -o per.out\necho $SLURM_NTASKS $SLURM_NTASKS_PER_GPU\nsrun hostname | wc -l\n' >per.sh
  sbatch -W per.sh
  [ "$(cat per.out)" = $'4 2\n4' ]
}

@test "--exclusive takes all GPUs" {
  start_engine
  [ "$(srun --exclusive bash -c 'echo $SLURM_JOB_GPUS')" = 0,1,2,3 ]
  [ "$(srun --exclusive bash -c 'squeue -h -j $SLURM_JOB_ID -o %C')" = "$(sinfo -h -o %c)" ]
}

@test "srun --test-only starts nothing" {
  start_engine
  run srun --test-only touch started
  [ "$status" -eq 0 ]
  [[ $output =~ ^"srun: Job "[0-9]+" to start at "[-0-9T:]+" using 1 processors on nodes " ]]
  [ ! -e started ]
}

@test "srun --mpi=list, and an interface that is not there" {
  run bash -c 'srun --mpi=list 2>/dev/null'
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = "MPI plugin types are..." ]
  [[ $output == *$'\n\tnone'* ]]
  run srun --mpi=foo true
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "srun: error: Couldn't find the specified plugin name for mpi/foo looking at all files" ]
}

@test "variables set options of the views" {
  start_engine
  sbatch -J one -H -o /dev/null --wrap true
  sbatch -J two -H -o /dev/null --wrap true
  [ "$(SQUEUE_NAMES=two squeue -h -o %j)" = two ]
  [ -z "$(SQUEUE_ACCOUNT=nobody-has-this squeue -h)" ]
  [ "$(SQUEUE_NAMES=two squeue -h -o %j -n one)" = one ]
  SCANCEL_NAME=one scancel
  [ "$(squeue -h -o %j)" = two ]
  SINFO_PARTITION=nothing run sinfo -h
  [ -z "$output" ]
}

@test "who chooses by what jobs do not have chooses none of them" {
  [[ $ENGINE == local ]] || skip "ours"
  start_engine
  local id
  id=$(sbatch --parsable -o /dev/null --hold --wrap true)
  [ -z "$(squeue -h -w elsewhere)" ]
  [ -z "$(squeue -h -L matlab)" ]
  [ -z "$(squeue -h -R course)" ]
  run scancel -R course
  run scancel --wckey=x
  [ "$(squeue -h -o %i)" = "$id" ]
  # One that runs is where it is.
  scancel "$id"
  id=$(sbatch --parsable -o /dev/null --wrap 'sleep 600')
  runs() { [ "$(squeue -h -o %t)" = R ]; }
  eventually runs
  [ "$(squeue -h -o %i -w "$(sinfo -h -p main -N -o %N)")" = "$id" ]
}
