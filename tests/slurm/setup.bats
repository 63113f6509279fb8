# `aliquot slurm setup` and `check` on files, without a running Slurm: what is shown, what is changed, what is refused.
setup() {
  etc=$BATS_TEST_TMPDIR/etc
  cd "$BATS_TEST_TMPDIR"
  mkdir "$etc"
  chmod 755 "$etc" "$BATS_TEST_TMPDIR"
  cat >"$etc/slurm.conf" <<'END'
ClusterName=lab
SlurmctldHost=ctl(127.0.0.1)
SlurmctldPort=9
MessageTimeout=1
GresTypes=gpu
NodeName=n[1-2] CPUs=64 Gres=gpu:h200:4
PartitionName=main Nodes=ALL Default=YES
END
  unset SLURM_CONF ALIQUOT_SLURM_CONFIG
  : >"$BATS_TEST_TMPDIR/plugin.so"
}

tool() { "$ALIQUOT_BIN/aliquot" slurm "$@"; }
set_up() {
  tool setup --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8 --plugin "$BATS_TEST_TMPDIR/plugin.so" \
    --gpus 'n[1-2]=h200:4:143771' "$@"
}

@test "without --apply it is shown and nothing changes" {
  cp -r "$etc" before
  run set_up
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"+GresTypes=gpu,mps,shard"* ]]
  [[ $output == *"+++ $etc/gres.conf"* ]]
  # The site's table, not the code.
  [[ $output == *"+++ $etc/aliquot_submit.lua"*"+  overcommit = 10000"*"lines of code, the same on every site: --all shows them)"* ]]
  [ "${#lines[@]}" -lt 150 ]
  [[ $output == *"Nothing was changed: do it with --apply." ]]
  diff -r "$etc" before
}

@test "what is shown is a patch that does what --apply does" {
  command -v patch >/dev/null || skip "no patch here"
  cp -r "$etc" other
  set_up --all >shown || true
  set_up --apply
  (cd other && sed -E "s|^(---\|\+\+\+) $etc/|\1 |" ../shown | grep -v '^note:' | patch -s -p0)
  rm -r "$etc/aliquot-backup"
  diff -r "$etc" other
}

@test "applied twice is once, and undone is as before" {
  cp -r "$etc" before
  set_up --apply
  run set_up --apply
  echo "$output"
  [[ ${lines[-1]} == "Nothing to change." ]]
  # Later it needs no telling.
  run tool setup --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8 --plugin "$BATS_TEST_TMPDIR/plugin.so"
  [[ ${lines[-1]} == "Nothing to change." ]]
  # The site goes on editing.
  echo "PartitionName=more Nodes=n1" >>"$etc/slurm.conf"
  echo "PartitionName=more Nodes=n1" >>before/slurm.conf
  run tool setup --undo --slurm-conf "$etc/slurm.conf"
  [[ ${lines[-1]} == "Nothing was changed: do it with --apply." ]]
  tool setup --undo --apply --slurm-conf "$etc/slurm.conf"
  ls "$etc/aliquot-backup"/*
  rm -r "$etc/aliquot-backup"
  diff -r "$etc" before
}

@test "a gate alone asks for no restart" {
  run set_up --apply
  [[ ${lines[-1]} == *"restart slurmctld and then every slurmd"* ]]
  printf '[share]\nreservations = ["course_*"]\n' >settings
  touch -d '1 hour ago' "$etc/job_submit.lua" before
  run set_up --config settings --apply
  echo "$output"
  [[ ${lines[-1]} == "Nothing is to be restarted. slurmctld reads the Lua with the next job." ]]
  [ "$etc/job_submit.lua" -nt before ]
}

@test "backups are what was there" {
  cp "$etc/slurm.conf" before
  set_up --apply
  kept=("$etc"/aliquot-backup/*/*slurm.conf)
  [ "${#kept[@]}" -eq 1 ]
  cmp "${kept[0]}" before
  [ "$(stat -c %a "$etc/aliquot-backup")" = 700 ]
}

@test "owner and mode stay, and links are followed" {
  [ "$(id -u)" -eq 0 ] || skip "needs root"
  mkdir "$etc/real"
  mv "$etc/slurm.conf" "$etc/real/slurm.conf"
  ln -s real/slurm.conf "$etc/slurm.conf"
  chmod 640 "$etc/real/slurm.conf"
  chgrp games "$etc/real/slurm.conf"
  set_up --apply
  [ -L "$etc/slurm.conf" ]
  [ "$(stat -c '%U %G %a' "$etc/real/slurm.conf")" = "root games 640" ]
  grep -q shard "$etc/real/slurm.conf"
}

@test "a folder that others may write is refused" {
  [ "$(id -u)" -eq 0 ] || skip "needs root"
  chmod 777 "$etc"
  run set_up --apply
  [ "$status" -eq 1 ]
  [[ ${lines[-1]} == *"can be written by others than its owner: chmod go-w it" ]]
  chmod 755 "$etc"
  chown games "$etc"
  run set_up --apply
  [ "$status" -eq 1 ]
  [[ ${lines[-1]} == *"belongs to an ordinary user"* ]]
  chown root "$etc"
  run grep shard "$etc/slurm.conf"
  [ "$status" -eq 1 ]
}

@test "mistakes are one line" {
  refuses() {
    run tool "${@:2}"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ ${lines[-1]} == "aliquot: "*"$1"* ]]
  }
  refuses "no/such: No such file" setup --slurm-conf /no/such --slurm-version 22.05.8 --gpus h200:4:1G
  refuses "write [NODES=]MODEL:COUNT:MEMORY" setup --slurm-conf "$etc/slurm.conf" --gpus nonsense --slurm-version 22.05.8
  refuses "has no line NodeName=x1" setup --slurm-conf "$etc/slurm.conf" --gpus x1=h200:4:1G --slurm-version 22.05.8
  refuses "write 22.05.8" setup --slurm-conf "$etc/slurm.conf" --gpus n1=h200:4:1G --slurm-version new
  refuses "cannot read the settings" setup --config /no/such
  refuses "split it into one line" setup --slurm-conf "$etc/slurm.conf" --gpus n1=h200:4:1G --slurm-version 22.05.8
  refuses "141M is no GPU's memory" setup --slurm-conf "$etc/slurm.conf" --gpus 'n[1-2]=h200:4:141' --slurm-version 22.05.8
  refuses "4 GPUs and 2 files" setup --slurm-conf "$etc/slurm.conf" --gpus 'n[1-2]=h200:4:141G:/dev/nvidia[0-1]' --slurm-version 22.05.8
  printf '[share]\npartitions = ["nope"]\n' >settings
  refuses "matches 'nope': there are main" setup --config settings --slurm-conf "$etc/slurm.conf" --gpus 'n[1-2]=h200:4:141G' --slurm-version 22.05.8
  printf '[share]\nunit = "1T"\n' >settings
  refuses "share.unit is 1T and no GPU has more" setup --config settings --slurm-conf "$etc/slurm.conf" --gpus 'n[1-2]=h200:4:141G' --slurm-version 22.05.8
  refuses "try 'aliquot slurm setup --help'" setup --nonsense
  refuses "there is no subcommand 'nonsense' (try 'aliquot slurm --help')" nonsense
  refuses "there is no subcommand 'status' (try 'aliquot slurm --help', or 'aliquot status')" status
  refuses "Slurm 21.08.0 has no gres/shard" setup --slurm-conf "$etc/slurm.conf" --gpus 'n[1-2]=h200:4:143156' --slurm-version 21.08.0
  refuses "there are no simulated GPUs 'foo:4'" setup --slurm-conf "$etc/slurm.conf" --simulate foo:4 --slurm-version 22.05.8
  refuses "--force requires --undo" setup --force
  refuses "'1.5' is no whole number" init --user-gpus 1.5
}

@test "check names what is wrong with its own options" {
  run tool check --plugin /no/such --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8
  [[ $output == *"--plugin /no/such: No such file"* && $output != *plugstack* ]]
  run tool check --config /no/such
  [[ $output == *"name the file where it is"* && $output != *"correct that line"* ]]
  run tool check --slurm-conf "$etc/slurm.conf" --slurm-version 99
  [[ $output == *"write the version as"* && $output != *"install Slurm"* ]]
}

@test "the GPUs of this machine are found, and taken for all nodes of the line" {
  [ -d "$ALIQUOT_BIN/../standin" ] || [ -d "$ALIQUOT_BIN/../lib/aliquot/standin" ] || skip "no stand-in here"
  printf '[agent]\nnode = "n2"\n' >settings
  run tool setup --config settings --slurm-conf "$etc/slurm.conf" --slurm-version 24.11.5 --simulate h200:4
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"+NodeName=n[1-2] Name=gpu Type=h200 File=/dev/nvidia[0-3]"* ]]
  [[ $output == *"+SelectTypeParameters=CR_Core_Memory,LL_SHARED_GRES"* ]]
}

@test "check names everything that is wrong, with its cure" {
  run tool check --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8 --plugin "$BATS_TEST_TMPDIR/plugin.so"
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"FAIL  setup"*"no GPUs are known"* ]]
  set_up --apply
  run tool check --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8 --plugin "$BATS_TEST_TMPDIR/plugin.so"
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"ok    setup"* ]]
  [[ $output == *"FAIL  plugin"*"does not load"* ]]
  # What the site writes itself is no complaint.
  echo "# a comment" >>"$etc/slurm.conf"
  run tool check --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8 --plugin "$BATS_TEST_TMPDIR/plugin.so"
  [[ $output == *"ok    setup"* ]]
  # Each complaint is followed by what to do.
  [ "$(grep -c '^FAIL' <<<"$output")" -le "$(grep -c -- '-> ' <<<"$output")" ]
  sed -i 's/^ConstrainDevices=yes/ConstrainDevices=no/' "$etc/cgroup.conf"
  run tool check --json --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8
  [ "$status" -eq 1 ]
  [[ $output == '{"well":false,'*"cgroup.conf is not as it should be"* ]]
}

@test "check loads job_submit.lua as slurmctld will" {
  find /usr/lib -name job_submit_lua.so 2>/dev/null | grep -q . || skip "no job_submit/lua here"
  sed -i '1i SlurmUser=root' "$etc/slurm.conf"
  set_up --apply
  look() { run tool check --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8 --plugin "$BATS_TEST_TMPDIR/plugin.so"; }
  look
  [[ $output == *"ok    job_submit.lua     loads as slurmctld loads it"* ]]
  echo 'local x = (' >>"$etc/job_submit.lua"
  look
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"FAIL  job_submit.lua     slurmctld would not start with it: $etc/job_submit.lua:"* ]]
}

@test "a machine without the plugin is told in one line" {
  set_up --apply
  rm "$BATS_TEST_TMPDIR/plugin.so"
  sed -i "s|$BATS_TEST_TMPDIR/plugin.so|$BATS_TEST_TMPDIR/aliquot_spank.so|" "$etc/plugstack.conf"
  run tool check --slurm-conf "$etc/slurm.conf" --slurm-version 22.05.8
  echo "$output"
  [[ $output == *"ok    setup"* ]]
  [ "$(grep -c aliquot_spank.so <<<"$output")" -eq 1 ]
  [[ $output == *"FAIL  plugin"*"aliquot_spank.so, which plugstack.conf names, is not on this machine"* ]]
}

@test "init describes this machine in a line that it reads, and its mistakes are one line" {
  [ -d "$ALIQUOT_BIN/../standin" ] || [ -d "$ALIQUOT_BIN/../lib/aliquot/standin" ] || skip "no stand-in here"
  printf '[agent]\nnode = "n7"\nsimulate = "h200:4"\n' >settings
  run tool init --describe --config settings
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output =~ ^NodeName=n7\ CPUs=$(getconf _NPROCESSORS_ONLN)\ .*RealMemory=[0-9]+\ Gpus=h200:4:[0-9]+M:/dev/nvidia\[0-3\]$ ]]
  refuses() {
    run tool init "${@:2}"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ ${lines[-1]} == "aliquot: "*"$1"* ]]
    [ "${#lines[@]}" -eq 1 ]
  }
  echo "n1 64" >nodes
  refuses "nodes:1: 'n1 64' is no node" --nodes nodes
  refuses "cannot read" --nodes /no/such
  refuses "is not known here: put its address into /etc/hosts" --join no-such-host.invalid
  refuses "try 'aliquot slurm init --help'" --key nodes
  refuses "try 'aliquot slurm init --help'" --describe --apply
  refuses "try 'aliquot slurm init --help'" --user-gpus 0
}
