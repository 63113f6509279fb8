# The dashboards, held against Grafana's own types (npm's package @grafana/schema, which the page's build fetches).
bats_require_minimum_version 1.5.0

setup() {
  root=$(realpath "$BATS_TEST_DIRNAME/../..")
  modules=$root/build/web/tree/node_modules
  command -v node >/dev/null || skip "Node.js is not here"
  [ -e "$modules/@grafana/schema" ] || skip "@grafana/schema is not here: the page was built without npm's packages"
  cd "$BATS_TEST_TMPDIR" || return 1
  ln -s "$modules" node_modules
  cp "$BATS_TEST_DIRNAME/dashboard.ts" .
}

check() { # FILE…: of JSON
  local file names=()
  for file; do
    names+=("$(basename "$file" .json).ts")
    node -e '
      const dashboard = JSON.parse(require("fs").readFileSync(process.argv[1], "utf8"));
      const panels = {};
      for (const panel of dashboard.panels) (panels[panel.type] ??= []).push(panel);
      console.log(`import type { Checked } from "./dashboard";\nexport const dashboard: Checked = ${JSON.stringify({ ...dashboard, panels }, null, 1)};`);
    ' "$file" >"${names[-1]}"
  done
  node node_modules/typescript/bin/tsc --noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler --target es2022 "${names[@]}"
}

@test "dashboards are what Grafana calls one" {
  run -0 check "$root"/packaging/grafana/*.json
  echo "$output"
  [ -z "$output" ]
}

@test "what Grafana does not know is found" {
  damaged() { # FROM TO: one line of the site's
    sed "0,/$1/s//$2/" "$root/packaging/grafana/site.json" >damaged.json
    run -1 cmp -s damaged.json "$root/packaging/grafana/site.json"
    run ! check damaged.json
    echo "$output"
    [[ $output == *"damaged.ts("*"error TS"* ]]
  }
  damaged '"schemaVersion"' '"schemaVersoin"'
  damaged '"colorMode": "value"' '"colorMode": "valeu"'
  damaged '"graphMode"' '"graphMood"'
  damaged '"orientation"' '"direction"'
  damaged '"defaults": {' '"defaults": {"custom": {"opacity": 7},'
  damaged '"type": "stat"' '"type": "stats"'
  damaged '"gridPos"' '"place"'
  damaged '"sort": 1' '"sort": "name"'
}
