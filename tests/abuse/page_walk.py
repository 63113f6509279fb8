"""What others may ask of a daemon's page by TCP: methods, paths, bodies and headers at random, by who has no token, or one
that is none. Each has to be answered in HTTP, never with a failure of the daemon's, and never with what is secret.

usage: page_walk.py PORT SECONDS SECRET JOB[,JOB…] WHO=TOKEN…
PAGE_WALK_SEED repeats a walk. Prints how many requests of whom were answered how."""

import collections
import os
import random
import socket
import sys
import time

port, seconds, secret = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3].encode()
jobs = sys.argv[4].split(",")
callers = {"nobody": ""} | dict(one.split("=", 1) for one in sys.argv[5:])
seed = int(os.environ.get("PAGE_WALK_SEED", 0)) or random.SystemRandom().getrandbits(32)
dice = random.Random(seed)
answered = collections.Counter()

# A wait lasts until its job ends: of those that are there it is no question for here.
QUESTIONS = ["", "why", "processes", "log", "log?from=0", "log?from=-1", "log?from=99999999999999999999"]
ORDERS = ["cancel", "hold", "release", "requeue", "suspend", "resume", "update", "steps", "attach", "signal", "adopt", "steps/0/end"]
PATHS = ["/", "/events", "/metrics", "/metrics/jobs", "/metrics/jobs-users-accts", "/page.js", "/page.css", "/v1/me",
         "/v1/cluster", "/v1/jobs", "/v1/jobs?script=1&user=games", "/v1/jobs?limit=1", "/v1/jobs?after=x", "/v1/priorities",
         "/v1/shares", "/v1/statistics", "/v1/accounting", "/v1/accounting?user=games&since=0", "/v1/accounts", "/v1/reservations",
         "/v1/allocations", "/v1/reconfigure", "/v1/node/drain", "/v1/node/resume", "/v1/statistics/reset",
         "/v1/reservations/create", "/v1/reservations/delete", "/v1/token", "/v1/token/revoke", "/v1", "//", "/v1//log",
         "/v1/jobs/%2e%2e/%2e%2e/etc/passwd", "/v1/jobs/999999/wait", "/state.db", "/%00", "/../aliquotd.log"]
for job in jobs:
    PATHS += [f"/v1/jobs/{job}/{part}".rstrip("/") for part in QUESTIONS + ORDERS] + [f"/v1/jobs/{job}?script=1", f"/v1/jobs/{job}?environment=1"]
METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"]
BODIES = [b"", b"{}", b"[]", b"null", b'{"script":"#!/bin/sh\\nid"}', b'{"user":"games","uid":0}', b'{"for_s":60}', b"[" * 3000,
          b'{"name":"\\ud800"}', b'{"reason":"x","gpus":[0]}', b'{"time_limit_ms":-1,"priority":9e99}', b"\xff\xfe\0"]
HOSTS = ["127.0.0.1", "localhost:9834", "[::1]:1", "gpu1", "evil.example", "", "127.0.0.1:x", "a b", "127.0.0.1@evil", "[", "x" * 3000]


def answer_to(request):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(request)
        got = b""
        while part := peer.recv(65536):
            got += part
            # What never ends is read until it has told all that there is.
            if b"text/event-stream" in got and got.count(b"\n\n") >= 1 and got.endswith(b"\n\n"):
                break
        return got


def bent(text):
    """A path with something broken in it."""
    at = dice.randrange(len(text) + 1)
    odd = dice.choice(["%", "%2", "%00", "/", "//", "..", "?", "&", "=", "#", "\\", "\x7f", "'", "{", "7", "_", "-1", "%ff", "é"])
    return text[:at] + odd + text[at + dice.randrange(3):]


def request_of(method, path, token, body=b"", lines=(), hosts=("localhost",)):
    head = [f"{method} {path} HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close", *lines]
    if token:
        head.append(f"Authorization: Bearer {token}")
    if body or method == "POST":
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def ask(who, request):
    try:
        got = answer_to(request)
    except OSError as error:
        got = f"({error})".encode()
    status = got[9:12].decode("ascii", "replace")
    fine = got.startswith(b"HTTP/1.1 ") and status.isdigit() and 200 <= int(status) < 500 and secret not in got
    if not fine:
        print(f"PAGE_WALK_SEED={seed}: {who} asked\n{request[:600]!r}\nand was answered\n{got[:2000]!r}")
        sys.exit(1)
    answered[who, status] += 1
    return int(status)


def at_random():
    who = dice.choice(list(callers))
    path = dice.choice(PATHS)
    # A wait of a job that is there is no question for here, however it comes about.
    while dice.random() < 0.4:
        path = bent(path)
    path = path.replace(" ", "%20").replace("\r", "").replace("\n", "")
    if "wait" in path and not path.startswith("/v1/jobs/999999/wait"):
        path = "/v1/jobs"
    method = dice.choice(METHODS[:2]) if dice.random() < 0.7 else dice.choice(METHODS)
    body = dice.choice(BODIES) if method != "GET" and dice.random() < 0.7 else b""
    if body and dice.random() < 0.2:
        body = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 400)))
    hosts = ["localhost"] if dice.random() < 0.6 else dice.choices(HOSTS, k=dice.randrange(3))
    lines = []
    for _ in range(dice.randrange(3) if dice.random() < 0.5 else 0):
        lines.append(dice.choice([
            "Accept-Encoding: gzip", "If-None-Match: *", "Origin: http://evil.example", "Last-Event-ID: 7", "X-Forwarded-For: 127.0.0.1",
            "X-Remote-User: games", "Cookie: aliquot-token=" + "0" * 64, "Authorization: Basic Z2FtZXM6", "Authorization: Bearer",
            "Authorization: Bearer " + "0" * 64, "Upgrade: h2c", "Expect: 100-continue", "Range: bytes=0-", "X-" + "y" * dice.randrange(900) + ": z",
            "X-Odd: " + "".join(chr(dice.randrange(33, 127)) for _ in range(40))]))
    ask(who, request_of(method, path, callers[who], body, lines, hosts))


until = time.monotonic() + seconds
# All that is known to be there once by each; then as much as there is time for, and no more than the machine has ports for.
for who, token in callers.items():
    for path in PATHS:
        for method in ("GET", "POST"):
            status = ask(who, request_of(method, path, token, b"{}" if method == "POST" else b""))
            assert method == "GET" or status >= 400, f"{who} may {method} {path}: {status}"
while time.monotonic() < until and sum(answered.values()) < 20_000:
    at_random()
for (who, status), count in sorted(answered.items()):
    print(f"{who} {status} {count}")
print(f"all {sum(answered.values())}")
