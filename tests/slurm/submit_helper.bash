# For what is booked and what is refused.
# shellcheck shell=bash disable=SC2034  # the tests use its variables

# Of one GPU, as setup told job_submit.lua: $memory in MiB and $all shards, of which $quarter are a quarter.
look_at_gpus() {
  local bytes
  read -r bytes all shard < <(sed -n 's/.*name = "h200", memory = \([0-9]*\), shards = \([0-9]*\), shard = \([0-9]*\),.*/\1 \2 \3/p' \
    "$SANDBOX/etc/aliquot_submit.lua")
  memory=$((bytes >> 20)) quarter=$((all / 4))
}
shards() { echo $((($1 * 1024 * 1024 + shard - 1) / shard)); } # MIB

# Slurm that puts whole-GPU jobs beside shares.
mixes() {
  local version
  version=$(sbatch --version | sed 's/[^0-9]*//')
  [[ $(printf '%s\n' "$version" 23.11.5 | sort -V | head -1) != 23.11.5 ]]
}

# OPTION…: what a held job with these options books, and the administrator's comment.
booked() {
  local id show
  id=$(sbatch -H --parsable -o /dev/null "$@" --wrap true) || return
  show=$(scontrol show job "$id")
  scancel "$id"
  {
    sed -n 's/^ *\(TresPer[A-Za-z]*=\)/\1/p' <<<"$show" | sed 's/gres[:/]//; s/^TresPerNode=//'
    sed -n 's/^ *AdminComment=//p' <<<"$show" | sed 's/ *$//'
  } | paste -sd'|'
  # The whole node; newer Slurms, where nothing takes it, say this of every job.
  ! mixes || grep -o 'OverSubscribe=NO' <<<"$show" || true
}

# OPTION… -- SENTENCE
refused() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  run -1 sbatch -H -o /dev/null "${options[@]}" --wrap true
  echo "${options[*]}: $output"
  [[ ${lines[0]} == "sbatch: error: $2" ]]
  [[ ${lines[1]} == *"Invalid generic resource"* || ${lines[1]} == *"Requested node configuration is not available"* ]]
}
