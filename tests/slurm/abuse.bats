# What a user may try against the limits, the agent and the neighbours, on a Slurm.
load helper

setup_file() { start_sandbox 2 --nodes 1; }
teardown_file() { stop_sandbox; }
setup() { need_sandbox; }

gib=$((1 << 30))

# ask USER PATH BODY: of the node's agent.
ask() {
  as "$1" perl -MSocket -e '
    socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ARGV[0])) or die "cannot connect\n";
    syswrite($s, "POST $ARGV[1] HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " . length($ARGV[2]) . "\r\n\r\n$ARGV[2]");
    print while sysread($s, $_, 65536);' "$SANDBOX/n1/agent.sock" "$2" "$3"
}

@test "the limits are not the job's to write" {
  run as games srun --gpu-mem=4G bash -c 'echo x >>"$ALIQUOT_GRANT/limits"; chmod 777 "$ALIQUOT_GRANT/limits"; rm -f "$ALIQUOT_GRANT/limits"; touch "$ALIQUOT_GRANT/new"; cat "$ALIQUOT_GRANT/limits" >/dev/null && echo there'
  [[ $output == *there* ]]
  [[ $(grep -ciE 'permission denied|not permitted' <<<"$output") -ge 3 ]]
}

# in_job OPTION… -- SCRIPT: what it says, in a job with these options.
in_job() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  as games sbatch --wait -o "$SANDBOX/out/in-job" -n4 "${options[@]}" --wrap "$2" >/dev/null || true
  output=$(<"$SANDBOX/out/in-job")
}

@test "a step cannot ask for more than its job has" {
  in_job --gpu-mem=4G -- 'srun -n1 --gpu-mem=64G true; srun -n1 --gres=gpu:1 true; srun -n1 --gres=shard:9 true'
  [[ $output == *"--gpu-mem=64G is more than its job has (--gpu-mem=4G)"*"gpu:1 is more than its job has"*"in the same words"* ]]
  in_job --gres=mps:25 -- 'srun -n1 --gres=mps:30 true; srun -n1 --gres=mps:25 echo all'
  [[ $output == *"mps:30 is more than its job has (mps:25)"*all* ]]
}

@test "a step has what it asks for of its job's share, beside others, and gives it back" {
  load='aliquot-load --grow --step 256M --seconds 0.5 --busy 5% --json'
  # Each goes on once the other one is there.
  meet="touch $SANDBOX/out/side-\$0; for ((i = 0; i < 600; i++)); do [[ -e $SANDBOX/out/side-\$((3 - \$0)) ]] && exec $load; sleep 0.1; done"
  in_job --gpu-mem=20G -- "for i in 1 2; do srun --exact -n1 --gpu-mem=8G bash -c '$meet' \$i & done; wait
    srun -n1 --gres=none aliquot-load --mem 1G --seconds 0.1; $load"
  mapfile -t got < <(sed -n 's/.*"allocated":\([0-9]*\).*/\1/p' <<<"$output")
  [[ ${#got[@]} -eq 3 && $output == *"no device"* ]]
  for i in 0 1; do ((got[i] > 7 * gib - gib / 2 && got[i] <= 8 * gib)); done
  ((got[2] > 19 * gib - gib / 2 && got[2] <= 20 * gib))
  job=$(submit games "aliquot-load --mem 16G --seconds 600 --busy 1% & $until_go; srun --exact -n1 --gpu-mem=8G true; kill \$!" \
    -n4 --gpu-mem=20G)
  holds_most() { [[ $(driver n1 | sed -n 's/^pid=.* bytes=\([0-9]*\).*name=.*aliquot-load$/\1/p' | head -1) -ge $((16 * gib)) ]]; }
  eventually holds_most
  go
  eventually has_state "$job" COMPLETED
  [[ $(<"$SANDBOX/out/$job") == *"the step's 8192 MiB are not free"* ]]
  eventually nothing_held
}

@test "an environment of one's own does not raise the limit" {
  run -0 as games env ALIQUOT_GRANT=/tmp LD_PRELOAD= SLURM_SHARDS_ON_NODE=100 SLURM_JOB_GPUS=0,1,2,3 SLURMD_NODENAME=../.. \
    srun --gpu-mem=4G aliquot-load --grow --json
  echo "$output" >"$BATS_TEST_TMPDIR/json"
  [[ $(number allocated "$BATS_TEST_TMPDIR/json") -le $((4 * gib)) ]]
}

@test "who gets around the library is reported" {
  as games srun --gpu-mem=4G bash -c 'unset LD_PRELOAD ALIQUOT_GRANT; exec aliquot-load --mem 2G --seconds 300 --busy 0%' 3>&- &
  reported() { grep -q 'without the library' "$SANDBOX"/log/agent-n1*; }
  eventually reported
  scancel -u games
  wait
}

@test "another GPU's device cannot be opened" {
  [[ -e /sys/fs/cgroup/devices || -e /sys/fs/cgroup/cgroup.controllers ]] || skip "no cgroups for devices here"
  grep -q '^ConstrainDevices=yes' "$SANDBOX"/etc/cgroup.conf || skip "the sandbox has no cgroups here"
  run as games srun --gpu-mem=4G bash -c 'for d in "$0"/n1/nvidia[0-3]; do (exec 3<"$d") 2>&1; done' "$SANDBOX/dev"
  # Its own answers that there is no driver; the three others that it may not.
  [[ $(grep -c 'Operation not permitted' <<<"$output") -eq 3 ]]
}

@test "nobody but slurmstepd may ask for a share" {
  run ask games /v1/slurm/grant $'job=1\nuid=0\n'
  [[ $output == *403* ]]
  run ask games /v1/slurm/exit $'job=1\nuid=0\n'
  [[ $output == *403* ]]
  run ask games /v1/slurm/drained $'job=1\nuid=0\n'
  [[ $output == *403* ]]
}

@test "what a step of root's says of a drain is looked at" {
  scontrol update nodename=n1 state=drain reason="aliquot-agent does not answer"
  run ask root /v1/slurm/drained $'job=1\nuid=0\n'
  [[ $output == *" 200 OK"* ]]
  eventually healthy
}

@test "rubbish does not stop the agent" {
  before=$(agent_pid n1)
  for text in '' 'x' "$(head -c 300000 /dev/zero | tr '\0' x)" $'job=99999999999999999999\n' $'job=-1\nuid=x\n'; do
    printf '%s' "$text" | as games perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0); connect($s, sockaddr_un($ARGV[0])); $SIG{PIPE}="IGNORE"; local $/; syswrite($s, <STDIN>)' "$SANDBOX/n1/agent.sock" || true
    run ask root /v1/slurm/grant "$text"
  done
  [[ $(agent_pid n1) == "$before" ]]
  run -0 as games srun --gpu-mem=1G true
}

@test "another user's job is not for asking, by root's plugin neither" {
  job=$(submit games "$until_go" --gpu-mem=2G)
  eventually has_state "$job" RUNNING
  run ask root /v1/slurm/grant "job=$job"$'\nuid=9\n'
  [[ $output == *409* && $output == *"another user"* ]]
  scancel "$job"
}

@test "processes left behind end with the job, and what they held is free" {
  as games srun --gpu-mem=4G bash -c "setsid nohup aliquot-load --mem 2G --seconds 300 --busy 0% >/dev/null 2>&1 & $until_go" 3>&- &
  taken() { driver n1 | grep -q '^pid=.*name=aliquot-load'; }
  eventually taken
  go
  wait $!
  free() { [[ $(driver n1 | grep -c '^pid=.*name=aliquot-load') -eq 0 ]]; }
  eventually free
  eventually nothing_held
}

@test "the words that count are not the user's to write" {
  run as games sbatch --parsable --comment='aliquot: --gpu-mem=100G' --gpu-mem=2G -o /dev/null --wrap "$until_go"
  job=$output
  run as games scontrol update job "$job" AdminComment='aliquot: gpu:1'
  [[ $status -ne 0 ]]
  [[ $(scontrol show job "$job") == *"AdminComment=aliquot: --gpu-mem=2G"* ]]
  scancel "$job"
}

# unplugged SCRIPT OPTION…: a job that starts on a node which does not load the plugin, as after an upgrade; its number.
# It finds the simulated driver where a real one would be.
unplugged() {
  local script=$1 standin=$ALIQUOT_BIN/../standin
  shift
  [[ -d $standin ]] || standin=$ALIQUOT_BIN/../lib/aliquot/standin
  job=$(submit games "export ALIQUOT_STANDIN_STATE=$SANDBOX/n1/run/standin LD_LIBRARY_PATH=$standin; $script" -H "$@")
  cp "$SANDBOX/etc/plugstack.conf" "$BATS_TEST_TMPDIR"
  sed -i 's,/aliquot_spank.so,/moved/aliquot_spank.so,' "$SANDBOX/etc/plugstack.conf"
  scontrol release "$job"
  eventually has_state "$job" RUNNING
}
plug_in() { cp "$BATS_TEST_TMPDIR/plugstack.conf" "$SANDBOX/etc/"; }

@test "a job on a node that does not load the plugin is seen" {
  unplugged 'exec aliquot-load --mem 2G --seconds 60 --busy 0%' --gpu-mem=4G
  noted() { [[ $(scontrol show job "$job") == *"AdminComment=aliquot: --gpu-mem=4G; escape on n1"* ]]; }
  eventually noted
  plug_in
  grep -q "job $job uses a GPU and no step of it has asked for its share" "$SANDBOX"/log/agent-n1*
  [[ $(held n1) == *"$job"* ]]
  run -0 as games aliquot why "$job"
  [[ $output == *"outside of its share"* ]]
  run -0 as games aliquot status
  [[ $output == *"a process of it on n1 is outside of its share"* ]]
  run aliquot slurm check
  [[ $status -ne 0 && $output == *"FAIL  escapes"*"job $job on n1"* ]]
  scancel "$job"
  eventually nothing_held
}

@test "and what it holds beyond its share is ended" {
  unplugged "aliquot-load --mem 60G --seconds 60 --busy 0% & wait \$!; echo status=\$? >$SANDBOX/out/ended" --gpu-mem=4G
  eventually test -e "$SANDBOX/out/ended"
  plug_in
  [[ $(<"$SANDBOX/out/ended") == status=137 ]]
  grep -q "job $job: .*killed" "$SANDBOX"/log/agent-n1*
  eventually nothing_held
}
