# bash completion for aliquot and for Slurm's commands where they are links to it ('aliquot shims'). What can be typed
# comes from each command's own --help. Where a real Slurm has completed its commands already, nothing happens.

# WORD…: the commands that a help text on stdin lists behind these words, which are a command themselves.
_aliquot_commands() {
  awk -v path="${*##*/}" '
    BEGIN {
      if (path ~ /^aliquot (scontrol|sacctmgr)/) sub(/^aliquot /, "", path)
      name = path
      sub(/ .*/, "", name)
    }
    function behind(phrase) { # "scontrol show job [<id>]" behind "scontrol show": job
      if (index(phrase " ", path " ") != 1) return
      split(substr(phrase, length(path) + 2), word, " ")
      if (word[1] ~ /^[a-z][a-z_-]*$/) print word[1]
    }
    /^[A-Z].*:$/ { listing = !/^(Options|Positionals)/ }
    listing && /^  [a-z]/ { print $1 }
    { sub(/^(usage:)? +/, "") }
    index($0, "aliquot ") == 1 { behind($0) }
    /^(A job id|Shown may)/ { valid = 0 }
    valid { n = split($0, phrase, ", "); for (i = 1; i <= n; i++) behind(name " " phrase[i]) }
    /^Valid <COMMAND>/ { valid = 1 }' | sort -u
}

# NAME WORD…: that command of NAME's where NAME is aliquot; what 'srun squeue' would do is another matter.
_aliquot_ask() {
  if [[ ${1##*/} == aliquot ]]; then "$@" 2>/dev/null; else "${@:2}" 2>/dev/null; fi
}

_aliquot_jobs() {
  _aliquot_ask "$1" squeue --me -h -o %i
  echo last
}

_aliquot_files() {
  compopt -o filenames 2>/dev/null || true # outside of a completion there is nothing to set
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_aliquot() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} name=${COMP_WORDS[0]} path=("${COMP_WORDS[0]}") i
  local help commands words=''
  COMPREPLY=()
  help=$("$name" --help 2>/dev/null)
  commands=$(_aliquot_commands "$name" <<<"$help")
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ $'\n'$commands$'\n' == *$'\n'"${COMP_WORDS[i]}"$'\n'* ]] || break
    path+=("${COMP_WORDS[i]}")
    help=$("${path[@]}" --help 2>/dev/null)
    commands=$(_aliquot_commands "${path[@]}" <<<"$help")
  done

  if [[ $prev == -[Doei] && ${path[-1]##*/} =~ ^(sbatch|srun|salloc)$ ]]; then
    _aliquot_files "$cur"
    return
  fi
  case $prev in
    --config | --kubeconfig | --slurm-conf | --plugin | --dir | --extra | --job-submit | --library | --root | --expected | \
      --output | --error | --input | --chdir | --multi-prog)
      _aliquot_files "$cur"
      return
      ;;
    --key) [[ ${path[*]:1} != "slurm init" ]] || _aliquot_files "$cur"; return ;;
    --nodes | --pods) [[ ${path[1]:-} != sim && ${path[*]:1} != "slurm init" ]] || _aliquot_files "$cur"; return ;;
    --policy) words="all $(_aliquot_ask "$name" sim policies | awk 'NR > 1 { print $1 }')" ;;
    --order) words="own published" ;;
    --model) words=$(sed -n 's/.*--model NAME .*: \(.*\) (.*/\1/p' <<<"$help") ;;
    -n | --namespace) [[ ! ${path[1]:-} =~ ^(status|top|why)$ ]] || words=$(kubectl get namespaces -o name 2>/dev/null | sed 's|.*/||') ;;
    --context) words=$(kubectl config get-contexts -o name 2>/dev/null) ;;
    -p | --partition) words=$(_aliquot_ask "$name" sinfo -h -o %R) ;;
    -u | --user | --users | --uid) words=$(compgen -u) ;;
    -t | --states) [[ ${path[*]} == *squeue ]] && words="pending running suspended completing completed cancelled failed timeout all" ;;
    -j | --job | --jobs | --jobid) words=$(_aliquot_jobs "$name") ;;
    *)
      if [[ $cur == -* ]]; then
        words=$(grep -oE -- '--[A-Za-z][A-Za-z0-9-]*' <<<"$help" | sort -u)
      elif [[ $prev == -* ]] && grep -qE -- "(^|[ ,])$prev(=| [A-Z])" <<<"$help"; then
        return # a value that only the user knows
      elif [[ -n $commands ]]; then
        words=$commands
      else
        case ${path[-1]##*/} in
          why | logs | scancel | seff | hold | release | requeue | requeuehold | suspend | resume | wait_job) words=$(_aliquot_jobs "$name") ;;
          sbatch | srun | salloc | shell | shims | exec) _aliquot_files "$cur"; return ;;
          preload) words="on off" ;;
        esac
      fi
      ;;
  esac
  # a,b,c: what follows the last comma.
  if [[ $cur == *,* ]]; then
    mapfile -t COMPREPLY < <(compgen -P "${cur%,*}," -W "$words" -- "${cur##*,}")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  fi
}

for _aliquot_name in aliquot sbatch srun salloc scancel squeue sinfo scontrol sacct seff sprio sshare sacctmgr sstat sreport sattach sdiag; do
  complete -p "$_aliquot_name" &>/dev/null || complete -F _aliquot "$_aliquot_name"
done
unset _aliquot_name
