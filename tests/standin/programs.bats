#!/usr/bin/env bats
# nvidia-smi, the control program and the load program, as a user types them.
load helper.bash

@test "nvidia-smi lists the GPUs and says that they are simulated" {
  ALIQUOT_STANDIN=titanrtx:2,p100 run nvidia-smi -L
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 3 ]
  [[ ${lines[0]} =~ ^"GPU 0: NVIDIA TITAN RTX (simulated) (UUID: GPU-"[0-9a-f-]{36}")"$ ]]
  [[ ${lines[2]} == "GPU 2: Tesla P100-PCIE-16GB (simulated)"* ]]
}

@test "nvidia-smi answers queries as csv, with and without header and units" {
  run nvidia-smi --query-gpu=index,memory.total,utilization.gpu --format=csv
  [ "${lines[0]}" = "index, memory.total [MiB], utilization.gpu [%]" ]
  [ "${lines[1]}" = "0, 143771 MiB, 0 %" ]
  run nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader,nounits
  [ "$output" = "143771, 0" ]
  run nvidia-smi --query-gpu=nosuch --format=csv
  [ "$status" -eq 2 ]
  [ "${lines[0]}" = 'Field "nosuch" is not a valid field to query.' ]
}

@test "nvidia-smi shows a process with its memory while it lives" {
  "$load" --mem 1G --seconds 300 --busy 0% &
  pid=$!
  eventually has_processes plain 1
  run nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
  kill -9 "$pid"
  [ "$output" = "$pid, 1542 MiB" ]
  wait "$pid" || true
  run nvidia-smi --query-compute-apps=pid --format=csv,noheader
  [ "$output" = "" ]
  run nvidia-smi
  [[ $output == *"No running processes found"* ]]
}

@test "every kind of allocation is taken, verified and given back" {
  for kind in alloc async vmm managed array pitch; do
    run "$load" --kind "$kind" --mem 200M --step 20M --verify --json
    [ "$status" -eq 0 ]
    [ "$(field allocated <<<"$output")" -eq 209715200 ]
    [[ $output == *'"verified":"yes"'* ]]
  done
  [[ $(aliquot-standin-ctl show) == *" used=0 "* ]]
}

@test "the load program takes all there is, and says so when it is refused" {
  run "$load" --grow --step 4G --json
  [ "$status" -eq 0 ]
  [ "$(field allocated <<<"$output")" -gt 149000000000 ]
  run "$load" --mem 200G --step 10G
  [ "$status" -eq 4 ]
  [[ $output == *"CUDA_ERROR_OUT_OF_MEMORY (2)"* ]]
}

@test "the load program does a fixed amount of work, however long it takes" {
  run "$load" --kernels 20 --iterations 1000000 --pause 10 --json
  [ "$status" -eq 0 ]
  [ "$(field kernels <<<"$output")" -eq 20 ]
  [ "$(field iterations <<<"$output")" -eq 20000000 ]
  [[ $output =~ '"wall_seconds":'([0-9]+)'.'([0-9]{3}) ]]
  [ "$((1000 * BASH_REMATCH[1] + 10#${BASH_REMATCH[2]}))" -ge 240 ] # 20 times 2 ms and 10 ms
  for wrong in "--kernels 20" "--kernels 0 --iterations 5" "--kernels 5 --iterations 5 --seconds 1" "--pause 5"; do
    # shellcheck disable=SC2086
    run "$load" $wrong
    [ "$status" -eq 2 ]
    [[ ${lines[0]} == "aliquot-load: --"* ]]
  done
}

@test "exit codes of the load program" {
  run "$load" --help
  [ "$status" -eq 0 ]
  run "$load" --mem lots
  [ "$status" -eq 2 ]
  run "$load" --device 7
  [ "$status" -eq 3 ]
  CUDA_VISIBLE_DEVICES= run "$load"
  [ "$status" -eq 3 ]
  run "$load" --fault
  [ "$status" -eq 5 ]
  [[ $output == *"CUDA_ERROR_ILLEGAL_ADDRESS (700)"* ]]
}

@test "two processes share the GPU evenly, and one alone has it all" {
  export ALIQUOT_STANDIN_SPEED=1
  "$load" --seconds 1.5 --iterations 1000000 --json >"$dir/a" &
  "$load" --seconds 1.5 --iterations 1000000 --json >"$dir/b"
  wait
  a=$(field iterations <"$dir/a") b=$(field iterations <"$dir/b")
  # Shares of the simulated GPU, from its own accounts: wide, for machines that are busy themselves.
  [ $((a * 100 / (a + b))) -ge 40 ]
  [ $((a * 100 / (a + b))) -le 60 ]
}

@test "a lost GPU is reported and heals" {
  export ALIQUOT_STANDIN=h200:2
  aliquot-standin-ctl xid 1 79
  run nvidia-smi --query-gpu=index --format=csv,noheader
  [ "${lines[1]}" = "[GPU is lost]" ]
  run "$load" --device 1
  [ "$status" -ne 0 ]
  run "$load" --device 0 --mem 10M
  [ "$status" -eq 0 ]
  aliquot-standin-ctl heal 1
  run "$load" --device 1 --mem 10M
  [ "$status" -eq 0 ]
}

@test "a mistake in the setting is named" {
  ALIQUOT_STANDIN=h300:1 run nvidia-smi -L
  [ "$status" -eq 9 ]
  [[ $output == *"no GPU model 'h300'"* ]]
}

@test "the machine is private to its user unless it is said to be shared" {
  nvidia-smi -L
  [ "$(stat -c %a "$dir/state")" = 600 ]
  ALIQUOT_STANDIN_SHARED=1 ALIQUOT_STANDIN_STATE=$dir/shared nvidia-smi -L
  [ "$(stat -c %a "$dir/shared")" = 666 ]
  # Also where somebody looked at it before.
  ALIQUOT_STANDIN_SHARED=1 ALIQUOT_STANDIN_STATE=$dir/state nvidia-smi -L
  [ "$(stat -c %a "$dir/state")" = 666 ]
}

@test "a machine in use keeps its GPUs, an idle one takes the new setting" {
  "$load" --seconds 300 --busy 0% &
  pid=$!
  eventually has_processes plain 1
  ALIQUOT_STANDIN=p100:4 run nvidia-smi -L
  kill -9 "$pid"
  [[ $output == *"is not applied"* ]]
  [[ $output == *"H200 (simulated)"* ]]
  wait "$pid" || true
  ALIQUOT_STANDIN=p100:4 run nvidia-smi -L
  [ "${#lines[@]}" -eq 4 ]
}

@test "processes of other pid namespaces are told by the numbers they have for who asks" {
  unshare --pid --fork --mount-proc true 2>/dev/null || skip "no pid namespaces here without root"
  for _ in 1 2; do
    unshare --pid --fork --mount-proc --kill-child "$load" --mem 1G --seconds 300 --busy 0% &
    starters+=($!)
  done
  eventually has_processes plain 2
  pids=$(for starter in "${starters[@]}"; do pgrep -P "$starter"; done | sort)
  run nvidia-smi --query-compute-apps=pid --format=csv,noheader
  [ "$(sort <<<"$output")" = "$pids" ]
  # Inside of a namespace the others are not seen.
  run unshare --pid --fork --mount-proc nvidia-smi --query-compute-apps=pid --format=csv,noheader
  [ "$output" = "" ]
}
