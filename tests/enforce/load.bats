#!/usr/bin/env bats
# A whole program under a grant, alone and as a client of MPS: aliquot-load against the stand-in driver.
bats_require_minimum_version 1.5.0
load ../standin/helper

# grant BYTES: runs what follows it in a job that may hold so much of the first GPU.
grant() {
  local uuid
  [[ -x $ALIQUOT_BIN/../tests/enforce/make_grant ]] || skip "this preset builds no test programs"
  uuid=$(nvidia-smi -L | sed -n 's/.*UUID: \(.*\))/\1/p' | head -1)
  "$ALIQUOT_BIN/../tests/enforce/make_grant" "$dir/grant" "$uuid" "$1"
}
in_job() { LD_PRELOAD=$ALIQUOT_BIN/../lib/libaliquot.so ALIQUOT_GRANT=$dir/grant "$@"; }
usage() { "$ALIQUOT_BIN/../tests/enforce/make_grant" "$dir/grant"; }

@test "every kind of memory grows to the limit and no further" {
  grant $((2 << 30))
  for kind in alloc async vmm managed array pitch; do
    run -0 in_job "$load" --kind "$kind" --mem 9G --grow --json
    echo "$kind: $output"
    bytes=$(field allocated <<<"$output")
    ((bytes > 1400 << 20 && bytes <= 1522 << 20))
  done
  usage
  (($(usage | sed -n 's/peak=//p') <= 2 << 30))
}

@test "a client of MPS is limited and measured like any other" {
  grant $((2 << 30))
  nvidia-cuda-mps-control -d
  run -0 in_job "$load" --mem 9G --grow --json
  bytes=$(field allocated <<<"$output")
  ((bytes > 1400 << 20 && bytes <= 1522 << 20))
  local began=$EPOCHSECONDS
  in_job "$load" --mem 64M --seconds 300 &
  measured() { usage | sed -n 's/.*gpu_ns=\([0-9]*\).*/\1/p' | tail -1; }
  works() { (($(measured) > 500000000)); }
  eventually works
  # No more than there was time for.
  (($(measured) < (EPOCHSECONDS - began + 2) * 1000000000))
}
