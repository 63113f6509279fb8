#!/usr/bin/env bats
# Shares in containers of every make: other users, a root that cannot be written, other C libraries, a clean environment.
load helper.bash

setup_file() { start_lab; }
teardown_file() { stop_lab; }
setup() { need_lab; }
teardown() { end_pods; }

gib=1073741824

@test "user 1001, in an image whose root cannot be written" {
  pod p 'aliquot.dev/gpu-mem: 4' "$keep" \
    'securityContext: {runAsUser: 1001, runAsGroup: 1001, runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}' | make
  runs p
  grants_are_true p
  [ "$(inside p id -u)" = 1001 ]
  run inside p touch /x
  [ "$status" -ne 0 ]
  run inside p aliquot-load --mem 4G
  [ "$status" -eq 4 ]
  inside p aliquot-load --mem 1G
}

@test "containers of several users share a GPU" {
  pod a 'aliquot.dev/gpu-mem: 4' "$keep" 'securityContext: {runAsUser: 1001}' | make
  pod b 'aliquot.dev/gpu-mem: 4' "$keep" 'securityContext: {runAsUser: 1002}' | make
  pod c 'aliquot.dev/gpu-mem: 4' "$keep" | make
  runs a b c
  grants_are_true a b c
  [ "$(granted_gpus a)$(granted_gpus b)" = "$(granted_gpus c)$(granted_gpus c)" ]
  for each in a b c; do [ "$(grow "$each")" -le $((4 * gib)) ]; done
}

@test "a musl image runs as if nothing were there" {
  image=lab/musl:1 pod m 'aliquot.dev/gpu-mem: 4' 'exec musl-probe 36000' | make
  runs m
  logged() { k logs m 2>/dev/null | grep -q '^musl runs as 0'; }
  eventually logged
  run -0 k logs m
  echo "$output"
  ! grep -iE 'error|not found|cannot' <<<"$output"
  run -0 inside m musl-probe
  [ "${lines[0]}" = "musl runs as 0" ]
}

@test "a static program runs as if nothing were there" {
  image=lab/busybox:1 pod b 'aliquot.dev/gpu-mem: 4' 'sleep 36000' | make
  runs b
  [ "$(inside b echo fine)" = fine ]
}

@test "a process with a clean environment is held, too" {
  pod e 'aliquot.dev/gpu-mem: 4' 'sleep 36000' | make
  runs e
  # It finds the driver as on any machine, by where it lies, and the simulation by its name.
  run inside e env -i ALIQUOT_STANDIN_STATE=/run/aliquot-kube/standin aliquot-load --mem 20G --step 1G --seconds 30 --busy 0% --json
  echo "$output"
  # Refused, or ended by the watchdog; in no case does it keep five times its share until it wants to go.
  [ "$status" -ne 0 ]
}
