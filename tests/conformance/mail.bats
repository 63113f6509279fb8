# Mails and events of jobs.
load helper

setup_mail() {
  [[ $ENGINE == local ]] || skip "this Slurm sends no mail"
  mkdir -m 777 sent
  chmod 755 "$work"
  cat >sendmail <<SH
#!/bin/bash
{ echo "args: \$*"; id -un; cat; } >$work/sent/.\$\$ && mv $work/sent/.\$\$ $work/sent/\$\$
SH
  cat >event <<SH
#!/bin/bash
{ echo "\$1 \$2 \$SLURM_JOB_NAME \$SLURM_JOB_STATE"; id -un; cat; } >$work/sent/.e\$\$ && mv $work/sent/.e\$\$ $work/sent/e\$\$
SH
  chmod 755 sendmail event
}

@test "a mail at the end, by the user, with Slurm's subject" {
  setup_mail
  printf '[mail]\nprogram = "%s"\ndomain = "example.org"\n' "$work/sendmail" >settings.toml
  start_engine --config "$work/settings.toml"
  id=$(sbatch --parsable -J train -o /dev/null --mail-type=END --wrap 'exit 3')
  eventually bash -c "ls $work/sent/* >/dev/null 2>&1"
  cat sent/*
  [[ $(head -1 sent/*) == "args: -i -- $(id -un)@example.org" ]]
  [[ $(sed -n 2p sent/*) == "$(id -un)" ]]
  grep -q "^Subject: Slurm Job_id=$id Name=train Ended, Run time 00:00:0[0-9], FAILED, ExitCode 3$" sent/*
  grep -q "^To: $(id -un)@example.org$" sent/*
}

@test "without a program mail-type is refused, and NONE is not" {
  setup_mail
  printf '[mail]\nprogram = "%s"\n' "$work/nosuch" >settings.toml
  start_engine --config "$work/settings.toml"
  run sbatch -o /dev/null --mail-type=END --wrap true
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"no mail is sent here: there is no $work/nosuch"* ]]
  run sbatch -o /dev/null --mail-type=NONE --mail-user=ann --wrap true
  [ "$status" -eq 0 ]
}

@test "an address that is an option is refused" {
  setup_mail
  printf '[mail]\nprogram = "%s"\n' "$work/sendmail" >settings.toml
  start_engine --config "$work/settings.toml"
  run sbatch -o /dev/null --mail-type=END --mail-user=-Cx --wrap true
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"is no mail address"* ]]
}

@test "the site's command hears of every job, as nobody" {
  setup_mail
  printf '[events]\ncommand = "%s"\n' "$work/event" >settings.toml
  start_engine --config "$work/settings.toml"
  id=$(sbatch --parsable -J train -o /dev/null --wrap true)
  eventually bash -c "[[ \$(ls $work/sent | wc -l) -eq 2 ]]"
  cat sent/*
  grep -qx "BEGIN $id train RUNNING" sent/*
  grep -qx "END $id train COMPLETED" sent/*
  [[ $EUID -ne 0 ]] || [ "$(grep -lx nobody sent/* | wc -l)" -eq 2 ]
  grep -q '"name":"train"' sent/*
}

@test "exit codes of the settings send a job back" {
  [[ $ENGINE == local ]] || skip "RequeueExit is of slurm.conf"
  printf '[jobs]\nrequeue_exit_hold = "70-79"\n' >settings.toml
  start_engine --config "$work/settings.toml"
  id=$(sbatch --parsable -o /dev/null --wrap 'exit 75')
  eventually bash -c "[[ \$(squeue -h -o '%t %r' -j $id) == 'PD JobHeldUser' ]]"
  [[ $(scontrol show job "$id") == *"Restarts=1"* ]]
}
