# sbatch against a running engine.
load helper

@test "a script, --wrap, an array, a held job, a later one, stdin" {
  start_engine
  run_case sbatch_ok 'sbatch -o /dev/null sleep.sh 30'
  run_case sbatch_wrap 'sbatch -o /dev/null --wrap "sleep 30" --gpus=2 -J wrapped'
  run_case sbatch_array "sbatch -o /dev/null --array=1-6%2 -J arr -n1 --wrap 'sleep 8; echo \$SLURM_ARRAY_TASK_ID'"
  run_case sbatch_hold 'sbatch -o /dev/null -H sleep.sh 5'
  run_case sbatch_begin 'sbatch -o /dev/null --begin=now+1hour sleep.sh 5'
  run_case sbatch_stdin 'printf "#!/bin/bash\nsleep 1\n" | sbatch -o /dev/null -J stdin'
}

@test "--parsable is the id alone" {
  start_engine
  run sbatch --parsable -o /dev/null sleep.sh
  [ "$status" -eq 0 ]
  [[ $output =~ ^[0-9]+$ ]]
}

@test "a partition that is none" {
  start_engine
  run_case sbatch_bad_part 'sbatch -p nope sleep.sh'
}

@test "an account and a quality of service that are none" {
  start_engine
  if [[ $ENGINE == local ]]; then
    sacctmgr -i add account known >/dev/null  # without any, every label is as good
  fi
  run_case sbatch_bad_account 'sbatch -A nope sleep.sh'
  run_case sbatch_bad_qos 'sbatch -q nope sleep.sh'
}

@test "more than the machine has" {
  start_engine
  run_case sbatch_bad_gres 'sbatch --gres=gpu:99 sleep.sh'
  run_case sbatch_bad_mem 'sbatch --mem=900000G sleep.sh'
  run_case srun_bad 'srun --gres=gpu:99 hostname'
}

@test "an array and a dependency that are none" {
  start_engine
  run_case sbatch_bad_array 'sbatch --array=a-b sleep.sh'
  run_case sbatch_bad_dep2 'sbatch -d bogus:1 sleep.sh'
}

@test "--test-only says when, and submits nothing" {
  start_engine
  sbatch --test-only sleep.sh 2>err.txt
  [[ $(normalise <err.txt) =~ ^"sbatch: Job @ID@ to start at @TIME@ using "[0-9]+" processors on nodes "[^\ ]+" in partition "[^\ ]+$ ]]
}

@test "--test-only says so where nobody knows when" {
  [[ $ENGINE == local ]] || skip "Slurm takes a year for it"
  start_engine
  sbatch -o /dev/null --gres=gpu:4 --time=UNLIMITED --wrap 'sleep 600'
  eventually job_is_running
  run sbatch --test-only --gres=gpu:1 sleep.sh
  [[ $output == "sbatch: Job "*" would wait, nobody knows until when: what it needs is held without a time limit, reserved, or out of service" ]]
  local id
  id=$(sbatch --parsable --array=1-2 --gres=gpu:1 sleep.sh)
  run "$ALIQUOT_BIN/aliquot" why "$(squeue -h -o %i -t PD)"
  [[ $status == 0 && ${lines[0]} == "job ${id}_[1-2] is PENDING (Resources)" ]]
  [[ $output == *"When it can start is not known"* ]]
  run "$ALIQUOT_BIN/aliquot" why "${id}_[7-8]"
  [[ $output == "aliquot: there is no job ${id}_[7-8]" ]]
}
job_is_running() { [[ $(squeue -h -o %t) == R ]]; }

@test "--wait has the job's exit code; 1 for a signal; 0 for a failed step" {
  start_engine
  run_case wait_exit3 "sbatch -o /dev/null -W -J ex3 --wrap 'exit 3'"
  run_case wait_segv "sbatch -o /dev/null -W -J segv --wrap 'kill -SEGV \$\$'"
  run_case wait_false_step "sbatch -W -J stepfail -o stepfail.out --wrap 'srun false'; cat stepfail.out"
}

@test "the command line wins over the environment, and that over the script" {
  start_engine
  printf '#!/bin/bash\n#SBATCH -J script -o script.out\n' >p.sh
  echo 'echo "$SLURM_JOB_NAME"' >>p.sh
  sbatch -W p.sh
  SBATCH_JOB_NAME=variable sbatch -W -o variable.out p.sh
  SBATCH_JOB_NAME=variable sbatch -W -J line -o line.out p.sh
  [ "$(cat script.out variable.out line.out)" = $'script\nvariable\nline' ]
}

@test "--chdir, --open-mode and the submit directory" {
  start_engine
  mkdir elsewhere
  sbatch -W -D "$work/elsewhere" -o cd.out --wrap 'pwd; echo $SLURM_SUBMIT_DIR'
  [ "$(cat elsewhere/cd.out)" = "$work/elsewhere"$'\n'"$work" ]
  for i in 1 2; do sbatch -W -o ap.out --open-mode=append --wrap 'echo run'; done
  [ "$(cat ap.out)" = $'run\nrun' ]
}

@test "--export" {
  start_engine
  export A=1 B=2
  sbatch -W -o all.out --export=ALL,B=9 --wrap 'echo "$A $B"'
  sbatch -W -o some.out --export=A --wrap 'echo "$A ${B:-no}"'
  sbatch -W -o none.out --export=NONE --wrap 'echo "${A:-no} $SLURM_EXPORT_ENV"'
  [ "$(cat all.out some.out none.out)" = $'1 9\n1 no\nno NONE' ]
}

@test "arguments after the script are the script's" {
  start_engine
  printf '#!/bin/bash\necho "$@"\n' >args.sh
  sbatch -W -o args.out args.sh --time=5 'a b'
  [ "$(cat args.out)" = "--time=5 a b" ]
}
