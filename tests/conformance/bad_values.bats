# Every option with values that are none: bad-values has the list. bad-values-22.05.txt is what Slurm said and we say, too:
# one line for each, with the exit status; where the two differ on purpose there is none.
bats_require_minimum_version 1.5.0
load helper

has_python() { command -v python3 >/dev/null; }

@test "no value of any option is a crash, hangs, or steers a terminal" {
  [[ $ENGINE == local ]] || skip "ours"
  has_python || skip "needs python3"
  start_engine
  local values=empty,huge,word,bytes,escape
  # Each program takes so much longer to start.
  ! ldd "$ALIQUOT_BIN/aliquotd" | grep -q libasan || values=bytes
  "$BATS_TEST_DIRNAME/bad-values" --values "$values" >all.txt || { grep -E 'hangs|killed|steers' all.txt; false; }
  [[ $(wc -l <all.txt) -ge 400 ]]
  # The daemon is the same, and answers.
  kill -0 "$daemon"
  run -0 sinfo -h -o %T
  scancel --me --state=PENDING
}

@test "and what Slurm says of it, we say" {
  has_python || skip "needs python3"
  [[ $EUID -eq 0 ]] || skip "was said to root"
  ! { [[ $ENGINE == local ]] && ldd "$ALIQUOT_BIN/aliquotd" | grep -q libasan; } || skip "the release is compared"
  start_engine
  "$BATS_TEST_DIRNAME/bad-values" --values empty,huge,word >all.txt || true
  sort -u "$BATS_TEST_DIRNAME/bad-values-22.05.txt" >expected.txt
  sort -u all.txt >got.txt
  # Each line that is expected is there.
  run -0 comm -23 expected.txt got.txt
  [ -z "$output" ]
  scancel --me --state=PENDING
}
