# A share under Slurm is a limit, on the node that Slurm chose, for as long as the job lives.
load helper

setup_file() { start_sandbox 1 --nodes 2; }
teardown_file() { stop_sandbox; }
setup() { need_sandbox; }

gib=$((1 << 30))

@test "a job gets what it asked for and no more" {
  run -0 as games srun --gpu-mem=8G aliquot-load --grow --json
  echo "$output" >"$BATS_TEST_TMPDIR/json"
  got=$(number allocated "$BATS_TEST_TMPDIR/json")
  [[ $got -le $((8 * gib)) && $got -gt $((6 * gib)) ]]
  [[ $(number total "$BATS_TEST_TMPDIR/json") -eq $((8 * gib)) ]]
}

@test "a batch job and its steps are in one share" {
  job=$(submit games "aliquot-load --mem 5G --seconds 300 --busy 0% & $until_go; srun aliquot-load --grow --json; kill \$!" --gpu-mem=8G -w n1)
  taken() { [[ $(driver n1 | sed -n 's/^pid=.* bytes=\([0-9]*\).*name=aliquot-load$/\1/p' | head -1) -ge $((5 * gib)) ]]; }
  eventually taken
  go
  eventually has_state "$job" COMPLETED
  got=$(number allocated "$SANDBOX/out/$job")
  [[ $got -gt $((gib / 2)) && $got -le $((3 * gib)) ]]
}

@test "a share of compute is held beside a neighbour that takes the rest" {
  # Both compute without a pause, on one GPU. Without limits each would get half of it.
  script="echo \$CUDA_VISIBLE_DEVICES; aliquot-load --mem 1G --seconds 0.1 --json; $until_go; exec aliquot-load --mem 1G --seconds 1000"
  # From 23.11 on Slurm spreads shares over the GPUs of a node: here the other three are taken.
  small=$(submit games "$script" --gpu-share=20% -w n1)
  eventually has_state "$small" RUNNING
  others=()
  for _ in 1 2 3; do others+=("$(submit games "sleep 600" --gpu-share=100% -w n1)"); done
  for job in "${others[@]}"; do eventually has_state "$job" RUNNING; done
  large=$(submit news "$script" --gpu-share=80% -w n1)
  eventually has_state "$large" RUNNING
  scancel "${others[@]}"
  measured() { grep -q total "$SANDBOX/out/$small" && grep -q total "$SANDBOX/out/$large"; }
  eventually measured
  cat "$SANDBOX/out/$small" "$SANDBOX/out/$large"
  gpu=$(head -1 "$SANDBOX/out/$small")
  [[ $gpu == GPU-* && $(head -1 "$SANDBOX/out/$large") == "$gpu" ]]
  # Memory follows in proportion.
  total=$(number total "$SANDBOX/out/$small")
  [[ $((total * 4 / gib)) -eq $(($(number total "$SANDBOX/out/$large") / gib)) ]]
  # What the driver counts from when both compute: of the small one, and of both.
  go
  used() { driver n1 | sed -n "s/^pid=.* uid=$(id -u "$1") .* gpu_ms=\([0-9]*\).*name=.*aliquot-load$/\1/p"; }
  both_compute() { [[ $(used games) -ge 500 && $(used news) -ge 500 ]]; }
  eventually both_compute
  from_small=$(used games) from_large=$(used news)
  enough() { (($(used games) + $(used news) >= from_small + from_large + 5000)); }
  eventually enough
  done_small=$(($(used games) - from_small)) done_large=$(($(used news) - from_large))
  scancel "$small" "$large"
  echo "$done_small ms and $done_large ms"
  [[ $done_small -gt 0 && $done_large -gt $((done_small * 2)) && $done_large -lt $((done_small * 8)) ]]
}

@test "a whole GPU is not limited" {
  run -0 as games srun --gres=gpu:1 bash -c 'echo preload=$LD_PRELOAD; aliquot-load --grow --json'
  [[ $output == *preload=* && $output != *libaliquot.so* ]]
  echo "$output" >"$BATS_TEST_TMPDIR/json"
  [[ $(number allocated "$BATS_TEST_TMPDIR/json") -gt $((130 * gib)) ]]
}

@test "a job without a GPU is left alone" {
  run -0 as games srun bash -c 'echo "x$LD_PRELOAD$ALIQUOT_GRANT"'
  [[ $output == x ]]
}

@test "an array and several nodes" {
  as games sbatch --wait --array=0-3 -o "$SANDBOX/out/array-%a" --gpu-mem=4G --wrap 'aliquot-load --grow --json'
  for i in 0 1 2 3; do [[ $(number allocated "$SANDBOX/out/array-$i") -le $((4 * gib)) ]]; done
  run -0 as games srun -N 2 --gpu-mem=4G bash -c 'aliquot-load --grow --json'
  [[ $(grep -c '"allocated"' <<<"$output") -eq 2 ]]
}

@test "what a job held is given back" {
  run -0 as games srun --gpu-mem=8G true
  eventually nothing_held
}

@test "the agent takes its jobs up again after kill -9" {
  job=$(submit games "$until_go; aliquot-load --grow --json" --gpu-mem=8G -w n1)
  eventually has_state "$job" RUNNING
  holds() { [[ -n $(held n1) ]]; }
  eventually holds
  kill -9 "$(agent_pid n1)"
  go
  eventually has_state "$job" COMPLETED
  got=$(number allocated "$SANDBOX/out/$job")
  [[ $got -le $((8 * gib)) && $got -gt $((6 * gib)) ]]
  eventually nothing_held
  healthy
}

@test "a step waits for an agent that is being restarted" {
  kill -9 "$(agent_pid n1)"
  run as games srun -w n1 --gpu-mem=8G aliquot-load --grow --json
  echo "$output"
  [[ $status -eq 0 ]]
  healthy
}

@test "slurmd's restart does not disturb a job" {
  job=$(submit games "touch $SANDBOX/out/began; $until_go; aliquot-load --grow --json" --gpu-mem=8G -w n1)
  eventually test -e "$SANDBOX/out/began"
  "$(sandbox_program)" restart --dir "$SANDBOX" slurmd-n1 </dev/null >/dev/null 2>&1 3>&-
  go
  eventually has_state "$job" COMPLETED
  [[ $(number allocated "$SANDBOX/out/$job") -le $((8 * gib)) ]]
  healthy
}
