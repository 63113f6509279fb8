#!/usr/bin/env bats
# `aliquot status`, `gpus`, `top` and `why` on a cluster: as kubectl's plugin, and by ALIQUOT_ENGINE.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() { end_pods; }

aq() { lab in env LD_LIBRARY_PATH=/opt/aliquot/lib/aliquot kubectl aliquot "$@" 3>&-; }
has() { # REGEX: in $output; else it is shown
  grep -qE -- "$1" <<<"$output" || { echo "no '$1' in:"$'\n'"$output"; return 1; }
}

# Two pods that run, one on each GPU, and one that waits.
crowd() {
  for each in a b; do pod $each 'aliquot.dev/gpu-mem: 100' "$keep" && echo ---; done | make
  runs a b
  pod c 'aliquot.dev/gpu-mem: 50' "$keep" | make
  eventually says c 'largest free on one GPU'
}

@test "status, gpus, top and why tell of pods, GPU by GPU" {
  crowd
  run -0 aq status
  has '^GPUs 2/2 in use · 0 free · free nodes 0/1 · 2 x h200 on 1 node$'
  has '^  n1 gpu0  .* 100G/139G .* pods default/[ab]$'
  has '^namespace default: using 1\.43 of 2 GPUs \(no limit\) · 2 running, 1 waiting$'
  has '^  default/a +RUNNING .* n1/gpu[01]:100G,71\.[0-9]+%'
  has '^  default/c +PENDING .* 50G .*largest free on one GPU: 39(\.[0-9]+)? GiB, asked 50 GiB'
  run -0 aq gpus
  has '^n1 +[01] +h200 '
  has '^      pod default/a c: 100G, 71\.[0-9]+% of compute$'
  run -0 aq top --once
  has '^  default/b +[0-9:]+ .* n1/gpu[01]:100G'
  run -0 aq why pod/c
  [ "${lines[0]}" = 'pod default/c is PENDING (Unschedulable)' ]
  has '^  It asks for 50 GiB of one GPU for c\.$'
  has '^  n1: largest free on one GPU: 39(\.[0-9]+)? GiB, asked 50 GiB$'
  for gpu in 0 1; do has "^    GPU $gpu \\(h200\\): 39(\\.[0-9]+)? GiB of 139(\\.[0-9]+)? GiB and 28\\.[0-9]+% of the compute free; default/[ab] has 100 GiB, 71\\.[0-9]+%\$"; done
  has '^  default-scheduler says: 0/1 nodes are available'
  run -0 aq why default/a
  [ "${lines[0]}" = 'pod default/a is RUNNING' ]
  has '^  c has 100 GiB, 71\.[0-9]+% of GPU [01] on n1\.$'
  # Once there is room, it has what it asked for.
  k delete pod a --wait=true >/dev/null
  runs c
  run -0 aq why
  has '^pod default/c is RUNNING$'
}

@test "another namespace, all of them, and JSON" {
  k create namespace other >/dev/null
  pod a 'aliquot.dev/gpu-mem: 20' "$keep" | make
  pod far 'aliquot.dev/gpu: 1' "$keep" | k apply -n other -f - >/dev/null
  runs a
  far_runs() { [[ $(k get pod far -n other -o 'jsonpath={.status.phase}') == Running ]]; }
  eventually far_runs
  run -0 aq status
  has '^others: using 1 GPU · 1 running, 0 waiting$'
  run ! grep -q '^  other/far' <<<"$output"
  run -0 aq status -n other
  has '^namespace other: using 1 of 2 GPUs'
  has '^  other/far +RUNNING .* n1/gpu[01]:whole'
  run -0 aq status -A
  has '^all namespaces: using 1\.[0-9]+ of 2 GPUs'
  run -0 aq why far -n other
  has 'pod other/far is RUNNING'
  run -0 aq why other/far
  has 'c has GPU [01], whole on n1\.'
  run -0 aq status --json
  jq -e '.cluster.engine == "kubernetes" and ([.jobs[].pod] | sort == ["default/a", "other/far"]) and (.cluster.nodes | length == 1)
    and ([.cluster.nodes[0].gpus[].jobs[]] | length == 2)' <<<"$output"
  k delete namespace other --wait=false >/dev/null
  k delete pod far -n other --grace-period=0 --force >/dev/null 2>&1
}

@test "what is in use comes from the agents" {
  # In a lab the agent is no pod: one that stands for it says where it listens.
  make <<'END'
apiVersion: v1
kind: Pod
metadata: {name: agent, labels: {app.kubernetes.io/name: aliquot-kube-node}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: node, image: lab/busybox:1, command: [sleep, "36000"], ports: [{name: metrics, containerPort: 9735}]}
END
  pod a 'aliquot.dev/gpu-mem: 20' "$keep" | make
  runs agent a
  in_use() {
    aq top --json | jq -e '.jobs | length == 1' >/dev/null &&
      aq top --json | jq -e '[.cluster.nodes[].gpus[] | select(.stale | not) | .processes[] | select(.job_id == 1) | .memory] == [1073741824] or
        ([.cluster.nodes[].gpus[].processes[] | select(.job_id == 1) | .memory] | add // 0) >= 1073741824' >/dev/null
  }
  eventually in_use
  run -0 aq top --once
  has '^  default/a .* [12](\.[0-9])?G +n1/gpu[01]:20G'
  run ! grep -q 'not known' <<<"$output"
  run -0 aq why a
  has 'c has 20 GiB, 14\.[0-9]+% of GPU [01] on n1, and uses 1(\.[0-9])? GiB'
}

@test "a user without rights on nodes is told what is missing, and sees the own pods" {
  crowd
  run -0 aq status --kubeconfig /lab/user.kubeconfig
  has '^  default/c +PENDING'
  has 'You may not list nodes'
  has 'You may not list the pods of all namespaces'
  run ! grep -q '^GPUs' <<<"$output"
  run -0 aq why pod/c --kubeconfig /lab/user.kubeconfig
  has 'default-scheduler says: 0/1 nodes are available'
  run ! aq status -A --kubeconfig /lab/user.kubeconfig
  has 'forbidden'
  # With the role that is made for it, as an administrator binds it.
  sed -n '/^kind: ClusterRole$/,/^---/p' "$repo/packaging/kubernetes/aliquot.yaml" | grep -q aliquot-view
  python3 - "$repo/packaging/kubernetes/aliquot.yaml" <<'END' | make
import sys, yaml, json
for one in yaml.safe_load_all(open(sys.argv[1])):
    if one and one["kind"] == "ClusterRole" and one["metadata"]["name"] == "aliquot-view": print(json.dumps(one))
END
  k create clusterrolebinding aliquot-view --clusterrole=aliquot-view --user=user >/dev/null
  sees_gpus() { aq gpus --kubeconfig /lab/user.kubeconfig | grep -q '^n1 '; }
  eventually sees_gpus
  k delete clusterrolebinding aliquot-view >/dev/null
}

@test "what is mistyped, or not for a cluster, is refused in words" {
  run -1 aq why nothere
  has 'aliquot: there is no pod nothere in namespace default'
  run -1 aq status -n ../kube-system
  has "is no namespace's name"
  run -1 aq why 'No Name'
  has "is no pod's name"
  run -2 aq statu
  has "'kubectl aliquot --help'"
  run -2 aq sbatch x.sh
  run -1 aq status --context nothere
  has 'nothere'
  run -1 aq status --kubeconfig /nothere
  has '/nothere'
  by_engine() { lab in env LD_LIBRARY_PATH=/opt/aliquot/lib/aliquot ALIQUOT_ENGINE=kube /opt/aliquot/bin/aliquot "$@" 3>&-; }
  run -0 by_engine gpus
  has '^n1 '
  run -1 by_engine sbatch x.sh
  has 'sbatch is not for Kubernetes'
  run -1 by_engine logs
  has "use 'kubectl logs'"
  run -1 lab in env LD_LIBRARY_PATH=/opt/aliquot/lib/aliquot /opt/aliquot/bin/aliquot status -n default
  has '[-]-namespace is for Kubernetes'
}
