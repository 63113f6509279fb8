# docs/slurm.md is run as it stands: the commands of its walk-through, in order, in one shell, and what they print is
# what stands there. "…" stands for anything, a line of it for any number of lines.
load helper

setup_file() {
  local why
  why=$(no_sandbox)
  [[ -z $why ]] || export SANDBOX_MISSING=$why
}

setup() { need_sandbox; }

teardown() {
  [[ -z ${ALIQUOT_SANDBOX:-} ]] || "$(sandbox_program)" down --dir "$ALIQUOT_SANDBOX" >/dev/null 2>&1 </dev/null 3>&-
}

# Writes step.N.sh and step.N.out, a command and what it prints, for each command of a console block, and a step that
# writes the file for each block that names one. Prints how many there are.
extract() {
  awk -v out="$1" '
    function step() { m++; printf "" >(out "/step." m ".sh"); printf "" >(out "/step." m ".out") }
    function command(line) { print line >(out "/step." m ".sh") }
    /^## / { on = ($0 ~ /^## Walk-through/) }
    on && /^```console$/ { inside = "console"; next }
    on && /^```bash / { inside = "file"; step(); command("cat >" $2 " <<\\END-OF-FILE"); next }
    /^```$/ { if (inside == "file") command("END-OF-FILE"); inside = ""; next }
    inside == "file" { command($0) }
    inside == "console" && /^\$ / { step(); command(substr($0, 3)); next }
    inside == "console" && /^> / { command(substr($0, 3)); next }
    inside == "console" { print >(out "/step." m ".out") }
    END { print m }
  ' "$repo/docs/slurm.md"
}

# Does the text of file $1 look as file $2 says?
matches() {
  local expected pattern
  expected=$(<"$2")
  [[ $expected != "…" ]] || return 0
  pattern=$(printf '%s' "$expected" | sed 's/[][\\*?]/\\&/g; s/…/*/g')
  # shellcheck disable=SC2053
  [[ $(<"$1") == $pattern ]]
}

@test "the walk-through of docs/slurm.md" {
  export ALIQUOT_SANDBOX ALIQUOT_SANDBOX_PORT
  ALIQUOT_SANDBOX_PORT=$(free_ports 29000)
  # Not below bats' own folder: every user must be able to walk there.
  ALIQUOT_SANDBOX=$(mktemp -d /var/tmp/aq-walk.XXXXXX)
  chmod 755 "$ALIQUOT_SANDBOX"
  PATH=$ALIQUOT_BIN:$PATH
  steps=$(extract "$BATS_TEST_TMPDIR")
  [ "$steps" -gt 25 ]
  for ((number = 1; number <= steps; number++)); do
    echo "step $number: $(<"$BATS_TEST_TMPDIR/step.$number.sh")"
    # shellcheck source=/dev/null
    { . "$BATS_TEST_TMPDIR/step.$number.sh"; } >"$BATS_TEST_TMPDIR/said" 2>&1 </dev/null 3>&- || true
    if ! matches "$BATS_TEST_TMPDIR/said" "$BATS_TEST_TMPDIR/step.$number.out"; then
      printf 'expected:\n%s\ngot:\n%s\n' "$(<"$BATS_TEST_TMPDIR/step.$number.out")" "$(<"$BATS_TEST_TMPDIR/said")"
      squeue -a 2>/dev/null
      tail -n 20 "$ALIQUOT_SANDBOX/log/slurmctld.log" 2>/dev/null
      false
    fi
  done
  [ ! -e "$ALIQUOT_SANDBOX" ]
}
