# A job's files are opened by its user: what the user may not, the job may not.
load helper

# fails_on_files ID: as in Slurm, exit code 0:53, and the script never ran.
fails_on_files() {
  eventually has_state "$1" FAILED
  [ "$(field "$1" ExitCode)" = 0:53 ]
  [ ! -e "$work/games/ran" ]
}

@test "output into root's folders, and into another user's" {
  start_users
  for path in /etc/aliquot-abuse "$work/news/x" "../news/x" "$work/games/../news/x" "$work/state/x" "$work/state/state.db" /root/x; do
    id=$(as games sbatch --parsable -o "$path" --wrap 'touch ran')
    fails_on_files "$id"
  done
  for option in -e -i; do
    id=$(as games sbatch --parsable -o out "$option" "$work/news/x" --wrap 'touch ran')
    fails_on_files "$id"
  done
  [ ! -e /etc/aliquot-abuse ]
  [ ! -e "$work/news/x" ]
  [ ! -e "$work/state/x" ]
}

@test "through a symlink to root's file" {
  start_users
  echo root >"$work/precious"
  chmod 600 "$work/precious"
  as games ln -s "$work/precious" link
  for mode in truncate append; do
    id=$(as games sbatch --parsable -o link --open-mode=$mode --wrap 'touch ran')
    fails_on_files "$id"
  done
  id=$(as games sbatch --parsable -o out -i link --wrap 'touch ran; cat')
  fails_on_files "$id"
  [ "$(cat "$work/precious")" = root ]
  # And where the link changes between submission and start.
  as games sh -c 'rm link; : >link'
  id=$(as games sbatch --parsable -H -o link --wrap 'touch ran')
  as games sh -c "rm link; ln -s '$work/precious' link"
  as games scontrol release "$id"
  fails_on_files "$id"
  [ "$(cat "$work/precious")" = root ]
}

@test "a fifo nobody reads keeps the job waiting, and nobody else" {
  start_users
  as games mkfifo pipe
  id=$(as games sbatch --parsable -o pipe --wrap 'touch ran')
  eventually has_state "$id" RUNNING
  as news sbatch -W -o out --wrap 'echo fine'
  [ "$(cat "$work/news/out")" = fine ]
  as games scancel "$id"
  eventually has_state "$id" CANCELLED
}

@test "an output that never ends fills what is the user's, and a device is no trap" {
  start_users
  id=$(as games sbatch --parsable -o /dev/full --wrap 'echo x || exit 7')
  eventually has_state "$id" FAILED
  id=$(as games sbatch --parsable -o /dev/null -i /dev/zero --wrap 'head -c 10 >/dev/null')
  eventually has_state "$id" COMPLETED
}

@test "--chdir to where the user may not" {
  start_users
  as games sbatch -W -D "$work/news" -o "$work/games/out" --wrap pwd
  [ "$(tail -1 "$work/games/out")" = /tmp ]
  grep -q "couldn't chdir to \`$work/news'" "$work/games/out"
  run as games srun -D "$work/news" pwd
  [ "${lines[-1]}" = /tmp ]
}

@test "names in a path: patterns, slashes and dots are the user's own" {
  start_users
  as games mkdir deep
  as games sbatch -W -J '../../state/x' -o 'deep/%x.out' --wrap 'touch ran' || true
  [ ! -e "$work/state/x.out" ]
  [ ! -e "$work/games/ran" ]
  as games sbatch -W -J '%j%u%%n%s' -o '%x.out' --wrap true
  [ -e "$work/games/%j%u%%n%s.out" ]
  as games sbatch -W -o '%9999999999999999999999j%4294967295a%' --wrap true
  long=$(printf '%05000d' 1)
  run as games sbatch -o "$long" --wrap true
  [ "$status" -eq 1 ]
  [ "$output" = "sbatch: error: Batch job submission failed: Pathname of a file, directory or other parameter too long" ]
}

@test "a script that is no program, or is another's" {
  start_users
  printf '#!/bin/sh\necho got\n' >"$work/news/private.sh"
  run as games sbatch "$work/news/private.sh"
  [ "$output" = "sbatch: error: Unable to open file $work/news/private.sh" ]
  printf '#!/no/such/interpreter\n' >"$work/bad.sh"
  id=$(as games sbatch --parsable -o out "$work/bad.sh")
  eventually has_state "$id" FAILED
  [ "$(field "$id" ExitCode)" = 2:0 ]
}
