"""Place grouped products in a device's memory, and check their results group by group."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from matmul_reference import assert_right
from test_thin import NAN, from_bits, to_bits

from tilewise.devices import Device
from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.product import Operand, offset
from tilewise.gemm.steps import Plan, execute

Array = np.ndarray[Any, Any]
MARGIN = 64  # elements around D that nobody may write


@dataclass(frozen=True)
class Case:
    """A grouped product, and how its arrays lie.

    Attributes
    ----------
    sizes : tuple of int
        Of the groups.
    of : str
        What is in groups: ``"m"`` or ``"k"``.
    others : (int, int)
        n and k where rows are in groups, else m and n.
    a_by_columns, b_by_columns, d_by_columns : bool
        Whether columns are contiguous.
    gap : int
        Elements between lines of A and B, and of D.
    poisoned : int
        The group whose part of what is in groups is NaN; -1 for none.
    """

    sizes: tuple[int, ...]
    others: tuple[int, int] = (136, 136)
    of: str = "m"
    dtype: str = "bfloat16"
    out_dtype: str = "bfloat16"
    offset_dtype: str = "int32"
    a_by_columns: bool = False
    b_by_columns: bool = False
    d_by_columns: bool = False
    gap: int = 0
    poisoned: int = -1

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def mnk(self) -> tuple[int, int, int]:
        x, y = self.others
        return (self.total, x, y) if self.of == "m" else (x, y, self.total)

    @property
    def ends(self) -> list[int]:
        return list(accumulate(self.sizes))


class Held:
    """The arrays of a case on a device; ``ends`` replaces the case's own offsets."""

    def __init__(self, case: Case, device: Device, ends: list[int] | None = None) -> None:
        self.case, self.device = case, device
        m, n, k = case.mnk
        groups = len(case.sizes)
        random = np.random.default_rng(m + 100 * n + 10000 * k)
        self.a = random.standard_normal((1, m, k))
        self.b = random.standard_normal((groups if case.of == "m" else 1, k, n))
        if case.poisoned >= 0:
            end = case.ends[case.poisoned]
            part = slice(end - case.sizes[case.poisoned], end)
            if case.of == "m":
                self.a[:, part] = np.nan
                self.b[case.poisoned] = np.nan
            else:
                self.a[:, :, part] = np.nan
                self.b[:, part] = np.nan
        self.ends = case.ends if ends is None else ends
        offsets = np.array(self.ends, case.offset_dtype)
        self._kept = []
        a_at, a = self._placed(self.a, case.dtype, case.a_by_columns)
        b_at, b = self._placed(self.b, case.dtype, case.b_by_columns)
        shape = (m, n) if case.of == "m" else (groups, m, n)
        length, lines = (m, n) if case.d_by_columns else (n, m)
        pitch = length + case.gap
        self.d_shape, self.d_batch = shape, pitch * lines
        self.d_strides = (1, pitch) if case.d_by_columns else (pitch, 1)
        count = pitch * lines * (groups if case.of == "k" else 1) + 2 * MARGIN
        item = np.float32 if case.out_dtype == "float32" else np.uint16
        self.before = np.full(count, NAN.get(case.out_dtype, np.nan), item)
        self.d = device.array(self.before)
        d_at = self.d.pointer + MARGIN * self.before.itemsize
        self._kept.append(device.array(offsets))
        row, column = self.d_strides
        batch = self.d_batch if case.of == "k" else 0
        self.product = Grouped(
            case.of, m, n, k, groups, case.dtype, case.out_dtype, case.offset_dtype, a, b,
            Operand(row, column, batch, offset(d_at)),
        )  # fmt: skip
        self.at: tuple[int, ...] = (a_at, b_at, self._kept[-1].pointer, d_at, 0)

    def _placed(self, values: Array, dtype: str, by_columns: bool) -> tuple[int, Operand]:
        """Place a batch of matrices, with NaN in the gaps; return its address and strides."""
        bits = to_bits(values, dtype)
        if by_columns:
            bits = bits.swapaxes(1, 2)
        batch, lines, length = bits.shape
        pitch = length + self.case.gap
        whole = np.full((batch, lines, pitch), NAN.get(dtype, np.nan), bits.dtype)
        whole[:, :, :length] = bits
        self._kept.append(self.device.array(whole))
        at = self._kept[-1].pointer
        row, column = (1, pitch) if by_columns else (pitch, 1)
        return at, Operand(row, column, pitch * lines if batch > 1 else 0, offset(at))

    def with_epilogue(self, epilogue: Epilogue, *addresses: int) -> Grouped:
        """Return the product with a function, whose arrays are at these addresses."""
        self.at = (*self.at[:5], *addresses)
        return self.product._replace(epilogue=epilogue)

    def execute(self, plan: Plan) -> Array:
        """Execute a plan, assert that it writes nothing beside D, and return D's elements."""
        execute(plan, self.device, 0, self.at)
        return self.stored()

    def stored(self) -> Array:
        """Return D's elements, and assert that nothing beside them was written."""
        got = self.d.to_numpy()
        written = np.zeros(len(got), bool)
        self._seen(written)[...] = True
        np.testing.assert_array_equal(
            got[~written].view(np.uint8), self.before[~written].view(np.uint8)
        )
        return self._seen(got).copy()

    def _seen(self, elements: Array) -> Array:
        strides = (*([self.d_batch] if self.case.of == "k" else []), *self.d_strides)
        inner = elements[MARGIN:]
        return np.lib.stride_tricks.as_strided(
            inner, self.d_shape, [x * inner.itemsize for x in strides]
        )

    def parts(self) -> list[tuple[slice | int, Array, Array]]:
        """Return, for each group, the place of its result in D, and its A and B, rounded."""
        a, b = (from_bits(to_bits(x, self.case.dtype), self.case.dtype) for x in (self.a, self.b))
        found: list[tuple[slice | int, Array, Array]] = []
        begin = 0
        for i, end in enumerate(self.ends):
            part = slice(begin, end)
            if self.case.of == "m":
                found.append((part, a[0, part], b[i]))
            else:
                found.append((i, a[0][:, part], b[0][part]))
            begin = end
        return found

    def check(self, plan: Plan) -> None:
        """Execute a plan; assert that each group is right, and that NaN reaches no other group."""
        case = self.case
        got = from_bits(self.execute(plan), case.out_dtype)
        for i, (at, a, b) in enumerate(self.parts()):
            if i == case.poisoned and case.sizes[i]:
                assert np.isnan(got[at]).all()
            else:
                assert_right(got[at], a, b, case.dtype, out_dtype=case.out_dtype)
