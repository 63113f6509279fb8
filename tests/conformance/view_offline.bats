# What the viewing commands do without a daemon: lists of hosts, wrong options, nobody who answers.
load helper

@test "scontrol expands and folds lists of hosts" {
  run_case scontrol_show_hostnames 'scontrol show hostnames n[01-03,7]'
  run env SLURM_NODELIST='a[1-2]' scontrol show hostnames
  [ "$output" = $'a1\na2' ]
  run scontrol show hostlist n01,n02,n03,login
  [ "$output" = 'n[01-03],login' ]
  run scontrol show hostnames 'n[1-'
  [ "$status" -eq 1 ]
}

@test "an unknown option" {
  run_case squeue_badopt 'squeue --nope'
  run sinfo --nope
  [ "$status" -eq 1 ]
  run sacct --nope
  [ "$status" -eq 1 ]
  run scontrol frobnicate
  [ "$status" -eq 1 ]
}

@test "values that are none" {
  run squeue -t purple
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "squeue: error: Invalid job state specified: purple" ]
  run squeue -u no-such-user
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "squeue: error: Invalid user: no-such-user" ]
  run squeue -j abc
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "squeue: error: Invalid job id: abc" ]
  run sacct -o nosuchfield
  [ "$status" -eq 1 ]
  [ "$output" = 'sacct: error: Invalid field requested: "nosuchfield"' ]
}

@test "nobody answers" {
  [[ $ENGINE == local ]] || skip "Slurm's cluster is up"
  run_case down_squeue squeue
  run_case down_squeue_j "squeue -h -j 1 -o '%T %B'"
  run_case down_sinfo sinfo
  run_case down_scontrol 'scontrol show job 5'
  run sacct
  [ "$status" -eq 1 ]
  run scontrol ping
  [ "$status" -eq 1 ]
  [[ $output == "Slurmctld(primary) at "*" is DOWN" ]]
}

@test "sacct lists its fields" {
  run sacct -e
  [ "$status" -eq 0 ]
  [[ $output == *"JobIDRaw"*"NodeList"* ]]
}

@test "our own commands say how to go on" {
  [[ $ENGINE == local ]] || skip "ours alone"
  run "$ALIQUOT_BIN/aliquot" status
  [ "$status" -eq 1 ]
  [[ $output == *"aliquot up"* ]]
  run "$ALIQUOT_BIN/aliquot" why abc
  [ "$status" -eq 2 ]
  run "$ALIQUOT_BIN/aliquot" down
  [ "$status" -eq 0 ]
  [ "$output" = "no daemon is running" ]
  run "$ALIQUOT_BIN/aliquot" doctor
  [ "$status" -eq 1 ]
  [[ $output == *"fail  daemon"*"aliquot up"* ]]
}

@test "links are made only where asked for, and never over anything else" {
  [[ $ENGINE == local ]] || skip "ours alone"
  run "$ALIQUOT_BIN/aliquot" shims "$work/links"
  [ "$status" -eq 0 ]
  run "$work/links/scontrol" show hostnames 'x[1-2]'
  [ "$output" = $'x1\nx2' ]
  run "$ALIQUOT_BIN/aliquot" shims "$work/links"
  [ "$status" -eq 0 ]
  rm "$work/links/squeue" && touch "$work/links/squeue"
  run "$ALIQUOT_BIN/aliquot" shims "$work/links"
  [ "$status" -eq 1 ]
  [ ! -L "$work/links/squeue" ]
  run "$ALIQUOT_BIN/aliquot" shims --remove "$work/links"
  [ "$(ls "$work/links")" = squeue ]
}
