"""usage: hyperqueue_tasks.py JOBS ARRAY TRIES: HyperQueue on this machine, by its Python interface, for bench/engine. Prints
three figures: jobs of one task each per second, tasks of one job per second, and the median milliseconds from a
submission to the task's first instruction. Its client looks for ends once a second. The last line is the figures'."""

import contextlib
import os
import statistics
import sys
import tempfile
import time

from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

jobs, array, tries = (int(word) for word in sys.argv[1:4])


def trivial(count):
    job = Job()
    for _ in range(count):
        job.program(["/bin/true"])
    return job


def main():
    folder = tempfile.mkdtemp(dir=os.getcwd())
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=64))
        client = cluster.client()
        begun = time.time()
        for submitted in [client.submit(trivial(1)) for _ in range(jobs)]:
            client.wait_for_jobs([submitted])
        one = jobs / (time.time() - begun)
        begun = time.time()
        client.wait_for_jobs([client.submit(trivial(array))])
        tasks = array / (time.time() - begun)
        first = []
        for i in range(tries):
            job = Job()
            path = os.path.join(folder, str(i))
            job.program(["/bin/bash", "-c", f"echo $EPOCHREALTIME >{path}"])
            begun = time.time()
            submitted = client.submit(job)
            client.wait_for_jobs([submitted])
            with open(path, encoding="ascii") as file:
                first.append((float(file.read()) - begun) * 1000)
    return one, tasks, statistics.median(first)


with contextlib.redirect_stdout(sys.stderr):
    figures = main()
print(*(f"{figure:.2f}" for figure in figures))
