#!/usr/bin/env bats
# What happens when a part is away, is started again or is killed: pods that run are not touched, pods that wait say why
# and run when it is back, and nothing is left behind.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() {
  [[ -z ${LAB_MISSING:-} ]] || for name in etcd apiserver containerd kubelet scheduler controller-manager aliquot-scheduler aliquot-node; do lab service start "$name"; done
  eventually api_answers
  end_pods
}
api_answers() { [[ -n ${LAB_MISSING:-} ]] || k get --raw /readyz >/dev/null 2>&1; }

gib=1073741824
started_at() { k get pod "$1" -o json | jq -r '.status.containerStatuses[0] | .state.running.startedAt + .containerID + (.restartCount | tostring)'; }

# still_as_it_was POD BEFORE: it runs, was not started again, is where its grant says and is held.
still_as_it_was() {
  is "$1" Running
  [ "$(started_at "$1")" = "$2" ]
  grants_are_true "$1"
  run inside "$1" aliquot-load --mem 8G
  [ "$status" -eq 4 ]
}

# The kubelet has told that nobody hands out the node's GPUs. What is bound in the seconds before that, it fails.
agent_is_missed() { [[ $(k get node n1 -o jsonpath='{.status.allocatable.aliquot\.dev/gpu-mem}') == 0 ]]; }

@test "the node agent is stopped, started and killed" {
  pod p 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs p
  before=$(started_at p)
  for how in stop kill; do
    lab service "$how" aliquot-node
    # Held all the while: library and MPS do not need it.
    run inside p aliquot-load --mem 8G
    [ "$status" -eq 4 ]
    # Waits, is not failed.
    eventually agent_is_missed
    pod "q-$how" 'aliquot.dev/gpu-mem: 4' "$keep" | make
    sleep 3
    is "q-$how" Pending
    lab service start aliquot-node
    runs "q-$how"
    still_as_it_was p "$before"
    grants_are_true "q-$how"
  done
  k delete pods --all --wait=true >/dev/null
  eventually nothing_kept
}

@test "a pod that goes while the node agent is away leaves nothing behind" {
  pod p 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs p
  lab service kill aliquot-node
  k delete pod p --grace-period=0 --force >/dev/null 2>&1
  eventually no_pods
  lab service start aliquot-node
  eventually nothing_kept
}

@test "the extender is away: pods with GPUs wait and say why, others run" {
  pod p 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs p
  before=$(started_at p)
  lab service kill aliquot-scheduler
  pod q 'aliquot.dev/gpu-mem: 4' "$keep" | make
  image=lab/busybox:1 pod plain 'memory: 64Mi' 'sleep 36000' | make
  runs plain
  eventually says q 'FailedScheduling'
  is q Pending
  lab service start aliquot-scheduler
  runs q
  still_as_it_was p "$before"
  grants_are_true q
  sums_hold
}

@test "the kubelet is started again" {
  pod p 'aliquot.dev/gpu-mem: 8' "$keep" | make
  pod a 'aliquot.dev/gpu-mem: 100' "$keep" | make
  runs p a
  before=$(started_at p)
  lab service restart kubelet
  pod b 'aliquot.dev/gpu-mem: 100' "$keep" | make
  runs b
  still_as_it_was p "$before"
  grants_are_true a b
  [ "$(granted_gpus a)" != "$(granted_gpus b)" ]
  eventually node_serves
}

@test "the API server is away" {
  pod p 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs p
  before=$(started_at p)
  lab service kill apiserver
  sleep 3
  lab service start apiserver
  eventually api_answers
  pod q 'aliquot.dev/gpu-mem: 4' "$keep" | make
  runs q
  still_as_it_was p "$before"
  grants_are_true q
}

@test "everything is killed at once" {
  pod p 'aliquot.dev/gpu-mem: 8' "$keep" | make
  runs p
  before=$(started_at p)
  for name in aliquot-node aliquot-scheduler scheduler kubelet apiserver controller-manager; do lab service kill "$name"; done
  for name in apiserver controller-manager scheduler kubelet aliquot-scheduler aliquot-node; do lab service start "$name"; done
  eventually api_answers
  pod q 'aliquot.dev/gpu-mem: 100' "$keep" | make
  runs q
  still_as_it_was p "$before"
  grants_are_true q
  sums_hold
}

@test "pods that are deleted by force free their GPU, and leave nothing behind" {
  for round in 1 2 3; do
    pod p 'aliquot.dev/gpu-mem: 100' "$keep" | make
    pod q 'aliquot.dev/gpu-mem: 100' "$keep" | make
    runs p q
    grants_are_true p q
    k delete pods p q --grace-period=0 --force >/dev/null 2>&1
  done
  eventually no_pods
  eventually nothing_kept
  idle() { ! standin show | grep -q '^pid='; }
  eventually idle
}
