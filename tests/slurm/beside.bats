#!/usr/bin/env bats
# Nodes that share their GPUs beside nodes that do not: there everything is as Slurm alone has it.
bats_require_minimum_version 1.5.0
load helper
load submit_helper

# n1 shares its GPUs, n2 has Aliquot and does not, n3 has GPUs and gres/mps of the site's own.
setup_file() {
  cat >"$BATS_FILE_TMPDIR/partitions.conf" <<'END'
PartitionName=shared Nodes=n1
PartitionName=whole Nodes=n2
PartitionName=theirs Nodes=n3
END
  start_sandbox 12 --nodes 3 --gpus 4 --extra "$BATS_FILE_TMPDIR/partitions.conf" --set 'share.partitions=["shared"]'
  [[ -z ${SANDBOX_MISSING:-} ]] || return 0
  local etc=$SANDBOX/etc group
  group=$(sed -n 's/^# gpus: [^=]*=//p' "$etc/gres.conf")
  site_setup() { aliquot slurm setup --config "$etc/slurm.toml" --slurm-conf "$etc/slurm.conf" "$@" --apply; }
  {
    site_setup --undo &&
      sed -i -E '/^NodeName=n3 /s/$/ Gres=gpu:h200:4,mps:400/; /^PartitionName=(main|besteffort) /d' "$etc/slurm.conf" &&
      sed -i 's/^PartitionName=shared .*/& Default=YES/' "$etc/slurm.conf" &&
      echo GresTypes=gpu,mps >>"$etc/slurm.conf" &&
      printf 'NodeName=n3 Name=gpu Type=h200 File=%s\nNodeName=n3 Name=mps Count=400\n' \
        "$(sed "s/.*://; s/%n/n3/" <<<"$group")" >>"$etc/gres.conf" &&
      site_setup --gpus "n[1-2]=$group" &&
      "$(sandbox_program)" restart --dir "$SANDBOX"
  } >"$BATS_FILE_TMPDIR/setup" 2>&1 </dev/null 3>&- || { cat "$BATS_FILE_TMPDIR/setup"; return 1; }
}
teardown_file() { stop_sandbox; }
setup() { need_sandbox; }

@test "several GPUs take no more than themselves where nothing is shared" {
  run -0 as games sbatch --parsable -p whole --gres=gpu:2 -o /dev/null --wrap "sleep 600"
  first=$output
  run -0 as games sbatch --parsable -p whole -G 1 -o /dev/null --wrap "sleep 600"
  second=$output
  eventually eval '[[ $(squeue -h -t R -o %i | wc -l) -eq 2 ]]'
  run -0 scontrol show job "$first"
  [[ $output == *gres/gpu=2* && $output != *gres/shard* ]]
  run -0 scontrol show job "$second"
  [[ $output == *gres/gpu=1* && $output != *gres/shard* ]]
  scancel "$first" "$second"
}

@test "each task has its own GPU where nothing is shared" {
  run -0 --separate-stderr as games srun -p whole -n 3 --gpus-per-task=1 bash -c 'echo $CUDA_VISIBLE_DEVICES'
  echo "$output $stderr"
  [[ $(wc -l <<<"$output") -eq 3 && $output != *GPU-* ]]
  # And the program finds it there.
  run -0 --separate-stderr as games srun -p whole -G 2 aliquot-load --mem 1G --seconds 1 --json
  [[ $output == *'"device":"NVIDIA H200 (simulated)"'* ]]
}

@test "no part of a GPU where nothing is shared" {
  run ! as games srun -p whole --gpu-mem=8G true
  [[ $output == *"parts of a GPU are given in the partitions shared only"* ]]
  run -0 --separate-stderr as games srun --gpu-share=25% bash -c 'echo $SLURM_SHARDS_ON_NODE'
  [[ $output -gt 1 ]]
}

@test "Slurm's own gres/mps on nodes that are not ours" {
  run -0 --separate-stderr as games srun -p theirs --gres=mps:50 bash -c 'echo $CUDA_VISIBLE_DEVICES; scontrol show job $SLURM_JOB_ID'
  echo "$output $stderr"
  [[ ${lines[0]} == 0 && $output == *mps:50* && $output != *shard* ]]
  printf '#!/bin/sh\nsrun --gres=mps:25 bash -c %s\n' "'echo \$CUDA_VISIBLE_DEVICES'" >"$SANDBOX/out/job.sh"
  run -0 as games sbatch -W -p theirs --gres=mps:50 -o "$SANDBOX/out/mps.out" "$SANDBOX/out/job.sh"
  [[ $(<"$SANDBOX/out/mps.out") == 0 ]]
  run ! as games srun -p theirs --gpu-mem=8G true
  [[ $output == *"the GPUs of the partition 'theirs' are not shared"* ]]
  # There the node agent is not missed.
  kill -STOP "$(agent_pid n3)"
  run -0 --separate-stderr as games srun -p theirs --gres=gpu:1 true
  kill -CONT "$(agent_pid n3)"
}

@test "a job does not come into the company of shares by moving" {
  run -0 as games sbatch -H --parsable -p theirs --gres=gpu:1 -o /dev/null --wrap true
  theirs=$output
  run -0 as games sbatch -H --parsable -p whole --gres=gpu:1 -o /dev/null --wrap true
  whole=$output
  if mixes; then
    run ! scontrol update "JobId=$theirs" Partition=shared
    run ! scontrol update "JobId=$whole" Partition=shared
  fi
  scancel "$theirs" "$whole"
}
