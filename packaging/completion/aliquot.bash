# bash completion for aliquot
_aliquot() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]:-} sub=${COMP_WORDS[2]:-} words=
  COMPREPLY=()

  if [[ $COMP_CWORD -eq 1 ]]; then
    words="setup sim slurm --help --version"
  elif [[ $command == setup && $COMP_CWORD -eq 2 ]]; then
    words="preload --help"
  elif [[ $command == setup ]]; then
    case $prev in
      --library | --root)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
      *) words="on off --library --root --json --help" ;;
    esac
  elif [[ $command == slurm && $COMP_CWORD -eq 2 ]]; then
    words="setup check sandbox --help"
  elif [[ $command == slurm && $sub == sandbox && $COMP_CWORD -eq 3 ]]; then
    words="up down status env exec restart --help"
  elif [[ $command == slurm ]]; then
    case $prev in
      --config | --slurm-conf | --plugin | --dir | --extra | --job-submit)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
      --model) words="h200 h100 a100 titanrtx t4 v100 p100" ;;
      --gpus | --simulate | --slurm-version | --port-base | --nodes | --set) return ;;
      *)
        case $sub in
          setup) words="--gpus --simulate --billing --apply --undo --config --slurm-conf --slurm-version --plugin --no-confine --help" ;;
          check) words="--json --config --slurm-conf --slurm-version --plugin --no-confine --help" ;;
          sandbox) words="--dir --port-base --nodes --gpus --model --set --extra --job-submit --no-aliquot --no-db --bare" ;;
        esac
        ;;
    esac
  elif [[ $command == sim && $COMP_CWORD -eq 2 ]]; then
    words="replay shell generate policies --help"
  elif [[ $command == sim ]]; then
    case $prev in
      --nodes | --pods | --expected)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
      --policy)
        words="all $("${COMP_WORDS[0]}" sim policies 2>/dev/null | awk 'NR > 1 { print $1 }')"
        # a,b,c: complete what follows the last comma.
        if [[ $cur == *,* ]]; then
          mapfile -t COMPREPLY < <(compgen -P "${cur%,*}," -W "$words" -- "${cur##*,}")
          return
        fi
        ;;
      --order) words="own published" ;;
      --seeds | --arrived | --overcommit | --scale | --jobs | --workload | --seed | --*-count | --share | --multi | --cpu-only | --spec)
        return
        ;;
      *)
        case $sub in
          replay) words="--nodes --pods --policy --seeds --order --arrived --overcommit --scale --jobs --expected --workload --json --help --help-all" ;;
          generate) words="--nodes --pods --seed --nodes-count --pods-count --share --multi --cpu-only --spec --help --help-all" ;;
          shell)
            words="--echo --help --help-all"
            if [[ $cur != -* ]]; then
              compopt -o filenames 2>/dev/null
              mapfile -t COMPREPLY < <(compgen -f -- "$cur")
              return
            fi
            ;;
          policies) words="--help --help-all" ;;
        esac
        ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _aliquot aliquot
