# For tests on a real Kubernetes (tools/kube-lab) with Aliquot's extender and node agent and simulated GPUs. tools/test-kube
# starts one for all files, and says so by $KUBE_LAB; without it a file starts its own.
# shellcheck shell=bash

bats_require_minimum_version 1.5.0
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/eventually.bash
. "$repo/tests/eventually.bash"

lab() { "$repo/tools/kube-lab/kube-lab" "$@"; }

# Why there can be no Kubernetes here, or nothing; and why not with Aliquot.
no_kubernetes() {
  lab why
  command -v jq >/dev/null || echo "jq is not here: tools/install-deps kube-lab"
}
no_aliquot() {
  local program
  for program in aliquot-kube-scheduler aliquot-kube-node; do
    [[ -x $ALIQUOT_BIN/$program || -x $ALIQUOT_BIN/../sbin/$program ]] || echo "$program is not built: tools/install-deps kube, and configure again"
  done
}

# start_lab OPTION…: in setup_file.
start_lab() {
  local why
  why=$({ no_kubernetes && no_aliquot; } 2>&1 | head -n 1)
  start_lab_unless "$why" "$@"
}
# Without Aliquot, where it is not there.
start_bare_lab() { start_lab_unless "$(no_kubernetes 2>&1 | head -n 1)" "$@"; }
start_lab_unless() {
  export LAB_MISSING=$1
  shift
  [[ -z $LAB_MISSING ]] || return 0
  # The one that $KUBE_LAB names will do, if it hands out GPUs as this file wants it. One that is up by itself is somebody's.
  if [[ -n ${KUBE_LAB:-} ]] && lab in true >/dev/null 2>&1 && grep -qx "as=${lab_as:-resources}" "$KUBE_LAB/upper/lab/settings"; then return 0; fi
  export KUBE_LAB=/var/tmp/aliquot-kube-test.$$ LAB_IS_OURS=1
  "$repo/tools/kube-lab/gather" "$ALIQUOT_BIN" "$BATS_FILE_TMPDIR/aliquot"
  lab up --as "${lab_as:-resources}" --aliquot "$BATS_FILE_TMPDIR/aliquot" "$@" >"$BATS_FILE_TMPDIR/up" 2>&1 </dev/null 3>&- || {
    cat "$BATS_FILE_TMPDIR/up" >&2
    lab down </dev/null 3>&-
    return 1
  }
}

stop_lab() {
  [[ -z ${LAB_IS_OURS:-} ]] || lab down </dev/null 3>&-
}

# In setup(): a file without a lab skips and says why; every test begins with a node that serves its GPUs.
need_lab() {
  need_bare_lab
  eventually node_serves
}
need_bare_lab() { [[ -z ${LAB_MISSING:-} ]] || skip "$LAB_MISSING"; }

# In teardown(): no pod of a test is there for the next.
end_pods() {
  [[ -z ${LAB_MISSING:-} ]] || return 0
  k delete pods --all --grace-period=0 --force --wait=false >/dev/null 2>&1 || true
  eventually no_pods
}

k() { lab in kubectl "$@" 3>&-; }
as_user() { lab in kubectl --kubeconfig /lab/user.kubeconfig "$@" 3>&-; }
no_pods() { [[ -z $(k get pods -o name) ]]; }
# The slices of the node are there, and the newest pool is complete.
node_claims() {
  k get resourceslices -o json | jq -e '[.items[] | select(.spec.driver == "aliquot.dev")] | (map(.spec.pool.generation) | max) as $g
    | map(select(.spec.pool.generation == $g)) | length > 0 and length == .[0].spec.pool.resourceSliceCount' >/dev/null
}
# gpu-mem is among what the kubelet can give away, and the node says what its GPUs are.
node_serves() {
  k get node n1 -o json | jq -e '(.status.allocatable["aliquot.dev/gpu-mem"] // "0" | tonumber) > 0 and .metadata.annotations["aliquot.dev/gpus"] != null' >/dev/null
}
node_gpus() { k get node n1 -o json | jq -r '.metadata.annotations["aliquot.dev/gpus"]'; }
uuid() { node_gpus | jq -r ".gpus[] | select(.index == $1) | .uuid"; }

# pod NAME LIMITS COMMAND [MORE]: one container `c` of the glibc image that runs a shell command. LIMITS and MORE are YAML in
# one line: 'aliquot.dev/gpu-mem: 8', and what else the container has.
pod() {
  cat <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: ${restart_policy:-Never}
  containers:
  - name: c
    image: ${image:-lab/debian:1}
    command: [sh, -c, $(jq -Rs . <<<"$3")]
    resources: {limits: {$2}}
    ${4:-}
END
}
make() { k apply -f - >/dev/null; }
# Keeps some memory until the pod ends.
keep='aliquot-load --mem 1G --seconds 36000 --busy 0%'

phase() { k get pod "$1" -o 'jsonpath={.status.phase}'; }
is() { [[ $(phase "$1") == "$2" ]]; }
runs() { # POD…
  local each
  for each; do eventually is "$each" Running; done
}
uid_of() { k get pod "$1" -o 'jsonpath={.metadata.uid}'; }
annotation() { k get pod "$1" -o json | jq -r --arg key "$2" '.metadata.annotations[$key] // empty'; }
grant() { annotation "$1" aliquot.dev/grant; }
# The GPUs of a container by its pod's grant.
granted_gpus() { grant "$1" | jq -r --arg c "${2:-c}" '.containers[$c][].gpu'; }

# inside POD COMMAND…: in its container c.
inside() {
  local pod=$1
  shift
  k exec "$pod" -c c -- "$@"
}
# grow POD: how many bytes a process in it can allocate until it is refused.
grow() { inside "$1" aliquot-load --grow --step "${2:-64M}" --json | jq .allocated; }

# The stand-in driver's own counts.
standin() { lab in env ALIQUOT_STANDIN_STATE=/run/aliquot-kube/standin /opt/aliquot/lib/aliquot/standin/aliquot-standin-ctl "$@" 3>&-; }
# "CONTAINER GPU-UUID BYTES" for each process on a GPU: which container of which pod it is in is what its control group says.
on_gpus() {
  lab in bash -c '
    ctl() { ALIQUOT_STANDIN_STATE=/run/aliquot-kube/standin /opt/aliquot/lib/aliquot/standin/aliquot-standin-ctl show; }
    counts=$(ctl)
    while read -r line; do
      for word in $line; do printf -v "${word%%=*}" %s "${word#*=}" 2>/dev/null; done
      [[ $line != gpu=* ]] || { uuids[gpu]=$uuid; continue; }
      [[ $line == pid=* && $kind != server ]] || continue
      container=$(sed -n "s#.*:memory:.*/##p; s#^0::/.*/##p" "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
      echo "${container:-none} ${uuids[gpu]} $bytes"
    done <<<"$counts"' 3>&-
}
# "CONTAINER MILLISECONDS" for each process on a GPU: how long it has computed, by the driver.
gpu_times() {
  lab in bash -c '
    ALIQUOT_STANDIN_STATE=/run/aliquot-kube/standin /opt/aliquot/lib/aliquot/standin/aliquot-standin-ctl show | while read -r line; do
      [[ $line == pid=* && $line != *kind=server* ]] || continue
      for word in $line; do printf -v "${word%%=*}" %s "${word#*=}" 2>/dev/null; done
      container=$(sed -n "s#.*:memory:.*/##p; s#^0::/.*/##p" "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
      echo "${container:-none} ${gpu_ms%.*}"
    done' 3>&-
}
gpu_ms_of() { gpu_times | awk -v id="$(container_id "$1")" '$1 == id { n += $2 } END { print n + 0 }'; }
# The runtime's id of a pod's container.
container_id() { k get pod "$1" -o json | jq -r --arg c "${2:-c}" '.status | (.containerStatuses // []) + (.initContainerStatuses // []) | .[] | select(.name == $c) | .containerID | sub(".*//"; "")'; }
# The GPUs on which a container really is, by the driver.
real_gpus() { on_gpus | awk -v id="$(container_id "$1" "${2:-c}")" '$1 == id { print $2 }' | sort -u; }
is_on_gpu() { [[ -n $(real_gpus "$@") ]]; }
# Each container of the pods is where its grant says.
grants_are_true() { # POD[/CONTAINER]…
  local each pod container
  for each; do
    pod=${each%%/*} container=c
    [[ $each != */* ]] || container=${each#*/}
    eventually is_on_gpu "$pod" "$container"
    [[ $(real_gpus "$pod" "$container") == "$(granted_gpus "$pod" "$container" | sort -u)" ]] || {
      echo "$each: on $(real_gpus "$pod" "$container"), granted $(granted_gpus "$pod" "$container")" >&2
      return 1
    }
  done
}
# No GPU has more than its memory, and no GPU's grants are more than its units, whatever happened.
sums_hold() {
  k get pods -o json | jq -e --argjson node "$(node_gpus)" '
    [.items[] | select(.status.phase == "Running" or .status.phase == "Pending") | .metadata.annotations["aliquot.dev/grant"] // empty | fromjson
      | .containers[][]] | group_by(.gpu) | all(.[]; (map(.memory) | add) as $sum | .[0].gpu as $gpu
      | ($node.gpus[] | select(.uuid == $gpu) | .memory) >= $sum)' >/dev/null
}

# What the node agent keeps for containers, and MPS servers.
agent_run=/run/aliquot-kube
nothing_kept() {
  [[ -z $(lab in sh -c "ls $agent_run/grants $agent_run/pods 2>/dev/null | grep -v ':\$' | grep ." 3>&-) ]] &&
    [[ -z $(lab in pgrep -f '^[^ ]*nvidia-cuda-mps-server' 3>&-) ]]
}

events_of() { k get events --field-selector "involvedObject.name=$1" -o json | jq -r '.items[] | .reason + ": " + .message'; }
says() { events_of "$1" | grep -qE "$2"; }
