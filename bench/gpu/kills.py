"""The row of bench/gpu/run about the end of processes: busy clients of one MPS server are killed as scancel does it, at random instants, in kernels of
0.2 ms to 1 s, beside two jobs of the same user on the same server; and the next process of the same job asks for all its memory at once."""
import glob
import os
import random
import subprocess
import time

KILLS, JOBS, LIMIT_S = 200, 4, 140
FIRST = 20  # of them one victim at a time
KERNELS = ((200, 16), (1000, 8), (5000, 8), (50000, 2), (300000, 1), (1000000, 1))  # µs, how many are queued


class Victims:
    """A batch job whose steps come one after the other, each busy until it is killed."""

    def __init__(self, bench, engine, spin, number):
        self.bench, self.engine, self.said = bench, engine, os.path.join(engine.folder, f"victims{number}")
        self.kills, self.seen, self.ended, self.wait_until, self.first, self.short, self.died = 0, 0, 0, None, None, [], []
        turns = " ".join(f"{us}:{depth}" for us, depth in random.sample(KERNELS, len(KERNELS)))
        script = os.path.join(engine.folder, f"job{number}")
        with open(script, "w") as file:
            file.write(f"#!/bin/bash\nwhile :; do for k in {turns}; do {bench.bin}/aliquot srun {spin} ${{k%:*}} ${{k#*:}} 132 0 2>>{self.said}.err; done; done\n")
        for name in (self.said, self.said + ".err"):
            with open(name, "w"):
                os.chmod(name, 0o666)
        answer = subprocess.run([os.path.join(bench.bin, "aliquot"), "sbatch", "--parsable", "-o", self.said, "--gpu-mem=10G", script], cwd="/", text=True,
                                capture_output=True, env=dict(engine.environment, HOME=bench.lab), **bench.identity(bench.USERS[0]))
        self.id = answer.stdout.strip()
        if not self.id:
            raise RuntimeError(answer.stderr)

    def cancel(self, *words):
        subprocess.run([os.path.join(self.bench.bin, "aliquot"), "scancel", *words], env=dict(self.engine.environment, HOME=self.bench.lab),
                       **self.bench.identity(self.bench.USERS[0]))

    def step(self):
        """One look; whether it killed."""
        lines = open(self.said).read().splitlines()
        ended = [line for line in lines if line.startswith("DIED")]
        up = [line for line in lines if line.startswith("UP ")]
        if len(up) > self.seen:
            self.seen = len(up)
            mib = int(up[-1].split()[1])
            self.first = self.first or mib
            if mib < self.first - 64:
                self.short.append(mib)
            self.ended = len(ended)
            self.wait_until = time.time() + random.uniform(0.01, 0.25)
        if self.wait_until is None or time.time() < self.wait_until:
            return False
        self.wait_until = None
        self.died += [line for line in ended[self.ended:] if line == "DIED 810"]  # before anybody killed it
        # By the daemon, and by the job's own supervisor.
        self.cancel("-s", "KILL", f"{self.id}.{self.seen - 1}" if self.seen % 2 else self.id)
        self.kills += 1
        return True


def measure(bench):
    random.seed(4)
    spin = os.path.join(bench.lab, "spin")
    subprocess.run(["nvcc", "-O2", "-o", spin, os.path.join(bench.WORK, "spin.cu")], check=True)
    engine = bench.Engine("user")
    neighbours = []
    for name, us in (("a", 500), ("b", 2000)):
        log = open(os.path.join(engine.folder, name), "w+")
        neighbours.append((engine.start([spin, str(us), "4", "16", "1024"], options=("--gpu-mem=4G",), user=bench.USERS[0], log=log), log))
    until = time.time() + 30
    while time.time() < until and not all("UP" in open(log.name).read() for _, log in neighbours):
        time.sleep(0.05)
    until = time.time() + LIMIT_S

    def alive():
        return all(process.poll() is None for process, _ in neighbours)

    facts = bench.facts["kills"] = {}
    everybody = []
    for name, jobs, wanted in (("one at a time", 1, FIRST), (f"{JOBS} jobs at once", JOBS, KILLS - FIRST)):
        victims = [Victims(bench, engine, spin, len(everybody) + i) for i in range(jobs)]
        everybody += victims
        kills = 0
        while kills < wanted and time.time() < until and alive():
            kills += sum(one.step() for one in victims)
            time.sleep(0.005)
        if not alive():  # the server and its logs go soon
            facts["mps"] = {path: open(path, errors="replace").read()[-3000:] for path in glob.glob(os.path.join(engine.folder, "state", "run", "mps", "*", "l", "*"))}
        for one in victims:  # and the last ones by the end of their job
            one.cancel(one.id)
        time.sleep(2)
        # 810: ended at the server, as it is to be. Anything else is the work of another one's end.
        died = sum((one.died + [line for line in open(one.said).read().splitlines() if line.startswith("DIED") and line != "DIED 810"] for one in victims), [])
        lives = [process.poll() is None for process, _ in neighbours]
        said = [open(log.name).read()[-200:] for _, log in neighbours]
        facts[name] = {"kills": kills, "neighbours": said, "died": died, "took_s": LIMIT_S - (until - time.time())}
        bench.row(f"SIGKILLs of busy MPS clients at random instants, {name}, two neighbours", f"{kills} kills, {sum(lives)} of 2 neighbours live, "
                  f"{len(died)} other victims died" + ("" if all(lives) else f": {said}"), f"{wanted}, both live", kills >= wanted and all(lives) and not died)
        if not all(lives):
            facts["why"] = [subprocess.run([os.path.join(bench.bin, "aliquot"), "why", one.id], env=engine.environment, text=True, capture_output=True).stdout[-600:]
                            for one in victims]
            break
    short, first = sum((one.short for one in everybody), []), [one.first for one in everybody]
    facts.update(first_mib=first, short_mib=short)
    for process, _ in neighbours:
        process.terminate()
    for process, _ in neighbours:
        process.wait(timeout=60)
    engine.stop()
    bench.row("the next process of the job asks for its whole grant at once", f"{len(short)} had less than the first ({first} MiB) {short[:3]}", "0",
              not short and all(first))
