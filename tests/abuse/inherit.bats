# A job has what its submitter had, or what a login gives: nothing that the daemon was started with.
load helper

# A daemon that was started with all kinds of things no job may have.
start_burdened() {
  [[ $(uname -m) == x86_64 ]] || skip "knows the numbers of system calls on x86_64"
  command -v perl >/dev/null || skip "needs perl"
  mkdir "$work/burdened"
  cat >"$work/burdened/aliquotd" <<SH
#!/bin/bash
# Better off than its jobs where it may, else worse off.
echo -900 >/proc/self/oom_score_adj || echo 500 >/proc/self/oom_score_adj
ulimit -Sn 600; ulimit -Hn 5000; ulimit -St 700
trap '' USR1 HUP
exec nice -n -5 taskset 1 perl -e '(\$t, \$n, \$k) = ("user", "aliquot-secret", "x"); syscall(250, 1, 0); syscall(248, \$t, \$n, \$k, 1, -3); exec @ARGV' "$ALIQUOT_BIN/aliquotd" "\$@"
SH
  chmod 755 "$work/burdened/aliquotd"
  ALIQUOT_BIN=$work/burdened start_users
}

# limited COMMAND…: as games with limits of its own.
limited() {
  as games bash -c 'ulimit -n 888; ulimit -Sn 777; ulimit -t 1000; ulimit -St 900; ulimit -l 64; umask 027; exec "$@"' _ "$@"
}

show='cat /proc/self/oom_score_adj; nice; nproc; grep -c aliquot-secret /proc/keys; grep -E "^(CapInh|CapPrm|CapEff|CapAmb|SigIgn|SigBlk|Groups|NoNewPrivs)" /proc/self/status; umask'

@test "oom score, priority, CPUs, keys, capabilities, signals and groups are a login's" {
  start_burdened
  as games sbatch -W -o out --wrap "$show"
  expected="0
0
$(nproc)
0
SigBlk:	0000000000000000
SigIgn:	0000000000000000
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	0"
  diff <(head -4 <<<"$expected"; tail -n +5 <<<"$expected" | sort) \
    <(head -4 "$work/games/out"; grep -E '^(Sig|Cap|NoNew)' "$work/games/out" | sort)
  [ "$(sed -n 's/^Groups:\t//p' "$work/games/out" | xargs)" = "$(id -G games)" ]
}

@test "soft limits go with the job, as --propagate has it; hard ones are the submitter's" {
  start_burdened
  ulimits='ulimit -Sn; ulimit -Hn; ulimit -St; ulimit -Ht; ulimit -Sl; umask'
  limited sbatch -W -o out --wrap "$ulimits"
  [ "$(xargs <"$work/games/out")" = "777 888 900 1000 64 0027" ]
  limited sbatch -W -o out --propagate=NONE --wrap "$ulimits"
  [ "$(xargs <"$work/games/out")" = "600 888 700 1000 64 0027" ]
  limited sbatch -W -o out --propagate=RLIMIT_CPU,STACK --wrap "$ulimits"
  [ "$(xargs <"$work/games/out")" = "600 888 900 1000 64 0027" ]
  run limited srun bash -c "$ulimits"
  [ "$(xargs <<<"$output")" = "777 888 900 1000 64 0027" ]
  run as games sbatch --propagate=FILES --wrap true
  [ "$status" -eq 1 ]
  [ "$output" = "sbatch: error: Bad rlimit name: FILES
sbatch: error: --propagate=FILES is not valid." ]
}

@test "nothing a request says raises a limit" {
  start_burdened
  body='{"script":"#!/bin/sh\nulimit -Hn >out\n","work_dir":"'"$work/games"'","propagate":["NOFILE"],"limits":[{"resource":7,"soft":4000,"hard":4000}]}'
  as games bash -c 'ulimit -n 321; exec perl -MSocket -e '"'"'
    socket(my $s, AF_UNIX, SOCK_STREAM, 0); connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
    syswrite($s, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: " . length($ARGV[0]) . "\r\n\r\n$ARGV[0]"); sysread($s, $_, 65536); print'"'"' "$1"' _ "$body"
  eventually test -s "$work/games/out"
  [ "$(cat "$work/games/out")" = 321 ]
  id=$(as games sbatch --parsable -H -o /dev/null --wrap true)
  post_as games "/v1/jobs/$id/update" '{"limits":[{"resource":7}]}' >/dev/null
  rm "$work/games/out"
  as games bash -c 'ulimit -n 321; sbatch -H --parsable --wrap "ulimit -Hn >out" >id'
  post_as games "/v1/jobs/$(cat "$work/games/id")/update" '{"limits":[{"resource":7}]}' >/dev/null
  as games scontrol release "$(cat "$work/games/id")"
  eventually test -s "$work/games/out"
  [ "$(cat "$work/games/out")" = 321 ]
}

@test "a job has only so many processes" {
  start_users
  id=$(as games sbatch --parsable -o /dev/null --wrap 'sleep 600')
  eventually has_state "$id" RUNNING
  limit() { find /sys/fs/cgroup -path "*/job_$id/pids.max" 2>/dev/null | head -1; }
  [ -n "$(limit)" ] || skip "no pids controller here"
  [[ $(cat "$(limit)") =~ ^[0-9]+$ ]]
}
