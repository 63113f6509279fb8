# A job's environment is its user's: it steers the job, and never what runs as root.
load helper

# A library that writes down who loads it.
spy() {
  command -v gcc >/dev/null || skip "needs gcc"
  printf '%s\n' '#include <stdio.h>' '#include <unistd.h>' \
    '__attribute__((constructor)) static void spy(void) {' \
    '  FILE* f = fopen(SPY_LOG, "a"); if (!f) return; char p[512]; ssize_t n = readlink("/proc/self/exe", p, 511);' \
    '  fprintf(f, "%d %.*s\n", (int)geteuid(), (int)(n > 0 ? n : 0), p); fclose(f); }' >"$work/spy.c"
  : >"$work/spied"
  chmod 666 "$work/spied"
  gcc -shared -fPIC -DSPY_LOG="\"$work/spied\"" -o "$work/spy.so" "$work/spy.c"
  chmod 755 "$work/spy.so"
}

@test "LD_PRELOAD and its like load into the job alone" {
  start_users
  spy
  uid=$(id -u games)
  # Through --export, so that the command itself runs without: the sanitizer must be the first library.
  as games sbatch -W -o out --export="ALL,LD_PRELOAD=$work/spy.so,LD_LIBRARY_PATH=$work/games,LD_AUDIT=$work/spy.so" --wrap 'exit 0'
  grep -q "^$uid " "$work/spied"
  run grep -v "^$uid " "$work/spied"
  [ -z "$output" ]
  run grep -E 'stepd|aliquot' "$work/spied"
  [ -z "$output" ]
}

@test "PATH, IFS, BASH_ENV, ENV and functions run nothing as root" {
  start_users
  # By their full paths: they are found under these names themselves.
  printf '#!/bin/sh\n/usr/bin/id -u >>%s/spied\n' "$work" >"$work/games/env"
  for name in sh bash su id cat printf; do cp "$work/games/env" "$work/games/$name"; done
  printf '/usr/bin/id -u >>%s/spied\n' "$work" >"$work/games/rc"
  chmod 755 "$work"/games/*
  chown games "$work"/games/*
  printf '#!/bin/bash\nid\ncat /dev/null\n' >"$work/tools.sh"
  : >"$work/spied" && chmod 666 "$work/spied"
  as games env BASH_ENV="$work/games/rc" ENV="$work/games/rc" IFS=/ 'BASH_FUNC_id%%=() { /usr/bin/id -u >>'"$work"'/spied; }' PERL5OPT=-Mx \
    PYTHONSTARTUP="$work/games/rc" GCONV_PATH="$work/games" TZ=":$work/games/rc" \
    sbatch --export="ALL,PATH=$work/games:/usr/bin:/bin" --get-user-env -W -o out "$work/tools.sh" || true
  [ -s "$work/spied" ]
  run grep -vx "$(id -u games)" "$work/spied"
  [ -z "$output" ]
}

@test "a large environment arrives; one that no program can have is refused by the system" {
  start_users
  large=$(head -c 100000 /dev/zero | tr '\0' x)
  as games env LARGE="$large" sbatch -W -o out --wrap 'echo ${#LARGE}'
  [ "$(cat "$work/games/out")" = 100000 ]
  # 10 MB, more than exec takes: the job fails, the daemon stays.
  body='{"script":"#!/bin/sh\n","work_dir":"'"$work/games"'","environment":['
  chunk=$(printf '%s' "$large")
  for i in {1..100}; do body+="\"V$i=$chunk\","; done
  body+='"Z=1"]}'
  run post_as games /v1/jobs "$body"
  [[ $output == "HTTP/1.1 200"* || $output == "HTTP/1.1 413"* || $output == "HTTP/1.1 400"* ]]
  if [[ $output == "HTTP/1.1 200"* ]]; then
    id=$(sed -n 's/.*"job_id":\([0-9]*\).*/\1/p' <<<"$output")
    eventually has_state "$id" FAILED
  fi
  as news sbatch -W -o out --wrap 'echo fine'
}

@test "odd names of variables" {
  start_users
  printf '%s' 'for v in _ A BASH_FUNC_f%%; do printenv "$v"; done; env -0 | tr "\0" "\n" | grep -c "^odd"; printf "%s" "$LINES2"' >"$work/games/body"
  chown games "$work/games/body"
  as games env 'odd name=1' $'odd\nname=2' 'odd=a=b=c' LINES2=$'one\ntwo' $'LATIN=\xe9' 'BASH_FUNC_f%%=() { echo f; }' \
    sbatch -W -o out --wrap "$(cat "$work/games/body")"
  [ "$(tail -2 "$work/games/out")" = $'one\ntwo' ]
}

@test "what we set wins over what the user says of the job" {
  start_users
  as games env SLURM_JOB_ID=1000000 SLURM_JOB_UID=0 CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_JOB_GPUS=0 ALIQUOT_JOB=1:x SLURM_STEP_ID=9 \
    sbatch -W -o out --wrap 'echo "$SLURM_JOB_ID $SLURM_JOB_UID [$CUDA_VISIBLE_DEVICES] [$SLURM_JOB_GPUS] [$SLURM_STEP_ID] $ALIQUOT_JOB"'
  [[ $(cat "$work/games/out") =~ ^1\ $(id -u games)\ \[\]\ \[\]\ \[\]\ 1:[0-9a-f]+$ ]]
}
