# A machine full of jobs that may be pushed aside, and one that has a right to be there.
bats_require_minimum_version 1.5.0
load helper

# The settings of a besteffort whose jobs have GRACE seconds; without it none.
with_grace() {
  settings "[partition.main]
default = true
[partition.besteffort]
tier = 0
preempt = \"requeue\"
${1:+grace_time = $1}"
}

# fill COUNT GRES SCRIPT: so many jobs of a user's, all running.
fill() {
  local i
  printf '#!/bin/bash\n%s\n' "$3" >"$work/games/fill.sh"
  chown games "$work/games/fill.sh"
  for ((i = 0; i < $1; i++)); do as games sbatch -p besteffort --gres="$2" -o /dev/null fill.sh >/dev/null; done
  eventually all_run "$1"
}
all_run() { [[ $(squeue -h -p besteffort -t R | wc -l) -eq $1 && ! -e $work/games/late ]]; }
has_begun() { [[ -s $work/news/begun ]]; }

# The milliseconds from sbatch to the first instruction of a job that asks for GRES.
takes() {
  local before
  printf '#!/bin/bash\necho ${EPOCHREALTIME/./} >begun\nsleep 100\n' >"$work/news/due.sh"
  before=${EPOCHREALTIME/./}
  as news sbatch --gres="$1" -o /dev/null due.sh >/dev/null
  eventually has_begun
  echo $((($(<"$work/news/begun") - before) / 1000))
}

@test "who has a right runs within two seconds of the grace time, whatever the others do" {
  start_users "$(with_grace 3)"
  # Two hear of it and go on, two do not even listen.
  fill 4 gpu:1 'trap "echo told >>told" TERM; trap "" INT; until [[ -e ended ]]; do sleep 0.1; done'
  run -0 takes gpu:2
  echo "$output ms"
  ((output >= 2900))
  ((output <= 5000))
  # Exactly as many as were needed, and they are back in the queue.
  [[ $(squeue -h -p besteffort -t R | wc -l) -eq 2 ]]
  eventually waits_again 2
  [[ $(wc -l <"$work/games/told") -ge 2 ]]
}
waits_again() { [[ $(squeue -h -p besteffort -t PD | wc -l) -eq $1 ]]; }

@test "shares make room for shares, and no more of them than are needed" {
  start_users "$(with_grace 1)"
  fill 16 mps:25 'exec sleep 100'
  run -0 takes mps:75
  echo "$output ms"
  ((output >= 0))
  ((output <= 3000))
  [[ $(squeue -h -p besteffort -t R | wc -l) -eq 13 ]]
}

@test "without a grace time it is at once" {
  start_users "$(with_grace)"
  fill 4 gpu:1 'exec sleep 100'
  run -0 takes gpu:4
  echo "$output ms"
  ((output <= 2000))
  eventually waits_again 4
}
