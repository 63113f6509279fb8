# The check of the dependency direction must fail on each kind of violation, and only then.

setup() {
  check=$BATS_TEST_DIRNAME/../../tools/check-layers
  tree=$BATS_TEST_TMPDIR
  mkdir -p "$tree"/src/{base,core,cli,enforce}
  printf '%s\n' 'base:' 'core: base' 'enforce:' 'cli: base enforce/abi.h' >"$tree/src/LAYERS"
  echo '#include <string>' >"$tree/src/base/units.hpp"
  echo '#include "base/units.hpp"' >"$tree/src/core/ledger.cpp"
}

refuses() { # file, line of code, part of the message
  echo "$2" >"$tree/src/$1"
  run "$check" "$tree"
  echo "$output"
  [ "$status" -eq 1 ]
  [[ "$output" == "src/$1:1: "*"$3"* ]]
}

@test "a tree that keeps to the table passes" {
  echo '#include "enforce/abi.h"' >"$tree/src/cli/main.cpp"
  run "$check" "$tree"
  echo "$output"
  [ "$status" -eq 0 ]
  [ -z "$output" ]
}

@test "including a higher folder fails" { refuses base/size.cpp '#include "core/ledger.hpp"' 'base may not include'; }
@test "including a header that is not the allowed one fails" { refuses cli/main.cpp '#include "enforce/hook.h"' 'cli may not include'; }
@test "a relative include fails" { refuses core/ledger.hpp '#  include "units.hpp"' 'from the root'; }
@test "a folder missing in the table as target fails" { refuses core/a.hpp '#include "web/a.hpp"' 'no such folder'; }

@test "a folder missing in the table as source fails" {
  mkdir "$tree/src/web"
  refuses web/a.hpp '' 'not in src/LAYERS'
}

@test "threads, files, logging and clocks in core fail" {
  refuses core/a.hpp '#include <mutex>' 'core is pure'
  refuses core/a.hpp '#include <fstream>' 'core is pure'
  refuses core/a.hpp '#include <sys/stat.h>' 'core is pure'
  refuses core/a.hpp '#include <spdlog/spdlog.h>' 'core is pure'
  refuses core/a.hpp 'auto now = std::chrono::steady_clock::now();' 'core is pure'
  refuses core/a.hpp '#include "base/clock.hpp"' 'core is pure'
}

@test "the tests of core may read files" {
  echo '#include <fstream>' >"$tree/src/core/ledger_test.cpp"
  run "$check" "$tree"
  [ "$status" -eq 0 ]
}

@test "a table with a cycle fails" {
  printf '%s\n' 'base: core' 'core: base' 'enforce:' 'cli:' >"$tree/src/LAYERS"
  run "$check" "$tree"
  [ "$status" -eq 1 ]
  [[ "$output" == *"base names core, which is not above it"* ]]
}

@test "an empty tree is an error, not a pass" {
  run "$check" "$BATS_TEST_TMPDIR/nothing"
  [ "$status" -eq 2 ]
}
