"""The kernels for tensor cores on the emulator: right, without a finding, and faults are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from broken_kernel import broken
from hypothesis import assume, given
from hypothesis import strategies as st
from matmul_reference import assert_right
from reference import examples, thorough
from test_thin import NAN, Matrix, from_bits

from tilewise.devices.emulator import Emulator
from tilewise.errors import (
    BarrierError,
    CheckError,
    MemoryAccessError,
    RaceError,
    UninitializedReadError,
)
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.tiling import BLOCK_K, Tiling
from tilewise.gemm.families.thin import half as thin
from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Product
from tilewise.gemm.steps import Plan, execute

pytestmark = pytest.mark.usefixtures("no_machine_code")

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
    a_off: tuple[int, int] = (0, 0)  # a line's elements beyond a multiple of 8, and the first's
    b_off: tuple[int, int] = (0, 0)
    apart: int = 0  # elements between the matrices of A, and of B
    d_gap: int = 0


class Held:
    """A case's arrays on the emulator."""

    def __init__(self, case: Case, grain: int = 8) -> None:
        m, n, k, batch = case.m, case.n, case.k, case.batch
        self.case, self.device = case, Emulator()
        random = np.random.default_rng(m + 100 * n + 10000 * k)

        def matrix(
            own: int, rows: int, columns: int, dtype: str, by_columns: bool,
            off: tuple[int, int] | None = None, gap: int = 0,
        ) -> Matrix:  # fmt: skip
            values = random.standard_normal((own, rows, columns))
            if off is None:
                return Matrix(values, dtype, by_columns, gap, grain, own == 1)
            gap = off[0] - (rows if by_columns else columns) % -grain
            return Matrix(values, dtype, by_columns, gap, grain + off[1], own == 1, case.apart)

        in_, out = case.dtype, case.out_dtype
        self.matrices = (
            matrix(1 if case.one_a else batch, m, k, in_, case.a_by_columns, case.a_off),
            matrix(1 if case.one_b else batch, k, n, in_, case.b_by_columns, case.b_off),
            matrix(batch, m, n, out, case.d_by_columns, gap=3),
            matrix(batch, m, n, out, case.d_by_columns, gap=case.d_gap),
        )  # fmt: skip
        self.arrays = [self.device.array(x.host) for x in self.matrices]
        self.at = [
            y.pointer + x.item * x.place for x, y in zip(self.matrices, self.arrays, strict=True)
        ]
        a, b, c, d = (x.operand(at) for x, at in zip(self.matrices, self.at, strict=True))
        self.product = Product(m, n, k, batch, in_, out, case.alpha, case.beta, a, b, c, d)

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


# Layouts, k divided, stream-K, alpha and beta, two warpgroups, copies by threads, the product
# transposed, and clusters of four, of which some tiles are past the end.
VARIANTS: list[tuple[Case, Tiling]] = [
    (Case(136, 72, 130, a_by_columns=True, d_by_columns=True), Tiling(64, 64)),
    (Case(3, 200, 300, b_by_columns=True), Tiling(64, 16, split=4)),
    (Case(100, 100, 520, batch=2, b_by_columns=True, d_gap=1), Tiling(64, 48, stream_k=True)),
    (Case(130, 100, 70, beta=2.0, alpha=-0.5), Tiling(64, 128)),
    (Case(40, 80, 130, dtype="float16", out_dtype="float16"), Tiling(256, 64)),
    (Case(72, 100, 70, a_by_columns=True, b_by_columns=True, a_off=(1, 1), b_off=(2, 6), beta=2.0,
          alpha=-0.5), Tiling(64, 64, a_unaligned=True, b_unaligned=True, swapped=True)),
    (Case(72, 70, 100, batch=2, one_a=True, a_by_columns=True, b_by_columns=True, b_off=(2, 6),
          apart=5, d_by_columns=True), Tiling(64, 64, swapped=True, a_unaligned=True)),
    (Case(200, 40, 520, b_by_columns=True), Tiling(64, 16, 2, 2, stream_k=True)),
    (Case(200, 260, 330, b_by_columns=True, d_gap=1),
     Tiling(64, 48, stream_k=True, ping_pong=True)),
    (Case(70, 200, 200), Tiling(64, 96, 2, 1)),  # boxes of 32 columns of B
]  # fmt: skip
# Every other way of sharing, dividing, taking in turn, and storing.
MORE_VARIANTS: list[tuple[Case, Tiling]] = [
    (Case(300, 260, 200, batch=3, one_b=True), Tiling(64, 64, 2, 1, ping_pong=True)),
    (Case(300, 400, 330, b_by_columns=True), Tiling(128, 80, 1, 2, stream_k=True, ping_pong=True)),
    (Case(300, 400, 130, beta=0.5, out_dtype="float32", d_by_columns=True),
     Tiling(64, 64, 2, 2, ping_pong=True, swapped=True)),
    (Case(200, 200, 200), Tiling(64, 64)),
    (Case(130, 136, 100, b_by_columns=True), Tiling(128, 80)),
    (Case(70, 130, 300, dtype="float16", out_dtype="float32"), Tiling(64, 64, split=2)),
    (Case(70, 130, 100), Tiling(64, 64, split=2)),  # the second split has a part of a k-step
    (Case(300, 130, 520, out_dtype="float32", d_by_columns=True),
     Tiling(128, 64, 2, stream_k=True)),
    (Case(260, 130, 200, batch=3, one_b=True), Tiling(128, 64, 2, 1)),
    (Case(130, 264, 200, batch=2, one_a=True, b_by_columns=True), Tiling(128, 80, 1, 2)),
    (Case(200, 50, 130, a_by_columns=True, b_by_columns=True), Tiling(64, 64, swapped=True)),
    (Case(130, 250, 130, b_by_columns=True, d_by_columns=True), Tiling(192, 112)),
    # Clusters whose blocks divide MN-major boxes along k.
    (Case(100, 200, 200, a_by_columns=True), Tiling(64, 64, 1, 4)),
    (Case(260, 200, 130, batch=2, one_b=True), Tiling(64, 192, 4, 1)),
    (Case(130, 260, 200, a_by_columns=True), Tiling(64, 64, 2, 4, ping_pong=True)),
    (Case(260, 330, 130, a_by_columns=True, beta=0.5), Tiling(128, 160, 2, 1)),
    (Case(300, 200, 330, a_by_columns=True), Tiling(64, 96, 4, 1, stream_k=True)),
    (Case(260, 230, 200, b_by_columns=True, a_by_columns=True),
     Tiling(64, 160, 4, 1, ping_pong=True, swapped=True)),
    (Case(100, 150, 300, batch=2), Tiling(64, 224, split=2)),
    # Realigned.
    (Case(130, 72, 200, a_off=(1, 0)), Tiling(64, 64, a_unaligned=True)),
    (Case(70, 136, 100, b_by_columns=True, b_off=(0, 1), d_gap=2),
     Tiling(128, 80, b_unaligned=True)),
    (Case(136, 72, 130, a_by_columns=True, a_off=(3, 7), b_off=(5, 0), d_by_columns=True),
     Tiling(64, 64, a_unaligned=True, b_unaligned=True)),
    (Case(3, 100, 330, b_by_columns=True, a_off=(7, 0)), Tiling(64, 16, split=4, a_unaligned=True)),
    (Case(100, 72, 520, batch=2, b_off=(1, 3), out_dtype="float32"),
     Tiling(64, 64, stream_k=True, b_unaligned=True)),
    # The matrices follow one another; A's is one for all.
    (Case(65, 67, 70, batch=3, one_a=True, a_by_columns=True, a_off=(1, 0), b_off=(5, 5)),
     Tiling(64, 64, a_unaligned=True, b_unaligned=True)),
    # They are any number of elements apart, and each one's lines begin elsewhere between 16 bytes.
    (Case(64, 80, 72, batch=3, a_off=(0, 2), b_by_columns=True, apart=1),
     Tiling(64, 80, a_unaligned=True, b_unaligned=True)),
    (Case(100, 72, 520, batch=2, a_by_columns=True, b_off=(0, 5), apart=3),
     Tiling(64, 64, stream_k=True, a_unaligned=True, b_unaligned=True)),
    (Case(3, 30, 330, batch=2, b_by_columns=True, a_off=(7, 5), apart=9),
     Tiling(64, 16, split=4, a_unaligned=True, b_unaligned=True)),
    # Several tiles a block, of which a loader brings 128 or 256 rows.
    (Case(130, 70, 100, batch=2, a_off=(1, 1), b_off=(2, 3), apart=7),
     Tiling(128, 64, a_unaligned=True, b_unaligned=True)),
    (Case(260, 30, 70, batch=2, b_by_columns=True, apart=6),
     Tiling(256, 16, a_unaligned=True, b_unaligned=True)),
    (Case(260, 30, 70, a_by_columns=True, b_by_columns=True, a_off=(3, 1)),
     Tiling(256, 32, a_unaligned=True)),
]  # fmt: skip


def unaligned(tiling: Tiling, product: Product) -> Tiling:
    """It, for what does not begin at multiples of 16 bytes."""
    problem = hopper.problem(product)
    view = problem.swapped if tiling.swapped else problem
    return tiling._replace(a_unaligned=view.a_unaligned, b_unaligned=view.b_unaligned)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("case", "tiling"), VARIANTS, ids=[f"{t}" for _, t in VARIANTS])
def test_variants(case: Case, tiling: Tiling) -> None:
    held = Held(case)
    held.check(hopper.plan(held.product, UNITS, tiling))


@thorough
@pytest.mark.parametrize(("case", "tiling"), MORE_VARIANTS, ids=[f"{t}" for _, t in MORE_VARIANTS])
def test_every_other_variant(case: Case, tiling: Tiling) -> None:
    test_variants(case, tiling)


TILINGS = [
    Tiling(64, 64),
    Tiling(64, 64, swapped=True),
    Tiling(64, 64, split=2),
    Tiling(64, 64, stream_k=True),
    Tiling(64, 64, ping_pong=True),
    Tiling(64, 64, 2),
    Tiling(64, 64, 1, 2),
    Tiling(128, 64),
]


OFF = st.tuples(st.integers(0, 7), st.integers(0, 7))


@examples(16, quick=1)
@given(
    m=st.integers(1, 200),
    n=st.integers(1, 200),
    k=st.integers(1, 300),
    batch=st.integers(1, 2),
    tiling=st.sampled_from(TILINGS),
    a_by_columns=st.booleans(),
    b_by_columns=st.booleans(),
    is_plain=st.booleans(),
    a_off=st.one_of(st.just((0, 0)), OFF),
    b_off=st.one_of(st.just((0, 0)), OFF),
    apart=st.integers(0, 9),
)
def test_any_product(
    m: int, n: int, k: int, batch: int, tiling: Tiling, a_by_columns: bool, b_by_columns: bool,
    is_plain: bool, a_off: tuple[int, int], b_off: tuple[int, int], apart: int,
) -> None:  # fmt: skip
    k = max(k, BLOCK_K * (tiling.split - 1) + 1)
    if tiling.tiles > 1 or tiling.ping_pong:  # what is realigned is not shared, nor taken in turn
        a_off, b_off, apart = (0, 0), (0, 0), 8 * apart
    case = Case(
        m, n, k, batch, a_by_columns=a_by_columns, b_by_columns=b_by_columns, a_off=a_off,
        b_off=b_off, apart=apart,
    )  # fmt: skip
    if is_plain:  # bulk copies can store it
        case = replace(case, m=-(-m // 8) * 8, n=-(-n // 8) * 8)
    held = Held(case)
    held.check(hopper.plan(held.product, UNITS, unaligned(tiling, held.product)))


@examples(8, quick=1)
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
    view = thin.view_of(held.product)
    assume(view is not None)
    assert view is not None
    held.check(thin.plan(held.product, view, H200))


FAULTS: list[tuple[str, str, type[CheckError], str]] = [
    (
        "mbarrier_wait(full_at + 8 * stage, parity);",
        "",
        UninitializedReadError,
        "matrix B in shared memory of which nobody wrote",
    ),
    (
        "wgmma_wait_group<1>();",
        "",
        RaceError,
        "by a bulk copy with no barrier after the read of a wgmma",
    ),
    (
        "fence_proxy_async();\n        __syncwarp();",
        "__syncwarp();",
        RaceError,
        r"no proxy fence \(fence.proxy.async\) after the write",
    ),
    (
        "next ^= 1;\n        if (lane == 0) tma_store_wait_group_read<1>();",
        "",
        RaceError,
        "after the read of a bulk copy",
    ),
    ("if (previous >= 0) release(previous);", "", BarrierError, "nobody completes"),
    ("a_extent * LINE_BYTES) +", "a_extent * LINE_BYTES + 16) +", BarrierError, "nobody completes"),
]


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        pytest.param(*fault, id=fault[0].split(";")[0].strip(), marks=[thorough] * (place % 3 > 0))
        for place, fault in enumerate(FAULTS)
    ],
)
def test_finds_faults(
    tmp_path: Path, old: str, new: str, error: type[CheckError], words: str
) -> None:
    held = Held(Case(64, 192, 1500))  # three boxes of D for a warp's two buffers
    plan = hopper.plan(held.product, UNITS, Tiling(64, 192))
    with pytest.raises(error, match=words):
        held.execute(broken(tmp_path, plan, old, new))


FENCE, WARP = "fence_proxy_async();", "__syncwarp();"
WHOLE_STEPS = "(K_MAJOR ? from.length - left : from.lines - top) / 64"
COPIES_WAIT = "cp_async_wait_group<RAW_STAGES - 2>();"
INDENT = "\n" + 20 * " "
LESS_INDENT = INDENT[:-4]
UNALIGNED_FAULTS: list[tuple[str, str, str, type[CheckError], str]] = [
    ("no fence", FENCE + INDENT + WARP, WARP, RaceError, "by a wgmma with no proxy fence"),
    (
        "a lane ahead of its warp",
        FENCE + INDENT + WARP,
        FENCE,
        RaceError,
        "writes stages.* with no barrier after the read of another thread",
    ),
    (
        "a lane ahead of the others' copies",
        COPIES_WAIT + LESS_INDENT + WARP,
        COPIES_WAIT,
        RaceError,
        "reads stages.* with no barrier after the write of another thread",
    ),
    (
        "copies not waited for",
        COPIES_WAIT,
        "",
        RaceError,
        "reads stages.* with no wait for the asynchronous copy",
    ),
    (
        "too few copies waited for",
        COPIES_WAIT,
        COPIES_WAIT.replace("2", "1"),
        RaceError,
        "reads stages.* with no wait for the asynchronous copy",
    ),
    (
        "a stage in use",
        "mbarrier_wait(empty_there + 8 * stage, parity ^ 1);" + INDENT + "of_a",
        "of_a",
        BarrierError,
        r"the mbarrier full\[\d\] by a parity, and nothing orders it after the end of the phase",
    ),
    (
        "never there",
        "if (thread % 32 == 0) mbarrier_arrive<false>(full_there + 8 * stage);",
        "",
        BarrierError,
        r"the mbarrier empty\[0\] .* nobody completes: 1 of 1",
    ),
    (
        "ahead of the first line",
        "bool is_ahead = ",
        "bool is_ahead = false && ",
        MemoryAccessError,
        "reads 16 bytes of global memory",
    ),
    (
        "behind the last line",
        "count && !from.has(piece_at)",
        "false",
        MemoryAccessError,
        "reads 16 bytes of global memory",
    ),
    (
        "lines that there are not",
        "32 * i >= lines",
        "false",
        MemoryAccessError,
        "reads 16 bytes of global memory",
    ),
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        pytest.param(*fault, id=name, marks=[thorough] * (place % 3 > 0))
        for place, (name, *fault) in enumerate(UNALIGNED_FAULTS)
    ],
)
def test_finds_faults_of_what_is_realigned(
    tmp_path: Path, old: str, new: str, error: type[CheckError], words: str
) -> None:
    held = Held(Case(40, 64, 600, a_off=(1, 0), b_off=(0, 3)))
    plan = hopper.plan(held.product, UNITS, Tiling(64, 64, a_unaligned=True, b_unaligned=True))
    with pytest.raises(error, match=words):
        held.execute(broken(tmp_path, plan, old, new))


EARLY = "by a wgmma with no barrier after the write of a bulk copy"


@thorough
@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("4 * LOADERS + HAS_TMA", "4 * LOADERS", RaceError, EARLY),
        ("(B_UNALIGNED ? 0 : B_BYTES)", "0", RaceError, EARLY),
        ("A_UNALIGNED ? 0 : a_extent", "a_extent", BarrierError, "nobody completes"),
    ],
    ids=["its arrival", "its bytes", "the other's bytes"],
)
def test_finds_faults_where_one_of_two_is_realigned(
    tmp_path: Path, old: str, new: str, error: type[CheckError], words: str
) -> None:
    """Who multiplies waits for the bulk copies of the one that is not."""
    held = Held(Case(64, 64, 200, a_off=(1, 0)))
    plan = hopper.plan(held.product, UNITS, Tiling(64, 64, a_unaligned=True))
    with pytest.raises(error, match=words):
        held.execute(broken(tmp_path, plan, old, new))


def test_finds_boxes_that_can_not_be_prefetched(tmp_path: Path) -> None:
    held = Held(Case(64, 64, 200))
    plan = hopper.plan(held.product, UNITS, Tiling(64, 64))
    assert plan.steps[0].launch.args[10]  # k-steps
    with pytest.raises(
        MemoryAccessError, match="box that begins at column 1 of its array, 2 bytes"
    ):
        held.execute(
            broken(
                tmp_path,
                plan,
                "tma_prefetch_l2(from.map, x, y",
                "tma_prefetch_l2(from.map, x + 1, y",
            )
        )


@pytest.mark.parametrize("out_dtype", ["bfloat16", pytest.param("float32", marks=thorough)])
def test_finds_rows_stored_too_early(tmp_path: Path, out_dtype: str) -> None:
    """Before the other lanes of the warp have put them together."""
    held = Held(Case(64, 100, 64, d_gap=1, out_dtype=out_dtype))
    plan = hopper.plan(held.product, UNITS, Tiling(64, 128))
    floats = str(out_dtype == "float32").lower()
    ahead = f"stage_rows<COLUMNS, {floats}>(sum[i], part, buffer, lane, out.alpha);"
    with pytest.raises(RaceError, match="with no barrier after the write of another thread"):
        held.execute(broken(tmp_path, plan, f"{ahead}\n            {WARP}", ahead))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_broken", [False, True], ids=["as it is", "broken"])
@pytest.mark.parametrize(
    ("by_columns", "old", "new"),
    [
        (False, "32 * turn + present() >= lines", "false"),
        pytest.param(False, WHOLE_STEPS, WHOLE_STEPS + " + 1", marks=thorough),
        pytest.param(True, "min(left, 8)", "8", marks=thorough),
        (True, WHOLE_STEPS, WHOLE_STEPS + " + 1"),
    ],
    ids=["lines", "whole lines", "elements", "whole elements"],
)
def test_the_next_matrix_does_not_spread(
    tmp_path: Path, by_columns: bool, old: str, new: str, is_broken: bool
) -> None:
    """Behind the end of k are the next one's lines, or the next line's elements."""
    held = Held(Case(64, 64, 70, batch=3, one_a=True, b_by_columns=by_columns, b_off=(1, 0)))
    b = held.matrices[1]
    b.seen(b.host[1])[1:] = NAN["bfloat16"]
    held.arrays[1] = held.device.array(b.host)
    held.at[1] = held.arrays[1].pointer + b.item * b.place
    # The third one is only memory, which may be read.
    asked = held.product._replace(batch=2)
    plan = hopper.plan(asked, UNITS, Tiling(64, 64, b_unaligned=True))
    if is_broken:
        plan = broken(tmp_path, plan, old, new)
    held.execute(plan)
    d = held.matrices[3]
    first, second, _ = from_bits(d.seen(held.arrays[3].to_numpy()[1]), "bfloat16")
    assert np.isnan(first).any() == is_broken
    assert np.isnan(second).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("case", "grain"),
    [
        # Lines, or whole matrices, of fewer than 16 bytes: several begin within the first ones.
        (Case(5, 3, 3), 1),
        (Case(5, 6, 70, batch=2, one_a=True, one_b=True, a_off=(1, 3), b_off=(1, 3)), 8),
        pytest.param(Case(5, 6, 1, batch=3), 1, marks=thorough),
    ],
    ids=["short lines", "one matrix", "small matrices"],
)
def test_nothing_is_read_ahead_of_the_first_element(case: Case, grain: int) -> None:
    """By no line that begins less than 16 bytes behind it: what is ahead may be another's."""
    held = Held(case, grain)
    held.check(hopper.plan(held.product, UNITS, unaligned(Tiling(64, 64), held.product)))


def test_one_line_for_all() -> None:
    held = Held(Case(70, 24, 100, a_off=(0, 3)))
    one = held.product._replace(a=held.product.a._replace(row_stride=0))
    assert "one line for all" in hopper.objection(one)
    held.execute(plan_on(one, Chip("H200", UNITS)))  # it is copied before
    bits = (x.seen(x.host[1])[0] for x in held.matrices[:2])
    a, b = (from_bits(x, "bfloat16") for x in bits)
    d = held.matrices[3].seen(held.arrays[3].to_numpy()[1])[0]
    got = from_bits(d, "bfloat16")
    assert_right(got[:1], a[:1], b, "bfloat16", 1.0, 0.0, 0, "bfloat16")
    assert (got == got[:1]).all()
