"""Measure invariant products beside our default and PyTorch's product, with k divided or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.record import product_of
from tilewise.bench.stand import Stand, medians, summary
from tilewise.bench.suites import Shape
from tilewise.gemm.invariant import division, fixed
from tilewise.gemm.plan import chip_of
from tilewise.matmul import matmul

INVARIANT, DEFAULT, VENDOR, UNDIVIDED = "invariant", "default", "torch", "torch, k undivided"
FEW_ROWS = 128  # up to which PyTorch's product is also timed with k undivided
GOALS: dict[str, tuple[float, float | None]] = {
    DEFAULT: (0.98, 0.90), VENDOR: (1.0, None), UNDIVIDED: (1.10, None),
}  # fmt: skip
"""The geometric mean, and the worst, of another's time by ours."""
_SHORT = {"bfloat16": "bf16", "float16": "fp16"}

Row = dict[str, Any]


@contextmanager
def undivided(dtype: str) -> Iterator[None]:
    """Have PyTorch ask cuBLASLt for kernels that do not divide k.

    Raises
    ------
    RuntimeError
        If this PyTorch can't: it takes 2.10.

    Notes
    -----
    ``torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)``, which
    PyTorch takes with ``torch.backends.cuda.preferred_blas_library("cublaslt")`` only.
    """
    settings = torch.backends.cuda.matmul
    name = f"allow_{_SHORT[dtype]}_reduced_precision_reduction"
    try:
        before = getattr(settings, name), getattr(settings, f"{name}_split_k")
    except AttributeError as error:
        raise RuntimeError(f"PyTorch {torch.__version__} can't leave k undivided") from error
    library = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library("cublaslt")
    setattr(settings, name, (False, False))
    try:
        yield
    finally:
        setattr(settings, name, before)
        torch.backends.cuda.preferred_blas_library(library)


def calls_of(shape: Shape, dtype: str, place: str) -> dict[str, Callable[[Operands], None]]:
    """Return the calls to time for a product, ours first; ``place`` is :attr:`Stand.place`.

    On the emulator PyTorch's product with k undivided is left out: it takes cuBLASLt.
    """

    def ours(x: Operands, *, invariant: bool) -> None:
        matmul(x.a, x.b, out=x.d, device=place, invariant=invariant)

    def alone(x: Operands) -> None:
        with undivided(dtype):
            x.torch()

    found: dict[str, Callable[[Operands], None]] = {
        INVARIANT: partial(ours, invariant=True), DEFAULT: partial(ours, invariant=False),
        VENDOR: Operands.torch,
    }  # fmt: skip
    return found | ({UNDIVIDED: alone} if shape.m <= FEW_ROWS and place == "auto" else {})


def measure(shape: Shape, dtype: str, stand: Stand) -> Row:
    """Check the results of a product and time them in turn.

    Returns
    -------
    dict
        A row of the record; its ``ratios`` are the others' times by the invariant product's, and it
        has none where a result of ours is wrong (``wrong``).
    """
    generator = stand.generator()
    first = operands(shape, dtype, generator)
    nbytes = sum(x.numel() * x.element_size() for x in (first.a, first.b, first.d))
    more = stand.sets(nbytes) - 1
    sets = [first, *(operands(shape, dtype, generator) for _ in range(more))]
    calls, errors, results = calls_of(shape, dtype, stand.place), {}, {}
    for name, call in calls.items():
        first.d.fill_(math.nan)
        call(first)
        errors[name] = error_share(first.a, first.b, first.d)
        results[name] = first.d.clone()
    row: Row = {
        "name": shape.name, "layout": shape.layout, "m": shape.m, "n": shape.n, "k": shape.k,
        "error_share": {name: x if math.isfinite(x) else None for name, x in errors.items()},
        "wrong": [name for name in (INVARIANT, DEFAULT) if not errors[name] <= 1],
        "same_bits": {
            name: torch.equal(results[name], results[INVARIANT]) for name in calls
            if name != INVARIANT
        },
    }  # fmt: skip
    asked = product_of(shape, dtype)
    chip = chip_of(stand.gpu) if stand.gpu else None
    row["parts"] = division(shape.n, shape.k, dtype, chip)
    row["ways"] = {INVARIANT: stand.way(fixed(asked, chip)), DEFAULT: stand.way(asked)}
    if row["wrong"]:
        return row
    timed = stand.time({name: [partial(call, x) for x in sets] for name, call in calls.items()})
    for name in (INVARIANT, DEFAULT):  # the calls timed are those checked
        calls[name](first)
        if not torch.equal(first.d, results[name]):
            row["wrong"].append(f"{name}, once it had been timed")
    found = medians(timed)
    return row | {
        "sets": len(sets), "in_graph": timed.in_graph, "seconds_of_rounds": timed.seconds,
        "seconds": found, "tflops": 1e-12 * shape.flops / found[INVARIANT],
        "ratios": {name: found[name] / found[INVARIANT] for name in calls if name != INVARIANT},
    }  # fmt: skip


def summaries(rows: Sequence[Row]) -> list[Row]:
    """Return the geometric mean and the worst of each rival's times by ours."""
    found = []
    for name, (goal, worst) in GOALS.items():
        ratios = {row["name"]: row["ratios"][name] for row in rows if name in row.get("ratios", {})}
        if ratios:
            few = f", to {FEW_ROWS} rows" if name == UNDIVIDED else ""
            told = {"what": f"{name}: its time by the invariant product's{few}", "rival": name}
            found.append(told | summary(ratios, goal=goal, worst_goal=worst))
    return found
