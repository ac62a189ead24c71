"""``tilewise climb``: what is measured and checked, what is written, drawn and told of it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import present
from fake_gpu import FakeGpu

from tilewise import lessons
from tilewise.bench import climb_plot, climb_record, plot, record
from tilewise.bench.climb_record import Settings
from tilewise.cli import main
from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.devices.gpu import Gpu
from tilewise.errors import LaunchError
from tilewise.ladder import RUNGS
from tilewise.launch import Launch
from tilewise.lens import climbed, roofline
from tilewise.provenance import provenance

ROOT = Path(__file__).parents[1]
DRAWING = runpy.run_path(str(ROOT / "benchmarks" / "climb.py"))
SIZES = (128, 4096)


def made_up(
    dtypes: Sequence[str] = ("float32",),
    sizes: Sequence[int] = SIZES,
    slow: str = "",
    wrong: str = "",
) -> dict[str, Any]:
    """A record as ``climb_record.run`` leaves it: each rung a quarter faster than the last.

    ``slow`` is half as fast as the one before; ``wrong`` gives wrong results.
    """
    names = [*(rung.name for rung in RUNGS), "matmul", "vendor"]
    numbers = {rung.name: rung.number for rung in RUNGS}
    rows: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for dtype in dtypes:
        speeds: dict[str, float] = {}
        speed = 2.0
        for name in names:
            speed *= 0.5 if name == slow else 1.25
            speeds[name] = speed
        for n in sizes:
            for name in names:
                row: dict[str, Any] = {
                    "kernel": name, "number": numbers.get(name), "dtype": dtype, "n": n,
                }  # fmt: skip
                rows.append(row)
                if name == "single_block" and n > 32:
                    row["skipped"] = "one block holds too little"
                    continue
                right = name != wrong
                error = 1e-6 if name == "vendor" else 0.5e-6
                row |= {
                    "correct": right, "error_share": 0.01 if right else 7.0, "error": error,
                    "error_ratio": error / 1e-6, "same_bits": True,
                }  # fmt: skip
                if right:
                    row |= {
                        "seconds": 2e-12 * n**3 / speeds[name], "tflops": speeds[name],
                        "ratio": speeds[name] / speeds["vendor"], "share": speeds[name] / 66.21,
                        "in_turn": True, "launches_a_round": 9, "seconds_of_rounds": [],
                    }  # fmt: skip
        for rung in RUNGS:
            registers = 200 if rung.name == slow else 40
            kernels.append(
                {
                    "kernel": rung.name,
                    "dtype": dtype,
                    "number": rung.number,
                    "threads": 256,
                    "tile": rung.default_tile,
                    "registers": registers,
                    "shared_bytes": 8192,
                    "spill_bytes": 0,
                    "blocks_a_multiprocessor": 1 if rung.name == slow else 6,
                    "limited_by": ["registers"],
                }
            )
    edges = [
        {
            "kernel": name, "dtype": dtype, "n": 4097, "tile": 128, "multiple": 4224,
            "correct": True, "seconds": {"odd": 3e-3, "multiple": 3.1e-3}, "cost": 1.061,
        }
        for dtype in dtypes
        for name in ("thread_tile_1d", "matmul", "vendor")
    ]  # fmt: skip
    ceilings = roofline.find("H200").to_dict()
    return {
        **provenance(["tilewise", "climb"]),
        "machine": {"gpu": "NVIDIA H200, made up", "driver": "1.2"},
        "correct": not wrong,
        "sizes": list(sizes),
        "dtypes": list(dtypes),
        "method": {
            "rounds": 5, "seconds_a_round": 0.05, "warm_up_seconds": 0.025, "l2_bytes": 1 << 25,
            "graph_below_seconds": 1e-4, "graph_launches": 64, "apart_above_seconds": 0.1,
            "apart_launches": 3, "longest_launch_seconds": 2.0,
            "vendor": "PyTorch's matmul, TF32 off",
        },
        "ceilings": ceilings,
        "kernels": kernels,
        "rows": rows,
        "edges": edges,
    }  # fmt: skip


# What is asked for


def test_settings() -> None:
    settings = Settings(sizes=(512, 64, 512), dtypes=("float64", "float64"))
    assert (settings.sizes, settings.dtypes) == ((64, 512), ("float64",))
    assert settings.rungs == RUNGS
    assert Settings(kernels=("tiled", "matmul")).has_ours
    assert not Settings(kernels=("tiled",)).has_ours
    assert Settings().edge_sizes == (2048, 4096)
    assert Settings(kernels=("tiled",)).edge_sizes == ()
    for change, told in (
        ({"sizes": ()}, "no size"),
        ({"sizes": (0,)}, "a size is 0"),
        ({"kernels": ("tilde",)}, "no kernel called 'tilde'"),
        ({"dtypes": ("int8",)}, "dtype is 'int8'"),
        ({"rounds": 0}, "rounds is 0"),
        ({"seconds": math.inf}, "seconds is inf"),
    ):
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
        kind = ctypes.c_double if compiled.parameters[3].size == 8 else ctypes.c_float
        arrays = [
            np.ctypeslib.as_array((kind * (n * n)).from_address(at)).reshape(n, n)
            for at in addresses
        ]
        args = list(prepared.launch.args)
        args[4], args[6], args[9] = arrays
        launch = prepared.launch
        self.emulator.launch(compiled, Launch(launch.grid, launch.block, tuple(args)))
        if compiled.name in self.spoiled:
            self.spoiled[compiled.name](arrays[2])


TIMES: dict[str, float] = {}  # of kernels, in the fixture's clock


@pytest.fixture
def emulated(torch: Any, monkeypatch: pytest.MonkeyPatch) -> EmulatedGpu:
    from tilewise.bench import rungs
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
    monkeypatch.setattr(rungs, "_device", lambda: "cpu")
    monkeypatch.setattr(rungs, "_stream", lambda: 0)
    monkeypatch.setattr(rungs, "sets_to_rotate", lambda nbytes, cache: 2)
    monkeypatch.setattr(record, "find_gpu", lambda: gpu)
    monkeypatch.setattr(climb_record, "EDGE_SIZES", range(30, 50))
    return gpu


def rows_of(document: Mapping[str, Any], n: int, dtype: str = "float32") -> dict[str, Any]:
    return {
        row["kernel"]: row for row in document["rows"] if (row["n"], row["dtype"]) == (n, dtype)
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_climb_from_end_to_end(emulated: EmulatedGpu, dtype: str) -> None:
    steps: list[str] = []
    kernels = ("single_block", "tiled", "thread_tile_1d", "matmul")
    settings = Settings((16, 40), kernels, (dtype,), rounds=3)
    found = climb_record.run(settings, emulated, steps.append, ["tilewise", "climb"])
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
        assert row["share"] == pytest.approx(1e12 * row["tflops"] / found["ceilings"][dtype])
        assert row["error_ratio"] == row["error"] / rows["vendor"]["error"]
        assert "digest" not in row
    assert "1024" in rows_of(found, 40, dtype)["single_block"]["skipped"]
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
    found = climb_record.run(Settings((16, 64), ("single_thread",), rounds=1), emulated)
    assert 32 in launched
    assert 64 not in launched
    assert "some 3 s, by 0.4 s at 32" in rows_of(found, 64)["single_thread"]["skipped"]


def test_a_rung_stops_where_it_would_take_long(emulated: EmulatedGpu) -> None:
    settings = Settings((8, 16, 128), ("single_thread", "coalesced"), rounds=1)
    found = climb_record.run(settings, emulated)
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
    found = climb_record.run(Settings((100,), ("single_thread",), rounds=1), emulated)
    assert {n for _, n in asked} == {4, 8}
    assert "skipped" in rows_of(found, 100)["single_thread"]


def spoil_element(c: Any) -> None:
    c[3, 3] += 1


def test_a_wrong_rung_is_found_and_not_timed(emulated: EmulatedGpu) -> None:
    emulated.spoiled["coalesced"] = spoil_element
    found = climb_record.run(Settings((16,), ("coalesced", "tiled"), rounds=1), emulated)
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
    found = climb_record.run(Settings((40,), ("thread_tile_1d",), rounds=1), emulated)
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
    found = climb_record.run(Settings((64,), ("coalesced",), rounds=1), emulated)
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
    found = climb_record.run(Settings((16,), ("tiled", "coalesced"), rounds=1), emulated)
    assert rows_of(found, 16)["tiled"]["skipped"] == "too many registers"
    assert "seconds" in rows_of(found, 16)["coalesced"]


def test_a_digest_is_of_all_bits_in_order(torch: Any) -> None:
    from tilewise.bench.rungs import digest

    x = torch.randn(7, 9)
    assert digest(x) == digest(x.clone())
    assert digest(x) != digest(x.flip(0))
    y = x.clone()
    y[6, 8] = -y[6, 8]
    assert digest(x) != digest(y)
    assert digest(x.double()) != digest(y.double())


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
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A record that the command finds, with no GPU; change it to change what was measured."""
    found = made_up()
    monkeypatch.setattr(record, "find_gpu", lambda: None)
    monkeypatch.setattr(climb_record, "run", lambda settings, gpu, step, command: found)
    monkeypatch.setenv("COLUMNS", "80")
    return found


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["climb", "--help"]) == 0
    told = capsys.readouterr().out
    for option in (
        "--sizes", "--kernels", "--dtype", "--rounds", "--seconds", "--json", "--plot",
    ):  # fmt: skip
        assert option in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--sizes 12,x", "--sizes is '12,x'"),
        ("--sizes 0", "a size is 0"),
        ("--kernels naive,nave", "no kernel called 'nave'"),
        ("--dtype float16", "'float16' is not one of"),
        ("--rounds 0", "rounds is 0"),
        ("--seconds nan", "seconds is nan"),
        ("--json nowhere/x.json", "there is no folder nowhere"),
        ("--plot nowhere/x.png", "there is no folder nowhere"),
        ("--plot x.gif", "must end in .png"),
    ],
)
def test_bad_arguments(
    words: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "find_gpu", lambda: pytest.fail("a GPU was looked for"))
    present(monkeypatch, "matplotlib")
    assert main(["climb", *words.split()]) == 2
    captured = capsys.readouterr()
    assert told in captured.err.replace("\n", " ")
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_the_table_and_the_file(
    measured: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("x.json")
    assert main(["climb", "--json", str(file)]) == 0
    assert json.loads(file.read_text()) == measured
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    speeds, in_full = (line.split() for line in lines if line.startswith("5 tiled "))
    tflops = 2 * 1.25**5
    assert speeds[2:] == [f"{1e3 * tflops:,.0f}"[:5]] * 2
    milliseconds = 2e-9 * 4096**3 / tflops
    assert in_full[2:] == [
        f"{milliseconds:.4g}", f"{tflops:.3g}",
        f"{1.25 ** -(len(RUNGS) - 3):.3f}", f"{tflops / 66.21:.1%}", "40", "5e-07", "0.50",
    ]  # fmt: skip
    assert ["vendor", "4,097", "4,224", "3,000.0", "3,100.0", "1.061"] in [x.split() for x in lines]
    assert sum("single_block is not run" in line for line in lines) == 1


def test_a_wrong_result_is_said(
    measured: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    measured |= made_up(wrong="tiled")
    assert main(["climb", "--json", str(tmp_path / "x.json")]) == 1
    assert "tiled at 4,096 in float32: a wrong result" in capsys.readouterr().err
    assert (tmp_path / "x.json").exists()


@pytest.mark.parametrize("name", ["x.png", "x.svg", "x.pdf"])
def test_the_figure(name: str, measured: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / name
    assert main(["climb", "--plot", str(file)]) == 0
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[file.suffix]
    drawn = file.read_bytes()
    assert drawn.startswith(start)
    climb_plot.draw(measured, file)
    assert file.read_bytes() == drawn  # the same record gives the same file
    assert list(tmp_path.iterdir()) == [file]


def test_a_line_a_kernel() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    document = made_up(("float32", "float64"))
    panels = climb_plot.figure(document).axes
    assert len(panels) == 4
    for axes, dtype in zip(panels, ("float32", "float32", "float64", "float64"), strict=True):
        lines = {line.get_label(): line for line in axes.get_lines()}
        for rung in RUNGS:
            assert (f"{rung.number} {rung.name}" in lines) == (rung.name != "single_block")
        x, y = lines["vendor"].get_data()
        row = climbed.row_of(document, "vendor", 4096, dtype)
        assert row is not None
        assert list(x) == list(SIZES)
        assert y[-1] == 1e3 * row["tflops"]
    with pytest.raises(ValueError, match="nothing to draw"):
        climb_plot.figure({**document, "rows": []})


def test_the_figure_of_bench_has_every_rung() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    point = {"n": 128, "tflops": 1.0}
    ladder = [{"kernel": each.name, "number": each.number, "points": [point]} for each in RUNGS]
    plot._rungs(axes, ladder)
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == [f"{x.number} {x.name}" for x in RUNGS]
    assert len({line.get_color() for line in lines}) == len(RUNGS)
    assert all(line.get_linewidth() > 0 for line in lines)


# The page


def test_what_is_above_the_ceiling_is_told(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told = "The vendor's product is above it in float64: that takes tensor cores"
    measured |= made_up(("float32", "float64"))
    assert told not in " ".join(DRAWING["page"](measured).split())
    row = climbed.row_of(measured, "vendor", 4096, "float64")
    assert isinstance(row, dict)
    row["share"] = 1.8
    assert told in " ".join(DRAWING["page"](measured).split())
    assert main(["climb"]) == 0
    assert "More than 100 %: by tensor cores" in capsys.readouterr().out


def test_the_page_says_what_was_measured() -> None:
    text = " ".join(DRAWING["page"](made_up(("float32", "float64"))).split())
    assert "NVIDIA H200, made up (driver 1.2)" in text
    assert "Every result was checked and right." in text
    speed = [2 * 1.25**number for number in range(len(RUNGS) + 3)]
    for rung in RUNGS:
        assert f"## {rung.number} {rung.name} " in text
        if rung.number > 3 and not rung.against:
            step = f"{speed[rung.number - 1]:.3g} → {speed[rung.number]:.3g} TFLOP/s, 1.25 times"
            assert step in text
    assert "It has no figure here: one block holds too little." in text
    branchless = f"{speed[5]:.3g} → {speed[7]:.3g} TFLOP/s, {speed[7] / speed[5]:.3g} times `tiled`"
    assert branchless in text
    assert "is at most 0.50 times the vendor's" in text
    assert "Two launches gave the same bits, of matmul and of every rung." in text
    assert "None is above 1.15 times." in text
    assert "It is slower." not in text
    assert "| vendor | float64 | 4,097 | 4,224 | 3 | 3.1 | 1.061 |" in text


def test_a_rung_is_held_against_the_one_before_where_both_were_run() -> None:
    document = made_up(sizes=(32, 4096))
    text = " ".join(DRAWING["page"](document).split())
    _, one, block, naive = (2 * 1.25**number for number in range(4))
    assert f"In float32, at 32: {block:.3g} TFLOP/s" not in text
    assert f"In float32, at 32: {one:.3g} → {block:.3g} TFLOP/s, 1.25 times the rung" in text
    assert f"In float32, at 4,096: {naive:.3g} TFLOP/s, " in text
    both = f"At 32, the largest size of both: {block:.3g} → {naive:.3g} TFLOP/s, 1.25 times the"
    assert both in text


def test_the_page_says_what_went_wrong() -> None:
    document = made_up(wrong="tiled")
    document["edges"][0]["cost"] = 1.2
    text = " ".join(DRAWING["page"](document).split())
    assert "Wrong: `tiled` at 128 in float32, `tiled` at 4,096 in float32." in text
    assert "It has no figure here: its results were wrong." in text
    assert "More than 1.15 times: `thread_tile_1d` at 4,097 in float32." in text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rung_that_is_not_faster_is_explained(dtype: str) -> None:
    text = " ".join(DRAWING["page"](made_up((dtype,), slow="vectorized")).split())
    assert text.count("It is slower.") == 1
    assert (
        "It is slower. A thread takes 200 registers where one of `thread_tile_2d` takes 40, and a "
        "block 8,192 bytes of shared memory where that takes 8,192: a multiprocessor holds 256 "
        "threads in place of 1,536, and registers allow no more." in text
    )


def test_counters_explain_too() -> None:
    """Those of a rung that has more bank conflicts than the one it is held against."""
    counted = lessons.known()["rungs"]
    was, now = (
        counted[name]["counters"]["shared load bank conflicts"]
        for name in ("tiled", "tiled_conflicts")
    )
    assert now > was
    text = " ".join(DRAWING["page"](made_up(slow="tiled_conflicts")).split())
    assert f"shared load bank conflicts from {was:,} to {now:,}" in text
    counters = text.partition("## 6 tiled_conflicts")[2].partition("## 7")[0]
    assert f"| shared load bank conflicts | {was:,} | {now:,} |" in counters


def test_every_rung_has_words_and_lines_of_its_own() -> None:
    words = DRAWING["prose"](DRAWING["WORDS"].read_text())
    assert list(words) == [rung.name for rung in RUNGS]
    for rung in RUNGS:
        assert "{{" in words[rung.name]
        text = DRAWING["quoted"](words[rung.name], rung)
        assert "{{" not in text
        source = rung.path.read_text() + (DRAWING["HEADERS"] / "fma.cuh").read_text()
        quotes = text.split("```")[1::2]
        assert quotes
        for quote in quotes:
            lines = quote.removeprefix("cuda").strip("\n").splitlines()
            assert 1 <= len(lines) <= 14
            assert all(line.strip() in source for line in lines)
    with pytest.raises(ValueError, match="has no lines from 'gone'"):
        DRAWING["quoted"]("{{gone .. sum}}", RUNGS[0])


def test_the_page_is_of_the_record_that_is_kept() -> None:
    kept, page = DRAWING["RECORD"], DRAWING["PAGE"]
    assert kept.exists() == page.exists()
    if kept.exists():
        assert page.read_text() == DRAWING["page"](json.loads(kept.read_text()))
        assert DRAWING["FIGURE"].exists()


# On a GPU


@pytest.fixture
def gpu(device: Device, torch: Any) -> Gpu:
    if not isinstance(device, Gpu):
        pytest.skip("needs a GPU: pytest --device gpu")
    return record.find_gpu()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_rung_climbs(gpu: Gpu, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb_record, "EDGE_SIZES", range(500, 520))
    settings = Settings((32, 130, 512), (), (dtype,), rounds=2, seconds=0.002)
    steps: list[str] = []
    found = climb_record.run(settings, gpu, steps.append)
    assert found["correct"]
    assert len(steps) == settings.steps
    for n in settings.sizes:
        rows = rows_of(found, n, dtype)
        assert list(rows) == [*(rung.name for rung in RUNGS), "matmul", "vendor"]
        for name, row in rows.items():
            if "skipped" in row:
                assert name in ("single_thread", "single_block")
                continue
            assert row["correct"]
            assert row["same_bits"] or name == "vendor"
            assert row["in_turn"] or name in ("single_thread", "single_block")
            assert 0 < row["seconds"] < 2
        assert 0 < rows["vendor"]["error"] < 1e-5
    assert {row["kernel"] for row in found["edges"]} == {
        *(rung.name for rung in RUNGS if rung.number >= climb_record.EDGE_FROM),
        "matmul",
        "vendor",
    }
    json.dumps(found, allow_nan=False)


def test_no_tf32(gpu: Gpu, torch: Any) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        settings = Settings((512,), ("tiled",), rounds=1, seconds=0.002)
        found = climb_record.run(settings, gpu)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    # TF32 keeps 11 bits of an input: some 3e-4.
    assert rows_of(found, 512)["vendor"]["error"] < 1e-5
