# sstat, sattach, sreport and sdiag: their words first, then what they say of jobs.
load helper

@test "sattach without a step, and of one that is not there" {
  start_engine
  run_case sattach_none 'sattach'
  run_case sattach_job 'sattach 99'
  run_case sattach_missing 'sattach 4000000.0'
  run_case sattach_missing 'sattach abc.0'
  run_case sattach_usage 'sattach --usage'
}

@test "sstat's errors" {
  start_engine
  run_case sstat_none 'sstat'
  run_case sstat_bad 'sstat -j abc'
  run_case sstat_field 'sstat -j 1 -o foo'
  run_case sstat_option 'sstat --frob'
  run_case sstat_usage 'sstat --usage'
}

@test "sreport's errors" {
  start_engine
  run_case sreport_keyword 'sreport foo'
  run_case sreport_few 'sreport cluster'
  run_case sreport_cluster 'sreport cluster foo'
  run_case sreport_user 'sreport user foo'
  run_case sreport_job 'sreport job foo'
  run_case sreport_condition 'sreport -n cluster utilization xyz=1 start=2030-01-01'
  run_case sreport_tres 'sreport -T foo cluster utilization'
  run_case sreport_node 'sreport -T cpu,node cluster utilization'
  run_case sreport_count 'sreport -n user top topcount=x start=2030-01-01'
}

@test "sreport's tables" {
  start_engine
  run_case sreport_top 'sreport user top start=2030-01-01 end=2030-01-01'
  run_case sreport_accounts 'sreport cluster Account start=2030-01-01 end=2030-01-01 -T cpu,billing -t minper'
  run_case sreport_utilization 'sreport -P cluster util start=2030-01-01'
}

@test "sdiag's words" {
  start_engine
  run_case sdiag_option 'sdiag --frob'
  run_case sdiag_usage 'sdiag --usage'
  run_case sdiag_reset 'sdiag -r'
}

@test "sdiag counts jobs and requests" {
  [[ $ENGINE == local ]] || skip "others use that Slurm, too"
  start_engine
  sbatch -W -o /dev/null --wrap true
  sbatch -W -o /dev/null --wrap false || true
  # As in Slurm each element of an array counts.
  array=$(sbatch --parsable --array=0-9 --hold -o /dev/null --wrap true)
  run sdiag
  [ "$status" -eq 0 ]
  echo "$output"
  [[ $output == *"Jobs submitted: 12"*"Jobs started:   2"*"Jobs completed: 1"*"Jobs failed:    1"* ]]
  [[ $output == *"POST jobs "*"count:3 "* ]]
  sdiag -r
  [[ $(sdiag) == *"Jobs submitted: 0"*"Jobs started:   0"*"Jobs completed: 0"*"Jobs failed:    0"* ]]
  scancel "$array"
  sbatch -W -o /dev/null --wrap true
  run sdiag
  echo "$output"
  [[ $output == *"Jobs submitted: 1"*"Jobs started:   1"*"Jobs completed: 1"*"Jobs canceled:  1"*"Jobs failed:    0"* ]]
}

@test "sstat of a step with two tasks, and sattach's layout of it" {
  [[ $ENGINE == local ]] || skip "its slurmd may gather nothing"
  start_engine
  id=$(sbatch --parsable -n 2 -o out.txt --wrap "srun bash -c '$until_go; echo said' & wait")
  eventually bash -c "[[ \$(sstat -nP -j $id.0 -o ntasks) == 2 ]]"
  run sstat -aP -j "$id" -o jobid,ntasks,maxrsstask,mincpunode
  echo "$output"
  [ "${#lines[@]}" -eq 3 ]
  [[ ${lines[1]} == "$id.batch|1|0|"* ]]
  [[ ${lines[2]} == "$id.0|2|"* ]]
  run sstat -nPi -j "$id.0"
  [[ $output =~ ^$id\.0\|[^|]+\|[0-9]+,[0-9]+ ]]
  [[ $(sstat -nP --noconvert -j "$id.0" -o averss) -gt 0 ]]
  run sattach --layout "$id.0"
  [[ $output == "Job step layout:"*"2 tasks, 1 nodes ("*"2 task(s): 0 1 " ]]
  sattach "$id.0" >attached.txt 3>&- &
  local attached=$!
  eventually bash -c "ls -l /proc/$attached/fd 2>/dev/null | grep -q out.txt"
  go
  wait "$attached"
  [ "$(cat attached.txt)" = $'said\nsaid' ]
  eventually bash -c "[[ \$(squeue -h -o %t -j $id) == '' ]]"
  run sstat -n -j "$id"
  [ "$status" -eq 0 ]
  [[ $output == "sstat: error: "*" for job $id" ]]
}

@test "sreport counts what ran until now" {
  [[ $ENGINE == local ]] || skip "slurmdbd counts by the hour"
  start_engine
  sbatch -W -c 3 -o /dev/null --gres=gpu:1 --wrap 'sleep 1.2'
  run sreport -nP -t seconds -T cpu,gres/gpu user top start=now-1hour end=now+1hour format=login,tresname,used
  echo "$output"
  [[ ${lines[0]} =~ ^$(id -un)\|cpu\|([0-9]+)$ ]]
  [ "${BASH_REMATCH[1]}" -ge 3 ]
  [[ ${lines[1]} =~ ^$(id -un)\|gres/gpu\|([0-9]+)$ ]]
  [ "${BASH_REMATCH[1]}" -ge 1 ]
}
