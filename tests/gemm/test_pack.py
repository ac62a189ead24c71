"""The repacking pass: exact copies, nothing read beside its source or written beside its copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from reference import Array

from tilewise.devices import Device
from tilewise.gemm import pack
from tilewise.gemm.pack import Packing, packed
from tilewise.gemm.product import WORKSPACE, Operand
from tilewise.places import Place

CANARY = 0xA5C3
MARGIN = 64  # elements around the copies


@dataclass(frozen=True)
class Source:
    """Matrices of random elements, ``offset`` elements past a multiple of 16 bytes."""

    rows: int
    columns: int
    row_stride: int
    column_stride: int
    batch: int = 1
    batch_stride: int = 0
    offset: int = 0

    @property
    def packing(self) -> Packing:
        strides = self.row_stride, self.column_stride, self.batch_stride
        operand = Operand(*strides, 2 * self.offset % 16)
        return packed(operand, self.rows, self.columns, self.batch)

    @property
    def elements(self) -> int:
        """From the first one to the last."""
        return (
            (self.batch - 1) * self.batch_stride
            + (self.rows - 1) * self.row_stride
            + (self.columns - 1) * self.column_stride
            + 1
        )

    def seen(self, elements: Array) -> Array:
        """The matrices among their elements."""
        return matrices(
            elements, self.batch, self.rows, self.columns,
            Operand(self.row_stride, self.column_stride, self.batch_stride),
        )  # fmt: skip


def matrices(elements: Array, batch: int, rows: int, columns: int, operand: Operand) -> Array:
    strides = operand.batch_stride, operand.row_stride, operand.column_stride
    return as_strided(elements, (batch, rows, columns), tuple(2 * stride for stride in strides))


def guarded(elements: Array, offset: int) -> tuple[Array, int]:
    """An array whose second row holds the elements, ``offset`` past a multiple of 16 bytes.

    What lies before them is a gap between the rows, which the emulator lets nobody read, and
    after them there is nothing. Returns the row's place too, in elements.
    """
    pitch = -(-len(elements) // 8) * 8 + 16 + offset
    whole = np.zeros(pitch + len(elements), np.uint16)
    rows = as_strided(whole, (2, len(elements)), (2 * pitch, 2))
    rows[1] = elements
    return rows, pitch


def check(device: Device, *sources: Source, overlap: bool = False) -> None:
    """Repack the sources by one launch."""
    random = np.random.default_rng(len(sources) + sources[0].elements)
    elements = [random.integers(0, 2**16, s.elements, np.uint16) for s in sources]
    addresses, copies, held, places = [0] * 5, [], [], []
    end = MARGIN
    for i, (source, values) in enumerate(zip(sources, elements, strict=True)):
        host, place = guarded(values, source.offset)
        held.append(device.array(host))
        addresses[i] = held[-1].pointer + 2 * place
        places.append(end)
        copies.append((source.packing, Place(i), Place(WORKSPACE, 2 * end)))
        end += source.packing.bytes // 2
    workspace = device.array(np.full(end + MARGIN, CANARY, np.uint16))
    addresses[WORKSPACE] = workspace.pointer
    step = pack.step(copies, overlap)
    device.launch(step.kernel.compile(device.arch), step.launch.filled(addresses))

    result = workspace.to_numpy()
    untouched = np.ones(len(result), bool)
    for source, values, place in zip(sources, elements, places, strict=True):
        packing = source.packing
        copy = matrices(result[place:], source.batch, source.rows, source.columns, packing.operand)
        np.testing.assert_array_equal(copy, source.seen(values))
        # The rows' last pieces may be written as a whole.
        lines, pitch = packing.batch * packing.rows, packing.bytes // 2
        pitch //= lines
        written = untouched[place : place + lines * pitch].reshape(lines, pitch)
        written[:, : -(-packing.columns // 8) * 8] = False
    assert (result[untouched] == CANARY).all()


EXTENTS = st.one_of(st.integers(1, 20), st.integers(1, 300))


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Of any strides: contiguous in either dimension or neither, with gaps, shared, overlapping."""
    rows, columns, batch = draw(EXTENTS), draw(EXTENTS), draw(st.integers(1, 4))
    while rows * columns * batch > 40_000:
        rows, columns = (rows + 1) // 2, (columns + 1) // 2
    inner = draw(st.sampled_from([1, 1, 1, 1, 2, 3, 0]))
    outer = draw(st.sampled_from([0, 1, 7, 8, 13])) + columns * inner
    outer = draw(st.sampled_from([outer, outer, outer, outer, 1, 0]))
    source = Source(rows, columns, outer, inner, batch, 0, draw(st.integers(0, 7)))
    one = replace(source, batch=1).elements
    source = replace(
        source, batch_stride=draw(st.sampled_from([0, one, one + 3, one + 8, rows * outer]))
    )
    if draw(st.booleans()):
        source = replace(source, rows=columns, columns=rows, row_stride=inner, column_stride=outer)
    return source


@given(source=sources())
def test_any_strides(device: Device, source: Source) -> None:
    check(device, source)


@given(first=sources(), second=sources())
def test_two_in_one_launch(device: Device, first: Source, second: Source) -> None:
    check(device, first, second)


@given(columns=st.integers(1, 15), rows=st.integers(1, 3000), offset=st.integers(0, 7))
def test_few_columns(device: Device, columns: int, rows: int, offset: int) -> None:
    check(device, Source(rows, columns, columns, 1, offset=offset))


@given(rows=st.integers(1, 3), columns=st.integers(5000, 20_000), offset=st.integers(0, 7))
def test_few_rows(device: Device, rows: int, columns: int, offset: int) -> None:
    check(device, Source(rows, columns, columns, 1, offset=offset))


@given(
    batch=st.integers(100, 700), rows=st.integers(1, 6), columns=st.integers(1, 20),
    gap=st.integers(0, 9),
)  # fmt: skip
def test_large_batches(device: Device, batch: int, rows: int, columns: int, gap: int) -> None:
    check(device, Source(rows, columns, columns, 1, batch, rows * columns + gap, 1))


@pytest.mark.parametrize("matrices_apart", [False, True])
def test_far_apart(emulator: Device, matrices_apart: bool) -> None:
    """Two rows, or two matrices, further from one another than 32 bits count."""
    random = np.random.default_rng(0)
    # What the aligned words around a row's ends hold beside it is between the first and last.
    hosts = random.integers(0, 2**16, (2, 32), np.uint16)
    near, far = sorted((emulator.array(host) for host in hosts), key=lambda x: x.pointer)
    apart = (far.pointer - near.pointer) // 2
    assert apart > 2**31
    operand = Operand(21, 1, apart, 2) if matrices_apart else Operand(apart, 1, 0, 2)
    packing = packed(operand, 1 if matrices_apart else 2, 21, 2 if matrices_apart else 1)
    copy = emulator.array(np.zeros((2, pack.PITCH), np.uint16))
    step = pack.step([(packing, Place(0), Place(1))])
    compiled = step.kernel.compile(emulator.arch)
    emulator.launch(compiled, step.launch.filled([near.pointer + 6, copy.pointer]))
    expected = [x.to_numpy()[3:24] for x in (near, far)]
    np.testing.assert_array_equal(copy.to_numpy()[:, :21], expected)


@given(first=sources(), second=sources())
def test_overlapping_launches(device: Device, first: Source, second: Source) -> None:
    if device.name != "gpu" or int(device.arch[3:5]) < 90:
        pytest.skip("needs a GPU of compute capability 9.0 or above: pytest --device gpu")
    check(device, first, second, overlap=True)


def test_waits_before_it_reads_or_writes() -> None:
    copy = packed(Operand(7, 1), 5, 7, 1), Place(0), Place(WORKSPACE)
    step = pack.step([copy], overlap=True)
    assert step.launch.overlap
    ahead, waits, behind = step.kernel.compile("sm_90a").ptx.partition("griddepcontrol.wait;")
    assert waits
    for access in ("ld.global", "st.global"):
        assert access not in ahead
        assert access in behind
    in_turn = pack.step([copy])
    assert not in_turn.launch.overlap
    assert "griddepcontrol" not in in_turn.kernel.compile("sm_90a").ptx


def test_more_elements_than_32_bits_count(device: Device) -> None:
    if device.name != "gpu":
        pytest.skip("needs 10 GB of a GPU's memory: pytest --device gpu")
    torch = pytest.importorskip("torch")
    rows, columns = 300_000, 8193
    if torch.cuda.mem_get_info()[0] < 12e9:
        pytest.skip("needs 10 GB of a GPU's free memory")
    source = torch.empty(rows, columns, dtype=torch.int16, device="cuda").random_()
    packing = packed(Operand(columns, 1), rows, columns, 1)
    copy = torch.empty(packing.bytes // 2, dtype=torch.int16, device="cuda")
    torch.cuda.synchronize()
    step = pack.step([(packing, Place(0), Place(1))])
    launch = step.launch.filled([source.data_ptr(), copy.data_ptr()])
    device.launch(step.kernel.compile(device.arch), launch)
    assert torch.equal(copy.view(rows, -1)[:, :columns], source)


def test_the_contiguous_dimension_stays() -> None:
    assert packed(Operand(4097, 1, 0, 2), 4095, 4097, 1).operand == Operand(4160, 1)
    assert packed(Operand(1, 4097, 0, 2), 4095, 4097, 1).operand == Operand(1, 4096)
    # Neither: the smaller stride's. Of an extent of 1 no stride counts.
    assert packed(Operand(300, 2), 100, 100, 1).operand == Operand(128, 1)
    assert packed(Operand(2, 300), 100, 90, 1).operand == Operand(1, 128)
    assert packed(Operand(3, 1), 100, 1, 1).operand == Operand(1, 128)
    assert packed(Operand(1, 3), 1, 100, 1).operand == Operand(128, 1)


def test_matrices_that_are_one() -> None:
    shared = packed(Operand(7, 1, 0), 5, 7, 9)
    assert (shared.operand, shared.batch, shared.bytes) == (Operand(64, 1), 1, 2 * 5 * 64)
    joined = packed(Operand(7, 1, 35), 5, 7, 9)
    assert joined.operand == Operand(64, 1, 5 * 64)
    assert (joined.rows, joined.batch, joined.bytes) == (45, 1, 2 * 45 * 64)
    apart = packed(Operand(7, 1, 36), 5, 7, 9)
    assert apart.operand == joined.operand
    assert (apart.rows, apart.batch, apart.bytes) == (5, 9, 2 * 45 * 64)


@pytest.mark.parametrize("extents", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2**31, 1, 1), (2, 1, 2**30)])
def test_refuses_extents(extents: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="can't be repacked"):
        packed(Operand(1, 1, 1), *extents)


@pytest.mark.parametrize("count", [0, 3])
def test_one_or_two_copies(count: int) -> None:
    copy = packed(Operand(7, 1), 5, 7, 1), Place(0), Place(WORKSPACE)
    with pytest.raises(ValueError, match=f"{count} copies"):
        pack.step([copy] * count)


def test_refuses_a_grid_too_large() -> None:
    packing = packed(Operand(2**30, 1), 2**30, 2**30, 1)
    with pytest.raises(ValueError, match="blocks"):
        pack.step([(packing, Place(0), Place(WORKSPACE))])
