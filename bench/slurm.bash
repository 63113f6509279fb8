# Debian's Slurm on loopback, private to a folder: munged, slurmctld and one slurmd, no database. For comparisons in
# benchmarks; sourced.
#
#   slurm_start FOLDER CPUS   starts it and waits until the node is idle; sets SLURM_CONF
#   slurm_stop FOLDER         ends it and everything it started
slurm_packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge"

# Why there is no Slurm to compare with, or nothing.
slurm_missing() {
  local program
  [[ $(id -u) -eq 0 ]] || { echo "Slurm's daemons need root"; return; }
  for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "$program is not here: apt-get install $slurm_packages"; return; }
  done
}

slurm_start() {
  local lab=$1 cpus=$2 host i
  host=$(hostname -s)
  mkdir -p "$lab"/{spool,state,log}
  # munged wants every folder above its own to belong to root or to itself, and nobody else to write there.
  slurm_munge=$(mktemp -d /run/aliquot-bench-munge.XXXXXX)
  chmod 711 "$slurm_munge"
  head -c 128 /dev/urandom >"$slurm_munge/key"
  chmod 600 "$slurm_munge/key"
  munged --force --socket "$slurm_munge/socket" --key-file "$slurm_munge/key" --pid-file "$slurm_munge/pid" \
    --log-file "$slurm_munge/log" --seed-file "$slurm_munge/seed" 2>/dev/null || return 1
  cat >"$lab/slurm.conf" <<CONF
ClusterName=bench
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
AuthInfo=socket=$slurm_munge/socket
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool
SlurmctldPidFile=$lab/slurmctld.pid
SlurmdPidFile=$lab/slurmd.pid
SlurmctldLogFile=$lab/log/slurmctld
SlurmdLogFile=$lab/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MaxJobCount=50000
NodeName=$host NodeAddr=127.0.0.1 Port=17001 CPUs=$cpus State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$lab/slurm.conf
  slurmctld -f "$SLURM_CONF" >/dev/null 2>&1 || return 1
  slurmd -f "$SLURM_CONF" >/dev/null 2>&1 || return 1
  for ((i = 0; i < 300; i++)); do
    [[ $(sinfo -h -o %t 2>/dev/null) == idle ]] && return 0
    sleep 0.1
  done
  return 1
}

slurm_stop() {
  local lab=$1 file pid
  for file in "$lab"/slurmd.pid "$lab"/slurmctld.pid "${slurm_munge:-/nowhere}"/pid; do
    [[ -s $file ]] || continue
    pid=$(<"$file")
    kill "$pid" 2>/dev/null
    # slurmd that cannot register does not listen to SIGTERM.
    timeout 10 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null
  done
  rm -rf "${slurm_munge:-}"
}
