#!/usr/bin/env bats
# What a job books, what is refused and in which words, as sbatch, srun and salloc see it: through slurmctld of a
# sandbox with two nodes of four H200, on whichever Slurm this machine has.
bats_require_minimum_version 1.5.0

load helper
load submit_helper

setup_file() {
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
  start_sandbox 7 --nodes 2 --job-submit "$BATS_FILE_TMPDIR/site.lua"
}
teardown_file() { stop_sandbox; }
setup() {
  need_sandbox
  look_at_gpus
  cd "$BATS_TEST_TMPDIR" || return
}

@test "shares are booked in shards, and what was asked stands in the admin comment" {
  run -0 booked --gres=mps:25
  [[ $output == "shard:$quarter|aliquot: mps:25" ]]
  run -0 booked --gres=shard:2
  [[ $output == "shard:$quarter|aliquot: shard:2" ]]
  run -0 booked --gres=shard:h200:4
  [[ $output == "shard:h200:$((all / 2))|aliquot: shard:h200:4" ]]
  run -0 booked --gpu-mem=8G
  [[ $output == "shard:$(shards 8192)|aliquot: --gpu-mem=8G" ]]
  run -0 booked --gpu-mem=8G --gpu-share=50%
  [[ $output == "shard:$((all / 2))|aliquot: --gpu-mem=8G --gpu-share=50%" ]]
  run -0 booked -G 1 --gpu-share=12.5%
  [[ $output == "shard:$(((all + 7) / 8))|aliquot: --gpu-share=12.5%" ]]
  run -0 booked --gres=mps:25 -N 2
  [[ $output == "shard:$quarter|aliquot: mps:25" ]]
  printf '#!/bin/sh\n#SBATCH --gpu-mem=3G\ntrue\n' >job.sh
  run -0 sbatch -H --parsable -o /dev/null job.sh
  scontrol show job "$output" | grep -q "TresPerNode=gres.shard:$(shards 3072)\$"
  scancel "$output"
}

@test "whole GPUs are Slurm's own, or all their shards where it would mix them" {
  for options in --gres=gpu:1 "-G 1" --gpus-per-node=1 "--gpus-per-task=1 -n 1" --gres=gpu:h200:1; do
    # shellcheck disable=SC2086
    run -0 booked $options
    echo "$options: $output"
    if ! mixes; then
      [[ $output == *gpu[:=]*"|aliquot: gpu:"*"1" && $output != *shard* ]]
    elif [[ $options == *h200* ]]; then
      [[ $output == "shard:h200:$all|aliquot: gpu:h200:1" ]]
    else
      [[ $output == "shard:$all|aliquot: gpu:1" ]]
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

@test "what cannot be is refused in a sentence" {
  refused --gpu-mem=200G -- \
    "--gpu-mem=200G is more than any GPU of the partition 'main' has: write at most --gpu-mem=${memory}M"
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

# The one GPU of a step, by whatever name.
one_gpu='[[ -n $CUDA_VISIBLE_DEVICES && $CUDA_VISIBLE_DEVICES != *,* ]] && echo "one GPU"'

@test "a step has what its job has, whatever words it asked by" {
  run -0 --separate-stderr srun --gres=mps:25 bash -c 'echo $SLURM_SHARDS_ON_NODE'
  [[ $output == "$quarter" ]]
  run -0 --separate-stderr srun --gpu-mem=8G bash -c 'echo $SLURM_SHARDS_ON_NODE'
  [[ $output == "$(shards 8192)" ]]
  run -0 --separate-stderr srun -G 1 --gpu-share=50% bash -c 'echo $SLURM_SHARDS_ON_NODE'
  [[ $output == "$((all / 2))" ]]
  export one_gpu
  for options in --gres=gpu:1 "-G 1" "-G 1 --cpus-per-gpu=2" "-G 1 --mem-per-gpu=100"; do
    # shellcheck disable=SC2086
    run -0 --separate-stderr srun $options bash -c "$one_gpu"
    echo "srun $options: $output $stderr"
    [[ $output == "one GPU" ]]
    # shellcheck disable=SC2086,SC2016
    run -0 --separate-stderr salloc -Q $options bash -c 'srun bash -c "$one_gpu"; srun --gres=gpu:1 bash -c "$one_gpu"'
    echo "salloc $options: $output $stderr"
    [[ $output == $'one GPU\none GPU' ]]
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nsrun bash -c "$one_gpu"\nsrun --gres=gpu:1 bash -c "$one_gpu"\n' >job.sh
    # shellcheck disable=SC2086
    run -0 sbatch -W -o job.out $options job.sh
    cat job.out
    [[ $(grep -c "one GPU" job.out) -eq 2 ]]
  done
}

@test "a step of a job that --jobid names has what that job has, from wherever" {
  shards_here='echo $SLURM_SHARDS_ON_NODE'
  export shards_here
  id=$(sbatch --parsable -o /dev/null --gpu-mem=8G --wrap "sleep 600")
  eventually has_state "$id" RUNNING
  run -0 --separate-stderr srun --jobid="$id" bash -c "$shards_here"
  [[ $output == "$(shards 8192)" ]]
  run -0 --separate-stderr srun --jobid="$id" --gpu-mem=4G bash -c "$shards_here"
  [[ $output == "$((($(shards 8192) + 1) / 2))" ]]
  # Inside of another job.
  run -0 --separate-stderr salloc -Q --gres=mps:25 srun --jobid="$id" --gpu-mem=4G bash -c "$shards_here"
  [[ $output == "$((($(shards 8192) + 1) / 2))" ]]
  run -1 srun --jobid="$id" --gpu-mem=16G true
  [[ $output == *"--gpu-mem=16G is more than its job has (--gpu-mem=8G)"* ]]
  run -1 srun --jobid="$id" --gres=mps:10 true
  [[ $output == *"its steps say how much of that they get in the same words"* ]]
  scancel "$id"
}

@test "one GPU on each of several nodes, by whichever words" {
  export one_gpu
  for options in "-G 2" "-n 2 --gpus-per-task=1" --gpus-per-node=1; do
    # shellcheck disable=SC2086
    run -0 --separate-stderr srun -N 2 $options bash -c "$one_gpu"
    echo "srun -N 2 $options: $output $stderr"
    [[ $output == $'one GPU\none GPU' ]]
  done
  # shellcheck disable=SC2016
  run -0 --separate-stderr salloc -Q -N 2 -G 2 bash -c 'srun bash -c "$one_gpu"'
  [[ $output == $'one GPU\none GPU' ]]
}

@test "the site's own Lua runs first" {
  run -0 booked -J noted --gres=mps:25
  echo "$output"
  [[ $output == "shard:$quarter|site: noted; aliquot: mps:25" ]]
  run -0 booked -J noted
  [[ $output == "site: noted" ]]
  run -1 sbatch -H -J closed --gres=mps:25 --wrap true
  [[ ${lines[0]} == "sbatch: error: closed today" ]]
  # Theirs fails: Slurm lets the job pass or not, as ever, but never with another booking.
  run booked -J broken --gres=mps:25
  [[ $status -ne 0 || $output == "shard:$quarter|aliquot: mps:25" ]]
  grep -q "the site's own is broken" "$SANDBOX/log/slurmctld.log"
}

@test "a pending job's GPUs are booked anew or not changed at all" {
  run -0 sbatch -H --parsable -o /dev/null --gres=mps:25 --wrap true
  id=$output
  run scontrol update "JobId=$id" Gres=mps:50
  echo "$output"
  show=$(scontrol show job "$id")
  if mixes; then
    [[ $status -ne 0 && $show == *"shard:$quarter"* && $show == *"aliquot: mps:25"* ]]
    grep -q "this version of Slurm cannot change a job's GPUs" "$SANDBOX/log/slurmctld.log"
  else
    [[ $status -eq 0 && $show == *"shard:$((all / 2))"* && $show == *"aliquot: mps:50"* ]]
  fi
  # Anything else may be changed, and theirs is asked too.
  scontrol update "JobId=$id" TimeLimit=10
  run ! scontrol update "JobId=$id" Comment=closed
  scancel "$id"
}
