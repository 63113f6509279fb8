"""parsl's provider for Slurm: submits, asks and cancels each round; usage: parsl_rounds.py ROUNDS"""

import sys
import time

from parsl.jobs.states import JobState
from parsl.launchers import SimpleLauncher, SrunLauncher
from parsl.providers import SlurmProvider


def until(provider, job, wanted):
    end = time.time() + 300
    while True:
        state = provider.status([job])[0].state
        if state in wanted:
            return state
        assert time.time() < end, f"job {job} is {state}"
        time.sleep(0.1)


for number in range(int(sys.argv[1])):
    launcher = SrunLauncher() if number % 2 else SimpleLauncher()
    provider = SlurmProvider(partition="main", exclusive=False, walltime="00:10:00", launcher=launcher)
    provider.script_dir = "."
    job = provider.submit(f"echo done >parsl.{number}", 1)
    assert job, "no job id was read"
    assert until(provider, job, {JobState.COMPLETED, JobState.FAILED}) == JobState.COMPLETED
    assert open(f"parsl.{number}").read() == "done\n"
    long = provider.submit("sleep 600", 1)
    until(provider, long, {JobState.RUNNING})
    assert provider.cancel([long]) == [True]
    until(provider, long, {JobState.CANCELLED})
