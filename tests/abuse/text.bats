# Names, comments and #SBATCH lines reach other people's terminals, and nothing that runs a shell as root.
load helper

refused() {
  run as games "$@"
  [ "$status" -eq 1 ]
  [ -z "$(squeue -h -t all)" ]
}

@test "lines and escapes in names and comments are refused" {
  start_users
  for text in $'a\nb' $'a\rb' $'\e[2J\e[31mroot' $'\e]0;title\a' $'\xc2\x9b2J' $'\x9b2J' $'\xff\xfe' $'a\tb' $'\x7f'; do
    for option in -J --comment -A --wckey -q --mail-user -C; do
      refused sbatch "$option" "$text" -o /dev/null --wrap true
      [[ $output == "sbatch: error: "* && $output != *$'\e'* ]]
    done
  done
  # A step's name is shown, too.
  run as games srun -J $'x\e[2J' true
  [ "$status" -ne 0 ]
  cp /bin/true "$work/games/"$'evil\e[2J'
  run as games srun ./$'evil\e[2J'
  [ "$status" -ne 0 ]
}

@test "a text that is too long" {
  start_users
  long=$(printf '%010000d' 1)
  for option in -J --comment -A; do
    refused sbatch "$option" "$long" -o /dev/null --wrap true
    [ "$output" = "sbatch: error: Batch job submission failed: Pathname of a file, directory or other parameter too long" ]
  done
  refused sbatch -d "afterok:9$long" -o /dev/null --wrap true
  refused sbatch -a "1-9$long" -o /dev/null --wrap true
  refused sbatch --gres "gpu:9$long" -o /dev/null --wrap true
  refused sbatch --gres "$(printf 'gpu:1,%.0s' {1..5000})" -o /dev/null --wrap true
  run as games sbatch -t "9$long" --wrap true
  [ "$status" -ne 0 ]
}

@test "a shell's and printf's characters stay characters" {
  start_users
  name='$(touch /tmp/aliquot-abuse)`touch x`;touch y|%s%n%x&&"'\''\../<>*?~'
  id=$(as games sbatch --parsable -J "$name" --comment "$name" -o out --wrap 'printf %s "$SLURM_JOB_NAME"')
  eventually has_state "$id" COMPLETED
  [ "$(cat "$work/games/out")" = "$name" ]
  [ "$(squeue -h -t all -j "$id" -o %j)" = "$name" ]
  [ ! -e /tmp/aliquot-abuse ]
  [ "$(ls "$work/games")" = out ]
  # Neither does a format of the reader's act on it.
  [[ $(squeue -h -t all -n "$name" -o '%i') == "$id" ]]
  squeue -t all --json | grep -q '"name"'
}

@test "requests with what no command would send" {
  start_users
  for field in '"name":"a\nb"' '"name":"\u0000"' '"name":"\u001b[2J"' '"name":"\u009b"' '"comment":"\u0085"' '"std_out":"a\u0000b"' \
    '"std_out":"a\nb"' '"work_dir":"\u0000"' '"arguments":["\u0000"]' '"environment":["A=\u0000"]' '"environment":["no equals"]' \
    '"partition":"x\ny"' '"ntasks":-1' '"ntasks":99999999999' '"cpus_per_task":0' '"memory":-1' '"time_limit_ms":-5' \
    '"nice":-9223372036854775808' '"signal":{"number":99}' '"nodes":2' '"umask":-1' '"name":7' '"script":"#!\u0000"'; do
    run post_as games /v1/jobs '{"script":"#!/bin/sh\n","work_dir":"/tmp",'"$field"'}'
    [[ $output == "HTTP/1.1 400"* || $output == "HTTP/1.1 403"* ]] || { echo "$field: $output"; false; }
  done
  [ -z "$(squeue -h -t all)" ]
}

@test "#SBATCH lines: control characters, endless lines, open quotes, zero bytes" {
  start_users
  printf '#!/bin/sh\n#SBATCH -J "open\ntrue\n' >"$work/quote.sh"
  run as games sbatch -o /dev/null "$work/quote.sh"
  [ "$status" -ne 0 ] || [[ $(squeue -h -t all -o %j) == open ]]
  as games scancel --me
  printf '#!/bin/sh\n#SBATCH -J a\033[2Jb\ntrue\n' >"$work/escape.sh"
  run as games sbatch -o /dev/null "$work/escape.sh"
  [ "$status" -eq 1 ]
  { printf '#!/bin/sh\n#SBATCH -J '; printf 'x%.0s' {1..200000}; printf '\ntrue\n'; } >"$work/long.sh"
  run as games sbatch -o /dev/null "$work/long.sh"
  [ "$status" -eq 1 ]
  [[ $output == *"parameter too long" ]]
  printf '#!/bin/sh\n#SBATCH -J a\0b\ntrue\n' >"$work/zero.sh"
  run as games sbatch -o /dev/null "$work/zero.sh"
  [ "$status" -eq 1 ]
  [[ $output == *"contain a NULL character"* ]]
  printf '#!/bin/sh\n#SBATCH --uid=root\ntrue\n' >"$work/uid.sh"
  run as games sbatch -o /dev/null "$work/uid.sh"
  [ "$status" -eq 255 ]
  printf '#!/bin/sh\n#SBATCH --wrap=id\n#SBATCH $(touch %s/games/x) `id`\ntrue\n' "$work" >"$work/shell.sh"
  run as games sbatch -o /dev/null "$work/shell.sh"
  [ "$status" -ne 0 ]
  [ ! -e "$work/games/x" ]
}
