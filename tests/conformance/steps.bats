# srun and salloc against a running engine.
bats_require_minimum_version 1.5.0
load helper

@test "exit codes: a task's, a signal's, the highest of all, none found" {
  start_engine
  run_case srun_exit "srun bash -c 'exit 7'"
  run_case srun_kill "srun bash -c 'kill -9 \$\$'"
  run_case srun_multi_fail "srun -n3 -l bash -c '[ \$SLURM_PROCID = 1 ] && exit 4; sleep 2'"
  run_case_any_order srun_notfound 'srun nosuchcmd'
}

@test "-l labels, in any order" {
  start_engine
  run --separate-stderr bash -c 'srun -n3 -l hostname | sort'
  [ "$output" = "0: $(hostname)"$'\n'"1: $(hostname)"$'\n'"2: $(hostname)" ]
}

@test "--pty without a terminal goes on without" {
  start_engine
  run_case srun_pty_name "srun --pty bash -c 'echo \$SLURM_JOB_NAME \$SLURM_PTY_PORT \$SLURM_PTY_WIN_COL'"
}

@test "--pty with a terminal is one" {
  start_engine
  command -v script >/dev/null || skip "no script(1)"
  run script -qec "srun --pty bash -c 'tty; test -t 0 && test -t 1 && echo both; exit 3'" /dev/null
  [ "$status" -eq 3 ]
  [[ $output == */dev/pts/* && $output == *both* ]]
}

@test "input goes to all tasks, or to one" {
  start_engine
  run --separate-stderr bash -c 'echo hi | srun -n2 -l cat | sort'
  [ "$output" = $'0: hi\n1: hi' ]
  run --separate-stderr bash -c 'echo hi | srun -n2 -l --input=1 cat'
  [ "$output" = "1: hi" ]
}

@test "a file for each task" {
  start_engine
  srun -n2 -o 'out-%2t.txt' bash -c 'echo $SLURM_PROCID'
  [ "$(cat out-00.txt out-01.txt)" = $'0\n1' ]
}

@test "--multi-prog" {
  start_engine
  printf '0 echo zero\n* echo %%t %%o\n' >prog
  run --separate-stderr bash -c 'srun -n3 -l --multi-prog prog | sort'
  [ "$output" = $'0: zero\n1: 1 0\n2: 2 1' ]
}

@test "steps of a job are counted, and know their tasks" {
  start_engine
  printf '#!/bin/bash\n#SBATCH -n2 -o steps.out\n' >steps.sh
  echo 'for i in 0 1; do srun bash -c '\''echo $SLURM_STEP_ID $SLURM_PROCID/$SLURM_NTASKS'\'' | sort; done' >>steps.sh
  sbatch -W steps.sh
  [ "$(cat steps.out)" = $'0 0/2\n0 1/2\n1 0/2\n1 1/2' ]
}

@test "a job that is over takes no steps" {
  start_engine
  SLURM_JOB_ID=99999 run srun true
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "srun: error: Unable to confirm allocation for job 99999: Invalid job id specified" ]
}

@test "salloc runs the command in the job, and says so" {
  start_engine
  salloc -G1 bash -c 'echo in alloc $SLURM_JOB_ID; srun bash -c "echo step \$SLURM_STEP_ID"; exit 5' >out.txt 2>err.txt || status=$?
  [ "${status:-0}" -eq 5 ]
  [[ $(<out.txt) =~ ^"in alloc "[0-9]+$'\n'"step 0"$ ]]
  [ "$(normalise <err.txt | head -2)" = "$(grep stderr "$here/expected/salloc_ok.txt" | sed 's/^\[stderr\] //' | head -2)" ]
}

@test "waiting is said, once there is something to wait for" {
  start_engine
  sbatch -o /dev/null --exclusive --wrap "$until_go"
  srun hostname >out.txt 2>err.txt 3>&- &
  eventually grep -q 'queued and waiting' err.txt
  go
  wait $!
  [[ $(<err.txt) =~ "srun: job "[0-9]+" queued and waiting for resources" ]]
  [[ $(<err.txt) =~ "srun: job "[0-9]+" has been allocated resources" ]]
}
