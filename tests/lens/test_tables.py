"""The tables of a trace: layouts of matrices, and patterns of places."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.ptx.tiles import Tile, left, right, total
from tilewise.devices.emulator.ptx.wmma import BITS, SHAPES, is_product, plain, tile
from tilewise.lens.tables import NOTHING, Tables, called
from tilewise.lens.tables import plain as as_data

TILES = [
    *(each(m, k, packed) for each in (left,) for m in (8, 16) for k in (4, 8, 16, 32)
      for packed in (1, 2, 4) if k % (4 * packed) == 0),
    *(right(k, 8, packed) for k in (4, 8, 16, 32) for packed in (1, 2, 4) if k % (4 * packed) == 0),
    *(total(m, 8) for m in (8, 16)),
    *(tile(role, shape, type_) for shape in SHAPES for type_ in BITS for role in "abc"
      if type_ == plain(type_) and any(is_product(shape, type_, d) for d in BITS)),
]  # fmt: skip


def instruction(opcode: str, modifiers: str) -> Instruction:
    return Instruction(opcode, tuple(modifiers.split(".")), (), None, 1, 0)


@pytest.mark.parametrize("of", TILES)
def test_a_place_is_the_lanes_and_the_elements_added(of: Tile) -> None:
    found = as_data(Held.of_tile("A", "f16", of, 1))
    lanes, elements = np.array(found["lanes"]), np.array(found["elements"])
    places = lanes[:, None] + elements
    np.testing.assert_array_equal(places[..., 0], of.row)
    np.testing.assert_array_equal(places[..., 1], of.column)
    assert (found["rows"], found["columns"]) == (of.rows, of.columns)


def test_a_layout_that_is_no_sum_is_not_passed_off_as_one() -> None:
    row = np.array([[0, 1], [1, 0]])
    with pytest.raises(AssertionError):
        as_data(Held("A", "f16", 2, 1, row, np.zeros_like(row), 1))


@pytest.mark.parametrize(
    ("opcode", "modifiers", "name"),
    [
        ("mma", "sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.m16n8k16"),
        ("ldmatrix", "sync.aligned.m8n8.x4.trans.shared.b16", "ldmatrix.m8n8.x4.trans"),
        ("wgmma", "mma_async.sync.aligned.m64n256k16.f32.f16.f16", "wgmma.m64n256k16"),
        ("wmma", "load.a.sync.aligned.row.m16n16k16.shared.f16", "wmma.load.a.m16n16k16"),
    ],
)
def test_what_an_instruction_is_called(opcode: str, modifiers: str, name: str) -> None:
    assert called(instruction(opcode, modifiers)) == name


def test_a_pattern_is_kept_once_wherever_it_begins() -> None:
    tables = Tables()
    assert tables.pattern(np.array([32, 16, NOTHING])) == (0, 16)
    assert tables.pattern(np.array([1032, 1016, NOTHING])) == (0, 1016)
    assert tables.pattern(np.array([16, 32, NOTHING])) == (1, 16)
    assert tables.pattern(np.array([NOTHING])) == (2, 0)
    assert tables.patterns == [[16, 0, None], [0, 16, None], [None]]


def test_a_layout_is_kept_once() -> None:
    tables, held = Tables(), (Held.of_tile("A", "f16", left(16, 16, 2), 2),)
    one, other = instruction("mma", "sync.m16n8k16"), instruction("mma", "sync.m16n8k8")
    assert [tables.layout(x, held) for x in (one, other, one)] == [0, 1, 0]
    assert [each["what"] for each in tables.layouts] == ["mma.m16n8k16", "mma.m16n8k8"]
