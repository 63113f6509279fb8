#!/usr/bin/env bats
# What a pod is held to beside its memory (shares.bats), and what it is spared: compute, and its neighbours' faults.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() { end_pods; }

# Computes until it is ended.
busy='aliquot-load --mem 1G --seconds 36000'
# The other GPU is somebody's, so that there is one for all.
one_gpu() {
  pod other 'aliquot.dev/gpu: 1' 'sleep 36000' | make
  runs other
}

@test "compute is held while others want it, too" {
  one_gpu
  { pod small 'aliquot.dev/gpu-mem: 8, aliquot.dev/gpu-share: 20' "$busy" && echo --- && pod large 'aliquot.dev/gpu-mem: 8, aliquot.dev/gpu-share: 80' "$busy"; } | make
  runs small large
  [ "$(granted_gpus small)" = "$(granted_gpus large)" ]
  eventually is_on_gpu small
  eventually is_on_gpu large
  small=$(gpu_ms_of small) large=$(gpu_ms_of large)
  # From now on both are there: one to four.
  computed() { (($(gpu_ms_of large) > large + 8000)); }
  eventually computed
  small=$(($(gpu_ms_of small) - small)) large=$(($(gpu_ms_of large) - large))
  echo "small $small ms, large $large ms"
  [ "$small" -gt 0 ]
  [ "$large" -gt $((2 * small)) ]
}

@test "a fault of one container is not its neighbour's" {
  one_gpu
  pod good 'aliquot.dev/gpu-mem: 4' "$busy" | make
  runs good
  eventually is_on_gpu good
  pod bad 'aliquot.dev/gpu-mem: 4' 'aliquot-load --mem 1G --fault' | make
  eventually is bad Failed
  [ "$(granted_gpus bad)" = "$(granted_gpus good)" ]
  run -0 k logs bad
  echo "$output"
  was=$(gpu_ms_of good)
  goes_on() { (($(gpu_ms_of good) > was)); }
  eventually goes_on
  is good Running
}
