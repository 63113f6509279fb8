# bash completion for aliquot
_aliquot() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]:-} sub=${COMP_WORDS[2]:-} words=
  COMPREPLY=()

  if [[ $COMP_CWORD -eq 1 ]]; then
    words="sim --help --version"
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
