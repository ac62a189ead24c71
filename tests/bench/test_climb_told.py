"""``tilewise climb``: what is written, drawn and told of what was measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import as_if_on_a_gpu
from scripts import script

from tilewise import bench
from tilewise.bench import climb, climb_plot, climb_sizes_plot, plot, record
from tilewise.cli.main import main
from tilewise.ladder import lessons
from tilewise.ladder.rungs import RUNGS, rungs_of
from tilewise.lens import roofline
from tilewise.precision import HALVES
from tilewise.provenance import provenance

ROOT = Path(__file__).parents[2]
DRAWING = script("climb.py")
SIZES = (128, 4096)
CEILING = 66.21e12  # of multiply-adds, operations a second
REAL = rungs_of("float32")


@pytest.fixture(autouse=True)
def _with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_on_a_gpu(monkeypatch)


def made_up(
    dtypes: Sequence[str] = ("float32",),
    sizes: Sequence[int] = SIZES,
    slow: str = "",
    wrong: str = "",
) -> dict[str, Any]:
    """A record as ``rungs.run`` leaves it: each rung a quarter faster than the last.

    ``slow`` is half as fast as the one before; ``wrong`` gives wrong results.
    """
    numbers = {rung.name: rung.number for rung in RUNGS}
    arithmetic: dict[str, dict[str, float | None]] = {
        dtype: {"tensor cores": 8.8e14} if dtype in HALVES else {"multiply-adds": CEILING}
        for dtype in dtypes
    }
    rows: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for dtype in dtypes:
        names = [*(rung.name for rung in rungs_of(dtype)), "matmul", "vendor"]
        speeds: dict[str, float] = {}
        speed = 2.0
        for name in names:
            speed *= 0.5 if name == slow else 1.25
            speeds[name] = speed
        for n in sizes:
            for name in names:
                row: dict[str, Any] = {
                    "kernel": name, "number": numbers.get(name), "dtype": dtype, "n": n,
                    "unit": climb.unit_of(name, dtype, arithmetic[dtype]),
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
                        "ratio": speeds[name] / speeds["vendor"],
                        "share": 1e12 * speeds[name] / (arithmetic[dtype][row["unit"]] or 1.0),
                        "in_turn": True, "launches_a_round": 9, "seconds_of_rounds": [],
                    }  # fmt: skip
        for rung in rungs_of(dtype):
            registers = 200 if rung.name == slow else 40
            kernels.append(
                {
                    "kernel": rung.name,
                    "dtype": dtype,
                    "number": rung.number,
                    "source": climb.source_of(rung),
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
        "arithmetic": arithmetic,
        "kernels": kernels,
        "rows": rows,
        "edges": edges,
    }  # fmt: skip


# What is asked for


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A record that the command finds, with no GPU; change it to change what was measured."""
    found = made_up()
    monkeypatch.setattr(record, "find_gpu", lambda: None)
    # In the place of the module itself, which needs PyTorch.
    rungs = SimpleNamespace(run=lambda settings, gpu, step, command: found)
    monkeypatch.setitem(sys.modules, "tilewise.bench.rungs", rungs)
    monkeypatch.setattr(bench, "rungs", rungs, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return found


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["climb", "--help"]) == 0
    told = capsys.readouterr().out
    for option in (
        "--sizes", "--kernels", "--dtype", "--rounds", "--seconds", "--json", "--plot",
        "--plot-sizes",
    ):  # fmt: skip
        assert option in told


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
        f"{1.25 ** -(len(REAL) - 3):.3f}", f"{tflops / 66.21:.1%}", "40", "5e-07", "0.50",
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


@pytest.mark.sampled(3)
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
    panels = climb_sizes_plot.figure(document).axes
    assert len(panels) == 2
    for axes, dtype in zip(panels, ("float32", "float64"), strict=True):
        names = [text.get_text() for text in axes.texts]
        timed = [rung for rung in rungs_of(dtype) if rung.name != "single_block"]
        assert names == [*(f"{rung.number} {rung.name}" for rung in timed), "matmul", "vendor"]
        assert len(axes.get_lines()) == len(names)
        x, y = axes.get_lines()[-1].get_data()
        row = climb.row_of(document, "vendor", 4096, dtype)
        assert row is not None
        assert list(x) == list(SIZES)
        assert y[-1] == pytest.approx(100 * row["share"])
    with pytest.raises(ValueError, match="nothing to draw"):
        climb_sizes_plot.figure({**document, "rows": []})


def test_the_figure_of_bench_has_every_rung() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    document = made_up(("float32", "bfloat16"), sizes=(32, 128))
    squares = {
        "dtype": "bfloat16", "machine": document["machine"], "ceilings": {"tflops": 853.0},
        "rows": [
            {"suite": "square", "n": n, "ratio": 1.5, "tflops": {"ours": 0.03 * n, "torch": 2.0}}
            for n in (128, 256)
        ],
    }  # fmt: skip
    speeds, ladder = plot.figure(squares, document).axes
    assert [text.get_text() for text in speeds.texts] == [
        "tensor cores alone, 853", "tilewise, 8", "torch, 2",
    ]  # fmt: skip
    names = [text.get_text() for text in ladder.texts]
    assert names == [*(f"{each.number} {each.name}" for each in RUNGS), "tilewise, 8", "torch, 2"]
    lines = ladder.get_lines()
    assert [len(line.get_xdata()) for line in lines] == [
        1 if each.name == "single_block" else 2 for each in RUNGS
    ] + [2, 2]  # one block holds no C of 128 x 128
    colours = [line.get_color() for line in lines[: len(RUNGS)]]
    real = len(REAL)
    assert (len(set(colours[:real])), len(set(colours[real:])), len(set(colours))) == (1, 1, 2)
    assert len(plot.figure(squares).axes) == 1


# The page


@pytest.mark.parametrize(
    ("kernel", "name"), [("vendor", "The vendor's product"), ("matmul", "`matmul`")]
)
def test_what_is_above_the_ceiling_is_told(
    kernel: str, name: str, measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"{name} is above that in float64: it takes tensor cores"
    measured |= made_up(("float32", "float64"))
    assert told not in " ".join(DRAWING["page"](measured).split())
    row = climb.row_of(measured, kernel, 4096, "float64")
    assert isinstance(row, dict)
    row["share"] = 1.8
    assert told in " ".join(DRAWING["page"](measured).split())
    assert main(["climb"]) == 0
    assert "More than 100 %: by tensor cores" in capsys.readouterr().out


def test_the_page_says_what_was_measured() -> None:
    text = " ".join(DRAWING["page"](made_up(("float32", "float64"))).split())
    assert "on NVIDIA H200, made up, beside" in text
    assert "Driver 1.2. Versions: " in text
    assert "Every result was checked and right." in text
    speed = [2 * 1.25**number for number in range(len(REAL) + 3)]
    for rung in REAL:
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


def test_16_bits_have_their_own_rungs_and_ceiling() -> None:
    document = made_up(("float32", "bfloat16"))
    halves = [rung.name for rung in rungs_of("bfloat16")]
    assert halves[:3] == ["tensor_core", "ldmatrix", "multistage"]
    assert not {row["kernel"] for row in document["rows"] if row["dtype"] == "bfloat16"} & {"tiled"}
    for ceiling in (880e12, None):  # that of tensor cores is not known of every GPU
        document["arithmetic"]["bfloat16"] = {"tensor cores": ceiling}
        for row in document["rows"]:
            if row["dtype"] == "bfloat16" and "share" in row:
                row["share"] = ceiling and 1e12 * row["tflops"] / ceiling
        text = " ".join(DRAWING["page"](document).split())
        assert "In bfloat16, at 4,096: " in text
        assert "In float32 it has no figure here" not in text
        assert ("of what tensor cores can do. " in text.split("## 15 ldmatrix")[1]) == bool(ceiling)
        if find_spec("matplotlib"):
            assert len(climb_sizes_plot.figure(document).axes) == 2
            told = [text.get_text() for text in climb_plot.figure(document).axes[0].texts]
            whole = ": 100 % is 880 TFLOP/s" if ceiling else ""
            assert f"bfloat16, by tensor cores{whole}" in told


def test_the_first_rung_of_16_bits_is_held_against_the_last_of_float32() -> None:
    document = made_up(("float32", "bfloat16"))
    text = " ".join(DRAWING["page"](document).split())
    slow, fast = (
        climb.row_of(document, *each) for each in
        (("tuned", 4096, "float32"), ("tensor_core", 4096, "bfloat16"))
    )  # fmt: skip
    assert slow is not None
    assert fast is not None
    told = f"{slow['tflops']:.3g} → {fast['tflops']:.3g} TFLOP/s, "
    assert f"In bfloat16, at 4,096: {told}" in text
    assert "times the rung before in float32;" in text
    assert "times the rung before in float32;" not in text.split("## 15 ldmatrix")[1]


def test_the_page_ends_with_the_product_over_sizes() -> None:
    document = made_up(("float32", "bfloat16"))
    for row in document["rows"]:
        if (row["kernel"], row["dtype"]) == ("matmul", "bfloat16"):
            row["by"] = f"a kernel for {row['n']:,}"
    ours, last = (
        climb.row_of(document, name, 4096, "bfloat16") for name in ("matmul", "persistent")
    )
    assert ours is not None
    assert last is not None
    page = DRAWING["page"](document)
    end = page.partition("\n## matmul\n")[2]
    assert "stream-K" in end
    gain = f"{ours['tflops'] / last['tflops']:.3g}"
    assert f"| {gain} | a kernel for 4,096 |" in end
    assert "| a kernel for 128 |" in end
    assert "\n## matmul\n" not in DRAWING["page"](made_up())  # which has no tensor cores


def test_what_a_rung_costs_is_told() -> None:
    counted = lessons.known()["rungs"]
    text = " ".join(DRAWING["page"](made_up(("float32", "bfloat16"))).split())
    was, now = (
        counted[name]["counters"]["registers a thread"] for name in ("ldmatrix", "multistage")
    )
    assert f"What it takes more of: registers a thread from {was} to {now}; shared memory" in text


def test_short_rounds_are_called_bursts() -> None:
    document = made_up()
    assert "are bursts" in " ".join(DRAWING["page"](document).split())
    document["method"]["seconds_a_round"] = 0.2
    assert "are bursts" not in " ".join(DRAWING["page"](document).split())


def test_a_wrong_result_of_the_vendor_is_told_with_the_bound() -> None:
    told = "`vendor` at 4,096 in float32. The bound is that of sums in float32 and one rounding."
    assert told in " ".join(DRAWING["page"](made_up(wrong="vendor")).split())


def test_the_climb_is_every_rung_once_and_the_fastest_product_last() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    document = made_up(("float64", "bfloat16", "float32"))
    way = climb.climbed(document)
    timed = [rung.name for rung in RUNGS if rung.name != "single_block"]
    assert [point.kernel for point in way] == [*timed, "matmul"]
    assert {(point.dtype, point.row["unit"]) for point in way} == {
        ("float32", "multiply-adds"), ("bfloat16", "tensor cores"),
    }  # fmt: skip
    (axes,) = climb_plot.figure(document).axes
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == [climb.label(point.kernel) for point in way]
    bars = [patch.get_width() for patch in axes.patches]
    assert bars == pytest.approx([100 * point.row["share"] for point in way])
    vendor = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    rows = [climb.row_of(document, "vendor", 4096, dtype) for dtype in ("float32", "bfloat16")]
    assert vendor == pytest.approx([100 * row["share"] for row in rows if row is not None])
    told = [text.get_text() for text in axes.texts]
    assert "float32, by FP32 units: 100 % is 66.2 TFLOP/s" in told
    assert "bfloat16, by tensor cores: 100 % is 880 TFLOP/s" in told
    with pytest.raises(ValueError, match="nothing to draw"):
        climb_plot.figure({**document, "rows": []})


def test_both_plots_in_one_file_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert main(["climb", "--plot", "x.png", "--plot-sizes", "x.png"]) == 2
    assert "are both x.png" in capsys.readouterr().err


def test_a_rung_is_held_against_the_one_before_where_both_were_run() -> None:
    document = made_up(sizes=(32, 4096))
    text = " ".join(DRAWING["page"](document).split())
    _, one, block, naive = (2 * 1.25**number for number in range(4))
    assert f"In float32, at 32: {block:.3g} TFLOP/s" not in text
    assert f"In float32, at 32: {one:.3g} → {block:.3g} TFLOP/s, 1.25 times the rung" in text
    assert f"In float32, at 4,096: {naive:.3g} TFLOP/s, " in text
    both = f"At 32, the largest size of both: {block:.3g} → {naive:.3g} TFLOP/s, 1.25 times the"
    assert both in text


def test_the_page_says_that_the_tiles_are_later() -> None:
    told = "**Measured before the tiles that there are now**"
    document = made_up()
    assert told not in DRAWING["page"](document)
    document["date"] = "2026-01-01T00:00:00+00:00"
    assert told in DRAWING["page"](document)


def test_the_page_says_which_rungs_were_edited_since() -> None:
    document = made_up()
    assert "Edited since" not in DRAWING["page"](document)
    for row in document["kernels"]:
        if row["kernel"] in ("tiled", "tuned"):
            row["source"] = "of another text"
    assert "**Edited since**: `tiled`, `tuned`. Their times" in DRAWING["page"](document)


def test_the_page_says_what_went_wrong() -> None:
    document = made_up(wrong="tiled")
    document["edges"][0]["cost"] = 1.2
    text = " ".join(DRAWING["page"](document).split())
    assert "Wrong: `tiled` at 128 in float32, `tiled` at 4,096 in float32." in text
    assert "It has no figure here: its results were wrong." in text
    assert "More than 1.15 times: in float32 at 4,097 `thread_tile_1d`." in text


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
    files = {rung.name: rung.path for rung in RUNGS} | {"matmul": DRAWING["HOPPER"]}
    assert list(words) == list(files)
    for name, file in files.items():
        assert "{{" in words[name]
        text = DRAWING["quoted"](words[name], file)
        assert "{{" not in text
        source = file.read_text()
        quotes = text.split("```")[1::2]
        assert quotes
        for quote in quotes:
            lines = quote.removeprefix("cuda").strip("\n").splitlines()
            assert 1 <= len(lines) <= 14
            assert all(line.strip() in source for line in lines)
    with pytest.raises(ValueError, match="has no lines from 'gone'"):
        DRAWING["quoted"]("{{gone .. sum}}", RUNGS[0].path)


def test_the_page_is_of_the_record_that_is_kept() -> None:
    kept, page = DRAWING["RECORD"], DRAWING["PAGE"]
    assert kept.exists() == page.exists()
    if kept.exists():
        assert page.read_text() == DRAWING["page"](json.loads(kept.read_text()))
        assert DRAWING["FIGURE"].exists()


# On a GPU
