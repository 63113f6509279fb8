#!/usr/bin/env bats
# Shares of GPUs in pods, as a user sees them: what a pod asks for, gets, and cannot get past.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() { end_pods; }

gib=1073741824

@test "the node says what its GPUs are" {
  run -0 node_gpus
  jq -e '.v == 1 and .unit == 1073741824 and (.gpus | length) == 2' <<<"$output"
  jq -e '.gpus[0] | (.uuid | startswith("GPU-")) and .index == 0 and .model == "h200" and .health == "ok" and .foreign == 0' <<<"$output"
  jq -e '.unit as $unit | .gpus | all(.units == (.memory / $unit | floor))' <<<"$output"
  units=$(jq '[.gpus[].units] | add' <<<"$output")
  [ "$(k get node n1 -o json | jq -r '.status.allocatable["aliquot.dev/gpu-mem"]')" = "$units" ]
  [ "$(k get node n1 -o json | jq -r '.status.allocatable["aliquot.dev/gpu"]')" = 2 ]
}

@test "a pod with gpu-mem runs, has its share and no more, and its grant says so" {
  pod p1 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs p1
  grants_are_true p1
  run -0 grant p1
  jq -e '.v == 1 and .node == "n1" and .assumed > 1600000000000 and (.containers | keys) == ["c"]' <<<"$output"
  jq -e --argjson gib $gib '.containers.c | length == 1 and .[0].memory == 8 * $gib and .[0].whole == false and .[0].compute > 0' <<<"$output"
  [[ $(annotation p1 aliquot.dev/grant-seal) =~ ^[0-9a-f]{64}$ ]]
  # One GPU of the two is there to see.
  [ "$(inside p1 sh -c 'aliquot-load --device 1 --mem 1M; echo $?' | tail -n 1)" = 3 ]
  # With what the first process keeps, and what contexts cost, it gets to its share and not past it.
  allocated=$(grow p1)
  echo "allocated $allocated"
  [ "$allocated" -gt $((5 * gib)) ]
  [ "$allocated" -lt $((7 * gib)) ]
  run inside p1 aliquot-load --mem 9G
  [ "$status" -eq 4 ]
}

@test "what is refused to a pod is told by its driver, and is there for others" {
  pod p1 'aliquot.dev/gpu-mem: 4' 'sleep 36000' | make
  pod p2 'aliquot.dev/gpu-mem: 4' 'sleep 36000' | make
  runs p1 p2
  one=$(grow p1)
  two=$(grow p2)
  echo "$one $two"
  [ "$one" -le $((4 * gib)) ]
  [ "$one" -gt $((3 * gib)) ]
  [ "$two" -gt $((3 * gib)) ]
}

@test "compute is asked for beside memory" {
  pod p1 'aliquot.dev/gpu-mem: 8, aliquot.dev/gpu-share: 25' "$keep" | make
  runs p1
  [ "$(grant p1 | jq '.containers.c[0].compute')" = 2500 ]
}

@test "the containers of a pod have each their own share" {
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {limits: {aliquot.dev/gpu-mem: 3}}
  - name: d
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {limits: {aliquot.dev/gpu-mem: 6}}
  - name: none
    image: lab/busybox:1
    command: [sleep, "36000"]
END
  runs two
  grants_are_true two/c two/d
  run -0 grant two
  jq -e --argjson gib $gib '[.containers.c[0].memory, .containers.d[0].memory] == [3 * $gib, 6 * $gib] and .containers.none == null' <<<"$output"
  run k exec two -c c -- aliquot-load --mem 3G
  [ "$status" -eq 4 ]
  k exec two -c d -- aliquot-load --mem 3G
  [ -z "$(k exec two -c none -- sh -c 'echo $CUDA_VISIBLE_DEVICES$LD_PRELOAD')" ]
}

@test "init containers hold a share while they run, and leave it to what comes after" {
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  initContainers:
  - name: i
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 5G --json && ! aliquot-load --mem 7G"]
    resources: {limits: {aliquot.dev/gpu-mem: 6}}
  containers:
  - name: c
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {limits: {aliquot.dev/gpu-mem: 4}}
END
  runs first
  grants_are_true first
  [ "$(grow first)" -le $((4 * gib)) ]
}

@test "a sidecar holds its share beside the others" {
  [[ $(lab status | sed -n 's/^Kubernetes 1\.\([0-9]*\).*/\1/p') -ge 29 ]] || skip "sidecars came with Kubernetes 1.29"
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: beside}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: s
    image: lab/debian:1
    restartPolicy: Always
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {limits: {aliquot.dev/gpu-mem: 5}}
  containers:
  - name: c
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {limits: {aliquot.dev/gpu-mem: 4}}
END
  runs beside
  grants_are_true beside/s beside/c
  run k exec beside -c s -- aliquot-load --mem 5G
  [ "$status" -eq 4 ]
}

@test "a container that ended and was started again has its share again" {
  restart_policy=Always pod again 'aliquot.dev/gpu-mem: 4' "[ -e /tmp/x ]; aliquot-load --mem 1G --seconds 4 --busy 0%" | make
  runs again
  was=$(granted_gpus again)
  restarted() { [[ $(k get pod again -o json | jq '.status.containerStatuses[0].restartCount') -gt 0 ]]; }
  eventually restarted
  eventually is_on_gpu again
  [ "$(real_gpus again)" = "$was" ]
}

@test "whole GPUs and shares are kept apart" {
  pod share 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs share
  pod whole 'aliquot.dev/gpu: 1' "$keep" | make
  runs whole
  grants_are_true share whole
  [ "$(granted_gpus share)" != "$(granted_gpus whole)" ]
  [ "$(grant whole | jq '.containers.c[0].whole')" = true ]
  # All of it, and not the other one.
  [ "$(grow whole 4G)" -gt $((130 * gib)) ]
  # No GPU is without shares now, and none of both has room for a share but the first.
  pod second 'aliquot.dev/gpu: 1' "$keep" | make
  pod other 'aliquot.dev/gpu-mem: 100' "$keep" | make
  runs other
  [ "$(granted_gpus other)" = "$(granted_gpus share)" ]
  is second Pending
  k delete pod share other --wait=true >/dev/null
  runs second
  [ "$(granted_gpus second)" != "$(granted_gpus whole)" ]
}

@test "a pod that fits on no single GPU waits, describe says why, and it runs when there is room" {
  pod a 'aliquot.dev/gpu-mem: 100' "$keep" | make
  pod b 'aliquot.dev/gpu-mem: 100' "$keep" | make
  runs a b
  [ "$(granted_gpus a)" != "$(granted_gpus b)" ]
  # 39 and 39 GiB are free: 78, but 50 on no single one.
  pod c 'aliquot.dev/gpu-mem: 50' "$keep" | make
  eventually says c 'largest free on one GPU: 39(\.[0-9]+)? GiB, asked 50 GiB'
  k describe pod c | grep -E 'largest free on one GPU: 39(\.[0-9]+)? GiB, asked 50 GiB'
  is c Pending
  k delete pod a --wait=true >/dev/null
  runs c
  grants_are_true b c
}

@test "what no GPU will ever have is said, too" {
  pod huge 'aliquot.dev/gpu-mem: 200' "$keep" | make
  eventually says huge 'asked 200'
  is huge Pending
}

@test "a pod that has ended holds nothing any more" {
  pod a 'aliquot.dev/gpu-mem: 130' 'true' | make
  eventually is a Succeeded
  pod b 'aliquot.dev/gpu-mem: 130' 'false' | make
  eventually is b Failed
  pod c 'aliquot.dev/gpu-mem: 120' "$keep" | make
  pod d 'aliquot.dev/gpu-mem: 120' "$keep" | make
  runs c d
  k delete pods c d --wait=true >/dev/null
  eventually nothing_kept
}

@test "gpushare's names and annotations are understood and written" {
  pod gs 'aliyun.com/gpu-mem: 5' "$keep" | make
  runs gs
  grants_are_true gs
  index=$(node_gpus | jq -r --arg gpu "$(granted_gpus gs)" '.gpus[] | select(.uuid == $gpu) | .index')
  [ "$(annotation gs ALIYUN_COM_GPU_MEM_IDX)" = "$index" ]
  [ "$(annotation gs ALIYUN_COM_GPU_MEM_POD)" = 5 ]
  [[ $(annotation gs ALIYUN_COM_GPU_MEM_ASSUME_TIME) =~ ^[0-9]{19}$ ]]
  assigned() { [[ $(annotation gs ALIYUN_COM_GPU_MEM_ASSIGNED) == true ]]; }
  eventually assigned
  run inside gs aliquot-load --mem 6G
  [ "$status" -eq 4 ]
}
