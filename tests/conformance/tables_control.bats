# Tables of cases whose texts are Slurm's own: what is done to jobs and accounts, and what programs that drive Slurm call. See table.bash.
load helper
load lab

@test "scontrol: show" { table scontrol_show; }
@test "scontrol: update" { table scontrol_update; }
@test "scancel" { table scancel; }
@test "dependencies" { table dependencies; }
@test "arrays" { table arrays; }
@test "sacctmgr" { table sacctmgr; }
@test "signals" { table signals; }
@test "clients" { table clients; }

@test "every table is run" {
  local file
  for file in "$here"/tables/*.txt; do grep -qF "{ table $(basename "$file" .txt); }" "$here"/tables_*.bats; done
}
