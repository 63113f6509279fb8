"""One worker again and again, each time in a process of its own: what takes long to import is imported once, and each process has the same addresses.

usage: again.py WORKER FOLDER NAME SECONDS TURNS CPU
For each N from 0 on, as soon as FOLDER/N is there: WORKER FOLDER/N NAME SECONDS, with turns of its own (NAME + N of TURNS) on that CPU. FOLDER/end ends it.
"""
import os
import runpy
import sys
import time

import torch  # noqa: F401  (for the workers; nothing of it asks the driver yet)

worker, folder, name, seconds, turns, cpu = sys.argv[1:]
number = 0
while not os.path.exists(os.path.join(folder, "end")):
    here = os.path.join(folder, str(number))
    if not os.path.exists(here):
        time.sleep(0.02)
        continue
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {int(cpu)})
        sys.argv = [worker, here, name, seconds, f"{(int(name) + number) % int(turns)}/{turns}"]
        try:
            runpy.run_path(worker, run_name="__main__")
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(child, 0)
    number += 1
