"""Fills the job, and then runs operations whose code was never loaded: what was done of them, and what was refused. The processes of a job begin to fill it
together: FOLDER is where they meet.

usage: late.py FOLDER
"""
import json
import os
import sys
import time

import torch

small = {n: torch.randn(n, n, device="cuda") for n in (16, 64)}
image, weight = torch.randn(4, 8, 16, 16, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
torch.cuda.synchronize()
open(os.path.join(sys.argv[1], os.environ.get("SLURM_PROCID", "0")), "w").close()
until = time.time() + 30
while len(os.listdir(sys.argv[1])) < int(os.environ.get("SLURM_NTASKS", "1")) and time.time() < until:
    time.sleep(0.01)
held, got, step = [], 0, 256 << 20
while step >= 2 << 20:
    try:
        held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
        got += step
    except torch.cuda.OutOfMemoryError:
        step //= 2
# Some of its own memory for the results: a framework has that.
del held[-3:]
done, refused = [], []
operations = {"matmul": lambda: small[64] @ small[64], "sort": lambda: small[64].flatten().sort(), "fft": lambda: torch.fft.fft(small[64]),
              "conv": lambda: torch.nn.functional.conv2d(image, weight), "svd": lambda: torch.linalg.svd(small[16]), "topk": lambda: small[64].topk(3),
              "softmax": lambda: small[64].softmax(0), "cumsum": lambda: small[64].cumsum(0)}
for name, operation in operations.items():
    try:
        operation()
        torch.cuda.synchronize()
        done.append(name)
    except RuntimeError as error:
        refused.append(f"{name}: {str(error)[:80]}")
print(json.dumps({"kind": "late", "got_mib": got >> 20, "done": done, "refused": refused, "fine": True}))
