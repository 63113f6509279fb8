# shellcheck shell=bash disable=SC2034,SC2154
# Starting the daemons, one by one, and asking whether they answer. Part of slurm-sandbox.

pid_of() { # NAME: its pid, when it is still the process that we started
  local pid stamp
  [[ -r $run/$1.pid ]] && read -r pid stamp <"$run/$1.pid" || return 1
  [[ -n $pid && $(started "$pid") == "$stamp" ]] && echo "$pid"
}
# When a process began; nothing when it is gone, or dead and only not yet reaped.
started() { sed -n 's/.*) //; /^[ZX]/!p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
is_stopped() { [[ $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) == [Tt]\ * ]]; } # PID: by SIGSTOP, or a debugger

# NAME CMD…: in the background, its own session, marked so that `down` finds it whatever happened in between.
launch() {
  local name=$1
  shift
  ALIQUOT_SANDBOX_DAEMON=$dir SLURM_CONF=$etc/slurm.conf setsid "$@" </dev/null >>"$logs/$name.out" 2>&1 9>&- &
  local pid=$!
  disown
  echo "$pid $(started "$pid")" >"$run/$name.pid"
}

# NAME CMD…: the same, started again whenever it dies.
launch_supervised() {
  local name=$1
  shift
  # shellcheck disable=SC2016
  launch "$name-loop" bash -c '
    name=$1 run=$2
    shift 2
    trap "trap - TERM; kill \$child 2>/dev/null; wait; exit 0" TERM
    while :; do
      "$@" &
      child=$!
      echo "$child $(sed "s/.*) //" /proc/$child/stat | cut -d" " -f20)" >"$run/$name.pid.new"
      mv "$run/$name.pid.new" "$run/$name.pid"
      wait "$child"
      status=$?
      echo "$(date "+%FT%T") $name ended with status $status: starting it again"
      sleep 0.3
    done' supervise "$name" "$run" "$@"
}

# WHAT SECONDS LOG CMD…: until the command succeeds.
wait_for() {
  local what=$1 seconds=$2 log=$3 deadline=$((SECONDS + $2 + 1))
  shift 3
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { trouble "$what did not come up within $seconds s" "$log"; return 1; }
    sleep 0.05
  done
}

trouble() { # TEXT LOG: the sentence and the last lines of the log
  note "$1; the end of $2:"
  local log
  for log in "$2" "${2%.log}.out"; do
    [[ -s $log ]] && { tail -n 6 "$log" | sed 's/^/    /' >&2; break; }
  done
  return 0
}

start_munged() {
  launch munged setpriv --reuid munge --regid munge --clear-groups munged --foreground --socket="$munge_socket" \
    --key-file="$private/munge/key" --pid-file="$private/munge/pid" --seed-file="$private/munge/seed" \
    --log-file="$private/munge/log" --num-threads=4
}
start_mariadbd() {
  launch mariadbd mariadbd --no-defaults --user=mysql --datadir="$dir/mariadb" --socket="$run/mariadb/socket" \
    --port="$port_mariadb" --bind-address=127.0.0.1 --pid-file="$run/mariadb/pid" --log-error="$logs/mariadbd.log" \
    --skip-name-resolve --innodb-buffer-pool-size=64M --innodb-log-file-size=16M \
    --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 --performance-schema=off --max-connections=100
}
start_slurmdbd() { launch slurmdbd setpriv --reuid slurm --regid slurm --clear-groups slurmdbd -D; }
start_slurmctld() {
  # One that was killed before it ever saved the use of accounts would not start again (26.05): there is none to lose.
  local ignore=()
  [[ -e $dir/state/assoc_usage ]] || ignore=(-i)
  launch slurmctld slurmctld -D "${ignore[@]}" -f "$etc/slurm.conf"
}
start_slurmd() { launch "slurmd-$1" env SLURMD_NODENAME="$1" slurmd -D -N "$1" -f "$etc/slurm.conf"; }
start_agent() {
  # Its simulated GPUs are these files: who may not open one does not see it.
  launch_supervised "agent-$1" env ALIQUOT_STANDIN_DEVICES="$dev_root/$1/nvidia" \
    "$(find_ours aliquot-agent)" --foreground --config "$dir/$1/slurm.toml"
}
start_balancer() { launch_supervised balancer "$(find_ours aliquot-balancer)" --foreground --config "$etc/slurm.toml"; }

start() { # NAME as `daemons` prints it
  case $1 in
    slurmd-* | agent-*) "start_${1%%-*}" "${1#*-}" ;;
    *) "start_$1" ;;
  esac
}
alive() { pid_of "$1" >/dev/null || pid_of "$1-loop" >/dev/null; }

sql() { mariadb --no-defaults --socket="$run/mariadb/socket" --user=root "$@"; }
munge_answers() { munge -S "$munge_socket" -n; }
dbd_answers() { slurm sacctmgr -n -P show cluster; }
ctld_answers() { slurm scontrol ping | grep 'UP$\|are UP' >/dev/null; }
slurm() { SLURM_CONF=$etc/slurm.conf "$@"; }

# What Slurm does not understand in slurm.conf ends each daemon and each command: in its own words.
conf_is_read() {
  local said
  said=$(slurm timeout 20 scontrol show hostnames n1 2>&1 >/dev/null) && return 0
  note "Slurm does not read $etc/slurm.conf${extra:+, which has the lines of $extra}:"
  sed 's/^/    /' <<<"$said" >&2
  return 1
}

start_missing() {
  local name
  conf_is_read || return 1
  alive munged || start_munged
  if $db && ! [[ -d $dir/mariadb/mysql ]]; then
    mariadb-install-db --no-defaults --user=mysql --datadir="$dir/mariadb" --auth-root-authentication-method=socket \
      --skip-test-db --skip-name-resolve >"$logs/mariadb-install.out" 2>&1 ||
      { trouble "mariadb-install-db failed" "$logs/mariadb-install.log"; return 1; }
  fi
  wait_for munged 10 "$private/munge/log" munge_answers || return 1
  if $db; then
    alive mariadbd || start_mariadbd
    wait_for mariadbd 60 "$logs/mariadbd.log" sql -e 'select 1' || return 1
    if ! [[ -e $dir/database-ready ]]; then
      sql -e "create database if not exists slurm;
        create or replace user slurm@'127.0.0.1' identified by '$(sed -n 's/^StoragePass=//p' "$etc/slurmdbd.conf")';
        grant all on slurm.* to slurm@'127.0.0.1'" || { trouble "the database cannot be made" "$logs/mariadbd.log"; return 1; }
      : >"$dir/database-ready"
    fi
    alive slurmdbd || start_slurmdbd
    wait_for slurmdbd 60 "$logs/slurmdbd.log" dbd_answers || return 1
    if ! [[ -e $dir/accounts-ready ]]; then
      (
        slurm sacctmgr -i add cluster sandbox
        $bare && exit 0
        slurm sacctmgr -i add account users cluster=sandbox Description=users Organization=sandbox
        slurm sacctmgr -i add user root,games,news,daemon account=users cluster=sandbox
        slurm sacctmgr -i modify user root set adminlevel=Admin
      ) >"$logs/accounts.out" 2>&1
      $bare || slurm sacctmgr -n -P show assoc format=user | grep -x daemon >/dev/null ||
        { trouble "sacctmgr could not add the users" "$logs/accounts.log"; return 1; }
      : >"$dir/accounts-ready"
    fi
  fi
  alive slurmctld || start_slurmctld
  for name in $(node_names); do alive "slurmd-$name" || start_slurmd "$name"; done
  wait_for slurmctld 60 "$logs/slurmctld.log" ctld_answers || return 1
  if has_ours; then
    alive balancer || start_balancer
    for name in $(node_names); do alive "agent-$name" || start_agent "$name"; done
  fi
  return 0
}

nodes_ready() {
  [[ $(slurm sinfo -h -a -N -o '%N %t' | sort -u | awk '$2 ~ /^(idle|mix|alloc|comp)$/' | wc -l) -eq $nodes ]]
}

wait_for_nodes() {
  local deadline=$((SECONDS + 60)) name
  until nodes_ready; do
    for name in $(node_names); do
      alive "slurmd-$name" || { trouble "slurmd of $name ended" "$logs/slurmd-$name.log"; return 1; }
    done
    alive slurmctld || { trouble "slurmctld ended" "$logs/slurmctld.log"; return 1; }
    ((SECONDS < deadline)) || {
      note "nodes are not idle after 60 s:"
      slurm sinfo -N -p main -o '%N %t %E' >&2
      name=$(slurm sinfo -h -N -p main -o '%N %t' | awk '$2 !~ /^(idle|mix|alloc)$/ { print $1; exit }')
      trouble "see slurmd's log" "$logs/slurmd-${name:-n1}.log"
      return 1
    }
    sleep 0.1
  done
}
