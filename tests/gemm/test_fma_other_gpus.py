"""Products of float32 and float64 on GPUs that are no Hopper GPU: their kernels and their plans."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product as combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import ROOT, examples, some
from test_fma import best, cases, names, product, run

from tilewise import compiler
from tilewise.devices import get_device
from tilewise.devices.emulated import emulator
from tilewise.devices.limits import max_shared
from tilewise.devices.occupancy import occupancy
from tilewise.explanation import of_shape
from tilewise.gemm.chip import H200, Chip, chip_by
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.family import Simt
from tilewise.gemm.families.simt.matrices import Access
from tilewise.gemm.families.simt.offers import choices
from tilewise.gemm.families.simt.readings import readings
from tilewise.gemm.families.simt.table import Table, Way
from tilewise.gemm.families.simt.tiles import EVERY, TensorTiles, tiles_for
from tilewise.gemm.plan import best as best_offer
from tilewise.gemm.plan import chip_of, offers, plan_on
from tilewise.gemm.product import Operand, Product
from tilewise.gemm.steps import execute
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("no_machine_code")

Arrays = dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
A100 = chip_by("NVIDIA A100-SXM4-80GB", 108, 80, 1.41e9, 2.039e12, 40 << 20)
MEASURED = ROOT / "benchmarks" / "results" / "float64_sm80_h200.json"
TENSOR_RATE = 19.5e12  # operations a second of an A100's tensor cores, by its data sheet
B200 = Chip("NVIDIA B200", 148, 100)
FEW = replace(A100, name="few", multiprocessors=4)

every_tile = pytest.mark.parametrize("tiles", tiles_for("float64", A100), ids=str)


def test_other_gpus_take_it_too() -> None:
    """Without what only a Hopper GPU has: launches that overlap."""
    found = plan_on(product(1000, 1000, 1000), Chip("another", 108, capability=80))
    assert names(found)[0] == "gemm_simt"
    assert not any(step.launch.overlap for step in found.steps)
    assert all(step.kernel.defines["OVERLAP"] == 0 for step in found.steps)
    assert chip_of(get_device("emulator")) is None


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [(80, "gemm_dmma"), (90, "gemm_dmma"), (100, "gemm_dmma")]
    + [(other, "gemm_simt") for other in (86, 87, 89, 103, 110, 120)],
)
def test_float64_is_for_tensor_cores_where_they_multiply_it(capability: int, kernel: str) -> None:
    found = plan_on(product(1000, 1000, 1000, "float64"), Chip("another", 108, capability))
    assert kernel in names(found)
    assert "gemm_simt" in names(plan_on(product(1000, 1000, 1000), Chip("a", 108, capability)))
    words = "by tensor cores, without tensor maps"
    assert (words in found.chosen) == (capability in (80, 100))


def test_before_hopper_a_product_of_tensor_cores_is_four() -> None:
    for arch, word, other in (("sm_80", "m8n8k4", "m16n8k8"), ("sm_100", "m16n8k8", "m8n8k4")):
        for kernel in tensor_kernels(arch)[:1]:
            ptx = kernel.compiled_on(emulator(arch), counts=False).ptx
            assert f"mma.sync.aligned.{word}.row.col.f64" in ptx
            assert f"mma.sync.aligned.{other}" not in ptx


def tensor_kernels(arch: str) -> list[Kernel]:
    """Those for float64 of the GPUs of an architecture."""
    chip = A100 if arch == "sm_80" else B200
    return [x for x in Simt().kernels(chip, "float64") if x.name == "gemm_dmma"]


@pytest.mark.sampled(9)
@every_tile
@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_compiled_without_spills(tiles: TensorTiles, arch: str) -> None:
    """For every layout and alignment; and a multiprocessor holds the blocks that are planned."""
    if arch not in compiler.architectures():
        pytest.skip(f"this NVRTC does not know {arch}")
    of_chip = tiles_for("float64", A100 if arch == "sm_80" else B200)
    tiles = next(x for x in of_chip if isinstance(x, TensorTiles) and str(x) == str(tiles))
    kernels = [x for x in tensor_kernels(arch) if tiles.macros.items() <= x.defines.items()]
    assert len(kernels) == 9
    for kernel in some(kernels, 1):
        used = kernel.compile(arch).resources
        assert (used.spill_bytes, used.stack_bytes) == (0, 0), kernel
        assert used.shared_bytes == 0  # launches ask for it
        shared = tiles.shared("float64", True, True)
        assert shared <= max_shared(arch)
        held = occupancy(arch, tiles.threads, used.registers, shared)
        assert held.blocks >= tiles.residents


# On the emulator of compute capability 8.0


@examples(60, quick=1)
@given(case=cases(), data=st.data())
def test_every_choice_is_right(case: tuple[Product, Arrays], data: st.DataObject) -> None:
    """The emulator finds what is read or written beyond the matrices."""
    asked, arrays = case
    if asked.dtype != "float64":
        asked, arrays = as_float64(asked, arrays)
    choice = data.draw(st.sampled_from(list(choices(asked, FEW))))
    plan = fma.plan(choice, FEW, fma.is_swapped(asked))
    assert "gemm_dmma" in names(plan)
    run(asked, arrays, plan, emulator("sm_80"))


def as_float64(asked: Product, arrays: Arrays) -> tuple[Product, Arrays]:
    """The same product of float64; what lies 4 bytes behind 16 of them lies 8 behind them then."""
    made = {}
    for name, (flat, view) in arrays.items():
        wide = flat.astype("float64")
        ahead = getattr(asked, name).offset // flat.itemsize
        strides = [2 * step for step in view.strides]
        made[name] = wide, np.lib.stride_tricks.as_strided(wide[ahead:], view.shape, strides)
    operands = {
        name: x._replace(offset=2 * x.offset)
        for name in "abcd"
        if (x := getattr(asked, name)) is not None
    }
    return asked._replace(dtype="float64", out_dtype="float64", **operands), made


@pytest.mark.sampled(5)
@every_tile
def test_all_tiles_are_right(tiles: TensorTiles) -> None:
    """In every layout, with rows that are 16-byte aligned or not, and k in parts."""
    rng = np.random.default_rng(0)
    m, n, k = 67, 131, 90
    ways = combinations((True, False), (True, False), (0, 1))
    for at, (a_is_k_major, b_is_k_major, gap) in enumerate(some(list(ways), 2)):
        arrays: Arrays = {}
        operands = {}
        for name, rows, columns, by_rows in (
            ("a", m, k, a_is_k_major), ("b", k, n, not b_is_k_major), ("d", m, n, True),
        ):  # fmt: skip
            lines, width = (rows, columns) if by_rows else (columns, rows)
            pitch = width + width % 2 + gap
            flat = np.full(lines * pitch, np.nan)
            view = flat.reshape(1, lines, pitch)[:, :, :width]
            view[...] = rng.standard_normal(view.shape)
            arrays[name] = flat, view if by_rows else view.transpose(0, 2, 1)
            operands[name] = Operand(pitch, 1) if by_rows else Operand(1, pitch)
        (reading, *_) = readings(product(m, n, k, "float64", **operands))
        for parts in some([1 + at % 2, 2 - at % 2], 1):
            plan = fma.plan(fma.Choice(0.0, reading, tiles, parts), FEW, False)
            run(reading.product, arrays, plan, emulator("sm_80"))


def test_nan_and_infinity_spread_as_far_as_they_should() -> None:
    """Along a row and a column of D; not from beyond the edges, nor from C where beta is 0."""
    rng = np.random.default_rng(0)
    m, n, k = 70, 50, 33
    a, b = rng.standard_normal((1, m, k)), rng.standard_normal((1, k, n))
    a[0, 5, 7], a[0, 69, 32], b[0, 3, 49] = np.nan, np.inf, -np.inf
    device = emulator("sm_80")
    with np.errstate(invalid="ignore"):
        expected = a[0] @ b[0]
    for parts, alpha in ((1, 1.0), (2, 1.0), (1, 0.0)):
        asked = product(m, n, k, "float64", alpha=alpha)
        tiles = tiles_for("float64", A100)[0]
        plan = fma.plan(fma.Choice(0.0, readings(asked)[0], tiles, parts), FEW, False)
        there = [device.array(x) for x in (a, b, np.full((m, n), np.nan))]
        workspace = device.empty((max(plan.workspace, 1),), np.uint8)
        at = [x.pointer for x in there]
        execute(plan, device, 0, (at[0], at[1], 0, at[2], workspace.pointer))
        found = there[2].to_numpy()
        if alpha == 0:
            assert not found.any()
        else:
            assert np.array_equal(np.isnan(found), np.isnan(expected))
            infinite = np.isinf(expected)
            assert np.array_equal(found[infinite], expected[infinite])


# What is planned by the data sheet's figures


def test_only_hopper_takes_bulk_copies() -> None:
    asked = product(4096, 4096, 4096)
    assert any(each.tiles.bulk for each in choices(asked, H200))
    assert not any(each.tiles.bulk for each in choices(asked, Chip("another", 132, capability=80)))
    assert best(asked).bulk
    assert "copied by tensor maps" in plan_on(asked, H200).chosen
    # Unaligned matrices have no tensor map; and a K-major B would make pieces of D's columns.
    for other in (
        asked._replace(b=Operand(4097, 1)),
        asked._replace(a=Operand(4097, 1)),
        asked._replace(b=Operand(4096, 1, 0, 4)),
        asked._replace(b=Operand(1, 4096)),
    ):
        in_place = (each for each in choices(other, H200) if not each.reading.copies)
        assert not any(each.tiles.bulk for each in in_place)


def test_another_gpu_is_as_fast_as_its_rates() -> None:
    """Twice the memory rate and the clock: nearly half of the time."""
    ways = [Way(EVERY["float32"][0], Access(True), Access(False))]
    usual = Table("float32", H200, ways).seconds(4096, 4096, 4096, 1)[0, 0]
    twice = replace(H200, memory=2 * H200.memory, clock=2 * H200.clock)
    fast = Table("float32", twice, ways).seconds(4096, 4096, 4096, 1)[0, 0]
    assert fast == pytest.approx(usual / 2, rel=0.01)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_large_products_take_the_tiles_that_reuse_most(layout: str) -> None:
    """Small tiles would have to read more from the L2 cache than an A100's delivers."""
    asked = of_shape(8192, 8192, 8192, "float64", layout)
    offer = best_offer(asked, A100)
    assert offer.choice["tiles"] == "64x64 by tensor cores, cp.async"
    assert 0.8 < 2 * 8192**3 / offer.seconds / TENSOR_RATE < 1


def test_what_was_measured_at_an_a100s_rate_is_foretold() -> None:
    """By an H200: with the kernels for 8.0 it has as many multiply-adds in a clock."""
    record = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert not record["wrong"]
    chip = replace(H200, capability=80)
    off = []
    for row in record["rows"]:
        asked = of_shape(row["n"], row["n"], row["n"], "float64", row["layout"])
        way = next(x for x in offers(asked, chip) if x.make().chosen == row["chosen"])
        off.append(way.seconds / row["seconds"]["other"])
    assert len(off) == 12
    assert max(off) < 1.035
    assert min(off) > 0.965


def test_nothing_is_expected_to_be_faster_than_the_hardware() -> None:
    rng = np.random.default_rng(0)
    for chip, dtype in combinations((A100, H200, B200, replace(A100, capability=86)), EVERY):
        by_tensor_cores = dtype == "float64" and chip.has_float64_tensor_cores
        rate = chip.multiprocessors * chip.multiply_adds(dtype, by_tensor_cores)
        for _ in range(40):
            m, n, k = (int(x) for x in np.exp(rng.uniform(0, 9.5, 3)))
            layout = str(rng.choice(["NN", "NT", "TN", "TT"]))
            assert best_offer(of_shape(m, n, k, dtype, layout), chip).seconds > m * n * k / rate


def test_a_multiprocessor_with_less_shared_memory_holds_fewer_blocks() -> None:
    for dtype, chip in combinations(EVERY, (A100, replace(A100, capability=86), H200)):
        for tiles in tiles_for(dtype, chip):
            usual = next(x for x in EVERY[dtype] if str(x) == str(tiles))
            of_block = tiles.shared(dtype, False, False) + 1024
            assert 0 < tiles.residents * of_block <= chip.shared
            assert tiles.residents == min(usual.residents, chip.shared // of_block)
            assert chip is not H200 or tiles is usual
