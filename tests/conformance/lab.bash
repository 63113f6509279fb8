# shellcheck shell=bash
# For the bats files of tables: the machine that Slurm and Aliquot are for them, and the words that tables use.
# The machine of lab.toml, with the sandbox's accounts.
start_lab() {
  if [[ $ENGINE == local ]]; then
    start_engine --config "$here/lab.toml"
    sacctmgr -Q -i add account users Description=users Organization=sandbox
    sacctmgr -Q -i add user root,games,news,daemon account=users
  else
    scancel --me
    eventually no_jobs
  fi
}
no_jobs() { [[ -z $(squeue -h) ]]; }

# For the tables.
is_state() { [[ $(squeue -h -t all -j "$1" -o %T) == "$2" ]]; }
await() { eventually is_state "$@"; }
recorded() { [[ -n $(sacct -n -X -P -j "$1" -o state,end | grep -v 'RUNNING\|PENDING\|Unknown') ]]; }
# FORMAT OPTION…: what squeue shows of a held job with these options.
held() {
  local id
  id=$(sbatch --parsable -H -o /dev/null "${@:2}" --wrap true) && squeue -h -j "$id" -o "$1"
}
# KEY OPTION…: what scontrol shows of it, word by word.
shown() {
  local id
  id=$(sbatch --parsable -H -o /dev/null "${@:2}" --wrap true) && scontrol show job "$id" | tr ' ' '\n' | grep -E "^($1)="
}
# OPTION… COMMAND: what a batch job prints.
batch() { sbatch -Q -W -o batch.out "${@:1:$#-1}" --wrap "${!#}" || echo "rc=$?"; cat batch.out; }

table() {
  # Those who are shown are root and the node of the transcripts, and some tables change accounts.
  [[ $EUID -eq 0 ]] || skip "needs root, as the sandbox does"
  start_lab
  run_table "$1"
}
