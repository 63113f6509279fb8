#!/usr/bin/env bats
# Two users and one GPU under MPS. Needs root, to be two users.
load helper.bash

setup_users() {
  [ "$(id -u)" -eq 0 ] || skip "needs root"
  command -v setpriv >/dev/null || skip "needs setpriv"
  export ALIQUOT_STANDIN_SHARED=1
  # The second user must be able to reach the programs and libraries.
  install -d -m 755 "$dir/standin"
  cp -L "$standin"/lib*.so.1 "$load" "$dir/standin/"
  chmod 755 "$dir/standin"/*
  nvidia-smi -L >/dev/null
}

# In the background or under `run` only: it becomes the program, so that its pid is the program's.
as_user() {
  export LD_LIBRARY_PATH=$dir/standin
  exec setpriv --reuid "$1" --regid "$1" --clear-groups "$dir/standin/aliquot-load" "${@:2}"
}

@test "a classic daemon makes the second user wait until the first has gone" {
  setup_users
  nvidia-cuda-mps-control -d
  as_user 1 --seconds 3000 --busy 0% &
  first=$!
  eventually has_processes client 1
  as_user 2 --json >"$dir/second" &
  second=$!
  sleep 0.3 # a slow machine proves less with it; it cannot fail of it
  kill -0 "$second"
  [ ! -s "$dir/second" ]
  kill -9 "$first"
  wait "$second"
  [[ $(cat "$dir/second") == *'"exit":0'* ]]
}

@test "a multi-user daemon runs both at once in one server" {
  setup_users
  nvidia-cuda-mps-control -d --multiuser-server
  as_user 1 --seconds 3000 --busy 0% &
  as_user 2 --seconds 3000 --busy 0% &
  eventually has_processes client 2
  [ "$(mps get_server_list | wc -l)" -eq 1 ]
  aliquot-standin-ctl show | grep -q 'kind=client uid=1 '
  aliquot-standin-ctl show | grep -q 'kind=client uid=2 '
}

@test "a private machine is closed to other users" {
  setup_users
  unset ALIQUOT_STANDIN_SHARED
  export ALIQUOT_STANDIN_STATE=$dir/private
  nvidia-smi -L >/dev/null
  run as_user 1
  [ "$status" -eq 3 ]
  [[ $output == *"Permission denied"* ]]
}
