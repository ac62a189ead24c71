"""Draw products with an epilogue and their arrays, and check the results of their plans."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from reference import held

from tilewise.devices import Device
from tilewise.epilogue import Traced
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.product import ACCUMULATORS, DTYPES, Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.precision import dtype_of
from tilewise.roundoff import gamma, roundings


class Case(NamedTuple):
    """A product with an epilogue, and its arrays: of each its memory, and the view of it.

    ``a``, ``b`` and ``d`` are views of the product's; of pairs ``up`` is of the second B, in memory
    of its own or in that of ``b``. The others are the epilogue's arrays, in order.
    """

    product: Product
    arrays: dict[str, tuple[Any, Any]]
    operands: list[Any]


def matrix(
    draw: st.DrawFn, rng: np.random.Generator, dtype: str, batch: int, rows: int, columns: int
) -> tuple[Any, Any]:
    """Return memory, and in it a view of a batch of matrices, by rows or columns, with gaps."""
    by_columns, pad = draw(st.booleans()), draw(st.sampled_from([0, 0, 1, 8]))
    lines, width = (columns, rows) if by_columns else (rows, columns)
    flat = np.full(batch * lines * (width + pad) + 16, np.nan, dtype_of(dtype))
    view = flat[: batch * lines * (width + pad)].reshape(batch, lines, width + pad)[..., :width]
    view = view.swapaxes(1, 2) if by_columns else view
    view[...] = rng.standard_normal(view.shape)
    return flat, view


def strided(x: Any, dtype: str) -> Strided:
    """Return the strides of a three-dimensional view, 0 in the dimensions that broadcast."""
    step, row, column = (
        0 if extent == 1 else stride // x.itemsize
        for extent, stride in zip(x.shape, x.strides, strict=True)
    )
    return Strided(dtype, row, column, step)


def operand(x: Any) -> Operand:
    """Return the strides of a three-dimensional view."""
    step, row, column = (stride // x.itemsize for stride in x.strides)
    return Operand(row, column, step)


def run(case: Case, plan: Plan, device: Device) -> None:
    """Execute a plan, and check every result and what lies around it."""
    asked, epilogue = case.product, case.product.epilogue
    assert epilogue is not None
    old = case.arrays["d"][1].astype(np.float64)
    there, before = {}, {}
    for name, (flat, _) in case.arrays.items():
        before[name] = flat.copy()
        there[name] = device.array(flat)
    workspace = device.empty((max(plan.workspace, 1),), np.uint8)
    d = there["d"].pointer
    fused = [name for name in case.arrays if name not in ("a", "b", "d", "up")]
    if asked.pairing is not None and asked.pairing.apart is None:
        fused.append("up")
    addresses = [there["a"].pointer, there["b"].pointer, d if asked.c else 0, d, workspace.pointer]
    for name in fused:
        flat, view = case.arrays[name]
        addresses.append(there[name].pointer + view.ctypes.data - flat.ctypes.data)
    execute(plan, device, 0, tuple(addresses))
    a, b = (case.arrays[name][1].astype(np.float64) for name in "ab")
    sums = ACCUMULATORS[asked.dtype]
    if asked.pairing is not None:
        b = np.stack([b, case.arrays["up"][1].astype(np.float64)])
    exact = asked.alpha * (a @ b) + asked.beta * old
    off = abs(asked.alpha) * (np.abs(a) @ np.abs(b)) + abs(asked.beta) * np.abs(old)
    off *= 2 * gamma(roundings(asked.k, asked.alpha, asked.beta) + 4, sums)
    bounds = epilogue.function.enclose(exact - off, exact + off, case.operands, sums)
    kind = dtype_of(asked.out_dtype)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(kind.name, 0.0)
    names = ["d", *(name for name in case.arrays if name.startswith("result"))]
    for name, (low, high) in zip(names, bounds, strict=True):
        flat, view = case.arrays[name]
        after = there[name].to_numpy()
        left = np.lib.stride_tricks.as_strided(after, view.shape, view.strides)
        got = left.astype(np.float64)
        inside = (low - unit * np.abs(low) - 1e-7 <= got) & (
            got <= high + unit * np.abs(high) + 1e-7
        )
        assert inside.all(), (name, plan.chosen, got[~inside][:4], low[~inside][:4])
        left[...] = view
        assert after.tobytes() == before[name].tobytes()  # nothing else was written


def drawn_epilogue(
    draw: st.DrawFn,
    rng: np.random.Generator,
    traced: Traced,
    arrays: dict[str, tuple[Any, Any]],
    out: str,
    extents: tuple[int, int, int],
) -> tuple[Epilogue, list[Any]]:
    """Draw a function's operands and further results, and add them to ``arrays``.

    Return the epilogue, and the operands in float64. ``extents`` are those of the result.
    """
    inputs: list[Strided | float] = []
    operands: list[Any] = []
    for name in traced.operands:
        if draw(st.integers(0, 4)) == 0:
            number = float(np.float32(rng.standard_normal()))
            inputs.append(number)
            operands.append(number)
            continue
        of_dtype = draw(st.sampled_from(held(DTYPES)))
        batch, m, n = (extent if draw(st.booleans()) else 1 for extent in extents)
        arrays[name] = matrix(draw, rng, of_dtype, batch, m, n)
        inputs.append(strided(arrays[name][1], of_dtype))
        operands.append(arrays[name][1].astype(np.float64))
    results = []
    for i in range(1, len(traced.results)):
        arrays[f"result {i}"] = matrix(draw, rng, out, *extents)
        results.append(strided(arrays[f"result {i}"][1], out))
    return Epilogue(traced, tuple(inputs), tuple(results)), operands
