# docs/slurm.md is run as it stands: the commands of its walk-through, in order, in one shell, and what they print is
# what stands there.
load helper
load guide

setup_file() {
  local why
  why=$(no_sandbox)
  [[ -z $why ]] || export SANDBOX_MISSING=$why
}

setup() { need_sandbox; }

teardown() {
  [[ -z ${ALIQUOT_SANDBOX:-} ]] || "$(sandbox_program)" down --dir "$ALIQUOT_SANDBOX" >/dev/null 2>&1 </dev/null 3>&-
}

# run_step NUMBER EXPECTED: does it do and say what stands there?
run_step() {
  local status=0
  # shellcheck source=/dev/null
  { . "$BATS_TEST_TMPDIR/step.$1.sh"; } >"$BATS_TEST_TMPDIR/said" 2>&1 </dev/null 3>&- || status=1
  [[ $status -eq $2 ]] && matches "$BATS_TEST_TMPDIR/said" "$BATS_TEST_TMPDIR/step.$1.out"
}

# A step that begins with a pause looks at what happens in its own time: a machine that is busy shows it later.
waits() { [[ $(<"$BATS_TEST_TMPDIR/step.$1.sh") == "sleep "* && -s $BATS_TEST_TMPDIR/step.$1.out ]]; }

# fails FILE: does what the document shows in it say that the command fails? An error does, and grep's count of nothing.
fails() { grep -qE ': error: |^0$' "$1"; }

@test "the walk-through of docs/slurm.md" {
  export ALIQUOT_SANDBOX ALIQUOT_SANDBOX_PORT
  ALIQUOT_SANDBOX_PORT=$(free_ports 29000)
  # Not below bats' own folder: every user must be able to walk there.
  ALIQUOT_SANDBOX=$(mktemp -d /var/tmp/aq-walk.XXXXXX)
  chmod 755 "$ALIQUOT_SANDBOX"
  PATH=$ALIQUOT_BIN:$PATH
  steps=$(extract "$repo/docs/slurm.md" Walk-through "$BATS_TEST_TMPDIR")
  [ "$steps" -gt 25 ]
  for ((number = 1; number <= steps; number++)); do
    echo "step $number: $(<"$BATS_TEST_TMPDIR/step.$number.sh")"
    expected=0
    ! fails "$BATS_TEST_TMPDIR/step.$number.out" || expected=1
    if waits "$number"; then again=eventually; else again=; fi
    if ! $again run_step "$number" "$expected"; then
      printf 'expected (status %d):\n%s\ngot:\n%s\n' "$expected" "$(<"$BATS_TEST_TMPDIR/step.$number.out")" \
        "$(<"$BATS_TEST_TMPDIR/said")"
      squeue -a 2>/dev/null
      tail -n 20 "$ALIQUOT_SANDBOX/log/slurmctld.log" 2>/dev/null
      false
    fi
  done
  [ ! -e "$ALIQUOT_SANDBOX" ]
}
