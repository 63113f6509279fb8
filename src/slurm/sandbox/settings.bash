# shellcheck shell=bash disable=SC2034,SC2154
# What was asked for and what follows from it: options, folders, ports, names. Part of slurm-sandbox.

dir=${ALIQUOT_SANDBOX:-/var/tmp/aliquot-sandbox}
port_base=${ALIQUOT_SANDBOX_PORT:-26800} nodes=4 gpus=4 cpus=64 model=h200 aliquot=true db=true bare=false cgroups=true extra='' job_submit=''
constrain=none # cgroups that hold jobs: v1, v2 or none
sets=()
given=() # names of what 'up' was given, for comparison with the sandbox that is there

# Of the simulated GPUs' models, in MiB: all of the memory, and what jobs can have of it.
declare -A model_memory=() model_usable=()
read_models() {
  local ctl name memory usable
  ctl=$(find_ours aliquot-standin-ctl) || die "aliquot-standin-ctl, which knows the simulated GPUs, is not beside $here"
  while read -r name memory usable; do
    model_memory[$name]=$memory model_usable[$name]=$usable
  done < <("$ctl" models)
  [[ -n ${model_memory[$model]:-} ]] || die "--model $model: there are ${!model_memory[*]}"
}

counted() { echo "$1 $2$( (($1 == 1)) || echo s)"; } # NUMBER WORD: "1 node", "2 nodes"
in_range() { [[ $1 =~ ^[1-9][0-9]{0,4}$ ]] && (($1 >= $2 && $1 <= $3)); }

parse() {
  local option name
  while [[ $# -gt 0 ]]; do
    option=$1
    case $option in
      --*=*) set -- "${option%%=*}" "${option#*=}" "${@:2}"; continue ;;
      --no-aliquot) aliquot=false; given+=(aliquot); shift; continue ;;
      --no-db) db=false; given+=(db); shift; continue ;;
      --bare) bare=true; given+=(bare); shift; continue ;;
      --no-cgroups) cgroups=false; given+=(cgroups); shift; continue ;;
      --help | -h) usage; exit 0 ;;
      --dir | --port-base | --nodes | --gpus | --cpus | --model | --set | --extra | --job-submit) ;;
      *) note "'$option' is not an option: see 'aliquot slurm sandbox --help'"; exit 2 ;;
    esac
    [[ $# -ge 2 ]] || { note "$option needs a value"; exit 2; }
    case $option in
      --set) sets+=("$2") ;;
      --extra) extra=$(readlink -f "$2") ;;
      --job-submit) job_submit=$(readlink -f "$2") ;;
      *) name=${option#--} && printf -v "${name//-/_}" %s "$2" ;; # $dir, $port_base, $nodes, $gpus, $cpus, $model
    esac
    option=${option#--}
    option=${option//-/_}
    case $option in
      dir) ;;
      set) given+=(sets) ;;
      *) given+=("$option") ;;
    esac
    shift 2
  done
  in_range "$port_base" 1024 60000 || die "--port-base $port_base: use 1024 … 60000"
  in_range "$nodes" 1 500 || die "--nodes $nodes: use 1 … 500"
  in_range "$gpus" 1 32 || die "--gpus $gpus: use 1 … 32"
  in_range "$cpus" 1 1024 || die "--cpus $cpus: use 1 … 1024"
  local setting
  for setting in "${sets[@]}"; do
    [[ $setting =~ ^([a-z]+|partition\.[A-Za-z0-9_-]+)\.[a-z_]+=.+$ ]] ||
      die "--set $setting: write section.key=value, e.g. share.overcommit=2.0 or partition.main.overcommit=2.0"
  done
  [[ -z $extra || -r $extra ]] || die "--extra $extra: cannot be read"
  [[ -z $job_submit || -r $job_submit ]] || die "--job-submit $job_submit: cannot be read"
}

# Everything that follows from the options.
derive() {
  [[ $dir == /* ]] || dir=$PWD/$dir
  [[ $dir =~ ^/[A-Za-z0-9_./-]+$ && $dir != *..* ]] || die "--dir $dir: use letters, digits, '_', '.', '-' and '/'"
  dir=$(readlink -m "$dir")
  [[ $dir == /*/* ]] || die "--dir $dir: use a folder below another one, such as /var/tmp/aliquot-sandbox"
  id=$(cksum <<<"$dir")
  id=${id%% *}
  private=/run/aliquot-sandbox/$id # munged wants folders that belong to root all the way up
  munge_socket=$private/munge/socket
  etc=$dir/etc
  logs=$dir/log
  run=$dir/run
}

remember() {
  local name
  {
    for name in port_base nodes gpus cpus model aliquot db bare cgroups extra job_submit dev_root constrain host; do
      printf '%s=%q\n' "$name" "${!name}"
    done
    printf 'sets=(%s)\n' "${sets[*]@Q}"
  } >"$dir/sandbox.settings.new"
  mv "$dir/sandbox.settings.new" "$dir/sandbox.settings"
}

# The settings of the sandbox that lives in $dir; a folder that is not one, or not root's, is never touched.
recall() {
  [[ -d $dir && ! -L $dir && -f $dir/sandbox.settings ]] || return 1
  [[ $(stat -c %u "$dir") -eq 0 && $(stat -c %u "$dir/sandbox.settings") -eq 0 ]] || die "$dir does not belong to root"
  # shellcheck source=/dev/null
  . "$dir/sandbox.settings"
  derive
  ports
}

setting_text() { if [[ $1 == sets ]]; then echo "${sets[*]}"; else echo "${!1}"; fi; } # NAME

# `recall`, or the end where what was given is not what the sandbox has: that is settled by its first `up`.
recall_same() {
  local name text wrong='' asked=() k
  for name in "${given[@]}"; do asked+=("$(setting_text "$name")"); done
  recall || return 1
  for ((k = 0; k < ${#given[@]}; k++)); do
    name=${given[k]} text=$(setting_text "${given[k]}")
    [[ $text != "${asked[k]}" ]] || continue
    case $name in
      nodes) text="has $(counted "$nodes" node)" ;;
      gpus) text="has $(counted "$gpus" GPU) on each node" ;;
      cpus) text="has $(counted "$cpus" CPU) on each node" ;;
      model) text="has GPUs of model $model" ;;
      port_base) text="listens from port $port_base on" ;;
      aliquot) text='has Aliquot' ;;
      db) text='has slurmdbd' ;;
      cgroups) text='uses cgroups' ;;
      bare) text='is not bare' ;;
      *) name=${name/sets/set} text="has ${text:+--${name//_/-} }${text:-no --${name//_/-}}" ;; # extra, job_submit, sets
    esac
    [[ $wrong == *"$text"* ]] || wrong+="${wrong:+ and }$text"
  done
  [[ -z $wrong ]] || die "the sandbox in $dir $wrong: 'down' first, or leave that option out"
}

ports() {
  port_mariadb=$port_base port_dbd=$((port_base + 1)) port_ctld=$((port_base + 2)) port_balancer=$((port_base + 3))
  port_slurmd=$((port_base + 10)) # of node K: + K
  # All sandboxes share /sys/fs/cgroup/*/slurm_nK: the numbers of their jobs must differ.
  first_job=$((port_base == 26800 ? 1 : port_base * 1000 + 1))
  last_job=$((first_job + 99999))
}

slurm_version() { slurmd -V 2>/dev/null | sed 's/^[^0-9]*//'; }

node_names() {
  local k
  for ((k = 1; k <= nodes; k++)); do echo "n$k"; done
}

daemons() {
  echo munged
  $db && printf '%s\n' mariadbd slurmdbd
  echo slurmctld
  node_names | sed 's/^/slurmd-/'
  if has_ours; then
    node_names | sed 's/^/agent-/'
    echo balancer
  fi
}
