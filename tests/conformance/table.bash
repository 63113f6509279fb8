# shellcheck shell=bash
# Tables of cases, for the conformance tests: tables/NAME.txt is what Slurm prints, command by command.
#
#   # a remark
#   + COMMAND       run first, not a case: it makes what the cases look at. `+ a=$(sbatch --parsable …)` also names a job:
#                   its number is written <a......> in what is printed, all others <ID.....>, as wide as they are.
#   $ COMMAND       a case. Behind it are its lines on stdout, those on stderr with "[stderr] " before them, and, where
#                   it is not 0, its exit status as "[rc=N]". A line that ends in a space has "~" behind it, one that begins
#                   with one of the characters "#+$\" has "\" before it. Empty lines at its end do not count.
#
# What differs on purpose is in differs.txt, in the same form: "## TABLE: REASON", the command, and what Aliquot says.
# What differs and should not is in open.txt, a line "TABLE: COMMAND" each: it is compared and counted, and fails nothing; what is
# equal by now is named, to be taken out. Each table prints its counts.
# RECORD=1 with ENGINE=slurm writes the table anew; CASES=FILE gets a line "RESULT TABLE NUMBER COMMAND" for each case, KEEP=FOLDER what
# was printed.

# FILE: fills case_commands and case_texts.
read_cases() {
  case_commands=() case_texts=()
  local line last=-1
  while IFS= read -r line; do
    case $line in
      '$ '*) case_commands+=("${line#??}") && case_texts+=('') && last=$((last + 1)) ;;
      '#'* | '+ '*) ;;
      *) ((last < 0)) || case_texts[last]+=$line$'\n' ;;
    esac
  done <"$1"
}

# Fills on_list with what Aliquot says instead, and is_open, for the commands of a table.
read_lists() {
  local line table='' command=''
  on_list=() is_open=()
  while IFS= read -r line; do
    case $line in
      '## '*) table=${line#\#\# } && table=${table%%:*} && command='' ;;
      '$ '*) command=${line#??} && [[ $table != "$1" ]] || on_list[${command@Q}]='' ;;
      *) [[ $table != "$1" || -z $command || $line == '#'* ]] || on_list[${command@Q}]+=$line$'\n' ;;
    esac
  done <"$here/differs.txt"
  while IFS= read -r line; do
    [[ $line != "$1: "* ]] || { line=${line#*: } && is_open[${line@Q}]=1; }
  done <"$here/open.txt"
}

# What does not depend on the engine's past: numbers of jobs by their names, folders, times. Whether salloc hears of the
# end of its job before it ends itself is chance, as is whether a job waits for a moment; whether a core is written is for
# the machine to say; what we say beyond Slurm's words is marked as a hint.
table_words() {
  local name names=()
  for name in "${job_names[@]}"; do
    names+=(-e "s/${!name}/<$name$(printf '%*s' $((6 - ${#name})) '' | tr ' ' .)>/g")
  done
  sed -E -e '/^[a-z]+: hint: /d' \
    -e '/^\[stderr\] (srun|salloc): (Pending job allocation [0-9]+|job [0-9]+ (queued and waiting for|has been allocated) resources)$/d' \
    -e '/^\[stderr\] [a-z]+: hint: /d' -e '/^\[stderr\] salloc: Job allocation [0-9]+ has been revoked\.$/d' \
    "${names[@]}" -e 's/(^|[^0-9])[1-6][0-9]{7}([^0-9]|$)/\1<ID....>\2/g' \
    -e "s#$work#@WORK@#g" -e 's/^(\[stderr\] srun: .*) \(core dumped\)$/\1/' \
    -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}/@TIME@/g' -e 's/ $/ ~/'
}

same() { [[ $(printf '%s' "$1") == "$(printf '%s' "$2")" ]]; }

run_table() {
  local table=$1 file=$here/tables/$1.txt line name number=0 failed=0 rc
  job_names=()
  : >raw.txt
  while IFS= read -r -u 8 line; do
    case $line in
      '+ '*)
        line=${line#??}
        eval "$line" </dev/null || { echo "$table: $line: failed" >&2; return 1; }
        name=${line%%=*}
        if [[ $line =~ ^[a-z][a-z0-9]{0,5}=\$\( && ${!name} =~ ^[0-9]+$ ]]; then job_names+=("$name"); fi
        ;;
      '$ '*)
        rc=0
        (eval "${line#??}") >out.txt 2>err.txt </dev/null 3>&- || rc=$?
        {
          printf '%s\n' "$line"
          # A last line that is not ended, and one that is empty, are lines.
          sed -e 's/^[#+$\]/\\&/' -e '$a\' out.txt
          sed -e 's/^/[stderr] /' -e '$a\' err.txt
          [[ $rc == 0 ]] || echo "[rc=$rc]"
        } >>raw.txt
        ;;
    esac
  done 8<"$file"
  table_words <raw.txt >got.txt
  [[ -z ${KEEP:-} ]] || cp got.txt "$KEEP/$table.txt"
  [[ ${RECORD:-} != 1 ]] || { record_table "$file" && return 0; }
  local commands texts by_now=0
  local -A on_list=() is_open=() counts=([equal]=0 [listed]=0 [open]=0 [differs]=0)
  read_lists "$table"
  read_cases "$file"
  commands=("${case_commands[@]}") texts=("${case_texts[@]}")
  read_cases got.txt
  for ((number = 0; number < ${#commands[@]}; number++)); do
    name=equal line=${texts[number]}
    if [[ $ENGINE == local ]]; then
      if [[ -v on_list[${commands[number]@Q}] ]]; then
        name=listed line=${on_list[${commands[number]@Q}]}
      elif [[ -v is_open[${commands[number]@Q}] ]]; then
        name=open
      fi
    fi
    if [[ $name == open ]]; then
      if same "$line" "${case_texts[number]}"; then
        by_now=$((by_now + 1))
        echo "# $table: \$ ${commands[number]}: equal this time: is it still open?" >&3
      fi
    elif ! same "$line" "${case_texts[number]}"; then
      name=differs failed=1
      printf '%s: $ %s\n' "$table" "${commands[number]}" >&2
      diff -u --label expected --label "$ENGINE" <(printf '%s' "$line") <(printf '%s' "${case_texts[number]}") | tail -n +3 >&2 || true
    fi
    counts[$name]=$((counts[$name] + 1))
    [[ -z ${CASES:-} ]] || printf '%s %s %d %s\n' "$name" "$table" "$number" "${commands[number]}" >>"$CASES"
  done
  echo "# $table: cases ${#commands[@]}, equal ${counts[equal]}, on the list ${counts[listed]}, open ${counts[open]}" \
    "(equal this time $by_now), failed ${counts[differs]}" >&3
  return "$failed"
}

# The table with the texts of this run; remarks, setup and empty lines stay where they were.
record_table() {
  [[ $ENGINE == slurm ]] || { echo "tables are recorded from Slurm alone: ENGINE=slurm" >&2; return 1; }
  read_cases got.txt
  local line number=0 before=''
  while IFS= read -r line; do
    case $line in
      '$ '*) printf '%s\n%s' "$line" "${case_texts[number]}" && number=$((number + 1)) ;;
      '#'* | '+ '*) printf '%s\n' "$line" ;;
    esac
  done <"$1" >recorded.txt
  mv recorded.txt "$1"
}
