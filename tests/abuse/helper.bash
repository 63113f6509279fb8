# For the tests of what one user tries against another, or against the daemon: a daemon run by root, and two ordinary
# users, `games` and `news`.
load "$(dirname "${BASH_SOURCE[0]}")/../conformance/helper"

# Options of aliquotd.
start_users() {
  [[ $ENGINE == local ]] || skip "about Aliquot's daemon"
  [[ $EUID -eq 0 ]] || skip "needs root, to be two users"
  command -v setpriv >/dev/null || skip "needs setpriv"
  chmod 755 "$work"
  start_engine "$@"
  local user
  for user in games news; do install -d -o "$user" -m 700 "$work/$user"; done
}

# as USER COMMAND…: in a folder of the user's own.
as() {
  local user=$1
  shift
  (cd "$work/$user" && exec setpriv --reuid="$user" --regid="$user" --clear-groups \
    env HOME="$work/$user" USER="$user" LOGNAME="$user" "$@")
}

# field ID KEY: of `scontrol show job`, as root sees it.
field() {
  scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"
}

has_state() { [[ $(field "$1" JobState) == "$2" ]]; }

# Sends its standard input to the daemon's socket as USER, and prints what comes back.
raw_as() {
  as "$1" perl -MSocket -e '
    socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ENV{ALIQUOT_SOCKET})) or die;
    $SIG{PIPE} = "IGNORE"; $SIG{ALRM} = sub { exit 0 }; alarm 5;
    local $/; my $all = <STDIN>; syswrite($s, $all); shutdown($s, 1) if $ARGV[0]; print while sysread($s, $_, 65536);' "${2:-}"
}

# post_as USER PATH BODY: one request, as a client written by the user would make it.
post_as() {
  printf 'POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$2" "${#3}" "$3" | raw_as "$1"
}

# settings TEXT: prints the option that names a file with them.
settings() {
  printf '%s\n' "$1" >"$work/aliquot.toml"
  echo "--config=$work/aliquot.toml"
}

# answer_as USER PATH BODY: the status and what is said, on one line.
answer_as() { post_as "$@" | tr -d '\r' | sed -n -e '1s/^HTTP.1.1 \([0-9]*\).*/\1/p' -e '$p' | tr '\n' ' '; }

# In megabytes; of no use with the sanitizers, which keep what is freed.
resident() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$daemon/status"; }
sanitized() { ldd "$ALIQUOT_BIN/aliquotd" | grep -q libasan; }

no_jobs() { [[ -z $(squeue -h) ]]; }

teardown() {
  if [[ -n ${daemon:-} ]]; then
    scancel -u games 2>/dev/null
    scancel -u news 2>/dev/null
    scancel --me 2>/dev/null
    eventually no_jobs 2>/dev/null
    kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
    pkill -KILL -f "aliquot-stepd $work/" 2>/dev/null
  fi
  cd / && end_all_in "${work:?}" && rm -rf "$work"
}
