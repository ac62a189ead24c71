"""Invariant products: a row's bits depend on that row and on B, and on nothing else."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from reference import some, thorough

import tilewise
from tilewise.devices import Device
from tilewise.gemm.chip import H200, Chip, known
from tilewise.gemm.invariant import ROWS, division, fixed
from tilewise.gemm.plan import offers, plan_of_piece, plan_on
from tilewise.gemm.product import Operand, Product
from tilewise.gemm.steps import execute
from tilewise.numbers import check
from tilewise.places import Place

A100 = known("a100")
N, K = 72, 600
RNG = np.random.default_rng(0)
X = RNG.standard_normal((130, K))
W = RNG.standard_normal((K, N))


def product(m: int, n: int, k: int, dtype: str, **changes: Any) -> Product:
    plain = Product(
        m, n, k, 1, dtype, dtype, 1.0, 0.0, Operand(k, 1), Operand(n, 1), None, Operand(n, 1)
    )
    return plain._replace(**changes)


def bits(device: Device, plan: Any, a: Any, b: Any, shape: tuple[int, int]) -> Any:
    """What a plan makes of flat memory."""
    of_a, of_b = device.array(a), device.array(b)
    of_d = device.empty((shape[0] * shape[1],), a.dtype)
    workspace = device.empty((max(plan.workspace, 1),), np.uint8)
    d = of_d.pointer
    execute(plan, device, 0, (of_a.pointer, of_b.pointer, 0, d, workspace.pointer))
    return of_d.to_numpy().reshape(shape)


def lying(x: Any, by_columns: bool, pad: int, ahead: int) -> tuple[Any, Operand]:
    """A matrix in memory of its own, with gaps between its lines."""
    lines = x.T if by_columns else x
    count, width = lines.shape
    flat = np.zeros(ahead + count * (width + pad), x.dtype)
    flat[ahead:].reshape(count, width + pad)[:, :width] = lines
    row, column = (1, width + pad) if by_columns else (width + pad, 1)
    return flat, Operand(row, column, 0, ahead * x.itemsize % 16)


WAYS = [(False, 0, 0), (True, 0, 0), (False, 3, 0), (False, 4, 1)]
"""By columns, elements between lines, elements ahead."""
CASES = [
    ("float16", A100), ("float16", H200), ("float32", H200), ("float32", A100), ("float32", None),
]  # fmt: skip


@pytest.mark.sampled(14)
@pytest.mark.parametrize(("dtype", "chip"), CASES, ids=lambda x: str(getattr(x, "name", x)))
@pytest.mark.parametrize("b_by_columns", [False, True])
def test_rows_have_the_same_bits(
    emulator: Device, dtype: str, chip: Chip | None, b_by_columns: bool
) -> None:
    """For any m, place, strides and alignment, and whatever tiles are fastest for them."""
    x, w = X.astype(dtype), W.astype(dtype)
    flat_b, of_b = lying(w, b_by_columns, 0, 0)
    wanted = None
    rows = some([(1, 5), (3, 4), (16, 0), (130, 0), (70, 3)], 2)
    for at, (m, first) in enumerate(rows):
        ways = [WAYS[1 + at % 3], WAYS[0]] if m > 1 else WAYS[:1]
        for by_columns, pad, ahead in some(ways, 1):
            flat_a, of_a = lying(x[first : first + m], by_columns, pad, ahead)
            asked = fixed(product(m, N, K, dtype, a=of_a, b=of_b), chip)
            plan = plan_on(asked, chip)
            # The emulator's arrays begin at multiples of 16 bytes: go on to the first element.
            found = bits(emulator, _ahead(plan, ahead * x.itemsize), flat_a, flat_b, (m, N))
            row = found[5 - first]
            wanted = row[None] if wanted is None else wanted
            np.testing.assert_array_equal(row, wanted[0], plan.chosen)
    assert wanted is not None
    assert check(wanted, x[5:6], w).correct


def _ahead(plan: Any, by: int) -> Any:
    from tilewise.gemm.steps import Plan, Step

    steps = tuple(Step(step.kernel, step.launch.moved({0: Place(0, by)})) for step in plan.steps)
    return Plan(steps, plan.workspace, plan.chosen, plan.why)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("chip", [H200, A100], ids=lambda x: x.name)
def test_every_offer_gives_the_same_bits(emulator: Device, chip: Chip, parts: int) -> None:
    """Of a fixed division: any tiles, swapped or not."""
    x, w = X[:40].astype(np.float16), W.astype(np.float16)
    asked = product(40, N, K, "float16", parts=parts)
    found = {}
    every = offers(asked, chip)
    assert len(every) > 3
    for each in some(every[:: max(1, len(every) // 6)], 2):
        plan = each.make()
        found[plan.chosen] = bits(emulator, plan, x.ravel(), w.ravel(), (40, N)).tobytes()
    assert len(set(found.values())) == 1, found.keys()


@thorough
def test_parts_differ_where_k_is_divided_otherwise(emulator: Device) -> None:
    """Without a fixed division the test above could fail."""
    x, w = X[:40].astype(np.float16), W.astype(np.float16)
    asked = (product(40, N, K, "float16", parts=parts) for parts in (1, 2, 4))
    found = {
        bits(emulator, plan_on(each, H200), x.ravel(), w.ravel(), (40, N)).tobytes()
        for each in asked
    }
    assert len(found) == 3


@pytest.mark.parametrize("chip", [H200, A100], ids=lambda x: x.name)
def test_a_division_fits_every_m(chip: Chip) -> None:
    for n, k in ((4096, 14336), (64, 8192), (1, 100), (8192, 300), (100, 1), (257, 511)):
        parts = division(n, k, "bfloat16", chip)
        assert parts in (1, 2, 4, 8)
        assert parts == 1 or k >= 256 * parts
        for m in (*ROWS, 7, 333):
            for a in (Operand(k, 1), Operand(1, m), Operand(k + 1, 1, 0, 2)):
                asked = product(m, n, k, "bfloat16", a=a, parts=parts)
                plan = plan_on(asked, chip)
                assert plan.steps
                assert plan_of_piece(asked, chip, 1 << 30).steps


def test_some_weights_are_divided() -> None:
    assert division(64, 8192, "bfloat16", H200) > 1
    assert division(8192, 8192, "bfloat16", H200) == 1
    assert division(64, 8192, "float32", H200) == 1
    assert division(64, 8192, "bfloat16", None) == 1


def test_what_no_kernel_can_keep_is_an_error() -> None:
    """Hopper's sums, where its kernel does not take the product."""
    d = Operand(200, 2)
    asked = product(8, 100, 64, "float16", out_dtype="float32", d=d, parts=1)
    with pytest.raises(ValueError, match=r"the same bits in any batch: neither dimension of D"):
        plan_on(asked, H200)


def test_from_arrays_to_arrays() -> None:
    x, w = X[:9, :100].astype(np.float32), W[:100, :40].astype(np.float32)
    whole = tilewise.matmul(x, w, invariant=True, device="emulator")
    for m in (4, 1):
        part = tilewise.matmul(x[2 : 2 + m], w, invariant=True, device="emulator")
        np.testing.assert_array_equal(part, whole[2 : 2 + m])
    said = str(tilewise.explain(x, w, invariant=True, device="emulator"))
    assert "invariant     k is undivided, whatever m is" in said
    with pytest.raises(TypeError, match="invariant is 1; it takes True or False"):
        tilewise.matmul(x, w, invariant=1)  # type: ignore[arg-type]


def test_no_library_of_arrays_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tilewise.matmul"], "first_gpu", lambda: None)
    x = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match="takes tilewise's own kernels"):
        tilewise.matmul(x, x, invariant=True)
    tilewise.set_invariant(True)
    try:
        with pytest.raises(ValueError, match="set_invariant, or TILEWISE_INVARIANT=1"):
            tilewise.matmul(x, x)
        assert tilewise.matmul(x, x, invariant=False)[0, 0] == 2
        assert tilewise.matmul(x, x, device="emulator")[0, 0] == 2
    finally:
        tilewise.set_invariant(False)
    with pytest.raises(TypeError, match="takes True or False"):
        tilewise.set_invariant("yes")  # type: ignore[arg-type]
