"""A GPU's ceilings: what the probes do, in the machine code and when they are run; the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu, said, without_gpu
from reference import thorough

from tilewise.counted import Counters
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.lens import ceilings as probes
from tilewise.lens.ceilings import CHUNK_BYTES, LANES, PROBES, THREADS, count, loops
from tilewise.lens.roofline import RATES, Ceilings, datasheet, find


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """Have nvdisasm read a probe's machine code once for all tests of the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "loops", cache(loops))
        yield


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "arch",
    [
        "sm_90a",
        "sm_80",
        *(
            pytest.param(arch, marks=thorough)
            for arch in ("sm_75", "sm_86", "sm_89", "sm_100", "sm_120")
        ),
    ],
)
@pytest.mark.parametrize("rate", RATES)
def test_the_loop_holds_what_is_counted(rate: str, arch: str) -> None:
    """Just so many in the machine code's loop; beside them, what runs the loop and little else."""
    probe = PROBES[rate]
    compiled = probe.kernel.compile(arch)
    assert compiled.resources.spill_bytes == 0
    mine = [loop for loop in loops(compiled) if any(count(loop, name) for name in probe.loop)]
    if rate == "shared":  # the loops that fill it only store
        assert all(count(loop, "STS") for loop in loops(compiled) if loop not in mine)
    (loop,) = mine
    assert {name: count(loop, name) for name in probe.loop} == dict(probe.loop)
    memory = ("LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDC")
    wide = sum(count(loop, name) for name in memory if name != "LDC")
    assert wide == sum(times for name, times in probe.loop.items() if "128" in name)
    others = len(loop) - sum(probe.loop.values())
    if arch == "sm_90a":  # what else there is changes with the compiler's version
        # Of a load's four words each is folded in, and its address may take two steps more.
        assert others <= (5 if rate in ("issue", "float32", "float64") else 5 * 8)
    counted = probe.a_round(compiled)
    assert counted == (len(loop) if rate == "issue" else probe.worth * sum(probe.loop.values()))


def launch_probe(device: Device, rate: str, blocks: int, rounds: int, *args: Any) -> Counters:
    """One launch of a probe; on a GPU, which does not count, no counters."""
    kernel = PROBES[rate].kernel
    report = kernel.launch(blocks, THREADS, (rounds, *args), device=device)
    return report.counters or Counters()


def words(nbytes: int) -> Any:
    return np.random.default_rng(1).integers(0, 1 << 32, nbytes // 4, np.uint32)


def test_the_memory_probe_reads_all(device: Device) -> None:
    """Each word: it finds what one thread's are together, and no more if one has changed."""
    blocks, rounds = 3, 2
    data = words(blocks * rounds * CHUNK_BYTES)
    parts = data.reshape(rounds, blocks, 8, THREADS, 4)
    total = int(np.bitwise_xor.reduce(parts[:, 1, :, 77], axis=(0, 1, 2)))
    found = np.zeros(1, np.uint32)
    counters = launch_probe(device, "dram", blocks, rounds, total, data, found)
    assert found[0] == 1
    for place in ((0, 1, 0, 77, 0), (1, 1, 7, 77, 3)):
        changed, found = parts.copy(), np.zeros(1, np.uint32)
        changed[place] ^= 1
        launch_probe(device, "dram", blocks, rounds, total, changed.reshape(-1), found)
        assert found[0] == 0
    if device.name == "emulator":
        warps = blocks * THREADS // LANES
        assert counters.global_load_requests == warps * rounds * PROBES["dram"].loop["LDG.128"]
        assert counters.global_load_bytes == counters.global_load_sectors * 32 == data.nbytes
        a_round = PROBES["dram"].a_round(PROBES["dram"].kernel.compile())
        assert data.nbytes == warps * rounds * a_round


def test_the_l2_probe_reads_chunk_after_chunk(device: Device) -> None:
    blocks, rounds, chunks = 3, 4, 8
    data = words(chunks * CHUNK_BYTES)
    out = np.zeros(blocks * THREADS, np.uint32)
    counters = launch_probe(device, "l2", blocks, rounds, chunks, data, out)
    # A chunk is eight loads of four words by each thread.
    parts = data.reshape(chunks, 8, THREADS, 4)
    expected = np.zeros((blocks, THREADS), np.uint32)
    for block in range(blocks):
        for each in range(rounds):
            read = parts[(block + each * blocks) % chunks]
            expected[block] ^= np.bitwise_xor.reduce(read, axis=(0, 2))
    assert np.array_equal(out.reshape(blocks, THREADS), expected)
    if device.name == "emulator":
        assert counters.global_load_bytes == blocks * rounds * CHUNK_BYTES
        assert counters.global_load_sectors * 32 == counters.global_load_bytes


def test_the_shared_probe_has_no_conflicts(device: Device) -> None:
    blocks, rounds = 2, 3
    out = np.zeros(blocks * THREADS, np.uint32)
    counters = launch_probe(device, "shared", blocks, rounds, out)
    data = (np.arange(8 * THREADS * 4, dtype=np.uint64) * 2654435761).astype(np.uint32)
    parts = data.reshape(8, THREADS, 4)
    expected = np.zeros(THREADS, np.uint32)
    for each in range(rounds):
        expected ^= np.bitwise_xor.reduce(np.roll(parts, -each, axis=1), axis=(0, 2))
    assert np.array_equal(out, np.tile(expected, blocks))
    if device.name == "emulator":
        loads = blocks * THREADS // LANES * rounds * PROBES["shared"].loop["LDS.128"]
        assert counters.shared_load_requests == loads
        assert counters.shared_load_wavefronts * 128 == loads * PROBES["shared"].worth
        assert counters.shared_load_bank_conflicts == 0


@pytest.mark.parametrize(("rate", "dtype"), [("float32", np.float32), ("float64", np.float64)])
def test_the_peaks_multiply_and_add(device: Device, rate: str, dtype: Any) -> None:
    blocks, rounds, factor = 2, 1, dtype(0.5)
    out = np.zeros(blocks * THREADS, dtype)
    counters = launch_probe(device, rate, blocks, rounds, factor, out)
    (times,) = PROBES[rate].loop.values()
    # x / 2 + 1 / 2: each step halves what x lies above 1. While a double has room for all of it,
    # that is exact, and in a float it ends at 1.
    sums = np.arange(THREADS, dtype=dtype)[:, None] + np.arange(8, dtype=dtype)
    for _ in range(times * rounds // 8):
        sums = (sums.astype(np.float64) * 0.5 + 0.5).astype(dtype)
    expected = np.zeros(THREADS, dtype)
    for j in range(8):
        expected += sums[:, j]
    assert np.array_equal(out, np.tile(expected, blocks))
    if device.name == "emulator":
        done = counters.dfma if rate == "float64" else counters.ffma
        assert done == blocks * THREADS * rounds * times
        a_round = PROBES[rate].a_round(PROBES[rate].kernel.compile())
        assert 2 * done == blocks * THREADS // LANES * rounds * a_round


def test_the_issue_probe_does_both_in_turn(device: Device) -> None:
    blocks, rounds, bits = 2, 1, 5
    out = np.zeros(blocks * THREADS, np.uint32)
    counters = launch_probe(device, "issue", blocks, rounds, 0.5, bits, out)
    steps = rounds * PROBES["issue"].loop["SHF"] // 8
    start = np.arange(THREADS)[:, None] + np.arange(8)
    by = steps * bits % 32
    turned = (start * 2**by % 2**32 | start // 2 ** (32 - by)).astype(np.uint32)
    sums = start.astype(np.float64)
    for _ in range(steps):
        sums = (sums * 0.5 + 0.5).astype(np.float32).astype(np.float64)
    folded = turned ^ sums.astype(np.float32).view(np.uint32)
    assert np.array_equal(out, np.tile(np.bitwise_xor.reduce(folded, axis=1), blocks))
    if device.name == "emulator":
        assert counters.ffma == blocks * THREADS * rounds * PROBES["issue"].loop["FFMA"]


def test_loops_are_read_from_the_machine_code() -> None:
    text = """
.L_x_0:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P0 LDS.U.128 R4, [R2] ;
        /*0020*/                   FFMA R0, R4, R5, R0 ;
        /*0030*/               @P1 BRA `(.L_x_1) ;
        /*0040*/              @!P1 BRA `(.L_x_3) ;
.L_x_3:
        /*0050*/                   EXIT ;
.L_x_4:
        /*0060*/                   BRA `(.L_x_4);
        /*0070*/                   NOP;
"""
    (loop,) = probes._loops(text)
    assert loop == ["LDS.U.128", "FFMA", "BRA"]
    assert (count(loop, "LDS.128"), count(loop, "LDS"), count(loop, "LDS.64")) == (1, 1, 0)
    assert count(loop, "LD") == 0


@pytest.mark.parametrize(
    ("megabytes", "expected"), [(50, 16), (60, 16), (40, 8), (4, 1), (126, 32), (6, 2)]
)
def test_the_l2_probe_reads_at_most_a_third_of_the_cache(megabytes: int, expected: int) -> None:
    assert probes.l2_chunks(megabytes << 20) * CHUNK_BYTES == expected << 20
    assert probes.l2_chunks(1) == 1


def test_rates_follow_from_the_time_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_READ_BYTES", 5 * CHUNK_BYTES + 1)
    gpu = FakeGpu()
    steps: list[str] = []
    found = probes.measure(gpu, 0.1, steps.append, ["tilewise", "ceilings"])
    of_tensor_cores = [f"tensor cores, {dtype}" for dtype in ("float16", "bfloat16", "float64")]
    assert steps == [*RATES, *of_tensor_cores]
    assert len(steps) == probes.STEPS
    assert (found.name, found.arch, found.is_measured) == ("NVIDIA H200", "sm_90", True)
    assert re.match(r"measured 20\d\d-\d\d-\d\d by `tilewise ceilings`, NVIDIA H200", found.source)
    warps = 4 * 3 * 8  # multiprocessors, blocks on each, warps of a block
    assert found.dram == pytest.approx(5 * CHUNK_BYTES / 1e-3)
    assert found.l2 == pytest.approx(warps * 500 * 8 * 512 / 1e-3)
    assert found.shared == pytest.approx(warps * 4000 * 8 * 512 / 1e-3)
    assert found.float32 == pytest.approx(warps * 1000 * 512 * 64 / 1e-3)
    assert found.float64 == pytest.approx(warps * 1000 * 128 * 64 / 1e-3)
    loop = found.issue * 1e-3 / warps / 2000
    assert loop == pytest.approx(round(loop))
    assert 256 < loop <= 261
    read = gpu.launches.pop("dram_read")
    assert (read.grid, read.args[0]) == ((5, 1, 1), 1)
    assert read.args[2].nbytes == 5 * CHUNK_BYTES
    assert found.tensor_cores == {
        "float16": pytest.approx(4 * 2000 * 2 * 256 * 128 * 4096 / 1e-3),
        "bfloat16": pytest.approx(4 * 2000 * 2 * 256 * 128 * 4096 / 1e-3),
        "float64": pytest.approx(warps * 20_000 * 8 * 2 * 16 * 8 * 8 / 1e-3),
    }
    assert gpu.launches.pop("tensor_core_peak").grid == (4, 1, 1)
    assert all(launch.grid == (12, 1, 1) for launch in gpu.launches.values())


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_measuring_takes_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="each ceiling takes some"):
        probes.measure(FakeGpu(), seconds)


@pytest.mark.usefixtures("alone")
def test_what_is_measured_is_near_to_the_datasheet(gpu: Gpu) -> None:
    sheet = datasheet(gpu.description.partition(",")[0])
    if sheet is None:
        pytest.skip(f"no datasheet of {gpu.description} is known")
    found = probes.measure(gpu, 0.2)
    assert found.arch == sheet.arch
    for rate in RATES:
        promised = getattr(sheet, rate)
        if promised is not None:
            assert 0.5 <= getattr(found, rate) / promised <= 1.1, rate
    assert found.l2 is not None
    assert found.dram < found.l2 < found.shared
    for dtype, flops in found.tensor_cores.items():
        assert 0.5 <= flops / sheet.tensor_cores[dtype] <= 1.1, dtype


# The command


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)


@pytest.mark.usefixtures("no_gpu")
def test_ceilings_need_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "ceilings")
    assert (code, out) == (2, "")
    assert "no GPU can be used" in err
    assert "--device" not in err  # it has no such option
    code, out, _ = said(capsys, "ceilings", "--json", "-")
    assert code == 2
    assert json.loads(out)["kind"] == "DeviceUnavailableError"


def test_ceilings_are_shown_and_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tilewise.devices.get_device", lambda *_: FakeGpu())
    monkeypatch.setattr(probes, "_READ_BYTES", 12 * CHUNK_BYTES)
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "mine.json"
    code, out, _ = said(capsys, "ceilings", "--seconds", 0.5, "--json", path)
    assert code == 0
    *lines, last = out.splitlines()
    assert last == f"{path}: written"
    assert max(map(len, lines)) <= 80
    written = Ceilings(**json.loads(path.read_text()))
    assert "`tilewise ceilings --seconds 0.5`" in written.source
    ratio = written.shared / find("H200").shared
    assert re.search(rf"shared memory +\S+ TB/s +33\.5 TB/s +{ratio:.2f}", out)
    fast = written.tensor_cores["bfloat16"] / 9.89e14
    assert re.search(rf"bfloat16 products +\S+ PFLOP/s +989 TFLOP/s +{fast:.2f}", out)
    assert re.search(r"^L2 +\S+ GB/s *$", out, re.MULTILINE)  # of which no datasheet speaks
    printed = json.loads(said(capsys, "ceilings", "--seconds", 0.5, "--json", "-")[1])
    assert Ceilings(**printed) == written
    code, _, err = said(capsys, "ceilings", "--json", tmp_path / "nowhere" / "it.json")
    assert (code, "there is no folder" in err) == (2, True)
    code, _, err = said(capsys, "ceilings", "--seconds", -1)
    assert (code, "must be positive" in err) == (2, True)
