#!/usr/bin/env bats
# Where parts of GPUs are given: partitions, accounts and reservations, as slurm.toml has them.
bats_require_minimum_version 1.5.0
load helper
load submit_helper

setup_file() {
  echo "PartitionName=course Nodes=ALL" >"$BATS_FILE_TMPDIR/course.conf"
  start_sandbox 8 --nodes 1 --extra "$BATS_FILE_TMPDIR/course.conf" \
    --set 'share.partitions=["course", "ma?n"]' --set 'share.accounts=["phys*"]' \
    --set 'share.reservations=["jupyterhub_course_*"]'
  [[ -z ${SANDBOX_MISSING:-} ]] || return 0
  for account in physics bio; do
    sacctmgr -i add account $account >/dev/null
    sacctmgr -i add user root account=$account >/dev/null
  done
  scontrol create reservation=jupyterhub_course_ml users=root starttime=now duration=60 nodes=ALL flags=ignore_jobs
  scontrol create reservation=seminar users=root starttime=now+1day duration=60 nodes=ALL
}
teardown_file() { stop_sandbox; }
setup() {
  need_sandbox
  look_at_gpus
}

@test "shares are given only where the site says" {
  course=(-A physics --reservation=jupyterhub_course_ml)
  run -0 booked "${course[@]}" --gres=mps:25
  [[ $output == "shard:$quarter|aliquot: mps:25" ]]
  run -0 booked "${course[@]}" -p course --gpu-mem=8G
  [[ $output == "shard:$(shards 8192)|aliquot: --gpu-mem=8G" ]]
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
