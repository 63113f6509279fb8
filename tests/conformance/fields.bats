# Every field and variable in Slurm 22.05's manual is known. fields-22.05.txt lists them; the variables are tried by the unit
# tests of src/cli/option_set.cpp.
load helper

listed() { awk -v command="$1" -v kind="$2" '$1 == command && $2 == kind { print $3 }' "$here/fields-22.05.txt"; }

@test "the list is that of the manual" {
  [[ $(dpkg-query -W -f '${Version}' slurm-client 2>/dev/null) == 22.05.* ]] || skip "no slurm-client 22.05"
  man -w squeue >/dev/null 2>&1 || skip "no manual pages"
  diff "$here/fields-22.05.txt" <("$here/list-fields")
}

@test "squeue and sinfo know all letters and all names" {
  start_engine
  local command list
  for command in squeue sinfo; do
    [ "$(listed "$command" letter | wc -l)" -ge 40 ]
    list=$(listed "$command" letter | sed 's/^/%/' | tr '\n' ' ')
    run "$command" -o "$list"
    [ "$status" -eq 0 ]
    echo "$output"
    [[ $output != *"nvalid"* ]]
    list=$(listed "$command" name | grep -vE '^Step(ID|Name|State)$' | paste -sd,)
    [ "${#list}" -gt 300 ]
    run "$command" -O "$list"
    [ "$status" -eq 0 ]
    echo "$output"
    [[ $output != *"nvalid"* ]]
  done
}

@test "squeue -s knows those of steps" {
  start_engine
  run squeue -s -O "$(listed squeue name | grep -E '^Step' | paste -sd,)"
  [ "$status" -eq 0 ]
  [[ $output == STEPID*NAME*STATE* ]]
}

@test "sacct and sstat know all names" {
  start_engine
  local list
  list=$(listed sacct name | paste -sd,)
  [ "${#list}" -gt 600 ]
  run sacct -n -o "$list"
  [ "$status" -eq 0 ]
  [ -z "$output" ]
  diff <(listed sacct name | sort -f) <(sacct --helpformat | tr -s ' ' '\n' | grep . | sort -f) | grep '^<' && return 1
  run sstat --helpformat
  [[ $output == *TRESUsageOutTot* ]]
}

@test "the JSON of squeue, sinfo and sacct has all keys, each once" {
  python=$(command -v python3) || skip "no python3 to read it with"
  start_engine
  id=$(sbatch --parsable -n 2 -o /dev/null --wrap "srun -n 1 true; $until_go")
  eventually bash -c "[[ -n \$(sacct -n -X -s R -j $id) && -n \$(sacct -n -j $id.0) ]]"
  local command
  for command in squeue sinfo sacct; do
    "$command" --json | "$python" "$here/list-keys" >keys
    sed -n "s/^$command //p" "$here/keys-22.05.txt" | LC_ALL=C sort >wanted
    [ "$(wc -l <wanted)" -ge 30 ]
    echo "$command has no:"
    run bash -c "LC_ALL=C sort keys | LC_ALL=C comm -23 wanted -"
    echo "$output"
    [ -z "$output" ]
  done
  go
}
