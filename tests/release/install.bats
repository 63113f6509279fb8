# What `make install` leaves: programs that find each other, completion under the names that bash-completion loads, and a
# word on how sbatch becomes ours.

setup_file() {
  "$BATS_TEST_DIRNAME/../../tools/install" "$BATS_FILE_TMPDIR/root" /opt/gpu >"$BATS_FILE_TMPDIR/said"
}

setup() {
  installed=$BATS_FILE_TMPDIR/root/opt/gpu
}

@test "programs, pages and units are there" {
  run "$installed/bin/aliquot" --version
  [ "$status" -eq 0 ]
  [ -x "$installed/bin/aliquotd" ]
  [ -x "$installed/libexec/aliquot/aliquot-stepd" ]
  [ -s "$installed/share/man/man1/aliquot-sbatch.1" ]
  grep -qx 'ExecStart=/opt/gpu/bin/aliquotd --foreground' "$installed/lib/systemd/system/aliquotd.service"
}

@test "bash-completion finds each command" {
  local command count=0
  for command in $("$installed/bin/aliquot" --help | sed -n "/^Slurm's commands/,/^$/s/^  \([a-z]*\) .*/\1/p"); do
    grep -q "complete -F _aliquot" "$installed/share/bash-completion/completions/$command.bash"
    count=$((count + 1))
  done
  [ "$count" -ge 16 ]
}

@test "it says how sbatch becomes ours, and so it does" {
  grep -q "aliquot sbatch" "$BATS_FILE_TMPDIR/said"
  "$installed/bin/aliquot" shims "$BATS_TEST_TMPDIR/bin"
  run "$BATS_TEST_TMPDIR/bin/sbatch" --version
  [[ $output == aliquot\ * ]]
}
