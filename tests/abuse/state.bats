# What a user tries to bring the record of the jobs out of step with what runs.
load helper

daemon_lives() { kill -0 "$daemon" && squeue -h >/dev/null; }

@test "a task that is not there takes no command, of a running job, a waiting one and one that is over" {
  start_users
  running=$(as games sbatch --parsable --gres=gpu:2 -o /dev/null --wrap 'sleep 60317')
  eventually has_state "$running" RUNNING
  held=$(as games sbatch --parsable -H -o /dev/null --wrap true)
  array=$(as games sbatch --parsable -H -a 1-3 -o /dev/null --wrap true)
  over=$(as games sbatch --parsable -W -o /dev/null --wrap true)
  for id in "${running}_99" "${held}_99" "${array}_99" "${over}_99" "${running}_0" 99999 99999_1; do
    for command in requeuehold requeue hold release suspend resume top "update Name=x JobId"; do
      if [[ $command == update* ]]; then
        run as games scontrol update Name=x JobId="$id"
      else
        run as games scontrol "$command" "$id"
      fi
      [ "$status" -eq 1 ] || { echo "$command $id: $output"; false; }
      daemon_lives
    done
    as games scancel "$id" || true  # no error, as in Slurm: it is not there
    run as games scontrol show job "$id"
    [ "$status" -ne 0 ]
  done
  # It runs on, with what it has, and nobody else gets that.
  [ "$(field "$running" JobState)" = RUNNING ]
  [ "$(field "$running" Restarts)" = 0 ]
  [ "$(field "$held" JobState)" = PENDING ]
  [ "$(field "$over" JobState)" = COMPLETED ]
  scancel "$running"
  eventually has_state "$running" CANCELLED
  run pgrep -u games -f 'sleep 60317'
  [ "$status" -ne 0 ]
}

@test "what root holds its owner does not let go" {
  start_users
  id=$(as games sbatch --parsable -H -o /dev/null --wrap 'sleep 600')
  scontrol hold "$id"
  [ "$(field "$id" Reason)" = JobHeldAdmin ]
  for command in hold requeuehold uhold; do
    as games scontrol "$command" "$id" || true
    run as games scontrol release "$id"
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "Access/permission denied for job $id" ]
    [ "$(field "$id" Reason)" = JobHeldAdmin ]
  done
  scontrol release "$id"
  eventually has_state "$id" RUNNING
}

@test "a job that root changes stays its owner's" {
  start_users
  id=$(as games sbatch --parsable -H -o /dev/null --wrap true)
  scontrol update JobId="$id" Name=renamed Nice=5
  [ "$(field "$id" Account)" = games ]
  [[ $(field "$id" UserId) == games* ]]
  [ "$(field "$id" JobName)" = renamed ]
}

@test "a path steers no terminal" {
  start_users
  folder=$work/games/$'a\e[2Jb'
  as games mkdir "$folder"
  run as games sh -c 'cd "$1" && sbatch --wrap true' sh "$folder"
  [ "$status" -eq 1 ]
  [[ $output == "sbatch: error: "* && $output != *$'\e'* ]]
  for option in -o -e -i -D; do
    run as games sbatch "$option" $'x\e]0;root\a' --wrap true
    [ "$status" -eq 1 ]
    [[ $output != *$'\e'* ]]
  done
  run as games sh -c 'cd "$1" && srun true' sh "$folder"
  [[ $output != *$'\e'* ]]
  [ -z "$(squeue -h -t all)" ]
}

@test "a message that names what was asked for steers no terminal" {
  start_users
  run as games scontrol show job $'1\e[2J'
  [[ $output != *$'\e'* ]]
  run as games scancel $'1\e[2J'
  [[ $output != *$'\e'* ]]
}

@test "jobs do not wait for each other in a circle" {
  start_users
  first=$(as games sbatch --parsable -H -o /dev/null --wrap true)
  second=$(as games sbatch --parsable -d "afterok:$first" -o /dev/null --wrap true)
  run as games scontrol update JobId="$first" Dependency="afterok:$second"
  [ "$status" -eq 1 ]
  [[ $output == *"Circular job dependency"* ]]
  as games scontrol release "$first"
  eventually has_state "$second" COMPLETED
}

@test "a run whose folder is gone is ended, and not begun beside itself" {
  start_users
  as games sbatch -o out -G 1 --no-requeue --wrap 'echo ran >>ran; sleep 1000'
  eventually test -s "$work/games/ran"
  kill -KILL "$daemon"
  wait "$daemon" || true
  rm -rf "$work/state/jobs/1"
  start_engine
  eventually has_state 1 NODE_FAIL
  [ "$(cat "$work/games/ran")" = ran ]
  none() { ! pgrep -u games -x sleep; }
  eventually none
}
