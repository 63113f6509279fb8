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

# Writes block.N.sh with the commands of each console block and block.N.out with what they print, and the files of
# blocks that name one.
extract() {
  awk -v out="$1" '
    /^## / { on = ($0 ~ /^## Walk-through/) }
    on && /^```console$/ { n++; inside = "console"; next }
    on && /^```bash / { inside = "file"; name = $2; printf "" >(out "/" name); next }
    /^```$/ { inside = ""; next }
    inside == "file" { print >(out "/" name) }
    inside == "console" && /^\$ / { m++; line = substr($0, 3); print line >(out "/step." m ".sh"); printf "" >(out "/step." m ".out"); next }
    inside == "console" && /^> / { print substr($0, 3) >(out "/step." m ".sh"); next }
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
  export ALIQUOT_SANDBOX=$BATS_TEST_TMPDIR/sandbox ALIQUOT_SANDBOX_PORT=34000
  # A path that every user can walk.
  ALIQUOT_SANDBOX=$(mktemp -d /var/tmp/aq-walk.XXXXXX)
  chmod 755 "$ALIQUOT_SANDBOX"
  PATH=$ALIQUOT_BIN:$PATH
  steps=$(extract "$BATS_TEST_TMPDIR")
  [ "$steps" -gt 25 ]
  cd "$BATS_TEST_TMPDIR"
  for ((i = 1; i <= steps; i++)); do
    echo "step $i: $(<"step.$i.sh")"
    # shellcheck source=/dev/null
    { . "./step.$i.sh"; } >"$BATS_TEST_TMPDIR/said" 2>&1 </dev/null 3>&- || true
    if ! matches "$BATS_TEST_TMPDIR/said" "$BATS_TEST_TMPDIR/step.$i.out"; then
      printf 'expected:\n%s\ngot:\n%s\n' "$(<"$BATS_TEST_TMPDIR/step.$i.out")" "$(<"$BATS_TEST_TMPDIR/said")"
      squeue -a 2>/dev/null
      tail -n 20 "$ALIQUOT_SANDBOX/log/slurmctld.log" 2>/dev/null
      false
    fi
  done
  [ ! -e "$ALIQUOT_SANDBOX" ]
}
