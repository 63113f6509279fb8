# The balancer on a whole Slurm: weights follow the GPUs, whatever happens to it and to slurmctld.
bats_require_minimum_version 1.5.0
load helper

setup_file() { start_sandbox 5 --nodes 3 --gpus 1; }
teardown_file() { stop_sandbox; }
setup() { need_sandbox; }
teardown() { end_foreign; }

weight() { scontrol -o show node "$1" | tr ' ' '\n' | sed -n 's/^Weight=//p'; }
weights() { echo "$(weight n1) $(weight n2) $(weight n3)"; }
weights_are() { [[ $(weights) =~ ^$1$ ]]; }

# daemon NAME: its pid; NAME-loop is what starts it again.
daemon() { cut -d' ' -f1 "$SANDBOX/run/$1.pid"; }

@test "idle nodes share the least weight" {
  eventually weights_are "1000 1000 1000"
}

@test "weights follow foreign load, and jobs go where there is none" {
  eventually weights_are "1000 1000 1000"
  foreign n1 100%
  foreign n3 100%
  eventually weights_are "1(0[5-9][0-9]|100) 1000 1(0[5-9][0-9]|100)"
  run -0 as games srun --gpu-mem=1G bash -c 'echo $SLURMD_NODENAME'
  [[ $output == n2 ]]
}

@test "memory that is not free counts as load" {
  eventually weights_are "1000 1000 1000"
  foreign n1 0% 70G
  eventually weights_are "10(4[5-9]|5[0-5]) 1000 1000"
}

@test "people see the samples in the node's extra" {
  foreign n2 100%
  seen() { scontrol show node n2 | grep -qE 'Extra=aliquot:0=([5-9][0-9]|100)%/1[0-9]{3}M/[0-9]+M'; }
  eventually seen
}

@test "a reconfigure and a restart of slurmctld are made good" {
  eventually weights_are "1000 1000 1000"
  scontrol reconfigure
  eventually weights_are "1000 1000 1000"
  "$(sandbox_program)" restart slurmctld --dir "$SANDBOX" </dev/null >/dev/null 2>&1 3>&-
  eventually weights_are "1000 1000 1000"
}

# How soon, pace_test.cpp says.
@test "after an outage of slurmctld weights are right, and go on being put right" {
  eventually weights_are "1000 1000 1000"
  kill -STOP "$(daemon slurmctld)"
  sleep 3
  kill -CONT "$(daemon slurmctld)"
  eventually weights_are "1000 1000 1000"
  scontrol reconfigure
  eventually weights_are "1000 1000 1000"
}

@test "kill -9 at any time does not compound" {
  eventually weights_are "1000 1000 1000"
  runs() { kill -0 "$(daemon balancer)" 2>/dev/null; }
  for _ in 1 2 3; do
    kill -9 "$(daemon balancer)"
    sleep 1
    eventually runs
  done
  foreign n1 100%
  eventually weights_are "1(0[5-9][0-9]|100) 1000 1000"
}

@test "a node that falls silent counts as busy" {
  eventually weights_are "1000 1000 1000"
  kill -STOP "$(daemon agent-n3)"
  eventually weights_are "1000 1000 1101"
  kill -CONT "$(daemon agent-n3)"
  eventually weights_are "1000 1000 1000"
}

@test "an administrator's weight is a new base" {
  eventually weights_are "1000 1000 1000"
  scontrol update nodename=n2 weight=7
  eventually weights_are "1000 7000 1000"
  scontrol update nodename=n2 weight=1
  eventually weights_are "1000 1000 1000"
}

@test "samples of anyone but root are dropped" {
  eventually weights_are "1000 1000 1000"
  port=$(sed -n 's/^port = //p' "$SANDBOX/etc/slurm.toml")
  socket=$(sed -n 's/^AuthInfo=socket=\([^,]*\).*/\1/p' "$SLURM_CONF")
  lie='{"v":1,"node":"n1","gpus":[{"index":0,"utilisation":9900,"memory_used":0,"memory":1}]}'
  # What is dropped is told once a minute, and the last of it alone.
  is_dropped() {
    "$1"
    grep -q "$2" "$SANDBOX"/log/balancer* || { sleep 0.2; return 1; }
  }
  by_games() { as games munge --socket "$socket" --string "$lie" | tr -d '\n' >"/dev/udp/127.0.0.1/$port"; }
  bare() { echo "$lie" >"/dev/udp/127.0.0.1/$port"; }
  eventually is_dropped by_games 'who is not root'
  for _ in 1 2 3 4 5; do bare; done
  sleep 1
  weights_are "1000 1000 1000"
}

@test "a clean stop puts the site's weights back" {
  eventually weights_are "1000 1000 1000"
  kill -STOP "$(daemon balancer-loop)"
  kill -TERM "$(daemon balancer)"
  eventually weights_are "1 1 1"
  run scontrol show node n1
  [[ $status == 0 && $output != *Extra=aliquot* ]]
  kill -CONT "$(daemon balancer-loop)"
  eventually weights_are "1000 1000 1000"
}
