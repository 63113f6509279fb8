# Whatever is written to the daemon's socket, it goes on serving the others.
load helper

serves() {
  kill -0 "$daemon"
  [ "$(as news squeue -h -o %i)" = "" ]
}

@test "garbage, half requests and wrong lengths" {
  start_users
  head -c 200000 /dev/urandom | raw_as games 1 >/dev/null
  printf 'GET / HTTP/9.9\r\n\r\n' | raw_as games 1
  printf '\r\n\r\n\r\n' | raw_as games 1
  printf 'POST /v1/jobs HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n' | raw_as games 1
  printf 'POST /v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}' | raw_as games 1
  printf 'POST /v1/jobs HTTP/1.1\r\nContent-Length: 500\r\n\r\n{' | raw_as games 1
  printf 'POST /v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nffffffffffffffff\r\n' | raw_as games 1
  { printf 'GET /'; head -c 100000 /dev/zero | tr '\0' a; printf ' HTTP/1.1\r\n\r\n'; } | raw_as games 1
  serves
}

@test "paths that lead elsewhere" {
  start_users
  for path in / // /v1 /v1/ /v1/jobs/ /v1/jobs/.. /v1/jobs/../../etc/passwd /v1/jobs/%2e%2e%2fstate.db /v1/jobs/%00 /v1/jobs/7%2fcancel \
    /v1/jobs/-1 /v1/jobs/99999999999999999999 /v1/jobs/1_ /v1/jobs/_1 '/v1/jobs?id=%27%3bdrop%20table%20jobs' '/v1/accounting?name=%27%20or%201=1' /v1/jobs/1/steps/-1/end; do
    run raw_as games <<<"GET $path HTTP/1.1"$'\r\nHost: x\r\nConnection: close\r\n\r'
    [[ $output == "HTTP/1.1 "[24]* ]] || { echo "$path: $output"; false; }
    [[ $output != *root:x:0* ]]
    run post_as games "$path" '{}'
    [[ $output == "HTTP/1.1 4"* ]] || { echo "$path: $output"; false; }
  done
  serves
}

@test "JSON that is none, too deep, or of the wrong kind" {
  start_users
  deep=$(printf '[%.0s' {1..10000})
  for body in '' '{' '[]' 'null' '7' '"x"' "$deep" '{"name":{}}' '{"environment":7}' '{"environment":[[]]}' '{"name":"\ud800"}' '{"a":1e999999}'; do
    run post_as games /v1/jobs "$body"
    [[ $output == "HTTP/1.1 4"* ]] || { echo "${body:0:40}: $output"; false; }
  done
  serves
}

@test "many connections that say nothing" {
  start_users
  ulimit -n 4096 || skip "too few descriptors"
  as games perl -MSocket -e 'my @s; for (1..2100) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or last; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or last; syswrite($s, "POST /v1/jobs HTTP/1.1\r\n"); push @s, $s }
    my $shut = 0; for (1..1200) { $shut = 0; for (@s) { my $b; my $n = recv($_, $b, 12, MSG_PEEK | MSG_DONTWAIT); $shut++ if defined $n && $b eq "HTTP/1.1 503"; } last if $shut >= 52; select(undef, undef, undef, 0.1) }
    open(my $f, ">", "shut"); print $f $shut; close $f; rename "shut", "ready"; for (1..3000) { last if -e "enough"; select(undef, undef, undef, 0.1) }' >/dev/null 2>&1 3>&- &
  local many=$!
  eventually test -e "$work/games/ready"
  serves
  touch "$work/games/enough"
  wait "$many"
  # One user has no more than 2048.
  [ "$(cat "$work/games/ready")" -eq 52 ]
}
