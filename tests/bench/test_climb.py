"""``tilewise climb``: what is measured and checked."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import as_if_on_a_gpu
from fake_gpu import FakeGpu
from reference import thorough
from scripts import script

from tilewise.bench import climb, record
from tilewise.bench.climb import Settings
from tilewise.cli.main import main
from tilewise.devices.emulator import Emulator
from tilewise.devices.gpu import Gpu
from tilewise.errors import LaunchError
from tilewise.ladder.rungs import RUNGS, rung, rungs_of
from tilewise.launch import Launch
from tilewise.places import TensorMap
from tilewise.tensor_map import MappedArray


@pytest.fixture(autouse=True)
def _with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_on_a_gpu(monkeypatch)


def test_settings() -> None:
    settings = Settings(sizes=(512, 64, 512), dtypes=("float64", "float64"))
    assert (settings.sizes, settings.dtypes) == ((64, 512), ("float64",))
    assert settings.rungs("float32") == RUNGS[:13]
    assert settings.rungs("bfloat16") == RUNGS[13:]
    assert Settings(kernels=("tiled", "matmul")).has_ours
    assert not Settings(kernels=("tiled",)).has_ours
    assert Settings().dtypes == Settings(kernels=("matmul",)).dtypes == ("float32", "bfloat16")
    assert {each for dtype in Settings().dtypes for each in settings.rungs(dtype)} == set(RUNGS)
    assert Settings(kernels=("tiled",)).dtypes == ("float32",)
    assert Settings(kernels=("persistent",)).dtypes == ("bfloat16",)
    assert Settings().edge_sizes("float32") == (2048, 4096)
    assert Settings(kernels=("tiled",)).edge_sizes("float32") == ()
    for change, told in (
        ({"sizes": ()}, "no size"),
        ({"sizes": (0,)}, "a size is 0"),
        ({"kernels": ("tilde",)}, "no kernel called 'tilde'"),
        ({"dtypes": ("int8",)}, "dtype is 'int8'"),
        ({"kernels": ("tiled", "tuned"), "dtypes": ("float32", "bfloat16")},
         "none of tiled, tuned takes bfloat16"),
        ({"rounds": 0}, "rounds is 0"),
        ({"seconds": math.inf}, "seconds is inf"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            Settings(**change)


# The exact product


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_error_is_that_of_exact_arithmetic(torch: Any, dtype: str) -> None:
    from tilewise.bench.exact import Exact

    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    a = torch.randn(5, 90, dtype=kind, generator=generator)
    b = torch.randn(90, 4, dtype=kind, generator=generator) * 2.0 ** torch.arange(-40, 50)[:, None]
    b = b.to(kind)
    c = a @ b
    square_error, square = Fraction(0), Fraction(0)
    for i in range(5):
        for j in range(4):
            terms = zip(a[i].tolist(), b[:, j].tolist(), strict=True)
            value = sum((Fraction(x) * Fraction(y) for x, y in terms), Fraction(0))
            square_error += (Fraction(float(c[i, j])) - value) ** 2
            square += value**2
    found = Exact(a, b).distance(c)
    assert found.norm == pytest.approx(math.sqrt(square_error / square), rel=1e-3)
    assert found.correct


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_wrong_is_found(torch: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewise.bench import exact

    monkeypatch.setattr(exact, "_CHECKED_FLOPS", 0)  # of 300 rows 256
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(300, 300, dtype=getattr(torch, dtype), generator=generator) for _ in "ab")
    product = exact.Exact(a, b)
    assert product.rows.numel() == 256
    c = a @ b
    assert product.distance(c).correct
    bound = 300 * np.finfo(dtype).eps * float((a.abs() @ b.abs())[299, 7])  # twice over
    c[299, 7] += 2 * bound
    assert not product.distance(c).correct
    c = a @ b
    c[:, 0] = math.nan
    assert product.distance(c).share == math.inf
    # The last term is left out.
    assert not product.distance(a[:, :-1] @ b[:-1]).correct


# What is measured, with kernels on the emulator and times that are made up


def run(*args: Any) -> dict[str, Any]:
    """:func:`tilewise.bench.rungs.run`, which needs PyTorch."""
    from tilewise.bench import rungs

    return rungs.run(*args)


class Prepared:
    def __init__(self, compiled: Any, launch: Launch) -> None:
        self.compiled, self.launch = compiled, launch


class EmulatedGpu(FakeGpu):
    """A GPU that computes on the emulator; arrays are PyTorch's, on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.emulator = Emulator()
        self.spoiled: dict[str, Callable[[Any], None]] = {}
        self.enqueued: list[tuple[str, int]] = []

    def prepare(self, compiled: Any, launch: Launch) -> Any:
        return Prepared(compiled, launch)

    def enqueue(self, prepared: Any, stream: int, addresses: Sequence[int] = ()) -> None:
        compiled, n = prepared.compiled, prepared.launch.args[0]
        self.enqueued.append((compiled.name, n))
        kinds = {"unsigned short*": ctypes.c_ushort, "double*": ctypes.c_double}
        kind = kinds.get(compiled.parameters[9].declared, ctypes.c_float)
        arrays = [
            np.ctypeslib.as_array((kind * (n * n)).from_address(at)).reshape(n, n)
            for at in addresses
        ]
        args = [
            MappedArray(arrays[x.place.array], x) if isinstance(x, TensorMap) else x
            for x in prepared.launch.args
        ]
        args[4], args[6], args[9] = arrays
        launch = prepared.launch
        again = Launch(launch.grid, launch.block, tuple(args), launch.shared)
        self.emulator.launch(compiled, again)
        if compiled.name in self.spoiled:
            self.spoiled[compiled.name](arrays[2])


TIMES: dict[str, float] = {}  # of kernels, in the fixture's clock


@pytest.fixture
def emulated(torch: Any, monkeypatch: pytest.MonkeyPatch) -> EmulatedGpu:
    from tilewise.bench import contenders, rungs
    from tilewise.bench.timing import Timings

    gpu = EmulatedGpu()

    def seconds_of(work: Any) -> float:
        work()
        if not gpu.enqueued:
            return 1e-3
        name, n = gpu.enqueued[-1]
        gpu.enqueued.clear()
        return TIMES.get(name, 1e-9) * n**3 if name != "single_thread" else 1e-3 * n**3

    def in_turn(
        works: Mapping[str, Sequence[Any]], rounds: int, seconds: float, after: Any = None
    ) -> Timings:
        found: dict[str, list[float]] = {}
        for place, (name, calls) in enumerate(works.items()):
            for index in range(rounds):
                calls[0]()
                if after is not None:
                    after(name, index)
            found[name] = [1e-3 * (place + 1)] * rounds
        return Timings(found, dict.fromkeys(works, 7), False)

    @contextlib.contextmanager
    def place(_: Gpu) -> Iterator[None]:
        yield

    monkeypatch.setattr(rungs, "seconds_of", seconds_of)
    monkeypatch.setattr(rungs, "in_turn", in_turn)
    monkeypatch.setattr(rungs, "place", place)
    monkeypatch.setattr(contenders, "_device", lambda: "cpu")
    monkeypatch.setattr(contenders, "_stream", lambda: 0)
    monkeypatch.setattr(contenders, "sets_to_rotate", lambda nbytes, cache: 2)
    monkeypatch.setattr(record, "find_gpu", lambda: gpu)
    monkeypatch.setattr(climb, "EDGE_SIZES", range(30, 50))
    return gpu


def of_units(document: Mapping[str, Any], dtype: str, unit: str) -> float:
    """What a unit can do in a dtype, operations a second."""
    rate = document["arithmetic"][dtype][unit]
    assert isinstance(rate, float)
    return rate


def rows_of(document: Mapping[str, Any], n: int, dtype: str = "float32") -> dict[str, Any]:
    return {
        row["kernel"]: row for row in document["rows"] if (row["n"], row["dtype"]) == (n, dtype)
    }


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=thorough)])
def test_a_climb_from_end_to_end(emulated: EmulatedGpu, dtype: str) -> None:
    steps: list[str] = []
    kernels = ("single_block", "tiled", "thread_tile_1d", "matmul")
    settings = Settings((16, 40), kernels, (dtype,), rounds=3)
    found = run(settings, emulated, steps.append, ["tilewise", "climb"])
    assert len(steps) == settings.steps
    assert found["correct"]
    rows = rows_of(found, 16, dtype)
    assert list(rows) == [*kernels, "vendor"]
    for place, row in enumerate(rows.values()):
        assert row["correct"]
        assert row["same_bits"]
        assert 0 < row["error_share"] <= 1
        assert row["seconds"] == 1e-3 * (place + 1)
        assert len(row["seconds_of_rounds"]) == 3
        assert row["tflops"] == pytest.approx(2e-12 * 16**3 / row["seconds"])
        assert row["ratio"] == pytest.approx(5 / (place + 1))
        assert row["share"] == pytest.approx(
            1e12 * row["tflops"] / of_units(found, dtype, row["unit"])
        )
        assert row["error_ratio"] == row["error"] / rows["vendor"]["error"]
        assert "digest" not in row
    assert "1,024" in rows_of(found, 40, dtype)["single_block"]["skipped"]
    assert "seconds" not in rows_of(found, 40, dtype)["single_block"]
    # thread_tile_1d has tiles of 64; matmul and the vendor's are held against the largest.
    multiples = {row["kernel"]: (row["n"], row["multiple"]) for row in found["edges"]}
    largest = max(row["multiple"] for row in found["edges"])
    assert multiples == {
        "thread_tile_1d": (41, 64), "matmul": (41, largest), "vendor": (41, largest)
    }  # fmt: skip
    for row in found["edges"]:
        expected = row["seconds"]["odd"] / 41**3
        assert row["cost"] == pytest.approx(
            expected / (row["seconds"]["multiple"] / row["multiple"] ** 3)
        )
    taken = {row["kernel"]: row for row in found["kernels"]}
    assert taken["tiled"]["registers"] > 0
    assert taken["tiled"]["blocks_a_multiprocessor"] > 0
    assert taken["thread_tile_1d"]["threads"] == 512
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=thorough)])
def test_a_climb_of_16_bits(
    emulated: EmulatedGpu, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rungs that take them, below the ceiling of the tensor cores."""
    settings = Settings((16, 40), ("tiled", "tensor_core", "multistage"), (dtype,), rounds=2)
    steps: list[str] = []
    found = run(settings, emulated, steps.append)
    assert len(steps) == settings.steps
    assert found["correct"]
    rows = rows_of(found, 40, dtype)
    assert list(rows) == ["tensor_core", "multistage", "vendor"]
    for row in rows.values():
        assert row["correct"]
        assert row["share"] == pytest.approx(
            1e12 * row["tflops"] / of_units(found, dtype, "tensor cores")
        )
    taken = {row["kernel"]: row for row in found["kernels"]}
    assert taken["multistage"]["shared_bytes"] == 32768  # its smallest tiles
    json.dumps(found, allow_nan=False)
    settings = Settings((40,), ("multistage",), (dtype,), rounds=1)
    emulated.spoiled["multistage"] = lambda c: c.__setitem__((3, 5), 0x4800)
    assert not run(settings, emulated)["correct"]
    emulated.spoiled.clear()
    monkeypatch.setattr("tilewise.bench.rungs.tensor_core_flops", lambda *_: None)
    unknown = run(settings, emulated)
    assert unknown["arithmetic"][dtype] == {"tensor cores": None}
    assert {row["share"] for row in unknown["rows"]} == {None}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel", [each.name for each in RUNGS if each.number > 13])
def test_every_rung_of_16_bits_climbs_beside_the_vendor(emulated: EmulatedGpu, kernel: str) -> None:
    """Up to those whose tiles are copied through tensor maps."""
    found = run(Settings((40,), (kernel, "matmul"), ("bfloat16",), rounds=1), emulated)
    assert found["correct"], found["rows"]
    rows = rows_of(found, 40, "bfloat16")
    assert list(rows) == [kernel, "matmul", "vendor"]
    for row in rows.values():
        assert row["unit"] == "tensor cores"
        assert row["share"] > 0
        assert row["ratio"] > 0
    assert rows["matmul"]["by"] == "PyTorch's own product"  # the tensors lie on the host
    assert [row["kernel"] for row in found["edges"]] == [kernel, "matmul", "vendor"]
    assert found["kernels"][0]["number"] == next(x.number for x in RUNGS if x.name == kernel)


def test_without_a_dtype_every_kernel_is_measured_in_one(emulated: EmulatedGpu) -> None:
    found = run(Settings((16,), ("naive", "tensor_core", "matmul"), rounds=1), emulated)
    assert found["dtypes"] == ["float32", "bfloat16"]
    shown = [(row["kernel"], row["dtype"], row["unit"]) for row in found["rows"]]
    assert shown == [
        ("naive", "float32", "multiply-adds"), ("matmul", "float32", "multiply-adds"),
        ("vendor", "float32", "multiply-adds"), ("tensor_core", "bfloat16", "tensor cores"),
        ("matmul", "bfloat16", "tensor cores"), ("vendor", "bfloat16", "tensor cores"),
    ]  # fmt: skip
    ways = [(x.kernel, x.dtype, x.n) for x in climb.climbed(found)]
    assert ways == [
        ("naive", "float32", 16), ("tensor_core", "bfloat16", 16), ("matmul", "bfloat16", 16)
    ]  # fmt: skip


def test_of_float64_the_products_that_choose_are_held_against_the_faster_unit(
    emulated: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings((16,), ("tiled", "matmul"), ("float64",), rounds=1)
    for rate, unit in ((6e13, "tensor cores"), (None, "multiply-adds")):
        monkeypatch.setattr("tilewise.bench.rungs.tensor_core_flops", lambda *_, r=rate: r)
        found = run(settings, emulated)
        units = {row["kernel"]: row["unit"] for row in found["rows"]}
        assert units == {"tiled": "multiply-adds", "matmul": unit, "vendor": unit}
        for row in found["rows"]:
            ceiling = of_units(found, "float64", row["unit"])
            assert row["share"] == pytest.approx(1e12 * row["tflops"] / ceiling)


def test_a_rung_that_the_gpu_cannot_run_is_left_out_with_a_note(
    emulated: EmulatedGpu, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an odd size too, where it is no wrong result."""
    monkeypatch.setattr(emulated, "arch", "sm_80")
    monkeypatch.setattr(emulated, "emulator", Emulator("sm_80"))
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--kernels", "tensor_core,warpgroup,persistent", "--rounds", "1"]
    assert main(["climb", "--sizes", "40", *words]) == 0
    out = capsys.readouterr().out
    for name in ("warpgroup", "persistent"):
        assert (
            f"{name} is not run from 40 on in bfloat16: {name} needs compute capability 9.0" in out
        )
    settings = Settings((40,), ("tensor_core", "persistent"), rounds=1)
    found = run(settings, emulated)
    assert found["correct"]
    assert [row["kernel"] for row in found["edges"]] == ["tensor_core", "vendor"]
    assert [row["kernel"] for row in found["kernels"]] == ["tensor_core"]
    assert [x.kernel for x in climb.climbed(found)] == ["tensor_core"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_bound_of_16_bits_is_float_sums_and_one_rounding(torch: Any, dtype: str) -> None:
    from tilewise.bench.exact import Exact

    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    a, b = (torch.randn(s, generator=generator).to(kind) for s in ((30, 200), (200, 20)))
    product, right = Exact(a, b), a.float() @ b.float()
    assert product.distance(right.to(kind)).correct
    assert product.distance(right.to(kind)).share > 0.2
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    assert not product.distance((right * (1 + 4 * unit)).to(kind)).correct


def test_what_leaves_a_cache_is_not_launched_from_afar(
    emulated: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 16 to 32 it takes 20 times as long, where the work is 8 times as much."""
    from tilewise.bench import rungs

    launched = []

    def seconds_of(work: Any) -> float:
        work()
        name, n = emulated.enqueued[-1] if emulated.enqueued else ("", 0)
        emulated.enqueued.clear()
        if name != "single_thread":
            return 1e-3
        launched.append(n)
        return 0.02 * (n / 16) ** 3 * (2.5 if n > 16 else 1)

    monkeypatch.setattr(rungs, "seconds_of", seconds_of)
    found = run(Settings((16, 64), ("single_thread",), rounds=1), emulated)
    assert 32 in launched
    assert 64 not in launched
    assert "some 3 s, by 0.4 s at 32" in rows_of(found, 64)["single_thread"]["skipped"]


def test_a_rung_stops_where_it_would_take_long(emulated: EmulatedGpu) -> None:
    settings = Settings((8, 16, 128), ("single_thread", "coalesced"), rounds=1)
    found = run(settings, emulated)
    assert rows_of(found, 8)["single_thread"]["seconds"] == 1e-3 * 8**3
    assert rows_of(found, 8)["single_thread"]["in_turn"] is False
    assert rows_of(found, 8)["coalesced"]["in_turn"] is True
    # 4.1 s at 16, by 0.5 s at 8.
    assert "some 4 s, by 0.51 s at 8" in rows_of(found, 16)["single_thread"]["skipped"]
    assert "skipped" in rows_of(found, 128)["single_thread"]
    assert rows_of(found, 128)["coalesced"]["correct"]
    assert found["correct"]


def test_a_rung_is_not_launched_at_once_at_a_large_size(
    emulated: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewise.bench import rungs

    monkeypatch.setattr(rungs, "_FIRST_SIZE", 4)
    asked: list[tuple[str, int]] = []
    enqueue = emulated.enqueue

    def enqueues(prepared: Any, stream: int, addresses: Sequence[int] = ()) -> None:
        asked.append((prepared.compiled.name, prepared.launch.args[0]))
        enqueue(prepared, stream, addresses)

    monkeypatch.setattr(emulated, "enqueue", enqueues)
    found = run(Settings((100,), ("single_thread",), rounds=1), emulated)
    assert {n for _, n in asked} == {4, 8}
    assert "skipped" in rows_of(found, 100)["single_thread"]


def spoil_element(c: Any) -> None:
    c[3, 3] += 1


def test_a_wrong_rung_is_found_and_not_timed(emulated: EmulatedGpu) -> None:
    emulated.spoiled["coalesced"] = spoil_element
    found = run(Settings((16,), ("coalesced", "tiled"), rounds=1), emulated)
    rows = rows_of(found, 16)
    assert not found["correct"]
    assert not rows["coalesced"]["correct"]
    assert rows["coalesced"]["error_share"] > 1
    assert "seconds" not in rows["coalesced"]
    assert rows["tiled"]["correct"]
    assert "seconds" in rows["tiled"]


def test_an_edge_that_is_wrong_is_found(emulated: EmulatedGpu) -> None:
    def only_odd(c: Any) -> None:
        c[0, 0] += len(c) % 2

    emulated.spoiled["thread_tile_1d"] = only_odd
    found = run(Settings((40,), ("thread_tile_1d",), rounds=1), emulated)
    assert rows_of(found, 40)["thread_tile_1d"]["correct"]
    (edge, vendor) = found["edges"]
    assert not found["correct"]
    assert (edge["kernel"], edge["correct"], "cost" in edge) == ("thread_tile_1d", False, False)
    assert vendor["correct"]
    assert vendor["cost"] > 0


@pytest.mark.parametrize(("launches", "told"), [(1, "different bits"), (2, "while it was timed")])
def test_a_result_that_changes_is_found(emulated: EmulatedGpu, launches: int, told: str) -> None:
    calls: list[int] = []

    def later(c: Any) -> None:
        calls.append(1)
        if len(calls) > launches + 2:  # two launches at a size of 64 ahead of the first that counts
            c[0, 0] = np.nextafter(c[0, 0], np.float32(9))

    emulated.spoiled["coalesced"] = later
    found = run(Settings((64,), ("coalesced",), rounds=1), emulated)
    row = rows_of(found, 64)["coalesced"]
    assert not found["correct"]
    assert row["same_bits"] is False
    assert told in row["failure"]


def test_a_launch_that_fails_is_told(
    emulated: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = emulated.prepare

    def fails(compiled: Any, launch: Launch) -> Any:
        if compiled.name == "tiled":
            raise LaunchError("too many registers")
        return prepare(compiled, launch)

    monkeypatch.setattr(emulated, "prepare", fails)
    found = run(Settings((16,), ("tiled", "coalesced"), rounds=1), emulated)
    assert rows_of(found, 16)["tiled"]["skipped"] == "too many registers"
    assert "seconds" in rows_of(found, 16)["coalesced"]


def test_a_digest_is_of_all_bits_in_order(torch: Any) -> None:
    from tilewise.bench.contenders import digest

    x = torch.randn(7, 9)
    assert digest(x) == digest(x.clone())
    assert digest(x) != digest(x.flip(0))
    y = x.clone()
    y[6, 8] = -y[6, 8]
    assert digest(x) != digest(y)
    assert digest(x.double()) != digest(y.double())


@thorough
def test_the_whole_climb(emulated: EmulatedGpu, tmp_path: Path) -> None:
    """Every rung of every type by the command that makes the record; its page and its pictures."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file, plot, sizes = (tmp_path / name for name in ("x.json", "x.png", "y.png"))
    words = ["--dtype", "float32", "--dtype", "bfloat16", "--dtype", "float64", "--sizes", "8,32"]
    files = ["--json", str(file), "--plot", str(plot), "--plot-sizes", str(sizes)]
    assert main(["climb", *words, "--rounds", "1", "--seconds", "0.02", *files]) == 0
    document = json.loads(file.read_text())
    assert document["correct"]
    assert [x.kernel for x in climb.climbed(document)] == [*(x.name for x in RUNGS), "matmul"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert sizes.read_bytes().startswith(b"\x89PNG")
    text = script("climb.py")["page"](document)
    for each in RUNGS:
        assert f"## {each.number} {each.name}\n" in text


def test_the_command_on_the_emulated_gpu(
    emulated: EmulatedGpu,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    file = Path("x.json")
    words = ["climb", "--sizes", "16,40", "--kernels", "single_block,thread_tile_1d", "--rounds"]
    assert main([*words, "2", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    document = json.loads(file.read_text())
    assert document["command"].endswith(
        "--kernels single_block,thread_tile_1d --dtype float32 --rounds 2 --seconds 0.05 "
        "--json x.json"
    )
    assert "single_block is not run from 40 on in float32" in out
    emulated.spoiled["thread_tile_1d"] = spoil_element
    assert main([*words, "1"]) == 1
    captured = capsys.readouterr()
    assert "thread_tile_1d at 16 in float32: a wrong result" in captured.err


# The command


@pytest.fixture
def gpu(gpu: Gpu, torch: Any) -> Gpu:
    return record.find_gpu()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_every_rung_climbs(gpu: Gpu, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb, "EDGE_SIZES", range(500, 520))
    settings = Settings((32, 130, 512), (), (dtype,), rounds=2, seconds=0.002)
    steps: list[str] = []
    found = run(settings, gpu, steps.append)
    assert found["correct"]
    assert len(steps) == settings.steps
    for n in settings.sizes:
        rows = rows_of(found, n, dtype)
        assert list(rows) == [*(rung.name for rung in rungs_of(dtype)), "matmul", "vendor"]
        for name, row in rows.items():
            if "skipped" in row:
                assert name in ("single_thread", "single_block") or not rung(name).runs_on(gpu.arch)
                continue
            assert row["correct"]
            assert row["same_bits"] or name == "vendor"
            assert row["in_turn"] or name in ("single_thread", "single_block")
            assert 0 < row["seconds"] < 2
        assert 0 < rows["vendor"]["error"] < (1e-2 if dtype == "bfloat16" else 1e-5)
    assert {row["kernel"] for row in found["edges"]} == {
        *(
            rung.name
            for rung in rungs_of(dtype)
            if rung.number >= climb.EDGE_FROM and rung.runs_on(gpu.arch)
        ),
        "matmul",
        "vendor",
    }
    json.dumps(found, allow_nan=False)


def test_no_tf32(gpu: Gpu, torch: Any) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        settings = Settings((512,), ("tiled",), rounds=1, seconds=0.002)
        found = run(settings, gpu)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    # TF32 keeps 11 bits of an input: some 3e-4.
    assert rows_of(found, 512)["vendor"]["error"] < 1e-5
