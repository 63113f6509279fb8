"""JupyterHub's batchspawner: submits, asks where it runs and cancels each round; usage: batchspawner_rounds.py ROUNDS"""

import asyncio
import os
import sys
import time
from types import SimpleNamespace

from batchspawner import JobStatus, SlurmSpawner


class Spawner(SlurmSpawner):
    """The part that talks to Slurm, without a hub."""

    def get_env(self):
        return dict(os.environ)

    def cmd_formatted_for_batch(self):
        return "sleep 600"


async def rounds(count):
    for number in range(count):
        user = SimpleNamespace(name="root", url="/user/root/", server=None, settings={})
        spawner = Spawner(user=user, hub=SimpleNamespace(api_url="", server=SimpleNamespace(base_url="/")), _deprecated_db_session=None)
        spawner.exec_prefix = ""
        spawner.req_partition, spawner.req_runtime, spawner.req_memory = "main", "0:30:00", "100M"
        spawner.req_options, spawner.req_homedir = "", "/tmp"
        job = await spawner.submit_batch_script()
        assert job.isdigit() and spawner.job_id == job, job
        until = time.time() + 300
        while (status := await spawner.query_job_status()) != JobStatus.RUNNING:
            assert status == JobStatus.PENDING, (number, status)
            assert time.time() < until, f"job {job} does not start"
            await asyncio.sleep(0.05)
        assert spawner.state_gethost() == sys.argv[2], spawner.job_status
        await spawner.cancel_batch_job()
        while await spawner.query_job_status() != JobStatus.NOTFOUND:
            assert time.time() < until, f"job {job} does not end"
            await asyncio.sleep(0.05)


asyncio.run(rounds(int(sys.argv[1])))
