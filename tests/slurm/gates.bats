#!/usr/bin/env bats
# Where parts of GPUs are given: partitions, accounts and reservations, as slurm.toml has them, what they count in there, and
# on which GPU of the node (share.placement).
bats_require_minimum_version 1.5.0
load helper
load submit_helper

setup_file() {
  printf "%s\n" "PartitionName=course Nodes=ALL" PriorityType=priority/multifactor >"$BATS_FILE_TMPDIR/course.conf"
  start_sandbox 8 --nodes 1 --extra "$BATS_FILE_TMPDIR/course.conf" \
    --set 'share.partitions=["course", "ma?n"]' --set 'share.accounts=["phys*"]' \
    --set 'share.reservations=["jupyterhub_course_*"]' --set 'share.placement="aliquot"' \
    --set 'partition.course={ mps_per_gpu = 80, overcommit = 2.0 }'
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
  # Nor by moving there afterwards, or by leaving.
  run -0 sbatch -H --parsable -o /dev/null "${course[@]}" --gres=mps:25 --wrap true
  id=$output
  for change in Partition=besteffort Account=bio ReservationName=seminar ReservationName=; do
    run ! scontrol update "JobId=$id" "$change"
    echo "$change: $output"
  done
  [[ $output == *"Access denied to requested reservation"* ]]
  grep -q "refused: parts of a GPU are given in the reservations" "$SANDBOX/log/slurmctld.log"
  [[ $(field "$id" Reservation) == jupyterhub_course_ml ]]
  scontrol update "JobId=$id" ReservationName=jupyterhub_course_ml
  scancel "$id"
}

@test "a partition counts in its own, and fair share counts shares" {
  course=(-A physics -t 5 --reservation=jupyterhub_course_ml)
  run -0 booked "${course[@]}" -p course --gres=mps:20
  [[ $output == "shard:$quarter|aliquot: mps:20" ]]
  run -0 booked "${course[@]}" -p course --gpu-mem=1G --gpu-share=50%
  [[ $output == "shard:$quarter|aliquot: --gpu-mem=1G --gpu-share=50%" ]]
  run -0 booked "${course[@]}" -p main,course --gpu-mem=1G --gpu-share=50%
  [[ $output == "shard:$((all / 2))|aliquot: --gpu-mem=1G --gpu-share=50%" ]]
  refused "${course[@]}" -p course --gres=mps:81 -- "mps:81 is more than one GPU: write at most mps:80, or gpu:1 for a whole one"
  run -0 srun "${course[@]}" --gres=mps:50 sleep 3
  shards_counted() { [[ $(sshare -n -P -A physics -o GrpTRESRaw | tr ',' '\n' | sed -n 's/^gres.shard=//p' | sort -n | tail -1) -ge 1 ]]; }
  eventually shards_counted
}

# given: the GPUs of each job that has begun, a line for each.
given() { cat "$SANDBOX"/out/gpu.* 2>/dev/null; }
begun() { [[ $(given | wc -l) -eq $1 ]]; }
# shellcheck disable=SC2016
tell='echo "$SLURM_JOB_GPUS" >"$SANDBOX/out/gpu.$SLURM_JOB_ID"'

# Tickets as a course counts them, 80 to a GPU, and how many of each run together on four GPUs: two fifths fit twice on one.
@test "a burst fills the GPUs of the node evenly, whatever the size" {
  course=(-A physics -t 5 --reservation=jupyterhub_course_ml -p course)
  export SANDBOX
  idle() { [[ -z $(squeue -h) ]]; }
  for each in 80:4 40:8 32:8 20:16 16:20; do
    size=${each%:*} together=${each#*:}
    rm -f "$SANDBOX"/out/gpu.*
    for ((i = 0; i < together; i++)); do submit root "$tell; sleep 300" "${course[@]}" -n 1 --gres=mps:$size >/dev/null; done
    eventually begun "$together"
    given | sort | uniq -c
    [[ $(given | sort | uniq -c | awk '{ print $1 }' | sort -u) == "$((together / 4))" ]]
    if [[ $size == 16 ]]; then
      one_more=$(submit root "$tell; sleep 300" "${course[@]}" --gres=mps:$size)
      # slurmctld has tried.
      no_room() { [[ $(field "$one_more" Reason) == Resources ]]; }
      eventually no_room
      has_state "$one_more" PENDING
    fi
    scancel -u root
    eventually idle
    sleep 2 # what ended a moment ago still holds its GPUs in the jobs that slurmctld shows the script
  done
}

@test "two whole GPUs are two, beside shares" {
  course=(-A physics -t 5 --reservation=jupyterhub_course_ml -p course)
  export SANDBOX
  rm -f "$SANDBOX"/out/gpu.*
  for _ in 1 2; do submit root "$tell; sleep 300" "${course[@]}" --gres=mps:16 >/dev/null; done
  eventually begun 2
  # Its end is in another second than its beginning: slurmctld makes the script's list of jobs anew only for that.
  run -0 --separate-stderr srun "${course[@]}" -G 2 bash -c 'echo "${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}"; sleep 1.5'
  echo "$output"
  [[ $output =~ ^[0-3],[0-3]$ ]]
  for gpu in ${output//,/ }; do run ! grep -qx "$gpu" "$SANDBOX"/out/gpu.*; done
  only_shares() { [[ $(squeue -h | wc -l) -eq 2 ]]; }
  eventually only_shares
  submit root "$tell; sleep 300" "${course[@]}" --gres=gpu:2 >/dev/null
  eventually begun 3
  scancel -u root
}

@test "another gate holds from the next job on, without a restart" {
  sleep 2 # slurmctld compares times in seconds
  sed -i 's/^accounts = .*/accounts = ["bio"]/' "$ALIQUOT_SLURM_CONFIG"
  run -0 aliquot slurm setup --apply
  echo "$output"
  [[ $output == *'+    accounts = {"bio"},'* ]]
  [[ ${lines[-1]} == "Nothing is to be restarted. slurmctld reads the Lua with the next job." ]]
  run -0 booked -A bio --reservation=jupyterhub_course_ml --gres=mps:25
  [[ $output == "shard:$quarter|aliquot: mps:25" ]]
  refused -A physics --reservation=jupyterhub_course_ml --gres=mps:25 -- \
    "parts of a GPU are given in the accounts bio only: write --account, or --gres=gpu:1 for a whole GPU"
}
