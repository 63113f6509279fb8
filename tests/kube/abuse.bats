#!/usr/bin/env bats
# What somebody may try who can make pods and change theirs as they like: to have more than they asked for, or another's.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() { end_pods; }

gib=1073741824
# A grant of all of GPU 0, with a seal of the right size.
forged() {
  printf '{"v":1,"node":"n1","assumed":%s000,"containers":{"c":[{"gpu":"%s","memory":%s,"compute":10000,"whole":%s}]}}' \
    "$EPOCHSECONDS" "$(uuid 0)" $((139 * gib)) "${1:-false}"
}
seal=$(printf '0%.0s' {1..64})

@test "a grant that a user writes into a new pod is replaced by ours" {
  pod f 'aliquot.dev/gpu-mem: 4' "$keep" | sed "s|^metadata: .*|metadata: {name: f, annotations: {aliquot.dev/grant: '$(forged)', aliquot.dev/grant-seal: '$seal'}}|" | as_user apply -f - >/dev/null
  runs f
  grants_are_true f
  [ "$(grant f | jq '.containers.c[0].memory')" = $((4 * gib)) ]
  [ "$(annotation f aliquot.dev/grant-seal)" != "$seal" ]
  run inside f aliquot-load --mem 5G
  [ "$status" -eq 4 ]
}

@test "a forged grant takes nobody's room, and gives none" {
  pod f 'aliquot.dev/gpu-mem: 4' "$keep" | as_user apply -f - >/dev/null
  runs f
  as_user annotate --overwrite pod f "aliquot.dev/grant=$(forged true)" "aliquot.dev/grant-seal=$seal" >/dev/null
  # As much as there is beside four units.
  pod a 'aliquot.dev/gpu-mem: 130' "$keep" | make
  pod b 'aliquot.dev/gpu-mem: 130' "$keep" | make
  runs a b
  run inside f aliquot-load --mem 5G
  [ "$status" -eq 4 ]
  # And the truth is written again.
  true_again() { [[ $(grant f | jq '.containers.c[0].memory') -eq $((4 * gib)) && $(annotation f aliquot.dev/grant-seal) != "$seal" ]]; }
  eventually true_again
}

@test "another pod's grant with its seal is no grant" {
  pod a 'aliquot.dev/gpu-mem: 20' "$keep" | as_user apply -f - >/dev/null
  runs a
  pod f 'aliquot.dev/gpu-mem: 4' "$keep" | as_user apply -f - >/dev/null
  runs f
  as_user annotate --overwrite pod f "aliquot.dev/grant=$(grant a)" "aliquot.dev/grant-seal=$(annotation a aliquot.dev/grant-seal)" >/dev/null
  own() { [[ $(grant f | jq '.containers.c[0].memory') -eq $((4 * gib)) ]]; }
  eventually own
  run inside f aliquot-load --mem 5G
  [ "$status" -eq 4 ]
}

@test "a grant that is taken away is written again, and counted meanwhile" {
  pod f 'aliquot.dev/gpu-mem: 100' "$keep" | as_user apply -f - >/dev/null
  runs f
  as_user annotate pod f aliquot.dev/grant- aliquot.dev/grant-seal- >/dev/null
  pod a 'aliquot.dev/gpu-mem: 100' "$keep" | make
  runs a
  there() { [[ -n $(grant f) ]]; }
  eventually there
  grants_are_true f a
  [ "$(granted_gpus f)" != "$(granted_gpus a)" ]
}

@test "settings of a container cannot lift its limit" {
  pod f 'aliquot.dev/gpu-mem: 4' 'sleep 36000' \
    'env: [{name: LD_PRELOAD, value: ""}, {name: ALIQUOT_GRANT, value: /nonexistent}, {name: CUDA_VISIBLE_DEVICES, value: "0,1"}, {name: CUDA_MPS_PIPE_DIRECTORY, value: /tmp}]' | as_user apply -f - >/dev/null
  runs f
  run inside f aliquot-load --mem 20G --step 1G --seconds 30 --busy 0%
  echo "$output"
  [ "$status" -ne 0 ]
}

@test "root of a container cannot change its grant" {
  pod f 'aliquot.dev/gpu-mem: 4' 'sleep 36000' | as_user apply -f - >/dev/null
  runs f
  # What cannot be written ends a shell: each is tried by one of its own.
  run -0 inside f sh -c 'for f in $(find /run/aliquot -type f ! -name usage); do (: >>"$f") 2>/dev/null && echo "written: $f"; done; rm -rf /run/aliquot 2>/dev/null; true'
  echo "$output"
  [[ $output != *written:* ]]
  run inside f aliquot-load --mem 5G
  [ "$status" -ne 0 ]
  [ "$(real_gpus f)" = "" ]
  # The folder that the mounts are in is its own to move away, and the library with it: then the node ends what takes more.
  inside f mv /run/aliquot /moved || true
  run inside f aliquot-load --mem 20G --step 1G --seconds 30 --busy 0%
  echo "$output"
  [ "$status" -ne 0 ]
}

@test "a pod that names its node itself is held like any other" {
  pod f 'aliquot.dev/gpu-mem: 4' "$keep" | sed 's/^spec:/spec:\n  nodeName: n1/' | as_user apply -f - >/dev/null
  runs f
  eventually grants_are_true f
  run inside f aliquot-load --mem 5G
  [ "$status" -eq 4 ]
}

@test "what others have is not there to be seen, mounted or written" {
  pod a 'aliquot.dev/gpu-mem: 20' "$keep" | make
  pod f 'aliquot.dev/gpu-mem: 4' 'sleep 36000' | as_user apply -f - >/dev/null
  runs a f
  grants_are_true a
  # Of the node's folders it has what all may read, and its own grant.
  run -0 inside f sh -c 'ls /run/aliquot-kube; cd /run/aliquot && ls && ls grant'
  echo "$output"
  ! grep -qxE 'grants|pods|lib[.]so' <<<"$(inside f ls /run/aliquot-kube)"
  run inside f sh -c 'cat /run/aliquot-kube/grants/* /run/aliquot-kube/pods/*/grant/*'
  [ "$status" -ne 0 ]
  # What tells all of a GPU's use is not its to write.
  run -0 inside f sh -c 'for f in $(find /run/aliquot-kube/boards /run/aliquot -type f ! -name usage); do (: >>"$f") 2>/dev/null && echo "written: $f"; done; true'
  [[ $output != *written:* ]]
}

@test "where Pod Security holds, shares run, and folders of the node are refused" {
  [[ $(lab status | sed -n 's/^Kubernetes 1\.\([0-9]*\).*/\1/p') -ge 25 ]] || skip "Pod Security came with Kubernetes 1.25"
  k create namespace strict >/dev/null
  k label namespace strict pod-security.kubernetes.io/enforce=restricted >/dev/null
  confined='securityContext: {runAsUser: 1001, runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}'
  pod s 'aliquot.dev/gpu-mem: 4' "$keep" "$confined" | k apply -n strict -f - >/dev/null
  s_runs() { [[ $(k get pod s -n strict -o 'jsonpath={.status.phase}') == Running ]]; }
  eventually s_runs
  run k exec -n strict s -- aliquot-load --mem 4G
  [ "$status" -eq 4 ]
  # The grant of another one, by its folder on the node.
  {
    pod t 'aliquot.dev/gpu-mem: 4' 'sleep 1' "$confined
    volumeMounts: [{name: host, mountPath: /host}]"
    echo '  volumes: [{name: host, hostPath: {path: /run/aliquot-kube}}]'
  } >"$BATS_TEST_TMPDIR/pod"
  run k apply -n strict -f - <"$BATS_TEST_TMPDIR/pod"
  echo "$output"
  [ "$status" -ne 0 ]
  [[ $output == *hostPath* ]]
  k delete namespace strict --wait=false >/dev/null
  k delete pod s -n strict --grace-period=0 --force >/dev/null 2>&1
}
