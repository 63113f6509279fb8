"""A framework under a limit: the result of a small computation, then memory until it is refused, and how it is refused.

usage: framework.py torch|jax|cupy [bare]     (bare: the result only)
"""
import json
import sys

MIB = 1 << 20


def fill(take, refused):
    """Takes GiB, then smaller pieces; the sum in MiB and the name of the refusal."""
    if "bare" in sys.argv:
        return 0, None
    held, total, name = [], 0, None
    for size in (1024, 256, 64):
        while total < 200 * 1024:
            try:
                held.append(take(size * MIB))
                total += size
            except refused as error:
                name = type(error).__name__
                break
    return total, name


def with_torch():
    import torch
    torch.manual_seed(1)
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float64) % 1000
    result = float((x * 2 + x.flip(0)).sum() + torch.linalg.norm(x))
    card = torch.cuda.mem_get_info()[1] // MIB
    return (f"{result:.3f}", card) + fill(lambda n: torch.empty(n, dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError)


def with_jax():
    import os
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    import jax
    import jax.numpy as jnp
    x = jnp.arange(1 << 20, dtype=jnp.float32) % 1000
    result = float((x * 2 + x[::-1]).sum())
    card = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0) // MIB

    def take(n):
        piece = jnp.zeros(n, dtype=jnp.uint8)
        piece.block_until_ready()
        return piece

    return (f"{result:.3f}", card) + fill(take, jax.errors.JaxRuntimeError)


def with_cupy():
    import cupy
    x = cupy.arange(1 << 20, dtype=cupy.float64) % 1000
    result = float((x * 2 + x[::-1]).sum())
    card = cupy.cuda.runtime.memGetInfo()[1] // MIB
    return (f"{result:.3f}", card) + fill(lambda n: cupy.empty(n, dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError)


result, card, mib, refusal = {"torch": with_torch, "jax": with_jax, "cupy": with_cupy}[sys.argv[1]]()
print(json.dumps({"result": result, "card_mib": card, "mib": mib, "refusal": refusal}))
