#!/usr/bin/env bats
# MPS: the control daemon, membership, limits, shares and fault domains.
load helper.bash

@test "one daemon per pipe directory, and none is an error for commands" {
  run mps get_server_list
  [ "$status" -eq 1 ]
  [ "$output" = "Cannot find MPS control daemon process" ]
  nvidia-cuda-mps-control -d
  [ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ]
  run nvidia-cuda-mps-control -d
  [ "$status" -eq 1 ]
  [ "$output" = "An instance of this daemon is already running" ]
  [ "$(mps get_server_list)" = "" ]
  mps quit
  run mps get_server_list
  [ "$status" -eq 1 ]
}

@test "the first client starts the server; lists name them" {
  nvidia-cuda-mps-control -d
  "$load" --seconds 300 --busy 0% &
  pid=$!
  eventually has_processes client 1
  server=$(mps get_server_list)
  [ "$(mps get_server_status "$server")" = ACTIVE ]
  [ "$(mps get_client_list "$server")" = "$pid" ]
  [[ $(mps ps) == *"$pid "*"$server "*"GPU-"* ]]
  nvidia-smi | grep -E "$pid +M\+C"
  nvidia-smi | grep -E "$server +C +nvidia-cuda-mps-server"
  [ "$(mps bogus)" = 'Unknown command "bogus"' ]
  [ "$(mps get_server_status 1)" = "Server 1 not found" ]
}

@test "percentages and memory limits are set and shown" {
  nvidia-cuda-mps-control -d
  [ "$(mps get_default_active_thread_percentage)" = 100.0 ]
  [ "$(mps set_default_active_thread_percentage 50)" = 50.0 ]
  [ "$(mps set_default_active_thread_percentage 500)" = 50.0 ]
  mps start_server -uid "$(id -u)"
  server=$(mps get_server_list)
  [ "$(mps get_active_thread_percentage "$server")" = 50.0 ]
  mps set_default_device_pinned_mem_limit 0 4G
  [ "$(mps get_default_device_pinned_mem_limit 0)" = 4G ]
  # A running server does not hear of it.
  [ "$(mps get_device_pinned_mem_limit "$server" 0)" = "" ]
  run "$load" --grow --json
  [ "$(field allocated <<<"$output")" -gt 100000000000 ]
  mps set_device_pinned_mem_limit "$server" 0 2G
  run "$load" --grow --json
  [ "$(field allocated <<<"$output")" -lt 2147483648 ]
  [ "$(field total <<<"$output")" -eq 150109880320 ]
}

@test "a client's own memory limit holds for each process" {
  nvidia-cuda-mps-control -d
  export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10G
  run "$load" --grow --json
  allocated=$(field allocated <<<"$output")
  [ "$allocated" -lt $((10 << 30)) ]
  [ "$allocated" -gt $((9 << 30)) ]
  run "$load" --mem 11G
  [ "$status" -eq 4 ]
}

@test "25 and 75 percent in one server" {
  nvidia-cuda-mps-control -d
  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 "$load" --seconds 1.5 --iterations 1000000 --json >"$dir/a" &
  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=75 "$load" --seconds 1.5 --iterations 1000000 --json >"$dir/b"
  wait
  a=$(field iterations <"$dir/a") b=$(field iterations <"$dir/b")
  [ $((a * 100 / (a + b))) -ge 18 ]
  [ $((a * 100 / (a + b))) -le 33 ]
}

@test "a fault ends every client of the server and nobody else; new clients work" {
  nvidia-cuda-mps-control -d
  CUDA_MPS_PIPE_DIRECTORY=$dir/mps2 nvidia-cuda-mps-control -d
  "$load" --seconds 300 --json >"$dir/same" &
  same=$!
  CUDA_MPS_PIPE_DIRECTORY=$dir/mps2 "$load" --seconds 6 --json >"$dir/other" &
  other=$!
  CUDA_MPS_PIPE_DIRECTORY=$dir/none "$load" --seconds 6 --json >"$dir/plain" &
  plain=$!
  eventually has_processes client 2
  eventually has_processes plain 1
  run "$load" --fault
  [ "$status" -eq 5 ]
  run wait "$same"
  wait "$other"
  wait "$plain"
  grep -q 'CUDA_ERROR_ILLEGAL_ADDRESS' "$dir/same"
  run "$load" --mem 100M
  [ "$status" -eq 0 ]
  [ "$(mps get_server_status "$(mps get_server_list)")" = ACTIVE ]
}

@test "kill -9 of a client leaves its neighbours" {
  nvidia-cuda-mps-control -d
  "$load" --seconds 300 &
  victim=$!
  eventually has_processes client 1
  "$load" --seconds 5 &
  neighbour=$!
  eventually has_processes client 2
  kill -9 "$victim"
  wait "$neighbour"
}

@test "kill -9 of a client in a long kernel ends its neighbours, and nobody of another server" {
  nvidia-cuda-mps-control -d
  CUDA_MPS_PIPE_DIRECTORY=$dir/mps2 nvidia-cuda-mps-control -d
  "$load" --seconds 300 --iterations 400000000 &
  victim=$!
  eventually has_work "$victim"
  "$load" --seconds 300 --json >"$dir/same" &
  same=$!
  CUDA_MPS_PIPE_DIRECTORY=$dir/mps2 "$load" --seconds 300 &
  other=$!
  eventually has_processes client 3
  kill -9 "$victim"
  wait "$same" || status=$?
  [ "$status" -eq 5 ]
  grep -q 'CUDA_ERROR_ILLEGAL_ADDRESS' "$dir/same"
  kill -0 "$other"
}

@test "a client that was ended at its server harms nobody, killed in a long kernel" {
  nvidia-cuda-mps-control -d
  "$load" --seconds 300 --iterations 400000000 &
  victim=$!
  eventually has_work "$victim"
  "$load" --seconds 4 &
  neighbour=$!
  eventually has_processes client 2
  eventually stop_between_locks "$victim" # else it may see its end (error 810) and exit before it is killed
  [ "$(mps terminate_client "$(mps get_server_list)" "$victim")" = 0 ]
  kill -9 "$victim"
  wait "$neighbour"
}

@test "clients 49 and 50 fail" {
  nvidia-cuda-mps-control -d
  for i in $(seq 48); do "$load" --seconds 3000 --busy 0% >/dev/null & done
  eventually has_processes client 48
  for i in 49 50; do
    run "$load"
    [ "$status" -eq 5 ]
    [[ $output == *"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED (808)"* ]]
  done
  kill -9 $(jobs -p)
  wait || true
  run "$load"
  [ "$status" -eq 0 ]
}

@test "a Pascal server has 16 clients and no percentages" {
  export ALIQUOT_STANDIN=p100:1
  nvidia-cuda-mps-control -d
  for i in $(seq 16); do "$load" --seconds 3000 --busy 0% >/dev/null & done
  eventually has_processes client 16
  run "$load"
  [ "$status" -eq 5 ]
}

@test "the end of the server is an error for its clients" {
  nvidia-cuda-mps-control -d
  "$load" --seconds 300 --json >"$dir/out" &
  eventually has_processes client 1
  mps quit -t 0.1
  wait || true
  grep -q 'CUDA_ERROR_MPS_RPC_FAILURE' "$dir/out"
}

@test "a daemon with CUDA_VISIBLE_DEVICES serves that GPU alone" {
  export ALIQUOT_STANDIN=h200:2
  uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader -i 1)
  CUDA_VISIBLE_DEVICES=$uuid nvidia-cuda-mps-control -d
  "$load" --seconds 3000 --busy 0% &
  eventually has_processes client 1
  aliquot-standin-ctl show | grep -q 'gpu=1 kind=client'
  run "$load" --device 1
  [ "$status" -eq 3 ]
}
