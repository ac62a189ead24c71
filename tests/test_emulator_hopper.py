"""The kernels for tensor cores on the emulator: right, without a finding, and faults are found."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_matmul import assert_right
from test_thin import Matrix, from_bits

from tilewise import hopper, thin
from tilewise.devices.emulator import Emulator
from tilewise.errors import BarrierError, CheckError, RaceError, UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.product import Product
from tilewise.steps import Plan, Step, execute
from tilewise.tilings import BLOCK_K, Tiling

UNITS = 6  # multiprocessors: so few that blocks compute several tiles, or parts of one


@dataclass(frozen=True)
class Case:
    """A product, and how A, B, C and D lie."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "bfloat16"
    out_dtype: str = "bfloat16"
    alpha: float = 1.0
    beta: float = 0.0
    a_by_columns: bool = False
    b_by_columns: bool = False
    d_by_columns: bool = False
    one_a: bool = False  # of all batches
    one_b: bool = False
    d_gap: int = 0


class Held:
    """A case's arrays on the emulator."""

    def __init__(self, case: Case, grain: int = 8) -> None:
        m, n, k, batch = case.m, case.n, case.k, case.batch
        self.case, self.device = case, Emulator()
        random = np.random.default_rng(m + 100 * n + 10000 * k)

        def matrix(
            own: int, rows: int, columns: int, dtype: str, by_columns: bool, gap: int
        ) -> Matrix:
            values = random.standard_normal((own, rows, columns))
            return Matrix(values, dtype, by_columns, gap, grain, shared=own == 1)

        def whole(length: int) -> int:
            return -length % grain

        in_, out = case.dtype, case.out_dtype
        self.matrices = (
            matrix(1 if case.one_a else batch, m, k, in_, case.a_by_columns,
                   whole(m if case.a_by_columns else k)),
            matrix(1 if case.one_b else batch, k, n, in_, case.b_by_columns,
                   whole(k if case.b_by_columns else n)),
            matrix(batch, m, n, out, case.d_by_columns, 3),
            matrix(batch, m, n, out, case.d_by_columns, case.d_gap),
        )  # fmt: skip
        self.arrays = [self.device.array(x.host) for x in self.matrices]
        self.at = [
            y.pointer + x.item * x.place for x, y in zip(self.matrices, self.arrays, strict=True)
        ]
        operands = [x.operand(at) for x, at in zip(self.matrices, self.at, strict=True)]
        self.product = Product(m, n, k, batch, in_, out, case.alpha, case.beta, *operands)

    def execute(self, plan: Plan) -> None:
        workspace = self.device.empty((plan.workspace,), np.uint8)
        execute(plan, self.device, 0, (*self.at, workspace.pointer))

    def check(self, plan: Plan) -> None:
        """Execute a plan: D is right, and nothing beside it was written."""
        self.execute(plan)
        case, d = self.case, self.matrices[3]
        result = self.arrays[3].to_numpy()[1]
        dtypes = (case.dtype, case.dtype, case.out_dtype)
        x, y, old = (
            from_bits(u.seen(np.ascontiguousarray(u.host[1])), dtype)
            for u, dtype in zip(self.matrices[:3], dtypes, strict=True)
        )
        got = from_bits(d.seen(np.ascontiguousarray(result)), case.out_dtype)
        for i in range(case.batch):
            a, b, c = (z[min(i, len(z) - 1)] for z in (x, y, old))
            assert_right(
                got[i], a, b, case.dtype, case.alpha, case.beta,
                c if case.beta else 0, case.out_dtype,
            )  # fmt: skip
        written = np.zeros(len(result), result.dtype)
        d.seen(written)[...] = 1
        np.testing.assert_array_equal(result[written == 0], d.host[1][written == 0])


# Every way of sharing, dividing, and storing.
VARIANTS: list[tuple[Case, Tiling]] = [
    (Case(200, 200, 200), Tiling(64, 64)),
    (Case(130, 136, 100, b_by_columns=True), Tiling(128, 80)),
    (Case(136, 72, 130, a_by_columns=True, d_by_columns=True), Tiling(64, 64)),
    (Case(3, 200, 300, b_by_columns=True), Tiling(64, 16, split=4)),
    (Case(70, 130, 300, dtype="float16", out_dtype="float32"), Tiling(64, 64, split=2)),
    (Case(100, 100, 520, batch=2, b_by_columns=True, d_gap=1), Tiling(64, 48, shared=True)),
    (Case(300, 130, 520, out_dtype="float32", d_by_columns=True), Tiling(128, 64, 2, shared=True)),
    (Case(260, 130, 200, batch=3, one_b=True), Tiling(128, 64, 2, 1)),
    (Case(130, 264, 200, batch=2, one_a=True, b_by_columns=True), Tiling(128, 80, 1, 2)),
    (Case(130, 100, 70, beta=2.0, alpha=-0.5), Tiling(64, 128)),
    (Case(200, 50, 130, a_by_columns=True, b_by_columns=True), Tiling(64, 64, turned=True)),
    (Case(130, 250, 130, b_by_columns=True, d_by_columns=True), Tiling(192, 112)),
    (Case(40, 80, 130, dtype="float16", out_dtype="float16"), Tiling(256, 64)),
]  # fmt: skip


@pytest.mark.parametrize(("case", "tiling"), VARIANTS, ids=[f"{t}" for _, t in VARIANTS])
def test_every_variant(case: Case, tiling: Tiling) -> None:
    held = Held(case)
    held.check(hopper.plan(held.product, UNITS, tiling))


TILINGS = [
    Tiling(64, 64),
    Tiling(64, 64, turned=True),
    Tiling(64, 64, split=2),
    Tiling(64, 64, shared=True),
    Tiling(64, 64, 2),
    Tiling(64, 64, 1, 2),
    Tiling(128, 64),
]


@settings(max_examples=12)
@given(
    m=st.integers(1, 200),
    n=st.integers(1, 200),
    k=st.integers(1, 300),
    batch=st.integers(1, 2),
    tiling=st.sampled_from(TILINGS),
    a_by_columns=st.booleans(),
    b_by_columns=st.booleans(),
    is_plain=st.booleans(),
)
def test_any_product(
    m: int, n: int, k: int, batch: int, tiling: Tiling, a_by_columns: bool, b_by_columns: bool,
    is_plain: bool,
) -> None:  # fmt: skip
    k = max(k, BLOCK_K * tiling.split)
    case = Case(m, n, k, batch, a_by_columns=a_by_columns, b_by_columns=b_by_columns)
    if is_plain:  # bulk copies can store it
        case = replace(case, m=-(-m // 8) * 8, n=-(-n // 8) * 8)
    held = Held(case)
    held.check(hopper.plan(held.product, UNITS, tiling))


@settings(max_examples=8)
@given(
    few=st.integers(1, 40),
    many=st.integers(1, 200),
    k=st.integers(1, 400),
    batch=st.integers(1, 2),
    by_columns=st.booleans(),
    grain=st.sampled_from([1, 8]),
)
def test_thin_products(
    few: int, many: int, k: int, batch: int, by_columns: bool, grain: int
) -> None:
    held = Held(Case(few, many, k, batch, b_by_columns=by_columns), grain)
    view = thin.thin(held.product)
    assume(view is not None)
    assert view is not None
    held.check(thin.plan(held.product, view, 132))


def broken(tmp_path: Path, plan: Plan, old: str, new: str) -> Plan:
    """The plan with a word of its kernel changed."""
    for path in hopper.SOURCE.parent.glob("*.cuh"):
        shutil.copy(path, tmp_path)
    source = hopper.SOURCE.read_text(encoding="utf-8")
    assert source.count(old) == 1
    changed = tmp_path / "hopper.cu"
    changed.write_text(source.replace(old, new), encoding="utf-8")
    first, *rest = plan.steps
    kernel = Kernel(changed, first.kernel.name, first.kernel.defines)
    return replace(plan, steps=(Step(kernel, first.launch), *rest))


FAULTS: list[tuple[str, str, type[CheckError], str]] = [
    (
        "barrier_wait(full_at + 8 * stage, parity);",
        "",
        UninitializedReadError,
        "matrix B in shared memory of which nobody wrote",
    ),
    ("wgmma_wait<1>();", "", RaceError, "by a bulk copy with no barrier after the read of a wgmma"),
    ("fence_async();", "", RaceError, "no proxy fence after the write"),
    ("if (lane == 0) tma_store_wait_read<1>();", "", RaceError, "after the read of a bulk copy"),
    ("release(previous);\n                previous", "previous", BarrierError, "nobody completes"),
    ("ROW_BYTES + B_BYTES", "ROW_BYTES + B_BYTES + 16", BarrierError, "nobody completes"),
]


@pytest.mark.parametrize(
    ("old", "new", "error", "words"), FAULTS, ids=[f[0].split(";")[0] for f in FAULTS]
)
def test_finds_faults(
    tmp_path: Path, old: str, new: str, error: type[CheckError], words: str
) -> None:
    held = Held(Case(64, 128, 1500))
    plan = hopper.plan(held.product, UNITS, Tiling(64, 128))
    with pytest.raises(error, match=words):
        held.execute(broken(tmp_path, plan, old, new))
