# One step of a job, its GPUs, and what administrators and owners change.
load helper

is_state() { [[ $(squeue -h -t all -j "$1" -o %T) == "$2" ]]; }
steps_run() { [[ $(squeue -h -s -j "$1" -o %i | grep -c "$1\\.[0-9]") -eq $2 ]]; }

@test "scancel ends one step, and the job goes on" {
  start_engine
  printf '#!/bin/bash\n#SBATCH -n2 -o steps.out\nsrun -n1 sleep 600 &\nsrun -n1 sleep 600 &\nwait\necho done\n' >two.sh
  id=$(sbatch --parsable two.sh)
  eventually steps_run "$id" 2
  scancel "$id.0"
  eventually steps_run "$id" 1
  is_state "$id" RUNNING
  scancel "$id.1"
  eventually is_state "$id" COMPLETED
  grep -q done steps.out
  grep -q "task 0: Killed" steps.out
  [[ $(sacct -n -P -j "$id" -o jobid,state | grep "^$id.0") == "$id.0|CANCELLED"* ]]
}

@test "scancel of a step that is not there, and of the batch step" {
  start_engine
  id=$(sbatch --parsable -o /dev/null sleep.sh 600)
  eventually is_state "$id" RUNNING
  run scancel -v "$id.7"
  [ "$status" -eq 1 ]
  [ "${lines[-1]}" = "scancel: error: Kill job error on job step id $id.7: Invalid job id specified" ]
  is_state "$id" RUNNING
  scancel "$id.batch"
  eventually is_state "$id" FAILED
}

@test "steps that ask for GPUs get different ones" {
  start_engine
  cat >gpus.sh <<'SCRIPT'
#!/bin/bash
#SBATCH --gres=gpu:3 -n3 -o gpus.out
# Both at the same time, one after the other.
for n in 1 2; do
  srun -n1 --exact --gres=gpu:$n bash -c 'echo "$SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES" >step.$SLURM_STEP_ID; until [ -s step.1 ]; do sleep 0.05; done' &
  until [ -s step.$((n - 1)) ]; do sleep 0.05; done
done
wait
srun -n1 bash -c 'echo "$SLURM_STEP_GPUS" >all'
srun -n1 --gres=none bash -c 'echo "[$CUDA_VISIBLE_DEVICES]" >none'
srun -n3 --gpus-per-task=1 bash -c 'echo "$CUDA_VISIBLE_DEVICES" >task.$SLURM_PROCID'
SCRIPT
  sbatch -W gpus.sh
  [ "$(cut -d' ' -f1 step.0)" = 0 ]
  [ "$(cut -d' ' -f1 step.1)" = 1,2 ]
  [[ $(cut -d' ' -f2 step.1) =~ ^[0-9],[0-9]$ ]]
  [[ $(cut -d' ' -f2 step.1) != *"$(cut -d' ' -f2 step.0)"* ]]
  [ "$(cat all)" = 0,1,2 ]
  [ "$(cat none)" = "[]" ]
  [ "$(sort -u task.0 task.1 task.2 | wc -l)" -eq 3 ]
}

@test "a step waits for GPUs that other steps have, and fails if the job has not so many" {
  start_engine
  cat >wait.sh <<'SCRIPT'
#!/bin/bash
#SBATCH --gres=gpu:1 -n3 -o wait.out
srun -n1 --gres=gpu:1 bash -c 'touch first; until grep -q retrying wait.out; do sleep 0.05; done; touch first.done' &
until [ -e first ]; do sleep 0.05; done
srun -n1 -I --gres=gpu:1 true
srun -n1 --gres=gpu:1 bash -c '[ -e first.done ] && echo in order'
wait
srun -n1 --gres=gpu:2 true
SCRIPT
  id=$(sbatch --parsable -W wait.sh) || true
  grep -q "srun: error: Unable to create step for job $id: Requested nodes are busy" wait.out
  grep -q "srun: Job $id step creation temporarily disabled, retrying (Requested nodes are busy)" wait.out
  grep -q "srun: Step created for StepId=$id.1" wait.out
  grep -q "in order" wait.out
  grep -q "srun: error: Unable to create step for job $id: Invalid generic resource (gres) specification" wait.out
}

@test "-I waits so many seconds" {
  start_engine
  sbatch -o /dev/null --gres=gpu:4 --wrap "$until_go"
  eventually is_state 1 RUNNING
  run srun -I1 --gres=gpu:1 true
  [ "$status" -eq 1 ]
  [ "${lines[-1]}" = "srun: error: Unable to allocate resources: Requested nodes are busy" ]
  go
  run srun -I120 --gres=gpu:1 echo here
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = here ]
}

@test "salloc --no-shell leaves the job behind" {
  start_engine
  run salloc --no-shell --gres=gpu:1
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "salloc: Granted job allocation 1" ]
  sleep 0.3 # a slow machine proves less with it; it cannot fail of it
  is_state 1 RUNNING
  run srun --jobid=1 bash -c 'echo $SLURM_JOB_ID'
  [ "$output" = 1 ]
  is_state 1 RUNNING
  scancel 1
  eventually is_state 1 CANCELLED
}

@test "top, and the throttle of an array" {
  start_engine
  sbatch -o /dev/null --gres=gpu:4 --wrap 'sleep 600'
  for i in 2 3; do sbatch -o /dev/null --gres=gpu:4 --wrap 'sleep 600'; done
  scontrol top 3
  [ "$(squeue -h -t PD -S -p -o %i | head -1)" = 3 ]
  scancel 1 2 3
  id=$(sbatch --parsable -o /dev/null -a 1-4%1 --wrap 'sleep 600')
  one() { [ "$(squeue -h -t R -j "$id" -o %i | wc -l)" -eq 1 ]; }
  eventually one
  scontrol update JobId="$id" ArrayTaskThrottle=3
  three() { [ "$(squeue -h -t R -j "$id" -o %i | wc -l)" -eq 3 ]; }
  eventually three
}

@test "a drain outlives the daemon, and sinfo -R says who and when" {
  [[ $ENGINE == local ]] || skip "restarts the daemon"
  start_engine
  node=$(sinfo -h -N -p main -o %N)
  scontrol update NodeName="$node" State=DRAIN Reason='bad gpu 2'
  run sinfo -R
  [[ ${lines[1]} =~ ^"bad gpu 2            $(id -un)"\ +[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\ "$node"$ ]]
  kill "$daemon" && wait "$daemon" || true
  start_engine
  [[ $(sinfo -h -R) == "bad gpu 2 "* ]]
  [[ $(scontrol show node) == *"Reason=bad gpu 2 [$(id -un)@"* ]]
  scontrol update NodeName="$node" State=RESUME
  [ -z "$(sinfo -h -R)" ]
}
