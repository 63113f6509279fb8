# Nobody listens.
load helper

# Slurm's own cluster is up.
local_only() { [[ $ENGINE == local ]] || skip "about Aliquot's socket"; }

@test "sbatch, srun and scancel say so, each in its words" {
  local_only
  run_case down_sbatch 'sbatch -o /dev/null --wrap true'
  run_case down_srun 'srun true'
  run_case down_scancel 'scancel 5'
}

@test "a stale socket is nobody" {
  local_only
  python=$(command -v python3) || skip "no python3 to leave a socket behind"
  "$python" -c 'import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$ALIQUOT_SOCKET"
  run_case down_sbatch 'sbatch -o /dev/null --wrap true'
}

@test "somebody else's folder is not trusted for a socket" {
  local_only
  [[ $EUID -eq 0 ]] || skip "needs root to be two users"
  chmod 755 "$work" "$work/bin"
  mkdir "$work/aliquot"
  # It would be heard there; an engine of the machine's own may answer instead.
  perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; bind($s, sockaddr_un($ARGV[0])) or die; chmod 0666, $ARGV[0]; listen($s, 9) or die;
    open(my $f, ">", "listening"); accept(my $c, $s); open($f, ">", "heard")' "$work/aliquot/aliquotd.sock" 3>&- &
  local listener=$!
  eventually test -e listening
  ask() { env -u ALIQUOT_SOCKET XDG_RUNTIME_DIR="$work" timeout 10 setpriv --reuid=nobody --clear-groups "$work/bin/scancel" 999999999 || true; }
  ask
  [ ! -e heard ]
  # In a folder of the user's own it is.
  chown nobody "$work/aliquot"
  ask
  eventually test -e heard
  wait "$listener"
}
