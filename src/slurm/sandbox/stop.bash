# shellcheck shell=bash disable=SC2034,SC2154
# Finding and ending everything of a sandbox, whatever happened to it in between. Part of slurm-sandbox.

descendants() { # PID…: with all that they started
  ps -e -o pid=,ppid= | awk -v roots="$*" '
    BEGIN { n = split(roots, r); for (i = 1; i <= n; i++) take[r[i]] = 1 }
    { parent[$1] = $2 }
    END {
      do { more = 0; for (p in parent) if (!(p in take) && parent[p] in take) { take[p] = 1; more = 1 } } while (more)
      for (p in take) print p
    }'
}

# The folders of our jobs in every hierarchy: other sandboxes have the same nodes and other job numbers.
job_cgroups() {
  local folder job
  for folder in /sys/fs/cgroup/*/slurm_n*/uid_*/job_* /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_*; do
    job=${folder##*/job_}
    [[ -d $folder && $job =~ ^[0-9]+$ ]] && ((job >= first_job && job <= last_job)) && echo "$folder"
  done
}

ours() { # pids of everything of this sandbox
  local pids folder pid job
  pids=$(grep -lzxF "ALIQUOT_SANDBOX_DAEMON=$dir" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
  # slurmstepd overwrites its environment with its title, which names the job.
  for pid in $(pgrep -x slurmstepd); do
    job=$(sed -zn 's/.*\[\([0-9]*\)[^]]*\].*/\1/p' "/proc/$pid/cmdline" 2>/dev/null | tr -d '\0')
    [[ -n $job ]] && ((job >= first_job && job <= last_job)) && pids+=" $pid"
  done
  # Jobs: by their environment (which a job may change) and by their cgroups (which it may not).
  while read -r pid; do
    grep -zq '^SLURM_JOB_ID=' "/proc/$pid/environ" 2>/dev/null && pids+=" $pid"
  done < <(grep -lzxF "SLURM_CONF=$etc/slurm.conf" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
  for folder in $(job_cgroups); do
    pids+=" $(find "$folder" -name cgroup.procs -exec cat {} + 2>/dev/null | paste -sd' ')"
  done
  # Neither ourselves nor who called us.
  local self=$$ spare=' '
  while [[ -n $self && $self -gt 1 ]]; do
    spare+="$self "
    self=$(sed 's/.*) //' "/proc/$self/stat" 2>/dev/null | cut -d' ' -f2)
  done
  # shellcheck disable=SC2086
  for pid in $(descendants $pids); do
    [[ $spare == *" $pid "* || $pid == "$BASHPID" ]] || echo "$pid"
  done
}

stop_everything() {
  local name pid pids round
  # The agents and the balancer may put things in order; a Slurm that is removed has nothing left to save.
  for name in "$run"/*-loop.pid; do
    [[ -e $name ]] || continue
    pid=$(pid_of "$(basename "$name" .pid)") && kill "$pid" 2>/dev/null
  done
  for ((round = 0; round < 40; round++)); do
    compgen -G "$run/*-loop.pid" >/dev/null || break
    for name in "$run"/*-loop.pid; do pid_of "$(basename "$name" .pid)" >/dev/null && { sleep 0.05; continue 2; }; done
    break
  done
  for ((round = 0; round < 100; round++)); do
    for name in $(job_cgroups); do
      find "$name" -name freezer.state -exec sh -c 'echo THAWED >"$1"' _ {} \; 2>/dev/null
    done
    pids=$(ours)
    [[ -n $pids ]] || return 0
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null
    sleep 0.05
  done
  die "these processes do not die: $(ps -o pid=,comm= -p "$(paste -sd, <<<"$pids")" | paste -sd';')"
}

remove_cgroups() {
  local folder
  for folder in $(job_cgroups); do find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null; done
  # Those of the nodes are every sandbox's: a slurmd that still runs may be filling one that is empty yet.
  ! pgrep -x slurmd >/dev/null || return 0
  # Where no other sandbox (or Slurm) has a job these are empty; elsewhere they stay. The group of a job that is only
  # just starting has no process yet, and is not ours.
  for folder in $(node_names); do
    find /sys/fs/cgroup/*/"slurm_$folder" /sys/fs/cgroup/system.slice/"${folder}_slurmstepd.scope" \
      -name 'job_*' -prune -o -type d -print 2>/dev/null | sort -r | xargs -r rmdir 2>/dev/null
  done
  return 0
}

# The servers of jobs that ran to the end of the sandbox.
stop_mps() {
  local pid
  # A server may end between being found and being read; grep then says so on its standard error, a redirection would on ours.
  for pid in $(pgrep -f nvidia-cuda-mps); do
    ! grep -zqF "CUDA_MPS_PIPE_DIRECTORY=$dir/" "/proc/$pid/environ" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
  done
}
