# What one user sends, keeps or does not read costs that user, not the daemon and not the others.
load helper

held='{"script":"#!/bin/sh\n","hold":true,"name":"x","work_dir":"/"'

@test "the queue is limited, for all and for each" {
  start_users "$(settings '[limits]
max_job_count = 8
max_submit_jobs_per_user = 5')"
  for _ in 1 2 3 4 5; do as games sbatch -H -o /dev/null --wrap true; done
  run as games sbatch -H -o /dev/null --wrap true
  [ "$status" -eq 1 ]
  [[ ${lines[0]} == "sbatch: error: 5 of your jobs wait or run: with this more than limits.max_submit_jobs_per_user allows, 5" ]]
  [[ ${lines[1]} == "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"* ]]
  # Each element counts.
  run answer_as news /v1/jobs "$held,\"array\":\"1-6\"}"
  [[ $output == "403 "*ESLURM_ACCOUNTING_POLICY* ]]
  as news sbatch -H -o /dev/null --array=1-3 --wrap true
  # Full, for root as well; room comes back.
  mkdir "$work/root"
  for user in news root; do
    run answer_as "$user" /v1/jobs "$held}"
    [[ $output == "503 "*'"EAGAIN"'*"the queue is full: 8 jobs wait or run"* ]]
  done
  as games scancel 1
  as news sbatch -H -o /dev/null --wrap true
  [[ $(scontrol show config | grep MaxJobCount) == *" 8" ]]
}

@test "a full queue: sbatch tries again" {
  start_users "$(settings '[limits]
max_job_count = 1')"
  as games sbatch -H -o /dev/null --wrap true
  as news sbatch -H -o /dev/null --wrap true >"$work/said" 2>&1 &
  local patient=$!
  eventually grep -q 'sleeping and retrying' "$work/said"
  as games scancel 1
  wait "$patient"
  grep -q 'Submitted batch job' "$work/said"
}

@test "arrays, dependencies and options are limited" {
  start_users "$(settings '[limits]
max_dependencies = 3')"
  as games sbatch -H -o /dev/null --array=1000 --wrap true
  run as games sbatch -H -o /dev/null --array=1001 --wrap true
  [ "${lines[0]}" = "sbatch: error: Batch job submission failed: Invalid job array specification" ]
  as games sbatch -H -o /dev/null -d afterany:1:1:1 --wrap true
  run answer_as games /v1/jobs "$held,\"dependency\":\"afterany:1:1:1:1\"}"
  [[ $output == "400 "*"4 dependencies are more than limits.max_dependencies allows, 3"* ]]
  local long
  long=$(printf 'gpu:1,%.0s' {1..20000})
  for field in gres gpus gpus_per_node dependency array gpu_mem constraint command; do
    run answer_as games /v1/jobs "$held,\"$field\":\"$long\"}"
    [[ $output == "400 "* ]] || { echo "$field: $output"; false; }
  done
}

@test "scripts, environments and arguments are limited" {
  start_users "$(settings '[limits]
max_script_size = "100K"
max_environment_size = "200K"')"
  run answer_as games /v1/jobs "{\"script\":\"#!/bin/sh $(head -c 110000 /dev/zero | tr '\0' '#')\"}"
  [[ $output == "400 "*"the script has "*"more than limits.max_script_size allows, 100K"* ]]
  local word list
  word=$(head -c 100000 /dev/zero | tr '\0' x)
  list=$(printf "\"A=$word\",%.0s" {1..3})
  for field in environment arguments; do
    run answer_as games /v1/jobs "$held,\"$field\":[${list%,}]}"
    [[ $output == "400 "*"environment and arguments have "*"limits.max_environment_size"* ]]
    run answer_as games /v1/jobs "$held,\"$field\":[\"B=$word$word\"]}"
    [[ $output == "400 "*"the kernel starts no program"* ]]
  done
  # What is within them arrives.
  id=$(as games sbatch --parsable -W -o out --wrap 'printf %s "$BIG" | wc -c' --export=NONE,BIG="${word:0:90000}")
  [ "$(cat "$work/games/out")" = 90000 ]
  printf '#!/bin/sh\nprintf %%s "$2" | wc -c\n' >"$work/games/args.sh"
  chown games "$work/games/args.sh"
  as games sbatch -W -o out2 args.sh one "$word"
  [ "$(cat "$work/games/out2")" = 100000 ]
}

@test "many large jobs stay out of memory, and stop at a user's part of the disk" {
  start_users "$(settings '[limits]
max_stored_per_user = "100M"')"
  local before
  before=$(resident)
  as games perl -MSocket -e '
    my $big = "#" x 3_900_000; my $accepted = 0;
    socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
    for (1..60) {
      my $body = "{\"script\":\"#!/bin/sh\\n$big\",\"hold\":true,\"work_dir\":\"/\"}";
      my $all = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
      while (length $all) { my $n = syswrite($s, $all) or die; substr($all, 0, $n) = ""; }
      sysread($s, my $answer, 65536) or die; $accepted++ if $answer =~ /^HTTP.1.1 200/; $last = $answer; }
    print "$accepted $last";' >"$work/said"
  [[ $(head -n 1 "$work/said") == 2[0-9]" HTTP/1.1 403"* ]]
  grep -q 'limits.max_stored_per_user allows, 100M' "$work/said"
  as news sbatch -H -o /dev/null --wrap true
  sanitized || [ "$(($(resident) - before))" -lt 60 ]
}

@test "answers that nobody reads cost their user" {
  start_users
  local long
  long=$(head -c 4000 /dev/zero | tr '\0' p)
  as games perl -MSocket -e '
    my $long = shift; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
    my $body = "{\"script\":\"#!/bin/sh\\n\",\"hold\":true,\"work_dir\":\"/$long\",\"command\":\"$long\",\"std_out\":\"/$long\",\"std_in\":\"/$long\"}";
    for (1..400) {
      syswrite($s, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: " . length($body) . "\r\n\r\n$body") or die;
      sysread($s, my $answer, 65536) or die; $answer =~ /^HTTP.1.1 200/ or die $answer; }' "$long"
  local before
  before=$(resident)
  as games perl -MSocket -e 'my @s; for (1..100) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
    syswrite($s, "GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n"); push @s, $s } open(my $f, ">", "ready"); close $f; sleep 600' &
  local readers=$!
  eventually test -e "$work/games/ready"
  # Others are served meanwhile, and the daemon has a few of the hundred answers at most.
  for _ in 1 2 3 4 5; do [ "$(as news squeue -h | wc -l)" -eq 400 ]; done
  sanitized || [ "$(($(resident) - before))" -lt 150 ]
  kill "$readers"
}

@test "connections: each user has some, and root always gets in" {
  start_users "$(settings '[limits]
max_connections = 20
max_connections_per_user = 15')"
  as games perl -MSocket -e 'my @s; for (1..16) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die; push @s, $s }
    sysread($s[15], my $said, 1000); open(my $f, ">", "said"); print $f $said; close $f; rename "said", "ready"; sleep 600' &
  local first=$!
  eventually test -e "$work/games/ready"
  grep -q '^HTTP/1.1 503' "$work/games/ready"
  grep -q 'you have too many connections to the daemon' "$work/games/ready"
  [ -z "$(as news squeue -h)" ]
  as news perl -MSocket -e 'my @s; for (1..8) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die; push @s, $s }
    sysread($s[7], my $said, 1000); open(my $f, ">", "said"); print $f $said; close $f; rename "said", "ready"; sleep 600' &
  local second=$!
  eventually test -e "$work/news/ready"
  grep -q 'the daemon has too many connections' "$work/news/ready"
  run as games squeue -h
  [ "$status" -ne 0 ]
  [[ $output == *"too many connections"* ]]
  [ -z "$(squeue -h)" ]
  kill "$first" "$second"
}

@test "who waited for a job and hung up has no connection any more" {
  start_users "$(settings '[limits]
max_connections_per_user = 4')"
  as games sbatch -H -o /dev/null --wrap true
  for _ in 1 2 3 4 5 6 7 8; do
    as games perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
      syswrite($s, "GET /v1/jobs/1/wait HTTP/1.1\r\nHost: x\r\n\r\n"); select(undef, undef, undef, 0.2)'
  done
  [ "$(as games squeue -h -o %i)" = 1 ]
}
