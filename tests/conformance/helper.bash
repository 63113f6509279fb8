# For the conformance tests: the same files run against Slurm (ENGINE=slurm, its commands on the PATH, a cluster
# running) and against Aliquot (ENGINE=local, the default), which gets a daemon of its own for each test.
#
#   run_case NAME COMMAND…   runs a command line in $work and compares what it prints, on stderr and stdout, and its exit
#                            status with expected/NAME.txt. Ids, the host and times are written as @ID@, @HOST@, @TIME@.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ENGINE=${ENGINE:-local}
# shellcheck source=tests/eventually.bash
. "$here/../eventually.bash"
# shellcheck source=tests/conformance/table.bash
. "$here/table.bash"

setup() {
  work=$(mktemp -d "${BATS_TMPDIR:-/tmp}/conformance.XXXXXX")
  cd "$work" || return 1
  local conf=${SLURM_CONF:-}
  unset "${!SBATCH_@}" "${!SLURM_@}" "${!SALLOC_@}"
  [[ -z $conf || $ENGINE != slurm ]] || export SLURM_CONF=$conf
  printf '#!/bin/bash\nsleep "${1:-1}"\n' >sleep.sh
  if [[ $ENGINE != local ]]; then
    # One clear word instead of a hundred differences.
    if [[ $ENGINE != slurm ]] || ! sinfo --version 2>/dev/null | grep -q '^slurm' || ! sinfo -h >/dev/null 2>&1; then
      echo "ENGINE=$ENGINE: ENGINE=slurm bats tests/conformance needs Slurm's own commands first on the PATH" \
        "(apt install slurm-wlm) and a cluster that answers sinfo, with partition gpu and 4 GPUs of type h100" >&2
      return 1
    fi
    return 0
  fi
  [[ -n ${ALIQUOT_BIN:-} ]] || { echo "set ALIQUOT_BIN to the folder of the built programs" >&2; return 1; }
  mkdir "$work/bin"
  local name
  for name in sbatch srun salloc scancel squeue sinfo scontrol sacct seff sprio sshare sacctmgr sstat sreport sattach sdiag; do
    ln -s "$ALIQUOT_BIN/aliquot" "$work/bin/$name"
  done
  export PATH=$work/bin:$PATH ALIQUOT_SOCKET=$work/aliquotd.sock
  # Leaks at exit are not what is tested, and the sanitizer would change the exit status of a killed task.
  export ASAN_OPTIONS=detect_leaks=0
}

teardown() {
  if [[ -n ${daemon:-} ]]; then
    # Jobs outlive their daemon, so they go first.
    scancel --me --state=PENDING,RUNNING,SUSPENDED 2>/dev/null
    kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
    pkill -KILL -f "aliquot-stepd $work/" 2>/dev/null
  fi
  cd / && end_all_in "${work:?}" && rm -rf "$work"
}

# A daemon with four simulated GPUs, and more options of aliquotd; nothing to do for Slurm, whose cluster is up.
start_engine() {
  [[ $ENGINE == local ]] || return 0
  [[ -x $ALIQUOT_BIN/aliquotd ]] || { echo "there is no $ALIQUOT_BIN/aliquotd: build it" >&2; return 1; }
  "$ALIQUOT_BIN/aliquotd" --foreground --simulate h100:4 --state-dir "$work/state" --socket "$ALIQUOT_SOCKET" "$@" \
    >"$work/aliquotd.log" 2>&1 3>&- &
  daemon=$!
  eventually listens_or_ended
  [[ -S $ALIQUOT_SOCKET ]] && return 0
  cat "$work/aliquotd.log" >&2
  return 1
}
# The socket is there a moment before somebody answers.
listens_or_ended() { { [[ -S $ALIQUOT_SOCKET ]] && sinfo -h >/dev/null 2>&1; } || ! kill -0 "$daemon" 2>/dev/null; }

# For scripts of jobs that end when the test says so: `$until_go`, and in the test `go`.
until_go="until [ -e go ]; do sleep 0.05; done"
go() { touch "$work/go"; }

# That a job waits for a moment is said on a machine that is busy with something else, by Slurm and by us.
normalise() {
  # What we say beyond Slurm's words is marked as such.
  sed -E -e "/^[a-z]+: hint: /d" \
    -e "/^(srun|salloc): (Pending job allocation [0-9]+|job [0-9]+ (queued and waiting for|has been allocated) resources)$/d" \
    -e "s/Submitted batch job [0-9]+/Submitted batch job @ID@/" \
    -e "s/StepId=[0-9]+\.[0-9]+/StepId=@ID@/" \
    -e "s/(job allocation|Job allocation|on job id|Terminating job|Job|job) [0-9]+/\1 @ID@/" \
    -e "s/error: [A-Za-z0-9.-]+: (task[s]? )/error: @HOST@: \1/" \
    -e "s/slurmstepd-[A-Za-z0-9.-]+:/slurmstepd-@HOST@:/" \
    -e "s/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}/@TIME@/"
}

run_case() {
  local name=$1 status=0
  shift
  bash -c "$*" >out.txt 2>err.txt </dev/null || status=$?
  {
    normalise <out.txt
    normalise <err.txt | sed 's/^/[stderr] /'
    echo "[rc=$status]"
  } >got.txt
  diff -u "$here/expected/$name.txt" got.txt
}

# The same where who speaks first is chance.
run_case_any_order() {
  run_case "$@" >/dev/null 2>&1 || true
  diff -u <(sort "$here/expected/$1.txt") <(sort got.txt)
}
