# For tests on a whole Slurm of their own, with simulated GPUs: one sandbox for each file, started in setup_file.

bats_require_minimum_version 1.5.0
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/eventually.bash
. "$repo/tests/eventually.bash"

# Why there can be no sandbox here, or nothing.
no_sandbox() {
  local program
  [[ $EUID -eq 0 ]] || { echo "a sandbox needs root"; return; }
  for program in munged slurmctld slurmd slurmdbd mariadbd lua5.1; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || { echo "$program is not here: tools/install-deps slurm"; return; }
  done
  [[ -e $ALIQUOT_BIN/../lib/slurm/aliquot_spank.so || -e $ALIQUOT_BIN/../lib/aliquot/slurm/aliquot_spank.so ]] ||
    echo "the plugins for Slurm are not built: tools/install-deps slurm, and configure again"
}

sandbox_program() {
  local place
  for place in "$ALIQUOT_BIN/../libexec/aliquot/slurm-sandbox" "$repo/src/slurm/slurm-sandbox"; do
    [[ -x $place ]] && { echo "$place"; return; }
  done
}

# free_ports FIRST: FIRST, or a lower one where somebody else has one of the ports that a sandbox would take.
free_ports() {
  local first=$1 taken
  taken=" $(ss -Hltun | awk '{ sub(/.*:/, "", $5); print $5 }' | paste -sd' ') "
  while ((first > 3000)) && [[ $taken =~ \ ($(seq -s'|' "$first" $((first + 40))))\  ]]; do first=$((first - 2000)); done
  echo "$first"
}

# start_sandbox NUMBER OPTION…: NUMBER keeps the ports of files that run side by side apart.
start_sandbox() {
  local number=$1 why
  shift
  why=$(no_sandbox)
  if [[ -n $why ]]; then
    export SANDBOX_MISSING=$why
    return 0
  fi
  SANDBOX=$(mktemp -d /var/tmp/aq-test.XXXXXX)
  chmod 755 "$SANDBOX"
  export SANDBOX
  "$(sandbox_program)" up --dir "$SANDBOX" --port-base "$(free_ports $((31000 + 100 * number)))" "$@" >"$BATS_FILE_TMPDIR/up" 2>&1 </dev/null 3>&- || {
    cat "$BATS_FILE_TMPDIR/up" >&2
    return 1
  }
  mkdir -m 1777 "$SANDBOX/out"
  eval "$("$(sandbox_program)" env --dir "$SANDBOX")"
  export SLURM_CONF PATH="$ALIQUOT_BIN:$PATH"
}

stop_sandbox() {
  [[ -z ${SANDBOX:-} ]] || "$(sandbox_program)" down --dir "$SANDBOX" >/dev/null 2>&1 </dev/null 3>&-
}

# In setup(): a file without a sandbox skips, and says why.
need_sandbox() {
  [[ -z ${SANDBOX_MISSING:-} ]] || skip "$SANDBOX_MISSING"
  export SANDBOX_GO=$SANDBOX/out/go.$BATS_TEST_NUMBER
}

what_is_there() {
  squeue -a -o '%i %T %r %u %P %b %S %R'
  scontrol show nodes | grep -E 'NodeName|State|Reason|Gres'
  tail -n 30 "$SANDBOX"/log/slurmctld.log "$SANDBOX"/log/agent-*.out
}

# as USER COMMAND…
as() {
  local user=$1
  shift
  (cd / && exec setpriv --reuid="$user" --regid="$user" --clear-groups env HOME=/ USER="$user" LOGNAME="$user" "$@")
}

# field JOB KEY: of `scontrol show job`.
field() { scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }
has_state() { [[ $(field "$1" JobState) == "$2" ]]; }

# submit USER SCRIPT OPTION…: the job's number; its output goes to $SANDBOX/out/JOB.
submit() {
  local user=$1 script=$2
  shift 2
  as "$user" sbatch --parsable -o "$SANDBOX/out/%j" "$@" --wrap "$script"
}

# For scripts of jobs that go on when the test says so: `$until_go`, and in the test `go`, once for each test.
until_go='until [ -e "$SANDBOX_GO" ]; do sleep 0.1; done'
go() { touch "$SANDBOX_GO"; }

# number KEY FILE: of aliquot-load's JSON.
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$2"; }

# held NODE: the grants that the agent of a node keeps.
held() { ls "$SANDBOX/$1/run/grants" 2>/dev/null; }
nothing_held() {
  local node
  for node in "$SANDBOX"/n*/run; do
    [[ -z $(ls "$node/grants" "$node/jobs" 2>/dev/null | grep -v ':$' | grep .) ]] || return 1
  done
}

# driver NODE: the stand-in driver's own counts.
driver() {
  local place
  for place in "$ALIQUOT_BIN/../standin" "$ALIQUOT_BIN/../lib/aliquot/standin"; do
    [[ -x $place/aliquot-standin-ctl ]] || continue
    ALIQUOT_STANDIN_STATE=$SANDBOX/$1/run/standin "$place/aliquot-standin-ctl" show
    return
  done
}

healthy() { ! sinfo -h -N -o %T | grep -qvE '^(idle|mixed|allocated|completing)$'; }

agent_pid() { pgrep -f "^/[^ ]*/aliquot-agent .*$SANDBOX/$1/" | head -1; }  # not the loop that restarts it

# standin NODE COMMAND…: breaks a node's GPUs, and heals them.
standin() {
  local node=$1 place
  shift
  for place in "$ALIQUOT_BIN/../standin" "$ALIQUOT_BIN/../lib/aliquot/standin"; do
    [[ -x $place/aliquot-standin-ctl ]] || continue
    ALIQUOT_STANDIN_STATE=$SANDBOX/$node/run/standin "$place/aliquot-standin-ctl" "$@"
    return
  done
}

# foreign NODE BUSY [MEMORY]: a process outside of Slurm computes on a node's GPU, until end_foreign.
foreign_loads=()
foreign() {
  local standin=$ALIQUOT_BIN/../standin
  [[ -d $standin ]] || standin=$ALIQUOT_BIN/../lib/aliquot/standin
  ALIQUOT_STANDIN_STATE=$SANDBOX/$1/run/standin LD_LIBRARY_PATH=$standin \
    aliquot-load --mem "${3:-1G}" --seconds 600 --busy "$2" >/dev/null 2>&1 </dev/null 3>&- &
  foreign_loads+=($!)
}
end_foreign() {
  local pid
  for pid in "${foreign_loads[@]}"; do kill "$pid" 2>/dev/null || true; done
  foreign_loads=()
}
