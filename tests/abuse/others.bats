# What a user tries with another's job.
load helper

running_of_games() {
  start_users
  printf '#!/bin/bash\n# the secret\nsleep 600\n' >"$work/games/secret.sh"
  chmod 644 "$work/games/secret.sh"
  chown games "$work/games/secret.sh"
  id=$(as games sbatch --parsable --comment=private -o "$work/games/out" secret.sh)
  eventually has_state "$id" RUNNING
}

@test "cancel and signal are refused, by id and by name" {
  running_of_games
  for how in "$id" "-s USR1 $id" "-b $id" "-f -s KILL $id" "-n secret.sh"; do
    run as news scancel $how
    [ "$status" -eq 210 ]
    [ "$output" = "scancel: error: Kill job error on job id $id: Access/permission denied" ]
  done
  run as news scancel -u games
  [ "$status" -eq 210 ]
  [ "$output" = "scancel: error: Kill job error on job id $id: Access/permission denied" ]
  [ "$(field "$id" JobState)" = RUNNING ]
}

@test "update, hold and release are refused with Slurm's words for them" {
  running_of_games
  held=$(as games sbatch --parsable -H -o /dev/null --wrap true)
  for change in TimeLimit=5 Name=mine Comment=mine Gres=gpu:1 Priority=1 Dependency=singleton; do
    run as news scontrol update JobId="$id" "$change"
    [ "$status" -eq 1 ]
    [ "$output" = "Invalid user id for job $id" ]
  done
  for command in hold release uhold; do
    run as news scontrol "$command" "$held"
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "Invalid user id for job $held" ]
  done
  [ "$(field "$held" JobState)" = PENDING ]
  [ "$(field "$id" JobName)" = secret.sh ]
}

@test "requeue, suspend, resume and the script are refused" {
  running_of_games
  for command in requeue requeuehold suspend resume; do
    run as news scontrol "$command" "$id"
    [ "$status" -eq 1 ]
    [ "$output" = "Access/permission denied for job $id" ]
  done
  run as news scontrol write batch_script "$id" -
  [ "$status" -eq 1 ]
  [ "$output" = "job script retrieval failed: Access/permission denied" ]
  [ "$(field "$id" Restarts)" = 0 ]
  # Its owner may.
  [[ $(as games scontrol write batch_script "$id" -) == *"the secret"* ]]
}

@test "a job that is over stays its owner's" {
  start_users
  id=$(as games sbatch --parsable -W -o out --wrap 'exit 3') || [ $? -eq 3 ]
  run as news scontrol requeue "$id"
  [ "$output" = "Access/permission denied for job $id" ]
  run as news scontrol write batch_script "$id" -
  [ "$output" = "job script retrieval failed: Access/permission denied" ]
}

@test "no step, and no attaching" {
  running_of_games
  run as news srun --jobid="$id" id
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "srun: error: Unable to confirm allocation for job $id: Access/permission denied" ]
  SLURM_JOB_ID=$id run as news srun --overlap id
  [ "$status" -eq 1 ]
  for verb in attach steps end steps/0/end; do
    run post_as news "/v1/jobs/$id/$verb" '{}'
    [[ $output == "HTTP/1.1 403"*ESLURM_ACCESS_DENIED* ]]
  done
}

@test "everybody sees the job, and nobody what it does" {
  running_of_games
  run as news squeue -h -j "$id" -o '%u %j %t %o %Z %k'
  [[ $output == "games secret.sh R "* ]]
  for command in "scontrol show job $id" "scontrol -d show job $id" "sacct -j $id -p -o ALL" "squeue --json" "squeue -O Command,StdOut,WorkDir,Comment,Why" "aliquot why $id"; do
    run as news ${command/#aliquot/$ALIQUOT_BIN/aliquot}
    [[ $output != *"$work/games"* && $output != *private* && $output != *"the secret"* ]]
  done
  run raw_as news <<<"GET /v1/jobs/$id HTTP/1.1"$'\r\nHost: x\r\nConnection: close\r\n\r'
  [[ $output != *"$work/games"* && $output != *private* ]]
}

@test "why a job failed may name its files, so it is its owner's to know" {
  start_users
  id=$(as games sbatch --parsable -o "$work/news/stolen" --wrap true)
  eventually has_state "$id" FAILED
  [[ $(as games squeue -h -t all -j "$id" -O Why:200) == *"$work/news/stolen"* ]]
  [[ $(as news squeue -h -t all -j "$id" -O Why:200) != *stolen* ]]
}

@test "the files of a job are closed to others" {
  running_of_games
  run as news cat "$work/state/jobs/$id/script"
  [[ $output == *"Permission denied"* ]]
  for file in launch.json control stepd.pid lock; do
    run as games sh -c "cat '$work/state/jobs/$id/$file' || echo cancel >'$work/state/jobs/$id/$file'"
    [ "$status" -ne 0 ]
  done
  run as games sh -c "rm '$work/state/jobs/$id/script' || ls '$work/state'"
  [ "$status" -ne 0 ]
}

@test "only root drains the machine, raises a priority or is another" {
  start_users
  node=$(scontrol -o show node | sed 's/^NodeName=\([^ ]*\) .*/\1/')
  run as games scontrol update NodeName="$node" State=DRAIN Reason=x
  [ "$status" -eq 1 ]
  [[ $output == "slurm_update error: Access/permission denied" ]]
  run as games sbatch --nice=-10 -o /dev/null --wrap true
  [ "$status" -ne 0 ]
  for option in --uid=root --uid=news --uid=0 --gid=root; do
    for command in sbatch srun salloc; do
      run as games "$command" "$option" "$work/sleep.sh"
      [ "$status" -eq 255 ]
      [ "$output" = "$command: error: ${option%%=*} only permitted by root user" ]
    done
  done
  [ -z "$(squeue -h)" ]
}

@test "a process cannot leave its job for another: not one's own either" {
  start_users
  idle=$(as games sbatch --parsable -o /dev/null --wrap 'sleep 600')
  eventually has_state "$idle" RUNNING
  as games srun --jobid="$idle" --overlap true
  id=$(as games sbatch --parsable -W -o out --wrap "srun true && echo nested
srun --jobid=$idle --overlap true || echo refused")
  cat "$work/games/out"
  grep -qx nested "$work/games/out"
  grep -q "is in job $id and cannot go over to job $idle: ask from outside of job $id" "$work/games/out"
  grep -qx refused "$work/games/out"
}
