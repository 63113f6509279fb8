# What is installed on Kubernetes, without one: manifests and chart say the same, programs get options that they have,
# rights are those that the code uses, and containers may do no more than they must.
bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_DIRNAME/../.." || return 1
  packaging=packaging/kubernetes
  helm=${HELM:-helm}
  python3 -c 'import yaml' 2>/dev/null || skip "python3-yaml is not here"
}

# json FILE…: all their objects, one a line.
json() {
  python3 -c 'import json, sys, yaml
for name in sys.argv[1:]:
    for one in yaml.safe_load_all(open(name)):
        if one is not None: print(json.dumps(one))' "$@"
}
# of KIND NAME FILE…
of() { json "${@:3}" | jq -c --arg kind "$1" --arg name "$2" 'select(.kind == $kind and .metadata.name == $name)'; }
pod_of() { of "$1" "$2" "$packaging/aliquot.yaml" | jq -c .spec.template.spec; }
need_helm() { command -v "$helm" >/dev/null || skip "Helm is not here"; }

@test "every manifest is one" {
  jq -es 'length > 14 and all(.apiVersion and .kind and .metadata.name and .metadata.labels["app.kubernetes.io/part-of"] == "aliquot")' <(json "$packaging/aliquot-dra.yaml")
  run -0 json "$packaging"/{aliquot,second-scheduler}.yaml
  jq -es 'length > 10 and all(.apiVersion and .kind and .metadata.name)' <<<"$output"
  # Everything lies in our namespace, but for what has none, and the right to read how the API server knows people.
  jq -es '[.[] | select(.kind | IN("Namespace", "ClusterRole", "ClusterRoleBinding") | not)] | all(.metadata.namespace | IN("aliquot", "kube-system"))' <<<"$output"
  [ "$(jq -r 'select(.metadata.namespace == "kube-system") | .kind + " " + .roleRef.name' <<<"$output")" = "RoleBinding extension-apiserver-authentication-reader" ]
  # What there is is ours to delete.
  jq -es 'all(.metadata.labels["app.kubernetes.io/part-of"] == "aliquot")' <<<"$output"
  [ "$(jq -r '.kind + " " + (.metadata.namespace // "") + "/" + .metadata.name' <<<"$output" | sort | uniq -d)" = "" ]
}

@test "what the chart makes is what the manifests are" {
  need_helm
  HELM=$helm run -0 "$packaging/render" "$BATS_TEST_TMPDIR"
  diff -u "$packaging/aliquot.yaml" "$BATS_TEST_TMPDIR/aliquot.yaml"
  diff -u "$packaging/aliquot-dra.yaml" "$BATS_TEST_TMPDIR/aliquot-dra.yaml"
  diff -u "$packaging/second-scheduler.yaml" "$BATS_TEST_TMPDIR/second-scheduler.yaml"
}

@test "the chart with everything set makes what can be read" {
  need_helm
  "$helm" lint --strict "$packaging/chart"
  "$helm" template aliquot "$packaging/chart" --namespace other --set key.create=true,nvidia=true,gpushare=true,domain=gpus.example --set node.privileged=true \
    --set node.simulate=h200:4,node.runtimeClassName=nvidia,scheduler.tls.secretName=tls,secondScheduler.enabled=true,secondScheduler.image=x \
    --set 'scheduler.networkPolicy.from[0].ipBlock.cidr=10.0.0.0/8,imagePullSecrets[0].name=p,image.tag=9' >"$BATS_TEST_TMPDIR/all.yaml"
  run -0 json "$BATS_TEST_TMPDIR/all.yaml"
  [ "$(jq -r 'select(.kind == "Secret") | .data.key | @base64d | length' <<<"$output")" -ge 16 ]
  jq -es 'any(.kind == "NetworkPolicy")' <<<"$output"
  args=$(jq -r 'select(.kind == "DaemonSet") | .spec.template.spec.containers[0].args[]' <<<"$output")
  run -0 "$helm" template aliquot "$packaging/chart" --namespace other --set domain=gpus.example,dra.enabled=true,dra.cdiDir=/etc/cdi,dra.webhook.enabled=false
  grep -qF "device.driver == 'gpus.example' && device.attributes['gpus.example'].kind == 'whole'" <<<"$output"
  grep -qF "path: /var/lib/kubelet/plugins/gpus.example" <<<"$output"
  run ! grep -qE 'webhook|MutatingWebhook' <<<"$output"
  # A webhook is served with TLS, and the API server must believe it.
  run ! "$helm" template aliquot "$packaging/chart" --set dra.enabled=true
  [[ $output == *"served with TLS"* ]]
  run ! "$helm" template aliquot "$packaging/chart" --set dra.enabled=true,scheduler.tls.secretName=tls
  [[ $output == *"dra.webhook.caBundle"* ]]
  run -0 json "$BATS_TEST_TMPDIR/all.yaml"
  for word in --nvidia --gpushare --simulate=h200:4 --domain=gpus.example; do grep -qxF -- "$word" <<<"$args"; done
  jq -r 'select(.kind == "ConfigMap") | .data["scheduler.yaml"]' <<<"$output" >"$BATS_TEST_TMPDIR/scheduler.yaml"
  [ "$(json "$BATS_TEST_TMPDIR/scheduler.yaml" | jq -r '[.extenders[0].managedResources[].name] | join(" ")')" = \
    "gpus.example/gpu-mem gpus.example/gpu-share gpus.example/gpu nvidia.com/gpu aliyun.com/gpu-mem aliyun.com/gpu-count" ]
  json "$BATS_TEST_TMPDIR/scheduler.yaml" | jq -e '.extenders[0].enableHTTPS and (.extenders[0].urlPrefix | startswith("https://"))'
  # A second scheduler needs somebody's image.
  run ! "$helm" template aliquot "$packaging/chart" --set secondScheduler.enabled=true
  [[ $output == *"of the cluster's version"* ]]
}

@test "the version is the project's" {
  version=$(sed -n 's/^project(aliquot VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  json "$packaging/chart/Chart.yaml" | jq -e --arg v "$version" '.version == $v and .appVersion == $v'
  for pod in "Deployment aliquot-kube-scheduler" "DaemonSet aliquot-kube-node"; do
    [ "$(pod_of $pod | jq -r '.containers[0].image')" = "localhost/aliquot:$version" ]
  done
}

@test "images name no registry" {
  run -0 json "$packaging"/{aliquot,second-scheduler}.yaml
  [ "$(jq -r '.. | objects | .image? | strings | sub(":[0-9.]+$"; "")' <<<"$output" | sort -u | tr '\n' ' ')" = "@image@ localhost/aliquot " ]
}

@test "programs get options that their manual has" {
  for pod in "Deployment aliquot-kube-scheduler" "DaemonSet aliquot-kube-node"; do
    name=${pod#* }
    [ "$(pod_of $pod | jq -r '.containers[0].command[0]')" = "/usr/sbin/$name" ]
    for option in $(pod_of $pod | jq -r '.containers[0].args[]' | cut -d= -f1) $(grep -oE -- '^ +- --[a-z-]+' "$packaging/chart/templates/${name#aliquot-kube-}.yaml" | tr -d ' ' | cut -c2-); do
      echo "$name: $option"
      sed 's/\\-/-/g' "docs/man/$name.8" | grep -qE -- "$option\\b"
    done
  done
}

@test "the programs that the manifests start are in the bundle" {
  bundle=$(ls -d build/bundle/aliquot-* 2>/dev/null | tail -n 1)
  [ -n "$bundle" ] || skip "no bundle is made here: make bundle"
  [ -x "$bundle/sbin/aliquot-kube-scheduler" ] || skip "this bundle has no programs for Kubernetes"
  for program in $(json "$packaging/aliquot.yaml" | jq -r '.. | objects | .command? | arrays | .[0]'); do [ -x "$bundle/${program#/usr/}" ]; done
}

@test "containers may do no more than they must" {
  pod_of Deployment aliquot-kube-scheduler | jq -e '.securityContext.runAsNonRoot and .securityContext.seccompProfile.type == "RuntimeDefault"
    and (.hostPID or .hostNetwork or .hostIPC | not) and ([.volumes[] | select(.hostPath)] == [])
    and (.containers[0].securityContext | .readOnlyRootFilesystem and .allowPrivilegeEscalation == false and .capabilities == {drop: ["ALL"]})'
  pod_of DaemonSet aliquot-kube-node | jq -e '.hostPID and (.hostNetwork or .hostIPC | not) and .securityContext.seccompProfile.type == "RuntimeDefault"
    and (.containers[0].securityContext | .readOnlyRootFilesystem and .allowPrivilegeEscalation == false and .privileged == null and .capabilities.drop == ["ALL"])'
  [ "$(pod_of DaemonSet aliquot-kube-node | jq -r '.volumes[] | .hostPath.path | strings')" = "$(printf '%s\n' /run/aliquot-kube /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources)" ]
  # What the container sees is where the host has it: links lead there.
  pod_of DaemonSet aliquot-kube-node | jq -e '. as $pod | [.volumes[] | select(.hostPath) | . as $v | $pod.containers[0].volumeMounts[] | select(.name == $v.name) | .mountPath == $v.hostPath.path] | length == 3 and all'
  # A key that is a link is refused by the programs, and files of a Secret are links, but for this way.
  json "$packaging/aliquot.yaml" | jq -e -s '[.[] | .. | objects | .volumeMounts? | arrays | .[] | select(.name == "key")] | length == 2 and all(.subPath == "key" and .readOnly)'
}

@test "rights are those that the code uses" {
  sources=${ALIQUOT_KUBE_SOURCES:-src/kube}
  [ -d "$sources/node" ] || skip "the programs for Kubernetes are not in this tree"
  # Resources that a folder's sources name, with their subresources.
  used() {
    cat "$@" | grep -vE '^ *//' | tr -s '\n ' ' ' >"$BATS_TEST_TMPDIR/code"
    {
      grep -oE 'object_path\( ?"apis?/[a-z0-9./]+", [^"]*"[a-z]+"' "$BATS_TEST_TMPDIR/code" | sed 's/.*"\([a-z]*\)"$/\1/'
      grep -oE '"/api/v1/[a-z]+' "$BATS_TEST_TMPDIR/code" | sed 's|.*/||'
      grep -oE 'pod_path\("[a-z]+"\)' "$BATS_TEST_TMPDIR/code" | sed 's|.*"\(.*\)".*|pods/\1|'
    } | sort -u
  }
  allowed() { # NAME: of its roles
    json "$packaging/aliquot-dra.yaml" | jq -r --arg name "$1" 'select((.kind | IN("Role", "ClusterRole")) and .metadata.name == $name) | .rules[].resources[]' | sort -u
  }
  files() { find "$@" -name '*.cpp' ! -name '*_test.cpp'; }
  diff <(used $(files "$sources/scheduler") "$sources"/api/{lease,events}.cpp) <(allowed aliquot-kube-scheduler)
  diff <(used $(files "$sources/node") "$sources/api/events.cpp") <(allowed aliquot-kube-node)
  # Without claims there is no right to them.
  run ! grep -q resource.k8s.io "$packaging/aliquot.yaml"
  # Nothing is deleted, and nothing but the lease replaced.
  run ! grep -rn '"DELETE"' $(files "$sources/scheduler" "$sources/node") "$sources"/api/{lease,events,reflector,api_client}.cpp
  [ "$(grep -rl '"PUT"' $(files "$sources/scheduler" "$sources/node") "$sources"/api/{lease,events,reflector}.cpp)" = "$sources/api/lease.cpp" ]
  json "$packaging/aliquot-dra.yaml" | jq -c 'select(.kind | IN("Role", "ClusterRole")) | .rules[]' >"$BATS_TEST_TMPDIR/rules"
  jq -es 'length > 5 and all(.[]; (.verbs - ["get", "list", "watch", "create", "patch", "update"]) == [] and (.resources | index("*")) == null)' "$BATS_TEST_TMPDIR/rules"
  [ "$(jq -c 'select(.verbs | index("update")) | .resources' "$BATS_TEST_TMPDIR/rules")" = '["leases"]' ]
}

@test "who looks may read and nothing else, and nobody does before an administrator says so" {
  for file in aliquot aliquot-dra; do
    json "$packaging/$file.yaml" >"$BATS_TEST_TMPDIR/objects"
    jq -es '[.[] | select((.kind | IN("Role", "ClusterRole")) and .metadata.name == "aliquot-view") | .rules[]] | length >= 2
      and all(.[]; .verbs == ["list"] or (.verbs == ["get"] and .resources == ["pods/proxy"]))' "$BATS_TEST_TMPDIR/objects"
    # The agents of our own namespace are what may be asked.
    jq -es 'any(.[]; .kind == "Role" and .metadata.name == "aliquot-view" and .metadata.namespace == "aliquot")' "$BATS_TEST_TMPDIR/objects"
    jq -es 'all(.[]; .roleRef.name != "aliquot-view")' "$BATS_TEST_TMPDIR/objects"
  done
  # What it asks for is in them, besides what is of a namespace's own: its quotas and events.
  [ "$(grep -ohE '"(nodes|pods|resourceclaims|resourcequotas|events)"|/api/v1/(nodes|pods)"' src/kube/view/questions.cpp | tr -d '"' | sed 's|.*/||' | sort -u | tr '\n' ' ')" = \
    "events nodes pods resourceclaims resourcequotas " ]
}

@test "claims instead of resources: what differs" {
  dra() { of "$1" "$2" "$packaging/aliquot-dra.yaml"; }
  dra DaemonSet aliquot-kube-node | jq -e '.spec.template.spec | (.containers[0].args | index("--dra") and index("--cdi-dir=/var/run/cdi"))
    and ([.volumes[].hostPath.path // empty] == ["/run/aliquot-kube", "/var/lib/kubelet/plugins/aliquot.dev", "/var/lib/kubelet/plugins_registry", "/var/run/cdi", "/var/lib/kubelet/pod-resources"])
    and (. as $pod | [.volumes[] | select(.hostPath) | . as $v | $pod.containers[0].volumeMounts[] | select(.name == $v.name) | .mountPath == $v.hostPath.path] | length == 5 and all)'
  dra Deployment aliquot-kube-scheduler | jq -e '.spec.template.spec.containers[0].args | index("--webhook") and index("--tls-cert=/etc/aliquot/tls/tls.crt")'
  for class in gpu gpu-share; do dra DeviceClass "$class.aliquot.dev" | jq -e '.spec.selectors | length == 1'; done
  # Only pods that ask for GPUs wait for the webhook, and a dry run changes nothing.
  dra MutatingWebhookConfiguration aliquot-kube-scheduler | jq -e '.webhooks | length == 1 and (.[0] | .failurePolicy == "Fail" and .sideEffects == "NoneOnDryRun"
    and (.matchConditions | length == 1) and .clientConfig.caBundle == "@ca@" and .clientConfig.service.path == "/admit" and .rules[0].operations == ["CREATE"])'
  # Where claims are tried out they are the same.
  for kind in DeviceClass MutatingWebhookConfiguration; do
    diff <(json "$packaging/aliquot-dra.yaml" | jq -S "select(.kind == \"$kind\") | del(.metadata.labels, .webhooks[]?.clientConfig)") \
      <(json tools/kube-lab/conf/claims.yaml | jq -S "select(.kind == \"$kind\") | del(.webhooks[]?.clientConfig)")
  done
}

@test "kubeadm's scheduler and the second one are told the same" {
  of ConfigMap aliquot-second-scheduler "$packaging/second-scheduler.yaml" | jq -r '.data["scheduler.yaml"]' >"$BATS_TEST_TMPDIR/second.yaml"
  diff <(json "$packaging/kubeadm/scheduler.yaml" | jq '.extenders[0] | del(.urlPrefix)') <(json "$BATS_TEST_TMPDIR/second.yaml" | jq '.extenders[0] | del(.urlPrefix)')
  [ "$(json "$packaging/kubeadm/scheduler.yaml" | jq -r '.extenders[0].urlPrefix')" = http://@address@:8898 ]
  [ "$(json "$BATS_TEST_TMPDIR/second.yaml" | jq -r '.extenders[0].urlPrefix')" = http://aliquot-kube-scheduler.aliquot.svc:8898 ]
  of Service aliquot-kube-scheduler "$packaging/aliquot.yaml" | jq -e '.spec.ports[0].port == 8898'
}

@test "kubeadm's patch adds to a kube-scheduler as kubeadm makes it" {
  cat >"$BATS_TEST_TMPDIR/pod.json" <<'END'
{"spec": {"containers": [{"command": ["kube-scheduler", "--leader-elect=true"], "volumeMounts": [{"name": "kubeconfig"}]}], "volumes": [{"name": "kubeconfig"}]}}
END
  json "$packaging/kubeadm/kube-scheduler+json.yaml" >"$BATS_TEST_TMPDIR/patch.json"
  # `add` behind the last is all that it does.
  jq --slurpfile patch "$BATS_TEST_TMPDIR/patch.json" 'reduce $patch[0][] as $one (.; ($one.path | ltrimstr("/") | split("/") | map(tonumber? // .)) as $path
    | if $one.op == "add" and $path[-1] == "-" then setpath($path[:-1]; getpath($path[:-1]) + [$one.value]) else error("another one") end)' "$BATS_TEST_TMPDIR/pod.json" |
    jq -e '.spec.containers[0].command[-1] == "--config=/etc/kubernetes/aliquot/scheduler.yaml" and .spec.containers[0].volumeMounts[-1].mountPath == .spec.volumes[-1].hostPath.path'
}

@test "a real kube-scheduler takes the configurations" {
  programs=${K8S_BIN:-}
  [ -x "$programs/kube-scheduler" ] || skip "there is no kube-scheduler: set K8S_BIN"
  printf '%s\n' 'apiVersion: v1' 'kind: Config' 'current-context: x' 'contexts: [{name: x, context: {cluster: x, user: x}}]' \
    'clusters: [{name: x, cluster: {server: "http://127.0.0.1:1"}}]' 'users: [{name: x, user: {token: x}}]' >"$BATS_TEST_TMPDIR/kubeconfig"
  of ConfigMap aliquot-second-scheduler "$packaging/second-scheduler.yaml" | jq -r '.data["scheduler.yaml"]' >"$BATS_TEST_TMPDIR/second.yaml"
  echo "clientConnection: {kubeconfig: $BATS_TEST_TMPDIR/kubeconfig}" >>"$BATS_TEST_TMPDIR/second.yaml"
  sed "s|@address@|10.96.0.7|; s|/etc/kubernetes/scheduler.conf|$BATS_TEST_TMPDIR/kubeconfig|" "$packaging/kubeadm/scheduler.yaml" >"$BATS_TEST_TMPDIR/first.yaml"
  for which in first second; do
    run timeout 20 "$programs/kube-scheduler" --config "$BATS_TEST_TMPDIR/$which.yaml" --write-config-to "$BATS_TEST_TMPDIR/$which.out" --secure-port=0
    echo "$output"
    json "$BATS_TEST_TMPDIR/$which.out" | jq -e '.extenders[0].bindVerb == "bind" and (.extenders[0].managedResources | length) == 3'
  done
}
