# The page beyond this machine: with certificate and key alone, over TLS, and with a new certificate once there is one. In
# a network of its own, which has an address that is not the loopback's.
bats_require_minimum_version 1.5.0
load ../eventually
load browser.bash

setup() {
  [[ $EUID -eq 0 ]] || skip "needs root, for a network of its own"
  local program
  for program in openssl ip unshare nsenter; do
    command -v $program >/dev/null || skip "$program is not here"
  done
  work=$(mktemp -d "$BATS_TEST_TMPDIR/tls.XXXXXX")
  cd "$work" || return 1
  export ALIQUOT_SOCKET=$work/s
  unshare -n sleep 600 3>&- &
  network=$!
  eventually is_apart
  beyond ip link set lo up
  beyond ip address add 10.9.8.7/32 dev lo
}
teardown() {
  [[ -n ${network:-} ]] || return 0
  [[ -z ${daemon:-} ]] || { kill "$daemon" && wait "$daemon"; } || true
  kill "$network"
  cd / && end_all_in "${work:?}"
}
is_apart() { [[ $(readlink "/proc/$network/ns/net") != "$(readlink /proc/self/ns/net)" ]]; }
beyond() { nsenter -t "$network" -n "$@" 3>&-; }

certificate() { # NAME: NAME.pem and NAME.key, for gpu1.test
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" -addext 'subjectAltName=DNS:gpu1.test' \
    -keyout "$1.key" -out "$1.pem" 2>/dev/null
}
# In place of what is in use, as whoever renews certificates does.
use() { cp "$1.pem" new.pem && cp "$1.key" new.key && mv new.key page.key && mv new.pem page.pem; }

settings() { printf '[page]\nport = 9834\nhost = "%s"\nnames = ["gpu1.test"]\n%s\n' "$1" "${2:-}" >aliquot.toml; }
keys="certificate = \"page.pem\"
key = \"page.key\""
aliquotd() { beyond "$ALIQUOT_BIN/aliquotd" --foreground --simulate h200:1 --state-dir "$work/state" --socket "$ALIQUOT_SOCKET" --config "$work/aliquot.toml" "$@"; }
listens() { [[ -n $(beyond ss -Hltn 'sport = :9834') ]]; }
start() {
  # Not by the function: what is to be ended is the daemon itself.
  nsenter -t "$network" -n "$ALIQUOT_BIN/aliquotd" --foreground --simulate h200:1 --state-dir "$work/state" --socket "$ALIQUOT_SOCKET" \
    --config "$work/aliquot.toml" >log 2>&1 3>&- &
  daemon=$!
  eventually listens
}

# https CA [HOST]: asks for the page as a browser elsewhere that believes CA, and prints the status.
https() {
  beyond python3 - "$@" <<'END'
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
host = sys.argv[2] if len(sys.argv) > 2 else "gpu1.test:9834"
with socket.create_connection(("10.9.8.7", 9834), timeout=60) as plain, context.wrap_socket(plain, server_hostname="gpu1.test") as peer:
    peer.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    version, got = peer.version(), b""
    while part := peer.recv(65536): got += part
print(version, got.split(b" ")[1].decode(), b"<html" in got)
END
}
has_started_with() { https "$1" >/dev/null 2>&1; }

@test "beyond this machine the page needs a certificate and its key" {
  certificate one
  use one
  for more in '' 'certificate = "page.pem"' 'key = "page.key"'; do
    settings 10.9.8.7 "${more//page./$work/page.}"
    run aliquotd
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output == *"page.certificate and page.key"* ]]
    run aliquotd --check
    [ "$status" -ne 0 ]
    run ! listens
  done
  run -2 beyond "$ALIQUOT_BIN/aliquot" page --host 10.9.8.7 --port 9834
  [[ $output == *"beyond this machine"*"TLS"* ]]
  # A key of something else.
  certificate other
  cp other.key page.key
  settings 10.9.8.7 "${keys//page./$work/page.}"
  run aliquotd
  echo "$output"
  [ "$status" -ne 0 ]
  run ! listens
  # On this machine it needs none.
  settings 127.0.0.1
  start
  beyond python3 -c 'import urllib.request; assert urllib.request.urlopen("http://127.0.0.1:9834/", timeout=60).status == 200'
}

@test "it is served over TLS alone, and with a new certificate as soon as there is one" {
  certificate one
  certificate two
  use one
  settings 10.9.8.7 "${keys//page./$work/page.}"
  start
  run -0 https one.pem
  echo "$output"
  [[ $output == "TLSv1."[23]" 200 True" ]]
  run -0 https one.pem evil.example
  [[ $output == *" 403 False" ]]
  # Who does not believe it, or does not speak TLS, is told nothing.
  run ! https two.pem
  [[ $output == *CERTIFICATE_VERIFY_FAILED* ]]
  run beyond python3 -c 'import socket
with socket.create_connection(("10.9.8.7", 9834), timeout=60) as peer:
    peer.sendall(b"GET / HTTP/1.1\r\nHost: gpu1.test\r\n\r\n")
    print(peer.recv(65536))'
  echo "$output"
  [[ $output != *HTTP* ]]
  run ! beyond python3 -c 'import socket, ssl
context = ssl.create_default_context(cafile="one.pem"); context.minimum_version = ssl.TLSVersion.TLSv1; context.maximum_version = ssl.TLSVersion.TLSv1_1
context.wrap_socket(socket.create_connection(("10.9.8.7", 9834), timeout=60), server_hostname="gpu1.test")'

  use two
  eventually has_started_with two.pem
  run ! https one.pem
  # What cannot be used is told, and what was there goes on.
  echo nonsense >page.pem
  run -0 https two.pem
  grep -q "the page's certificate: " log
  use one
  eventually has_started_with one.pem
}
