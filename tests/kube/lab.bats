#!/usr/bin/env bats
# The Kubernetes that the other files here use, by itself.
load helper.bash

setup_file() { start_bare_lab; }
teardown_file() { stop_lab; }
setup() { need_bare_lab; }
teardown() { end_pods; }

@test "a pod runs, is seen and can be entered, with every image" {
  for name in debian busybox musl; do image=lab/$name:1 pod $name 'memory: 64Mi' 'echo from the log; exec sleep 36000' && echo ---; done | make
  runs debian busybox musl
  for name in debian busybox musl; do
    [ "$(k logs $name)" = "from the log" ]
    [ "$(inside $name echo fine)" = fine ]
  done
  [ "$(inside musl musl-probe)" = "musl runs as 0" ]
}

@test "its version is the one that was asked for" {
  wanted=${KUBE_VERSION:-current}
  [[ $wanted != current ]] || wanted=$("$repo/tools/kube-build" --versions | sed -n 's/^current //p')
  [[ $(k get node n1 -o 'jsonpath={.status.nodeInfo.kubeletVersion}') == "v$wanted"* ]]
}

@test "pods go on while the kubelet and the API server are started again" {
  image=lab/busybox:1 pod p 'memory: 64Mi' 'sleep 36000' | make
  runs p
  before=$(container_id p)
  lab service restart kubelet
  lab service kill apiserver
  lab service start apiserver
  answers() { k get --raw /readyz >/dev/null 2>&1; }
  eventually answers
  image=lab/busybox:1 pod q 'memory: 64Mi' 'sleep 36000' | make
  runs p q
  [ "$(container_id p)" = "$before" ]
}

@test "a plain user may make pods, and see nothing of the system" {
  image=lab/busybox:1 pod p 'memory: 64Mi' 'sleep 36000' | as_user apply -f - >/dev/null
  runs p
  run as_user get secrets -n kube-system
  [ "$status" -ne 0 ]
  run as_user get nodes
  [ "$status" -ne 0 ]
}
