# SIGHUP reads the settings anew, opens the log anew, and ends nothing.
load helper

said() { grep -q "$1" "$work/log"; }

@test "SIGHUP reloads, says what needs a restart, and reopens the log" {
  start_users "$(settings "[log]
file = \"$work/log\"")"
  id=$(as games sbatch --parsable -o /dev/null --wrap 'sleep 1000')
  eventually has_state "$id" RUNNING
  mv "$work/log" "$work/log.1"
  settings "[log]
file = \"$work/log\"
[cluster]
name = \"other\"
[jobs]
gpus_per_user = 2
[limits]
max_job_count = 77" >/dev/null
  kill -HUP "$daemon"
  eventually said 'settings changed: jobs.gpus_per_user, limits'
  eventually said 'these need a restart: cluster.name'
  [[ $(scontrol show config | grep MaxJobCount) == *" 77" ]]
  [[ $(scontrol show config | grep ClusterName) == *" aliquot" ]]
  [ "$(field "$id" JobState)" = RUNNING ]
  # A mistake changes nothing.
  settings '[limits]
max_job_count = "many"' >/dev/null
  kill -HUP "$daemon"
  eventually said 'the settings stay as they are: .*aliquot.toml:2'
  [[ $(scontrol show config | grep MaxJobCount) == *" 77" ]]
}

@test "scontrol reconfigure does the same, for root alone, and says what is wrong; --check looks without a daemon" {
  start_users "$(settings '')"
  id=$(as games sbatch --parsable -o /dev/null --wrap 'sleep 1000')
  eventually has_state "$id" RUNNING
  settings '[limits]
max_job_count = 78
[cluster]
name = "other"' >/dev/null
  run as games scontrol reconfigure
  [ "$status" = 1 ]
  [[ $output == *"Access/permission denied"* ]]
  run scontrol reconfigure
  [ "$status" = 0 ]
  [ "$output" = "These have changed and need a restart: cluster.name" ]
  [[ $(scontrol show config | grep MaxJobCount) == *" 78" ]]
  [ "$(field "$id" JobState)" = RUNNING ]
  file=$(settings '[limits]
max_job_count = "many"')
  run scontrol reconfigure
  [ "$status" = 1 ]
  [[ $output == "slurm_reconfigure error: "*"aliquot.toml:2"* ]]
  run "$ALIQUOT_BIN/aliquotd" --check "$file"
  [ "$status" = 1 ]
  [[ $output == *"aliquot.toml:2: limits.max_job_count"* ]]
  file=$(settings '[partition.only]
tier = 3')
  run "$ALIQUOT_BIN/aliquotd" --check "$file"
  [ "$status" = 0 ]
  [[ $output == *"are fine; partitions: only*" ]]
}
