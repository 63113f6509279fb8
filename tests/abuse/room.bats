# What a job can fill, and what it leaves behind, in places that are the daemon's.
load helper

over() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }

@test "a job's script stays root's, and its usage has the size it is to have" {
  start_users
  id=$(as games sbatch --parsable -o out --gpu-mem=2G --wrap 'chmod u+w "$0" 2>&1
    truncate -s 100M "$ALIQUOT_GRANT/usage"; echo grown; sleep 1000')
  eventually over "$id"
  grep -q '^grown$' "$work/games/out"
  grep -q 'Operation not permitted' "$work/games/out"
  said() { grep -q "aliquot: job $id: the job has made its .*/usage larger than it is to be" "$work/games/out"; }
  eventually said
  [ "$(field "$id" JobState)" = FAILED ]
  # A neighbour does not notice.
  as news sbatch -W -o out --gpu-mem=2G --wrap 'echo ran'
  [ "$(cat "$work/news/out")" = ran ]
}

@test "the control groups of steps go with the steps" {
  start_users
  id=$(as games sbatch --parsable -o out --wrap 'for i in 1 2 3; do srun cat /proc/self/cgroup; done; touch done; sleep 1000')
  eventually test -e "$work/games/done"
  group=$(sed -n "s,.*:\(/.*/job_$id\)/step_2.*,\1,p" "$work/games/out" | head -1)
  [ -n "$group" ] || skip "needs control groups"
  no_steps() { [[ -z $(find /sys/fs/cgroup -type d -path "*$group/step_*" 2>/dev/null) ]]; }
  eventually no_steps
  has_state "$id" RUNNING
  scancel "$id"
}

@test "a full run folder ends nobody, and holds up whom it has no room for" {
  [[ $EUID -eq 0 ]] || skip "needs root"
  mkdir "$work/run"
  mount -t tmpfs -o size=6m none "$work/run" || skip "needs mounts"
  start_users --run-dir "$work/run"
  for i in 1 2 3 4; do
    as games sbatch -o out --gpu-mem=1G --wrap 'sleep 1000'
  done
  waits() { [[ $(squeue -h -t PD -o %r | sort -u) == BeginTime ]]; }
  eventually waits
  [[ -n $(squeue -h -t R) ]]
  as news sbatch -W -o out --wrap 'echo fine'
  scancel -u games
  eventually no_jobs
  as news sbatch -W -o out --gpu-mem=1G --wrap 'echo fine'
  kill "$daemon" && wait "$daemon" || true
  daemon=
  umount -l "$work/run"
}
