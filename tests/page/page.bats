# The live page in a real Chromium: web/test/page.mjs. `make test-page` says how long each change took.
load browser.bash

@test "jobs that start, end and are cancelled are seen as they do" {
  why=$(no_browser)
  [ -z "$why" ] || skip "$why"
  run node "$browser_root/web/test/page.mjs" "$ALIQUOT_BIN" "$playwright"
  echo "$output"
  [ "$status" -eq 0 ]
}
