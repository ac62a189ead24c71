"""Products without tensor cores: the planner's choices, and every one of them right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise import fma
from tilewise.devices import get_device
from tilewise.devices.emulator import Emulator
from tilewise.fma_tiles import TILES, Tiles
from tilewise.numbers import check
from tilewise.plan import chip_of, plan_on
from tilewise.product import Operand, Product
from tilewise.steps import Plan, execute
from tilewise.tuned import H200, Chip

Array = npt.NDArray[Any]
MARK = 7.0  # where nobody may write


def product(m: int, n: int, k: int, dtype: str = "float32", **changes: Any) -> Product:
    """D = A B of matrices whose rows follow one another."""
    plain = Product(
        m, n, k, 1, dtype, dtype, 1.0, 0.0, Operand(max(k, 1), 1), Operand(n, 1), None,
        Operand(n, 1),
    )  # fmt: skip
    return replace(plain, **changes)


def names(plan: Plan) -> list[str]:
    return [step.kernel.name for step in plan.steps]


def best(asked: Product) -> fma.Choice:
    return min(fma.choices(asked, H200.multiprocessors), key=lambda choice: choice.seconds)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_large_product_takes_one_launch(dtype: str) -> None:
    found = plan_on(product(4096, 4096, 4096, dtype), H200)
    assert names(found) == ["gemm_fma"]
    assert found.workspace == 0
    assert "without tensor cores" in found.chosen


def test_a_deep_product_has_its_k_divided() -> None:
    found = plan_on(product(256, 256, 65536), H200)
    assert names(found) == ["gemm_fma", "fma_sum"]
    assert "parts that are added up" in found.chosen
    step = found.steps[0].launch
    assert step.grid[0] * step.grid[1] >= H200.multiprocessors
    assert found.workspace == step.grid[1] * 256 * 256 * 4


def test_rows_off_16_bytes_are_packed_where_that_pays() -> None:
    """B's rows lie across k: element by element takes longer, of a large product."""
    assert names(plan_on(product(4095, 4097, 4099), H200)) == ["pack", "gemm_fma"]
    assert "B packed" in plan_on(product(4095, 4097, 4099), H200).chosen
    assert names(plan_on(product(4095, 4096, 4099), H200)) == ["gemm_fma"]
    # Lines along k are copied element by element anyhow, for they are turned round.
    along_k = product(4095, 4097, 4099, b=Operand(1, 4099))
    assert names(plan_on(along_k, H200)) == ["gemm_fma"]


def test_columns_of_d_turn_the_product() -> None:
    found = plan_on(product(512, 4096, 4096, d=Operand(1, 512)), H200)
    assert "turned" in found.chosen


def test_what_it_cannot_read_goes_to_the_general_kernel() -> None:
    found = plan_on(product(300, 300, 300, a=Operand(600, 2)), H200)
    assert names(found) == ["gemm_any"]
    assert "neither dimension of A is contiguous" in found.why


def test_other_gpus_take_it_too() -> None:
    """Without what only a Hopper GPU has: launches that overlap."""
    found = plan_on(product(1000, 1000, 1000), Chip("another", 108, is_hopper=False))
    assert names(found)[0] == "gemm_fma"
    assert not any(step.launch.overlap for step in found.steps)
    assert all(step.kernel.defines["OVERLAP"] == 0 for step in found.steps)
    assert chip_of(get_device("emulator")) is None


def test_16_bits_are_none_of_its() -> None:
    assert "float16" in fma.objection(product(64, 64, 64, "float16"))


@pytest.mark.parametrize(
    ("asked", "few"),
    [((1, 8192, 8192), "rows"), ((16, 32768, 2048), "rows"), ((65536, 16, 1024), "columns")],
)
def test_thin_products_take_thin_tiles(asked: tuple[int, int, int], few: str) -> None:
    tiles = best(product(*asked)).tiles
    assert (tiles.block_m if few == "rows" else tiles.block_n) == 16


@pytest.mark.parametrize("dtype", TILES)
def test_blocks_are_no_more_than_a_multiprocessor_holds(dtype: str) -> None:
    """``residents`` is what registers and shared memory leave room for, on a Hopper GPU."""
    for tiles in TILES[dtype]:
        asked = product(tiles.block_m, tiles.block_n, 64, dtype)
        choice = fma.Choice(0.0, fma.readings(asked)[0], tiles, 1)
        plan = fma.planned(choice, H200.multiprocessors, True, False)
        resources = plan.steps[0].kernel.compile("sm_90a").resources
        assert resources.spill_bytes == 0
        assert resources.shared_bytes == tiles.shared(dtype, True, False)
        by_registers = 65536 // (-(-resources.registers // 8) * 8 * tiles.threads)
        by_shared = fma.SHARED // (resources.shared_bytes + 1024)
        assert min(by_registers, by_shared) == tiles.residents, str(tiles)


@pytest.mark.parametrize("blocks", [1, 100, 132, 133, 264, 300])
def test_blocks_are_spread_evenly(blocks: int) -> None:
    """No multiprocessor can get more than its share."""
    tiles = next(each for each in TILES["float32"] if each.residents == 4)
    asked = product(tiles.block_m, tiles.block_n * blocks, 64)
    choice = fma.Choice(0.0, fma.readings(asked)[0], tiles, 1)
    launch = fma.planned(choice, 132, True, False).steps[0].launch
    waiting = -(-blocks // 132)
    own = tiles.shared("float32", True, False) + launch.shared + 1024
    assert own * waiting <= fma.SHARED < own * (waiting + 1)
    assert fma.planned(choice, 132, False, False).steps[0].launch.shared == 0


@st.composite
def cases(draw: st.DrawFn) -> tuple[Product, dict[str, tuple[Array, Array]]]:
    """A product, and its matrices: the memory, and the part of it that they are."""
    dtype = draw(st.sampled_from(sorted(TILES)))
    m, n, k = (draw(st.sampled_from([1, 2, 3, 4, 16, 17, 31, 33, 40, 64, 68])) for _ in range(3))
    k = draw(st.sampled_from([0, k, 130, 200]))
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


@settings(max_examples=30)  # nearly each has a kernel of its own to compile
@given(case=cases(), data=st.data())
def test_every_choice_is_right(
    case: tuple[Product, dict[str, tuple[Array, Array]]], data: st.DataObject
) -> None:
    """On the emulator, which finds what is read or written beyond the matrices."""
    asked, arrays = case
    assert fma.objection(asked) == ""
    view = fma.turned(asked)
    every = list(fma.choices(view, 4))
    small = [x for x in every if x.tiles.block_m * x.tiles.block_n <= 64 * 64] or every
    choice = data.draw(st.sampled_from(small))
    run(asked, arrays, fma.planned(choice, 4, False, view is not asked))


@pytest.mark.parametrize(
    ("dtype", "tiles"), [(dtype, tiles) for dtype in TILES for tiles in TILES[dtype]], ids=str
)
def test_all_tiles_are_right(dtype: str, tiles: Tiles) -> None:
    rng = np.random.default_rng(0)
    m, n, k = 35, 70, 90
    arrays = {}
    for name, shape in (("a", (m, k)), ("b", (k, n)), ("d", (m, n))):
        flat = rng.standard_normal(shape).astype(dtype).reshape(-1)
        arrays[name] = flat, flat.reshape(1, *shape)
    asked = product(m, n, k, dtype)
    for reading in fma.readings(asked):
        run(asked, arrays, fma.planned(fma.Choice(0.0, reading, tiles, 2), 4, False, False))


def run(asked: Product, arrays: dict[str, tuple[Array, Array]], plan: Plan) -> None:
    """Execute a plan on the emulator, and check D and what lies around it."""
    device = Emulator()
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
