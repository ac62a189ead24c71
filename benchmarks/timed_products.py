"""Prepare products to be timed on a GPU: their operands, and the kernels of their plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilewise.bench.suites import Shape, sets_to_rotate
from tilewise.devices.gpu import Gpu
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel

if TYPE_CHECKING:
    from tilewise.bench.products import Operands


def operand_sets(shape: Shape, dtype: str, gpu: Gpu, seed: int = 0) -> list[Operands]:
    """Return sets of random operands of one product, which together do not fit the L2 cache.

    Parameters
    ----------
    shape : Shape
    dtype : str
        The dtype of A and B.
    gpu : Gpu
        The GPU whose L2 cache is too small for the sets. They are made on PyTorch's current device.
    seed : int
        The seed of PyTorch's generator.
    """
    import torch  # the module is imported without PyTorch too

    from tilewise.bench.products import operands

    generator = torch.Generator("cuda").manual_seed(seed)
    first = operands(shape, dtype, generator)
    nbytes = sum(x.numel() * x.element_size() for x in (first.a, first.b, first.d))
    more = sets_to_rotate(nbytes, gpu.l2_bytes) - 1
    return [first, *(operands(shape, dtype, generator) for _ in range(more))]


def kernels_of_plans(plans: Iterable[Plan]) -> list[Kernel]:
    """Return the kernels that plans launch, each once, to be compiled together."""
    steps = (step for plan in plans for step in plan.steps)
    return list({f"{step.kernel!r} {step.kernel.options}": step.kernel for step in steps}.values())
