"""Layouts of the kernels' structures: as NVRTC lays them out, and packed by name."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tilewise import compiler
from tilewise.devices.emulator import Emulator
from tilewise.gemm.layouts import Layout, batched_matrix, layout
from tilewise.gemm.product import Operand
from tilewise.kernel import SOURCES
from tilewise.launch import Launch
from tilewise.places import Packed, Place, TensorMap

GEMM = SOURCES / "gemm"
REALS = ("float", "double")
GENERAL = {"INPUT": "float", "ACCUMULATE": "float"}
THIN = {
    "K_MAJOR": 1, "TILES": 1, "GROUPS": 1, "SPLIT": 1, "BLOCKS": 1, "INPUT": "float16",
    "OUTPUT": "float", "OVERLAP": 1,
}  # fmt: skip
MMA = {
    "INPUT": "float16", "OUTPUT": "float16", "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32,
    "WARP_M": 32, "WARP_N": 32, "STAGES": 2, "BLOCKS": 1, "A_K_MAJOR": 1, "A_WIDTH": 8,
    "A_PARTIAL": 0, "A_UNALIGNED": 0, "B_K_MAJOR": 0, "B_WIDTH": 8, "B_PARTIAL": 0,
    "B_UNALIGNED": 0, "D_UNALIGNED": 0, "OVERLAP": 0,
}  # fmt: skip
SUMS = {"WIDTH": 8, "CLUSTER": 8, "OVERLAP": 1}
# File, structure, what it is instantiated for, and macros that the file needs.
STRUCTURES = [
    *[
        ("product.cuh", "Product", dict.fromkeys(("In", "Out", "Real"), x), {"OVERLAP": 1})
        for x in REALS
    ],
    ("mma.cu", "Product", {"In": "u16", "Out": "float16", "Real": "float"}, MMA),
    *[
        ("splitk_sum.cu", "Sum", {"real": x, "OUTPUT": x}, {"LANES": 1, "OVERLAP": 1})
        for x in REALS
    ],
    ("splitk_sum.cu", "Sum", {"real": "float", "OUTPUT": "float16"}, {"LANES": 1, "OVERLAP": 1}),
    *[("thin_real.cuh", "Product", {"real": x}, {"WIDTH": 1, "FEW_WIDTH": 1}) for x in REALS],
    *[("transpose.cu", "Transposition", {"real": real}, {"OVERLAP": 1}) for real in REALS],
    *[("general.cu", "Product", {"OUTPUT": x}, GENERAL) for x in ("float", "bfloat16")],
    ("thin_half.cu", "Product", {}, THIN),
    ("pack.cu", "Copies", {}, {"OVERLAP": 1}),
    ("column_sums.cu", "ColumnSums", {"INPUT": "bfloat16", "OUTPUT": "float"}, SUMS),
    ("unpack.cu", "Copy", {}, {"OVERLAP": 1}),
    ("hopper.cu", "MappedOperand", {}, {}),
    ("hopper.cu", "UnalignedOperand", {}, {}),
    ("hopper.cu", "Out", {}, {}),
]


def as_compiled(
    file: Path, found: Layout, spelled: str, defines: Mapping[str, object]
) -> list[int]:
    """What a kernel says of a structure: size, alignment, and each scalar's offset and size.

    The emulator runs the kernel: NVRTC has no ``offsetof`` that is a constant expression before
    CUDA 13.1.
    """
    asked = [f"sizeof({spelled})", f"alignof({spelled})"]
    for name, _, _ in found.scalars():
        member = f"(({spelled}*)0)->{name}"
        asked += [f"(unsigned long long)&{member}", f"sizeof({member})"]
    lines = [f"out[{index}] = {expression};" for index, expression in enumerate(asked)]
    source = "\n".join([
        f'#include "{file.name}"', 'extern "C" __global__ void told(unsigned long long* out) {',
        *lines, "}",
    ])  # fmt: skip
    path = file.with_name("told.cu")
    kernel = compiler.compile(
        source, "told", defines=defines, path=path, lines=False, machine_code=False
    )
    out = np.zeros(len(asked), np.uint64)
    Emulator().launch(kernel, Launch((1, 1, 1), (1, 1, 1), (out,)))
    return out.tolist()


def as_packed(found: Layout) -> list[int]:
    """The same of the bytes that Python packs."""
    scalars = ((offset, struct.calcsize("<" + code)) for _, offset, code in found.scalars())
    return [found.size, found.alignment, *(number for pair in scalars for number in pair)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("file", "name", "types", "defines"), STRUCTURES)
def test_nvrtc_lays_structures_out_likewise(
    file: str, name: str, types: dict[str, str], defines: dict[str, object]
) -> None:
    found = layout(GEMM / file, name, **types)
    is_template = "In" in types
    spelled = f"{name}<{', '.join(types.values())}>" if is_template else name
    macros = {**defines, **({} if is_template else types)}
    assert any(found.scalars())
    assert as_compiled(GEMM / file, found, spelled, macros) == as_packed(found)


HEADER = """#pragma once
// struct Odd { int not_this; };
struct alignas(64) TensorMap { char bytes[128]; };
template <typename T> struct Pair {
    T first, *second;  // a number and a pointer
    static constexpr int COUNT = 2;
    __device__ T sum() const { return first + *second; }
};
"""
SOURCE = """#include "inner.cuh"
struct Odd {
    unsigned short tag;
    const float* pointer;
    Pair<const real> pairs[2];
    int last; /* int gone; */
};
struct WithMap { int count; TensorMap map; float scale; };
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "inner.cuh").write_text(HEADER)
    (tmp_path / "outer.cuh").write_text(SOURCE)
    return tmp_path / "outer.cuh"


def test_nested_structures_arrays_and_holes(file: Path) -> None:
    found = layout(file, "Odd", real="double")
    assert (found.size, found.alignment) == (56, 8)
    assert [(name, offset) for name, offset, _ in found.scalars()] == [
        ("tag", 0), ("pointer", 8), ("pairs[0].first", 16), ("pairs[0].second", 24),
        ("pairs[1].first", 32), ("pairs[1].second", 40), ("last", 48),
    ]  # fmt: skip
    assert as_compiled(file, found, "Odd", {"real": "double"}) == as_packed(found)
    narrow = layout(file, "Odd", real="float")
    assert [offset for name, offset, _ in narrow.scalars() if name == "pairs[1].first"] == [32]
    assert as_compiled(file, narrow, "Odd", {"real": "float"}) == as_packed(narrow)


def test_the_first_declaration_counts_and_no_header_behind_it_is_read(file: Path) -> None:
    assert layout(file, "Pair", T="double").size == 16
    own = file.with_name("own.cuh")
    headers = '  #  include "inner.cuh"\n#include "absent.cuh"\n'
    own.write_text(f"{headers}struct Own {{ Pair<int> pair; }};")
    assert layout(own, "Own").size == 16
    own = file.with_name("pair.cuh")
    own.write_text(f"{headers}struct Pair {{ int first; }}; struct Own {{ Pair pair; }};")
    assert layout(own, "Own").size == 4
    with pytest.raises(FileNotFoundError, match="absent"):
        layout(own, "Absent")


def test_values_are_packed_by_name(file: Path) -> None:
    pair = {"first": 0.5, "second": Place(3, 8)}
    values = {"last": -1, "pointer": Place(2), "pairs": [pair], "tag": 7}
    packed = layout(file, "Odd", real="double").pack(values)
    data = struct.pack("<H6xQdQdQi4x", 7, 0, 0.5, 0, 0.0, 0, -1)
    assert packed == Packed(data, ((8, Place(2)), (24, Place(3, 8))))
    # What is None is all zeros.
    packed = layout(file, "Odd", real="double").pack({**values, "pointer": None, "pairs": []})
    assert packed == Packed(struct.pack("<H46xi4x", 7, -1))


def test_a_tensor_map_in_a_structure(file: Path) -> None:
    found = layout(file, "WithMap")
    assert (found.size, found.alignment) == (256, 64)
    map = TensorMap.of_matrices(Place(1), "float32", (4, 4, 1), (16, 64), (4, 4))
    packed = found.pack({"count": 3, "map": map, "scale": 2.0})
    assert packed == Packed(struct.pack("<i188xf60x", 3, 2.0), maps=((64, map),))


def test_a_batched_matrix() -> None:
    assert batched_matrix(None, Place(1)) is None
    assert batched_matrix(Operand(4, 1, 16), Place(1)) == {
        "pointer": Place(1), "row_stride": 4, "column_stride": 1, "batch_stride": 16,
    }  # fmt: skip


def test_bad_fields(file: Path) -> None:
    found = layout(file, "WithMap")
    with pytest.raises(TypeError, match=r"WithMap .*\['scale'\]"):
        found.pack({"count": 3, "map": None})
    with pytest.raises(TypeError, match=r"\['extra'\]"):
        found.pack({"count": 3, "map": None, "scale": 1, "extra": 1})
    with pytest.raises(TypeError, match="an array of 2 is given 3 values"):
        layout(file, "Odd", real="float").pack(
            {"tag": 0, "pointer": None, "pairs": [None] * 3, "last": 0}
        )
    with pytest.raises(ValueError, match="no structure Absent is declared"):
        layout(file, "Absent")
    with pytest.raises(ValueError, match="'real' is a type of unknown size"):
        layout(file, "Odd")
    bad = file.with_name("bad.cuh")
    bad.write_text("struct Bad { int x : 3; };")
    with pytest.raises(ValueError, match="'int x :' is a type of unknown size"):
        layout(bad, "Bad")
