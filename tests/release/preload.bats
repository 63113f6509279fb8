# /etc/ld.so.preload: the library in every process, also in one that has thrown its environment away, which then finds
# its grant by the control group it is in. In a mount namespace with an /etc and a /run of its own: nobody else sees it.
load ../abuse/helper

# What a process needs to find the stand-in's GPUs, and nothing else of its job's environment.
bare='env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH ALIQUOT_STANDIN_STATE=$ALIQUOT_STANDIN_STATE'

in_private() {
  mount -t tmpfs none /run && cp -a /etc "$work/etc" && mount --bind "$work/etc" /etc
  library=/run/lib/libaliquot.so
  install -D "$ALIQUOT_BIN/../lib/libaliquot.so" "$library"
  start_users --run-dir /run/aliquot "$(settings "[enforce]
library = \"$library\"")"
  find /sys/fs/cgroup -path '*/aliquot-*' -print -quit | grep -q . || skip "needs control groups"
}

# greedy SECONDS: takes what it gets, and keeps it for so long.
greedy() {
  as games sbatch -W -o out --gpu-mem=8G --wrap "$bare $ALIQUOT_BIN/aliquot-load --mem 30G --grow --json --seconds $1 --busy 0%; echo rc=\$?" || true
  cat "$work/games/out"
}

@test "without its job's environment a process is held to its job's share, where setup says so" {
  if [[ -z ${IN_PRIVATE:-} ]]; then
    [[ $EUID -eq 0 ]] || skip "needs root"
    unshare -m --propagation private true 2>/dev/null || skip "needs namespaces"
    IN_PRIVATE=1 run unshare -m --propagation private bats "$BATS_TEST_FILENAME"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *"# skip"* ]] || skip "${output#*# skip }"
    return 0
  fi
  in_private
  aliquot=$ALIQUOT_BIN/aliquot
  [[ $("$aliquot" doctor) != *"every process has"* ]]
  run greedy 120
  echo "$output"
  [[ $output == *rc=137* ]] # the watchdog's doing
  # A link may be somebody's to turn elsewhere: what it leads to is written.
  ln -s /run/lib "$work/games/lib"
  chown -h games "$work/games/lib"
  run "$aliquot" setup preload on --library "$work/games/lib/libaliquot.so"
  [ "$status" -eq 0 ]
  [ "$(cat /etc/ld.so.preload)" = "$library" ]
  [[ $("$aliquot" doctor) == *"every process has $library"* ]]
  run greedy 1
  echo "$output"
  [[ $output == *rc=0* ]]
  bytes=$(sed -n 's/.*"allocated":\([0-9]*\).*/\1/p' <<<"$output")
  ((bytes > 6 << 30 && bytes < 8 << 30))
  # Who is in no job has nothing to be held to.
  as news true
  "$aliquot" setup preload off
  [ ! -e /etc/ld.so.preload ]
  [[ $("$aliquot" doctor) != *"every process has"* ]]
  run greedy 120
  echo "$output"
  [[ $output == *rc=137* ]]
}
