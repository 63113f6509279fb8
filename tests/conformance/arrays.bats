# Arrays as a whole, their elements by name, and clusters and steps that there are not.
load helper

@test "sbatch --wait of an array has the highest status of its elements" {
  start_engine
  run sbatch -W -o /dev/null --array=1-3 --wrap '[ $SLURM_ARRAY_TASK_ID != 1 ]'
  [ "$status" -eq 1 ]
  run sbatch -W -o /dev/null --array=1-5 --wrap 'exit $SLURM_ARRAY_TASK_ID'
  [ "$status" -eq 5 ]
  run sbatch -W -o /dev/null --array=1-3 --wrap true
  [ "$status" -eq 0 ]
}

@test "elements are named in brackets, in squeue and sacct as in scancel" {
  start_engine
  id=$(sbatch --parsable -H -o /dev/null --array=1-4 --wrap true)
  shown() { squeue -h -r -o %K -j "$1" | sort | xargs; }
  [ "$(shown "${id}_[1-2]")" = "1 2" ]
  [ "$(shown "${id}_[4,9]")" = 4 ]
  [ "$(shown "999999,${id}_[1,3]")" = "1 3" ]
  [ -z "$(shown "${id}_[7-9]")" ]
  for one in "${id}_[1-2]" "${id}_[4,9]" "999999,${id}_[1,3]"; do
    [ "$(sacct -n -X -j "$one" | wc -l)" -eq 1 ]
  done
  scancel "${id}_[1-2]"
  run sacct -n -X -P -o state -j "${id}_[1-2]"
  [ "$(sort -u <<<"${output%% *}")" != PENDING ]
  [[ $output == CANCELLED*CANCELLED* ]]
  [ -z "$(sacct -n -X -j "${id}_[7-9]")" ]
}

@test "another cluster's jobs are not ours to answer for" {
  [[ $ENGINE == local ]] || skip "a cluster without accounting knows no others"
  start_engine
  id=$(sbatch --parsable -H -o /dev/null --wrap true)
  # Of sacct there are no jobs there, and no more is said.
  [ -z "$(sacct -n -M foo)" ]
  for command in "scancel -M foo $id" "squeue -M foo" "sinfo -M foo" "scontrol -M foo show job $id"; do
    run $command
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "${command%% *}: error: No cluster 'foo' known by database." ]
  done
  [ "$(squeue -h -M aliquot -o %i)" = "$id" ]
  scancel -M all "$id"
  [ -z "$(squeue -h)" ]
}

@test "scancel says so of a step that never was" {
  [[ $ENGINE == local ]] || skip "Slurm says nothing"
  start_engine
  id=$(sbatch --parsable -o /dev/null --wrap "srun true; $until_go")
  over() { [[ $(sacct -n -P -o state -j "$id.0") == *COMPLETED* ]]; }
  eventually over
  run scancel "$id.7"
  [ "$status" -eq 1 ]
  [ "$output" = "scancel: error: Kill job error on job step id $id.7: Invalid job id specified" ]
  scancel "$id.0"
  go
}
