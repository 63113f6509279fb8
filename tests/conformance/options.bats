# What needs no daemon: option errors and scripts that are none.
load helper

@test "an ambiguous abbreviation" {
  run_case sbatch_abbrev 'sbatch --wr true --err=/dev/null --out=/dev/null --gr=gpu:1 --cpus-per-t=2'
  run_case sbatch_ambiguous 'sbatch --mem-p=3 --wrap true'
  run squeue --j
  [[ $output == *"option '--j' is ambiguous; possibilities: '--jobs' '--json'"* ]]
}

@test "an unknown option, on the command line and in the script" {
  run_case sbatch_bad_opt 'sbatch --frobnicate sleep.sh'
  run_case sbatch_unknown_directive 'printf "#!/bin/bash\n#SBATCH --frob=1\nsleep 1\n" > bd.sh; sbatch bd.sh'
}

@test "a time that is none" {
  run_case sbatch_bad_time 'sbatch -t banana sleep.sh'
}

@test "no file, an empty file, no interpreter" {
  run_case sbatch_nofile 'sbatch nosuch.sh'
  run_case sbatch_empty 'printf "" > e.sh; sbatch e.sh'
  run_case sbatch_noshebang 'printf "echo hi\n" > ns.sh; sbatch ns.sh'
}

@test "scancel without a job, and with what is none" {
  run_case scancel_noarg 'scancel'
  run_case scancel_bad 'scancel abc'
}

@test "directives are read up to the first command" {
  printf '#!/bin/bash\necho\n#SBATCH --frob=1\n' >late.sh
  run sbatch -t banana late.sh
  [ "$status" -eq 255 ]
  [ "$output" = "sbatch: error: Invalid --time specification" ]
}

@test "the commands are also words of aliquot" {
  [[ $ENGINE == local ]] || skip "ours"
  run "$ALIQUOT_BIN/aliquot" sbatch --frobnicate
  [ "$status" -eq 255 ]
  [ "${lines[0]}" = "sbatch: unrecognized option '--frobnicate'" ]
  run "$ALIQUOT_BIN/aliquot" sbatch --version
  [[ $output =~ ^aliquot\ [0-9]+\.[0-9]+\.[0-9]+ ]]
}
