"""What the workers share: they say when they are warm, begin together, and write what they did in the window.

usage of a worker: WORKER FOLDER NAME SECONDS
FOLDER/NAME.ready appears when it is warm; it begins at the time in FOLDER/go (seconds since the epoch), and writes
FOLDER/NAME.json at the end. A worker that fails writes why into FOLDER/NAME.error.
"""
import json
import os
import sys
import time
import traceback


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def measure(step, sync, every=16):
    """Runs step() until the window is over; the rate is of the steps that were done, not queued."""
    folder, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    path = os.path.join(folder, name)

    def work():
        for _ in range(every):
            step()
        sync()

    try:
        for _ in range(3):
            work()
        write(path + ".ready", "")
        go = os.path.join(folder, "go")
        while not os.path.exists(go):
            # At work already, in the same way: what happens in the window is what goes on, not how it begins.
            work()
        begin = float(open(go).read())
        while time.time() < begin:
            work()
        started = time.time()
        steps = 0
        while time.time() < started + seconds:
            work()
            steps += every
        elapsed = time.time() - started
        write(path + ".json", json.dumps({"steps": steps, "seconds": elapsed, "rate": steps / elapsed}))
    except BaseException:
        write(path + ".error", traceback.format_exc())
        raise
