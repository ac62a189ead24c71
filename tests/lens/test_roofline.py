"""The roofline: bounds by hand, the GPUs that are known, the command, the figure."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import SIGNATURE, SOURCE
from fake_gpu import FakeGpu, said, without_gpu
from hypothesis import given
from hypothesis import strategies as st
from reference import thorough
from scripts import script

from tilewise import compiler
from tilewise.devices.emulated import emulator
from tilewise.ladder.run import run
from tilewise.ladder.rungs import RUNGS
from tilewise.lens import roofline_plot as plot
from tilewise.lens.figures import DPI, WIDTH, spread
from tilewise.lens.roofline import (
    LIMITS,
    RATES,
    Ceilings,
    Work,
    bound,
    datasheet,
    find,
    for_gpu,
    known,
    roof_of,
)
from tilewise.specs import run as launches

# Round figures, to reckon with by hand.
ROUND = Ceilings("Round", "sm_90", 1e12, 4e12, 16e12, 1e12, 64e12, 32e12, "datasheet: made up")
NOTHING = Work(0, "float32", 0, 0, 0, 0)


# The bound


def test_a_product_by_hand() -> None:
    """n = 1024 in tiles of 32: each matrix once, each tile of A and B once a block."""
    n, tile = 1024, 32
    work = Work(
        flops=2 * n**3,
        dtype="float32",
        dram_bytes=3 * n * n * 4,
        l2_bytes=2 * n**3 // tile * 4 + n * n * 4,
        shared_wavefronts=2 * n**3 // 32,
        warp_instructions=3 * n**3 // 32,
    )
    found = bound(work, ROUND)
    seconds = {limit.name: limit.seconds for limit in found.limits}
    assert seconds == {
        "DRAM": 12_582_912 / 1e12,
        "L2": 272_629_760 / 4e12,
        "shared memory": 67_108_864 * 128 / 16e12,
        "issue": 100_663_296 / 1e12,
        "arithmetic": 2_147_483_648 / 64e12,
    }
    assert found.binding == "shared memory"
    assert found.best_seconds == pytest.approx(536.87e-6, rel=1e-5)
    assert found.best_flops == pytest.approx(4e12)
    assert found.intensity == pytest.approx(n / 6)
    assert found.share(2 * found.best_seconds) == 0.5
    assert found.left_out == ()
    shares = {limit.name: limit.share for limit in found.limits}
    assert shares["shared memory"] == 1
    assert shares["issue"] == pytest.approx(100.663296 / 536.870912)


@pytest.mark.parametrize(
    ("change", "binding", "seconds"),
    [
        ({"dram_bytes": 3_000_000}, "DRAM", 3e-6),
        ({"l2_bytes": 8_000_000}, "L2", 2e-6),
        ({"shared_wavefronts": 1_000_000}, "shared memory", 8e-6),
        ({"warp_instructions": 7_000_000}, "issue", 7e-6),
        ({"flops": 128_000_000}, "arithmetic", 2e-6),
        ({"flops": 128_000_000, "dtype": "float64"}, "arithmetic", 4e-6),
    ],
)
def test_each_ceiling_alone(change: dict[str, Any], binding: str, seconds: float) -> None:
    found = bound(replace(NOTHING, **change), ROUND)
    assert (found.binding, found.best_seconds) == (binding, seconds)
    assert [limit.share for limit in found.limits] == [float(name == binding) for name in LIMITS]


def test_tensor_cores_are_a_ceiling_of_their_own() -> None:
    """16 bits at their rate, the multiply-adds of the epilogue at the arithmetic's."""
    machine = replace(ROUND, tensor_cores={"float16": 1e15, "float64": 64e12})
    work = replace(NOTHING, flops=3_000_064, other_flops=64)
    halves = replace(work, tensor_cores={"float16": 2_000_000})
    seconds = {limit.name: limit.seconds for limit in bound(halves, machine).limits}
    assert seconds["tensor cores"] == pytest.approx(2e-9)
    assert seconds["arithmetic"] == pytest.approx(1_000_000 / 64e12)
    both = replace(work, tensor_cores={"float16": 1_000_000, "float64": 1_000_000})
    assert bound(both, machine).limits[-1].seconds == pytest.approx(1e-9 + 1 / 64e6)
    few = replace(halves, blocks=33)
    busy = bound(few, replace(machine, multiprocessors=132))
    assert busy.limits[-1].seconds == pytest.approx(8e-9)
    unknown = bound(replace(work, tensor_cores={"bfloat16": 2_000_000}), machine)
    assert unknown.left_out == ("tensor cores",)
    assert [limit.name for limit in bound(work, machine).limits] == list(LIMITS)
    with pytest.raises(ValueError, match="float16 of tensor cores is -1"):
        replace(ROUND, tensor_cores={"float16": -1.0})
    with pytest.raises(ValueError, match="tensor_cores of float16 is -1"):
        replace(NOTHING, tensor_cores={"float16": -1})


def test_a_launch_is_under_the_roof_of_the_unit_that_does_the_most() -> None:
    work = replace(NOTHING, flops=100, tensor_cores={"bfloat16": 90})
    assert roof_of(work.to_dict()) == "bfloat16"
    assert roof_of(replace(work, tensor_cores={"bfloat16": 40}).to_dict()) == "float32"
    assert roof_of(replace(NOTHING, dtype="float64").to_dict()) == "float64"
    machine = replace(ROUND, tensor_cores={"bfloat16": 9e14})
    assert machine.roof("bfloat16") == ("tensor cores", 9e14)
    assert machine.roof("float16") == ("tensor cores", None)
    assert machine.roof("float64") == ("arithmetic", 32e12)


def test_of_equals_the_first_binds() -> None:
    found = bound(Work(0, "float32", 1000, 4000, 125, 1000), ROUND)
    assert found.binding == "DRAM"
    assert [limit.share for limit in found.limits] == [1, 1, 1, 1, 0]


def test_no_work_takes_no_time() -> None:
    found = bound(NOTHING, ROUND)
    assert (found.best_seconds, found.best_flops) == (0, 0)
    assert {limit.share for limit in found.limits} == {0}
    assert found.intensity == math.inf
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["intensity"] is None


def test_an_unknown_ceiling_is_left_out_and_said() -> None:
    work = Work(1, "float32", 1, 10**9, 1, 1)
    found = bound(work, replace(ROUND, l2=None))
    assert found.left_out == ("L2",)
    assert [limit.name for limit in found.limits] == [name for name in LIMITS if name != "L2"]
    assert found.best_seconds < bound(work, ROUND).best_seconds
    assert found.to_dict()["left_out"] == ["L2"]


amounts = st.integers(0, 10**15)
works = st.builds(
    Work, amounts, st.sampled_from(["float32", "float64"]), amounts, amounts, amounts, amounts
)
rates = st.floats(1e6, 1e18)
machines = st.builds(
    Ceilings, st.just("any"), st.just("sm_90"), rates, st.none() | rates, rates, rates, rates,
    rates, st.just("datasheet: any"),
)  # fmt: skip


def test_few_blocks_keep_few_multiprocessors_busy() -> None:
    """What a multiprocessor has of its own counts for those with a block; memories for all."""
    machine = replace(ROUND, multiprocessors=100)
    work = Work(10**9, "float32", 10**6, 10**6, 10**6, 10**6)
    whole = {limit.name: limit.seconds for limit in bound(work, machine).limits}
    for blocks, share in ((4, 25), (99, 100 / 99), (100, 1), (101, 1), (None, 1)):
        found = bound(replace(work, blocks=blocks), machine)
        seconds = {limit.name: limit.seconds for limit in found.limits}
        for name in ("shared memory", "issue", "arithmetic"):
            assert seconds[name] == pytest.approx(share * whole[name])
        for name in ("DRAM", "L2"):
            assert seconds[name] == whole[name]
        assert found.busy == (None if blocks is None else min(blocks, 100))
    unknown = bound(replace(work, blocks=4), ROUND)
    assert {limit.name: limit.seconds for limit in unknown.limits} == whole
    assert unknown.busy is None


def test_the_multiprocessors_of_every_known_gpu_are_known() -> None:
    for each in known():
        (count,) = re.findall(r"(\d+) multiprocessors", each.source)
        assert each.multiprocessors == int(count)
    with pytest.raises(ValueError, match="multiprocessors is 0; it must be at least 1"):
        replace(ROUND, multiprocessors=0)


@given(work=works, machine=machines)
def test_the_best_is_the_longest_limit(work: Work, machine: Ceilings) -> None:
    found = bound(work, machine)
    assert {limit.name for limit in found.limits} | set(found.left_out) == set(LIMITS)
    assert found.best_seconds == max(limit.seconds for limit in found.limits)
    (binding,) = (limit for limit in found.limits if limit.name == found.binding)
    assert binding.seconds == found.best_seconds
    for limit in found.limits:
        assert 0 <= limit.share <= 1
        assert limit.share * found.best_seconds == pytest.approx(limit.seconds)
    if work.flops:
        assert found.best_flops * found.best_seconds == pytest.approx(work.flops)
        assert found.best_flops <= machine.flops(work.dtype) * (1 + 1e-12)
    json.dumps(found.to_dict(), allow_nan=False)


@given(work=works, machine=machines, rate=st.sampled_from(RATES))
def test_a_higher_ceiling_never_lengthens(work: Work, machine: Ceilings, rate: str) -> None:
    value = getattr(machine, rate)
    before = bound(work, machine).best_seconds
    after = bound(work, replace(machine, **{rate: value and 2 * value})).best_seconds
    assert before / 2 <= after <= before


@given(work=works, machine=machines)
def test_twice_the_work_takes_twice_as_long(work: Work, machine: Ceilings) -> None:
    fields = ("flops", "dram_bytes", "l2_bytes", "shared_wavefronts", "warp_instructions")
    twice = replace(work, **{name: 2 * getattr(work, name) for name in fields})
    assert bound(twice, machine).best_seconds == 2 * bound(work, machine).best_seconds


@pytest.mark.parametrize(
    ("change", "words"),
    [({"dtype": "float16"}, "float32, float64"), ({"flops": -1}, "flops is -1"),
     ({"l2_bytes": -2}, "l2_bytes is -2")],
)  # fmt: skip
def test_work_that_is_none(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(NOTHING, **change)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, None, "4.8 TB/s"])
def test_a_ceiling_that_is_none(value: Any) -> None:
    with pytest.raises(ValueError, match="Round: dram is"):
        replace(ROUND, dram=value)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        bound(NOTHING, ROUND).share(seconds)


# The GPUs that are known


def test_every_entry_is_whole() -> None:
    text = (Path(plot.__file__).parent / "ceilings.json").read_text()
    entries = json.loads(text)
    assert len(entries) == len(known()) >= 8
    for entry in entries:
        assert entry.keys() == {
            "name", "arch", *RATES, "tensor_cores", "source", "multiprocessors",
        }  # fmt: skip
        assert entry["tensor_cores"].keys() <= {"float16", "bfloat16", "float64"}
        if not entry["source"].startswith("measured"):
            assert "float16" in entry["tensor_cores"]
            # bfloat16 from Ampere on, float64 on the GPUs of data centers alone
            assert ("bfloat16" in entry["tensor_cores"]) == (entry["arch"] != "sm_75")
            wide = entry["arch"] in ("sm_80", "sm_90", "sm_100")
            assert ("float64" in entry["tensor_cores"]) == wide
        assert all(entry[rate] > 0 for rate in RATES if rate != "l2" or entry[rate] is not None)
        assert re.match(r"measured 20\d\d-\d\d-\d\d by `|datasheet: \w", entry["source"])
        assert entry["arch"] in compiler.architectures()
    assert {entry.arch for entry in known()} == {
        "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120",
    }  # fmt: skip
    pairs = [(entry.name, entry.is_measured) for entry in known()]
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    "entry", [each for each in known() if not each.is_measured], ids=lambda entry: entry.name
)
def test_what_was_derived_follows_from_its_source(entry: Ceilings) -> None:
    given_ = re.search(r"derived from (\d+) multiprocessors at ([\d.]+) GHz", entry.source)
    assert given_ is not None
    clocks = int(given_[1]) * float(given_[2]) * 1e9
    width = re.search(r"shared \((\d+) bytes a clock", entry.source)
    assert width is not None
    assert entry.shared == pytest.approx(int(width[1]) * clocks, rel=1e-5)
    assert entry.issue == pytest.approx(4 * clocks, rel=1e-5)
    whole = re.search(r"l2 \((\d+) bytes a clock", entry.source)
    assert (whole is None) == (entry.l2 is None)
    if whole is not None and entry.l2 is not None:
        assert entry.l2 == pytest.approx(int(whole[1]) * float(given_[2]) * 1e9, rel=1e-5)
    if "float64 (2 fused" in entry.source:
        assert entry.float64 == pytest.approx(4 * clocks, rel=1e-5)
    # A multiprocessor has 64 lanes for floats, or 128, and two operations a multiply-add; the
    # datasheet rounds.
    lanes = entry.float32 / 2 / clocks
    assert lanes == pytest.approx(64 if entry.arch in ("sm_75", "sm_80") else 128, rel=0.01)
    assert entry.float64 <= entry.float32
    assert entry.dram < entry.shared


@pytest.mark.parametrize(
    ("asked", "name"),
    [("NVIDIA H200", "NVIDIA H200"), ("h200", "NVIDIA H200"), ("  nvidia  H200 ", "NVIDIA H200"),
     ("A100", "NVIDIA A100-SXM4-80GB"), ("a100 80gb", "NVIDIA A100-SXM4-80GB"),
     ("T4", "Tesla T4"), ("rtx 4090", "NVIDIA GeForce RTX 4090"), ("L4", "NVIDIA L4")],
)  # fmt: skip
def test_find(asked: str, name: str) -> None:
    assert find(asked).name == name


@pytest.mark.parametrize("asked", ["", "nvidia", "H20", "V100", "H200 PCIe"])
def test_find_lists_those_there_are(asked: str) -> None:
    with pytest.raises(ValueError, match="is none that is known; there are") as raised:
        find(asked)
    assert all(entry.name in str(raised.value) for entry in known())


def test_find_asks_which() -> None:
    with pytest.raises(ValueError, match=r"fits .*3090.*4090.*5090: say which; there are"):
        find("RTX")


def test_the_gpu_at_hand_is_found_by_its_whole_name() -> None:
    assert for_gpu("NVIDIA H200, compute capability 9.0").name == "NVIDIA H200"
    assert for_gpu("A100-SXM4-80GB, by an older driver").name == "NVIDIA A100-SXM4-80GB"
    for other in ("NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA L40", ""):
        with pytest.raises(ValueError, match=r"are not known; `tilewise ceilings.*NVIDIA H200"):
            for_gpu(other)


def test_measured_goes_before_the_datasheet(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = replace(ROUND, name="NVIDIA X1")
    mine = replace(sheet, dram=9e11, source="measured 2031-01-02 by `tilewise ceilings`")
    monkeypatch.setattr("tilewise.lens.roofline.known", lambda: (sheet, mine))
    assert find("x1") == for_gpu("NVIDIA X1, and more") == mine
    assert datasheet("NVIDIA X1") == sheet
    assert datasheet("NVIDIA X2") is None


# The command


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)


SIZES = ("-m", 64, "-n", 64, "-k", 64)


@pytest.mark.usefixtures("no_gpu")
def test_a_kernel_on_the_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(
        capsys, "roofline", "tiled", "tiled_conflicts", *SIZES, "--tile", 16, "--json"
    )
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["ceilings"] == find("H200").to_dict()
    assert (document["measured"], document["correct"], document["plot"]) == (False, True, None)
    tiled, conflicts = document["kernels"]
    assert (tiled["kernel"], tiled["tile"], tiled["seconds"]) == ("tiled", 16, None)
    assert tiled["checked"]
    n, edge = 64, 16
    assert tiled["work"]["dram_bytes"] == 3 * n * n * 4
    assert tiled["work"]["l2_bytes"] == 2 * n**3 // edge * 4 + n * n * 4
    assert tiled["work"]["flops"] >= 2 * n**3
    assert tiled["intensity"] == tiled["work"]["flops"] / tiled["work"]["dram_bytes"]
    work = Work(**tiled["work"])
    assert tiled["best_seconds"] == bound(work, find("H200")).best_seconds
    assert conflicts["binding"] == "shared memory"
    assert conflicts["best_seconds"] > tiled["best_seconds"]


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["multistage", pytest.param("persistent", marks=thorough)])
def test_a_rung_of_tensor_cores_on_the_roofline(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is beside one of float32, each in its own type."""
    words = ("roofline", "tuned", name, *SIZES, "--on", "H200")
    document = json.loads(said(capsys, *words, "--json")[1])
    tuned, row = document["kernels"]
    assert (document["dtype"], tuned["dtype"], row["dtype"]) == (None, "float32", "float16")
    assert row["work"]["tensor_cores"].keys() == {"float16"}
    assert row["work"]["tensor_cores"]["float16"] >= 2 * 64**3
    assert row["work"]["other_flops"] == 0
    assert [limit["name"] for limit in row["limits"]] == [*LIMITS, "tensor cores"]
    assert [limit["name"] for limit in tuned["limits"]] == list(LIMITS)
    # ldmatrix's, and what wgmma reads of its operands: 64 x 16 and 256 x 16 elements at once.
    assert row["work"]["shared_wavefronts"] >= (64 // 16 * 80 if name == "persistent" else 64)
    code, out, _ = said(capsys, *words)
    assert code == 0
    assert "float32 and float16, on NVIDIA H200" in " ".join(out.split())
    assert "tensor cores in float16 813 TFLOP/s" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


@thorough
@pytest.mark.usefixtures("no_gpu")
def test_rungs_that_a_gpu_cannot_run_are_left_out_with_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("roofline", *SIZES, "--on", "A100", "--dtype", "float16")
    document = json.loads(said(capsys, *words, "--json")[1])
    assert [row["kernel"] for row in document["kernels"]] == [
        "tensor_core", "ldmatrix", "multistage",
    ]  # fmt: skip
    told = "not run on sm_80: warpgroup, specialized, persistent (sm_90a alone)"
    assert document["notes"] == [told]


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_can_run_no_rung_of_a_dtype(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "roofline", *SIZES, "--on", "T4", "--dtype", "float16")
    assert (code, "no rung of float16: not run on sm_75: tensor_core" in err) == (2, True)


@pytest.mark.usefixtures("no_gpu")
def test_launches_of_few_blocks_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["roofline", "tiled", *SIZES, "--on", "H200"]
    out = " ".join(said(capsys, *words)[1].split())
    told = "Fewer blocks than the 132 multiprocessors: tiled 4. Their times of shared memory, issue"
    assert told in out
    row = json.loads(said(capsys, *words, "--json")[1])["kernels"][0]
    assert (row["work"]["blocks"], row["busy_multiprocessors"]) == (4, 4)
    many = ["roofline", "tiled", "-m", 512, "-n", 512, "-k", 8, "--on", "H200"]
    assert "Fewer blocks" not in said(capsys, *many)[1]


def test_what_is_not_computed_is_not_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrices of 40 GB."""
    without_gpu(monkeypatch)
    words = ["roofline", "tiled", "-m", 100_000, "-n", 100_000, "-k", 32]
    code, out, err = said(capsys, *words)
    assert (code, err) == (0, "")
    assert "C is not checked: not all of it was computed." in out
    row = json.loads(said(capsys, *words, "--json")[1])["kernels"][0]
    assert (row["checked"], row["correct"]) == (False, True)


@thorough
@pytest.mark.usefixtures("no_gpu")
def test_the_rungs_of_many_blocks_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "roofline", *SIZES, "--on", "a100", "--dtype", "float64")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "NVIDIA A100-SXM4-80GB" in out
    for name in ("naive", "coalesced", "tiled", "tiled_conflicts", "tiled_branchless"):
        assert len(re.findall(rf"^{name}  .*", out, re.MULTILINE)) == 2
    assert "single_thread" not in out
    assert "left out" not in out  # its L2 is in the whitepaper
    assert "float64 9.7 TFLOP/s" in out
    assert "left out" in said(capsys, "roofline", "naive", *SIZES, "--on", "rtx 4090")[1]


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tiled", "-m", 0, "-n", 8, "-k", 8], "m is 0; it must be from 1"),
        (["no_such_rung", *SIZES], "no kernel called 'no_such_rung'"),
        (["nowhere.cu:mine", *SIZES], "there is no file nowhere.cu"),
        (["tiled", "single_block", *SIZES], "at most 1,024; 64 x 64 is 4,096"),
        (["tiled", *SIZES, "--tile", 33], "tile is 33"),
        (["single_thread", *SIZES, "--tile", 8], "has no tiles"),
        (["tiled", *SIZES, "--on", "V100"], "is none that is known"),
        (["tiled", *SIZES, "--plot", "it.gif"], "must end in .png, .svg, .pdf"),
        (["tiled", *SIZES, "--plot", "it"], "must end in"),
        (["tiled", *SIZES, "--plot", "nowhere/it.png"], "there is no folder nowhere"),
    ],
)
def test_bad_words_are_refused_before_anything_is_run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: Sequence[Any],
    told: str,
) -> None:
    if "--plot" in words:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "tilewise.lens.profiling.profile", lambda *_, **__: pytest.fail("it was run")
    )
    code, _, err = said(capsys, "roofline", *words)
    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_gpu")
def test_kernels_of_one_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.cu", tmp_path / "second.cu"
    first.write_text(SOURCE)
    second.write_text(SOURCE.replace("sum += a", "sum -= a"))
    words = ("roofline", f"{first}:talks", f"{second}:talks", *SIZES)
    code, out, err = said(capsys, *words)
    assert code == 1
    assert len(re.findall(r"^first.cu:talks .*", out, re.MULTILINE)) == 2
    assert len(re.findall(r"^second.cu:talks .*", out, re.MULTILINE)) == 2
    assert err == "tilewise: second.cu:talks: a wrong result\n"
    document = json.loads(said(capsys, *words, "--json")[1])
    assert [row["file"] for row in document["kernels"]] == [str(first), str(second)]


@pytest.mark.usefixtures("no_gpu")
def test_a_kernel_that_does_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "idle.cu"
    path.write_text(f'extern "C" __global__ void idle{SIGNATURE} {{}}')
    code, out, _ = said(capsys, "roofline", f"{path}:idle", *SIZES)
    assert code == 1
    assert re.search(r"^idle +0 +0 B +nothing +0 µs +0$", out, re.MULTILINE)


def timed(monkeypatch: pytest.MonkeyPatch, seconds: float, correct: bool = True) -> None:
    """Runs take place on the emulator, and take so long."""

    def fake(target: Any, a: Any, b: Any, *, tile: int | None, device: Any) -> Any:
        assert isinstance(device, FakeGpu)
        found = run(target, a, b, tile=tile, device=emulator())
        assert found.report is not None
        check = replace(found.check, correct=correct)
        return replace(found, report=replace(found.report, seconds=seconds), check=check)

    monkeypatch.setattr("tilewise.ladder.run.run", fake)


def test_on_a_gpu_a_launch_of_any_kernel_is_timed_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu, launch = FakeGpu(), launches.launch

    def fake(prepared: Any, *, device: Any) -> Any:
        assert device is gpu
        found = launch(prepared, device=emulator())
        return replace(found, report=replace(found.report, seconds=4e-6))

    monkeypatch.setattr("tilewise.devices.get_device", lambda *_: gpu)
    monkeypatch.setattr(launches, "launch", fake)
    path = tmp_path / "k.cu"
    path.write_text(
        "__global__ void k(int n, float* x) { if (threadIdx.x < n) x[threadIdx.x] = 1; }"
    )
    words = ("roofline", f"{path}:k", "--grid", 1, "--block", 64, "--args", 40, "empty:40")
    document = json.loads(said(capsys, *words, "--json")[1])
    (row,) = document["kernels"]
    assert document["measured"]
    assert (row["seconds"], row["share"]) == (4e-6, row["best_seconds"] / 4e-6)


def test_on_a_gpu_the_share_is_of_the_measured_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu()
    monkeypatch.setattr("tilewise.devices.get_device", lambda *_: gpu)
    monkeypatch.setenv("COLUMNS", "80")
    timed(monkeypatch, 2e-6)
    words = ("roofline", "tiled_branchless", "naive", "-m", 32, "-n", 32, "-k", 32)
    document = json.loads(said(capsys, *words, "--json")[1])
    assert document["measured"] is True
    for row in document["kernels"]:
        assert row["seconds"] == 2e-6
        assert row["share"] == row["best_seconds"] / 2e-6
    code, out, _ = said(capsys, *words)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    # The table of times is too wide for 80 columns, and told row by row.
    assert len(re.findall(r"measured 2 µs; share +\d+\.\d%", " ".join(out.split()))) == 2
    # Another's ceilings say nothing about a time on this one.
    assert json.loads(said(capsys, *words, "--json", "--on", "a100")[1])["measured"] is False
    assert json.loads(said(capsys, *words, "--json", "--on", "h200")[1])["measured"] is True
    assert "More than 100 %" not in out
    timed(monkeypatch, 1e-9)
    assert "More than 100 %" in said(capsys, *words)[1]
    gpu.description = "NVIDIA X1, unheard of"
    code, _, err = said(capsys, *words)
    assert code == 2
    assert "the ceilings of NVIDIA X1 are not known" in err
    assert json.loads(said(capsys, *words, "--json", "--on", "h200")[1])["measured"] is False


def test_a_wrong_result_on_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.devices.get_device", lambda *_: FakeGpu())
    timed(monkeypatch, 2e-6, correct=False)
    code, out, err = said(capsys, "roofline", "tiled", *SIZES)
    assert code == 1
    assert "WRONG" in out
    assert "tiled: a wrong result" in err


# The figure


@pytest.fixture
def matplotlib() -> Any:
    return pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def point(name: str, intensity: float, flops: float, *rest: Any, shared: float = math.inf) -> Any:
    """A kernel that reaches DRAM, and L2 as often; and shared memory, where that is said."""
    by = {"DRAM": intensity, "L2": intensity, "shared memory": shared}
    return plot.Point(name, by, flops, *rest)


POINTS = [
    point("naive", 170.0, 4.9e11),
    point("coalesced", 170.0, 6.3e12),
    point("tiled", 170.0, 8.7e12),
    point("tiled_conflicts", 170.0, 1.4e12),
    point("tiled_branchless", 170.0, 8.8e12),
    point("elsewhere", 2.0, 3e12),
]
FAST = [
    point("multistage", 340.0, 4.8e14, "bfloat16", "shared memory", 6.4e14, shared=20.0),
    point("specialized", 340.0, 7.1e14, "bfloat16", "tensor cores", 8.8e14, shared=50.0),
]


@pytest.mark.usefixtures("matplotlib")
@pytest.mark.parametrize("is_fast", [False, True])
def test_the_figure_is_readable(is_fast: bool) -> None:
    from matplotlib.text import Text

    machine = replace(find("H200"), tensor_cores={"bfloat16": 8.8e14})
    points = [*POINTS, *FAST] if is_fast else POINTS
    made = plot.figure(points, machine, "a title", "a note")
    made.canvas.draw()
    (axes,) = made.axes
    texts = [text for text in made.findobj(match=_is_text) if text.get_text().strip()]
    names = {text.get_text().replace("\n", " ") for text in texts}
    assert {"naive, 490 GFLOP/s", "tiled, 8.7 TFLOP/s", "a title", "a note"} <= names
    memory, rate = ("shared memory", 33.3) if is_fast else ("DRAM", 4.64)
    assert {f"FLOPs a byte of {memory}", f"{memory}, {rate} TB/s"} <= names
    assert ("no shared memory" in names) == is_fast
    assert f"arithmetic in float32, {find('H200').float32 / 1e12:.3g} TFLOP/s" in names
    assert ("tensor cores in bfloat16, 880 TFLOP/s" in names) == is_fast
    assert {"multistage, 75%", "Bound by", "shared memory"} <= names or not is_fast
    # On a telephone, 390 pixels across, letters are 10 pixels high.
    assert all(text.get_fontsize() / 72 * 390 / WIDTH >= 10 for text in texts)
    frame = made.bbox
    # The words alone, without the lines that lead to them.
    boxes = {text.get_text(): Text.get_window_extent(text) for text in (*axes.texts, *made.texts)}
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes.values())
    assert all(frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in boxes.values())
    upright = [box for name, box in boxes.items() if not name.startswith(memory)]
    for index, one in enumerate(upright):
        assert not any(one.overlaps(other) for other in upright[index + 1 :])
    marks = [line for line in axes.lines if line.get_marker() not in ("None", "", None)]
    assert len(marks) == len(points) + 2 * is_fast  # and what binds the fast ones


def _is_text(artist: Any) -> bool:
    return hasattr(artist, "get_fontsize") and hasattr(artist, "get_text")


@pytest.mark.usefixtures("matplotlib")
def test_the_axis_is_of_the_memory_that_binds_most() -> None:
    """Kernels that ask as much of DRAM, and not of shared memory, stand apart."""
    by = [0.05, 0.32, 0.76, 1.5, 12.0]
    bound_by = [
        point(f"rung {i}", 170.0, 1e12 * (i + 1), "float32", "shared memory", 3e13, shared=each)
        for i, each in enumerate(by)
    ]
    other = point("naive", 170.0, 5e11, "float32", "issue", 2e13)
    machine = find("H200")
    axes = plot.figure([*bound_by, other], machine, "", "").axes[0]
    places = [line.get_xdata()[0] for line in axes.lines if line.get_marker() in ("o", "s")]
    assert places[:-1] == by
    assert places[-1] > max(by)  # in the strip of those that use none
    assert len(axes.patches) == 1
    by_l2 = [point(f"{i}", 10.0 * i, 1e12, "float32", "L2", 2e12) for i in (1, 2)]
    assert plot.memory_of([*by_l2, bound_by[0]], machine) == "L2"
    assert plot.memory_of([*by_l2, bound_by[0]], replace(machine, l2=None)) == "shared memory"
    assert plot.memory_of([other], machine) == "DRAM"


def test_intensities_are_operations_by_the_bytes_of_each_memory() -> None:
    work = Work(1280, "float32", 10, 40, 5, 7)
    found = plot.intensities(work.to_dict())
    assert found == {"DRAM": 128.0, "L2": 32.0, "shared memory": 2.0}
    assert plot.intensities({**work.to_dict(), "l2_bytes": 0})["L2"] == math.inf


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("no_gpu", "matplotlib")
@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"),
                                                ("pdf", b"%PDF")])  # fmt: skip
def test_the_plot_is_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str, begins: bytes
) -> None:
    path = tmp_path / f"it.{suffix}"
    code, out, _ = said(capsys, "roofline", "tiled", "naive", *SIZES, "--plot", path)
    assert code == 0
    assert "drawn" in out
    data = path.read_bytes()
    assert data.startswith(begins)
    if suffix == "png":
        assert struct.unpack(">I", data[16:20]) == (WIDTH * DPI,)
        assert 10_000 < len(data) < 1_000_000
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    printed = said(capsys, "roofline", "tiled", "naive", *SIZES, "--plot", path, "--json")[1]
    assert json.loads(printed)["plot"] == str(path)
    assert path.read_bytes() == data


@pytest.mark.usefixtures("matplotlib")
def test_nothing_to_draw(tmp_path: Path) -> None:
    points = [point("idle", 0.0, 0.0), point("endless", math.inf, 1e12)]
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.draw(points, ROUND, "", "", tmp_path / "it.png")
    assert not list(tmp_path.iterdir())
    made = plot.figure([*points, *POINTS], ROUND, "", "")
    assert not any("idle" in text.get_text() for text in made.axes[0].texts)


@given(
    heights=st.lists(st.floats(0, 1000), min_size=1, max_size=12),
    gap=st.floats(1, 50),
)
def test_names_stand_apart_in_their_order(heights: list[float], gap: float) -> None:
    moved = spread(heights, gap, 0, 1000)
    ranked = sorted(range(len(heights)), key=lambda i: heights[i])
    above = [moved[i] for i in ranked]
    assert all(b - a >= gap * (1 - 1e-9) for a, b in pairwise(above))
    assert min(moved) >= -1e-6
    assert max(moved) <= 1000 + 1e-6
    apart = all(abs(heights[b] - heights[a]) >= gap for a, b in pairwise(ranked))
    if apart:
        assert moved == pytest.approx(heights)


# What is kept


def test_the_record_has_every_rung_of_many_blocks_with_the_climbs_times() -> None:
    drawing = script("roofline.py")
    kept = json.loads((drawing["RESULTS"] / "roofline_h200.json").read_text())
    climb = json.loads(drawing["CLIMB"].read_text())
    assert kept["times_from"] == {key: climb[key] for key in ("date", "command")}
    points = {point.kernel: point for point in drawing["climbed"](climb)}
    assert [row["kernel"] for row in kept["kernels"]] == [each.name for each in RUNGS if each.tiles]
    machine = find("H200")
    assert kept["ceilings"] == machine.to_dict()
    for row in kept["kernels"]:
        point = points[row["kernel"]]
        assert (row["dtype"], row["seconds"]) == (point.dtype, point.row["seconds"])
        found = bound(Work(**row["work"]), machine)
        assert found.binding == row["binding"]
        assert found.best_seconds == pytest.approx(row["best_seconds"])
        assert row["share"] == pytest.approx(found.share(row["seconds"]))
        assert row["correct"]
