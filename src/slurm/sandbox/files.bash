# shellcheck shell=bash disable=SC2034,SC2154
# What is on disk: folders, device nodes, configuration. Part of slurm-sandbox.

# Can jobs be held in cgroups here? Sets $constrain to v1, v2 or none.
look_at_cgroups() {
  local probe=aliquot-sandbox-probe-$$ kind
  kind=$(stat -fc %T /sys/fs/cgroup 2>/dev/null)
  if [[ $kind == cgroup2fs ]]; then
    if [[ -f $plugins/cgroup_v2.so ]] && mkdir "/sys/fs/cgroup/$probe" 2>/dev/null; then
      rmdir "/sys/fs/cgroup/$probe"
      constrain=v2
    fi
  elif [[ -f $plugins/cgroup_v1.so ]] && mkdir "/sys/fs/cgroup/freezer/$probe" "/sys/fs/cgroup/devices/$probe" 2>/dev/null; then
    constrain=v1
    rmdir "/sys/fs/cgroup/freezer/$probe" "/sys/fs/cgroup/devices/$probe"
  fi
  [[ $constrain != none ]] || note "no writable cgroups here: jobs are tracked by linuxproc and can open every GPU's device"
}

# GPUs without a driver behind them: opening one gives ENXIO where the cgroup allows it, EPERM where it does not. The
# minor numbers begin at 1024, beyond those of any real GPU.
make_devices() {
  dev_root=$dir/dev
  if findmnt -n -o OPTIONS -T "$dir" 2>/dev/null | grep -w nodev >/dev/null; then dev_root=/dev/aliquot-sandbox-$id; fi
  local k g device
  for ((k = 1; k <= nodes; k++)); do
    mkdir -p "$dev_root/n$k"
    for ((g = 0; g < gpus; g++)); do
      device=$dev_root/n$k/nvidia$g
      [[ -e $device ]] || mknod -m 666 "$device" c 195 $((1024 + (k - 1) * 32 + g)) 2>/dev/null && continue
      [[ -e $device ]] || : >"$device"
      ((k + g > 1)) || note "no permission for mknod: the GPUs are plain files, which cgroups cannot guard"
    done
  done
}

# The simulated GPUs of each node, where no agent has them.
make_machines() {
  local ctl name
  ctl=$(find_ours aliquot-standin-ctl) || return 0
  for name in $(node_names); do
    ALIQUOT_STANDIN=$model:$gpus ALIQUOT_STANDIN_STATE=$dir/$name/standin ALIQUOT_STANDIN_SHARED=1 \
      ALIQUOT_STANDIN_DEVICES=$dev_root/$name/nvidia "$ctl" show >/dev/null 2>&1 || true
  done
}

make_folders() {
  mkdir -p "$dir" "$etc" "$logs" "$run/mariadb" "$dir/state" "$dir/spool" "$dir/balancer"
  chmod 755 "$dir" "$etc" "$run"
  chown slurm "$dir/state" "$logs"
  local name
  for name in $(node_names); do mkdir -p "$dir/$name" "$dir/spool/$name"; done
  mkdir -p "$private/munge"
  chmod 755 /run/aliquot-sandbox "$private" "$private/munge"
  [[ -s $private/munge/key ]] || (umask 077 && head -c 1024 /dev/urandom >"$private/munge/key")
  chown -R munge "$private/munge"
  if $db; then
    mkdir -p "$dir/mariadb"
    chown mysql "$dir/mariadb" "$run/mariadb"
  fi
}

write_slurm_conf() {
  local tracking=proctrack/linuxproc task=task/none shards=$((model_memory[$model] / 1024)) k
  [[ $constrain == none ]] || tracking=proctrack/cgroup task=task/cgroup
  {
    cat <<END
# A sandbox of Aliquot: removed by 'aliquot slurm sandbox down --dir $dir'.
ClusterName=sandbox
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port_ctld
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket=$munge_socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/state/slurmctld.pid
SlurmctldLogFile=$logs/slurmctld.log
SlurmdSpoolDir=$dir/spool/%n
SlurmdPidFile=$run/slurmd-%n.own.pid
SlurmdLogFile=$logs/slurmd-%n.log
LogTimeFormat=iso8601_ms
MpiDefault=none
ProctrackType=$tracking
TaskPlugin=$task
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=3
MessageTimeout=30
TCPTimeout=10
SlurmdTimeout=60
MaxJobCount=50000
FirstJobId=$first_job
MaxJobId=$last_job
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=10000,default_queue_depth=2000,bf_interval=2,bf_continue,bf_max_job_test=1000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
END
    $bare || printf '%s\n' "PreemptType=preempt/partition_prio" "PreemptMode=REQUEUE"
    with_setup || echo "GresTypes=gpu,shard"
    if $db; then
      cat <<END
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$port_dbd
AccountingStoragePass=$munge_socket
$(with_setup || echo "AccountingStorageTRES=gres/gpu,gres/shard")
AccountingStorageEnforce=associations,limits,qos
END
    else
      echo "AccountingStorageType=accounting_storage/none"
    fi
    [[ -z $job_submit ]] || echo "JobSubmitPlugins=lua"
    for ((k = 1; k <= nodes; k++)); do
      echo "NodeName=n$k NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port_slurmd + k)) CPUs=$cpus RealMemory=512000$(
        with_setup || echo " Gres=gpu:$model:$gpus,shard:$model:$((gpus * shards))")"
    done
    if $bare; then
      echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    else
      write_partitions "$shards"
    fi
    [[ -z $extra ]] || { echo "# from $extra"; cat "$extra"; }
  } >"$etc/slurm.conf"
}

write_partitions() {
  # Slurm refuses weights of what it does not account, and without slurmdbd it accounts no GRES. Setup writes its own.
  local weights=''
  ! $db || with_setup || weights="TRESBillingWeights=\"GRES/gpu=$1,GRES/shard=1\""
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF $weights"
  echo "PartitionName=besteffort Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE $weights"
}

# Does `aliquot slurm setup` write the GRES, the plugins and the cgroups of this one?
with_setup() { $bare || $aliquot; }

write_gres_conf() {
  local k shards=$((model_memory[$model] / 1024))
  for ((k = 1; k <= nodes; k++)); do
    echo "NodeName=n$k Name=gpu Type=$model File=$dev_root/n$k/nvidia$( ((gpus > 1)) && echo "[0-$((gpus - 1))]" || echo 0)"
    echo "NodeName=n$k Name=shard Type=$model Count=$((gpus * shards))"
  done >"$etc/gres.conf"
}

write_cgroup_conf() {
  {
    [[ $constrain == v1 ]] && printf '%s\n' "CgroupPlugin=cgroup/v1" "CgroupMountpoint=/sys/fs/cgroup"
    [[ $constrain == v2 ]] && echo "CgroupPlugin=cgroup/v2"
    [[ $constrain == v2 ]] && ! [[ -d /run/systemd/system ]] && echo "IgnoreSystemd=yes"
    [[ $constrain != none ]] && ! with_setup && echo "ConstrainDevices=yes"
    true
  } >"$etc/cgroup.conf"
}

write_dbd_conf() {
  $db || return 0
  local password
  [[ -s $etc/slurmdbd.conf ]] && return 0
  password=$(head -c 18 /dev/urandom | base64 | tr -dc 'A-Za-z0-9')
  (
    umask 077
    cat >"$etc/slurmdbd.conf.new" <<END
AuthType=auth/munge
AuthInfo=socket=$munge_socket
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=$port_dbd
SlurmUser=slurm
LogFile=$logs/slurmdbd.log
LogTimeFormat=iso8601_ms
PidFile=$dir/state/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$port_mariadb
StorageUser=slurm
StoragePass=$password
StorageLoc=slurm
END
  )
  chown slurm "$etc/slurmdbd.conf.new"
  mv "$etc/slurmdbd.conf.new" "$etc/slurmdbd.conf"
}

# SECTION.KEY=VALUE…: as TOML. What the user set comes last and wins.
toml() {
  local -A values=()
  local pair
  for pair in "$@" "${sets[@]}"; do values[${pair%%=*}]=${pair#*=}; done
  local section key
  for section in $(printf '%s\n' "${!values[@]}" | sed 's/\.[^.]*$//' | sort -u); do
    echo "[$section]"
    for key in $(printf '%s\n' "${!values[@]}" | sed -n "s/^$section\.\([^.]*\)$/\1/p" | sort); do
      echo "$key = ${values[$section.$key]}"
    done
  done
}

write_toml() {
  local common=(balancer.host='"127.0.0.1"' balancer.port="$port_balancer" balancer.state="\"$dir/balancer/state.json\""
    slurm.conf="\"$etc/slurm.conf\"") name
  toml "${common[@]}" agent.socket="\"$dir/%n/agent.sock\"" >"$etc/slurm.toml"
  for name in $(node_names); do
    toml "${common[@]}" agent.socket="\"$dir/$name/agent.sock\"" agent.run_dir="\"$dir/$name/run\"" \
      agent.simulate="\"$model:$gpus\"" agent.node="\"$name\"" >"$dir/$name/slurm.toml"
  done
}

write_files() {
  $aliquot && write_toml
  [[ -z $job_submit ]] || install -m 644 "$job_submit" "$etc/job_submit.lua"
  write_slurm_conf
  with_setup || write_gres_conf
  write_cgroup_conf
  write_dbd_conf
}

# What an administrator does: 'aliquot slurm setup --apply' writes GRES, plugins and cgroups into the files.
configure() {
  with_setup && ! $bare || return 0
  local files=$dev_root/%n/nvidia0 plugin options=()
  ((gpus == 1)) || files="$dev_root/%n/nvidia[0-$((gpus - 1))]"
  plugin=$(find_ours aliquot_spank.so) || plugin=''
  [[ $constrain != none ]] || options+=(--no-confine)
  ! $db || options+=(--billing)
  "$(find_ours aliquot-slurm)" setup --apply --config "$etc/slurm.toml" --slurm-conf "$etc/slurm.conf" \
    --gpus "n[1-$nodes]=$model:$gpus:${model_usable[$model]}M:$files" ${plugin:+--plugin "$plugin"} "${options[@]}" \
    >"$logs/setup.out" 2>&1 || { trouble "aliquot slurm setup failed" "$logs/setup.log"; return 1; }
}
