# Placement as text: every *.txt here is a script for `aliquot sim shell`, *.expected what it must say and with which
# status. After a change, `make update-shell-tests` writes the expected files anew; read the difference before you commit it.

@test "every script answers as expected" {
  wrong=0
  for script in "$BATS_TEST_DIRNAME"/*.txt; do
    "$BATS_TEST_DIRNAME/transcript" "$script" >"$BATS_TEST_TMPDIR/answer"
    diff -u "${script%.txt}.expected" "$BATS_TEST_TMPDIR/answer" || wrong=$((wrong + 1))
  done
  [ "$wrong" -eq 0 ]
}

@test "no expected file is left without its script" {
  for expected in "$BATS_TEST_DIRNAME"/*.expected; do [ -f "${expected%.expected}.txt" ]; done
}

@test "the answers are the same from stdin" {
  script=$BATS_TEST_DIRNAME/best_fit.txt
  "$ALIQUOT_BIN/aliquot" sim shell "$script" >"$BATS_TEST_TMPDIR/file"
  "$ALIQUOT_BIN/aliquot" sim shell <"$script" >"$BATS_TEST_TMPDIR/stdin"
  cmp "$BATS_TEST_TMPDIR/file" "$BATS_TEST_TMPDIR/stdin"
}

@test "the ledger goes to a file and back" {
  cd "$BATS_TEST_TMPDIR"
  printf '%s\n' 'node add n1 cpus=8 memory=8G' 'gpu add n1 model=a100 memory=40G' | tee before after
  printf '%s\n' 'request 1 --gpu-mem=8G' 'save ledger' >>before
  printf '%s\n' 'restore ledger' 'show jobs' >>after
  "$ALIQUOT_BIN/aliquot" sim shell before
  run "$ALIQUOT_BIN/aliquot" sim shell after
  echo "$output"
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = "restored 1 job" ]
  [ "${lines[1]}" = "job 1: n1 gpu0=20%/8G" ]
}
