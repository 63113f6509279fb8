#!/usr/bin/env bats
# The page of a cluster (`aliquot page`) in a real Chromium, on a real Kubernetes: web/test/cluster.mjs.
load helper.bash
load ../page/browser.bash

setup_file() {
  local why
  why=$(no_browser)
  if [[ -n $why ]]; then export LAB_MISSING=$why; else start_lab --gpus h200:4; fi
}
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() {
  [[ -n ${LAB_MISSING:-} ]] || lab in pkill -f 'aliquot[- ]page' 3>&- || true
  end_pods
}

# Nothing outside reaches the lab: what looks at it from here is in its network.
beside() { nsenter -t "$(cat "$KUBE_LAB/pid")" -n "$@" 3>&-; }

@test "a pod is followed on the page from its creation to its end, and in its node's figures" {
  gpus=$(node_gpus | jq '.gpus | length')
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
  for ((i = 1; i < gpus; i++)); do pod "train-$i" 'aliquot.dev/gpu: 1' 'aliquot-load --mem 100G --seconds 36000 --busy 80%' && echo ---; done | make
  for name in ann bob; do pod "notebook-$name" 'aliquot.dev/gpu-mem: 35' 'aliquot-load --mem 20G --seconds 36000 --busy 20%' && echo ---; done | make
  pod pair 'aliquot.dev/gpu: 2' "$keep" | make
  pod finetune 'aliquot.dev/gpu-mem: 60' 'aliquot-load --mem 50G --seconds 36000 --busy 50%' | make
  runs agent train-1 notebook-ann notebook-bob finetune

  pod follow 'aliquot.dev/gpu: 1' 'aliquot-load --mem 90G --seconds 36000 --busy 60% & until [ -e /tmp/go ]; do sleep 0.1; done; kill $!' >"$BATS_TEST_TMPDIR/follow"
  {
    declare -p repo KUBE_LAB BATS_TEST_TMPDIR
    declare -f lab k make inside get
    cat <<'END'
case $1 in
submit) make <"$BATS_TEST_TMPDIR/follow" && echo default/follow ;;
room) k delete pod train-1 --wait=false ;;
end) inside follow touch /tmp/go ;;
figures) get http://127.0.0.1:9735/metrics ;;
esac
END
  } >"$BATS_TEST_TMPDIR/script"
  lab in env LD_LIBRARY_PATH=/opt/aliquot/lib/aliquot ALIQUOT_ENGINE=kube /opt/aliquot/bin/aliquot page -A --port 9834 --every 0.5 \
    >"$BATS_TEST_TMPDIR/page" 2>&1 3>&- &
  shown() { beside bash -c "$(declare -f get); get http://127.0.0.1:9834/" | grep -q 'finetune'; }
  eventually shown
  run beside node "$browser_root/web/test/cluster.mjs" "$playwright" http://127.0.0.1:9834/ 1 "$gpus" "$BATS_TEST_TMPDIR/script" pods
  echo "$output"
  cat "$BATS_TEST_TMPDIR/page"
  [ "$status" -eq 0 ]
}
