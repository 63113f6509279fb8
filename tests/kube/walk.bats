#!/usr/bin/env bats
# Random walks: tests/kube/walk says what they do and check. KUBE_WALK: how many pods (40), KUBE_HOLLOW: on how many hollow
# nodes beside the real one (5), KUBE_KILLS: how many programs are killed meanwhile (4), KUBE_SEED.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() {
  [[ -z ${LAB_MISSING:-} ]] || for name in apiserver kubelet scheduler aliquot-scheduler aliquot-node; do lab service start "$name"; done
  [[ -z ${proxy:-} ]] || kill "$proxy" 2>/dev/null || true
  end_pods
}

@test "pods come and go, and programs are killed" {
  command -v python3 >/dev/null || skip "python3 is not here"
  lab in kubectl proxy --port=8001 >/dev/null 2>&1 3>&- &
  proxy=$!
  folder=${KUBE_LAB:-/var/tmp/aliquot-kube-lab}
  in_lab() { nsenter -t "$(cat "$folder/pid")" -n "$@" 3>&-; }
  answers() { in_lab python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:8001/readyz")' 2>/dev/null; }
  eventually answers
  run in_lab "$BATS_TEST_DIRNAME/walk" --api http://127.0.0.1:8001 --lab "$repo/tools/kube-lab/kube-lab" --pods "${KUBE_WALK:-40}" --hollow "${KUBE_HOLLOW:-5}" \
    --kills "${KUBE_KILLS:-4}" --seed "${KUBE_SEED:-1}"
  echo "$output"
  echo "# ${lines[0]}" >&3
  [ "$status" -eq 0 ]
  eventually node_serves
  eventually nothing_kept
  idle() { ! standin show | grep -q '^pid='; }
  eventually idle
}
