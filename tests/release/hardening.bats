# What is shipped must be hardened: position independent, read-only relocations, bound at start, no search path.

setup() {
  shopt -s nullglob
  programs=("$ALIQUOT_BIN"/*)
  [ ${#programs[@]} -gt 0 ]
}

@test "every program is position independent, relro, bound at start, without rpath" {
  for program in "${programs[@]}"; do
    echo "$program"
    readelf -h "$program" | grep -q 'Type: *DYN'
    readelf -lW "$program" | grep -q GNU_RELRO
    readelf -lW "$program" | grep GNU_STACK | grep -qv RWE
    dynamic=$(readelf -dW "$program")
    [[ "$dynamic" =~ BIND_NOW|Flags:.*NOW ]]
    [[ ! "$dynamic" =~ RPATH|RUNPATH ]]
  done
}
