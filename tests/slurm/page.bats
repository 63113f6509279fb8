# The page of a cluster (`aliquot page`) in a real Chromium, on a whole Slurm: web/test/cluster.mjs.
bats_require_minimum_version 1.5.0
load helper
load ../page/browser.bash

setup_file() {
  local why
  why=$(no_browser)
  if [[ -n $why ]]; then
    export SANDBOX_MISSING=$why
  else
    start_sandbox 10 --nodes 4 --gpus 4
  fi
}
teardown_file() { stop_sandbox; }
setup() { need_sandbox; }
teardown() {
  [[ -n ${SANDBOX_MISSING:-} ]] && return
  kill "$page_pid" 2>/dev/null || true
  scancel -u games
  scancel -u news
}

keep() { # USER NAME MEMORY BUSY OPTION…
  local user=$1 name=$2 memory=$3 busy=$4
  shift 4
  as "$user" sbatch --parsable -t 2:00:00 -o /dev/null -J "$name" "$@" --wrap "exec aliquot-load --mem $memory --busy $busy --seconds 900"
}
none_waits() { [[ -z $(squeue -h -t PD) ]]; }

@test "a job is followed on the page from its submission to its end, and in its node's figures" {
  figures=$(free_port)
  printf '[page]\nport = %s\n' "$figures" >>"$SANDBOX/n3/slurm.toml"
  kill "$(agent_pid n3)"
  eventually get "http://127.0.0.1:$figures/metrics"

  # No GPU is free, and on n3 one will be.
  keep games pretrain 100G 90% --gres=gpu:4 -w n1
  keep news sweep 60G 60% --gres=gpu:1 -w n2 --array=0-2
  for node in n2 n3 n3 n3; do
    keep games notebook 20G 30% --gpu-mem=35G --gpu-share=25% -w $node
    keep news finetune 61G 50% --gpu-mem=70G --gpu-share=50% -w $node
  done
  ends=$(keep games last 120G 80% --gres=gpu:1 -w n3)
  keep news train 100G 70% --gres=gpu:4 -w n4
  eventually none_waits
  keep news train 100G 70% --gres=gpu:4 -w n1
  keep games ablation 100G 70% --gres=gpu:1 --begin=now+3hours
  keep games ablation 100G 70% --gres=gpu:1 --hold

  follow="aliquot-load --mem 90G --busy 60% --seconds 900 & $until_go; kill \$!"
  {
    declare -p follow ends figures SANDBOX_GO
    declare -f as get
    cat <<'END'
case $1 in
submit) as games sbatch --parsable -t 1:00:00 -o /dev/null -J follow --gres=gpu:1 -w n3 --wrap "$follow" ;;
room) scancel "$ends" ;;
end) touch "$SANDBOX_GO" ;;
figures) get "http://127.0.0.1:$figures/metrics" ;;
esac
END
  } >"$BATS_TEST_TMPDIR/script"
  port=$(free_port)
  ALIQUOT_ENGINE=slurm aliquot page --port "$port" --every 0.5 >"$BATS_TEST_TMPDIR/page" 2>&1 3>&- &
  page_pid=$!
  shown() { get "http://127.0.0.1:$port/" | grep -q '<td>n4 3</td>'; }
  eventually shown
  run node "$browser_root/web/test/cluster.mjs" "$playwright" "http://127.0.0.1:$port/" 4 16 "$BATS_TEST_TMPDIR/script"
  echo "$output"
  cat "$BATS_TEST_TMPDIR/page"
  [ "$status" -eq 0 ]
}
