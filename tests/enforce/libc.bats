#!/usr/bin/env bats
# The library goes into programs of any age: it asks glibc for nothing that 2.17 (RHEL 7) does not have.

setup() {
  library=$ALIQUOT_BIN/../lib/libaliquot.so
}

@test "no symbol is newer than glibc 2.17" {
  run readelf -W --dyn-syms "$library"
  [ "$status" -eq 0 ]
  newest=$(grep -oE '@GLIBC_[0-9.]+' <<<"$output" | sed 's/@GLIBC_//' | sort -V | tail -1)
  [ -n "$newest" ]
  newer=$(awk '$7 == "UND"' <<<"$output" | grep -E '@GLIBC_' | while read -r line; do
    version=$(sed -E 's/.*@GLIBC_([0-9.]+).*/\1/' <<<"$line")
    [ "$(printf '%s\n2.17\n' "$version" | sort -V | tail -1)" = 2.17 ] || echo "$line"
  done)
  echo "newest $newest; too new: $newer"
  [ -z "$newer" ]
  # No other library's: not C++'s, not the compiler's.
  run grep -oE '@[A-Z]+_[0-9.]+' <<<"$output"
  run grep -vE '^@GLIBC_' <<<"$output"
  [ -z "$output" ]
}
