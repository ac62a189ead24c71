"""Products without tensor cores: the planner's choices, and every one of them right."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product as combinations
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from reference import disassembled_by, examples, is_thorough, some, thorough

from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.copies.tensor_maps import encode
from tilewise.errors import RaceError
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.family import Simt
from tilewise.gemm.families.simt.matrices import TRAITS, Access, Matrix, accesses, traits_of
from tilewise.gemm.families.simt.offers import choices, in_one
from tilewise.gemm.families.simt.readings import reading_of, readings
from tilewise.gemm.families.simt.table import Table, Way
from tilewise.gemm.families.simt.tiles import EVERY, AnyTiles, TensorTiles
from tilewise.gemm.families.simt.ways import every_way
from tilewise.gemm.families.thin.family import ThinReal
from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.gemm.transpose import Transposition
from tilewise.kernel import Kernel
from tilewise.numbers import check

pytestmark = pytest.mark.usefixtures("no_machine_code")

Array = npt.NDArray[Any]
MARK = 7.0  # where nobody may write
FEW = Chip("few", 4)


def product(m: int, n: int, k: int, dtype: str = "float32", **changes: Any) -> Product:
    """D = A B of matrices whose rows follow one another."""
    plain = Product(
        m, n, k, 1, dtype, dtype, 1.0, 0.0, Operand(max(k, 1), 1), Operand(n, 1), None,
        Operand(n, 1),
    )  # fmt: skip
    return plain._replace(**changes)


def names(plan: Plan) -> list[str]:
    return [step.kernel.name for step in plan.steps]


def best(asked: Product) -> AnyTiles:
    """The tiles that are planned."""
    found = in_one(asked, H200)
    assert found is not None
    return next(x for x in EVERY[asked.dtype] if str(x) == found.choice["tiles"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_large_product_takes_one_launch(dtype: str) -> None:
    found = plan_on(product(4096, 4096, 4096, dtype), H200)
    assert names(found) == ["gemm_simt" if dtype == "float32" else "gemm_dmma"]
    assert found.workspace == 0
    words = "without tensor cores" if dtype == "float32" else "by tensor cores"
    assert words in found.chosen


def test_a_deep_product_has_its_k_divided() -> None:
    found = plan_on(product(256, 256, 65536), H200)
    assert names(found) == ["gemm_simt", "splitk_sum"]
    assert "parts that are added up" in found.chosen
    step = found.steps[0].launch
    assert step.grid[0] * step.grid[1] >= H200.multiprocessors
    assert found.workspace == step.grid[1] * 256 * 256 * 4


def test_unaligned_rows_are_packed_where_that_pays() -> None:
    """B is MN-major: element by element takes longer, of a large product."""
    off = plan_on(product(4095, 4097, 4099), H200)
    assert names(off) == ["transpose", "pack", "gemm_simt"]
    assert "B packed" in off.chosen
    assert "pack" not in names(plan_on(product(4095, 4096, 4099), H200))


def test_k_major_matrices_are_transposed_where_that_pays() -> None:
    """Without tensor cores they are copied element by element, aligned or not."""
    for n in (4096, 4099):
        found = plan_on(product(n, n, n, b=Operand(1, n)), H200)
        assert names(found)[0] == "transpose"
        assert "B transposed" in found.chosen
    small = plan_on(product(256, 256, 256, b=Operand(1, 256)), H200)
    assert "transpose" not in names(small)


def test_a_copy_that_gains_little_is_not_made_where_it_is_large() -> None:
    """Of aligned matrices, A is transposed for bulk copies; not if that takes a gigabyte."""
    assert "transposed" in plan_on(product(8192, 8192, 8192), H200).chosen
    for n in (4096, 16384):
        assert plan_on(product(n, n, n), H200).workspace == 0
    off = plan_on(product(16385, 16385, 16385), H200)
    assert "packed" in off.chosen
    assert off.workspace > 1 << 30


def test_columns_of_d_swap_a_and_b() -> None:
    found = plan_on(product(512, 4096, 4096, d=Operand(1, 512)), H200)
    assert "swapped" in found.chosen


def test_what_it_cannot_read_goes_to_the_general_kernel() -> None:
    found = plan_on(product(300, 300, 300, a=Operand(600, 2)), H200)
    assert names(found) == ["gemm_general"]
    assert "neither dimension of A is contiguous" in found.why


def test_16_bits_are_none_of_its() -> None:
    assert "float16" in fma.objection(product(64, 64, 64, "float16"))


@pytest.mark.parametrize(
    ("asked", "few"),
    [((1, 8192, 8192), "rows"), ((16, 32768, 2048), "rows"), ((65536, 16, 1024), "columns")],
)
def test_thin_products_take_thin_tiles(asked: tuple[int, int, int], few: str) -> None:
    tiles = best(product(*asked))
    assert (tiles.block_m if few == "rows" else tiles.block_n) == 16


def by_kernel() -> Iterator[tuple[str, AnyTiles, list[Any]]]:
    """All tiles with a dtype and marks: thorough, but the smallest of each kernel and copy."""
    seen = set()
    for dtype, every in EVERY.items():
        for tiles in sorted(every, key=lambda tiles: tiles.block_m * tiles.block_n):
            kind = (dtype, tiles.kernel, tiles.bulk)
            yield dtype, tiles, [thorough] * (kind in seen)
            seen.add(kind)


every_tiles = pytest.mark.parametrize(
    ("dtype", "tiles"),
    [
        pytest.param(dtype, tiles, id=f"{dtype}-{tiles}", marks=marks)
        for dtype, tiles, marks in by_kernel()
    ],
)


# Of these NVRTC 13.0 leaves room for one more than 13.5.
BY_NVRTC_13_0 = {
    ("float64", "32x32 by tensor cores, cp.async"): 6,
    ("float64", "32x64x8 by 4x8"): 7,
}


@pytest.mark.sampled(4)
@every_tiles
def test_blocks_are_no_more_than_a_multiprocessor_holds(dtype: str, tiles: AnyTiles) -> None:
    """``residents`` is what registers and shared memory leave room for, on a Hopper GPU."""
    asked = product(tiles.block_m, tiles.block_n, 64, dtype)
    transposed = asked._replace(a=Operand(1, tiles.block_m))
    both = (readings(each)[0] for each in (asked, transposed))
    reading = next(each for each in both if each.fits(tiles))
    choice = fma.Choice(0.0, reading, tiles, 1)
    plan = fma.plan(choice, H200, False)
    resources = plan.steps[0].kernel.compile("sm_90a").resources
    assert resources.spill_bytes == 0
    assert resources.shared_bytes == tiles.shared(dtype, reading.a.is_k_major, False)
    by_registers = 65536 // (-(-resources.registers // 8) * 8 * tiles.threads)
    by_shared = H200.shared // (resources.shared_bytes + 1024)
    room = min(by_registers, by_shared)
    assert room in (tiles.residents, BY_NVRTC_13_0.get((dtype, str(tiles)))), str(tiles)


@pytest.mark.parametrize("blocks", [1, 100, 132, 133, 264, 300])
def test_blocks_are_spread_evenly(blocks: int) -> None:
    """No multiprocessor can get more than its share."""
    tiles = next(each for each in EVERY["float32"] if each.residents == 4)
    asked = product(tiles.block_m, tiles.block_n * blocks, 64)
    choice = fma.Choice(0.0, readings(asked)[0], tiles, 1)
    launch = fma.plan(choice, H200, False).steps[0].launch
    waiting = -(-blocks // 132)
    own = tiles.shared("float32", True, False) + launch.shared + 1024
    assert own * waiting <= H200.shared < own * (waiting + 1)
    assert fma.plan(choice, replace(H200, capability=100), False).steps[0].launch.shared == 0


SIZES = st.sampled_from([1, 2, 3, 4, 16, 17, 31, 33, 40, 64, 68])


@st.composite
def cases(
    draw: st.DrawFn, few: st.SearchStrategy[int] = SIZES
) -> tuple[Product, dict[str, tuple[Array, Array]]]:
    """A product, and its matrices: the memory, and the part of it that they are.

    ``few`` is of its rows or of its columns.
    """
    dtype = draw(st.sampled_from(sorted(EVERY)))
    m, n = draw(st.permutations([draw(few), draw(SIZES)]))
    k = draw(st.sampled_from([0, draw(SIZES), 130, 200]))
    batch = draw(st.sampled_from([1, 1, 2]))
    beta = draw(st.sampled_from([0.0, 0.5]))
    alpha = draw(st.sampled_from([1.0, -1.5, 0.0]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    operands: dict[str, Operand] = {}
    arrays: dict[str, tuple[Array, Array]] = {}
    for name, rows, columns in (("a", m, k), ("b", k, n), ("d", m, n)):
        by_columns = draw(st.booleans())
        pad, ahead = draw(st.sampled_from([0, 0, 1, 4])), draw(st.sampled_from([0, 0, 1]))
        lines, width = (columns, rows) if by_columns else (rows, columns)
        pitch = max(width + pad, 1)
        flat = np.full(ahead + batch * max(lines, 1) * pitch, np.nan, dtype)
        strides = (1, pitch) if by_columns else (pitch, 1)
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
        Product(m, n, k, batch, dtype, dtype, alpha, beta, operands["a"], operands["b"], c,
                operands["d"]),
        arrays,
    )  # fmt: skip


@examples(30, quick=2)  # nearly each has a kernel of its own to compile
@given(case=cases(), data=st.data())
def test_every_choice_is_right(
    case: tuple[Product, dict[str, tuple[Array, Array]]], data: st.DataObject
) -> None:
    """On the emulator, which finds what is read or written beyond the matrices."""
    asked, arrays = case
    assert fma.objection(asked) == ""
    every = list(choices(asked, FEW))
    small = [x for x in every if x.tiles.block_m * x.tiles.block_n <= 64 * 64] or every
    choice = data.draw(st.sampled_from(small))
    run(asked, arrays, fma.plan(choice, FEW, fma.is_swapped(asked)))


@pytest.mark.sampled(25)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("a_is_k_major", [True, False])
@pytest.mark.parametrize("b_is_k_major", [True, False])
@pytest.mark.parametrize("part", range(3))
def test_a_product_of_no_k_is_zero_by_every_choice(
    dtype: str, a_is_k_major: bool, b_is_k_major: bool, part: int
) -> None:
    """No choice asks for a tensor map of matrices that have no elements."""
    rows, columns = 20, 24
    flat = np.full(rows * columns, np.nan, dtype)
    empty = np.zeros((1, rows, 0), dtype), np.zeros((1, 0, columns), dtype)
    a = Operand(32, 1) if a_is_k_major else Operand(1, 32)
    b = Operand(1, 32) if b_is_k_major else Operand(32, 1)
    asked = product(rows, columns, 0, dtype, a=a, b=b, d=Operand(columns, 1))
    for choice in list(choices(asked, FEW))[part::3]:
        arrays = {
            "a": (np.full(1, np.nan, dtype), empty[0]),
            "b": (np.full(1, np.nan, dtype), empty[1]),
            "d": (flat, flat.reshape(1, rows, columns)),
        }
        run(asked, arrays, fma.plan(choice, FEW, fma.is_swapped(asked)))


@pytest.mark.sampled(3)
@every_tiles
def test_all_tiles_are_right(dtype: str, tiles: AnyTiles) -> None:
    rng = np.random.default_rng(0)
    m, n, k = 35, 70, 90
    runs = 0
    # Rows of 90, and at multiples of 16 bytes of 92, are along k for A; or A is stored transposed.
    for pitch_a, pitch_b, is_turned in ((k, n, False), (92, 72, False), (36, 72, True)):
        arrays = {}
        shapes = {"a": (k, m) if is_turned else (m, k), "b": (k, n), "d": (m, n)}
        for name, pitch in (("a", pitch_a), ("b", pitch_b), ("d", n)):
            rows, columns = shapes[name]
            flat = np.full(rows * pitch, np.nan, dtype)
            view = flat.reshape(rows, pitch)[None, :, :columns]
            view[...] = rng.standard_normal(view.shape)
            arrays[name] = flat, view.transpose(0, 2, 1) if name == "a" and is_turned else view
        a = Operand(1, pitch_a) if is_turned else Operand(pitch_a, 1)
        asked = product(m, n, k, dtype, a=a, b=Operand(pitch_b, 1))
        for reading in some([each for each in readings(asked) if each.fits(tiles)], 1):
            runs += 1
            run(asked, arrays, fma.plan(fma.Choice(0.0, reading, tiles, 2), FEW, False))
    assert runs


@pytest.mark.sampled(12)
@pytest.mark.parametrize("a_is_k_major", [False, True])
@pytest.mark.parametrize("b_is_k_major", [False, True])
@pytest.mark.parametrize(
    "tiles",
    [
        pytest.param(tiles, id=str(tiles), marks=marks)
        for _, tiles, marks in by_kernel()
        if isinstance(tiles, TensorTiles)
    ],
)
def test_tensor_cores_take_any_layout(
    tiles: TensorTiles, a_is_k_major: bool, b_is_k_major: bool
) -> None:
    """With k in parts and undivided, and C; nothing that is read at once lies in one bank twice."""
    rng = np.random.default_rng(0)
    m, n, k = 70, 50, 150
    arrays, operands = {}, {}
    sides = {
        "a": (m, k, a_is_k_major),
        "b": (k, n, not b_is_k_major),
        "c": (m, n, True),
        "d": (m, n, True),
    }
    for name, (rows, columns, by_rows) in sides.items():
        view = rng.standard_normal((1, rows, columns))
        flat = np.ascontiguousarray(view if by_rows else view.transpose(0, 2, 1)).ravel()
        kept = flat.reshape(1, rows, columns) if by_rows else flat.reshape(1, columns, rows)
        arrays[name] = flat, kept if by_rows else kept.transpose(0, 2, 1)
        operands[name] = Operand(columns, 1) if by_rows else Operand(1, rows)
    asked = product(m, n, k, "float64", alpha=1.5, beta=0.5, **operands)
    arrays["d"][0][...] = arrays["c"][0]  # what is checked adds C as it was in D
    (reading, *_) = readings(asked)
    for parts in (1, 2) if is_thorough() else (2,):
        plan = fma.plan(fma.Choice(0.0, reading, tiles, parts), FEW, False)
        run(asked, arrays, plan)
    assert conflicts(asked, arrays, plan) == 0


def test_k_major_matrices_are_packed_for_bulk_copies() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 37, 45, 91
    arrays = {}
    for name, (rows, columns) in {"a": (m, k), "b": (n, k), "d": (m, n)}.items():
        flat = rng.standard_normal(rows * columns)
        view = flat.reshape(1, rows, columns)
        arrays[name] = flat, view.transpose(0, 2, 1) if name == "b" else view
    asked = product(m, n, k, "float64", b=Operand(1, k))
    reading = next(each for each in readings(asked) if len(each.copies) == 2)
    assert (reading.a.is_k_major, reading.b.is_k_major) == (True, True)
    fitting = [tiles for tiles in EVERY["float64"] if reading.fits(tiles)]
    assert all(tiles.bulk for tiles in fitting)  # the others would gain nothing
    tiles = fitting[-1]
    run(asked, arrays, fma.plan(fma.Choice(0.0, reading, tiles, 1), FEW, False))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_shared", [False, pytest.param(True, marks=thorough)])
@pytest.mark.parametrize("dtype", EVERY)
def test_k_major_matrices_are_transposed(dtype: str, is_shared: bool) -> None:
    """Each alone, both, and one beside the other packed; with tiles of every kernel."""
    rng = np.random.default_rng(0)
    m, n, k, batch = 37, 45, 43, 2
    arrays, operands = {}, {}
    for name, (rows, columns, gap) in {"a": (m, k, 2), "b": (n, k, 1), "d": (m, n, 0)}.items():
        pitch = columns + gap
        step = 0 if name == "b" and is_shared else rows * pitch
        # Behind the last row there is nothing.
        flat = rng.standard_normal((batch - 1) * step + (rows - 1) * pitch + columns).astype(dtype)
        item = flat.itemsize
        view = as_strided(flat, (batch, rows, columns), (item * step, item * pitch, item))
        arrays[name] = flat, view.transpose(0, 2, 1) if name == "b" else view
        operands[name] = Operand(1, pitch, step) if name == "b" else Operand(pitch, 1, step)
    asked = product(m, n, k, dtype, batch=batch, **operands)
    seen = set()
    for reading in readings(asked):
        copies = [type(copy) for _, copy in reading.copies]
        if Transposition not in copies:
            continue
        seen.add((reading.a.is_k_major, reading.b.is_k_major))
        largest_first = sorted(EVERY[dtype], key=lambda tiles: -tiles.block_m * tiles.block_n)
        of_kernels = {
            (tiles.kernel, tiles.bulk): tiles for tiles in largest_first if reading.fits(tiles)
        }
        assert of_kernels
        for tiles in some([*of_kernels.values()], 1):
            plan = fma.plan(fma.Choice(0.0, reading, tiles, 1), FEW, False)
            assert "transposed" in plan.chosen
            assert plan.workspace == sum(copy.bytes for _, copy in reading.copies)
            # What follows a transposition waits for its end.
            made = copies.count(Transposition)
            waits = [not step.launch.overlap for step in plan.steps]
            assert waits == [i == made for i in range(len(plan.steps))]
            run(asked, arrays, plan)
    assert seen >= {(True, False), (False, True), (False, False)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("dtype", EVERY)
def test_bulk_copies_of_a_batch(dtype: str, is_shared: bool) -> None:
    """A matrix of each product, or one A for all, with NaN around them."""
    rng = np.random.default_rng(0)
    m, n, k, batch = 37, 70, 50, 3
    shapes, pitches = {"a": (k, m), "b": (k, n), "d": (m, n)}, {"a": 40, "b": 72, "d": n}
    arrays, operands = {}, {}
    for name, (rows, columns) in shapes.items():
        step = rows * pitches[name]
        flat = np.full(batch * step, np.nan if name != "d" else MARK, dtype)
        view = flat.reshape(batch, rows, -1)[:, :, :columns]
        view[...] = rng.standard_normal(view.shape)
        if name == "a":
            if is_shared:
                view = np.broadcast_to(view[:1], view.shape)
                step = 0
            operands[name], view = Operand(1, pitches[name], step), view.transpose(0, 2, 1)
        else:
            operands[name] = Operand(pitches[name], 1, step)
        arrays[name] = flat, view
    asked = product(m, n, k, dtype, batch=batch, **operands)
    (reading, *_) = readings(asked)
    every = [tiles for tiles in EVERY[dtype] if tiles.bulk and reading.fits(tiles)]
    tiles = every[-1] if is_thorough() else min(every, key=lambda x: x.block_m * x.block_n)
    run(asked, arrays, fma.plan(fma.Choice(0.0, reading, tiles, 1), FEW, False))


@thorough
@pytest.mark.parametrize("dtype", EVERY)
def test_a_copy_over_what_was_read_needs_a_proxy_fence(dtype: str, tmp_path: Path) -> None:
    """Without the one ahead of the copies, the emulator finds a race; with it, none."""
    rng = np.random.default_rng(0)
    m, n, k = 40, 40, 200
    arrays = {}
    for name, rows, columns in (("a", m, k), ("b", k, n), ("d", m, n)):
        flat = rng.standard_normal(rows * columns).astype(dtype)
        arrays[name] = flat, flat.reshape(1, rows, columns)
    asked = product(m, n, k, dtype)
    (reading, *_) = readings(asked)
    tiles = min((x for x in EVERY[dtype] if x.bulk and reading.fits(x)), key=attrgetter("block_n"))
    plan = fma.plan(fma.Choice(0.0, reading, tiles, 1), FEW, False)
    run(asked, arrays, plan)
    (step,) = plan.steps
    source = step.kernel.path
    assert source is not None
    shutil.copytree(source.parent.parent / "ptx", tmp_path / "ptx")
    (tmp_path / "gemm").mkdir()
    for path in (source, *source.parent.glob("*.cuh")):
        text = path.read_text(encoding="utf-8").replace("fence_proxy_async();", "")
        (tmp_path / "gemm" / path.name).write_text(text, encoding="utf-8")
    file = tmp_path / "gemm" / source.name
    kernel = Kernel(file, step.kernel.name, step.kernel.defines, include=[tmp_path])
    unfenced = replace(plan, steps=(step._replace(kernel=kernel),))
    with pytest.raises(
        RaceError, match=r"a bulk copy with no proxy fence \(fence.proxy.async\) after the read"
    ):
        run(asked, arrays, unfenced)


@pytest.mark.parametrize("dtype", EVERY)
def test_every_k_step_was_measured(dtype: str) -> None:
    """However A and B are read, a longer product takes longer."""
    for chip in (H200, Chip("another", 108, capability=80), Chip("another", 84, capability=86)):
        for of_a, of_b in some(list(combinations(TRAITS, TRAITS)), 5):
            ways = every_way(dtype, chip, of_a, of_b)
            assert ways
            table = Table(dtype, chip, ways)
            short, long = (table.seconds(n, n, n, 1, counts=5) for n in (512, 4096))
            assert (short > 0).all()
            assert (short < long).all()
            assert (long < 1).all()
    assert len({str(tiles) for tiles in EVERY[dtype]}) == len(EVERY[dtype])


def test_what_is_repeated_long_has_the_clock_that_its_tiles_leave() -> None:
    """The power limit slows small tiles more: they move more."""
    by_name = {str(x): x for x in EVERY["float64"]}
    ways = [
        Way(by_name[f"{size} by tensor cores"], Access(True), Access(False))
        for size in ("64x64", "192x128")
    ]
    n = 8192
    table = Table("float64", H200, ways)
    small, large = table.seconds(n, n, n, 1, operations=1.0)[:, 0]
    slow_small, slow_large = table.seconds(n, n, n, 1)[:, 0]
    assert slow_small / small > 1.005
    assert slow_small / small > slow_large / large


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("capability", [90, 80, 86])
def test_every_kernel_that_is_planned_is_listed(dtype: str, capability: int) -> None:
    chip = Chip("some", 132, capability)
    families = (Simt(), ThinReal())
    listed = {kernel for family in families for kernel in family.kernels(chip, dtype)}
    assert len(listed) <= 132
    rng = np.random.default_rng(0)
    for _ in range(300):
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, 9, 3)))
        pads, offset = rng.integers(0, 2, 4), int(rng.integers(0, 2)) * np.dtype(dtype).itemsize
        a, b, d = (
            Operand(columns + int(pad), 1) if rng.integers(2) else Operand(1, rows + int(pad))
            for (rows, columns), pad in zip(((m, k), (k, n), (m, n)), pads, strict=False)
        )
        asked = product(m, n, k, dtype, a=a._replace(offset=offset), b=b, d=d)
        for family in families:
            found = family.best(asked, chip)
            for step in found.make().steps if found else ():
                assert step.kernel in listed


@examples(100, quick=20)
@given(case=cases())
def test_the_traits_of_a_matrix_are_what_the_readings_say(
    case: tuple[Product, dict[str, tuple[Array, Array]]],
) -> None:
    """Every way of the table can be made, and reads A and B by the kernel that was priced."""
    asked, _ = case
    asked = asked._replace(k=max(asked.k, 1))
    seen = fma.swapped(asked)
    for which, operand, count in ((0, seen.a, seen.m), (1, seen.b.transposed, seen.n)):
        traits = traits_of(operand, count, seen.k, seen.batch, np.dtype(seen.dtype).itemsize)
        assert traits in TRAITS
        for copy, access, is_mapped, is_wide in accesses(traits):
            reading = reading_of(seen, (copy, 0) if which == 0 else (0, copy))
            x = reading.b if which else reading.a
            assert (x.is_k_major, x.is_unaligned) == (access.is_k_major, access.is_unaligned)
            assert (x.is_mapped, x.width > 1) == (is_mapped, is_wide)
            assert access.splits_sectors == (not is_unaligned_to(32, x, seen.dtype))


def is_unaligned_to(size: int, x: Matrix, dtype: str) -> bool:
    """Whether lines that begin at multiples of 16 bytes begin at such of ``size`` too."""
    return not x.is_mapped or x.pitch * np.dtype(dtype).itemsize % size == 0


def run(
    asked: Product, arrays: dict[str, tuple[Array, Array]], plan: Plan, device: Device | None = None
) -> None:
    """Execute a plan, on the emulator by default, and check D and what lies around it."""
    device = device or Emulator()
    there = {name: device.array(flat) for name, (flat, _) in arrays.items()}
    item = np.dtype(asked.dtype).itemsize
    at = {}
    for name, (_, view) in arrays.items():
        # A flat array of 16-byte alignment, and what lies ahead of the matrix in it.
        operand = getattr(asked, name)
        at[name] = there[name].pointer + (operand.offset if view.size else 0)
    workspace = device.empty((max(plan.workspace, 1),), np.uint8)
    c = at["d"] if asked.c is not None else 0
    execute(plan, device, 0, (at["a"], at["b"], c, at["d"], workspace.pointer))
    left = there["d"].to_numpy()
    flat, before = arrays["d"]
    ahead = asked.d.offset // item
    after = np.lib.stride_tricks.as_strided(left[ahead:], before.shape, before.strides)
    for i in range(asked.batch):
        found = check(
            np.ascontiguousarray(after[i]), np.ascontiguousarray(arrays["a"][1][i]),
            np.ascontiguousarray(arrays["b"][1][i]),
            np.ascontiguousarray(before[i]) if asked.beta else None, asked.alpha, asked.beta,
        )  # fmt: skip
        assert found.correct
    around = np.ones(flat.shape, bool)
    np.lib.stride_tricks.as_strided(
        around[ahead:], before.shape, [s // item for s in before.strides]
    )[...] = False
    assert np.array_equal(left[around], flat[around], equal_nan=True)


def conflicts(asked: Product, arrays: dict[str, tuple[Array, Array]], plan: Plan) -> int:
    """Of the first launch's reads of shared memory."""
    device = Emulator()
    there = [device.array(arrays[name][0]) for name in "abcd"]
    workspace = device.empty((max(plan.workspace, 1),), np.uint8)
    step, addresses = plan.steps[0], [array.pointer for array in (*there, workspace)]
    compiled = step.kernel.compile(device.arch)
    with disassembled_by():
        report = device.launch(compiled, step.launch.filled(addresses, encode))
    assert report.counters is not None
    return report.counters.shared_load_bank_conflicts


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(8192, 8192, 16), (2000, 3000, 1), (300, 500, 4)])
def test_where_d_takes_longest_the_general_kernel_is_not_the_fastest(
    dtype: str, m: int, n: int, k: int
) -> None:
    """Its stores of D take two to three times as long as those of the others, on an H200."""
    found = plan_on(product(m, n, k, dtype), H200)
    assert "gemm_general" not in names(found)
