"""dask-jobqueue: a cluster of one worker each round, that computes and goes; usage: dask_rounds.py ROUNDS"""

import subprocess
import sys
import time

from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def queue():
    return subprocess.run(["squeue", "-h", "-o", "%i"], check=True, capture_output=True, text=True).stdout.split()


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        with SLURMCluster(queue="main", cores=1, memory="1GB", processes=1, walltime="00:30:00", interface="lo",
                          log_directory="dask.logs") as cluster, Client(cluster) as client:
            cluster.scale(jobs=1)
            client.wait_for_workers(1, timeout=300)
            assert client.submit(lambda x: x + 1, number, pure=False).result(timeout=300) == number + 1
            assert len(queue()) == 1, queue()
        until = time.time() + 300
        while queue():
            assert time.time() < until, f"round {number}: the job does not go: {queue()}"
            time.sleep(0.1)
