"""Plans: what answers a product, where it has its matrices, and what it says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_pack import CANARY, Source, sources

from tilewise import pack, plan, tuned, unpack
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.kernel import Kernel
from tilewise.launch import Packed, Place, TensorMap
from tilewise.plan import as_read, plan_on, plan_product
from tilewise.product import WORKSPACE, A, B, D, Operand, Product
from tilewise.steps import Plan
from tilewise.tilings import Tiling
from tilewise.tuned import H200


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tuned, "tiling", lambda product, chip: None)
    plan_on.cache_clear()
    yield
    plan_on.cache_clear()


def product(m: int, n: int, k: int, **changes: Any) -> Product:
    """Row-major, bfloat16, in one piece each."""
    operands = {"a": Operand(k, 1), "b": Operand(n, 1), "c": None, "d": Operand(n, 1)}
    plain: dict[str, Any] = {
        "batch": 1, "dtype": "bfloat16", "out_dtype": "bfloat16", "alpha": 1.0, "beta": 0.0,
    }  # fmt: skip
    return Product(m, n, k, **{**plain, **operands, **changes})


def names(found: Plan) -> list[str]:
    return [step.kernel.name for step in found.steps]


def maps(found: Plan) -> list[TensorMap]:
    """Of the Hopper kernel."""
    (step,) = (step for step in found.steps if step.kernel.name == "hopper")
    return [x for x in step.launch.args[:3] if isinstance(x, TensorMap)]


def test_what_can_be_read_is_not_repacked() -> None:
    found = plan_on(product(1024, 1024, 1024), H200)
    assert names(found) == ["hopper"]
    assert found.workspace == 0
    assert found.chosen.startswith("the Hopper kernel, tiles of")


def test_both_operands_in_one_launch() -> None:
    asked = product(511, 513, 517)
    found = plan_on(asked, H200)
    assert names(found)[:2] == ["pack", "hopper"]
    assert found.steps[0].launch.overlap
    a, b = maps(found)[:2]
    of_a, of_b = (pack.packed(*x, 1) for x in ((asked.a, 511, 517), (asked.b, 517, 513)))
    places = {a.place, b.place}
    assert places == {Place(WORKSPACE, 0), Place(WORKSPACE, -(-of_a.bytes // 256) * 256)}
    assert found.workspace >= of_a.bytes + of_b.bytes
    assert found.chosen.startswith(
        "A and B repacked, as A has a stride of 1034 bytes, no multiple of 16; "
        "then the Hopper kernel, tiles of"
    )


@pytest.mark.parametrize(
    ("changes", "which", "words"),
    [
        ({"a": Operand(1025, 1)}, A, "A has a stride of 2050 bytes"),
        ({"a": Operand(1024, 1, 0, 2)}, A, "A does not begin at a multiple of 16"),
        ({"b": Operand(2048, 2)}, B, "B has no contiguous dimension"),
        ({"b": Operand(1, 1031)}, B, "B has a stride of 2062 bytes"),
    ],
)
def test_only_what_needs_it(changes: dict[str, Any], which: int, words: str) -> None:
    found = plan_on(product(1024, 1024, 1024, **changes), H200)
    assert names(found)[0] == "pack"
    assert found.workspace % 256 == 0
    assert found.chosen.startswith(f"{'AB'[which]} repacked, as {words}")
    read = {x.place for x in maps(found)[:2]}
    assert read == {Place(WORKSPACE, 0), Place(B if which == A else A)}


def test_the_workspace_has_room_for_all() -> None:
    """Copies of A, B and D, and after them the partial sums, each at a multiple of 256 bytes."""
    asked = product(4095, 4097, 4099)
    found = plan_on(asked, H200)
    assert names(found)[0] == "pack"
    assert names(found)[-1] == "unpack"
    at = [
        place.offset
        for step in found.steps
        for x in step.launch.args
        if isinstance(x, Packed)
        for _, place in x.places
        if place.array == WORKSPACE
    ]
    assert all(offset % 256 == 0 for offset in at)
    rows = 4095 * 4160 + 4099 * 4160 + 4095 * 4160
    assert found.workspace >= 2 * rows
    assert "D copied from the workspace" in found.chosen


def test_d_goes_through_the_workspace_only_where_it_pays() -> None:
    off = product(3001, 3001, 3000, a=Operand(3000, 1))
    assert names(plan_on(off, H200))[-1] == "unpack"
    assert "unpack" not in names(plan_on(replace(off, d=Operand(3008, 1)), H200))
    assert "unpack" not in names(plan_on(product(301, 301, 301), H200))
    # Where it is read, or stored as float32, it is written where it belongs.
    assert "unpack" not in names(plan_on(replace(off, out_dtype="float32"), H200))
    assert "unpack" not in names(plan_on(replace(off, beta=1.0, c=off.d), H200))


def test_a_d_with_no_contiguous_dimension() -> None:
    strided = product(1024, 1024, 1024, d=Operand(2048, 2))
    found = plan_on(strided, H200)
    assert names(found) == ["hopper", "unpack"]
    assert as_read(strided).d == Operand(1024, 1)
    found = plan_on(replace(strided, out_dtype="float32"), H200)
    assert names(found) == ["gemm_any"]
    assert "neither dimension of D" in found.why


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float32", "out_dtype": "float32"}, "the inputs are float32"),
        ({"alpha": 0.0}, "nothing to multiply"),
        ({"c": Operand(1, 1000), "beta": 1.0}, "C does not lie as D does"),
    ],
)
def test_the_general_kernel_says_why(changes: dict[str, Any], words: str) -> None:
    found = plan_on(product(1000, 1000, 1000, **changes), H200)
    assert names(found) == ["gemm_any"]
    assert found.workspace == 0
    assert words in found.why
    assert found.chosen == "the general kernel, tiles of 64 x 64"


def test_other_devices_repack_nothing() -> None:
    found = plan_on(product(511, 513, 517), None)
    assert (names(found), found.workspace) == (["gemm_any"], 0)
    assert "no Hopper GPU" in found.why
    assert names(plan_on(product(0, 513, 517), H200)) == []


def test_a_flat_product_takes_one_launch() -> None:
    """Of the general kernel: two others would take longer."""
    found = plan_on(product(1025, 1025, 9), H200)
    assert names(found) == ["gemm_any"]
    assert "by the others it should take" in found.why


def test_a_few_rows_read_the_weight_where_it_lies() -> None:
    asked = product(1, 4096, 4095, b=Operand(1, 4095))
    found = plan_on(asked, H200)
    assert (names(found), found.workspace) == (["thin"], 0)
    deep = product(65537, 17, 1023, a=Operand(1, 65537))
    assert names(plan_on(deep, H200)) == ["pack", "thin"]


def test_a_tiling_can_be_asked_for() -> None:
    asked = product(1, 4096, 4095, b=Operand(1, 4095))
    found = plan_on(asked, H200, Tiling(64, 64))
    assert names(found) == ["pack", "hopper"]
    assert found.why == "asked for"
    with pytest.raises(ValueError, match="float32"):
        plan_on(replace(asked, dtype="float32", out_dtype="float32"), H200, Tiling(64, 64))


def test_a_kept_tiling_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Tiling(64, 128)
    asked = product(511, 513, 517)
    monkeypatch.setattr(tuned, "tiling", lambda p, chip: kept if p == asked else None)
    found = plan_on(asked, H200)
    assert str(kept) in found.chosen
    assert "fastest of those that were measured" in found.why


SIZES = st.one_of(st.integers(1, 64), st.integers(1, 6000))


@settings(max_examples=100)
@given(m=SIZES, n=SIZES, k=SIZES, batch=st.integers(1, 3), data=st.data())
def test_every_16_bit_product_has_a_plan(
    m: int, n: int, k: int, batch: int, data: st.DataObject
) -> None:
    def operand(rows: int, columns: int) -> Operand:
        inner = data.draw(st.sampled_from([1, 1, 1, 2]))
        by_columns, gap = data.draw(st.booleans()), data.draw(st.integers(0, 9))
        length, lines = (rows, columns) if by_columns else (columns, rows)
        pitch = length * inner + gap
        strides = (inner, pitch) if by_columns else (pitch, inner)
        step = data.draw(st.sampled_from([lines * pitch, lines * pitch + 8])) if batch > 1 else 0
        return Operand(*strides, step, data.draw(st.sampled_from([16, 16, 2, 4])))

    asked = product(
        m, n, k, batch=batch, a=operand(m, k), b=operand(k, n), d=operand(m, n)
    )  # fmt: skip
    found = plan_on(asked, H200)
    assert found.steps
    assert found.chosen
    assert found.why
    used = any(
        place.array == WORKSPACE
        for step in found.steps
        for x in step.launch.args
        for place in (
            [p for _, p in x.places] if isinstance(x, Packed)
            else [x.place] if isinstance(x, TensorMap)
            else [x] if isinstance(x, Place) else []
        )
    )  # fmt: skip
    assert used == (found.workspace > 0)


def test_the_way_of_a_device(emulator: Device) -> None:
    assert not isinstance(emulator, Gpu)
    assert plan.chip_of(emulator) is None
    assert names(plan_product(product(9, 9, 9), emulator)) == ["gemm_any"]


@settings(max_examples=25)
@given(source=sources())
def test_unpacking_undoes_packing(device: Device, source: Source) -> None:
    """And writes nothing beside the elements."""
    packing = source.packing
    reach = source.elements
    touched = np.zeros(reach, np.int64)
    np.add.at(touched, source.seen(np.arange(reach, dtype=np.uint16)).ravel(), 1)
    assume(reach < 2**16 and touched.max() == 1)  # no two elements share memory
    random = np.random.default_rng(reach)
    values = random.integers(0, 2**16, reach, np.uint16)
    ahead = -(-reach // 8) * 8 + 16 + source.offset
    there = device.array(np.concatenate([np.full(ahead, CANARY, np.uint16), values]))
    new = device.array(np.full(ahead + reach + 16, CANARY, np.uint16))
    workspace = device.empty((packing.bytes,), np.uint8)
    steps = (
        pack.step([(packing, Place(0, 2 * ahead), Place(1))]),
        unpack.step(packing, Place(1), Place(2, 2 * ahead)),
    )
    addresses = (there.pointer, workspace.pointer, new.pointer)
    for step in steps:
        device.launch(step.kernel.compile(device.arch), step.launch.filled(addresses))
    expected = np.full(ahead + reach + 16, CANARY, np.uint16)
    expected[ahead:-16][touched > 0] = values[touched > 0]
    np.testing.assert_array_equal(new.to_numpy(), expected)


@pytest.mark.parametrize(
    "kernel",
    [
        Kernel(unpack.SOURCE, "unpack", {"OVERLAP": 1}),
        plan_on(product(1, 4096, 4095, b=Operand(1, 4095)), H200).steps[-1].kernel,
    ],
)
def test_waits_before_it_reads_or_writes(kernel: Kernel) -> None:
    ahead, waits, behind = kernel.compile("sm_90a").ptx.partition("griddepcontrol.wait;")
    assert waits
    assert "st.global" not in ahead[ahead.find(".entry") :]
    assert "st.global" in behind


def test_refuses_a_grid_too_large() -> None:
    packing = pack.packed(Operand(2**30, 1), 2**30, 2**30, 1)
    with pytest.raises(ValueError, match="blocks"):
        unpack.step(packing, Place(0), Place(D))
