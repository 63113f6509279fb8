#!/usr/bin/env bats
# GPUs as claims (DRA): what a claim gets, what keeps out what, and what is left when a part is started again. Kubernetes
# 1.36 and newer.
load helper.bash
lab_as=claims

setup_file() {
  [[ ${KUBE_VERSION:-current} != 1.20 ]] || { export LAB_MISSING="Kubernetes 1.20 has no claims"; return 0; }
  start_lab
}
teardown_file() { stop_lab; }
setup() {
  need_bare_lab
  eventually node_claims
}
teardown() {
  [[ -z ${LAB_MISSING:-} ]] || return 0
  for name in kubelet aliquot-node aliquot-scheduler; do lab service start "$name"; done
  standin heal 0 >/dev/null 2>&1 || true
  standin heal 1 >/dev/null 2>&1 || true
  end_pods
  k delete resourceclaims,resourceclaimtemplates --all --wait=true >/dev/null 2>&1 || true
  eventually nothing_kept
}

gib=1073741824

# template NAME CLASS [CAPACITY]: of one request, `gpu`.
template() {
  cat <<END
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: $1}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: $2, capacity: {requests: {${3:-}}}}
---
END
}
share() { template "$1" gpu-share.aliquot.dev "$2"; }
whole() { template "$1" gpu.aliquot.dev; }
# claiming POD TEMPLATE [COMMAND]
claiming() {
  cat <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  resourceClaims: [{name: g, resourceClaimTemplateName: $2}]
  containers:
  - name: c
    image: lab/debian:1
    command: [sh, -c, $(jq -Rs . <<<"${3:-$keep}")]
    resources: {claims: [{name: g}]}
---
END
}
claim_of() { k get pod "$1" -o json | jq -r '.status.resourceClaimStatuses[0].resourceClaimName'; }
slices() { k get resourceslices -o json | jq -c '[.items[] | select(.spec.driver == "aliquot.dev")]'; }
devices() { slices | jq -c '[.[] | .spec.devices // [] | .[]]'; }
visible() { inside "$1" printenv CUDA_VISIBLE_DEVICES; }
waits() { k get pod "$1" -o json | jq -e '.status.phase == "Pending" and ((.status.conditions // []) | any(.reason == "Unschedulable"))' >/dev/null; }

@test "the slices say what the GPUs are" {
  run -0 devices
  jq -e '[.[] | select(.attributes.kind.string == "share")] | length == 2 and all(.allowMultipleAllocations and .attributes.model.string == "h200"
    and (.capacity.memory.value | endswith("Mi")) and .capacity.compute.value == "100" and .taints == null)' <<<"$output"
  jq -e '[.[] | select(.attributes.kind.string == "whole")] | length == 2 and all(.allowMultipleAllocations == null)' <<<"$output"
  # Each GPU's two devices consume one counter.
  jq -e '[.[] | .consumesCounters[0].counters | keys[0]] | group_by(.) | length == 2 and all(length == 2)' <<<"$output"
  slices | jq -e 'all(.metadata.ownerReferences[0].kind == "Node" and .spec.nodeName == "n1")'
  # None as resources.
  [ "$(k get node n1 -o json | jq -r '.status.allocatable["aliquot.dev/gpu-mem"] // "0"')" = 0 ]
}

@test "a claim has its share and no more, on its GPU" {
  { share s 'memory: 8Gi, compute: "25"'; claiming p s; } | make
  runs p
  grants_are_true p
  [ "$(visible p)" = "$(granted_gpus p)" ]
  grant p | jq -e --argjson gib $gib '.node == "n1" and (.containers.c | length == 1 and .[0].memory == 8 * $gib and .[0].compute == 2500 and .[0].whole == false)'
  [ "$(inside p sh -c 'aliquot-load --device 1 --mem 1M; echo $?' | tail -n 1)" = 3 ]
  allocated=$(grow p)
  echo "allocated $allocated"
  [ "$allocated" -gt $((5 * gib)) ]
  [ "$allocated" -lt $((7 * gib)) ]
  run inside p aliquot-load --mem 9G
  [ "$status" -eq 4 ]
  run inside p env -i ALIQUOT_STANDIN_STATE=/run/aliquot-kube/standin aliquot-load --mem 20G --step 1G --seconds 30 --busy 0%
  [ "$status" -ne 0 ]
  is p Running
}

@test "two claims share one GPU, each held to its own" {
  { share s8 'memory: 8Gi'; share s20 'memory: 20Gi'; claiming a s8; claiming b s20; } | make
  runs a b
  grants_are_true a b
  [ "$(granted_gpus a)" = "$(granted_gpus b)" ]
  run inside a aliquot-load --mem 9G
  [ "$status" -eq 4 ]
  inside b aliquot-load --mem 15G
  run inside b aliquot-load --mem 21G
  [ "$status" -eq 4 ]
  # Nobody said how much compute: each has it in proportion.
  [ "$(grant a | jq '.containers.c[0].compute')" = 572 ]
}

@test "who has not said his compute leaves room for who has" {
  { share most 'memory: 100Gi'; share said 'memory: 3Gi, compute: "80"'; claiming a most; } | make
  runs a
  eventually says a GpuAssigned
  [ "$(grant a | jq '.containers.c[0].compute')" -gt 7000 ]
  claiming b said | make
  runs b
  grants_are_true a b
  [ "$(grant b | jq '.containers.c[0].compute')" = 8000 ]
  less() { [[ $(grant a | jq '.containers.c[0].compute') == 2000 ]]; }
  eventually less
}

@test "what does not fit waits, and goes where it fits" {
  { share most 'memory: 100Gi'; share half 'memory: 70Gi'; claiming a most; claiming b most; claiming c half; } | make
  runs a b
  [ "$(granted_gpus a)" != "$(granted_gpus b)" ]
  eventually waits c
  k delete pod a --wait=true >/dev/null
  runs c
  grants_are_true b c
}

@test "a share keeps a whole GPU out, and a whole GPU shares" {
  { share s 'memory: 3Gi'; whole w; claiming a s; } | make
  runs a
  { claiming w1 w; } | make
  runs w1
  grants_are_true a w1
  [ "$(granted_gpus a)" != "$(granted_gpus w1)" ]
  grant w1 | jq -e '.containers.c | length == 1 and .[0].whole'
  claiming w2 w | make
  eventually waits w2
  # Beside the whole one nobody comes, however small.
  { share large 'memory: 139Gi'; claiming b large; } | make
  eventually waits b
  k delete pod a --wait=true >/dev/null
  runs_one() { is w2 Running || is b Running; }
  eventually runs_one
}

@test "the containers of a pod have each their own claim" {
  { share s3 'memory: 3Gi'; share s6 'memory: 6Gi'; } | make
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: a, resourceClaimTemplateName: s3}, {name: b, resourceClaimTemplateName: s6}]
  containers:
  - name: c
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {claims: [{name: a}]}
  - name: d
    image: lab/debian:1
    command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"]
    resources: {claims: [{name: b}]}
  - name: none
    image: lab/busybox:1
    command: [sleep, "36000"]
END
  runs two
  grants_are_true two/c two/d
  grant two | jq -e --argjson gib $gib '[.containers.c[0].memory, .containers.d[0].memory] == [3 * $gib, 6 * $gib] and .containers.none == null'
  run k exec two -c c -- aliquot-load --mem 3G
  [ "$status" -eq 4 ]
  k exec two -c d -- aliquot-load --mem 3G
  [ -z "$(k exec two -c none -- sh -c 'echo $CUDA_VISIBLE_DEVICES$ALIQUOT_GRANT')" ]
}

@test "a container with two claims is told that it may have one" {
  { share s 'memory: 3Gi'; } | make
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: a, resourceClaimTemplateName: s}, {name: b, resourceClaimTemplateName: s}]
  containers:
  - {name: c, image: lab/debian:1, command: [sleep, "36000"], resources: {claims: [{name: a}, {name: b}]}}
END
  eventually says two 'container c of pod default/two names 2 requests for GPUs'
}

@test "containers that name one claim share what it has" {
  { share s 'memory: 8Gi'; } | make
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: both}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: g, resourceClaimTemplateName: s}]
  containers:
  - {name: c, image: lab/debian:1, command: [sh, -c, "aliquot-load --mem 4G --seconds 36000 --busy 0%"], resources: {claims: [{name: g}]}}
  - {name: d, image: lab/debian:1, command: [sleep, "36000"], resources: {claims: [{name: g}]}}
END
  runs both
  grants_are_true both/c
  run k exec both -c d -- aliquot-load --mem 5G
  [ "$status" -eq 4 ]
  k exec both -c d -- aliquot-load --mem 2G
}

started_at() { k get pod "$1" -o json | jq -r '.status.containerStatuses[0] | .state.running.startedAt + .containerID + (.restartCount | tostring)'; }
held_still() { # POD BEFORE
  is "$1" Running
  [ "$(started_at "$1")" = "$2" ]
  grants_are_true "$1"
  run inside "$1" aliquot-load --mem 9G
  [ "$status" -eq 4 ]
}

@test "the kubelet is started again: slices come back, pods run on, others start" {
  { share s 'memory: 8Gi'; claiming p s; } | make
  runs p
  before=$(started_at p)
  for how in stop kill; do
    lab service "$how" kubelet
    k delete resourceslices --all >/dev/null
    eventually node_claims
    lab service start kubelet
    sleep 3
    eventually node_claims
    held_still p "$before"
    claiming "q-$how" s | make
    runs "q-$how"
    grants_are_true "q-$how"
  done
}

@test "the node agent is stopped, started and killed" {
  { share s 'memory: 8Gi'; claiming p s; } | make
  runs p
  before=$(started_at p)
  for how in stop kill; do
    lab service "$how" aliquot-node
    run inside p aliquot-load --mem 9G
    [ "$status" -eq 4 ]
    claiming "q-$how" s | make
    sleep 3
    is "q-$how" Pending
    lab service start aliquot-node
    runs "q-$how"
    held_still p "$before"
    grants_are_true "q-$how"
  done
}

@test "a pod that goes while the node agent is away leaves nothing behind" {
  { share s 'memory: 8Gi'; claiming p s; } | make
  runs p
  lab service kill aliquot-node
  k delete pod p --grace-period=0 --force >/dev/null 2>&1
  eventually no_pods
  lab service start aliquot-node
  eventually nothing_kept
  cdi_gone() { [[ -z $(lab in ls /var/run/cdi) ]]; }
  eventually cdi_gone
}

@test "CDI files are written anew for a pod whose container starts again" {
  share s 'memory: 8Gi' | make
  claiming p s 'sleep 8' | sed 's/restartPolicy: Never/restartPolicy: Always/' | make
  runs p
  lab in sh -c 'ls /var/run/cdi/aliquot.dev-claim-*.json'
  restarted() { [[ $(k get pod p -o json | jq '.status.containerStatuses[0].restartCount') -ge 1 ]]; }
  eventually restarted
  runs p
  run inside p aliquot-load --mem 9G
  [ "$status" -eq 4 ]
}

@test "nothing is left of a claim that is over" {
  { share s 'memory: 8Gi'; claiming p s; } | make
  runs p
  [ -n "$(lab in ls /var/run/cdi)" ]
  k delete pod p --wait=true >/dev/null
  eventually nothing_kept
  [ -z "$(lab in ls /var/run/cdi)" ]
}

@test "a sick GPU is tainted: what is on it goes, and nobody comes" {
  { share s 'memory: 8Gi'; claiming p s 'sleep 36000'; } | make
  runs p
  gpu=$(visible p)
  index=$(devices | jq --arg gpu "$gpu" '[.[] | select(.attributes.uuid.string == $gpu)][0].attributes.index.int')
  standin lose "$index"
  tainted() { devices | jq -e --arg gpu "$gpu" '[.[] | select(.attributes.uuid.string == $gpu)] | length == 2 and all(.taints[0] | .key == "aliquot.dev/health" and .value == "lost" and .effect == "NoExecute")' >/dev/null; }
  eventually tainted
  evicted() { ! k get pod p >/dev/null 2>&1 || [[ $(phase p) == Failed ]]; }
  eventually evicted
  claiming q s | make
  runs q
  [ "$(visible q)" != "$gpu" ]
  standin heal "$index"
  healed() { ! tainted; }
  eventually healed
}

@test "the GPU that the policy takes is listed first" {
  first() { devices | jq -r '[.[] | select(.attributes.kind.string == "share")][0].attributes.uuid.string'; }
  { share s 'memory: 20Gi'; claiming a s; } | make
  runs a
  gpu=$(granted_gpus a)
  before=$(first)
  [ "$gpu" = "$before" ]
  # It is the fullest now, and stays the first: the other one is kept free.
  for each in b c d; do claiming $each s | make; done
  runs b c d
  for each in b c d; do [ "$(granted_gpus $each)" = "$gpu" ]; done
}

@test "a claim's own configuration gains nothing" {
  make <<'END'
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: forged}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu-share.aliquot.dev, capacity: {requests: {memory: 1Gi}}}
      config:
      - opaque: {driver: aliquot.dev, parameters: {memory: 100Gi, gpus: all}}
END
  claiming p forged | make
  eventually says p 'it has a config for driver aliquot.dev'
  is p Pending
  nothing_kept
}

@test "a user cannot have more by forging capacity, grants or other people's CDI devices" {
  # More than a GPU has, or none, or in crumbs: the API server or the scheduler says no.
  { share huge 'memory: 1000Gi'; claiming p1 huge; } | make
  eventually waits p1
  { share s 'memory: 4Gi'; share most 'memory: 60Gi'; claiming victim most; } | make
  runs victim
  claim=$(k get resourceclaim "$(claim_of victim)" -o 'jsonpath={.metadata.uid}')
  claiming p2 s | sed "s|^metadata: .*|metadata: {name: p2, annotations: {cdi.k8s.io/x: 'aliquot.dev/claim=$claim-gpu', aliquot.dev/grant: '{}', aliquot.dev/grant-seal: '00'}}|" | as_user apply -f - >/dev/null
  runs p2
  run inside p2 aliquot-load --mem 5G
  [ "$status" -eq 4 ]
  eventually says p2 GpuAssigned
  grants_are_true p2
  # The user may not write what is allocated.
  name=$(claim_of p2)
  allocated=$(k get resourceclaim "$name" -o json | jq -c '.status.allocation')
  as_user patch resourceclaim "$name" --subresource=status --type=merge -p '{"status":{"allocation":{"devices":{"results":[]}}}}' >/dev/null 2>&1 || true
  as_user patch resourceclaim "$name" --type=merge -p '{"spec":{"devices":{"requests":[]}}}' >/dev/null 2>&1 || true
  [ "$(k get resourceclaim "$name" -o json | jq -c '.status.allocation')" = "$allocated" ]
}

webhook_answers() { pod probe 'aliquot.dev/gpu-mem: 1' true | k apply --dry-run=server -f - >/dev/null 2>&1; }

@test "webhook: a pod that asks by limits gets a claim, and the same as by the device plugin" {
  eventually webhook_answers
  pod p 'aliquot.dev/gpu-mem: 8, aliquot.dev/gpu-share: 25' "$keep" | as_user apply -f - >/dev/null
  runs p
  k get pod p -o json | jq -e '.spec.resourceClaims == [{name: "aliquot-0", resourceClaimTemplateName: "aliquot-gpu-mem-8192mi-share-25"}]
    and .spec.containers[0].resources == {claims: [{name: "aliquot-0"}], limits: {}, requests: {}} or (.spec.containers[0].resources | .claims == [{name: "aliquot-0"}] and ((.limits // {}) + (.requests // {}) == {}))'
  grants_are_true p
  grant p | jq -e --argjson gib $gib '.containers.c | length == 1 and .[0].memory == 8 * $gib and .[0].compute == 2500'
  run inside p aliquot-load --mem 9G
  [ "$status" -eq 4 ]
  [ "$(k get resourceclaimtemplates -o name)" = resourceclaimtemplate.resource.k8s.io/aliquot-gpu-mem-8192mi-share-25 ]
  # Another one that is equal has the same template.
  pod q 'aliquot.dev/gpu-mem: 8, aliquot.dev/gpu-share: 25' "$keep" | as_user apply -f - >/dev/null
  runs q
  grants_are_true p q
  [ "$(k get resourceclaimtemplates -o name | wc -l)" = 1 ]
}

@test "webhook: whole GPUs, and several containers" {
  eventually webhook_answers
  pod w 'aliquot.dev/gpu: 1' "$keep" | make
  runs w
  grants_are_true w
  grant w | jq -e '.containers.c | length == 1 and .[0].whole'
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: i, image: lab/debian:1, command: [aliquot-load, --mem, 1G], resources: {limits: {aliquot.dev/gpu-mem: 3}}}
  containers:
  - {name: c, image: lab/debian:1, command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"], resources: {limits: {aliquot.dev/gpu-mem: 3}}}
  - {name: d, image: lab/debian:1, command: [sh, -c, "aliquot-load --mem 1G --seconds 36000 --busy 0%"], resources: {limits: {aliquot.dev/gpu-mem: 6}}}
END
  runs two
  grants_are_true two/c two/d w
  # What the init container had its successor has.
  [ "$(k get pod two -o json | jq '.spec.resourceClaims | length')" = 2 ]
  run k exec two -c c -- aliquot-load --mem 3G
  [ "$status" -eq 4 ]
}

@test "webhook: what cannot be is refused in words, and others are let alone" {
  eventually webhook_answers
  run ! pod_made 'aliquot.dev/gpu-mem: 8, aliquot.dev/gpu: 1'
  [[ $output == *"it asks for aliquot.dev/gpu-mem and for aliquot.dev/gpu"* ]]
  # Who names claims himself knows what he does.
  { share s 'memory: 3Gi'; claiming own s | sed 's|resources: {claims: \[{name: g}\]}|resources: {claims: [{name: g}], limits: {aliquot.dev/gpu-mem: 8}}|'; } | make
  k get pod own -o json | jq -e '.spec.resourceClaims[0].name == "g" and .spec.containers[0].resources.limits["aliquot.dev/gpu-mem"] == "8"'
  # A dry run leaves nothing.
  pod dry 'aliquot.dev/gpu-mem: 77' true | k apply --dry-run=server -f -
  ! k get resourceclaimtemplates -o name | grep 78848
  # A template that says something else by its name is not believed.
  share aliquot-gpu-mem-5120mi 'memory: 100Gi' | as_user apply -f - >/dev/null
  run ! pod_made 'aliquot.dev/gpu-mem: 5'
  [[ $output == *"asks for something else than its name says"* ]]
}
pod_made() { pod made "$1" "$keep" | k apply -f -; }

@test "webhook: when it is away only pods with GPUs wait" {
  eventually webhook_answers
  lab service stop aliquot-scheduler
  run ! pod_made 'aliquot.dev/gpu-mem: 5'
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: lab/busybox:1, command: [sleep, "36000"]}]
END
  runs plain
  # Those that name claims need neither webhook nor extender.
  { share s 'memory: 3Gi'; claiming own s; } | make
  runs own
  lab service start aliquot-scheduler
  eventually webhook_answers
}

@test "the API server takes the manifests" {
  k create namespace aliquot >/dev/null
  run -0 k apply --dry-run=server -f - < <(sed "s/@ca@/$(lab in base64 -w 0 /lab/pki/ca.crt)/" "$repo/packaging/kubernetes/aliquot-dra.yaml")
  k delete namespace aliquot --wait=false >/dev/null
  [[ $output == *"deviceclass.resource.k8s.io/gpu-share.aliquot.dev"* && $output == *"mutatingwebhookconfiguration.admissionregistration.k8s.io/aliquot-kube-scheduler"* ]]
}
