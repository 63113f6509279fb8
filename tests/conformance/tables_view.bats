# Tables of cases whose texts are Slurm's own: what is shown. See table.bash.
load helper
load lab

@test "squeue" { table squeue; }
@test "squeue: format" { table squeue_format; }
@test "sinfo" { table sinfo; }
@test "sacct" { table sacct; }
@test "priority" { table priority; }
