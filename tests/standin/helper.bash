# For the bats files here: a simulated machine and an MPS pipe directory of their own for every test.
# shellcheck shell=bash disable=SC2034  # the tests use its variables
# shellcheck source=tests/eventually.bash
. "$(dirname "${BASH_SOURCE[0]}")/../eventually.bash"
setup() {
  standin=$(cd "$ALIQUOT_BIN/../standin" && pwd)
  load=$ALIQUOT_BIN/aliquot-load
  dir=$(mktemp -d "${BATS_TMPDIR:-/tmp}/standin.XXXXXX")
  chmod 755 "$dir"
  export PATH=$standin:$PATH LD_LIBRARY_PATH=$standin
  export ALIQUOT_STANDIN=h200:1 ALIQUOT_STANDIN_STATE=$dir/state
  export CUDA_MPS_PIPE_DIRECTORY=$dir/mps CUDA_MPS_LOG_DIRECTORY=$dir/log
  unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
}

# Ends what the test started, however it ended.
teardown() {
  local pipe job
  [[ -n ${dir:-} ]] || return 0
  for job in $(jobs -p); do
    kill -9 "$job" 2>/dev/null && wait "$job" 2>/dev/null
  done
  for pipe in "$dir"/mps*; do
    [[ -e $pipe/control ]] || continue
    echo quit -t 0.01 | CUDA_MPS_PIPE_DIRECTORY=$pipe timeout 60 nvidia-cuda-mps-control 2>/dev/null || true
  done
  rm -rf "${dir:?}"
}

mps() { echo "$*" | nvidia-cuda-mps-control; }

# The number behind a key of the load program's JSON.
field() { grep -o "\"$1\":[0-9.]*" | cut -d: -f2; }

processes_on_gpu() { aliquot-standin-ctl show | grep -c "kind=$1"; }
has_processes() { [[ $(processes_on_gpu "$1") -eq $2 ]]; }
# Whether it has been on the GPU for a while.
has_work() { aliquot-standin-ctl show | grep "^pid=$1 " | grep -qE ' gpu_ms=[0-9]{2,}\.'; }

# Stops a process that does not hold the lock of the simulated machine: with it, everybody would wait.
stop_between_locks() {
  kill -STOP "$1"
  timeout 60 aliquot-standin-ctl show >/dev/null && return
  kill -CONT "$1"
  return 1
}
