"""The Hopper kernel: what it takes, its tensor maps and launches; on such a GPU, its results."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from typing import Any

import pytest
from hopper_reference import candidates
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import examples, thorough
from test_tilings import H200, possible

from tilewise.devices import Device
from tilewise.devices.limits import max_shared
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.cover import Cover, cover
from tilewise.gemm.families.hopper.tiling import SUM_COLUMNS, Tiling
from tilewise.gemm.product import WORKSPACE, A, B, D, Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.places import Packed, Place, TensorMap
from tilewise.roundoff import unit_roundoff

REGISTERS = 65536  # of a multiprocessor


def product(m: int = 300, n: int = 200, k: int = 520, **changes: Any) -> Product:
    """Row-major, bfloat16, in rows of whole 16 bytes."""
    of_k, of_n = (Operand(-(-columns // 8) * 8, 1) for columns in (k, n))
    plain = Product(
        m, n, k, 1, "bfloat16", "bfloat16", 1.0, 0.0, of_k, of_n, None, of_n
    )  # fmt: skip
    return plain._replace(**changes)


def test_takes_what_has_a_contiguous_dimension() -> None:
    assert hopper.objection(product()) == ""
    assert hopper.objection(product(a=Operand(1, 304))) == ""
    assert hopper.objection(product(batch=3, b=Operand(200, 1, 200 * 520))) == ""
    assert hopper.objection(product(d=Operand(1, 301))) == ""
    # Lines that begin anywhere, and matrices any number of elements apart.
    assert hopper.objection(product(a=Operand(521, 1, 0, 2))) == ""
    assert hopper.objection(product(b=Operand(1, 523, 0, 14))) == ""
    assert hopper.objection(product(batch=3, a=Operand(521, 1, 521 * 300))) == ""
    assert hopper.objection(product(batch=3, a=Operand(520, 1, 520 * 300 + 1))) == ""
    assert hopper.objection(product(batch=3, b=Operand(201, 1, 201 * 520 - 3, 6))) == ""
    assert hopper.objection(product(batch=3, b=Operand(200, 1, 7))) == ""  # they overlap
    assert hopper.objection(product(a=Operand(2**40, 1), b=Operand(0, 1))) == ""
    # Of a single row or column, the stride is never used.
    assert hopper.objection(product(m=1, a=Operand(7, 1), d=Operand(7, 1))) == ""
    assert hopper.objection(product(m=1, a=Operand(-521, 1, -1, 2), d=Operand(7, 1))) == ""
    assert hopper.objection(product(n=1, b=Operand(1, 7), d=Operand(1, 7))) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float32"}, "not 16-bit"),
        ({"k": 0}, "nothing to multiply"),
        ({"alpha": 0.0}, "nothing to multiply"),
        ({"m": 2**31}, "too large"),
        ({"m": 2**20, "n": 2**20, "batch": 8}, "too large"),
        ({"a": Operand(520, 1, 0, 1)}, "A does not begin at a multiple of 2 bytes"),
        ({"a": Operand(1040, 2)}, "A has no contiguous dimension"),
        ({"b": Operand(0, 1, 0, 2)}, "B has one line for all"),
        ({"a": Operand(-520, 1)}, "A has a negative stride"),
        ({"batch": 3, "b": Operand(200, 1, -7)}, "B has a negative stride"),
        ({"d": Operand(400, 2)}, "neither dimension of D"),
        ({"c": Operand(1, 300), "beta": 1.0}, "C does not lie as D"),
    ],
)
def test_says_why_not(changes: dict[str, Any], words: str) -> None:
    asked = product(**changes)
    assert words in hopper.objection(asked)
    with pytest.raises(ValueError, match=words):
        hopper.plan(asked, H200, Tiling(64, 64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"a": Operand(1, 304)}, ""),
        ({"a": Operand(521, 1), "m": 1}, ""),  # of a single row, the stride is never used
        ({"a": Operand(520, 1, 7)}, ""),  # nor of a single matrix
        ({"a": Operand(520, 1, 520 * 300 + 8), "batch": 2}, ""),
        ({"a": Operand(520, 1, 0, 2)}, "does not begin at a multiple of 16 bytes"),
        ({"a": Operand(521, 1)}, "has a stride of 1,042 bytes, no multiple of 16"),
        ({"a": Operand(1, 301)}, "has a stride of 602 bytes, no multiple of 16"),
        (
            {"a": Operand(520, 1, 520 * 300 + 1), "batch": 2},
            "has a stride of 312,002 bytes, no multiple of 16",
        ),
        ({"a": Operand(2**39, 1)}, f"has a stride of {2**40:,} bytes"),  # more than a map may have
        ({"a": Operand(1040, 2)}, "has no contiguous dimension"),
    ],
)
def test_says_why_tiles_are_realigned(changes: dict[str, Any], words: str) -> None:
    asked = product(**changes)
    assert hopper.unaligned(asked, A) == words
    assert hopper.unaligned(asked, B) == ""


def test_a_tiling_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"tiles of 128 x 80.*realigned by 64"):
        hopper.plan(product(b=Operand(201, 1)), H200, Tiling(128, 80, b_unaligned=True))
    with pytest.raises(ValueError, match="tiles of 256 x 256"):
        hopper.plan(product(), H200, Tiling(256, 256))


def maps(asked: Product, tiling: Tiling) -> tuple[Any, ...]:
    """Of A and B, which are not realigned, and of D; what has no map is as it is."""
    a, b, d = hopper.plan(asked, H200, tiling).steps[0].launch.args[:3]
    return one_map(a), one_map(b), d


def one_map(operand: Packed) -> TensorMap:
    ((at, only),) = operand.maps
    assert (at, operand.places) == (0, ())
    return only


NO_MAP = bytes(128)


def test_tensor_maps() -> None:
    tiling = Tiling(128, 256)
    half = 64  # bytes to fetch: lines of the matrices do not begin with sectors
    a, b, d = maps(product(), tiling)
    assert a == TensorMap.of_matrices(
        Place(A), "bfloat16", (520, 300, 1), (1040, 16), (64, 128), half
    )
    # k is not B's contiguous dimension: 64 columns of it are a box.
    assert b == TensorMap.of_matrices(
        Place(B), "bfloat16", (200, 520, 1), (400, 16), (64, 64), half
    )
    assert maps(product(), Tiling(128, 96))[1].box == (32, 64, 1)
    assert maps(product(), Tiling(128, 160, 2, 1))[1].box == (32, 32, 1)  # five for two blocks
    columns = tiling.out_columns
    assert d == TensorMap.of_matrices(
        Place(D), "bfloat16", (200, 300, 1), (400, 16), (columns, 16), half
    )
    _, b, no_d = maps(product(b=Operand(1, 520), d=Operand(201, 1)), tiling)
    assert b == TensorMap.of_matrices(
        Place(B), "bfloat16", (520, 200, 1), (1040, 16), (64, 256), half
    )
    assert no_d == NO_MAP  # its rows don't begin at multiples of 16 bytes
    a, _, _ = maps(product(a=Operand(528, 1)), tiling)
    assert a == TensorMap.of_matrices(
        Place(A), "bfloat16", (520, 300, 1), (1056, 16), (64, 128), 128
    )


def test_tensor_maps_of_a_batch() -> None:
    asked = product(batch=3, a=Operand(520, 1, 160000), d=Operand(200, 1, 60000))
    a, b, d = maps(asked, Tiling(128, 256))
    assert (a.extents, a.strides) == ((520, 300, 3), (1040, 320000))
    assert (b.extents, b.strides) == ((200, 520, 1), (400, 16))  # one for all
    assert (d.extents, d.strides) == ((200, 300, 3), (400, 120000))
    args = hopper.plan(asked, H200, Tiling(128, 256)).steps[0].launch.args
    assert args[4:7] == (520, 3, 1)


@pytest.mark.parametrize(
    ("tiling", "a_box", "b_box"),
    [
        (Tiling(128, 256, 2, 1), (64, 128), (64, 128)),  # each of two loads half of B's tile
        (Tiling(128, 256, 1, 2), (64, 64), (64, 256)),  # of A's
        (Tiling(192, 112), (64, 192), (64, 112)),
        (Tiling(64, 16, split=4), (64, 64), (64, 16)),
    ],
)
def test_boxes_of_a_cluster(tiling: Tiling, a_box: tuple[int, int], b_box: tuple[int, int]) -> None:
    a, b, _ = maps(product(b=Operand(1, 520)), tiling)
    assert (a.box, b.box) == ((*a_box, 1), (*b_box, 1))


def test_only_rows_of_a_are_copied_that_there_are() -> None:
    for m, rows in ((1, 8), (8, 8), (9, 16), (33, 64), (65, 128), (128, 128)):
        a, _, _ = maps(product(m), Tiling(128, 64))
        assert a.box == (64, rows, 1)
        assert hopper.plan(product(m), H200, Tiling(128, 64)).steps[0].launch.args[11] == rows
    a, _, _ = maps(product(1), Tiling(128, 64, 1, 2))  # each of two loads a group of 8
    assert a.box == (64, 8, 1)
    a, _, _ = maps(product(1, a=Operand(1, 8)), Tiling(128, 64))
    assert a.box == (64, 64, 1)  # k along the rows of a box, and 64 of m, which are contiguous


@pytest.mark.parametrize("block_n", [256, 192, 96, 16, 80, 240])
def test_boxes_of_d(block_n: int) -> None:
    tiling = Tiling(128, block_n)
    asked = product(304, b=Operand(1, 520))
    assert maps(asked, tiling)[2].box == (tiling.out_columns, 16, 1)
    by_columns = asked._replace(d=Operand(1, 312))
    d = maps(by_columns, tiling)[2]
    assert d.box == (16, tiling.out_columns, 1)
    assert d.extents == (304, 200, 1)
    assert d.strides == (624, 16)


@pytest.mark.parametrize(
    "changes",
    [
        {"out_dtype": "float32", "d": Operand(202, 1)},
        {"out_dtype": "float32", "n": 198},
        {"beta": 1.0, "c": Operand(200, 1)},
        {"d": Operand(204, 1)},
        {"n": 199},  # they write whole 16 bytes, of which the last are beside D
        {"n": 1, "d": Operand(8, 1)},
        {"d": Operand(200, 1, 0, 8)},
    ],
)
def test_what_bulk_copies_can_not_write(changes: dict[str, Any]) -> None:
    asked = product(**changes)
    assert hopper.objection(asked) == ""
    assert maps(asked, Tiling(128, 256))[2] == NO_MAP
    assert not hopper.problem(asked).d_by_tma


@pytest.mark.parametrize("tiling", [Tiling(128, 256), Tiling(64, 48), Tiling(64, 96)], ids=str)
def test_floats_are_half_as_many(tiling: Tiling) -> None:
    """Of the same bytes, in rows of whole 16."""
    half = tiling.out_columns // 2
    asked = product(304, 204, b=Operand(1, 520), out_dtype="float32", d=Operand(204, 1))
    assert hopper.problem(asked).d_by_tma
    assert hopper.problem(asked).d_item == 4
    d = maps(asked, tiling)[2]
    assert d == TensorMap.of_matrices(Place(D), "float32", (204, 304, 1), (816, 32), (half, 16), 64)
    d = maps(asked._replace(d=Operand(1, 304)), tiling)[2]
    assert d == TensorMap.of_matrices(
        Place(D), "float32", (304, 204, 1), (1216, 32), (16, half), 128
    )


UNALIGNED = struct.Struct("<4Q2i")  # hopper_load.cuh's UnalignedOperand


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"a": Operand(521, 1)}, (0, 299 * 1042 + 1040, 1042, 0, 300, 520)),
        ({"a": Operand(1, 301)}, (0, 519 * 602 + 600, 602, 0, 520, 300)),
        ({"a": Operand(520, 1, 0, 2)}, (0, 300 * 1040, 1040, 0, 300, 520)),
        ({"a": Operand(521, 1), "m": 3}, (0, 2 * 1042 + 1040, 1042, 0, 3, 520)),
        (
            {"a": Operand(520, 1, 156001), "batch": 2},
            (0, 312002 + 300 * 1040, 1040, 312002, 300, 520),
        ),
        ({"a": Operand(2**40, 1)}, (0, 299 * 2**41 + 1040, 2**41, 0, 300, 520)),
        ({"a": Operand(-521, 1, -1, 2), "m": 1}, (0, 1040, 0, 0, 1, 520)),
    ],
)
def test_what_is_unaligned_has_no_map(changes: dict[str, Any], fields: tuple[int, ...]) -> None:
    """But an address, how far its elements go, and how far lines and matrices are apart."""
    asked = product(**changes)
    assert hopper.problem(asked).a_unaligned
    args = hopper.plan(asked, H200, Tiling(128, 128, a_unaligned=True)).steps[0].launch.args
    assert args[0] == Packed(UNALIGNED.pack(*fields), ((0, Place(A)),))
    assert one_map(args[1]).box == (64, 64, 1)


@st.composite
def operands(draw: st.DrawFn, batch: int, rows: int, columns: int) -> Operand:
    """Any that has a contiguous dimension; lines and matrices may overlap."""
    outer, inner = draw(st.sampled_from([(rows, columns), (columns, rows)]))
    whole = -(-inner // 8) * 8
    pitch = draw(st.one_of(st.just(whole), st.integers(0, inner + 9)))
    step = draw(st.one_of(st.just(outer * whole), st.integers(0, outer * pitch + 9)))
    strides = (pitch, 1) if inner == columns else (1, pitch)
    offset = draw(st.one_of(st.just(0), st.integers(0, 7)))
    return Operand(*strides, step if batch > 1 else 0, 2 * offset)


@given(
    m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(1, 40), batch=st.integers(1, 3),
    swapped=st.booleans(), data=st.data(),
)  # fmt: skip
def test_every_element_is_where_the_kernel_looks_for_it(
    m: int, n: int, k: int, batch: int, swapped: bool, data: st.DataObject
) -> None:
    asked = product(
        m, n, k, batch=batch, d=Operand(n, 1, m * n),
        a=data.draw(operands(batch, m, k)), b=data.draw(operands(batch, k, n)),
    )  # fmt: skip
    assume(not hopper.objection(asked))
    problem = hopper.problem(asked)
    view = problem.swapped if swapped else problem
    tiling = Tiling(
        64, 64, swapped=swapped, a_unaligned=view.a_unaligned, b_unaligned=view.b_unaligned
    )  # fmt: skip
    args = hopper.plan(asked, H200, tiling).steps[0].launch.args
    seen = asked.transposed if swapped else asked
    of_b = seen.b.transposed
    for packed, x, place, rows, k_major, is_unaligned in (
        (args[0], seen.a, Place(B if swapped else A), seen.m, view.a_k_major, tiling.a_unaligned),
        (args[1], of_b, Place(A if swapped else B), seen.n, view.b_k_major, tiling.b_unaligned),
    ):
        lines, inner = (rows, k) if k_major else (k, rows)
        stride = x.row_stride if k_major else x.column_stride
        if is_unaligned:
            assert (packed.places, packed.maps) == (((0, place),), ())
            begin, end, pitch, step, count, length = UNALIGNED.unpack(packed.data)
            assert end == (batch - 1) * step + (lines - 1) * pitch + 2 * inner
            batches = batch
        else:
            held = one_map(packed)
            assert (held.place, x.offset) == (place, 0)
            assert not any(stride % 16 for stride in held.strides)
            length, count, high = held.extents
            begin, (pitch, step) = 0, held.strides
            batches = int.from_bytes(packed.data[128:132], "little")
            assert 1 <= batches <= high
        # All of the lines, and nothing behind them.
        assert (count, length) == (lines, inner)
        for i, line in itertools.product(range(batch), range(lines)):
            at = begin + min(i, batches - 1) * step + line * pitch
            assert at == 2 * (i * x.batch_stride + line * stride)


def test_turned() -> None:
    asked = product(304, d=Operand(1, 304))
    swapped = asked.transposed
    assert (swapped.m, swapped.n) == (200, 304)
    assert swapped.a == Operand(1, 200)
    assert swapped.b == Operand(1, 520)
    assert swapped.d == Operand(304, 1)
    assert swapped.transposed == asked
    assert hopper.problem(swapped) == hopper.problem(asked).swapped
    tiling = Tiling(128, 128, swapped=True)
    a, b, d = maps(asked, tiling)
    assert (a.place, b.place, d.place) == (Place(B), Place(A), Place(D))
    assert (a.extents, b.extents) == ((200, 520, 1), (520, 304, 1))
    assert (a.box, b.box) == ((64, 64, 1), (64, 128, 1))
    assert d.box == (tiling.out_columns, 16, 1)
    assert d.extents == maps(asked, Tiling(128, 128))[2].extents


def test_operands_elsewhere() -> None:
    for swapped, places in ((False, (1000, 2000)), (True, (2000, 1000))):
        plan = hopper.plan(
            product(133 * 128, 256, 4096), H200, Tiling(128, 256, stream_k=True, swapped=swapped),
            a_at=Place(WORKSPACE, 1000), b_at=Place(WORKSPACE, 2000), workspace=4096,
        )  # fmt: skip
        main, summing = (step.launch for step in plan.steps)
        assert [one_map(x).place for x in main.args[:2]] == [Place(WORKSPACE, at) for at in places]
        assert main.args[-1] == summing.args[-1] == Place(WORKSPACE, 4096)


def cover_of(asked: Product, tiling: Tiling, multiprocessors: int) -> Cover:
    view = asked.transposed if tiling.swapped else asked
    return cover(tiling, view.m, view.n, view.k, view.batch, multiprocessors)


@examples(100)
@given(
    m=st.integers(1, 20000), n=st.integers(1, 20000), k=st.integers(1, 20000),
    batch=st.integers(1, 5), data=st.data(),
)  # fmt: skip
def test_launches(m: int, n: int, k: int, batch: int, data: st.DataObject) -> None:
    pitch = -(-k // 8) * 8 + data.draw(st.sampled_from([0, 1]))
    odd = {
        "a": Operand(pitch, 1, data.draw(st.sampled_from([0, pitch * m, pitch * m + 3]))),
        "b": Operand(-(-n // 8) * 8, 1, 0, data.draw(st.sampled_from([0, 6]))),
    }
    asked = product(m, n, k, batch=batch, **odd)
    tiling = data.draw(st.sampled_from(list(candidates(hopper.problem(asked), H200))))
    plan = hopper.plan(asked, H200, tiling)
    at = cover_of(asked, tiling, H200)
    main, *summing = (step.launch for step in plan.steps)
    loaders = 2 if tiling.is_unaligned else 0
    assert main.block == (128 * (1 + loaders + tiling.consumers), 1, 1)
    problem = hopper.problem(asked)
    assert main.shared == tiling.shared_bytes(problem.swapped if tiling.swapped else problem)
    assert main.grid[0] % (tiling.tiles * tiling.split) == 0
    assert main.grid[0] <= H200
    tiles = (at.m_tiles, at.n_tiles, at.data_parallel_tiles, at.tail_tiles, at.splits)
    assert main.args[5:10] == tiles
    assert bool(summing) == (at.tail_tiles > 0) == (plan.workspace > 0)
    for launch in summing:
        assert launch.grid[0] == at.tail_tiles * tiling.tiles
        assert launch.grid[1] * SUM_COLUMNS == tiling.block_n
        assert launch.args[1:4] == (tiling.block_n, tiling.cluster_m, tiling.cluster_n)
        clusters = (at.m_tiles // tiling.cluster_m, at.n_tiles // tiling.cluster_n)
        assert launch.args[4:9] == (*clusters, at.data_parallel_tiles, at.tail_tiles, at.splits)
        # A slot a part, each of a partial sum for each of a cluster's blocks.
        slots = at.tail_tiles * at.splits * tiling.tiles
        assert plan.workspace >= slots * 4 * tiling.block_m * tiling.block_n


# Each block_m, both ends of block_n, and every way of sharing, dividing and storing.
NT = {"b": Operand(1, 520)}
COMPILED: list[tuple[Tiling, dict[str, Any]]] = [
    (Tiling(128, 256), {}),
    (Tiling(128, 256, 2, stream_k=True), NT),
    (Tiling(128, 256, 1, 2), {"a": Operand(1, 304), "d": Operand(1, 304)}),
    (Tiling(256, 128, 2), NT),
    (Tiling(256, 192, stream_k=True), {**NT, "out_dtype": "float32"}),
    (Tiling(192, 128, 1, 2), {"dtype": "float16", "out_dtype": "float16"}),
    (Tiling(192, 112, 2, stream_k=True), {**NT, "d": Operand(1, 301)}),
    (Tiling(64, 256, split=2), {"beta": 2.0, "c": Operand(200, 1)}),
    (Tiling(64, 16, split=4), {**NT, "m": 3}),
    (Tiling(64, 240, stream_k=True), {**NT, "d": Operand(201, 1)}),
    (Tiling(128, 176, split=2, swapped=True), {"a": Operand(520, 1)}),
    (Tiling(128, 80, swapped=True), {"d": Operand(1, 304)}),
    (Tiling(256, 64, 1, 2, swapped=True), {"out_dtype": "float32", "d": Operand(1, 301)}),
    (Tiling(128, 256, 2, 2, stream_k=True), NT),
    # Realigned: the most that each thread adds up, both, and the longest schedule.
    (Tiling(64, 64, stream_k=True, a_unaligned=True), {"a": Operand(1, 301)}),
    (
        Tiling(64, 128, stream_k=True, a_unaligned=True, b_unaligned=True),
        {"a": Operand(521, 1), "b": Operand(1, 521), "d": Operand(201, 1)},
    ),
    (Tiling(128, 128, a_unaligned=True), {"a": Operand(521, 1), "d": Operand(201, 1)}),
    (Tiling(256, 64, b_unaligned=True), {"b": Operand(201, 1)}),
    (
        Tiling(64, 192, a_unaligned=True, b_unaligned=True),
        {"a": Operand(1, 301), "b": Operand(201, 1), "d": Operand(201, 1)},
    ),
    (Tiling(64, 16, split=4, a_unaligned=True), {**NT, "m": 3, "a": Operand(521, 1)}),
    (
        Tiling(64, 192, a_unaligned=True),
        {"a": Operand(1, 301), "out_dtype": "float32"},
    ),
    (
        Tiling(128, 128, a_unaligned=True, b_unaligned=True),
        {"a": Operand(521, 1), "b": Operand(1, 521), "d": Operand(1, 301)},
    ),
    (
        Tiling(64, 80, split=2, a_unaligned=True, b_unaligned=True),
        {"a": Operand(521, 1), "b": Operand(1, 521), "beta": 2.0, "c": Operand(200, 1)},
    ),
]


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("tiling", "changes"),
    [
        pytest.param(tiling, changes, id=str(tiling), marks=[thorough] * (place % 4 > 0))
        for place, (tiling, changes) in enumerate(COMPILED)
    ],
)
def test_compiles_without_spills(tiling: Tiling, changes: dict[str, Any]) -> None:
    plan = hopper.plan(product(**changes), H200, tiling)
    assert len(plan.steps) == 1 + tiling.stream_k
    for step in plan.steps:
        used = step.kernel.compile("sm_90a").resources
        assert used.spill_bytes == used.stack_bytes == 0
        assert step.launch.shared + used.shared_bytes <= max_shared("sm_90")
        assert used.registers * step.launch.block[0] <= REGISTERS


@pytest.fixture
def torch(device: Device) -> Any:
    """PyTorch, on a Hopper GPU."""
    if device.name != "gpu" or not device.arch.startswith("sm_90"):
        pytest.skip("needs a Hopper GPU: pytest --device gpu")
    return pytest.importorskip("torch")


@dataclass(frozen=True)
class Layout:
    """Where a batch of matrices lies in a buffer, in elements."""

    offset: int
    operand: Operand

    def seen(self, buffer: Any, batch: int, rows: int, columns: int) -> Any:
        """The matrices; one for all of a batch is expanded."""
        x = self.operand
        strides = x.batch_stride, x.row_stride, x.column_stride
        return buffer.as_strided((batch, rows, columns), strides, self.offset)


@dataclass(frozen=True)
class Case:
    """A product, its tiling, and where everything lies; each array in a buffer of its own."""

    product: Product
    tiling: Tiling
    a: Layout
    b: Layout
    c: Layout | None
    d: Layout
    in_place: bool


MARGIN = 128  # elements before and behind everything


@st.composite
def layouts(
    draw: st.DrawFn, item: int, batch: int, rows: int, columns: int, by_rows: bool, grain: int = 1
) -> Layout:
    """By rows or by columns, with strides and an offset that are multiples of ``grain``."""
    outer, inner = (rows, columns) if by_rows else (columns, rows)
    pitch = -(-inner // grain) * grain + grain * draw(st.sampled_from([0, 0, 1, 5]))
    step = outer * pitch + grain * draw(st.sampled_from([0, 0, 1, 3]))
    offset = MARGIN + grain * draw(st.integers(0, 8 // grain))
    strides = (pitch, 1) if by_rows else (1, pitch)
    return Layout(offset, Operand(*strides, step if batch > 1 else 0, item * offset % 16))


@st.composite
def cases(draw: st.DrawFn, a_by_rows: bool, b_by_rows: bool, multiprocessors: int) -> Case:
    extent = st.one_of(st.integers(1, 700), st.integers(1, 3000))
    m, n, k = draw(extent), draw(extent), draw(extent)
    if draw(st.booleans()):  # that bulk copies can store
        m, n = -(-m // 8) * 8, -(-n // 8) * 8
    batch = draw(st.sampled_from([1, 1, 2, 3])) if m * n < 2**21 else 1
    dtype = draw(st.sampled_from(sorted(hopper.HALVES)))
    out_dtype = draw(st.sampled_from([dtype, dtype, dtype, "float32"]))
    beta = draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.0]))
    alpha = draw(st.sampled_from([1.0, 1.0, -0.5, 3.0]))
    # One for all, of A or of B.
    one = draw(st.sampled_from(["", "", "a", "b"]))
    a_grain, b_grain = draw(st.sampled_from([(8, 8), (8, 8), (1, 8), (8, 1), (1, 1)]))
    a = draw(layouts(2, 1 if one == "a" else batch, m, k, a_by_rows, a_grain))
    b = draw(layouts(2, 1 if one == "b" else batch, k, n, b_by_rows, b_grain))
    by_rows, item = draw(st.booleans()), 4 if out_dtype == "float32" else 2
    grain = draw(st.sampled_from([8, 8, 2, 1]))
    d = draw(layouts(item, batch, m, n, by_rows, grain))
    in_place = beta != 0 and draw(st.booleans())
    c = d if in_place else draw(layouts(item, batch, m, n, by_rows))
    asked = Product(
        m, n, k, batch, dtype, out_dtype, alpha, beta, a.operand, b.operand, c.operand, d.operand
    )
    assume("C does not lie as D" not in hopper.objection(asked))  # of one row or column, both do
    problem = hopper.problem(asked)
    every = possible(problem)
    ways = (
        list(candidates(problem, multiprocessors)),
        every,
        [t for t in every if t.split > 1],
        [t for t in every if cover_of(asked, t, multiprocessors).splits > 1],
    )
    tiling = draw(st.one_of(*[st.sampled_from(way) for way in ways if way]))
    return Case(asked, tiling, a, b, c, d, in_place)


def buffer(torch: Any, layout: Layout, batch: int, rows: int, columns: int, dtype: str) -> Any:
    """NaN, as long as the matrices reach and a margin more."""
    x = layout.operand
    reach = (
        (batch - 1) * x.batch_stride + (rows - 1) * x.row_stride + (columns - 1) * x.column_stride
    )
    length = layout.offset + reach + 1 + MARGIN
    return torch.full((length,), math.nan, device="cuda", dtype=getattr(torch, dtype))


def address(buffer: Any, layout: Layout) -> int:
    return int(buffer.data_ptr()) + layout.offset * int(buffer.element_size())


def run(
    torch: Any, device: Any, plan: Plan, addresses: tuple[int, int, int, int], fill: int
) -> None:
    """Execute a plan, with a workspace full of some byte and of NaN on both sides."""
    margin = 4096
    workspace = torch.full((plan.workspace + 2 * margin,), 255, dtype=torch.uint8, device="cuda")
    workspace[margin : margin + plan.workspace] = fill
    stream = torch.cuda.current_stream().cuda_stream
    execute(plan, device, stream, (*addresses, workspace.data_ptr() + margin))
    assert bool((workspace[:margin] == 255).all())
    assert bool((workspace[margin + plan.workspace :] == 255).all())


def poison(torch: Any, device: Any) -> None:
    """Leave NaN in the shared memory of every multiprocessor."""
    x = torch.full((128 * device.multiprocessors, 1024), math.nan, device="cuda").half()
    y = torch.empty(len(x), 256, device="cuda", dtype=torch.float16)
    of_x, of_y = Operand(1024, 1), Operand(256, 1)
    asked = Product(
        len(x), 256, 1024, 1, "float16", "float16", 1.0, 0.0, of_x, Operand(1, 1024), None, of_y
    )
    plan = hopper.plan(asked, device.multiprocessors, Tiling(128, 256))
    run(torch, device, plan, (x.data_ptr(), x.data_ptr(), 0, y.data_ptr()), 0)


def bound(asked: Product, exact: Any, size: Any) -> Any:
    """Of |D - exact|: of k exact products, their sums in float32, alpha, beta and D's rounding.

    The tensor core truncates: twice the unit roundoff.
    """
    gamma = 2 * (asked.k + 4) * float(unit_roundoff("float32"))
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[asked.out_dtype]
    tiny = 2.0**-24 if asked.out_dtype == "float16" else 1e-38
    return gamma * size + rounding * exact.abs() * (1 + gamma) + rounding * gamma * size + tiny


# Processes that test in parallel each take a layout of A and B.
@pytest.mark.parametrize("b_by_rows", [True, False], ids=["B by rows", "B by columns"])
@pytest.mark.parametrize("a_by_rows", [True, False], ids=["A by rows", "A by columns"])
@pytest.mark.parametrize("part", range(2))
@examples(25)
@given(data=st.data())
def test_results(
    torch: Any, device: Any, data: st.DataObject, a_by_rows: bool, b_by_rows: bool, part: int
) -> None:
    case = data.draw(cases(a_by_rows, b_by_rows, device.multiprocessors))
    asked = case.product
    m, n, k, batch = asked.m, asked.n, asked.k, asked.batch
    assert hopper.objection(asked) == ""
    plan = hopper.plan(asked, device.multiprocessors, case.tiling)
    poison(torch, device)

    of_a, of_b = (
        buffer(torch, layout, batch, *shape, asked.dtype)
        for layout, shape in ((case.a, (m, k)), (case.b, (k, n)))
    )
    a, b = case.a.seen(of_a, batch, m, k), case.b.seen(of_b, batch, k, n)
    for x in (a, b):
        one = x[:1] if x.stride(0) == 0 else x
        one.copy_(torch.randn(one.shape, device="cuda"))
    of_d = buffer(torch, case.d, batch, m, n, asked.out_dtype)
    d = case.d.seen(of_d, batch, m, n)
    c_layout = case.c or case.d
    of_c = of_d if case.in_place else buffer(torch, c_layout, batch, m, n, asked.out_dtype)
    c = c_layout.seen(of_c, batch, m, n)
    if asked.beta:
        c.copy_(torch.randn(c.shape, device="cuda"))
    else:
        c.fill_(math.nan)  # it must not be read
    exact = asked.alpha * (a.double() @ b.double())
    size = abs(asked.alpha) * (a.double().abs() @ b.double().abs())
    if asked.beta:
        exact, size = exact + asked.beta * c.double(), size + abs(asked.beta) * c.double().abs()

    before = of_d.clone()
    outside = torch.ones_like(of_d, dtype=torch.bool)
    case.d.seen(outside, batch, m, n).fill_(False)
    addresses = (
        address(of_a, case.a), address(of_b, case.b), address(of_c, c_layout), address(of_d, case.d)
    )  # fmt: skip
    bits = torch.int32 if asked.out_dtype == "float32" else torch.int16
    results = []
    for fill in (255, 0):
        of_d.copy_(before)
        run(torch, device, plan, addresses, fill)
        changed = (of_d.view(bits) != before.view(bits)) & outside
        assert not bool(changed.any()), "something beside D was written"
        results.append(of_d.view(bits).clone())
    wrong = ~((d.double() - exact).abs() <= bound(asked, exact, size))
    assert not bool(wrong.any()), f"{int(wrong.sum())} of {d.numel()} elements"
    assert torch.equal(*results)  # two runs, the same bits


@pytest.mark.parametrize(
    "tiling",
    [
        Tiling(128, 128),
        Tiling(64, 64, 2, 1),
        Tiling(192, 64, 1, 2),
        Tiling(64, 128, split=4),
        Tiling(256, 64, stream_k=True),
        Tiling(128, 64, 1, 2, stream_k=True, swapped=True),
        Tiling(64, 64, 2, 2, stream_k=True),
        Tiling(64, 128, split=2, a_unaligned=True),
        Tiling(128, 64, stream_k=True, a_unaligned=True, b_unaligned=True),
    ],
    ids=str,
)
def test_nan_and_infinity_spread_as_far_as_they_should(
    torch: Any, device: Any, tiling: Tiling
) -> None:
    m, n, k = 333, 264, 520
    of_k, of_n = k + tiling.a_unaligned, n + tiling.b_unaligned  # lines that begin anywhere
    a, b = (torch.randn(shape, device="cuda").half() for shape in ((m, of_k), (k, of_n)))
    a, b = a[:, :k], b[:, :n]
    d = torch.empty(m, n, device="cuda", dtype=torch.float16)
    a[5, 0] = a[332, 519] = math.nan
    b[64, 7] = math.inf
    b[519, 263] = -math.inf
    asked = product(
        m, n, k, dtype="float16", out_dtype="float16", a=Operand(of_k, 1), b=Operand(of_n, 1)
    )  # fmt: skip
    plan = hopper.plan(asked, device.multiprocessors, tiling)
    run(torch, device, plan, (a.data_ptr(), b.data_ptr(), 0, d.data_ptr()), 255)
    # A product by 0 or of NaN is right in either precision; finite sums are tested above.
    exact = a.double() @ b.double()
    assert int(exact.isnan().sum()) == 2 * n
    assert int(exact.isinf().sum()) == 2 * (m - 2)
    assert torch.equal(d.isnan(), exact.isnan())
    assert torch.equal(d.isinf(), exact.isinf())
    assert torch.equal(d[d.isinf()].double(), exact[exact.isinf()])
