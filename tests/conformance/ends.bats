# How interactive jobs and steps end, and what is said of it.
load helper

is_state() { [[ $(squeue -h -t all -j "$1" -o %T) == "$2" ]]; }
# More settings of our engine: nothing is killed within the time of a test, so whatever ends was asked to.
patient_engine() {
  printf '[jobs]\nkill_wait = 3600\n' >patient.toml
  start_engine --config "$work/patient.toml"
}

@test "salloc says that it was revoked, at once" {
  patient_engine
  salloc bash -c 'touch inside; sleep 600; exit 3' 2>err.txt 3>&- &
  local pid=$!
  eventually test -e inside
  scancel --me
  wait "$pid" || true
  [[ $(<err.txt) == *"salloc: Job allocation "*" has been revoked."* ]]
  [[ $(<err.txt) != *Relinquishing* ]]
  eventually is_state 1 CANCELLED
}

@test "a shell of salloc is hung up on, and the terminal is as before" {
  [[ $ENGINE == local ]] || skip "ours"
  command -v script >/dev/null || skip "no script(1)"
  patient_engine
  printf 'stty -a >before; SHELL=/bin/bash salloc; stty -a >after; echo "rc=$?" >rc\n' >session.sh
  (sleep 600 & echo $! >feeder; wait) | script -qec 'bash session.sh' /dev/null >screen.txt 2>&1 3>&- &
  eventually is_state 1 RUNNING
  scancel 1
  eventually test -e rc
  kill "$(<feeder)"
  diff before after
  [[ $(<screen.txt) == *"salloc: Job allocation 1 has been revoked."* ]]
}

@test "srun --pty at its end: told, hung up on, and the terminal as before" {
  [[ $ENGINE == local ]] || skip "ours"
  command -v script >/dev/null || skip "no script(1)"
  patient_engine
  printf 'stty -a >before; srun --pty bash --norc; stty -a >after; echo >rc\n' >session.sh
  (sleep 600 & echo $! >feeder; wait) | script -qec 'bash session.sh' /dev/null >screen.txt 2>&1 3>&- &
  eventually is_state 1 RUNNING
  has_step() { squeue -h -s -o %j | grep -q bash; }
  eventually has_step
  scancel 1
  eventually test -e rc
  kill "$(<feeder)"
  diff before after
  grep -q "srun: Job step aborted: Waiting up to 32 seconds for job step to finish." screen.txt
  grep -q "slurmstepd-.*: error: \*\*\* STEP 1.0 ON .* CANCELLED AT .* \*\*\*" screen.txt
}

@test "a job that is cancelled while it starts is not forgotten" {
  [[ $ENGINE == local ]] || skip "ours"
  patient_engine
  printf '#!/bin/bash\nsleep 600 &\nsleep 600 &\nsleep 600\n' >many.sh
  local i
  for i in 1 2 3; do
    for _ in 1 2 3 4 5 6; do sbatch -o /dev/null many.sh >/dev/null; done
    scancel --me
  done
  none_left() { [ -z "$(squeue -h)" ]; }
  eventually none_left
}

@test "a step's own time limit" {
  [[ $ENGINE == local ]] || skip "ours: Slurm looks at limits every half minute"
  start_engine
  printf '#!/bin/bash\n#SBATCH -o limit.out\nsrun -t 0:01 sleep 600\necho "rc=$?"\n' >limit.sh
  sbatch -W limit.sh
  grep -q "slurmstepd-.*: error: \*\*\* STEP 1.0 ON .* CANCELLED AT .* DUE TO TIME LIMIT \*\*\*" limit.out
  grep -q "srun: error: .*: task 0: Terminated" limit.out
  grep -q "rc=143" limit.out
  [[ $(sacct -n -P -j 1 -o jobid,state) == *"1.0|TIMEOUT"* ]]
}

@test "out of memory is said by srun, and is the state of the step" {
  [[ $ENGINE == local ]] || skip "ours"
  start_engine
  [[ $(scontrol show config) == *memory* ]] || [[ $("$ALIQUOT_BIN/aliquot" status --json) == *memory* ]] || skip "no control groups for memory"
  run srun --mem=200M bash -c 'x=$(head -c 900M /dev/zero | tr "\0" x); echo ${#x}'
  [ "$status" -ne 0 ] || skip "nothing limits memory here"
  [[ $output == *"error: Detected "*" oom_kill event"*" in StepId=1.0. Some of the step tasks have been OOM Killed."* ]]
  [[ $output == *"srun: error: "*": task 0: Out Of Memory"* ]]
  [[ $(sacct -n -P -j 1 -o jobid,state) == *"1.0|OUT_OF_MEMORY"* ]]
  why_says() { [[ $("$ALIQUOT_BIN/aliquot" why 1) == *"It used more memory than its 200M: ask for more with --mem=400M."* ]]; }
  eventually why_says
}

@test "sacct -D shows the run before a requeue" {
  start_engine
  id=$(sbatch --parsable -o /dev/null sleep.sh 600)
  eventually is_state "$id" RUNNING
  scontrol requeue "$id"
  twice() { [ "$(sacct -D -n -X -j "$id" -o state | wc -l)" -eq 2 ]; }
  eventually twice
  [ "$(sacct -n -X -j "$id" -o state | wc -l)" -eq 1 ]
  scancel "$id"
}

@test "update: job cut short, and a time limit longer or shorter than it is" {
  start_engine
  id=$(sbatch --parsable -H -t 20 -o /dev/null --wrap true)
  limit() { squeue -h -j "$id" -o %l; }
  scontrol update job="$id" TimeLimit=+10
  [ "$(limit)" = 30:00 ]
  scontrol update JobId="$id" TimeLimit=-25
  [ "$(limit)" = 5:00 ]
  run scontrol update JobId="$id" TimeLimit=-25
  [ "$status" -eq 1 ]
  [[ $output == *"TimeLimit decrement larger than current time limit (25 > 5)"* ]]
  scancel "$id"
}

@test "a second component is refused" {
  [[ $ENGINE == local ]] || skip "on purpose: one machine"
  start_engine
  run srun echo a : echo b
  [ "$status" -eq 1 ]
  [[ $output == "srun: error: a job has one component here, and ':' would begin another: "* ]]
  run salloc true : true
  [ "$status" -eq 1 ]
}

@test "a step's share is its job's" {
  [[ $ENGINE == local ]] || skip "ours"
  start_engine
  # The library of the share and the sanitizer do not go together in one command.
  run salloc --gpu-share=40% bash -c 'LD_PRELOAD= srun --gpu-share=10% true'
  [ "$status" -eq 1 ]
  [[ $output == *"srun: error: --gpu-share: a step has the share that its job has; for a part of its own submit it as a job: sbatch --gpu-share=10%"* ]]
  run sbatch --gpu-mem=8 --wrap true
  [ "$status" -eq 255 ]
  [ "$output" = "sbatch: error: Invalid --gpu-mem specification: more than a program's context takes, as 8G" ]
}

@test "folders of output files are made" {
  [[ $ENGINE == local ]] || skip "Slurm makes none"
  start_engine
  sbatch -W -o 'new/%x/%j.out' -J run --wrap 'echo here'
  [ "$(cat new/run/1.out)" = here ]
  srun -n2 -o 'tasks/%t/out' bash -c 'echo $SLURM_PROCID'
  [ "$(cat tasks/0/out tasks/1/out)" = $'0\n1' ]
}

@test "nvidia-smi of simulated GPUs is found in interactive jobs" {
  [[ $ENGINE == local ]] || skip "ours"
  start_engine
  [[ $(srun -G1 nvidia-smi -L) == *"(simulated)"* ]]
  [[ $(salloc -G1 nvidia-smi -L 2>/dev/null) == *"(simulated)"* ]]
  [[ $(salloc -G1 srun nvidia-smi -L 2>/dev/null) == *"(simulated)"* ]]
}

@test "CUDA_VISIBLE_DEVICES has indexes" {
  start_engine
  [ "$(srun -G2 bash -c 'echo $CUDA_VISIBLE_DEVICES')" = 0,1 ]
  [[ $ENGINE == local ]] || skip "the rest is ours"
  sbatch -o /dev/null --gpu-share=40% --wrap "$until_go"
  [ "$(srun --gpu-share=40% bash -c 'echo $CUDA_VISIBLE_DEVICES')" = 0 ]
  # The second share is on the same GPU, and finds it by its number.
  srun --gpu-share=40% "$ALIQUOT_BIN/aliquot-load" --mem 1G --seconds 0.1 --json
  go
}

@test "what cannot be had comes with a hint behind Slurm's words" {
  [[ $ENGINE == local ]] || skip "ours"
  start_engine
  hint() {
    run sbatch "$@" --wrap true
    [ "$status" -ne 0 ]
    [[ ${lines[-2]} == "sbatch: error: Batch job submission failed: "* ]]
    [[ ${lines[-1]} == "sbatch: hint: "* ]]
    echo "${lines[-1]}"
  }
  [[ $(hint --gres=gpu:9) == *"gpu:9 is more than this machine can ever give: it has 4 GPUs (h100)" ]]
  [[ $(hint -N 2) == *"-N can only be 1"* ]]
  [[ $(hint -n 100000) == *CPU* ]]
  [[ $(hint --gres=gpu:v100:1) == *"no GPU of model 'v100' here; there are: h100"* ]]
  [[ $(hint -G 0.5) == *"for a part of one write --gpu-share=50%"* ]]
}
