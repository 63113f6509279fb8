"""bf16 4096 x 4096 x 4096 products: fills the GPU by itself."""
import torch
from common import measure

torch.manual_seed(1)
a = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
b = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
c = torch.empty_like(a)
measure(lambda: torch.mm(a, b, out=c), torch.cuda.synchronize)
