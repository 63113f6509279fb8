# shellcheck shell=bash
# For tests that run a document as it stands: the commands of one section, in order, and what they print is what stands
# there. "…" stands for anything, a line of it for any number of lines.

# extract DOCUMENT SECTION FOLDER: writes step.N.sh and step.N.out, a command and what it prints, for each command of a
# console block, and a step that writes the file for each block that names one. Prints how many there are.
extract() {
  awk -v section="## $2" -v out="$3" '
    function step() { m++; printf "" >(out "/step." m ".sh"); printf "" >(out "/step." m ".out") }
    function command(line) { print line >(out "/step." m ".sh") }
    /^## / { on = (index($0, section) == 1) }
    on && /^```console$/ { inside = "console"; next }
    on && /^```bash / { inside = "file"; step(); command("cat >" $2 " <<\\END-OF-FILE"); next }
    /^```$/ { if (inside == "file") command("END-OF-FILE"); inside = ""; next }
    inside == "file" { command($0) }
    inside == "console" && /^\$ / { step(); command(substr($0, 3)); next }
    inside == "console" && /^> / { command(substr($0, 3)); next }
    inside == "console" { print >(out "/step." m ".out") }
    END { print m }
  ' "$1"
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
