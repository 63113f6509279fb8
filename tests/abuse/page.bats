# What may be asked of the page by TCP: page_walk.py asks at random, as nobody, with tokens that are none any more, and
# with another user's.
load helper

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# ask PATH TOKEN: the status, and what is said.
ask() {
  python3 -c 'import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
try: answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error: answer = error
print(answer.status, answer.read().decode())' "http://127.0.0.1:$port$1" "$2"
}
token_of() { # USER OPTION…
  local user=$1
  shift
  as "$user" "$ALIQUOT_BIN/aliquot" token --json "$@" | sed 's/.*"token":"\([0-9a-f]*\)".*/\1/'
}
# Whatever nobody may change by TCP.
all_there_is() {
  squeue -h -a -o '%i %T %r %u %a %j %l %P %E' | sort
  scontrol show node | grep -E 'State|Reason'
  scontrol show reservation
  sacctmgr -nP show assoc format=User,Account,QOS 2>&1
}

@test "whatever is asked by TCP, nothing of another user's is told and nothing is changed" {
  port=$(free_port)
  secret=secret$RANDOM$RANDOM$RANDOM
  start_users "$(settings "$(printf '[page]\nport = %s\n' "$port")")"
  folder=$work/games/$secret
  as games mkdir "$folder"
  printf '#!/bin/bash\n# %s is in the script as well\necho "the log has it: $WORD"\nsleep 600\n' "$secret" >"$folder/job.sh"
  chmod 644 "$folder/job.sh"
  submit() { as games env WORD="$secret" sbatch --parsable -D "$folder" --comment "$secret" "$@" "$folder/job.sh"; }
  runs=$(submit --gpu-mem=8G)
  eventually grep -qs "$secret" "$folder/slurm-$runs.out"
  whole=$(submit --gres=gpu:3)
  eventually has_state "$whole" RUNNING
  ended=$(submit --gpu-mem=1G)
  eventually has_state "$ended" RUNNING
  as games scancel "$ended"
  eventually has_state "$ended" CANCELLED
  waits=$(submit --gres=gpu:4)
  held=$(submit --hold --array=1-3)

  # Its owner is told: so it would be seen.
  revoked=$(token_of games)
  [[ $(ask "/v1/jobs/$runs?script=1" "$revoked") == "200 "*"$secret"* ]]
  [[ $(ask "/v1/jobs/$runs/log" "$revoked") == "200 "*"$secret"* ]]
  as games "$ALIQUOT_BIN/aliquot" token --revoke
  expired=$(token_of games --for 0:01)
  is_over() { [[ $(ask /v1/me "$expired") == 401* ]]; }
  eventually is_over
  other=$(token_of news)
  [[ $(ask /v1/me "$other") == 200*news* ]]

  before=$(all_there_is)
  run timeout 240 python3 "$BATS_TEST_DIRNAME/page_walk.py" "$port" 12 "$secret" "$runs,$whole,$ended,$waits,$held,${held}_2" \
    revoked="$revoked" expired="$expired" other="$other"
  echo "$output"
  [ "$status" -eq 0 ]
  diff <(echo "$before") <(all_there_is)
  kill -0 "$daemon"
  # Tokens were neither made nor taken away.
  [[ $(ask /v1/me "$other") == 200*news* ]]
}
