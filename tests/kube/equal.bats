#!/usr/bin/env bats
# Two equal pods at once: the kubelet does not say for which of them it asks, and each must have the GPU its grant says.
# KUBE_ROUNDS: how often (10).
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() { end_pods; }

rounds=${KUBE_ROUNDS:-10}

@test "two equal pods at once, on two GPUs" {
  for ((round = 0; round < rounds; round++)); do
    # More than half of a GPU: never both on one.
    { pod a 'aliquot.dev/gpu-mem: 80' "$keep" && echo --- && pod b 'aliquot.dev/gpu-mem: 80' "$keep"; } | make
    runs a b
    grants_are_true a b
    [ "$(granted_gpus a)" != "$(granted_gpus b)" ]
    sums_hold
    k delete pods a b --grace-period=0 --force >/dev/null 2>&1
    eventually no_pods
  done
  eventually nothing_kept
}

@test "six equal pods at once, on one GPU and the other" {
  for ((round = 0; round < (rounds + 4) / 5; round++)); do
    for name in a b c d e f; do pod $name 'aliquot.dev/gpu-mem: 40' "$keep" && echo ---; done | make
    runs a b c d e f
    grants_are_true a b c d e f
    sums_hold
    k delete pods --all --grace-period=0 --force >/dev/null 2>&1
    eventually no_pods
  done
  eventually nothing_kept
}

@test "two equal pods of two equal containers" {
  for ((round = 0; round < (rounds + 4) / 5; round++)); do
    for name in a b; do
      cat <<END
apiVersion: v1
kind: Pod
metadata: {name: $name}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: lab/debian:1, command: [sh, -c, "$keep"], resources: {limits: {aliquot.dev/gpu-mem: 60}}}
  - {name: d, image: lab/debian:1, command: [sh, -c, "$keep"], resources: {limits: {aliquot.dev/gpu-mem: 60}}}
---
END
    done | make
    runs a b
    grants_are_true a/c a/d b/c b/d
    sums_hold
    k delete pods a b --grace-period=0 --force >/dev/null 2>&1
    eventually no_pods
  done
}
