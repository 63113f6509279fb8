# The manual tells of every command that --help lists, and of every option of aliquot's own commands.

setup() {
  aliquot=$ALIQUOT_BIN/aliquot
  pages=$BATS_TEST_DIRNAME/../../docs/man
}

# COMMAND: the page that names it.
page_of() { grep -lE "^aliquot-$1[, ]|, aliquot-$1[, ]" "$pages"/*.1; }

commands() { # WORD…: the commands listed by the help of this one
  "$aliquot" "$@" --help | sed -n "/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p; /^Slurm's commands/,/^$/s/^  \([a-z]*\) .*/\1/p"
}

options() { "$aliquot" "$@" --help | grep -oE '^( up:)? +(-[a-zA-Z],)? *--[a-z-]+' | grep -oE -- '--[a-z-]+' | grep -vxF -- --help; }

# PAGE WORD…: the options of that command are there.
tells() {
  local page=$1 option
  shift
  for option in $(options "$@"); do
    echo "aliquot $*: $option is not in $page"
    sed 's/\\-/-/g' "$page" | grep -qE -- "$option\\b"
  done
}

@test "every command has a page" {
  local command count=0
  for command in $(commands); do
    echo "aliquot $command has no page"
    [ "$(page_of "$command" | wc -l)" -eq 1 ]
    count=$((count + 1))
  done
  [ "$count" -ge 21 ]
}

@test "every option of aliquot's own commands is told" {
  local command inner
  for command in status why gpus top logs doctor up down setup shims sim slurm; do
    tells "$(page_of "$command")" "$command"
    for inner in $(commands "$command"); do tells "$(page_of "$command")" "$command" "$inner"; done
  done
}

@test "every option of the programs for Kubernetes is told" {
  local program option page count=0
  for program in aliquot-kube-scheduler aliquot-kube-node; do
    page=$pages/$program.8
    [ -s "$page" ]
    [ -x "$ALIQUOT_BIN/$program" ] || continue
    count=$((count + 1))
    for option in $("$ALIQUOT_BIN/$program" --help | grep -oE '^ +--[a-z-]+' | grep -oE -- '--[a-z-]+' | grep -vxF -- --help); do
      echo "$program: $option is not in $page"
      sed 's/\\-/-/g' "$page" | grep -qE -- "$option\\b"
    done
  done
  [ "$count" -gt 0 ] || skip "the programs for Kubernetes are not built here"
}
