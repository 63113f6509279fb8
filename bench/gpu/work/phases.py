"""One job's process in the shares rows: it goes through the phases of a plan, and says how much GPU work of each was done
in the phase's window, by the GPU's own clock: not what was queued, and not only what was waited for.

usage: phases.py FOLDER NAME
FOLDER/NAME.ready appears when it is warm. FOLDER/plan is a list of {begin, window, loads: {NAME: LOAD}}, times in seconds
since the epoch; a LOAD is [kind, …]: ["matmul", seconds queued], ["copy"], ["graph"], ["bursts"], ["mnist"], ["idle"].
FOLDER/NAME.json is a list of [steps per second, part of the time in which the GPU had work of it] in each phase, null where
it was idle. A job of several tasks has NAME.0, NAME.1, …
"""
import json
import os
import sys
import time

import torch
from common import write

folder, name = sys.argv[1:3]
if int(os.environ.get("SLURM_NTASKS", "1")) > 1:
    name += "." + os.environ["SLURM_PROCID"]
path = os.path.join(folder, name)
torch.set_num_threads(1)
torch.manual_seed(1)
a = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
b = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
c = torch.empty_like(a)
big = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
other = torch.empty_like(big)


def matmul():
    torch.mm(a, b, out=c)


def copy():
    other.copy_(big)


graph = torch.cuda.CUDAGraph()


def replay():
    graph.replay()


def mnist_step():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(1600, 10)).cuda()
    optimiser = torch.optim.Adam(model.parameters())
    loss_of = torch.nn.CrossEntropyLoss()
    images, labels = torch.rand(128, 1, 28, 28, device="cuda"), torch.randint(0, 10, (128,), device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss_of(model(images), labels).backward()
        optimiser.step()

    return step


# step, steps between two marks, steps before each wait (for "matmul" as asked)
LOADS = {"matmul": (matmul, 16, None), "copy": (copy, 16, 64), "graph": (replay, 1, 4), "bursts": (matmul, 8, 16), "mnist": (mnist_step(), 8, 16)}
STEP_S = 0.00021  # of one matmul


class Clock:
    """The GPU's events in the machine's time."""

    def __init__(self):
        self.zero = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        self.zero.record()
        self.zero.synchronize()
        self.time = time.time()

    def of(self, event):
        return self.time + self.zero.elapsed_time(event) / 1e3


def recorded():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def run(load, begin, end):
    """Works until the end; what was done when: (time, steps) at the begin of each batch and for each mark."""
    kind = load[0]
    step, every, batch = LOADS[kind]
    if batch is None:
        batch = max(16, int(load[1] / STEP_S))
    clock, marks, done = Clock(), [], 0
    while time.time() < end:
        if kind == "bursts" and (time.time() - begin) % 0.5 >= 0.25:
            time.sleep(max(0.0, 0.5 - (time.time() - begin) % 0.5))
            continue
        marks.append((recorded(), done))
        for _ in range(batch // every):
            for _ in range(every):
                step()
            done += every
            marks.append((recorded(), done))
            if time.time() >= end:
                break
            if kind == "bursts" and (time.time() - begin) % 0.5 >= 0.25:
                break
        torch.cuda.synchronize()
    return [(clock.of(mark), count) for mark, count in marks]


def rate(marks, begin, end):
    """Steps per second between two times, by the marks around them."""
    def at(when):
        before = max((m for m in marks if m[0] <= when), default=None)
        after = min((m for m in marks if m[0] > when), default=None)
        if before is None:
            return 0
        if after is None:
            return before[1]
        return before[1] + (after[1] - before[1]) * (when - before[0]) / (after[0] - before[0])

    return (at(end) - at(begin)) / (end - begin)


def busy(marks, begin, end):
    """The part of the time between two others in which something was being done."""
    return sum(max(0.0, min(after[0], end) - max(before[0], begin)) for before, after in zip(marks, marks[1:]) if after[1] > before[1]) / (end - begin)


for step, _, _ in LOADS.values():
    if step is replay:
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(480):  # about a tenth of a second
                matmul()
    step()
    step()
torch.cuda.synchronize()
write(path + ".ready", "")
plan_path = os.path.join(folder, "plan")
while not os.path.exists(plan_path):
    time.sleep(0.02)
results = []
for phase in json.load(open(plan_path)):
    load = phase["loads"].get(name.split(".")[0], ["idle"])
    if load[0] == "idle":
        results.append(None)
        continue
    time.sleep(max(0.0, phase["begin"] - time.time()))
    end = phase["begin"] + phase["settle"] + phase["window"]
    marks = run(load, phase["begin"], end)
    window = (phase["begin"] + phase["settle"], end)
    results.append([rate(marks, *window), busy(marks, *window)])
write(path + ".json", json.dumps(results))
