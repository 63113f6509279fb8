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
