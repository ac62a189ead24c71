"""Grouped products by each of their kernels: right, whatever the groups, and nothing else written.

On a GPU the same tests run there, those of the Hopper kernel where it is a Hopper GPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from grouped_cases import Case, Held
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_reference import assert_right
from reference import examples, is_thorough, some, thorough
from test_thin import from_bits

import tilewise
from tilewise.devices import Device
from tilewise.epilogue import trace
from tilewise.gemm.chip import H200, known
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.families.mma.tiles import SHALLOW as MMA
from tilewise.gemm.families.mma.tiles import Tiles as MmaTiles
from tilewise.gemm.grouped import general, hopper, mma, model
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.grouped.tiles import FEW_GROUPS, MOST_GROUPS, Tiles
from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Operand
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel
from tilewise.precision import HALVES

pytestmark = pytest.mark.usefixtures("no_machine_code")

UNITS = 6  # multiprocessors: so few that blocks compute several tiles
# Empty groups ahead, between and behind; of one row; of a whole tile; of more than one.
SIZES = (0, 5, 0, 0, 70, 1, 64, 130, 0)


Choice = Tiles | MmaTiles | None


def plan_by(tiles: Choice, product: Grouped) -> Plan:
    """By the Hopper kernel, by that of mma.sync, or with None by the general one."""
    if isinstance(tiles, MmaTiles):
        return mma.plan(product, tiles, UNITS, overlap=True)
    return general.plan(product, UNITS) if tiles is None else hopper.plan(product, tiles, UNITS)


ROWS: list[tuple[Case, Choice]] = [
    (Case(SIZES), Tiles(64, 64)),
    (Case(SIZES, b_by_columns=True, poisoned=4), Tiles(128, 64)),
    (Case(SIZES, (200, 72), b_by_columns=True, poisoned=1), Tiles(64, 32, swapped=True)),
    (Case(SIZES, (200, 200), poisoned=6, gap=8), Tiles(128, 16, swapped=True)),
    (Case(SIZES, (264, 136), offset_dtype="int64", poisoned=7),
     Tiles(64, 64, 2, 1, ping_pong=True)),
    (Case(SIZES, (264, 136), b_by_columns=True), Tiles(128, 64, 1, 2)),
    (Case(SIZES, (264, 136), b_by_columns=True, poisoned=4), Tiles(64, 64, 2, 1, turning=True)),
    (Case(SIZES, (72, 100), poisoned=5, dtype="float16", out_dtype="float16", gap=3), None),
    (Case(SIZES, (72, 104), poisoned=4), MMA[5]),
]  # fmt: skip
MORE_ROWS: list[tuple[Case, Choice]] = [
    (Case(SIZES, (304, 72), out_dtype="float32", b_by_columns=True), Tiles(64, 48, swapped=True)),
    (Case(SIZES, (300, 64), out_dtype="float32", b_by_columns=True, poisoned=4),
     Tiles(128, 128, ping_pong=True)),
    (Case(SIZES, (264, 134), b_by_columns=True, gap=2), Tiles(64, 64)),
    (Case(SIZES, (72, 72), a_by_columns=True, gap=2, poisoned=6), None),
    # D's rows are not 16-byte aligned.
    (Case(SIZES, (132, 136), b_by_columns=True, poisoned=8), Tiles(64, 64)),
    (Case(SIZES, (133, 136), b_by_columns=True), Tiles(64, 64, swapped=True)),
    (Case(SIZES, (520, 136), poisoned=4), Tiles(128, 256)),
    (Case(SIZES, (520, 136), poisoned=4), Tiles(256, 128, 1, 2)),
    (Case(SIZES, (260, 136), b_by_columns=True), Tiles(64, 160, 2, 1, swapped=True)),
    (Case(SIZES, (260, 136), b_by_columns=True), Tiles(128, 96, swapped=True, ping_pong=True)),
    (Case((3,), (64, 64)), Tiles(64, 64)),
    (Case((70, 2180, 3), (72, 8), poisoned=2), Tiles(64, 32, 2, 1, turning=True)),
    (Case((2048, 64, 200), (72, 8)), Tiles(64, 32, 2, 1, turning=True)),
    (Case(SIZES, (520, 136), poisoned=4), Tiles(128, 128, 2, 1, ping_pong=True, turning=True)),
    (Case((0, 0, 9), (64, 8)), Tiles(192, 64)),
    (Case((1,) * 40, (72, 72), poisoned=20), Tiles(64, 16, swapped=True)),
    (Case((0, 2) * 150, (72, 8), poisoned=201), Tiles(64, 64)),  # more than FEW_GROUPS
    (Case(SIZES, (72, 33), dtype="float32", out_dtype="float32", poisoned=4), None),
    (Case((0, 0), (72, 33), dtype="float16", out_dtype="float32"), None),
    (Case(SIZES, (133, 77), gap=1, poisoned=4), MMA[6]),
    (Case(SIZES, (100, 76), a_by_columns=True, b_by_columns=True, poisoned=6), MMA[7]),
    (Case(SIZES, (264, 72), dtype="float16", out_dtype="float32", poisoned=7), MMA[2]),
    (Case(SIZES, (136, 70), offset_dtype="int64", d_by_columns=True), MMA[8]),
]  # fmt: skip
OF_K: list[tuple[Case, Choice]] = [
    (Case(SIZES, of="k", a_by_columns=True, poisoned=4), Tiles(64, 64)),
    (Case(SIZES, (200, 136), of="k", a_by_columns=True, poisoned=1), Tiles(128, 64)),
    (Case((8, 0, 72, 48), (72, 200), of="k", b_by_columns=True, poisoned=2), None),
    (Case(SIZES, (100, 72), "k", "float16", "float32", gap=1, poisoned=5), None),
    (Case(SIZES, (100, 72), of="k", a_by_columns=True, poisoned=5), MMA[5]),
]
MORE_OF_K: list[tuple[Case, Choice]] = [
    (Case(SIZES, (136, 264), of="k", a_by_columns=True, poisoned=7),
     Tiles(64, 64, 1, 2, ping_pong=True)),
    (Case(SIZES, (136, 264), of="k", a_by_columns=True, poisoned=5), Tiles(64, 96, swapped=True)),
    (Case(SIZES, (264, 136), of="k", a_by_columns=True, poisoned=5), Tiles(128, 64, 2, 1)),
    (Case((0, 200), (136, 136), of="k", d_by_columns=True, a_by_columns=True, poisoned=0),
     Tiles(64, 64, swapped=True)),
    (Case((130, 1, 0), (136, 72), "k", "float16", "float32", a_by_columns=True, poisoned=1),
     Tiles(64, 32)),
    (Case((0, 0, 8), (72, 72), of="k", a_by_columns=True), Tiles(64, 64)),
    (Case(SIZES, (100, 70), of="k", b_by_columns=True, gap=1, poisoned=5), MMA[8]),
    (Case(SIZES, (133, 71), of="k", a_by_columns=True, poisoned=4), MMA[9]),
]  # fmt: skip


def named(cases: list[tuple[Case, Choice]]) -> list[str]:
    return [f"{case.of} {case.others} {tiles}" for case, tiles in cases]


def skip_where_it_does_not_run(tiles: Choice, device: Device) -> None:
    if tiles is not None and not device.arch.startswith("sm_9"):
        pytest.skip("the Hopper kernel, and launches that overlap, need compute capability 9.0")


def check(case: Case, tiles: Choice, device: Device) -> None:
    skip_where_it_does_not_run(tiles, device)
    held = Held(case, device)
    held.check(plan_by(tiles, held.product))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("case", "tiles"), ROWS + OF_K, ids=named(ROWS + OF_K))
def test_each_group_is_right_and_no_nan_reaches_another(
    case: Case, tiles: Choice, device: Device
) -> None:
    check(case, tiles, device)


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("case", "tiles"), MORE_ROWS + MORE_OF_K, ids=named(MORE_ROWS + MORE_OF_K))
def test_every_way_to_share_to_load_and_to_store(case: Case, tiles: Choice, device: Device) -> None:
    check(case, tiles, device)


@thorough
def test_many_tiles_of_empty_groups_keep_the_warps_together(device: Device) -> None:
    tiles = Tiles(64, 64, ping_pong=True)
    # On a GPU, enough tiles that a warp which runs ahead of its warpgroup's others loses them.
    sizes, others = ((0,) * 12, (776, 776)) if device.name == "gpu" else ((0, 0), (136, 136))
    check(Case((*sizes, 40, *sizes), others, of="k", a_by_columns=True), tiles, device)


TILES = st.sampled_from(
    [
        Tiles(64, 32), Tiles(128, 64), Tiles(64, 64, ping_pong=True), Tiles(64, 64, 1, 2),
        Tiles(64, 32, swapped=True), Tiles(128, 32, 2, 1, swapped=True),
        Tiles(64, 32, 2, 1, turning=True),
    ]
)  # fmt: skip


@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 31, 63, 64, 65, 100]), min_size=1, max_size=12),
    n=st.integers(1, 30).map(lambda x: 8 * x),
    k=st.integers(1, 30).map(lambda x: 8 * x),
    tiles=TILES,
    by_columns=st.booleans(),
    poisoned=st.integers(-1, 11),
)
@examples(24, quick=1)
def test_any_sizes_of_groups(
    device: Device, sizes: list[int], n: int, k: int, tiles: Tiles, by_columns: bool, poisoned: int
) -> None:
    if not sum(sizes):
        sizes = [*sizes, 1]
    case = Case(
        tuple(sizes), (n, k), b_by_columns=by_columns, poisoned=min(poisoned, len(sizes) - 1)
    )
    check(case, tiles, device)


@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 31, 63, 64, 65, 100]), min_size=1, max_size=6),
    m=st.integers(1, 20).map(lambda x: 8 * x),
    n=st.integers(1, 20).map(lambda x: 8 * x),
    tiles=TILES.filter(lambda x: not x.turning),
    poisoned=st.integers(-1, 5),
)
@examples(16, quick=1)
def test_any_sizes_of_groups_of_k(
    device: Device, sizes: list[int], m: int, n: int, tiles: Tiles, poisoned: int
) -> None:
    if not sum(sizes):
        sizes = [*sizes, 1]
    case = Case(
        tuple(sizes), (m, n), of="k", a_by_columns=True, poisoned=min(poisoned, len(sizes) - 1)
    )
    check(case, tiles, device)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "tiles", [None, MMA[6], Tiles(64, 64), Tiles(64, 32, swapped=True)], ids=str
)
@pytest.mark.parametrize(
    "ends", [[20, 10, 100, 64], [-5, 7, 2**31 - 1, 3], [50, 60, 60, 61], [0, 0, 0, 0]], ids=str
)
def test_offsets_out_of_order_or_of_bounds_are_clamped(
    ends: list[int], tiles: Choice, device: Device
) -> None:
    skip_where_it_does_not_run(tiles, device)
    case = Case((16, 16, 16, 16), (72, 72))
    held = Held(case, device, ends)
    held.ends, end = [], 0
    for each in ends:
        end = max(end, min(max(each, 0), case.total))
        held.ends.append(end)
    got = from_bits(held.execute(plan_by(tiles, held.product)), "bfloat16")
    for at, a, b in held.parts():
        assert_right(got[at], a, b, "bfloat16", out_dtype="bfloat16")
    assert np.isnan(got[end:]).all()  # rows in no group are not written


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("of", "tiles"),
    [("m", Tiles(64, 64, ping_pong=True)), ("m", Tiles(128, 32, swapped=True)),
     ("k", Tiles(64, 64)), ("m", None), ("k", None), ("m", MMA[6]), ("k", MMA[6])],
    ids=str,
)  # fmt: skip
def test_no_two_blocks_write_one_element(of: str, tiles: Choice, emulator: Device) -> None:
    others = (136, 72)
    held = Held(Case((3, 0, 70, 64), others, of, a_by_columns=of == "k"), emulator)
    plan = plan_by(tiles, held.product)
    (step,) = plan.steps
    held.check(
        replace(plan, steps=(step._replace(launch=replace(step.launch, global_races=True)),))
    )


def epilogue_of(function: Any, inputs: dict[str, Any], results: tuple[Strided, ...]) -> Epilogue:
    traced = trace(function, tuple(inputs))
    return Epilogue(traced, tuple(inputs[x] for x in traced.operands), results)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "tiles", [Tiles(64, 64), Tiles(128, 32, swapped=True), MMA[5], None], ids=str
)
def test_epilogue_of_rows_of_columns_and_of_each_group(tiles: Choice, device: Device) -> None:
    skip_where_it_does_not_run(tiles, device)
    case = Case((5, 0, 70, 1), (72, 72), out_dtype="float32")
    held = Held(case, device)
    m, n, _ = case.mnk
    random = np.random.default_rng(3)
    bias, scale, shift = (
        random.standard_normal(shape).astype(np.float32) for shape in ((4, n), (m, 1), (n,))
    )
    arrays = [device.array(x) for x in (bias, scale, shift)]
    pre = device.array(np.full((m, n), np.nan, np.float32))
    epilogue = epilogue_of(
        lambda acc, bias, scale, shift, factor: (
            tilewise.relu(acc + bias) * scale + shift * factor, acc,
        ),
        {
            "bias": Strided("float32", 0, 1, n), "scale": Strided("float32", 1, 0),
            "shift": Strided("float32", 0, 1), "factor": 3.0,
        },
        (Strided("float32", n, 1),),
    )  # fmt: skip
    product = held.with_epilogue(epilogue, *(x.pointer for x in (*arrays, pre)))
    got = held.execute(plan_by(tiles, product))
    acc = pre.to_numpy()
    for i, (at, a, b) in enumerate(held.parts()):
        assert_right(acc[at], a, b, "bfloat16")
        value = np.maximum(acc[at] + bias[i], 0) * scale[at] + shift * 3
        # Each operation is rounded at most once, and the kernel may fuse two.
        size = (abs(acc[at]) + abs(bias[i])) * abs(scale[at]) + abs(shift) * 3
        assert (abs(got[at] - value) <= 8 * 2.0**-24 * size).all()


def test_hopper_kernel_says_why_it_does_not_take_a_product() -> None:
    product = Grouped(
        "m", 100, 64, 64, 4, "bfloat16", "bfloat16", "int32",
        Operand(64, 1), Operand(64, 1, 4096), Operand(64, 1),
    )  # fmt: skip
    assert hopper.objection(product) == ""
    for changed, why in (
        ({"dtype": "float32", "out_dtype": "float32"}, "not 16-bit"),
        ({"groups": MOST_GROUPS + 1}, "1,025 groups"),
        ({"a": Operand(65, 1)}, "A has a stride of 130 bytes"),
        ({"b": Operand(64, 1, 4097)}, "B has a stride of 8,194 bytes"),
        ({"b": Operand(64, 1, 4096, 2)}, "does not begin"),
        ({"a": Operand(1, 104)}, "A is contiguous along the dimension that is in groups"),
        ({"d": Operand(1, 100)}, "along the dimension that is in groups"),
        ({"d": Operand(128, 2)}, "neither dimension of D"),
    ):
        assert why in hopper.objection(product._replace(**changed))
        plan = plan_on(product._replace(**changed), H200)
        others = "the grouped kernel by mma.sync", "the general"
        assert plan.chosen.startswith(others), why
    assert plan_on(product, H200).chosen.startswith("the grouped Hopper")
    assert plan_on(product, known("a100")).chosen.startswith("the grouped kernel by mma.sync")
    strided = product._replace(a=Operand(256, 2))
    assert plan_on(strided, known("a100")).chosen.startswith("the general")
    many = product._replace(groups=2000)
    assert plan_on(many, known("a100")).chosen.startswith("the general")
    with pytest.raises(ValueError, match="copied by TMA by 32 columns"):
        hopper.plan(product, Tiles(64, 16), 4)


def test_groups_of_few_rows_get_narrow_tiles() -> None:
    """Whether rows are computed in vain decides, not only the speed of a tile."""

    def chosen(rows: int, groups: int) -> Tiles:
        product = Grouped(
            "m", rows, 4096, 4096, groups, "bfloat16", "bfloat16", "int32",
            Operand(4096, 1), Operand(1, 4096, 4096**2), Operand(4096, 1),
        )  # fmt: skip
        return model.ranked(product, H200)[0].tiles

    few, many = chosen(64, 64), chosen(64 * 2048, 64)
    assert few.swapped
    assert few.block_n == 16
    assert many.block_m * many.block_n >= 128 * 128


def test_batches_of_changing_sizes_make_few_choices() -> None:
    def product(rows: int) -> Grouped:
        return Grouped(
            "m", rows, 1024, 1024, 16, "bfloat16", "bfloat16", "int32",
            Operand(1024, 1), Operand(1, 1024, 1024**2), Operand(1024, 1),
        )  # fmt: skip

    before = model.ranked.cache_info().misses
    found = {model.best(product(rows), H200) for rows in range(3000, 4000)}
    assert model.ranked.cache_info().misses - before <= 3
    assert len(found) <= 3
    assert model.best(product(0), H200) is None
    assert model.best(product(1), H200) is not None


@pytest.mark.parametrize("capability", [80, pytest.param(90, marks=thorough)])
@pytest.mark.parametrize(
    "tiles",
    [
        *(pytest.param(x, marks=thorough) for x in MMA[:4]),
        MMA[4],
        *(pytest.param(x, marks=thorough) for x in MMA[5:]),
    ],
)
def test_mma_compiles_without_spills(tiles: MmaTiles, capability: int) -> None:
    for of, x in some([("m", Operand(4096, 1)), ("k", Operand(1, 4096))], 1):
        product = Grouped(
            of, 4096, 4096, 4096, 64, "bfloat16", "bfloat16", "int32", x,
            Operand(4096, 1, 4096**2), Operand(4096, 1, 4096**2),
        )  # fmt: skip
        (step,) = mma.plan(product, tiles, 132, capability >= 90).steps
        arch = f"sm_{capability}" + "a" * (capability == 90)
        used = step.kernel.compile(arch, lines=False).resources
        assert used.spill_bytes == 0
        assert -(-used.registers // 8) * 8 * tiles.threads * tiles.residents <= 65536


CAPABILITIES = st.sampled_from([80, 86, 89, 90, 100, 120])


@cache
def kernels_by_mma(capability: int, dtype: str) -> list[Kernel]:
    """Every kernel that a plan can ask for there."""
    return list(mma.GroupedMma().kernels(replace(H200, capability=capability), dtype))


@thorough
@settings(examples(60, quick=2), derandomize=not is_thorough())
@given(capability=CAPABILITIES, dtype=st.sampled_from(HALVES), data=st.data())
def test_no_kernel_by_mma_spills(capability: int, dtype: str, data: st.DataObject) -> None:
    """There are thousands for each GPU: with ``--thorough`` others are drawn in each run."""
    made = data.draw(st.sampled_from(kernels_by_mma(capability, dtype)))
    arch = f"sm_{capability}" + "a" * (capability == 90)
    used = made.compile(arch, lines=False).resources
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)
    tiles = MmaTiles(*(int(made.defines[macro]) for macro in MMA[0].macros))
    assert -(-used.registers // 8) * 8 * tiles.threads * tiles.residents <= 65536


@thorough
@pytest.mark.parametrize("tiles", model.candidates(), ids=str)
@pytest.mark.parametrize("of", ["m", "k"])
def test_compiles_without_spills(tiles: Tiles, of: str) -> None:
    x = Operand(4096, 1) if of == "m" else Operand(1, 4096)
    b = Operand(1, 4096, 4096**2) if of == "m" else Operand(4096, 1)
    for groups in (FEW_GROUPS, MOST_GROUPS):
        product = Grouped(
            of, 4096, 4096, 4096, groups, "bfloat16", "bfloat16", "int32", x, b,
            Operand(4096, 1, 4096**2),
        )  # fmt: skip
        try:
            plan = hopper.plan(product, tiles, 132)
        except ValueError as error:
            assert "32 columns" in str(error) or "2 x 1 turn" in str(error)  # noqa: PT017
            continue
        (step,) = plan.steps
        used = step.kernel.compile("sm_90a", lines=False).resources
        assert used.spill_bytes == used.stack_bytes == 0
        assert used.shared_bytes + step.launch.shared <= 232448
