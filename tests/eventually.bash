# For the bats files: waiting for what happens in its own time. The limit is there so that a test ends; a machine that is
# busy with something else may need most of it.

# eventually COMMAND…: waits until the command succeeds, for at most two minutes. Where it never did, the file's own
# `what_is_there`, if it has one, tells how things stand.
eventually() {
  local until=$((SECONDS + 120))
  until "$@"; do
    ((SECONDS < until)) || {
      echo "never: $*" >&2
      if declare -F what_is_there >/dev/null; then what_is_there >&2; fi
      return 1
    }
    sleep 0.02
  done
}

# end_all_in FOLDER: nothing that a test has started in it outlives the test. Call it from elsewhere.
end_all_in() {
  local process
  find /proc -maxdepth 2 -name cwd \( -lname "$1" -o -lname "$1/*" -o -lname "$1 (deleted)" \) 2>/dev/null |
    while IFS=/ read -r _ _ process _; do kill -KILL "$process" 2>/dev/null; done
  return 0
}
