# The systemd units and the rotation of the log: what systemd itself says of them, and that none stays down for good.
setup() { units=$BATS_TEST_DIRNAME/../../packaging/systemd; }

@test "no unit gives up after a few crashes, and each comes back" {
  for unit in "$units"/*.service; do
    grep -q '^StartLimitIntervalSec=0$' "$unit" || { echo "$unit"; false; }
    grep -Eq '^Restart=(on-failure|always)$' "$unit" || { echo "$unit"; false; }
  done
}

@test "what jobs inherit leaves their programs alone" {
  run grep -E '^(NoNewPrivileges|Protect[A-Za-z]+|Private[A-Za-z]+|RestrictNamespaces|SystemCall[A-Za-z]+|MemoryDenyWriteExecute|LockPersonality)=' "$units/aliquotd.service"
  [ "$status" -ne 0 ]
  grep -q '^OOMScoreAdjust=' "$units/aliquotd.service"
  grep -q '^ExecReload=/bin/kill -HUP' "$units/aliquotd.service"
}

@test "systemd finds nothing wrong with them" {
  command -v systemd-analyze >/dev/null || skip "needs systemd-analyze"
  folder=$(mktemp -d)
  # Their programs need not be installed here.
  for unit in "$units"/*.service; do sed -E 's#^(ExecStart=)[^ ]+#\1/bin/true#' "$unit" >"$folder/${unit##*/}"; done
  run systemd-analyze verify --man=no "$folder"/*.service
  rm -r "$folder"
  [[ $output != *"$folder"* && $output != *Unknown* && $output != *Failed\ to\ parse* ]] || { echo "$output"; false; }
}

@test "an agent that hangs is back before the steps that wait for it give up" {
  unit=$units/aliquot-agent.service
  grep -q '^Type=notify$' "$unit"
  patience=$(sed -n 's/.* patience = \([0-9]*\);.*/\1/p' "$BATS_TEST_DIRNAME/../../src/slurm/site_settings.hpp")
  [[ $(sed -n 's/^WatchdogSec=//p' "$unit") -lt $patience ]]
}
