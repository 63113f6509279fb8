"""The memory rows of bench/gpu/run: a job of 10 GiB takes what it can get, in every way we know; never more than its limit, by what NVML attributes
to its processes and by the card's own total; and nothing is refused that a card of 10 GiB would have given."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from nvml import Nvml

MIB = 1 << 20
LIMIT = 10240
# What an MPS server takes, and the little of every context that NVML attributes to nobody: in nobody's grant.
SERVER, HIDDEN = 66, 8


class Peak(threading.Thread):
    """The highest figures seen, in MiB: the sum over the job's processes by NVML, and what the card has more than before. The MPS servers' own is
    not a job's."""

    def __init__(self):
        super().__init__(daemon=True)
        self.nvml, self.done, self.processes, self.card = Nvml(), False, 0, 0
        self.before = self.nvml.used()
        self.server_before = any(self.is_server(pid) for pid, _ in self.nvml.processes())
        self.start()

    def run(self):
        while not self.done:
            found = self.nvml.processes()
            server = 0 if self.server_before else sum(SERVER + HIDDEN for pid, _ in found if self.is_server(pid))
            self.processes = max(self.processes, sum(used for pid, used in found if not self.is_server(pid)) // MIB)
            # A server that starts meanwhile may be on the card before it is listed.
            if server or self.server_before or not self.under_mps:
                self.card = max(self.card, (self.nvml.used() - self.before) // MIB - server)
            time.sleep(0.003)

    under_mps = False

    @staticmethod
    def is_server(pid):
        try:
            return open(f"/proc/{pid}/comm").read().startswith("nvidia-cuda-mps")
        except OSError:
            return False

    def stop(self):
        self.done = True
        self.join()
        return self.processes, self.card


def quiet():
    """Waits until nothing of the last job is left on the card."""
    nvml = Nvml()
    for _ in range(500):
        if not any(not Peak.is_server(pid) for pid, _ in nvml.processes()):
            return
        time.sleep(0.02)


def run_one(bench, engine, command, processes, under_mps):
    quiet()
    peak = Peak()
    peak.under_mps = under_mps
    # As an ordinary user's: a job of root's sees the descriptors of everybody's NVML, and takes them for exported memory.
    found, status, text = bench.output(
        lambda file: engine.start(command, options=(f"--gpu-mem={LIMIT}M", "-n", str(processes)), user=bench.USERS[0], log=file), 60)
    by_nvml, by_card = peak.stop()
    return {"found": found, "status": status, "text": "" if found else text, "nvml_mib": by_nvml, "card_mib": by_card, "processes": processes}


def kinds(bench, load):
    """Plain allocations of every kind, in one process and in four."""
    for domain, runs in (("user", [("alloc", 1), ("managed", 1)] + [(k, 4) for k in ("alloc", "async", "vmm", "managed", "array", "pitch")]),
                         ("job", [("alloc", 4), ("async", 1), ("managed", 4)])):
        engine = bench.Engine(domain)
        results = {}
        for kind, processes in runs:
            command = [load, "--grow", "--kind", kind, "--mem", "40G", "--step", "256M", "--seconds", "0.3", "--busy", "0%", "--json"]
            results[f"{kind} x {processes}"] = run_one(bench, engine, command, processes, domain == "user")
        engine.stop()
        bench.facts[f"memory_{domain}"] = results
        answers = [f for r in results.values() for f in r["found"]]
        tried = sum(r["processes"] for r in results.values())
        # Done with less than it wanted, or refused its context: either way by an out-of-memory error (exit 4).
        refused = sum(1 for f in answers if f["exit"] == 4 or (f["exit"] == 0 and f["allocated"] < 40 << 30))
        # Of four processes each may keep 256 MiB of room and 530 of context.
        got = {name: sum(f["allocated"] for f in r["found"]) // MIB for name, r in results.items()}
        enough = all(mib >= LIMIT - (800 + 256) * results[name]["processes"] for name, mib in got.items())
        by_nvml, by_card = max(r["nvml_mib"] for r in results.values()), max(r["card_mib"] for r in results.values())
        bench.row(f"memory {LIMIT} MiB, plain kinds, 1 and 4 processes ({domain})",
                  f"peak {by_nvml} MiB by NVML, {by_card} by the card; {refused} of {tried} refused as out of memory; least got {min(got.values())}",
                  f"{LIMIT} by both, all refused, none early", by_nvml <= LIMIT and by_card <= LIMIT and refused == tried and enough)


def late_command(bench):
    folder = tempfile.mkdtemp(dir=bench.lab)
    os.chmod(folder, 0o1777)
    return [sys.executable, os.path.join(bench.WORK, "late.py"), folder]


BARE_ROUNDS = 3


def bare_late(bench, program, processes):
    """What each of them says on a card of which only a job's memory is free, without us."""
    quiet()
    ballast = subprocess.Popen([program, "ballast"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ballast.stdout.readline()
    command = late_command(bench)
    with tempfile.TemporaryFile("w+", dir=bench.lab) as log:
        bare = [subprocess.Popen(command, stdout=log, stderr=subprocess.DEVNULL, env=dict(os.environ, SLURM_NTASKS=str(processes), SLURM_PROCID=str(i)))
                for i in range(processes)]
        for process in bare:
            process.wait(timeout=90)
        log.seek(0)
        alone = [json.loads(line) for line in log.read().splitlines() if line.startswith("{")]
    ballast.communicate(b"x", timeout=30)
    return alone


def late(bench, engine, program):
    """Code that is loaded late, beside the same processes on a card of which only as much is free. How many operations these
    get done depends on which of them was first to take the last memory: the median of some rounds counts."""
    done = lambda found: sum(len(f["done"]) for f in found)
    for processes in (1, 4):
        alone = [bare_late(bench, program, processes) for _ in range(BARE_ROUNDS)]
        result = run_one(bench, engine, late_command(bench), processes, False)
        bench.facts[f"memory_late_{processes}"] = dict(result, alone=alone)
        found, bare = result["found"], sorted(done(a) for a in alone)
        mib = lambda found: sum(f["got_mib"] for f in found)
        bench.row(f"memory {LIMIT} MiB, late, {processes} process{'es' if processes > 1 else ''}",
                  f"peak {result['nvml_mib']} MiB by NVML, {result['card_mib']} by the card; {mib(found)} MiB and {done(found)} of {8 * processes} operations; "
                  f"bare {max(mib(a) for a in alone)} MiB and {', '.join(map(str, bare))} operations",
                  f"{LIMIT} by both, as many operations as bare",
                  len(found) == processes and done(found) >= bare[len(bare) // 2] and mib(found) >= LIMIT - (800 + 256) * processes
                  and result["nvml_mib"] <= LIMIT and result["card_mib"] <= LIMIT)


def ways(bench):
    """What a limit is easily blind to (work/memory.cu), and code that is loaded late (work/late.py)."""
    program = os.path.join(bench.lab, "memory")
    subprocess.run(["nvcc", "-O1", "-arch=native", "-o", program, os.path.join(bench.WORK, "memory.cu"), "-lcuda"], check=True)
    rows = {"exports": 8000, "orphan": 8000, "graphs": 8000, "managed": 8500, "pending": 5120, "free": 9000, "local": 8192}
    engine = bench.Engine("job")
    for name, least in rows.items():
        result = run_one(bench, engine, [program, name], 1, False)
        bench.facts[f"memory_{name}"] = result
        found = result["found"]
        got = min((f["got_mib"] for f in found), default=0)
        fine = len(found) == 1 and all(f["fine"] for f in found) and got >= least
        # Managed memory is seen in the card's own total alone.
        shown = name != "managed" or result["card_mib"] >= got
        bench.row(f"memory {LIMIT} MiB, {name}",
                  f"peak {result['nvml_mib']} MiB by NVML, {result['card_mib']} by the card; got {got}{'' if fine else ' ' + str(found or result['text'])[-200:]}",
                  f"{LIMIT} by both, at least {least}", fine and shown and result["nvml_mib"] <= LIMIT and result["card_mib"] <= LIMIT)
    late(bench, engine, program)
    engine.stop()


def measure(bench):
    ways(bench)
    kinds(bench, os.path.join(bench.bin, "aliquot-load"))
