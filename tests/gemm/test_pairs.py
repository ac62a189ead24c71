"""Products of pairs in the kernels of every family: D = f(A B, A U), element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fused_reference import Case, drawn_epilogue, matrix, operand, run, strided
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import examples, held, thorough

import tilewise as tw
from tilewise.bench.suites import TOKENS
from tilewise.devices import Device
from tilewise.epilogue import trace
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.plan import FAMILIES, best, offers
from tilewise.gemm.product import (
    ACCUMULATORS,
    ALIGNMENT,
    DTYPES,
    ORDERS,
    Operand,
    Pairing,
    Product,
    paired,
)
from tilewise.gemm.steps import Plan
from tilewise.precision import HALVES

A100 = Chip("NVIDIA A100-SXM4-80GB", 108, 80, 1.41e9, 1.8e12, 40 << 20)
FEW = replace(H200, multiprocessors=12)
FUNCTIONS: list[tuple[Any, tuple[str, ...]]] = [
    (lambda gate, up: tw.silu(gate) * up, ()),
    (lambda gate, up, b1, b3: tw.gelu(gate + b1) * (up + b3), ("b1", "b3")),
    (lambda gate, up, residual: tw.silu(gate) * up + residual, ("residual",)),
    (lambda gate, up: (tw.silu(gate) * up, gate, up), ()),
    (lambda gate, up, x: (up - x, gate * 2), ("x",)),
]
EVERY_ORDER = ("apart", *ORDERS)
SIZES = st.sampled_from([1, 3, 8, 16, 17, 33, 64, 72, 130])


def pair(
    draw: st.DrawFn,
    rng: np.random.Generator,
    orders: Sequence[str],
    dtype: str,
    batch: int,
    k: int,
    n: int,
) -> tuple[dict[str, tuple[Any, Any]], Operand, Pairing]:
    """B and U: in one array, one after the other or in turn, or in arrays of their own."""
    order = draw(st.sampled_from(orders))
    if order == "apart":
        b, up = (matrix(draw, rng, dtype, batch, k, n) for _ in range(2))
        if draw(st.booleans()):  # most likely they lie alike
            up = b[0].copy(), None
            up = up[0], np.ndarray(b[1].shape, b[1].dtype, up[0], 0, b[1].strides)
            up[1][...] = rng.standard_normal(up[1].shape)
        return {"b": b, "up": up}, operand(b[1]), Pairing(operand(up[1]))
    flat, whole = matrix(draw, rng, dtype, batch, k, 2 * n)
    halves = order == "halves"
    b, up = (whole[..., :n], whole[..., n:]) if halves else (whole[..., 0::2], whole[..., 1::2])
    of_b, pairing = paired(operand(whole), order, n, dtype)
    assert pairing.apart == up.ctypes.data - b.ctypes.data
    assert pairing.operand.offset == (up.ctypes.data - b.ctypes.data) % ALIGNMENT
    return {"b": (flat, b), "up": (flat, up)}, of_b, pairing


@st.composite
def cases(
    draw: st.DrawFn, dtypes: Sequence[str], few_rows: bool, orders: Sequence[str] = EVERY_ORDER
) -> Case:
    dtype = draw(st.sampled_from(dtypes))
    out = draw(st.sampled_from([dtype, ACCUMULATORS[dtype]]))
    m, n = draw(SIZES), draw(SIZES)
    if few_rows:
        m, n = draw(st.permutations([draw(st.integers(1, 8)), n]))
    k, batch = draw(st.sampled_from([1, 16, 64, 130, 700])), draw(st.sampled_from([1, 2]))
    alpha = draw(st.sampled_from([1.0, 1.0, -1.5]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    of_pair, of_b, pairing = pair(draw, rng, orders, dtype, batch, k, n)
    arrays = {
        "a": matrix(draw, rng, dtype, batch, m, k),
        **of_pair,
        "d": matrix(draw, rng, out, batch, m, n),
    }
    function, names = draw(st.sampled_from(FUNCTIONS))
    traced = trace(function, names, pairs=True)
    epilogue, operands = drawn_epilogue(draw, rng, traced, arrays, out, (batch, m, n))
    asked = Product(
        m, n, k, batch, dtype, out, alpha, 0.0, operand(arrays["a"][1]), of_b, None,
        operand(arrays["d"][1]), epilogue, pairing=pairing,
    )  # fmt: skip
    return Case(asked, arrays, operands)


@pytest.mark.parametrize("family", [x.name for x in FAMILIES])
@examples(30, quick=1)
@given(data=st.data())
def test_every_family_answers_pairs(device: Device, family: str, data: st.DataObject) -> None:
    """By a launch of its own behind the sums of the family's kernels."""
    chip, dtypes = {
        "hopper": (H200, HALVES), "mma": (A100, HALVES), "thin_half": (H200, HALVES),
        "simt": (H200, ["float32", "float64"]), "thin_real": (H200, ["float32", "float64"]),
        "general": (None, DTYPES),
    }[family]  # fmt: skip
    case = data.draw(cases(held(dtypes), few_rows=family.startswith("thin")))
    found = [
        x
        for x in offers(case.product, chip)
        if x.family == "pair_sums" and all(of["family"] == family for of in x.choice["of"])
    ]
    assume(found)
    run(case, found[0].make(), device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", EVERY_ORDER)
@examples(60, quick=1)
@given(data=st.data())
def test_the_hopper_kernel_computes_pairs_in_one_launch(
    device: Device, order: str, data: st.DataObject
) -> None:
    case = data.draw(cases(held(HALVES), few_rows=False, orders=[order]))
    found: dict[tuple[Any, ...], Plan] = {}
    for each in offers(case.product, H200):
        if each.family == "hopper":
            choice = each.choice
            kind = (
                choice["split"], choice["stream_k"], choice["ping_pong"], choice["block_n"] > 64,
                choice["cluster_m"] > 1, choice["cluster_n"] > 1, choice["block_m"],
            )  # fmt: skip
            if kind not in found:
                found[kind] = each.make()
    assume(found)
    plan = found[data.draw(st.sampled_from(sorted(found)))]
    kernels = [step.kernel.name for step in plan.steps if "EPILOGUE" in step.kernel.defines]
    assert kernels in (["hopper"], ["hopper", "hopper_sum"])
    run(case, plan, device)


SCHEDULES: dict[str, Callable[[Any], bool]] = {
    "split": lambda choice: choice["split"] > 1,
    "stream_k": lambda choice: choice["stream_k"],
    "ping_pong": lambda choice: choice["ping_pong"],
    "along m": lambda choice: choice["cluster_m"] > 1 and not choice["stream_k"],
    "along n": lambda choice: choice["cluster_n"] > 1 and not choice["stream_k"],
}


@thorough
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("order", EVERY_ORDER)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pairs_in_every_schedule(
    device: Device, schedule: str, order: str, by_columns: bool
) -> None:
    """On few multiprocessors, where small products have tiles for several waves, and a tail."""
    # For the smaller matrices no tiling with ping-pong is worth comparing.
    m = n = 264 if schedule == "ping_pong" else 136
    k, rng = 520, np.random.default_rng(0)

    def lying(*shape: int) -> Any:
        x = rng.standard_normal(shape).astype(np.float16)
        return np.asfortranarray(x[0])[None] if by_columns else x

    a, d, extra = lying(1, m, k), lying(1, m, n), lying(1, m, n)
    b, up = lying(1, k, n), lying(1, k, n)
    flat, of_up = (x.swapaxes(1, 2).ravel() if by_columns else x.ravel() for x in (b, up))
    of_b, pairing = operand(b), Pairing(operand(up))
    if order != "apart":
        whole = lying(1, k, 2 * n)
        flat = of_up = whole.swapaxes(1, 2).ravel() if by_columns else whole.ravel()
        of_b, pairing = paired(operand(whole), order, n, "float16")
        halves = whole[..., :n], whole[..., n:]
        b, up = halves if order == "halves" else (whole[..., 0::2], whole[..., 1::2])
    traced = trace(lambda gate, up: (tw.silu(gate) * up, gate - up), (), pairs=True)
    asked = Product(
        m, n, k, 1, "float16", "float16", 1.0, 0.0, operand(a), of_b, None, operand(d),
        Epilogue(traced, (), (strided(extra, "float16"),)), pairing=pairing,
    )  # fmt: skip
    flats = [x.swapaxes(1, 2).ravel() if by_columns else x.ravel() for x in (a, d, extra)]
    arrays = {
        "a": (flats[0], a), "b": (flat, b), "up": (of_up, up), "d": (flats[1], d),
        "result 1": (flats[2], extra),
    }  # fmt: skip
    chip = H200 if schedule == "split" else FEW
    found = (x for x in offers(asked, chip) if x.family == "hopper")
    offer = next(x for x in found if SCHEDULES[schedule](x.choice))
    run(Case(asked, arrays, []), offer.make(), device)


@pytest.mark.parametrize("order", EVERY_ORDER)
@pytest.mark.parametrize(("n", "k"), [(14336, 4096), (28672, 8192), (11008, 4096)])
@pytest.mark.parametrize("m", TOKENS)
def test_products_of_language_models_are_one_launch(m: int, n: int, k: int, order: str) -> None:
    """Weights as PyTorch's linear layers have them; by the model no slower than without pairs."""
    whole = Operand(1, k)
    b, pairing = (
        (whole, Pairing(whole)) if order == "apart" else paired(whole, order, n, "bfloat16")
    )
    epilogue = Epilogue(trace(lambda gate, up: tw.silu(gate) * up, (), pairs=True), ())
    asked = Product(
        m, n, k, 1, "bfloat16", "bfloat16", 1.0, 0.0, Operand(k, 1), b, None, Operand(n, 1),
        epilogue, pairing=pairing,
    )  # fmt: skip
    plain = asked._replace(n=2 * n, b=whole, epilogue=None, pairing=None, d=Operand(2 * n, 1))
    first, without = best(asked, H200), best(plain, H200)
    assert first.family == "hopper"
    assert first.seconds <= (1.02 if m >= 512 else 1.05) * without.seconds, (first, without)
