# What the daemon tells Prometheus, read by Prometheus itself; every query of the dashboards, run on what it recorded;
# and the alarms.

setup_file() {
  export AREA=$BATS_TEST_DIRNAME ROOT=$BATS_TEST_DIRNAME/../..
  export FOLDER
  FOLDER=$(mktemp -d)
  PORT=$(free_port)
  PROMETHEUS=$(free_port)
  export PORT PROMETHEUS ALIQUOT_SOCKET=$FOLDER/s
  printf '[page]\nport = %s\n[jobs]\nkill_wait = 1\n[monitor]\ninterval = 1\n[metrics]\njob_mapping = "%s/mapping"\n' "$PORT" "$FOLDER" >"$FOLDER/aliquot.toml"
  "$ALIQUOT_BIN/aliquotd" --foreground --socket "$ALIQUOT_SOCKET" --state-dir "$FOLDER/state" \
    --config "$FOLDER/aliquot.toml" --simulate h200:4 2>"$FOLDER/log" 3>&- &
  echo $! >"$FOLDER/pid"
  until_true "$ALIQUOT_BIN/aliquot" status
  cd "$FOLDER"
  # One that computes in a share, one that holds a whole GPU and does nothing, one that waits, and some that are over.
  sbatch_ --gpu-mem=30G --gpu-share=25% --wrap "'$ALIQUOT_BIN/aliquot-load' --mem 2G --seconds 600 --busy 60%"
  sbatch_ --gres=gpu:1 --wrap 'sleep 600'
  sbatch_ --gres=gpu:4 --wrap 'sleep 600'
  sbatch_ -t 1 --gres=gpu:1 --wrap true
  sbatch_ --wrap false
  run "$ALIQUOT_BIN/aliquot" sbatch -p nowhere --wrap true
}

teardown_file() {
  "$ALIQUOT_BIN/aliquot" scancel -u "$(id -un)" || true
  local file
  for file in "$FOLDER/prometheus.pid" "$FOLDER/pid"; do
    [ ! -e "$file" ] || kill "$(<"$file")" || true
  done
  rm -rf "$FOLDER"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
sbatch_() { "$ALIQUOT_BIN/aliquot" sbatch -o /dev/null -t 60 "$@" >/dev/null; }
until_true() { # COMMAND…
  local i
  for ((i = 0; i < 600; i++)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.2
  done
  echo "never: $*"
  tail -5 "$FOLDER/log"
  return 1
}
get() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())' "$1"; }
metrics() { get "http://127.0.0.1:$PORT/metrics${1:-}"; }
needs() { command -v "$1" >/dev/null || skip "$1 is not here (Debian's package prometheus)"; }
has() { metrics | grep -qE "$1"; }

@test "promtool has nothing to say of any of it" {
  needs promtool
  local path
  for path in "" /jobs /nodes /partitions /scheduler /jobs-users-accts; do
    echo "/metrics$path"
    metrics "$path" >"$FOLDER/text"
    [ -s "$FOLDER/text" ]
    run promtool check metrics <"$FOLDER/text"
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
  done
}

@test "it tells of GPUs, shares and jobs what the commands tell" {
  until_true has 'aliquot_jobs\{state="RUNNING",partition="main"\} 2'
  until_true has 'aliquot_share_gpu_seconds_total\{.*job="1".*\} [0-9]'
  metrics >"$FOLDER/text"
  grep -qF 'aliquot_share_compute_limit_ratio{gpu="0"' "$FOLDER/text"
  [ "$(grep -c '^aliquot_gpu_info{' "$FOLDER/text")" -eq 4 ]
  grep -qE "^aliquot_share_memory_limit_bytes\{.*job=\"1\",user=\"$(id -un)\".*\} 32212254720$" "$FOLDER/text"
  grep -qE '^aliquot_share_compute_limit_ratio\{.*job="1".*\} 0.25$' "$FOLDER/text"
  grep -qE '^aliquot_jobs_submitted_total [5-9]' "$FOLDER/text"
  grep -qE '^aliquot_scheduler_refusals_total\{reason="ESLURM_INVALID_PARTITION_NAME"\} 1$' "$FOLDER/text"
  until_true has 'aliquot_jobs_finished_total\{state="FAILED"\} 1'
  metrics /jobs | grep -qE '^slurm_jobs_running 2$'
  metrics /nodes | grep -qE '^slurm_node_gpus\{node="[^"]+"\} 4$'
  metrics /partitions | grep -qE '^slurm_partition_jobs_pending\{partition="main"\} 1$'
}

@test "dcgm-exporter's job mapping has each job on its GPU" {
  mapped() { [ "$(cat "$FOLDER/mapping/0" "$FOLDER/mapping/1" | sort | xargs)" = "1 2" ]; }
  until_true mapped
  [ -e "$FOLDER/mapping/3" ]
}

@test "Prometheus scrapes it, and no query of a dashboard is empty" {
  needs prometheus
  cat >"$FOLDER/prometheus.yml" <<END
global: {scrape_interval: 2s, evaluation_interval: 5s}
rule_files: [$ROOT/packaging/prometheus/aliquot.rules.yml]
scrape_configs:
  - job_name: aliquot
    honor_labels: true
    static_configs: [{targets: ["127.0.0.1:$PORT"]}]
END
  prometheus --config.file="$FOLDER/prometheus.yml" --storage.tsdb.path="$FOLDER/tsdb" \
    --web.listen-address="127.0.0.1:$PROMETHEUS" >"$FOLDER/prometheus.log" 2>&1 3>&- &
  echo $! >"$FOLDER/prometheus.pid"
  cd "$FOLDER"
  queries() { python3 "$AREA/queries" "http://127.0.0.1:$PROMETHEUS" "127.0.0.1:$PORT" "$ROOT"/packaging/grafana/*.json; }
  # Rates need something to happen while it looks.
  queries_of_a_busy_machine() {
    sbatch_ -t 1 --wrap true
    "$ALIQUOT_BIN/aliquot" sbatch -p nowhere --wrap true || true
    queries
  }
  until_true queries_of_a_busy_machine
  queries
}

@test "the alarms go off when they are to, and only then" {
  needs promtool
  promtool check rules "$ROOT/packaging/prometheus/aliquot.rules.yml"
  cd "$AREA" && promtool test rules rules_test.yml
}

@test "the dashboards are what Grafana imports" {
  local file
  for file in "$ROOT"/packaging/grafana/*.json; do
    echo "$file"
    jq -e '(.uid | length > 0) and (.title | length > 0) and .schemaVersion >= 36 and (.panels | length > 5)
      and ([.panels[].id] | length == (unique | length))
      and all(.panels[]; (.type | IN("stat", "timeseries", "bargauge", "table")) and (.title | length > 0)
        and .gridPos.x + .gridPos.w <= 24 and (.targets | length > 0)
        and all(.targets[]; (.expr | length > 0) and .datasource.uid == "${source}"))
      and any(.templating.list[]; .name == "source" and .type == "datasource")' "$file" >/dev/null
  done
}
