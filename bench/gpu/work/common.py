"""What the workers share: they say when they are warm, begin together, and write what they did in the window.

usage of a worker: WORKER FOLDER NAME SECONDS [TURN/TURNS]
FOLDER/NAME.ready appears when it is warm; it begins at the time in FOLDER/go (seconds since the epoch), and writes
FOLDER/NAME.json at the end. A worker that fails writes why into FOLDER/NAME.error. With TURN/TURNS it works in every
TURNS-th half second only, and rests while others have theirs: what two of them do then differs by the workers, not by
how the machine feels.
"""
import json
import os
import sys
import time
import traceback


TURN = 0.5  # seconds


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def measure(step, sync, every=16):
    """Runs step() until the window is over; the rate is of the steps that were done, not queued."""
    folder, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    path = os.path.join(folder, name)
    turn, turns = (int(n) for n in (sys.argv[4] if len(sys.argv) > 4 else "0/1").split("/"))

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
            # At work already, in the same way: what happens in the window is what goes on, not how it begins. Who has turns would only hold up the others' start.
            time.sleep(0.05) if turns > 1 else work()
        begin = float(open(go).read())
        while time.time() < begin:
            time.sleep(0.05) if turns > 1 else work()
        steps = elapsed = 0
        while time.time() < begin + seconds:
            wait = (turn - (time.time() - begin) / TURN) % turns
            if 0 < wait <= turns - 1:
                time.sleep(wait * TURN)
                work()  # out of its sleep
            started = time.time()
            work()
            steps += every
            elapsed += time.time() - started
        write(path + ".json", json.dumps({"steps": steps, "seconds": elapsed, "rate": steps / elapsed}))
    except BaseException:
        write(path + ".error", traceback.format_exc())
        raise
