# For tests of the page in a real Chromium: what they need, and why they cannot be here, or nothing.
# shellcheck shell=bash

browser_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
playwright=$browser_root/build/web/tree/node_modules/playwright-core

no_browser() {
  command -v node >/dev/null || { echo "Node.js is not here"; return; }
  [[ -x ${CHROMIUM:-/usr/bin/chromium} ]] || { echo "chromium is not here"; return; }
  [[ -e $playwright ]] || { echo "playwright-core is not here: the page was built without npm's packages"; return; }
  [[ -e $browser_root/build/web/files/page.js.gz ]] || echo "this build has the plain page"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
get() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "$1"; }
