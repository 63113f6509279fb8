# What is open in us is ours: a connection to the daemon speaks as the one who made it.
load helper

# ls itself reads the folder with a fourth.
only_three() { [ "$1" = "0 1 2 3" ] || { echo "open: $1"; false; }; }
list='ls /proc/self/fd | xargs'

# shared_with_daemon PID: connections and the daemon's own files that both have open, besides the first three.
shared_with_daemon() {
  comm -12 <(open_in "$1" | sort -u) <(open_in "$daemon" | sort -u)
}
open_in() {
  local fd
  for fd in /proc/"$1"/fd/*; do
    [[ ${fd##*/} -gt 2 ]] && readlink "$fd"
  done | grep -E "^(socket:|pipe:|$work/state/(state|jobs|lock)|$work/aliquotd)" || true
}

@test "a task, a script, a shell and a task in a terminal have 0, 1 and 2" {
  start_users
  run as games srun bash -c "$list" 3>&-
  only_three "$output"
  run as games srun -n 2 -l bash -c "$list" 3>&-
  only_three "${lines[0]#?: }"
  only_three "${lines[1]#?: }"
  as games sbatch -W -o out --wrap "$list; srun bash -c '$list'; exec 9</dev/null; srun bash -c '$list'"
  while read -r line; do only_three "$line"; done <"$work/games/out"
  [ "$(wc -l <"$work/games/out")" -eq 3 ]
  run as games salloc -Q srun bash -c "$list" 3>&-
  only_three "$output"
  command -v script >/dev/null || return 0
  # In a terminal of its own, which needs one here; its input ends no sooner than the task.
  eventually test -s "$work/pty" | as games script -qec "srun --pty bash -c '$list'" /dev/null >"$work/pty" 3>&-
  only_three "$(tr -d '\r' <"$work/pty" | grep '^0 1')"
}

@test "salloc hands on its user's own files, and nothing else" {
  start_users
  run as games bash -c "$list; exec salloc -Q bash -c '$list; cat <&7'" 7<<<mine
  [[ ${lines[0]} == *7* ]]
  [ "${lines[0]}" = "${lines[1]}" ]
  [ "${lines[2]}" = mine ]
}

@test "MPS servers, the supervisor and the job have nothing of the daemon's" {
  start_users
  id=$(as games sbatch --parsable --gpu-mem=1G -o out --wrap 'echo $$ >pid; sleep 600')
  eventually test -s "$work/games/pid"
  kinds=
  for pid in $(pgrep -f "aliquot-stepd $work/") $(pgrep nvidia-cuda-mps) $(cat "$work/games/pid"); do
    # Others' servers come and go beside us.
    kinds+=" $(cat /proc/"$pid"/comm 2>/dev/null)" || continue
    shared=$(shared_with_daemon "$pid")
    [ -z "$shared" ] || { echo "$pid $(cat /proc/"$pid"/comm): $shared"; false; }
  done
  [[ $kinds == *aliquot-stepd* && $kinds == *nvidia-cuda-mps* ]]
  as games scancel "$id"
}

@test "a program that root's srun starts as another user cannot speak as root" {
  start_users
  cat >"$work/speak.pl" <<'PERL'
# Asks through every socket it finds open for a shell of root's.
use Socket;
my $body = '{"script":"#!/bin/sh\nid -u >' . $ARGV[0] . '/owned\n","work_dir":"/tmp"}';
opendir(my $d, "/proc/self/fd"); my @fds = grep { /^\d+$/ && $_ > 2 } readdir $d;
for my $fd (@fds) {
  next unless (readlink("/proc/self/fd/$fd") // "") =~ /^socket:/;
  print "socket $fd\n";
  open(my $s, "+<&=", $fd) or next;
  syswrite($s, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: " . length($body) . "\r\n\r\n$body");
}
print "done\n";
PERL
  chmod 644 "$work/speak.pl"
  run srun setpriv --reuid=games --regid=games --clear-groups perl "$work/speak.pl" "$work/games" 3>&-
  [ "$output" = done ]
  run salloc -Q setpriv --reuid=games --regid=games --clear-groups perl "$work/speak.pl" "$work/games" 3>&-
  [ "$output" = done ]
  [ -z "$(squeue -h -t all -n job -o %i)" ]
  [ ! -e "$work/games/owned" ]
}

# Dead is enough: not every machine has somebody who takes note of it.
gone() { [[ ! -e /proc/$1 || $(sed 's/.*) //' "/proc/$1/stat") == Z* ]]; }
over() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }

@test "what a task leaves running ends with its srun, and keeps no job" {
  start_users
  as games srun -J stays bash -c 'echo $SLURM_JOB_ID >id; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >pid' 3>&-
  eventually over "$(cat "$work/games/id")"
  gone "$(cat "$work/games/pid")"
  # Also where it is the connection itself that lives on: the client has said that it is over.
  as news perl -MSocket -e '
    sub ask { my ($path, $body) = @_;
      syswrite($s, "POST $path HTTP/1.1\r\nHost: x\r\nContent-Length: " . length($body) . "\r\n\r\n$body"); sysread($s, my $got, 65536); return $got; }
    socket($s, AF_UNIX, SOCK_STREAM, 0); connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
    my ($id) = ask("/v1/allocations", q({"name":"x","batch":false})) =~ /"job_id":(\d+)/ or die;
    open(my $f, ">", "id"); print $f $id; close $f;
    if (!fork()) { ask("/v1/jobs/$id/end", "{}"); sleep 600; exit; }
    sleep 600' &
  client=$!
  eventually test -s "$work/news/id"
  eventually over "$(cat "$work/news/id")"
  kill "$client" 2>/dev/null || true
}
