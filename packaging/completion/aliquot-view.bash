# Completion for squeue, sinfo, scontrol, sacct, seff and aliquot itself. The options come from the commands. Where a
# real Slurm has completed its own already, nothing happens.

_aliquot_view_words() {
  local command=$1
  case ${command##*/} in
    scontrol) echo hold ping release requeue requeuehold resume show suspend top update version wait_job write ;;
    seff) squeue --me -h -t all -o %i 2>/dev/null; echo last ;;
    aliquot)
      echo doctor down gpus logs shims sim slurm status top up why \
        sbatch srun salloc scancel squeue sinfo scontrol sacct seff
      ;;
  esac
}

_aliquot_view() {
  local command=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=""
  if [[ $current == -* ]]; then
    words=$("$command" --help 2>/dev/null | grep -oE -- '--[A-Za-z][A-Za-z0-9-]*' | sort -u)
  elif [[ $previous == show ]]; then
    words="config hostlist hostnames job node partition step"
  elif [[ $previous == @(-j|--job|--jobs|hold|release|requeue|requeuehold|suspend|resume|wait_job|why|logs) ]]; then
    words="$(squeue --me -h -o %i 2>/dev/null || aliquot squeue --me -h -o %i 2>/dev/null) last"
  elif ((COMP_CWORD == 1)); then
    words=$(_aliquot_view_words "$command")
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

for _aliquot_name in squeue sinfo scontrol sacct seff aliquot; do
  complete -p "$_aliquot_name" &>/dev/null || complete -F _aliquot_view "$_aliquot_name"
done
unset _aliquot_name
