# The live page in a real Chromium: web/test/page.mjs. `make test-page` says how long each change took.

@test "jobs that start, end and are cancelled are seen as they do" {
  command -v node >/dev/null || skip "Node.js is not here"
  [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || skip "chromium is not here"
  root=$(realpath "$BATS_TEST_DIRNAME/../..")
  playwright=$root/build/web/tree/node_modules/playwright-core
  [ -e "$playwright" ] || skip "playwright-core is not here: the page was built without npm's packages"
  [ -e "$root/build/web/files/page.js.gz" ] || skip "this build has the plain page"
  run node "$root/web/test/page.mjs" "$ALIQUOT_BIN" "$playwright"
  echo "$output"
  [ "$status" -eq 0 ]
}
