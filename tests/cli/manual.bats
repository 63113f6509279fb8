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
  for command in status why gpus top logs report token page doctor up down setup shims sim slurm; do
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

# NAME: the options in that list of the program.
listed() {
  sed -n "/constexpr auto $1 = /,/^ *});/p" "$BATS_TEST_DIRNAME/../../src/cli/jobs/unused_words.cpp" |
    grep -oE '(^|\{| )"[a-z0-9-]+",' | grep -oE '[a-z0-9-]+' | sort -u
}
# TITLE: the options in that section of sbatch's page, or of all that srun has alone.
told() { sed -n "/^\.SH $1/,/^\.SH [^O]/p" "$pages/aliquot-sbatch.1" | sed '/^\.SH OPTIONS THAT/,$d' | grep -oE -- '--[a-z0-9-]+' | sed 's/^--//' | sort -u; }

@test "the options without effect are those that the manual lists" {
  diff <(listed kIdle) <(told 'OPTIONS WITHOUT EFFECT')
}

@test "every option that is refused is told" {
  local option section
  section=$(sed -n '/^\.SH OPTIONS THAT ARE REFUSED/,/^\.SH EXIT/p' "$pages/aliquot-sbatch.1")
  # srun's own, for tests of it, are in no manual of Slurm's.
  for option in $(listed kRefused | grep -vxE 'debugger-test|interactive|launch-cmd|launcher-opts|ntasks-per-tres'); do
    echo "--$option is not among the refused ones"
    [[ $section == *"--$option"* ]]
  done
}
