# The last line of `make test` is what people and machines believe: it must never be better than the truth.
# A stand-in for cmake and ctest plays the runs.

setup() {
  root=$BATS_TEST_TMPDIR
  mkdir -p "$root/tools" "$root/bin"
  cp "$BATS_TEST_DIRNAME/../../tools/run-tests" "$root/tools/"
  printf '#!/bin/sh\nexit 0\n' >"$root/bin/cmake"
  chmod +x "$root/bin/cmake"
  PATH=$root/bin:$PATH
}

ctest_reports() { # attributes of <testsuite>, exit status
  cat >"$root/bin/ctest" <<SCRIPT
#!/bin/bash
while [ \$# -gt 0 ]; do [ "\$1" = --output-junit ] && report=\$2; shift; done
printf '<?xml version="1.0"?>\n<testsuite name="x"\n\t%s\n>\n</testsuite>\n' '$1' >"\$report"
exit $2
SCRIPT
  chmod +x "$root/bin/ctest"
}

ends_with() { # status, last line
  run "$root/tools/run-tests" dev release
  echo "$output"
  [ "$status" -eq "$1" ]
  [ "${lines[-1]}" = "$2" ]
}

@test "figures of all presets are added" {
  ctest_reports 'tests="5" failures="0" disabled="0" skipped="0"' 0
  ends_with 0 "10 passed, 0 failed"
}

@test "skipped tests are not passed ones" {
  ctest_reports 'tests="5" failures="0" disabled="1" skipped="2"' 0
  ends_with 0 "4 passed, 0 failed, 6 skipped"
}

@test "cases of a bats file that skip themselves are counted as skipped" {
  ctest_reports 'tests="5" failures="0" disabled="0" skipped="0"' 0
  sed -i 's|</testsuite>|<system-out>bats: 2 of 9 skipped\\n</system-out></testsuite>|' "$root/bin/ctest"
  ends_with 0 "10 passed, 0 failed, 4 skipped"
}

@test "of a suite the cases are counted, not the suite" {
  ctest_reports 'tests="3" failures="1" disabled="0" skipped="0"' 8
  sed -i 's|</testsuite>|<system-out>[  PASSED  ] 7 tests.\\n</system-out><system-out>\\n[  PASSED  ] 3 tests.\\n[  SKIPPED ] 1 test, listed below:\\n[  SKIPPED ] A.B\\n[  FAILED  ] 2 tests, listed below:\\n[  FAILED  ] A.C\\n</system-out></testsuite>|; s|<system-out>|<system-out>\\n|' "$root/bin/ctest"
  ends_with 1 "22 passed, 4 failed, 2 skipped"
}

@test "why tests were skipped is said, in their words" {
  cat >"$root/bin/ctest" <<'SCRIPT'
#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = --output-junit ] && report=$2; shift; done
cat >"$report" <<'REPORT'
<testsuite name="x" tests="3" failures="0" disabled="0" skipped="1">
<system-out>1..2
ok 1 one # skip needs root, to be &quot;two&quot; users
ok 2 two
bats: 1 of 2 skipped
</system-out>
<system-out>/a_test.cpp:7: Skipped
munged is not here

[  SKIPPED ] A.B
</system-out>
</testsuite>
REPORT
SCRIPT
  chmod +x "$root/bin/ctest"
  ends_with 0 "4 passed, 0 failed, 4 skipped"
  [ "${lines[-3]}" = "skipped, 2: munged is not here" ]
  [ "${lines[-2]}" = 'skipped, 2: needs root, to be "two" users' ]
}

@test "a bats file says how many of its cases it skipped, and that it skipped all" {
  local run=$BATS_TEST_DIRNAME/../bats-test
  printf '@test "a" { true; }\n@test "b" { skip "no"; }\n' >"$root/some.bats"
  printf '@test "a" { skip; }\n@test "b" { skip "no"; }\n' >"$root/all.bats"
  printf '@test "a" { true; }\n' >"$root/none.bats"
  printf '@test "a" { false; }\n@test "b" { skip; }\n' >"$root/bad.bats"
  # A bats inside a bats must not take the outer one's settings for its own.
  inner() { env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$root" TMPDIR="$root" "$run" bats "$root/$1.bats"; }
  run inner some
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "bats: 1 of 2 skipped" ]
  run inner all
  [ "$status" -eq 77 ]
  run inner none
  [ "$status" -eq 0 ]
  [[ $output != *skipped* ]]
  run inner bad
  [ "$status" -eq 1 ]
}

@test "a failure fails" {
  ctest_reports 'tests="5" failures="1" disabled="0" skipped="0"' 8
  ends_with 1 "8 passed, 2 failed"
}

# Fails `$1` of 5 tests at first, and `$2` of those when they run again.
ctest_fails_at_first() {
  cat >"$root/bin/ctest" <<SCRIPT
#!/bin/bash
n=$1 of=5 folder=build/\$2/Testing/Temporary
while [ \$# -gt 0 ]; do
  case \$1 in --output-junit) report=\$2;; --rerun-failed) n=$2 of=$1;; esac
  shift
done
mkdir -p "\$folder"
seq \$n | sed 's/.*/&:test.&/' >"\$folder/LastTestsFailed.log"
printf '<testsuite name="x" tests="%s" failures="%s" disabled="0" skipped="0">\n</testsuite>\n' \$of \$n >"\$report"
[ \$n -eq 0 ] || exit 8
SCRIPT
  chmod +x "$root/bin/ctest"
}

@test "what fails beside everything else and passes alone is named" {
  ctest_fails_at_first 2 0
  ends_with 0 "10 passed, 0 failed"
  [ "${lines[-2]}" = "failed once, passed alone: test.1 test.2 test.1 test.2" ]
}

@test "what fails again has failed" {
  ctest_fails_at_first 3 1
  ends_with 1 "8 passed, 2 failed"
  [ "${lines[-2]}" = "failed once, passed alone: test.2 test.3 test.2 test.3" ]
  ctest_fails_at_first 2 2
  ends_with 1 "6 passed, 4 failed"
}

@test "a preset in two parts is counted whole" {
  ctest_reports 'tests="5" failures="1" disabled="0" skipped="0"' 8
  run "$root/tools/run-tests"
  echo "$output"
  [ "$status" -eq 1 ]
  [ "${lines[-1]}" = "8 passed, 2 failed" ]
}

@test "no tests fail" {
  ctest_reports 'tests="0" failures="0" disabled="0" skipped="0"' 0
  ends_with 1 "0 passed, 2 failed"
}

@test "a ctest that ends badly without a failed test fails" {
  ctest_reports 'tests="5" failures="0" disabled="0" skipped="0"' 139
  ends_with 1 "10 passed, 2 failed"
}

@test "a ctest that leaves no report fails" {
  printf '#!/bin/sh\nexit 0\n' >"$root/bin/ctest"
  chmod +x "$root/bin/ctest"
  ends_with 1 "0 passed, 2 failed"
}

@test "a build that fails fails" {
  ctest_reports 'tests="5" failures="0" disabled="0" skipped="0"' 0
  printf '#!/bin/sh\n[ "$1" != --build ]\n' >"$root/bin/cmake"
  ends_with 1 "0 passed, 2 failed"
}
