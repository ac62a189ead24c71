"""16-bit products by ``mma.sync``: the planner's choices, and every one of them right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import disassembled_by, examples, held, is_thorough, thorough

from tilewise.compiler import Compiled
from tilewise.devices import Device
from tilewise.devices.emulator.copies.tensor_maps import encode
from tilewise.devices.gpu import Gpu
from tilewise.devices.limits import RESERVED_SHARED
from tilewise.gemm.chip import H200, KNOWN, OLDEST, Chip, chip_by
from tilewise.gemm.families.mma import kernel
from tilewise.gemm.families.mma.family import Mma
from tilewise.gemm.families.mma.kernel import COPIED, PACKED, REALIGNED, WIDTHS, Matrix, Way
from tilewise.gemm.families.mma.model import COSTS, SHARES, Table, priced, table_of
from tilewise.gemm.families.mma.tiles import DEEP, TILES, Tiles
from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport
from tilewise.numbers import check
from tilewise.precision import HALVES, dtype_of

pytestmark = pytest.mark.usefixtures("no_machine_code")

Array = npt.NDArray[Any]
MARK = 7.0  # where nobody may write
A100 = Chip("NVIDIA A100-SXM4-80GB", 108, 80, 1.41e9, 1.8e12, 40 << 20)
FEW = Chip("few", 4, 80)
ALIGNED = Matrix(True, 0, WIDTHS[0])
HOW = (COPIED, REALIGNED, PACKED)


def product(m: int, n: int, k: int, dtype: str = "bfloat16", **changes: Any) -> Product:
    """D = A B of matrices whose rows follow one another."""
    plain = Product(
        m, n, k, 1, dtype, dtype, 1.0, 0.0, Operand(max(k, 1), 1), Operand(n, 1), None,
        Operand(n, 1),
    )  # fmt: skip
    return plain._replace(**changes)


def names(plan: Plan) -> list[str]:
    return [step.kernel.name for step in plan.steps]


def test_a_large_product_takes_one_launch() -> None:
    found = plan_on(product(4096, 4096, 4096), A100)
    assert names(found) == ["gemm_mma"]
    assert found.workspace == 0
    assert "by mma.sync" in found.chosen
    assert not any(step.launch.overlap for step in found.steps)


def test_a_deep_product_has_its_k_divided() -> None:
    found = plan_on(product(256, 256, 65536), A100)
    assert names(found) == ["gemm_mma", "splitk_sum"]
    step = found.steps[0].launch
    assert step.grid[0] * step.grid[1] >= 0.9 * A100.multiprocessors
    assert found.workspace == step.grid[1] * 256 * 256 * 4


def test_what_has_no_contiguous_dimension_is_repacked() -> None:
    found = plan_on(product(300, 300, 300, a=Operand(600, 2)), A100)
    assert names(found) == ["pack", "gemm_mma"]


def test_columns_of_d_swap_a_and_b() -> None:
    found = plan_on(product(512, 4096, 4096, d=Operand(1, 512)), A100)
    assert "swapped" in found.chosen


def test_on_hopper_its_own_kernel_goes_first() -> None:
    assert Mma().objection(product(512, 512, 512), H200) == "the Hopper kernel takes it"
    assert names(plan_on(product(4096, 4096, 4096), H200)) == ["hopper"]


def test_older_gpus_and_other_dtypes_are_none_of_its() -> None:
    assert "8.0" in Mma().objection(product(64, 64, 64), None)
    assert "float32" in Mma().objection(product(64, 64, 64, "float32"), A100)


GPUS = [
    *(chip for chip in KNOWN.values() if not chip.is_hopper and chip.capability >= OLDEST),
    chip_by("NVIDIA A10", 72, 86, 1.695e9, 0.6e12, 6 << 20),
    chip_by("NVIDIA RTX A4000", 48, 86, 1.56e9, 0.448e12, 4 << 20),
    chip_by("NVIDIA GeForce RTX 3060", 28, 86, 1.777e9, 0.36e12, 3 << 20),
    chip_by("NVIDIA GeForce RTX 4060", 24, 89, 2.46e9, 0.272e12, 24 << 20),
    chip_by("NVIDIA GeForce RTX 5070", 48, 120, 2.512e9, 0.672e12, 48 << 20),
    replace(H200, capability=80),
]


@pytest.mark.parametrize("size", [6000, 8192, 12000, 16384])
@pytest.mark.parametrize("chip", GPUS, ids=lambda chip: chip.name)
def test_large_products_take_large_tiles(chip: Chip, size: int) -> None:
    """Small ones ask for more bytes of L2, where tensor cores are slow too."""
    found = Mma().best(product(size, size, size), chip)
    assert found is not None
    block_m, block_n, _ = map(int, found.choice["tiles"].split("x"))
    assert block_m * block_n >= 128 * 128


def test_an_h200_reaches_the_shares_that_were_measured_there() -> None:
    """Of its multiply-adds, where all multiprocessors are full, and the product is deep."""
    table = table_of(H200)
    asked = product(128 * 132, 128 * 132, 1 << 16)
    seconds = table.seconds(asked, np.array([1.0]), [(ALIGNED, ALIGNED)])[0, :, 0]
    peak = H200.multiply_adds("bfloat16") * H200.multiprocessors
    for tiles, each in zip(table.tiles, seconds, strict=True):
        reached = asked.m * asked.n * asked.k / peak / each
        assert reached == pytest.approx(SHARES[str(tiles)][1], rel=0.02)


def test_longer_stores_are_hidden_where_a_multiprocessor_holds_several_blocks() -> None:
    """Not those of its last blocks, nor those that are as long as the multiply-adds."""
    tables = [Table(A100, COSTS._replace(hidden=x)) for x in (0.0, 1.0)]
    several = np.array([
        [min(x.residents, A100.shared // (x.shared + RESERVED_SHARED)) > 1]
        for x in tables[0].tiles
    ])  # fmt: skip
    for size, k, pitch, hides in (
        (8192, 1024, 8193, True), (8192, 1024, 8192, False), (256, 1024, 257, False),
        (8192, 16, 8193, False),
    ):  # fmt: skip
        asked = product(size, size, k, d=Operand(pitch, 1))
        bare, hidden = (
            table.seconds(asked, np.array([1.0]), [(ALIGNED, ALIGNED)])[0] for table in tables
        )
        assert ((hidden < bare) == (several & hides)).all()
        assert (hidden <= bare).all()


def test_deep_tiles_are_for_few_rows_and_for_16_byte_copies() -> None:
    asked = product(16, 4096, 4096, b=Operand(1, 4096))
    found = priced(asked, A100)
    assert found.way(found.best())[0].tiles in DEEP
    narrow = product(16, 4096, 4092, a=Operand(4092, 1), b=Operand(1, 4092))
    ways = priced(narrow, A100)
    every = [ways.way(at)[0] for at in ways.ranked()]
    assert {x.tiles for x in every if COPIED not in (x.a, x.b)} & {*DEEP}
    assert not {x.tiles for x in every if COPIED in (x.a, x.b)} & {*DEEP}


def test_a_choice_is_found_again() -> None:
    asked = product(333, 555, 777)
    for found in list(Mma().offers(asked, A100))[::7]:
        again = Mma().offer(asked, A100, found.choice)
        assert again is not None
        assert again.choice == found.choice
    assert Mma().offer(asked, A100, {**found.choice, "tiles": "1x1x1"}) is None


@pytest.mark.parametrize(
    ("chip", "flops"),
    [
        (A100, 312e12),
        (Chip("NVIDIA GeForce RTX 4090", 128, 89, 2.52e9, 0.9e12, 72 << 20), 165e12),
        (Chip("NVIDIA GeForce RTX 3060", 28, 86, 1.78e9, 0.32e12, 3 << 20), 25.5e12),
    ],
    ids=lambda x: x.name if isinstance(x, Chip) else "",
)
def test_gpus_that_nobody_measured_are_expected_to_do_what_their_data_sheet_says(
    chip: Chip, flops: float
) -> None:
    """No product faster than the tensor cores and the memory, and a large one nearly as fast."""
    found = Mma().best(product(8192, 8192, 8192), chip)
    assert found is not None
    assert 1.0 < found.seconds / (2 * 8192**3 / flops) < 1.2
    for m, n, k in ((64, 64, 64), (1000, 1000, 1000), (128, 4096, 4096), (333, 8888, 77)):
        found = Mma().best(product(m, n, k), chip)
        assert found is not None
        least = max(2 * m * n * k / flops, 2 * (m * k + k * n + m * n) / chip.memory)
        assert least < found.seconds < 3 * least + 15e-6


SIZES = st.sampled_from([1, 2, 7, 8, 16, 17, 31, 33, 40, 64, 72, 130])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Product, dict[str, tuple[Array, Array]]]:
    """A product, and its matrices: the memory, and the part of it that they are."""
    dtype = draw(st.sampled_from(held(HALVES)))
    out = draw(st.sampled_from([dtype, dtype, "float32"]))
    m, n = draw(SIZES), draw(SIZES)
    k = draw(st.sampled_from([0, draw(SIZES), 130, 300]))
    batch = draw(st.sampled_from([1, 1, 2]))
    beta = draw(st.sampled_from([0.0, 0.5]))
    alpha = draw(st.sampled_from([1.0, -1.5, 0.0]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    operands: dict[str, Operand] = {}
    arrays: dict[str, tuple[Array, Array]] = {}
    for name, rows, columns in (("a", m, k), ("b", k, n), ("d", m, n)):
        by_columns = draw(st.booleans())
        pad, ahead = draw(st.sampled_from([0, 0, 1, 2, 4, 8])), draw(st.sampled_from([0, 0, 1, 2]))
        apart = draw(st.sampled_from([1, 1, 1, 1, 1, 3]))  # elements from one to the next
        lines, width = (columns, rows) if by_columns else (rows, columns)
        pitch = max(apart * width + pad, 1)
        of_type = dtype_of(out if name == "d" else dtype)
        flat = np.full(ahead + batch * max(lines, 1) * pitch, np.nan, of_type)
        strides = (apart, pitch) if by_columns else (pitch, apart)
        item = flat.itemsize
        view = np.lib.stride_tricks.as_strided(
            flat[ahead:], (batch, rows, columns),
            (max(lines, 1) * pitch * item, strides[0] * item, strides[1] * item),
        )  # fmt: skip
        if name == "d":
            flat[:] = MARK
        if name != "d" or beta != 0:
            view[...] = rng.standard_normal(view.shape)
        operands[name] = Operand(*strides, max(lines, 1) * pitch, ahead * item % 16)
        arrays[name] = flat, view
    c = operands["d"] if beta != 0 else None
    return (
        Product(m, n, k, batch, dtype, out, alpha, beta, operands["a"], operands["b"], c,
                operands["d"]),
        arrays,
    )  # fmt: skip


@examples(60, quick=1)  # nearly each has a kernel of its own to compile
@given(case=cases(), data=st.data())
def test_every_choice_is_right(
    device: Device, case: tuple[Product, dict[str, tuple[Array, Array]]], data: st.DataObject
) -> None:
    """The emulator finds what is read or written beyond the matrices."""
    asked, arrays = case
    assert kernel.objection(asked) == ""
    found = priced(asked, FEW)
    every = [found.way(at) for at in found.ranked()]
    small = [x for x in every if x[0].tiles.block_m * x[0].tiles.block_n <= 64 * 64]
    way, seconds, _ = data.draw(st.sampled_from(every if isinstance(device, Gpu) else small))
    parts = kernel.parts_of(asked, way)
    run(asked, arrays, kernel.plan(asked, way._replace(parts=parts), False, seconds), device)


@st.composite
def unaligned(draw: st.DrawFn) -> tuple[Tiles, Product, dict[str, tuple[Array, Array]]]:
    """Tiles, and a product of small whole numbers whose matrices begin anywhere, with any pitch."""
    tiles = draw(st.sampled_from([x for x in TILES if x.block_m * x.block_n <= 64 * 128]))
    m, n, k = (  # mostly such that a row ends with a tile, or shortly before or behind
        max(
            1,
            draw(st.sampled_from([1, 1, 2])) * tile
            - draw(st.sampled_from([0, -1, 0, 1, 9, tile - 2])),
        )
        for tile in (tiles.block_m, tiles.block_n, tiles.block_k)
    )
    batch = draw(st.sampled_from([1, 1, 2]))
    out = draw(st.sampled_from(["float16", "float32"]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    operands: dict[str, Operand] = {}
    arrays: dict[str, tuple[Array, Array]] = {}
    for name, rows, columns in (("a", m, k), ("b", k, n), ("d", m, n)):
        by_columns = name != "d" and draw(st.booleans())
        lines, width = (columns, rows) if by_columns else (rows, columns)
        ahead, pitch = draw(st.integers(0, 7)), width + draw(st.integers(0, 9))
        each = (lines - 1) * pitch + width + draw(st.integers(0, 9))  # from matrix to matrix
        of_type = dtype_of(out if name == "d" else "float16")
        size, item = ahead + (batch - 1) * each + (lines - 1) * pitch + width, of_type.itemsize
        flat = np.full(size, MARK if name == "d" else np.nan, of_type)
        strides = (1, pitch) if by_columns else (pitch, 1)
        view = np.lib.stride_tricks.as_strided(
            flat[ahead:], (batch, rows, columns), (each * item, *(x * item for x in strides))
        )
        if name != "d":
            view[...] = rng.integers(-9, 10, view.shape)
        operands[name] = Operand(*strides, each, ahead * item % 16)
        arrays[name] = flat, view
    asked = product(m, n, k, "float16", batch=batch, out_dtype=out, **operands)
    return tiles, asked, arrays


@examples(60, quick=1)
@given(case=unaligned(), reads=st.sampled_from([(x, y) for x in HOW for y in HOW]))
def test_rows_may_begin_anywhere(
    device: Device, case: tuple[Tiles, Product, dict[str, tuple[Array, Array]]],
    reads: tuple[str, str],
) -> None:  # fmt: skip
    """Not one element further, in D and in what is read: NaN lie around A and B."""
    tiles, asked, arrays = case
    way = Way(tiles, 1, *reads)
    plan = kernel.plan(asked, way, False, 0.0)
    defines = plan.steps[-1].kernel.defines
    assert defines["A_UNALIGNED"] == (reads[0] == REALIGNED)
    assert defines["D_UNALIGNED"] == (not kernel.stores_pieces(asked))
    for report in run(asked, arrays, plan, device, reports=device.name == "emulator"):
        assert not report.findings


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_k_major", [True, False])
@pytest.mark.parametrize("ahead", [1, 7])
def test_nothing_before_a_matrix_is_read(device: Device, is_k_major: bool, ahead: int) -> None:
    """Before A and B is a gap between rows of an array, which the emulator lets nobody read."""
    m, n, k = 20, 19, 70
    rng = np.random.default_rng(ahead)
    a, b = rng.integers(-9, 10, (m, k)), rng.integers(-9, 10, (k, n))
    held, addresses, operands = [], [], []
    for x in (a, b):
        kept = np.ascontiguousarray(x if is_k_major == (x is a) else x.T).astype(np.float16)
        pitch = 16 * (kept.size // 16 + 2) + ahead
        whole = np.zeros(pitch + kept.size, np.float16)
        rows = np.lib.stride_tricks.as_strided(whole, (2, kept.size), (2 * pitch, 2))
        rows[1] = kept.ravel()
        held.append(device.array(rows))
        addresses.append(held[-1].pointer + 2 * pitch)
        by_rows = Operand(kept.shape[1], 1, 0, 2 * ahead)
        operands.append(by_rows if is_k_major == (x is a) else by_rows.transposed)
    asked = product(m, n, k, "float16", a=operands[0], b=operands[1])
    d = device.array(np.full((m, n), MARK, np.float16))
    plan = kernel.plan(asked, Way(TILES[6], 1, REALIGNED, REALIGNED), False, 0.0)
    execute(plan, device, 0, (*addresses, 0, d.pointer, 0))
    assert np.array_equal(d.to_numpy(), (a @ b).astype(np.float16))


def every_tiles_and_layout() -> Iterator[Any]:
    """Every twelfth one of the tiles but the largest; the others are thorough.

    Neither A nor B is K-major.
    """
    layouts = ((False, False), (False, True), (True, False), (True, True))
    for at, tiles in enumerate(TILES):
        for which, layout in enumerate(layouts):
            name = "-".join((str(tiles), *("KM"[not is_k_major] for is_k_major in layout)))
            is_quick = at % 12 == 4 and which == 0
            marks = () if is_quick else (thorough,)
            yield pytest.param(tiles, *layout, id=name, marks=marks)


@pytest.mark.parametrize(("tiles", "a_is_k_major", "b_is_k_major"), list(every_tiles_and_layout()))
def test_tiles_take_any_layout(
    device: Device, tiles: Tiles, a_is_k_major: bool, b_is_k_major: bool
) -> None:
    """With k in parts and undivided, and C; no lanes that read at once read from one bank."""
    rng = np.random.default_rng(0)
    m, n, k = tiles.block_m, 256, 200
    arrays, operands = {}, {}
    sides = {
        "a": (m, k, a_is_k_major),
        "b": (k, n, not b_is_k_major),
        "c": (m, n, True),
        "d": (m, n, True),
    }
    for name, (rows, columns, by_rows) in sides.items():
        view = rng.standard_normal((1, rows, columns)).astype(np.float16)
        flat = np.ascontiguousarray(view if by_rows else view.transpose(0, 2, 1)).ravel()
        kept = flat.reshape(1, rows, columns) if by_rows else flat.reshape(1, columns, rows)
        arrays[name] = flat, kept if by_rows else kept.transpose(0, 2, 1)
        operands[name] = Operand(columns, 1) if by_rows else Operand(1, rows)
    asked = product(m, n, k, "float16", alpha=1.5, beta=0.5, **operands)
    arrays["d"][0][...] = arrays["c"][0]  # what is checked adds C as it was in D
    for parts in (1, 2) if is_thorough() else (2,):
        plan = kernel.plan(asked, Way(tiles, parts), False, 0.0)
        with disassembled_by() if parts == 2 else nullcontext():
            counts = parts == 2 and device.name == "emulator"
            reports = run(asked, arrays, plan, device, counts=counts)
    for report in reports[:1]:
        assert report.counters is not None
        assert report.counters.shared_bank_conflicts == 0  # of ldmatrix too


def run(
    asked: Product, arrays: dict[str, tuple[Array, Array]], plan: Plan, device: Device,
    counts: bool = False, reports: bool = False,
) -> list[LaunchReport]:  # fmt: skip
    """Execute a plan, and check D and what lies around it.

    Returns
    -------
    list of LaunchReport
        Of its launches, where they are to be counted, or ``reports`` asks for what they found.
    """
    there = {name: device.array(flat) for name, (flat, _) in arrays.items()}
    at = {}
    for name, (_, view) in arrays.items():
        operand = getattr(asked, name)
        at[name] = there[name].pointer + (operand.offset if view.size else 0)
    workspace = device.empty((max(plan.workspace, 1),), np.uint8)
    c = at["d"] if asked.c is not None else 0
    addresses = at["a"], at["b"], c, at["d"], workspace.pointer
    told = launched(plan, device, addresses, counts) if counts or reports else []
    if not told:
        execute(plan, device, 0, addresses)
    left = there["d"].to_numpy()
    flat, before = arrays["d"]
    item = flat.itemsize
    ahead = asked.d.offset // item
    after = np.lib.stride_tricks.as_strided(left[ahead:], before.shape, before.strides)
    for i in range(asked.batch):
        found = check(
            np.ascontiguousarray(after[i]), np.ascontiguousarray(arrays["a"][1][i]),
            np.ascontiguousarray(arrays["b"][1][i]),
            np.ascontiguousarray(before[i]) if asked.beta else None, asked.alpha, asked.beta,
        )  # fmt: skip
        assert found.correct, found
    around = np.ones(flat.shape, bool)
    np.lib.stride_tricks.as_strided(
        around[ahead:], before.shape, [s // item for s in before.strides]
    )[...] = False
    assert np.array_equal(left[around], flat[around], equal_nan=True)
    return told


def launched(
    plan: Plan, device: Device, addresses: Sequence[int], counts: bool
) -> list[LaunchReport]:
    """Execute a plan as :func:`execute` does; return the reports, with machine code's counts or
    with PTX's."""

    def compiled(kernel: Kernel) -> Compiled:
        return kernel.compile(device.arch) if counts else kernel.compiled_on(device, True)

    return [
        device.launch(compiled(step.kernel), step.launch.filled(addresses, encode))
        for step in plan.steps
    ]
