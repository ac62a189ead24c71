"""The same product again and again on a GPU: whether ``tilewise.matmul`` gives the same bits.

The first result of each product is checked; every later one is compared with it on the GPU, while
what was launched before is still under way. Before each launch, in turn: nothing; D is filled with
NaN; the L2 cache is overwritten; another product is computed; A and B are written anew; the GPU is
left idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from tilewise.bench.products import Operands, differences, error_share, operands
from tilewise.bench.suites import Shape

AT_ONCE = 66  # launches between two looks at what they gave
KEPT = 20  # results that differ, of one product
IDLE_SECONDS = 0.002


class Soak:
    """Compute one product again and again.

    Parameters
    ----------
    shape : Shape
    dtype : str
    other : Operands
        The operands of another product, which is computed ahead of some.
    flush : torch.Tensor
        A tensor larger than the L2 cache; it is overwritten ahead of some.
    """

    def __init__(self, shape: Shape, dtype: str, other: Operands, flush: torch.Tensor) -> None:
        self.matrices = operands(shape, dtype, torch.Generator(flush.device).manual_seed(0))
        a, b, d = self.matrices.a, self.matrices.b, self.matrices.d
        same_a, same_b = a.clone(), b.clone()

        def idle() -> None:
            if d.is_cuda:
                torch.cuda.synchronize()
            time.sleep(IDLE_SECONDS)

        self.before: list[Callable[[], object]] = [
            lambda: None,
            lambda: d.fill_(float("nan")),
            lambda: flush.fill_(1),
            other.ours,
            lambda: (a.copy_(same_a), b.copy_(same_b)),
            idle,
        ]
        self.launches = 0
        self.differing: list[str] = []

    def run(self, seconds: float) -> float:
        """Return the first result's error as a share of the bound; infinity if it is wrong."""
        ours, d = self.matrices.ours, self.matrices.d
        ours()
        error = error_share(self.matrices.a, self.matrices.b, d)
        right = d.clone()
        bad = torch.zeros((), dtype=torch.int64, device=d.device)
        kept = torch.empty_like(d)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and len(self.differing) < KEPT:
            bad.zero_()
            for i in range(AT_ONCE):
                self.before[i % len(self.before)]()
                ours()
                differs = (d != right).any()
                bad += differs
                torch.where(differs, d, kept, out=kept)
            self.launches += AT_ONCE
            if count := int(bad):
                self.differing.append(f"{count} of {AT_ONCE}; the last: {differences(kept, right)}")
        return error
