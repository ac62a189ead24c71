"""The thin kernel for float32 and float64: right for any address, strides and edges."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples, some, thorough
from test_fma import MARK, cases, product, run

from tilewise.devices import Device
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.thin import real as thin_fma
from tilewise.gemm.families.thin.family import ThinReal
from tilewise.gemm.families.thin.real import MOST, View
from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Operand, Product
from tilewise.gemm.steps import Plan

pytestmark = pytest.mark.usefixtures("no_machine_code")

Arrays = dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]


def plan_of(asked: Product, view: View, multiprocessors: int, is_hopper: bool) -> Plan:
    """The one that should be fastest."""
    chip = Chip("some", multiprocessors, 90 if is_hopper else 80)
    division = min(thin_fma.divisions(asked, view, chip), key=attrgetter("seconds"))
    found = ThinReal().best(asked, chip)
    assert found is not None
    assert found.choice == {"split": division.split, "parts": division.parts}
    return thin_fma.plan(asked, view, division, is_hopper)


@examples(40)
@given(case=cases(st.integers(1, MOST + 1)))
def test_any_product(device: Device, case: tuple[Product, Arrays]) -> None:
    asked, arrays = case
    view = thin_fma.view_of(asked)
    if view is None:
        assert min(asked.m, asked.n) > MOST or asked.k == 0 or asked.alpha == 0
        return
    is_hopper = device.name != "emulator"
    run(asked, arrays, plan_of(asked, view, 4, is_hopper), device)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=thorough)])
@pytest.mark.parametrize(
    ("few", "rows", "k"), [(1, 300, 1500), (3, 300, 1500), (MOST, 9, 5000), (1, 1, 700)]
)
def test_k_is_divided_where_there_are_few_rows(
    device: Device, few: int, rows: int, k: int, dtype: str
) -> None:
    """In batches, with one A for all; B's columns are read by 16 bytes, A's rows are not."""
    batch, rng = 2, np.random.default_rng(few)
    pitch = k + -k % 4
    of_b = rng.standard_normal(batch * rows * pitch).astype(dtype)
    of_a = rng.standard_normal(1 + few * k).astype(dtype)
    of_d = np.full(batch * few * rows, MARK, dtype)
    a = of_a[1:].reshape(few, k)
    arrays = {
        "a": (of_a, np.broadcast_to(a, (batch, few, k))),
        "b": (of_b, of_b.reshape(batch, rows, pitch)[:, :, :k].transpose(0, 2, 1)),
        "d": (of_d, of_d.reshape(batch, few, rows)),
    }
    asked = product(
        few, rows, k, dtype, batch=batch, a=Operand(k, 1, 0, of_a.itemsize),
        b=Operand(1, pitch, rows * pitch), d=Operand(rows, 1, few * rows),
    )  # fmt: skip
    view = thin_fma.view_of(asked)
    assert view is not None
    assert (view.few_width, view.width > 1, view.is_swapped) == (1, True, True)
    plan = plan_of(asked, view, 132, False)
    assert plan.steps[0].kernel.defines["SPLIT"] > 1
    run(asked, arrays, plan, device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "width"), [(600, 4), (601, 1), (3, 1)])
@pytest.mark.parametrize("few", [1, *(pytest.param(few, marks=thorough) for few in (2, 3, MOST))])
def test_lines_across_k(device: Device, few: int, rows: int, width: int, dtype: str) -> None:
    """By pieces of 16 bytes, and element by element; every division of k."""
    k, rng = 333, np.random.default_rng(few)
    pitch = rows + -rows % 4
    of_a, of_b = (rng.standard_normal(x).astype(dtype) for x in (few * k, k * pitch))
    of_d = np.full(few * rows, MARK, dtype)
    arrays = {
        "a": (of_a, of_a.reshape(1, few, k)),
        "b": (of_b, of_b.reshape(1, k, pitch)[:, :, :rows]),
        "d": (of_d, of_d.reshape(1, few, rows)),
    }
    asked = product(few, rows, k, dtype, b=Operand(pitch, 1))
    view = thin_fma.view_of(asked)
    assert view is not None
    assert (view.is_k_major, view.width > 1) == (few > rows, width > 1 and few < rows)
    divisions = thin_fma.divisions(asked, view, H200)
    of_parts = {(division.split, division.parts): division for division in divisions}
    assert {split for split, _ in of_parts} == {1, 8}
    chosen = [division for i, division in enumerate(of_parts.values()) if i % 7 == few % 7]
    for division in some(chosen, 2):
        fresh = {**arrays, "d": (of_d.copy(), arrays["d"][1].copy())}
        run(asked, fresh, thin_fma.plan(asked, view, division, False), device)


def test_what_lies_behind_k_is_not_read_as_a_number() -> None:
    """Rows apart: between them there may be anything, NaN too."""
    m, n, k = 1, 5, 6
    of_b = np.full(n * 8, np.nan, np.float32)
    b = of_b.reshape(n, 8)[:, :k]
    b[...] = np.arange(n * k).reshape(n, k)
    of_a, of_d = np.ones(m * k, np.float32), np.full(m * n, MARK, np.float32)
    arrays = {
        "a": (of_a, of_a.reshape(1, m, k)),
        "b": (of_b, b.T[None]),
        "d": (of_d, of_d.reshape(1, m, n)),
    }
    asked = product(m, n, k, b=Operand(1, 8))
    view = thin_fma.view_of(asked)
    assert view is not None
    run(asked, arrays, plan_of(asked, view, 132, False))


def test_which_products_it_takes() -> None:
    nt = product(1, 4096, 4095, b=Operand(1, 4095))
    words = "the thin kernel without tensor cores, 4 x 1 a warp, k divided by"
    assert plan_on(nt, H200).chosen.startswith(words)
    assert "B is read once" in plan_on(nt, H200).why
    column = product(4096, 1, 4095)
    assert "A is read once" in plan_on(column, H200).why
    across = plan_on(product(1, 4096, 4095), H200)
    assert across.chosen.startswith("the thin kernel without tensor cores, 128 x 1 a warp")
    # Eight columns of rows that lie far apart: each lane would read its own line of the cache.
    assert "tiles of 128 x 16" in plan_on(product(4096, 8, 4096), H200).chosen
    assert plan_on(product(4096, 8, 4096, b=Operand(1, 4096)), H200).chosen.startswith("the thin")
    for other in (
        product(1, 4096, 4095, b=Operand(8192, 2)),
        nt._replace(m=MOST + 1, a=Operand(4095, 1)),
        nt._replace(alpha=0.0),
        nt._replace(k=0),
        nt._replace(n=2**31),
        nt._replace(dtype="bfloat16", out_dtype="bfloat16"),
    ):
        assert thin_fma.view_of(other) is None
