#!/usr/bin/env bats
# What a job books, what is refused and in which words, as sbatch, srun and salloc see it: through slurmctld of a
# sandbox with two nodes of four H200, on whichever Slurm this machine has.
bats_require_minimum_version 1.5.0

sandbox=$ALIQUOT_BIN/../libexec/aliquot/slurm-sandbox
open=${BATS_FILE_TMPDIR:-/tmp}/open        # shares everywhere, beside a site's own job_submit.lua
gated=${BATS_FILE_TMPDIR:-/tmp}/gated      # shares here and there

setup_file() {
  [[ $(id -u) -eq 0 ]] || skip "starts a private Slurm: needs root"
  command -v slurmctld slurmd sbatch munged >/dev/null || skip "no Slurm here: tools/install-deps slurm"
  [[ -x $ALIQUOT_BIN/aliquot-slurm && -x $sandbox ]] || skip "this preset builds no aliquot-slurm"
  cat >"$BATS_FILE_TMPDIR/site.lua" <<'END'
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "closed" then
    slurm.log_user("closed today")
    return slurm.ERROR
  elseif job_desc.name == "broken" then
    error("the site's own is broken")
  elseif job_desc.name == "noted" then
    job_desc.admin_comment = "site: noted"
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  if job_desc.comment == "closed" then return slurm.ERROR end
  return slurm.SUCCESS
end
return slurm.SUCCESS
END
  echo "PartitionName=course Nodes=ALL" >"$BATS_FILE_TMPDIR/course.conf"
  "$sandbox" up --dir "$open" --port-base 27900 --nodes 2 --no-db --job-submit "$BATS_FILE_TMPDIR/site.lua" 3>&- 4>&-
  "$sandbox" up --dir "$gated" --port-base 27930 --nodes 1 --no-db --extra "$BATS_FILE_TMPDIR/course.conf" \
    --set 'share.partitions=["course", "ma?n"]' --set 'share.accounts=["phys*"]' \
    --set 'share.reservations=["jupyterhub_course_*"]' 3>&- 4>&-
  SLURM_CONF=$gated/etc/slurm.conf scontrol create reservation=jupyterhub_course_ml users=root starttime=now \
    duration=60 nodes=ALL flags=ignore_jobs
  SLURM_CONF=$gated/etc/slurm.conf scontrol create reservation=seminar users=root starttime=now+1day duration=60 nodes=ALL
}
teardown_file() {
  local folder
  for folder in "$open" "$gated"; do [[ ! -e $folder ]] || "$sandbox" down --dir "$folder"; done
}
setup() {
  export SLURM_CONF=$open/etc/slurm.conf
  cd "$BATS_TEST_TMPDIR" || return
}

# Slurm that puts whole-GPU jobs beside shares.
mixes() {
  local version
  version=$(sbatch --version | sed 's/[^0-9]*//')
  [[ $(printf '%s\n' "$version" 23.11.5 | sort -V | head -1) != 23.11.5 ]]
}
# OPTION…: what a held job with these options books, and the administrator's comment.
booked() {
  local id
  id=$(sbatch -H --parsable -o /dev/null "$@" --wrap true) || return
  scontrol show job "$id" | sed -n 's/^ *\(TresPer[A-Za-z]*\|AdminComment\)=/\1 /p' |
    sed 's/gres[:/]//; s/^AdminComment //; s/^TresPerNode //; s/ *$//' | sort -r | paste -sd'|'
  scontrol show job "$id" | grep -o 'OverSubscribe=NO' || true
  scancel "$id"
}

@test "shares are booked in shards, and what was asked stands in the admin comment" {
  run -0 booked --gres=mps:25
  [[ $output == "shard:35|aliquot: mps:25" ]]
  run -0 booked --gres=shard:2
  [[ $output == "shard:35|aliquot: shard:2" ]]
  run -0 booked --gres=shard:h200:4
  [[ $output == "shard:h200:70|aliquot: shard:h200:4" ]]
  run -0 booked --gpu-mem=8G
  [[ $output == "shard:8|aliquot: --gpu-mem=8G" ]]
  run -0 booked --gpu-mem=8G --gpu-share=50%
  [[ $output == "shard:70|aliquot: --gpu-mem=8G --gpu-share=50%" ]]
  run -0 booked -G 1 --gpu-share=12.5%
  [[ $output == "shard:18|aliquot: --gpu-share=12.5%" ]]
  run -0 booked --gres=mps:25 -N 2
  [[ $output == "shard:35|aliquot: mps:25" ]]
  printf '#!/bin/sh\n#SBATCH --gpu-mem=3G\ntrue\n' >job.sh
  run -0 sbatch -H --parsable -o /dev/null job.sh
  scontrol show job "$output" | grep -q 'TresPerNode=gres.shard:3$'
  scancel "$output"
}

@test "whole GPUs are Slurm's own, or all their shards where it would mix them" {
  for options in --gres=gpu:1 "-G 1" --gpus-per-node=1 "--gpus-per-task=1 -n 1" --gres=gpu:h200:1; do
    # shellcheck disable=SC2086
    run -0 booked $options
    echo "$options: $output"
    if ! mixes; then
      [[ $output == *"gpu:"*"|aliquot: gpu:"*"1" && $output != *shard* ]]
    elif [[ $options == *h200* ]]; then
      [[ $output == "shard:h200:140|aliquot: gpu:h200:1" ]]
    else
      [[ $output == "shard:140|aliquot: gpu:1" ]]
    fi
  done
  run -0 --separate-stderr booked --gres=gpu:2
  if mixes; then
    [[ $output == $'gpu:2|aliquot: gpu:2\nOverSubscribe=NO' ]]
    [[ $stderr == "sbatch: these GPUs take whole nodes"* ]]
  else
    [[ $output == "gpu:2|aliquot: gpu:2" && -z $stderr ]]
  fi
}

@test "jobs without GPUs are left alone" {
  run -0 booked -n 2
  [[ -z $output ]]
  run -0 booked --gres=none
  [[ -z $output ]]
}

# OPTION… -- SENTENCE
refused() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  run -1 sbatch -H -o /dev/null "${options[@]}" --wrap true
  echo "${options[*]}: $output"
  [[ ${lines[0]} == "sbatch: error: $2" ]]
  [[ ${lines[1]} == *"Invalid generic resource"* ]]
}

@test "what cannot be is refused in a sentence" {
  refused --gpu-mem=200G -- \
    "--gpu-mem=200G is more than any GPU of the partition 'main' has: write at most --gpu-mem=143771M"
  refused --gres=mps:101 -- "mps:101 is more than one GPU: write at most mps:100, or gpu:1 for a whole one"
  refused --gres=shard:9 -- "shard:9 is more than one GPU: write at most shard:8, or gpu:1 for a whole one"
  refused --gres=mps:0 -- "--gres='mps:0' asks for none of a GPU: write mps:25 or mps:titanrtx:25, or --gres=none for no GPU"
  refused --gres=mps:b200:5 -- "there is no GPU of model 'b200' in the partition 'main': write one of h200"
  refused --gres=gpu:7 -- "7 GPUs of one node are more than any of the partition 'main' has: write at most 4"
  refused -G 2 --gpu-share=25% -- \
    "2 parts of GPUs on a node are not possible: ask for one, or for whole GPUs"
  refused --gres=gpu:1 --gpu-share=25% -- \
    "--gres='gpu:1' asks for whole GPUs and --gpu-share for a part of one: drop --gpu-share, or write --gpus=1 for a share"
  refused --gres=mps:25 --gpu-mem=1G -- \
    "--gres='mps:25' and --gpu-mem both say which part of a GPU: write only one of them"
  refused --gpu-share=0.25 -- \
    "--gpu-share='0.25' may mean a fraction or a percentage: write it as 25% or 0.25%"
  refused --gpu-mem=lots -- "--gpu-mem='lots' is no memory size: write a number with K, M, G or T, such as 8G"
}

@test "a step has what its job has, whatever words it asked by" {
  step='echo $SLURM_SHARDS_ON_NODE on $CUDA_VISIBLE_DEVICES'
  run -0 --separate-stderr srun --gres=mps:25 bash -c "$step"
  [[ $output == "35 on 0" ]]
  run -0 --separate-stderr srun --gpu-mem=8G bash -c "$step"
  [[ $output == "8 on 0" ]]
  run -0 --separate-stderr srun -G 1 --gpu-share=50% bash -c "$step"
  [[ $output == "70 on 0" ]]
  for options in --gres=gpu:1 "-G 1" "-G 1 --cpus-per-gpu=2" "-G 1 --mem-per-gpu=100" "--gres=gpu:1 --cpus-per-gpu=2"; do
    # shellcheck disable=SC2086
    run -0 --separate-stderr srun $options bash -c 'echo "$CUDA_VISIBLE_DEVICES"'
    echo "srun $options: $output $stderr"
    [[ $output == 0 ]]
    # shellcheck disable=SC2086
    run -0 --separate-stderr salloc -Q $options bash -c 'srun sh -c "echo \$CUDA_VISIBLE_DEVICES"; srun --gres=gpu:1 sh -c "echo \$CUDA_VISIBLE_DEVICES"'
    echo "salloc $options: $output $stderr"
    [[ $output == $'0\n0' ]]
    printf '#!/bin/sh\nsrun sh -c "echo \\$CUDA_VISIBLE_DEVICES"\nsrun --gres=gpu:1 sh -c "echo \\$CUDA_VISIBLE_DEVICES"\n' >job.sh
    # shellcheck disable=SC2086
    run -0 sbatch -W -o job.out $options job.sh
    cat job.out
    [[ $(grep -v aliquot: job.out) == $'0\n0' ]]
  done
}

@test "the site's own Lua runs first" {
  run -0 booked -J noted --gres=mps:25
  [[ $output == "shard:35|site: noted; aliquot: mps:25" ]]
  run -0 booked -J noted
  [[ $output == "site: noted" ]]
  run -1 sbatch -H -J closed --gres=mps:25 --wrap true
  [[ ${lines[0]} == "sbatch: error: closed today" ]]
  # Theirs fails: Slurm lets the job pass or not, as ever, but never with another booking.
  run booked -J broken --gres=mps:25
  [[ $status -ne 0 || $output == "shard:35|aliquot: mps:25" ]]
  grep -q "the site's own is broken" "$open/log/slurmctld.log"
}

@test "a pending job's GPUs are booked anew or not changed at all" {
  run -0 sbatch -H --parsable -o /dev/null --gres=mps:25 --wrap true
  id=$output
  run scontrol update "JobId=$id" Gres=mps:50
  echo "$output"
  show=$(scontrol show job "$id")
  if mixes; then
    [[ $status -ne 0 && $show == *"shard:35"* && $show == *"aliquot: mps:25"* ]]
    grep -q "this version of Slurm cannot change a job's GPUs" "$open/log/slurmctld.log"
  else
    [[ $status -eq 0 && $show == *"shard:70"* && $show == *"aliquot: mps:50"* ]]
  fi
  # Anything else may be changed, and theirs is asked too.
  scontrol update "JobId=$id" TimeLimit=10
  run ! scontrol update "JobId=$id" Comment=closed
  scancel "$id"
}

@test "shares are given only where the site says" {
  export SLURM_CONF=$gated/etc/slurm.conf
  course=(-A physics --reservation=jupyterhub_course_ml)
  run -0 booked "${course[@]}" --gres=mps:25
  [[ $output == "shard:35|aliquot: mps:25" ]]
  run -0 booked "${course[@]}" -p course --gpu-mem=8G
  [[ $output == "shard:8|aliquot: --gpu-mem=8G" ]]
  refused "${course[@]}" -p besteffort --gres=mps:25 -- \
    "parts of a GPU are given in the partitions course, ma?n only: write --partition, or --gres=gpu:1 for a whole GPU"
  refused "${course[@]}" -p main,besteffort --gres=mps:25 -- \
    "parts of a GPU are given in the partitions course, ma?n only: write --partition, or --gres=gpu:1 for a whole GPU"
  refused -A bio --reservation=jupyterhub_course_ml --gpu-share=25% -- \
    "parts of a GPU are given in the accounts phys* only: write --account, or --gres=gpu:1 for a whole GPU"
  refused -A physics --gres=shard:1 -- \
    "parts of a GPU are given in the reservations jupyterhub_course_* only: write --reservation, or --gres=gpu:1 for a whole GPU"
  refused -A physics --reservation=seminar --gres=shard:1 -- \
    "parts of a GPU are given in the reservations jupyterhub_course_* only: write --reservation, or --gres=gpu:1 for a whole GPU"
  run -0 booked --gres=gpu:1
  [[ $output == *"aliquot: gpu:1" ]]
  # Nor by moving there afterwards.
  run -0 sbatch -H --parsable -o /dev/null "${course[@]}" --gres=mps:25 --wrap true
  run ! scontrol update "JobId=$output" Partition=besteffort
}
