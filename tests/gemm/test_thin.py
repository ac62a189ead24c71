"""The thin kernel: right for any address, strides and edges, and reads nothing beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matmul_reference import assert_right
from numpy.lib.stride_tricks import as_strided
from reference import Array, examples

from tilewise.devices import Device
from tilewise.gemm.chip import H200
from tilewise.gemm.families.thin import half as thin
from tilewise.gemm.product import Operand, Product, offset
from tilewise.gemm.steps import execute

pytestmark = pytest.mark.usefixtures("no_machine_code")

NAN = {"float16": 0x7E00, "bfloat16": 0x7FC0}


def from_bits(bits: Array, dtype: str) -> Array:
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float64)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64)


def to_bits(values: Array, dtype: str) -> Array:
    if dtype == "float32":
        return values.astype(np.float32)
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Matrix:
    """A batch of matrices in an array that ends with its last element.

    What lies between their elements is NaN, and what lies before the first one is a gap, which the
    emulator lets nobody read.
    """

    def __init__(
        self, values: Array, dtype: str, by_columns: bool, gap: int, offset: int, shared: bool,
        apart: int = 0,
    ) -> None:  # fmt: skip
        _, rows, columns = values.shape
        length, lines = (rows, columns) if by_columns else (columns, rows)
        pitch = length + gap
        self.strides = (1, pitch) if by_columns else (pitch, 1)
        self.batch_stride = 0 if shared else lines * pitch + apart
        self.shape = values.shape
        bits = to_bits(values, dtype)
        self.item = bits.itemsize
        count = 1 + sum((n - 1) * s for n, s in zip(self.shape, self._strides, strict=True))
        elements = np.full(count, NAN.get(dtype, np.nan), bits.dtype)
        self.seen(elements)[...] = bits
        ahead = -(-count // 8) * 8 + 16 + offset
        whole = np.zeros(ahead + count, bits.dtype)
        rows_of = as_strided(whole, (2, count), (ahead * self.item, self.item))
        rows_of[1] = elements
        self.host, self.place = rows_of, ahead

    @property
    def _strides(self) -> tuple[int, int, int]:
        return (self.batch_stride, *self.strides)

    def seen(self, elements: Array) -> Array:
        return as_strided(elements, self.shape, tuple(s * self.item for s in self._strides))

    def operand(self, address: int) -> Operand:
        row, column = self.strides
        return Operand(row, column, self.batch_stride, offset(address))


@st.composite
def matrices(draw: st.DrawFn, values: Array, dtype: str, by_columns: bool) -> Matrix:
    gap, offset = draw(st.integers(0, 9)), draw(st.integers(0, 7))
    return Matrix(values, dtype, by_columns, gap, offset, shared=len(values) == 1)


def check(device: Device, data: Any, m: int, n: int, k: int, batch: int) -> None:
    dtype = data.draw(st.sampled_from(["float16", "bfloat16"]))
    out_dtype = data.draw(st.sampled_from([dtype, dtype, "float32"]))
    alpha, beta = data.draw(st.sampled_from([(1.0, 0.0), (-0.5, 0.0), (1.5, 2.0)]))
    random = np.random.default_rng(m + 100 * n + 10000 * k)

    def drawn(rows: int, columns: int, kind: str, own: int) -> Matrix:
        by_columns = data.draw(st.booleans())
        values = random.standard_normal((own, rows, columns))
        found: Matrix = data.draw(matrices(values, kind, by_columns))
        return found

    own = [data.draw(st.sampled_from([1, batch])) for _ in range(2)]
    a, b = drawn(m, k, dtype, own[0]), drawn(k, n, dtype, own[1])
    c, d = (drawn(m, n, out_dtype, batch) for _ in range(2))
    held = [device.array(x.host) for x in (a, b, c, d)]
    at = [y.pointer + x.item * x.place for x, y in zip((a, b, c, d), held, strict=True)]
    operands = [x.operand(address) for x, address in zip((a, b, c, d), at, strict=True)]
    of_a, of_b, of_c, of_d = operands
    product = Product(m, n, k, batch, dtype, out_dtype, alpha, beta, of_a, of_b, of_c, of_d)
    view = thin.view_of(product)
    if view is None:
        assert min(m, n) > thin.MOST_BY_ROWS
        return
    plan = thin.plan(product, view, H200)
    workspace = device.empty((plan.workspace,), np.uint8)
    execute(plan, device, 0, (*at, workspace.pointer))
    result = held[3].to_numpy()[1]
    x, y, old, got = (
        from_bits(u.seen(np.ascontiguousarray(v)), kind)
        for u, v, kind in (
            (a, a.host[1], dtype), (b, b.host[1], dtype), (c, c.host[1], out_dtype),
            (d, result, out_dtype),
        )
    )  # fmt: skip
    for i in range(batch):
        x_i, y_i = x[min(i, len(x) - 1)], y[min(i, len(y) - 1)]
        old_i = old[i if len(old) > 1 else 0] if beta else 0
        assert_right(got[i if len(got) > 1 else 0], x_i, y_i, dtype, alpha, beta, old_i, out_dtype)
    written = np.zeros(len(result), result.dtype)
    d.seen(written)[...] = 1
    gaps = written == 0
    np.testing.assert_array_equal(result[gaps], d.host[1][gaps])


FEW = st.one_of(st.integers(1, 9), st.integers(1, 64))
MANY = st.one_of(st.integers(1, 40), st.integers(1, 300))
DEPTH = st.one_of(st.integers(1, 40), st.integers(1, 600))


@examples(20, quick=1)
@given(data=st.data(), few=FEW, many=MANY, k=DEPTH, batch=st.integers(1, 3), swapped=st.booleans())
def test_any_product(
    device: Device, data: st.DataObject, few: int, many: int, k: int, batch: int, swapped: bool
) -> None:
    while few * many * k > 60_000 and device.name == "emulator":
        many, k = (many + 1) // 2, (k + 1) // 2
    check(device, data, few if swapped else many, many if swapped else few, k, batch)


def product(m: int, n: int, k: int, **changes: Any) -> Product:
    """NT, not 16-byte aligned."""
    plain: dict[str, Any] = {
        "batch": 1, "dtype": "bfloat16", "out_dtype": "bfloat16", "alpha": 1.0, "beta": 0.0,
        "a": Operand(k, 1), "b": Operand(1, k, 0, 2), "c": None, "d": Operand(n, 1),
    }  # fmt: skip
    return Product(m, n, k, **{**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"dtype": "float32", "out_dtype": "float32"}, False),
        ({"alpha": 0.0}, False),
        ({"m": 65}, False),
        ({"k": 0}, False),
        ({"b": Operand(501, 1)}, True),
        ({"b": Operand(501, 1), "m": 25}, False),
        ({"b": Operand(1002, 2)}, False),
        ({"n": 2**31}, False),
        # A is repacked, unless it is one for all of too many.
        ({"a": Operand(101, 1, 1717), "b": Operand(1, 99, 49500), "batch": 10**8}, False),
        ({"a": Operand(101, 1), "b": Operand(1, 99, 49500), "batch": 10**8}, True),
    ],
)
def test_what_it_takes(changes: dict[str, Any], expected: bool) -> None:
    sizes = {"m": 17, "n": 500, "k": 99}
    own = {name: value for name, value in changes.items() if name not in sizes}
    asked = product(*({**sizes, **changes}[name] for name in sizes), **own)
    assert (thin.view_of(asked) is not None) == expected


def test_only_a_thin_matrix_off_16_bytes_is_repacked() -> None:
    asked = product(1, 4096, 4095)
    view = thin.view_of(asked)
    assert view is not None
    one = thin.plan(asked, view, H200)
    assert (len(one.steps), one.workspace) == (1, 0)
    assert one.chosen == "the thin kernel, 16 x 8 a warp, k divided by 8"
    assert "B is read once" in one.why
    asked = product(17, 8191, 4097)
    view = thin.view_of(asked)
    assert view is not None
    two = thin.plan(asked, view, H200)
    assert (len(two.steps), two.workspace) == (2, 141_568)
    assert two.chosen.startswith("A repacked; the thin kernel, 32 x 24 a warp")
