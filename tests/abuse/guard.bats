# A job holds what it was granted: what loses the job's environment, by accident or not, is ended, and nobody else is.
load helper

# What a process needs to find the stand-in's GPUs, and nothing else of its job's environment.
bare='env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH ALIQUOT_STANDIN_STATE=$ALIQUOT_STANDIN_STATE'

# Within how many seconds bench/gpu measures: a busy machine takes its time.
@test "env -i in a share is ended, also when it comes back; the honest sibling and the neighbour go on" {
  start_users
  load=$ALIQUOT_BIN/aliquot-load
  printf '#!/bin/bash\n%s\n' "$load --mem 2G --seconds 8 --json >honest & for i in 1 2 3; do
    $bare $load --mem 30G --seconds 600 --busy 0%; echo rc=\$?; done; wait" >"$work/games/job"
  as games sbatch -o out -e err --gpu-mem=8G job
  as news sbatch -o out --gpu-mem=8G --wrap "$load --mem 6G --seconds 6 --json"
  eventually has_state 1 COMPLETED || eventually has_state 1 COMPLETED
  cat "$work/games/out" "$work/games/err"
  [ "$(grep -c '^rc=137$' "$work/games/out")" -eq 3 ]
  grep -q '"allocated"' "$work/games/honest"
  # The job's own standard error says it.
  grep -q 'aliquot: job 1: process .* held 30.* and was granted 8.0 GiB; killed' "$work/games/err"
  aliquot_why=$("$ALIQUOT_BIN/aliquot" why 1)
  [[ $aliquot_why == *"granted 8.0 GiB; killed"* ]]
  eventually has_state 2 COMPLETED
  grep -q '"allocated"' "$work/news/out"
}

@test "a standard error that nobody reads holds nobody up" {
  start_users
  load=$ALIQUOT_BIN/aliquot-load
  mkfifo "$work/games/pipe"
  chown games "$work/games/pipe"
  # A pipe that is full: what is written to it waits for ever.
  printf '#!/bin/bash\n%s\n' "exec 5<>pipe; head -c 65536 /dev/zero >&5
    for i in 1 2; do $bare $load --mem 30G --seconds 60 --busy 0% 2>&5 5>&-; echo rc=\$?; done" >"$work/games/job"
  as games sbatch -o out --gpu-mem=8G job
  eventually has_state 1 COMPLETED || eventually has_state 1 COMPLETED
  cat "$work/games/out"
  [ "$(grep -c '^rc=137$' "$work/games/out")" -eq 2 ]
  as news sbatch -W -o out --wrap 'echo fine'
}

@test "what is over is ended also where its user has suspended the job" {
  start_users
  load=$ALIQUOT_BIN/aliquot-load
  as games sbatch -o out -e err --gpu-mem=2G --wrap "$bare $load --mem 60G --seconds 600 --busy 0% & echo \$! >pid
    sleep 0.2; env -u LD_PRELOAD scontrol suspend \$SLURM_JOB_ID; sleep 1000"
  eventually has_state 1 SUSPENDED
  said() { grep -q 'was granted 2.0 GiB; killed' "$work/games/err"; }
  gone() { [[ ! -e /proc/$(cat "$work/games/pid")/exe ]]; }
  eventually said
  eventually gone
  has_state 1 SUSPENDED
  scontrol resume 1
  has_state 1 RUNNING
}

@test "who starts what has no library faster than one looks loses the job" {
  start_users
  load=$ALIQUOT_BIN/aliquot-load
  as news sbatch -o out --gpu-mem=8G --wrap "$load --mem 1G --seconds 600"
  as games sbatch -o out -e err --gpu-mem=8G --wrap "while :; do $bare $load --mem 1G --seconds 0.3; done"
  over() { has_state 2 FAILED; }
  eventually over || eventually over
  grep -q 'of its processes had to be ended, and it starts more: the job is ended' "$work/games/err"
  has_state 1 RUNNING
}
