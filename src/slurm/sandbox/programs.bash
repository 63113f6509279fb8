# shellcheck shell=bash disable=SC2034,SC2154
# Where the programs are: Aliquot's own and Debian's. Part of slurm-sandbox.

# The folder or folders of Aliquot's programs, in the build tree and installed.
find_ours() {
  local name=$1 folder
  for folder in ${ALIQUOT_BIN:+"$ALIQUOT_BIN" "$ALIQUOT_BIN/../lib" "$ALIQUOT_BIN/../lib/slurm" "$ALIQUOT_BIN/../lib/aliquot" "$ALIQUOT_BIN/../standin" "$ALIQUOT_BIN/../libexec/aliquot"} \
    "$here" "$here/../../bin" "$here/../../sbin" "$here/../../lib/aliquot" "$here/../../lib" "$here/../../lib/aliquot/slurm" "$here/../../lib/aliquot/standin"; do
    [[ -f $folder/$name && -r $folder/$name ]] && { readlink -f "$folder/$name"; return 0; }
  done
  return 1
}
# Do agents and balancer run in it? On a bare one after 'aliquot slurm setup --apply'.
has_ours() { $aliquot && { ! $bare || grep -qs "^# gpus: " "$etc/gres.conf"; }; }

need() {
  local missing=() program package
  while read -r program package; do
    command -v "$program" >/dev/null || missing+=("$package")
  done < <(
    printf '%s\n' "munged munge" "slurmctld slurmctld" "slurmd slurmd" "scontrol slurm-client" "setsid util-linux"
    ! $db || printf '%s\n' "slurmdbd slurmdbd" "mariadbd mariadb-server" "mariadb-install-db mariadb-server" "mariadb mariadb-client"
  )
  # shellcheck disable=SC2046
  [[ ${#missing[@]} -eq 0 ]] ||
    die "not installed here: apt-get install --no-install-recommends $(printf '%s\n' "${missing[@]}" | sort -u | paste -sd' ')"
  plugins=$(dirname "$(find /usr/lib /usr/local/lib /opt -name select_cons_tres.so -print -quit 2>/dev/null)")
  [[ -f $plugins/gres_shard.so ]] ||
    die "Slurm's plugins are not installed here: apt-get install --no-install-recommends slurm-wlm-basic-plugins"
  $db && ! [[ -f $plugins/accounting_storage_mysql.so ]] &&
    die "slurmdbd has no MySQL plugin here: apt-get install --no-install-recommends slurm-wlm-mysql-plugin (or --no-db)"
  if $aliquot; then
    for program in aliquot-slurm aliquot-agent aliquot-balancer; do
      find_ours "$program" >/dev/null || die "$program is not beside $here: build it, or use --no-aliquot"
    done
  fi
  local user
  for user in munge slurm $($db && echo mysql); do
    getent passwd "$user" >/dev/null || die "there is no user '$user': install its package again, or: useradd -r $user"
  done
}
