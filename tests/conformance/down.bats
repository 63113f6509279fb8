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
  id nobody >/dev/null
  dir=/tmp/aliquot-$(id -u nobody)
  [[ ! -e $dir ]] || skip "$dir is there"
  mkdir "$dir"
  chmod 755 "$work" "$work/bin"
  run env -u ALIQUOT_SOCKET -u XDG_RUNTIME_DIR setpriv --reuid=nobody --clear-groups "$work/bin/scancel" 5
  rmdir "$dir"
  [ "$status" -eq 8 ]
}
