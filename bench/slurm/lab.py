"""What the benchmarks on a whole Slurm share: where the programs are, sandboxes, and rows of results."""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Lab:
    """A folder for sandboxes that is gone at the end, the programs that they run, and what was measured on them."""

    def __init__(self, bin, port=0):
        self.bin, self.port = os.path.abspath(bin), port  # port: added to those of the sandboxes
        self.standin = self._first("standin", "lib/aliquot/standin")
        self.sandbox = self._first("libexec/aliquot/slurm-sandbox", os.path.join(ROOT, "src", "slurm", "slurm-sandbox"))
        for problem, is_so in (("not root", os.geteuid() != 0),
                               (f"no aliquot-agent in '{self.bin}': run 'make build' or say --bin", not shutil.which("aliquot-agent", path=f"{self.bin}:{self.bin}/../sbin")),
                               ("no slurmctld: run 'tools/install-deps slurm'", not shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin"))):
            if is_so:
                sys.exit(f"{os.path.basename(sys.argv[0])}: {problem}")
        self.rows, self.facts = [], {}
        self.dir = tempfile.mkdtemp(prefix="aliquot-bench-slurm-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.facts["slurm"] = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True,
                                             env=dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin")).stdout.strip()

    def _first(self, *places):
        found = (os.path.join(self.bin, "..", place) for place in places)
        return next((os.path.realpath(place) for place in found if os.path.exists(place)), "")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in os.listdir(self.dir):
            if os.path.isdir(os.path.join(self.dir, name, "etc")):
                self.call_sandbox("down", "--dir", os.path.join(self.dir, name))
        shutil.rmtree(self.dir, ignore_errors=True)

    def call_sandbox(self, *words):
        return subprocess.run([self.sandbox, *words], env=dict(os.environ, ALIQUOT_BIN=self.bin), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)

    def row(self, what, measured, bar, ok):
        self.rows.append({"figure": what, "measured": measured, "bar": bar, "ok": bool(ok)})
        print(f"  {what}: {measured} (bar: {bar}) {'pass' if ok else 'FAIL'}", flush=True)

    def write(self, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "w") as file:
            json.dump({"rows": self.rows, "facts": self.facts}, file, indent=1)

    def end(self):
        """Prints the table; the exit status."""
        print()
        width = max(len(r["figure"]) for r in self.rows)
        for r in self.rows:
            print(f"{r['figure']:{width}}  {r['measured']}  [{r['bar']}]  {'pass' if r['ok'] else 'FAIL'}")
        return 0 if all(r["ok"] for r in self.rows) else 1


class Sandbox:
    """A whole Slurm on loopback; with ours or bare."""

    def __init__(self, lab, name, port, *options):
        self.lab, self.dir = lab, os.path.join(lab.dir, name)
        done = lab.call_sandbox("up", "--dir", self.dir, "--port-base", str(port + lab.port), *options)
        if done.returncode != 0:
            sys.exit(f"{os.path.basename(sys.argv[0])}: the sandbox does not start:\n{done.stdout}")
        self.environment = dict(os.environ, SLURM_CONF=os.path.join(self.dir, "etc", "slurm.conf"),
                                PATH=f"{lab.bin}:{lab.standin}:{os.environ['PATH']}")
        for name in list(self.environment):
            if name.startswith(("SLURM_JOB", "SBATCH_")):
                del self.environment[name]

    def call(self, *command, user=None, check=True):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, cwd="/", stdin=subprocess.DEVNULL, user=user,
                              group=user and "nogroup", extra_groups=[] if user else None)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, script, *options, user=None, output="/dev/null"):
        return int(self.call("sbatch", "--parsable", "-o", output, *options, "--wrap", script, user=user))

    def left(self):
        return len(self.call("squeue", "-h", "-o", "%i", "-r").split())

    def wait(self, seconds):
        deadline = time.time() + seconds
        while time.time() < deadline:
            left = self.left()
            if left == 0:
                return 0
            print(f"\r  {left} jobs left ", end="", file=sys.stderr, flush=True)
            time.sleep(0.5)
        return self.left()

    def nodes(self):
        return sorted(name for name in os.listdir(self.dir) if re.fullmatch(r"n\d+", name))

    def gpus(self, node):
        """The stand-in driver's own counts: per GPU {total, used} and its processes {pid: bytes}."""
        text = subprocess.run([os.path.join(self.lab.standin, "aliquot-standin-ctl"), "show"], capture_output=True, text=True,
                              env=dict(os.environ, ALIQUOT_STANDIN_STATE=os.path.join(self.dir, node, "run", "standin"))).stdout
        found = {}
        for line in text.splitlines():
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "model" in fields:
                found[int(fields["gpu"])] = {"total": int(fields["total"]), "used": int(fields["used"]), "processes": {}}
            elif "pid" in fields and "gpu" in fields:
                used = int(fields["bytes"])
                if used:
                    found[int(fields["gpu"])]["processes"][int(fields["pid"])] = used
        return found

    def ours(self):
        """The daemons of ours that run here: {name: pid}."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open(f"/proc/{pid}/cmdline", "rb").read().decode().split("\0")
            except OSError:
                continue
            program = os.path.basename(words[0])
            if program in ("aliquot-agent", "aliquot-balancer") and any(w.startswith(self.dir + "/") for w in words):
                found[program + "".join(w for w in words if w.startswith(self.dir)).replace(self.dir, "")] = int(pid)
        return found

    def left_behind(self):
        """Whatever should have gone with the jobs."""
        found = []
        for node in self.nodes():
            for folder in ("grants", "jobs", "mps"):
                path = os.path.join(self.dir, node, "run", folder)
                found += [os.path.join(node, folder, name) for name in (os.listdir(path) if os.path.isdir(path) else [])]
            for gpu, state in self.gpus(node).items():
                found += [f"{node} GPU {gpu} process {pid}" for pid in state["processes"]]
        return found

    def sick(self):
        return [line for line in self.call("sinfo", "-h", "-N", "-o", "%N %T %E").splitlines() if re.search(r"drain|down|fail|inval", line.split(None, 1)[1], re.I)]

    def held_by_booking(self):
        """Jobs that began before slurmctld's word was there: until then they have what they booked, which may be more than they asked for."""
        found = set()
        for node in self.nodes():
            text = "\n".join(self.last_words(node, 1 << 30))
            found |= {int(job) for job in re.findall(r"job (\d+): .*; it gets what its step says", text)}
        return found

    def last_words(self, node, lines=12):
        """Of the node's agent, for who wants to know why."""
        path = os.path.join(self.dir, "log", f"agent-{node}-loop.out")
        return open(path).read().splitlines()[-lines:] if os.path.exists(path) else []

    def down(self):
        self.lab.call_sandbox("down", "--dir", self.dir)


def job_of(pid):
    """By the cgroup that Slurm put it into."""
    try:
        found = re.search(r"/slurm[^/]*/.*?/job_(\d+)", open(f"/proc/{pid}/cgroup").read())
        return int(found.group(1)) if found else None
    except OSError:
        return None


def states(sandbox, ids):
    """{state: count} by the accounting, when it has caught up."""
    counts = collections.Counter()
    for _ in range(60):
        text = sandbox.call("sacct", "-X", "-n", "-P", "-S", "now-1days", "-o", "jobid,state,exitcode")
        found = {int(line.split("|")[0]): line.split("|")[1:] for line in text.splitlines() if line.split("|")[0].isdigit()}
        counts = collections.Counter(found.get(job, ["MISSING"])[0].split()[0] for job in ids)
        if sum(counts[s] for s in ("MISSING", "RUNNING", "PENDING", "COMPLETING")) == 0:
            break
        time.sleep(1)
    return counts
