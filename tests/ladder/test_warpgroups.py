"""The rungs for Hopper: rings that go round, tensor maps, and blocks that take many tiles."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import THOROUGH, examples, held, some, thorough
from test_ladder import Case, assert_right, scalars

from tilewise.compiler import machine_code
from tilewise.devices import Device
from tilewise.errors import CheckError, LaunchError, UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Sizes
from tilewise.ladder.prepared import prepare
from tilewise.ladder.problem import Gemm, random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import Rung, rung
from tilewise.ladder.warpgroups import MAP_BYTES, MULTIPROCESSORS
from tilewise.places import Place, TensorMap
from tilewise.precision import HALVES

NAMES = ("warpgroup", "specialized", "persistent")
every = pytest.mark.parametrize("name", NAMES)
pytestmark = pytest.mark.usefixtures("uncounted")


class Replaced(Rung):
    """A rung whose source has a line replaced."""

    def __init__(self, each: Rung, line: str, by: str) -> None:
        super().__init__(**{name: getattr(each, name) for name in each.__dataclass_fields__})
        source = each.path.read_text()
        assert line in source
        object.__setattr__(self, "source", source.replace(line, by))

    def kernel(self, dtype: Any = None, tile: int | None = None) -> Kernel:
        return Kernel(self.source, self.name, super().kernel(dtype, tile).defines)  # type: ignore[attr-defined]


def launch(each: Rung, a: Any, b: Any, device: Device) -> None:
    """Launch a rung as :func:`run` does, but count nothing."""
    gemm = Gemm.of(a, b)
    prepared = prepare(each, gemm, None)
    c = device.empty((gemm.m, gemm.n), gemm.dtype)
    prepared.kernel.launch(
        *prepared.geometry, prepared.args(gemm, device.array(a), device.array(b), c),
        prepared.shared, device, counts=False,
    )  # fmt: skip


def of_blocks(count: int) -> Rung:
    """``persistent`` with so few blocks that they take several tiles."""
    return replace(rung("persistent"), _at_once=lambda grid, _: min(grid, count))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to three tiles along m and n, and rings that go round; rows 16 bytes apart or not."""
    sizes = st.builds(
        lambda tiles, more: max(128 * tiles + more, 1),
        st.integers(0, 2),
        st.sampled_from([-9, -1, 0, 1, 8, 31]),
    )
    m, n = draw(sizes), draw(sizes)
    k = draw(st.sampled_from([1, 8, 63, 64, 65, 200, 256, 257, 320, 511, 600]))
    pads = draw(st.tuples(*[st.integers(0, 9)] * 3))
    if draw(st.booleans()):
        pads = (-k % 8, -n % 8, draw(st.sampled_from([-n % 8, 1])))
    return Case(
        m,
        n,
        k,
        draw(st.sampled_from(held(HALVES))),
        128,
        draw(scalars),
        draw(scalars),
        pads,
        draw(st.sampled_from([(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 3, 0), (0, 0, 1), (8, 8, 8)])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@pytest.mark.sampled(3)
@every
@examples(THOROUGH, quick=1)
@given(data=st.data())
def test_any_problem(name: str, device: Device, data: st.DataObject) -> None:
    case = data.draw(cases())
    if case.shifts == (8, 8, 8):  # aligned, but not where the test's tensor maps begin
        case = replace(case, shifts=(0, 0, 8))
    each = rung(name)
    if name == "persistent":
        each = of_blocks(data.draw(st.sampled_from([2, 4, 132])))
    assert_right(each, device, case)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("m", "n", "k", "beta"),
    [
        (140, 300, 328, 0.0), (130, 261, 333, 0.5),
        pytest.param(140, 300, 400, 0.5, marks=thorough),
        pytest.param(130, 261, 333, 0.0, marks=thorough),
    ],
)  # fmt: skip
@every
@pytest.mark.parametrize("dtype", held(HALVES))
def test_nothing_is_found_even_where_checks_are_strict(
    name: str, dtype: str, m: int, n: int, k: int, beta: float, emulator: Device
) -> None:
    is_persistent = name == "persistent"  # then two blocks take four tiles, not two
    each = of_blocks(2) if is_persistent else rung(name)
    n = n if is_persistent else n - 100
    a, b, c = random_problem(m, n, k, dtype)
    found = run(
        each, a, b, c if beta else None, beta=beta, device=emulator, checks="strict",
        global_races=True,
    )  # fmt: skip
    assert found.correct
    assert found.report is not None
    assert (found.report.findings, found.report.notes) == ((), ())


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "line", "by"),
    [
        ("warpgroup", "__syncthreads();  // nobody reads the stage any more", ""),
        ("warpgroup", "wait(full[at], phase / STAGES);", ""),
        ("specialized", "wait(empty[at], phase / STAGES + 1);", ""),
        ("specialized", "wait_multiplied<1>();", ""),
        ("persistent", "wait(empty[at], step / STAGES + 1);", ""),
        ("persistent", "        wait_multiplied<0>();\n            fence(sum);", "fence(sum);"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_found(name: str, line: str, by: str, emulator: Device) -> None:
    """In one tile, whose ring goes round; of the persistent rung in three, one behind another."""
    is_persistent = name == "persistent"
    each = Replaced(of_blocks(2) if is_persistent else rung(name), line, by)
    a, b, _ = random_problem(264 if is_persistent else 128, 256, 448, "float16")
    with pytest.raises(CheckError):
        launch(each, a, b, emulator)


@thorough
def test_descriptors_of_the_second_block(emulator: Device) -> None:
    """The rank above its addresses' 18 bits must not reach the descriptors' next field."""
    each = Replaced(rung("persistent"), "shared(p) & 0x3ffff;", "shared(p);")
    a, b, _ = random_problem(256, 256, 64, "float16")
    with pytest.raises(UninitializedReadError, match=r"block \(1, 0, 0\) multiplies a matrix B"):
        run(each, a, b, device=emulator)
    found = run(each, a, b, device=emulator, checks="off")
    right = run(rung("persistent"), a, b, device=emulator).result
    np.testing.assert_array_equal(found.result[:128], right[:128])
    np.testing.assert_array_equal(found.result[:, :64], right[:, :64])
    assert not found.correct


@thorough
def test_elements_that_threads_copy_are_fenced(emulator: Device) -> None:
    fence = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
    a, b, _ = random_problem(130, 255, 70, "float16")
    for name in some(NAMES, 1):
        with pytest.raises(CheckError):
            launch(Replaced(rung(name), fence, ""), a, b, emulator)


@pytest.mark.sampled(4)
@every
@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=thorough)])
def test_machine_code(name: str, dtype: str, tmp_path: Path) -> None:
    """Four products a phase with nothing between them, and registers that go to the consumers."""
    program = machine_code.find_nvdisasm()
    if program is None:
        pytest.skip("nvdisasm is not installed")
    compiled = rung(name).kernel(dtype).compile("sm_90a")
    assert compiled.resources.spill_bytes == 0
    file = tmp_path / "kernel.cubin"
    file.write_bytes(compiled.cubin)
    text = subprocess.run([program, "-c", file], capture_output=True, text=True, check=True).stdout
    counts = Counter(re.findall(r"\b(HGMMA|WARPGROUP|USETMAXREG|UTMALDG)\.", text))
    assert counts["HGMMA"] == 4
    # One fence, and the waits for all products, and for all but the last phase's. Where ptxas finds
    # that products have to wait for each other, there are as many as products, or more.
    assert counts["WARPGROUP"] == (2 if name == "warpgroup" else 3)
    assert counts["USETMAXREG"] == (0 if name == "warpgroup" else 2)
    assert counts["UTMALDG"] == {"warpgroup": 10, "specialized": 5, "persistent": 3}[name]


def test_tensor_maps() -> None:
    each = rung("warpgroup")
    a, b = each.trailing(Sizes(100, 72, 40, 48, 80, 73), None, "bfloat16")
    assert a == TensorMap(Place(0), "bfloat16", (40, 100), (96,), (64, 128), swizzle="128B")
    assert b == TensorMap(Place(1), "bfloat16", (72, 40), (160,), (64, 64), swizzle="128B")
    zeros = (bytes(MAP_BYTES),) * 2
    for sizes in (
        Sizes(100, 72, 40, 41, 80, 80), Sizes(100, 72, 40, 48, 73, 80), Sizes(0, 8, 8, 8, 8, 8),
        Sizes(8, 8, 0, 8, 8, 8),
    ):  # fmt: skip
        assert each.trailing(sizes, None, "float16") == zeros


def test_blocks_that_stay_are_as_many_as_run_at_once() -> None:
    each = rung("persistent")
    assert each.geometry(1, 1) == ((2, 1, 1), (384, 1, 1))
    assert each.geometry(257, 257)[0] == (8, 1, 1)
    assert each.geometry(8192, 8192)[0] == (MULTIPROCESSORS, 1, 1)
    assert each.geometry(8192, 8192, multiprocessors=113)[0] == (112, 1, 1)
    assert rung("specialized").geometry(8192, 8192, multiprocessors=113)[0] == (32, 64, 1)

    class Small:
        multiprocessors = 4

    a, b, _ = random_problem(1000, 1000, 8, "float16")
    gemm = Gemm.of(a, b)
    prepared = prepare(each, gemm, None)
    assert prepared.geometry[0] == (32, 1, 1)
    assert prepared.on(Small(), gemm).geometry[0] == (4, 1, 1)  # type: ignore[arg-type]


@every
def test_only_on_hopper(name: str) -> None:
    each = rung(name)
    for arch in ("sm_80", "sm_89", "sm_90", "sm_100a", "sm_120"):
        with pytest.raises(LaunchError, match=f"{name} needs compute capability 9.0 and no other"):
            each.check_arch(arch)


@pytest.mark.sampled(3)
@every
def test_c_in_rows_that_are_not_aligned_is_stored_by_elements(name: str, device: Device) -> None:
    reports = []
    for pad in (0, 1):
        case = Case(128, 64, 8, "float16", pads=(0, 0, pad), counts=True)
        assert_right(rung(name), device, case)
        reports.append(case.reports[0].counters)
    if device.name == "emulator":
        aligned, apart = reports
        assert aligned is not None
        assert apart is not None
        assert 8 * aligned.global_store_requests == apart.global_store_requests


@every
def test_alpha_zero_reads_neither_a_nor_b(name: str, emulator: Device) -> None:
    c = np.ones((130, 40), "f2")
    there = emulator.array(c)
    nobody_wrote = [emulator.empty(shape, "float16") for shape in ((130, 72), (72, 40))]
    gemm = Gemm.of(np.ones((130, 72), "f2"), np.ones((72, 40), "f2"), c, alpha=0.0, beta=2.0)
    prepared = prepare(name, gemm, None)
    grid, block = prepared.geometry
    args = prepared.args(gemm, nobody_wrote[0], nobody_wrote[1], there)
    prepared.kernel.launch(grid, block, args, prepared.shared, emulator)
    np.testing.assert_array_equal(there.to_numpy(), 2 * c)
