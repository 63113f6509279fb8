# Who a job runs as is what the kernel says of the one who submits it, whatever else is claimed.
load helper

@test "the environment names another user" {
  start_users
  as games env USER=root LOGNAME=root HOME=/root SLURM_JOB_USER=root SLURM_JOB_UID=0 SLURM_JOB_GID=0 SUDO_UID=0 \
    SBATCH_UID=0 sbatch -W -o who --wrap 'id -un; id -u; id -G; echo $SLURM_JOB_USER $SLURM_JOB_UID $SLURM_JOB_GID'
  [ "$(cat "$work/games/who")" = "games
$(id -u games)
$(id -g games)
games $(id -u games) $(id -g games)" ]
  run as games env USER=root LOGNAME=root SLURM_JOB_USER=root srun id -un
  [ "$output" = games ]
}

@test "the request names another user" {
  start_users
  run post_as games /v1/jobs '{"uid":0,"user":"root","gid":0,"group":"root","name":"f","script":"#!/bin/sh\nid -un\n","work_dir":"'"$work/games"'","std_out":"who","account":"root"}'
  [[ $output == "HTTP/1.1 "* ]]
  if [[ $output == "HTTP/1.1 200"* ]]; then
    id=$(sed -n 's/.*"job_id":\([0-9]*\).*/\1/p' <<<"$output")
    eventually has_state "$id" COMPLETED
    [ "$(cat "$work/games/who")" = games ]
    [ "$(squeue -h -t all -j "$id" -o %u)" = games ]
  fi
  # Nor later.
  id=$(as games sbatch --parsable -H -o /dev/null --wrap true)
  post_as games "/v1/jobs/$id/update" '{"uid":0,"user":"root","batch":false,"script":"#!/bin/sh\n"}'
  [ "$(squeue -h -j "$id" -o %u)" = games ]
}

@test "headers name another user" {
  start_users
  run raw_as games <<<$'GET /v1/jobs/1 HTTP/1.1\r\nHost: x\r\nX-Forwarded-User: root\r\nAuthorization: Basic cm9vdDo=\r\nX-Remote-Uid: 0\r\nConnection: close\r\n\r'
  [[ $output == "HTTP/1.1 404"* ]]
  id=$(sbatch --parsable -H -o /dev/null --wrap true)
  run raw_as games <<<$'POST /v1/jobs/'"$id"$'/cancel HTTP/1.1\r\nHost: x\r\nX-Remote-Uid: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r'
  [[ $output == "HTTP/1.1 403"* ]]
  [ "$(squeue -h -j "$id" -o %t)" = PD ]
}

@test "a job has its user's groups and no way back" {
  start_users
  as games sbatch -W -o who --wrap 'id -G; grep -E "^(Uid|Gid|CapEff|CapPrm)" /proc/self/status'
  [[ $(head -1 "$work/games/who") == "$(id -G games)" ]]
  uid=$(id -u games)
  grep -qP "^Uid:\t$uid\t$uid\t$uid\t$uid$" "$work/games/who"
  grep -qP '^CapEff:\t0+$' "$work/games/who"
  grep -qP '^CapPrm:\t0+$' "$work/games/who"
}
