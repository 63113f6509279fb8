# Completion for sbatch, srun, salloc and scancel. The options come from the commands themselves. Where a real Slurm
# has completed them already, nothing happens.

_aliquot_submit_options() {
  "$1" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u
}

_aliquot_submit() {
  local command=${COMP_WORDS[0]##*/} current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_aliquot_submit_options "${COMP_WORDS[0]}")" -- "$current")
  elif [[ $command == scancel ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(squeue --me -h -o %i 2>/dev/null) last" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

for _aliquot_name in sbatch srun salloc scancel; do
  complete -p "$_aliquot_name" &>/dev/null || complete -o filenames -F _aliquot_submit "$_aliquot_name"
done
unset _aliquot_name
