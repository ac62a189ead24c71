"""Plans: what answers a product, where it has its matrices, and what it says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import examples
from test_pack import CANARY, Source, sources

from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.gemm import kept, pack, plan, unpack
from tilewise.gemm.chip import H200
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper import model
from tilewise.gemm.families.hopper.family import Hopper
from tilewise.gemm.families.hopper.readings import readings
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.plan import plan_on, plan_product
from tilewise.gemm.product import WORKSPACE, A, B, D, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import Kernel
from tilewise.places import Packed, Place, TensorMap


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kept, "find", lambda product, chip: None)
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


def read(asked: Product) -> Product:
    """As the Hopper kernel finds it."""
    found = readings(asked)
    chosen = model.best([x.problem for x in found], [x.seconds for x in found], H200)
    assert chosen is not None
    return found[chosen[1]].product


def with_tiling(asked: Product, tiling: Tiling) -> Plan | None:
    """How the Hopper kernel computes it with this tiling; None if it can't."""
    offer = Hopper().offer(asked, H200, tiling.choice)
    return None if offer is None else offer.make()


def args(found: Plan) -> tuple[Any, ...]:
    """Of the Hopper kernel: what it is told of A, of B, and of D where bulk copies store it."""
    (step,) = (step for step in found.steps if step.kernel.name == "hopper")
    return step.launch.args[:3]


def prefetched(step: Step) -> int:
    """The k-steps whose tiles a launch of the Hopper kernel prefetches to L2."""
    assert step.kernel.name == "hopper"
    return int(step.launch.args[10])


def read_at(found: Plan) -> list[Place]:
    """Where the Hopper kernel reads A and B, by bulk copies or without."""
    return [
        place
        for x in args(found)[:2]
        for place in (*(place for _, place in x.places), *(held.place for _, held in x.maps))
    ]


def test_what_can_be_read_is_not_repacked() -> None:
    found = plan_on(product(1024, 1024, 1024), H200)
    assert names(found) == ["hopper"]
    assert found.workspace == 0
    assert found.chosen.startswith("the Hopper kernel, tiles of")


def test_both_operands_in_one_launch() -> None:
    asked = product(4095, 4097, 4099)
    found = plan_on(asked, H200)
    assert names(found)[:2] == ["pack", "hopper"]
    assert found.steps[0].launch.overlap
    of_a, of_b = (pack.packed(*x, 1) for x in ((asked.a, 4095, 4099), (asked.b, 4099, 4097)))
    places = set(read_at(found))
    assert places == {Place(WORKSPACE, 0), Place(WORKSPACE, -(-of_a.bytes // 256) * 256)}
    assert found.workspace >= of_a.bytes + of_b.bytes
    assert found.chosen.startswith(
        "A and B repacked, as A has a stride of 8,198 bytes, no multiple of 16; "
        "then the Hopper kernel, tiles of"
    )


@pytest.mark.parametrize(
    ("changes", "which", "words"),
    [
        ({"a": Operand(4097, 1)}, A, "A has a stride of 8,194 bytes"),
        ({"a": Operand(4096, 1, 0, 2)}, A, "A does not begin at a multiple of 16"),
        ({"b": Operand(8192, 2)}, B, "B has no contiguous dimension"),
        ({"b": Operand(1, 4099)}, B, "B has a stride of 8,198 bytes"),
    ],
)
def test_only_what_needs_it(changes: dict[str, Any], which: int, words: str) -> None:
    found = plan_on(product(4096, 4096, 4096, **changes), H200)
    assert names(found)[0] == "pack"
    assert found.workspace % 256 == 0
    assert found.chosen.startswith(f"{'AB'[which]} repacked, as {words}")
    assert set(read_at(found)) == {Place(WORKSPACE, 0), Place(B if which == A else A)}


@pytest.mark.parametrize(
    ("changes", "choices"),
    [
        ({}, [()]),
        # Two bytes a row too many, or too few before the first.
        ({"a": Operand(257, 1)}, [(), (A,)]),
        ({"b": Operand(1, 256, 0, 6)}, [(), (B,)]),
        ({"a": Operand(1, 131), "b": Operand(137, 1)}, [(), (A,), (B,), (A, B)]),
        # What the kernel can't realign is copied, in any case.
        ({"b": Operand(272, 2)}, [(B,)]),
        ({"a": Operand(257, 1), "b": Operand(272, 2)}, [(B,), (A, B)]),
        # Matrices may lie at any stride from each other.
        ({"batch": 3, "a": Operand(257, 1, 257 * 130)}, [(), (A,)]),
        ({"batch": 3, "a": Operand(257, 1, 257 * 130 + 2)}, [(), (A,)]),
        ({"batch": 3, "a": Operand(256, 1, 256 * 130 + 1)}, [(), (A,)]),
        ({"batch": 3, "a": Operand(256, 1, 256 * 130 + 8)}, [()]),
        # One of all batches.
        ({"batch": 3, "b": Operand(137, 1)}, [(), (B,)]),
        # None that the kernel takes.
        ({"dtype": "float32", "out_dtype": "float32"}, []),
        ({"alpha": 0.0}, []),
    ],
)
def test_readings(changes: dict[str, Any], choices: list[tuple[int, ...]]) -> None:
    asked = product(130, 136, 256, **changes)
    found = readings(asked)
    assert [tuple(reading.packings) for reading in found] == choices
    for reading in found:
        seen = reading.product
        assert reading.unpacking is None
        assert seen.d == asked.d
        assert hopper.objection(seen) == ""
        for which, before, after in ((A, asked.a, seen.a), (B, asked.b, seen.b)):
            if which in reading.packings:
                assert after == reading.packings[which].operand
                assert hopper.unaligned(asked, which)
                assert not hopper.unaligned(seen, which)
            else:
                assert after == before


@pytest.mark.parametrize("size", [1, 8, 33, 64])
@pytest.mark.parametrize("k", [64, 520])
def test_small_products_of_mn_major_matrices(size: int, k: int) -> None:
    """They fill no cluster of tiles, and have too few k-steps to divide."""
    asked = product(size, size, k, a=Operand(1, 64), b=Operand(64, 1))
    offer = Hopper().best(asked, H200)
    assert offer is not None
    assert names(offer.make()) == ["hopper"]


def test_a_tiling_that_leaves_too_few_stages_is_not_chosen() -> None:
    """Two matrices whose tiles are realigned and of which no line is along k."""
    asked = product(65, 193, 1, batch=34, a=Operand(1, 67), b=Operand(195, 1))
    offer = Hopper().best(asked, H200)
    assert offer is not None
    assert offer.make().steps


def test_a_vocabulary_is_read_where_it_lies() -> None:
    """The large matrix is used too little for a copy of it to pay."""
    asked = product(128, 50257, 768)
    found = plan_on(asked, H200)
    assert set(names(found)) <= {"hopper", "hopper_sum"}
    assert read_at(found) in ([Place(A), Place(B)], [Place(B), Place(A)])
    assert "B realigned in shared memory" in found.chosen
    assert read(asked) == asked
    assert "realigned" not in plan_on(product(128, 50264, 768), H200).chosen


@pytest.mark.parametrize(
    ("asked", "k_steps"),
    [
        (product(16, 8192, 4096), 4),
        (product(8192, 128, 4096), 4),
        (product(512, 512, 128, batch=64), 4),
        (product(1024, 1024, 1024), 0),  # arithmetic takes longer
        (product(16, 8192, 4096, b=Operand(8193, 1)), 0),  # what is realigned has no boxes
    ],
)
def test_what_is_brought_near(asked: Product, k_steps: int) -> None:
    (step,) = (x for x in plan_on(asked, H200).steps if x.kernel.name == "hopper")
    assert prefetched(step) == k_steps


def test_behind_partial_sums_nothing_is_brought_near() -> None:
    asked = product(64, 64, 262144)  # hopper_sum comes between
    found = hopper.plan(asked, 132, Tiling(64, 64, stream_k=True))
    assert names(found) == ["hopper", "hopper_sum"]
    assert prefetched(found.steps[0]) == 0


def test_what_is_not_written_yet_is_not_brought_near() -> None:
    # Neither of B's dimensions is contiguous.
    found = plan_on(product(4096, 64, 4096, a=Operand(1, 4096), b=Operand(2, 128)), H200)
    assert names(found) == ["pack", "hopper"]
    assert prefetched(found.steps[1]) == 0


def test_the_workspace_has_room_for_all() -> None:
    """Copies of A, B and D, and after them the partial sums, each at a multiple of 256 bytes."""
    asked = product(4095, 4097, 4099, d=Operand(2 * 4097, 2))
    found = plan_on(asked, H200)
    assert names(found)[0] == "pack"
    assert names(found)[-1] == "unpack"
    at = [
        place.offset
        for step in found.steps
        for x in step.launch.args
        if isinstance(x, Packed)
        for place in (*(place for _, place in x.places), *(held.place for _, held in x.maps))
        if place.array == WORKSPACE
    ]
    assert len(set(at)) >= 3
    assert all(offset % 256 == 0 for offset in at)
    rows = 4095 * 4160 + 4099 * 4160 + 4095 * 4160
    assert found.workspace >= 2 * rows
    assert "D copied from the workspace" in found.chosen


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"d": Operand(1, 3001)},
        {"d": Operand(3008, 1, 0, 2)},
        {"out_dtype": "float32"},
        {"beta": 1.0, "c": Operand(3001, 1)},
    ],
)
def test_d_is_stored_where_it_belongs(changes: dict[str, Any]) -> None:
    """At any pitch and address."""
    asked = product(3001, 3001, 3000, **changes)
    found = plan_on(asked, H200)
    assert "unpack" not in names(found)
    assert read(asked).d == asked.d
    assert args(found)[2] == bytes(128)  # no map of D


@pytest.mark.parametrize("pitch", [1024, 1028])
def test_floats_are_stored_by_bulk_copies(pitch: int) -> None:
    asked = product(1024, 1024, 1024, out_dtype="float32", d=Operand(pitch, 1))
    assert names(plan_on(asked, H200)) == ["hopper"]
    d = args(plan_on(asked, H200))[2]
    assert (d.place, d.dtype, d.strides[0]) == (Place(D), "float32", 4 * pitch)
    assert args(plan_on(asked._replace(d=Operand(pitch + 2, 1)), H200))[2] == bytes(128)


def test_a_d_with_no_contiguous_dimension() -> None:
    strided = product(1024, 1024, 1024, d=Operand(2048, 2))
    found = plan_on(strided, H200)
    assert names(found) == ["hopper", "unpack"]
    assert read(strided).d == Operand(1024, 1)
    assert all(reading.unpacking is not None for reading in readings(strided))
    assert args(found)[2].place == Place(WORKSPACE)
    found = plan_on(strided._replace(out_dtype="float32"), H200)
    assert names(found) == ["gemm_mma"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.0}, "nothing to multiply"),
        ({"c": Operand(1, 1000), "beta": 1.0}, "C does not lie as D does"),
    ],
)
def test_what_hopper_does_not_take_goes_to_mma_sync(changes: dict[str, Any], words: str) -> None:
    asked = product(1000, 1000, 1000, **changes)
    found = plan_on(asked, H200)
    assert names(found) == ["gemm_mma"]
    assert found.workspace == 0
    assert words in Hopper().objection(asked, H200)


def test_other_devices_repack_nothing() -> None:
    found = plan_on(product(511, 513, 517), None)
    assert (names(found), found.workspace) == (["gemm_general"], 0)
    assert "no Hopper GPU" in found.why
    assert names(plan_on(product(0, 513, 517), H200)) == []


def test_a_few_rows_read_the_weight_where_it_lies() -> None:
    asked = product(1, 4096, 4095, b=Operand(1, 4095))
    found = plan_on(asked, H200)
    assert (names(found), found.workspace) == (["thin_half"], 0)
    deep = product(4096, 2, 4096, a=Operand(4097, 1), b=Operand(4, 2))
    assert names(plan_on(deep, H200)) == ["pack", "thin_half"]


def test_a_tiling_can_be_asked_for() -> None:
    asked = product(1, 4096, 4095, b=Operand(1, 4095))
    found = with_tiling(asked, Tiling(64, 64))
    assert found is not None
    assert names(found) == ["pack", "hopper"]
    found = with_tiling(asked, Tiling(64, 64, b_unaligned=True))
    assert found is not None
    assert (names(found), found.workspace) == (["hopper"], 0)
    # Tiles are realigned where rows are not 16-byte aligned, and nowhere else.
    assert with_tiling(asked, Tiling(64, 64, a_unaligned=True)) is None
    floats = asked._replace(dtype="float32", out_dtype="float32")
    assert with_tiling(floats, Tiling(64, 64)) is None


def keep_always(
    monkeypatch: pytest.MonkeyPatch, family: str, choice: Any, only: Product | None = None
) -> None:
    """As if this had been measured to be the fastest."""
    entry = (family, choice)
    monkeypatch.setattr(kept, "find", lambda p, chip: entry if only in (None, p) else None)
    plan_on.cache_clear()


def test_a_kept_tiling_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tiling = Tiling(64, 128)
    asked = product(511, 513, 517)
    keep_always(monkeypatch, "hopper", tiling.choice, asked)
    found = plan_on(asked, H200)
    assert str(tiling) in found.chosen
    assert "fastest of those that were measured" in found.why
    assert names(found) == ["pack", "hopper"]
    tiling = Tiling(64, 128, b_unaligned=True)
    keep_always(monkeypatch, "hopper", tiling.choice, asked)
    found = plan_on(asked, H200)
    assert str(tiling) in found.chosen
    assert (names(found), found.chosen[:11]) == (["pack", "hopper"], "A repacked,")
    assert str(tiling) not in plan_on(asked._replace(m=512), H200).chosen


@pytest.mark.parametrize(
    ("family", "kernel"), [("general", "gemm_general"), ("thin_half", "thin_half")]
)
def test_the_kept_choice_of_any_family_is_used(
    monkeypatch: pytest.MonkeyPatch, family: str, kernel: str
) -> None:
    asked = product(8, 4096, 4096)
    assert kernel not in names(plan_on(asked, H200))
    keep_always(monkeypatch, family, {})
    found = plan_on(asked, H200)
    assert names(found)[-1] == kernel
    assert "fastest of those that were measured" in found.why


@pytest.mark.parametrize(
    ("family", "choice"),
    [
        ("hopper", Tiling(64, 64, a_unaligned=True).choice),  # of what is 16-byte aligned
        ("hopper", Tiling(128, 24).choice),
        ("hopper", {**Tiling(64, 64).choice, "block_m": 100}),  # no number of warpgroups
        ("hopper", {"tile_m": 64, "tile_n": 64}),
        ("hopper", {}),
        ("thin_half", {}),  # neither has few rows
        ("simt", {}),  # of another dtype
        ("abacus", {}),
    ],
)
def test_a_kept_choice_that_does_not_fit_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, family: str, choice: dict[str, Any]
) -> None:
    asked = product(1000, 1000, 1000, alpha=0.5)
    usual = plan_on(asked, H200)
    keep_always(monkeypatch, family, choice)
    assert plan.kept_offer(asked, H200) is None
    found = plan_on(asked, H200)
    assert (found.chosen, names(found)) == (usual.chosen, names(usual))
    assert names(found)[0] == "hopper"
    assert "it should be the fastest" in found.why


SIZES = st.one_of(st.integers(1, 64), st.integers(1, 6000))


@examples(100)
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
        return Operand(*strides, step, data.draw(st.sampled_from([0, 0, 2, 14])))

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
            [p for _, p in x.places] + [held.place for _, held in x.maps] if isinstance(x, Packed)
            else [x.place] if isinstance(x, TensorMap)
            else [x] if isinstance(x, Place) else []
        )
    )  # fmt: skip
    assert used == (found.workspace > 0)


def test_the_way_of_a_device(emulator: Device) -> None:
    assert not isinstance(emulator, Gpu)
    assert plan.chip_of(emulator) is None
    assert names(plan_product(product(9, 9, 9), emulator)) == ["gemm_general"]


@examples(25)
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
