"""Traced functions of matrices in memory, by their kernel: within the function's own bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import held

import tilewise as tw
from tilewise.devices import Device
from tilewise.epilogue import trace
from tilewise.epilogue.derivative import trained
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.pointwise import Pointwise, plan
from tilewise.gemm.product import ACCUMULATORS, DTYPES
from tilewise.gemm.steps import execute
from tilewise.kernel import Kernel
from tilewise.precision import dtype_of, limits_of

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "gelu": (lambda acc, b: tw.gelu(acc + b), ("b",)),
    "gated": (lambda acc, b, s: (tw.silu(acc + b) * s, acc + b), ("b", "s")),
    "softplus": (lambda acc, b: tw.softplus(acc) * b, ("b",)),
}


@given(st.data())
def test_results_are_within_the_bounds(device: Device, data: st.DataObject) -> None:
    """Of any sizes, dtypes and operands that broadcast; and nothing else is written."""
    function, names = FUNCTIONS[data.draw(st.sampled_from(sorted(FUNCTIONS)))]
    made = trained(trace(function, names), tuple(range(1 + len(names))))
    derivative = made.backward(tuple(range(len(made.forward.results)))).function
    batch = data.draw(st.integers(1, 3))
    m, n = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([1, 3, 255, 256, 300, 1030]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype, *kinds = (
        data.draw(st.sampled_from(held(DTYPES)))
        for _ in range(1 + len(derivative.results) + len(derivative.operands))
    )
    sums = ACCUMULATORS[dtype]

    def matrix(kind: str, *shape: int) -> Any:
        return rng.standard_normal(shape).astype(dtype_of(kind))

    acc = matrix(dtype, batch, m, n)
    inputs: list[Any] = []
    values: list[Any] = []
    arrays: list[Any] = []
    for kind in kinds[len(derivative.results) :]:
        if data.draw(st.integers(0, 4)) == 0:
            inputs.append(float(np.float32(rng.standard_normal())))
            values.append(inputs[-1])
            continue
        shape = tuple(x if data.draw(st.booleans()) else 1 for x in (batch, m, n))
        arrays.append(matrix(kind, *shape))
        step, row, column = (
            0 if x == 1 else stride // arrays[-1].itemsize
            for x, stride in zip(shape, arrays[-1].strides, strict=True)
        )
        inputs.append(Strided(kind, row, column, step))
        values.append(arrays[-1].astype(np.float64))
    outs = kinds[: len(derivative.results)]
    epilogue = Epilogue(derivative, tuple(inputs), tuple(Strided(x, n, 1, m * n) for x in outs[1:]))
    asked = Pointwise(m, n, batch, dtype, outs[0], epilogue)
    there = [device.array(x) for x in (acc, *arrays)]
    results = [device.empty((batch * m * n,), dtype_of(x)) for x in outs]
    addresses = [there[0].pointer, 0, 0, results[0].pointer, 0]
    addresses += [x.pointer for x in (*there[1:], *results[1:])]
    execute(plan(asked), device, 0, addresses)
    exact = acc.astype(np.float64)
    bounds = derivative.enclose(exact, exact, values, sums)
    for (low, high), found, kind in zip(bounds, results, outs, strict=True):
        got = found.to_numpy().astype(np.float64).reshape(exact.shape)
        out = limits_of(kind)
        with np.errstate(over="ignore"):
            low = np.broadcast_to(low - out.unit * np.abs(low) - out.subnormal, got.shape)
            high = np.broadcast_to(high + out.unit * np.abs(high) + out.subnormal, got.shape)
        low, high = (np.where(np.abs(x) > out.largest, np.sign(x) * np.inf, x) for x in (low, high))
        assert ((low <= got) & (got <= high)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_without_spills(name: str, dtype: str) -> None:
    function, names = FUNCTIONS[name]
    made = trained(trace(function, names), (0,))
    derivative = made.backward(tuple(range(len(made.forward.results)))).function
    inputs = tuple(Strided(dtype, 3072, 1) for _ in derivative.operands)
    asked = Pointwise(4096, 3072, 1, dtype, dtype, Epilogue(derivative, inputs))
    (step,) = plan(asked).steps
    assert isinstance(step.kernel, Kernel)
    used = step.kernel.compile("sm_90a", lines=False).resources
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)
    assert used.registers <= 64  # 4 blocks of 256 threads a multiprocessor
