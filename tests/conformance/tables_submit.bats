# Tables of cases whose texts are Slurm's own: how jobs are submitted and what they find. See table.bash.
load helper
load lab

@test "sbatch: bad" { table sbatch_bad; }
@test "sbatch: good" { table sbatch_good; }
@test "srun" { table srun; }
@test "salloc" { table salloc; }
@test "environment" { table environment; }
@test "output" { table output; }
