"""Epilogues in the kernels of every family: right at each element, whatever the operands are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fused_reference import Case, drawn_epilogue, matrix, operand, run
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import examples, held, thorough

import tilewise as tw
from tilewise.devices import Device
from tilewise.epilogue import trace
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.fused import MOST
from tilewise.gemm.plan import offers
from tilewise.gemm.product import ACCUMULATORS, DTYPES, Operand, Product
from tilewise.gemm.steps import Plan
from tilewise.precision import HALVES

A100 = Chip("NVIDIA A100-SXM4-80GB", 108, 80, 1.41e9, 1.8e12, 40 << 20)

FUNCTIONS: list[tuple[Any, tuple[str, ...]]] = [
    (lambda acc, bias: tw.gelu(acc + bias), ("bias",)),
    (lambda acc, bias, residual: tw.relu(acc + bias) + residual, ("bias", "residual")),
    (lambda acc, scale, at: tw.where(acc > at, acc * scale, at), ("scale", "at")),
    (lambda acc, bias: (tw.silu(acc + bias), acc + bias), ("bias",)),
    (lambda acc, x, y: (acc, tw.maximum(acc, x), acc * y), ("x", "y")),
    (lambda acc: tw.tanh(acc * 0.1) * 10, ()),
]
SIZES = st.sampled_from([1, 3, 8, 16, 17, 33, 64, 72, 130])


@st.composite
def cases(draw: st.DrawFn, dtypes: Sequence[str], few_rows: bool) -> Case:
    dtype = draw(st.sampled_from(dtypes))
    out = draw(st.sampled_from([dtype, ACCUMULATORS[dtype]]))
    m, n = draw(SIZES), draw(SIZES)
    if few_rows:
        m, n = draw(st.permutations([draw(st.integers(1, 8)), n]))
    k, batch = draw(st.sampled_from([1, 16, 64, 130, 700])), draw(st.sampled_from([1, 2]))
    beta, alpha = draw(st.sampled_from([0.0, 0.0, 0.5])), draw(st.sampled_from([1.0, 1.0, -1.5]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = {
        "a": matrix(draw, rng, dtype, batch, m, k),
        "b": matrix(draw, rng, dtype, batch, k, n),
        "d": matrix(draw, rng, out, batch, m, n),
    }
    function, names = draw(st.sampled_from(FUNCTIONS))
    traced = trace(function, names)
    epilogue, operands = drawn_epilogue(draw, rng, traced, arrays, out, (batch, m, n))
    of_d = operand(arrays["d"][1])
    asked = Product(
        m, n, k, batch, dtype, out, alpha, beta, operand(arrays["a"][1]), operand(arrays["b"][1]),
        of_d if beta else None, of_d, epilogue,
    )  # fmt: skip
    return Case(asked, arrays, operands)


FAMILIES = [
    ("hopper", H200, HALVES),
    ("mma", A100, HALVES),
    ("thin_half", H200, HALVES),
    ("simt", H200, ["float32"]),
    ("simt", H200, ["float64"]),
    ("simt", A100, ["float32", "float64"]),
    ("thin_real", H200, ["float32", "float64"]),
    ("general", None, DTYPES),
]


@pytest.mark.parametrize(
    ("family", "chip", "dtypes"),
    [
        # A quick run takes one case of each family.
        pytest.param(*x, id=f"{x[0]}-{x[2][-1]}", marks=[thorough] * (at in (4, 5)))
        for at, x in enumerate(FAMILIES)
    ],
)
@examples(40, quick=1)
@given(data=st.data())
def test_every_family_applies_an_epilogue(
    device: Device, family: str, chip: Chip | None, dtypes: Sequence[str], data: st.DataObject
) -> None:
    """The emulator finds what is read beyond an operand, too."""
    case = data.draw(cases(held(dtypes), few_rows=family.startswith("thin")))
    found: dict[tuple[str, ...], Plan] = {}
    for each in offers(case.product, chip):
        if each.family == family:
            plan = each.make()
            found.setdefault(tuple(step.kernel.name for step in plan.steps), plan)
    assume(found)
    run(case, found[data.draw(st.sampled_from(sorted(found)))], device)


def test_a_piece_of_a_product_has_its_operands_moved() -> None:
    """The last rows and columns of a product, computed apart."""
    from tilewise.gemm.pieces import cut

    traced = trace(lambda acc, r, c, x, s: acc + r + c + x + s, ("r", "c", "x", "s"))
    inputs = (
        Strided("float32", 0, 1), Strided("float64", 1, 0), Strided("float16", 100, 1, 7), 2.5,
    )  # fmt: skip
    d = Operand(100, 1, 0)
    whole = Product(
        80, 100, 50, 1, "float32", "float32", 1.0, 0.0, Operand(50, 1), Operand(100, 1), None, d,
        Epilogue(traced, inputs),
    )  # fmt: skip
    places = [[piece.at[i] for i in (5, 6, 7)] for piece in cut(whole, 3, 4)]
    assert places == [[0, 0, 0], [0, 77 * 8, 77 * 200], [96 * 4, 0, 96 * 2]]
    assert all(piece.product.epilogue is not None for piece in cut(whole, 3, 4))


def test_kernels_with_one_function_are_one() -> None:
    """Whatever the lambda and the strides are, and where the operands lie."""

    def kernel(pitch: int, function: Any) -> Any:
        epilogue = Epilogue(trace(function, ("x",)), (Strided("float32", pitch, 1),))
        d = Operand(64, 1)
        product = Product(
            64, 64, 64, 1, "float16", "float16", 1.0, 0.0, d, d, None, d, epilogue
        )  # fmt: skip
        return next(iter(offers(product, H200))).make().steps[0].kernel

    assert kernel(64, lambda acc, x: acc + x) is kernel(128, lambda total, x: total + x)
    assert kernel(64, lambda acc, x: acc + x) is not kernel(64, lambda acc, x: acc - x)


def test_as_many_operands_as_the_kernels_have() -> None:
    source = (tw.kernel.SOURCES / "gemm" / "fused.cuh").read_text(encoding="utf-8")
    assert f"arrays[{MOST}];" in source
    assert f"scalars[{MOST}];" in source


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_without_an_epilogue_kernels_are_as_they_were(dtype: str) -> None:
    """No macro, no argument: those that are in the caches stay."""
    d = Operand(64, 1)
    product = Product(64, 64, 64, 1, dtype, dtype, 1.0, 0.0, d, d, None, d)
    for each in offers(product, H200):
        for step in each.make().steps:
            assert "EPILOGUE" not in step.kernel.defines
