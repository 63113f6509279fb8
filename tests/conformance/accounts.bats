# Accounts, limits, partitions and reservations, as Slurm's commands say them. What changes accounts is for a daemon of one's own.
load helper

# A daemon whose cluster and partitions are those of the transcripts.
start_lab() {
  cat >lab.toml <<'END'
[cluster]
name = "lab"
[partition.gpu]
default = true
[partition.debug]
max_time = "30:00"
tier = 10
[partition.spare]
tier = 0
preempt = "requeue"
END
  start_engine --config "$work/lab.toml"
}

has_reason() { [[ $(squeue -h -o %r -j "$1") == "$2" ]]; }
has_state() { [[ $(squeue -h -o %t -j "$1") == "$2" ]]; }

@test "what sbatch is told of accounts, qos and partitions that there are not" {
  [[ $ENGINE == local ]] || skip "changes accounts"
  start_lab
  sacctmgr -i add account vision >/dev/null
  run_case sbatch_bad_account 'sbatch -A nope sleep.sh'
  run_case sbatch_bad_qos 'sbatch -q nope sleep.sh'
  run_case sbatch_bad_part 'sbatch -p nope sleep.sh'
}

@test "sacctmgr adds, shows and deletes" {
  [[ $ENGINE == local ]] || skip "changes accounts"
  start_lab
  run_case sacctmgr_setup 'sacctmgr -i add account vision Description="vision lab" Organization=cs
    sacctmgr -i add account nlp Description="nlp lab" Organization=cs Fairshare=2
    sacctmgr -i add qos high Priority=1000 MaxWall=1:00:00 MaxTRESPerUser=gres/gpu=2
    sacctmgr -i add user games account=vision
    sacctmgr -i add user daemon account=nlp
    sacctmgr -i add user root account=vision
    sacctmgr -i modify user games set qos+=normal,high'
  run_case sacctmgr_show_account 'sacctmgr show account'
  run_case sacctmgr_show_user 'sacctmgr show user'
  run_case sacctmgr_show_tres 'sacctmgr show tres'
  run_case sacctmgr_show_qos 'sacctmgr show qos'
  run_case sacctmgr_p_show_qos 'sacctmgr -p show qos'
  run_case sacctmgr_show_assoc 'sacctmgr show assoc'
  run_case sacctmgr_P_show_assoc 'sacctmgr -P show assoc'
  run_case sacctmgr_show_assoc_tree 'sacctmgr show assoc tree format=account,user,share,grptres,qos'
  run_case client_ood_accounts 'sacctmgr -nP show users withassoc format=account,qos where user=games cluster=lab'
  # Without -i it asks, and nothing is done where nobody says yes.
  run bash -c 'echo n | sacctmgr delete qos high'
  [[ $output == *"Would you like to commit changes?"*"Changes Discarded"* ]]
  [[ $(sacctmgr -nP show qos format=name) == $'normal\nhigh' ]]
  echo y | sacctmgr delete qos high >/dev/null
  [[ $(sacctmgr -nP show qos format=name) == normal ]]
}

@test "a limit keeps a job, why says which, and a higher one lets it go" {
  [[ $ENGINE == local ]] || skip "changes accounts"
  start_lab
  sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=2 >/dev/null
  first=$(sbatch --parsable -o /dev/null -G 2 --wrap "$until_go")
  eventually has_state "$first" R
  second=$(sbatch --parsable -o /dev/null -G 1 --wrap true)
  eventually has_reason "$second" QOSMaxGRESPerUser
  run "$ALIQUOT_BIN/aliquot" why "$second"
  [[ $output == *"QOS normal lets each user hold 2 GPUs at once."*"holds 2 GPUs with job $first, and this job wants 1 GPU."* ]]
  sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=3 >/dev/null
  eventually has_no_jobs_but "$first"
  go
}
has_no_jobs_but() { [[ $(squeue -h -o %i) == "$1" ]]; }

@test "a job of a higher tier takes the place of another, which comes back" {
  [[ $ENGINE == local ]] || skip "has partitions of its own"
  start_lab
  spare=$(sbatch --parsable -p spare -G 4 -o spare.out --open-mode=append --wrap "echo begun; $until_go")
  eventually has_state "$spare" R
  urgent=$(sbatch --parsable -G 1 -o /dev/null --wrap "$until_go")
  eventually has_state "$urgent" R
  eventually grep -q 'CANCELLED AT .* DUE TO PREEMPTION' spare.out
  has_state "$spare" PD
  go
  eventually has_no_jobs
  [ "$(grep -c begun spare.out)" = 2 ]
}
has_no_jobs() { [[ -z $(squeue -h) ]]; }

@test "reservations and single GPUs" {
  [[ $ENGINE == local ]] || skip "reserves the machine"
  start_lab
  [[ $(scontrol show reservation) == "No reservations in the system" ]]
  [[ $(scontrol create reservation ReservationName=course Users=nobody Duration=60 TRES=gres/gpu=3) == "Reservation created: course" ]]
  [[ $(scontrol show reservation) == "ReservationName=course StartTime="*"Users=nobody"*"State=ACTIVE"* ]]
  [[ $(sinfo -h -T) == "course "*" ACTIVE "* ]]
  run sbatch --reservation=nope --wrap true
  [[ $status == 1 && $output == *"Requested reservation is invalid" ]]
  scontrol update NodeName="$(sinfo -h -o %n)" Gpu=3 State=DRAIN Reason="bad fan"
  [[ $(sinfo -h -R) == "gpu 3: bad fan "* ]]
  job=$(sbatch --parsable -G 1 -o /dev/null --wrap true)
  [[ $(squeue -h -o %t -j "$job") == PD ]]
  scontrol update NodeName="$(sinfo -h -o %n)" Gpu=3 State=RESUME
  eventually has_no_jobs
  scontrol delete reservation=course
  [[ $(scontrol show reservation) == "No reservations in the system" ]]
}
