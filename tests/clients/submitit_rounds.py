"""submitit: a job each round, and every tenth round an array; usage: submitit_rounds.py ROUNDS"""

import sys

import submitit


def square(number):
    return number * number


executor = submitit.AutoExecutor(folder="submitit.logs", cluster="slurm")
executor.update_parameters(timeout_min=5, cpus_per_task=1, slurm_partition="main", slurm_array_parallelism=4)
executor.update_parameters(slurm_srun_args=["--unbuffered"], gpus_per_node=1)
for number in range(int(sys.argv[1])):
    if number % 10 == 0:
        jobs = executor.map_array(square, [1, 2, 3])
        assert [job.result() for job in jobs] == [1, 4, 9], number
    job = executor.submit(square, number)
    assert job.result() == number * number, number
failing = executor.submit(square, "x")
assert isinstance(failing.exception(), submitit.core.utils.FailedJobError), "a job that fails is told"
waiting = executor.submit(square, 1)
waiting.cancel()
