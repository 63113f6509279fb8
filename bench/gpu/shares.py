"""The shares rows of bench/gpu/run: what jobs with shares get of a GPU beside each other, against what each does alone.

Each setting (fault domain; one user or several) has one daemon; all its jobs start together and rest until their phase.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

SETTLE, WINDOW = 1.6, 4.4  # seconds of a phase: until turns are found, and measured
# The jobs that take part, by their share in hundredths; "4x50" has four processes.
JOBS = ("25", "75", "4x50", "50", "80", "20", "10", "30", "60", "90")
# row: what each job does. Alone, matmul, copy and graph are whole; bursts want half, which the other may have.
ROWS = {
    "queued 0.3 s": {"25": ["matmul", 0.3], "75": ["matmul", 0.3]},
    "queued 1 s": {"25": ["matmul", 1], "75": ["matmul", 1]},
    "queued 3 s": {"25": ["matmul", 3], "75": ["matmul", 3]},
    "copy 75": {"75": ["copy"], "25": ["matmul", 0]},
    "copy 25": {"25": ["copy"], "75": ["matmul", 0]},
    "graph 25": {"25": ["graph"], "75": ["matmul", 0]},
    "processes 4 + 1": {"4x50": ["matmul", 0], "50": ["matmul", 0]},
    "half idle": {"80": ["bursts"], "20": ["matmul", 0]},
    "10 + 30 + 60": {"10": ["matmul", 0], "30": ["matmul", 0], "60": ["matmul", 0]},
    "mnist 10 + 90": {"10": ["mnist"], "90": ["mnist"]},
    "mnist 10 beside matmul 90": {"10": ["mnist"], "90": ["matmul", 0]},
}
REPORTED = ("mnist",)  # no bar
SETTINGS = {"user, two users": ("user", 2), "user, one user": ("user", 1), "gpu, two users": ("gpu", 2), "gpu, one user": ("gpu", 1), "job": ("job", 2)}


class Bare:
    """Processes as srun would have started them, without us."""

    def __init__(self, processes):
        self.processes = processes

    def poll(self):
        return next((status for status in (p.poll() for p in self.processes) if status is None or status != 0), 0)

    def wait(self, timeout):
        for process in self.processes:
            process.wait(timeout)

    def kill(self):
        for process in self.processes:
            process.kill()


def share_of(job):
    return int(job.split("x")[-1])


def wait_for(paths, processes, seconds):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if all(os.path.exists(p) for p in paths):
            return True
        if any(q.poll() not in (None, 0) for q in processes):
            return False
        time.sleep(0.05)
    return False


def go_through(start, lab, jobs, rows, work):
    """Starts the jobs, lets them go through the rows; {job: [rate of each row]}, those of several processes added up, and
    {job: [part of the time in which the GPU had work of it]}."""
    folder = tempfile.mkdtemp(dir=lab)
    os.chmod(folder, 0o1777)
    processes, names = [], []
    for job in jobs:
        tasks = int(job.split("x")[0]) if "x" in job else 1
        names += [(job, f"{job}.{i}" if tasks > 1 else job) for i in range(tasks)]
        log = open(os.path.join(folder, f"{job}.log"), "w")
        processes.append(start([sys.executable, os.path.join(work, "phases.py"), folder, job], job, tasks, log))
    rates = {job: [0.0] * len(rows) for job in jobs}
    busy = {job: [0.0] * len(rows) for job in jobs}
    if wait_for([os.path.join(folder, n + ".ready") for _, n in names], processes, 120):
        first = time.time() + 0.5
        plan = [{"begin": first + i * (SETTLE + WINDOW + 0.3), "settle": SETTLE, "window": WINDOW, "loads": row} for i, row in enumerate(rows)]
        with open(os.path.join(folder, "plan.new"), "w") as file:
            json.dump(plan, file)
        os.rename(os.path.join(folder, "plan.new"), os.path.join(folder, "plan"))
    else:
        print("  a worker did not start: " + " | ".join(open(os.path.join(folder, j + ".log")).read()[-300:].strip().replace("\n", " / ") for j in jobs), flush=True)
        for process in processes:
            process.kill()
    for process in processes:
        try:
            process.wait(timeout=60 + len(rows) * (SETTLE + WINDOW + 1))
        except subprocess.TimeoutExpired:
            process.kill()
    for job, name in names:
        try:
            for i, result in enumerate(json.load(open(os.path.join(folder, name + ".json")))):
                rate, part = result or (0, 0)
                rates[job][i] += rate
                busy[job][i] = max(busy[job][i], part)
        except OSError:
            pass
    return rates, busy


def judge(row, loads, got, want):
    """Whether each got its share, or what it can use (in bursts: want), within three points; the words for it."""
    total = sum(got.values())
    words = " + ".join(f"{100 * got[j]:.1f}/{share_of(j)}" for j in loads) + f" = {100 * total:.1f}"
    if row.startswith(REPORTED):
        return words, True
    if any(load[0] == "bursts" for load in loads.values()):
        # Half of the time it wants nothing: the other has that.
        return words + f" (wants {100 * want:.1f})", got["80"] >= want - 0.03 and got["20"] >= 1 - want - 0.08 and total >= 0.92
    # Beside copies matmuls run at higher clocks than alone, and all together make more than 100: that is nobody's loss.
    over = 3 if len({load[0] for load in loads.values()}) == 1 else 3 + 100 * max(total - 1, 0)
    points = [100 * got[j] / max(min(total, 1), 1e-9) - share_of(j) for j in loads]
    return words, all(-3 <= p <= over for p in points) and total >= 0.92


def measure(wanted, engine_of, lab, work, users, row, facts, launch_cost):
    """wanted: words that a row's or setting's name must contain one of, by kind; nothing: all."""
    rows = {name: loads for name, loads in ROWS.items() if not wanted or any(w in name for w in wanted if not is_setting(w))
            or all(is_setting(w) for w in wanted)}
    settings = {name: s for name, s in SETTINGS.items() if not any(is_setting(w) for w in wanted) or any(w in name for w in wanted if is_setting(w))}
    used = {load[0] for loads in rows.values() for load in loads.values()} | {"matmul"}
    kinds = [kind for kind in (["matmul", 0], ["copy"], ["graph"], ["bursts"], ["mnist"]) if kind[0] in used]

    def bare(command, job, tasks, log):
        return Bare([subprocess.Popen(command, stdout=log, stderr=log, cwd=work, env=dict(os.environ, SLURM_NTASKS=str(tasks), SLURM_PROCID=str(i)))
                     for i in range(tasks)])

    rates, busy = go_through(bare, lab, ["0"], [{"0": kind} for kind in kinds], work)
    alone = {kind[0]: rate for kind, rate in zip(kinds, rates["0"])}
    # Bursts want the time that they fill. What they get done in it tells more: a card that rests in between has higher
    # clocks, which nobody has beside a neighbour that fills the pauses.
    filled = {kind[0]: part for kind, part in zip(kinds, busy["0"])}
    want = filled.get("bursts", 0) / max(filled["matmul"], 1e-9)
    if want:
        facts["bursts alone"] = {"busy": want, "rate": alone["bursts"], "faster_than_without_rest": alone["bursts"] / want / max(alone["matmul"], 1e-9)}
    if any("x" in job for loads in rows.values() for job in loads):
        # Four processes without MPS alternate, which costs something: what they can use is what they make alone.
        alone["4 x matmul"] = go_through(bare, lab, ["4x0"], [{"4x0": ["matmul", 0]}], work)[0]["4x0"][0]
    alone["bursts"] = alone["matmul"]
    facts["alone"] = alone
    print("  alone: " + ", ".join(f"{kind} {rate:.1f}/s" for kind, rate in alone.items()) + (
        f"; bursts fill {100 * want:.1f} % of the time, {100 * facts['bursts alone']['faster_than_without_rest']:.1f} % as fast as without rest" if want else ""),
        flush=True)
    for setting, (domain, count) in settings.items():
        # What is only reported, once.
        here = {n: loads for n, loads in rows.items() if setting == list(settings)[0] or not n.startswith(REPORTED)}
        if not here:
            continue
        jobs = [j for j in JOBS if any(j in loads for loads in here.values())]
        engine = engine_of(domain)

        def start(command, job, tasks, log):
            options = [f"--gpu-share={share_of(job)}%", "--gpu-mem=8G", "-n", str(tasks)]
            # Jobs of one row are of different users where there are two.
            user = users[JOBS.index(job) % count] if count > 1 else users[0]
            return engine.start(command, options=options, user=user, log=log)

        rates, _ = go_through(start, lab, jobs, list(here.values()), work)
        facts[f"shares, {setting}"] = rates
        for i, (name, loads) in enumerate(here.items()):
            reference = lambda job, load: alone["4 x matmul"] if "x" in job and domain == "job" else alone[load[0]]
            got = {job: rates[job][i] / max(reference(job, load), 1e-9) for job, load in loads.items()}
            words, fine = judge(name, loads, got, want)
            row(f"{setting}: {name}", words, "reported" if name.startswith(REPORTED) else "within 3 points, >= 92", fine)
        if launch_cost and setting == list(settings)[0]:
            launch_cost(engine)
        engine.stop()


def is_setting(word):
    return any(word in name for name in SETTINGS)
