"""``tilewise bench``: what is timed, how it is checked, what is written and drawn."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import as_if_on_a_gpu, present
from fake_gpu import FakeGpu, without_gpu
from hypothesis import given
from hypothesis import strategies as st
from reference import thorough
from scripts import script

from tilewise.bench import plot, record
from tilewise.bench.suites import COLUMNS, ROWS, SQUARES, SUITES, Random, Shape, Storage, is_off
from tilewise.bench.suites import sets_to_rotate as sets
from tilewise.bench.summary import geometric_mean, group_of, summaries
from tilewise.cli.main import main
from tilewise.devices.gpu import Gpu
from tilewise.matmul import matmul
from tilewise.provenance import provenance, write_whole

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_on_a_gpu(monkeypatch)


def made_up(ratio: float = 1.25, correct: bool = True) -> dict[str, Any]:
    """A record of squares, as ``record.run`` leaves it."""
    rows = []
    for n in SQUARES:
        ours = 1e-6 + n**3 / 4e14
        row = {
            "suite": "square", "group": "square", "name": f"{n}x{n}x{n}", "layout": "NN",
            "m": n, "n": n, "k": n, "correct": correct, "error": 0.5,
            "seconds": {"ours": ours, "torch": ratio * ours},
            "tflops": {"ours": 2e-12 * n**3 / ours, "torch": 2e-12 * n**3 / ours / ratio},
            "ratio": ratio, "share": 0.5, "limit": "compute" if n > 512 else "memory",
        }  # fmt: skip
        rows.append(row)
    return {
        **provenance(["tilewise", "bench"]),
        "machine": {"gpu": "NVIDIA H200, made up", "driver": "1.2"},
        "correct": correct,
        "dtype": "bfloat16",
        "method": {
            "rounds": 5, "seconds_a_round": 0.1, "warm_up_seconds": 0.05, "l2_bytes": 1 << 25,
            "graph_below_seconds": 1e-4, "graph_launches": 64, "most_operand_sets": 64,
        },
        "ceilings": {"tflops": 880.0, "gigabytes": 4270.0},
        "rows": rows,
        "summaries": summaries(rows),
    }  # fmt: skip


# What is timed


@given(
    batch=st.integers(1, 3),
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    storage=st.builds(Storage, st.booleans(), st.integers(0, 3), st.integers(0, 9), st.booleans()),
)
def test_a_view_stays_in_its_memory(batch: int, rows: int, columns: int, storage: Storage) -> None:
    view = storage.view(batch, rows, columns)
    single = batch == 1 or storage.is_shared
    assert view.shape == ((rows, columns) if single else (batch, rows, columns))
    indices = np.indices(view.shape).reshape(len(view.shape), -1)
    places = view.offset + np.array(view.strides) @ indices
    assert len(set(places.tolist())) == places.size
    assert places.min() == view.offset
    assert places.max() < view.elements
    assert view.strides[-2 if storage.by_columns else -1] == 1
    pitch = view.strides[-1 if storage.by_columns else -2]
    assert pitch == (rows if storage.by_columns else columns) + storage.padding


@pytest.mark.parametrize(
    ("address", "shape", "strides", "off"),
    [
        (0, (5, 8), (8, 1), False),
        (2, (5, 8), (8, 1), True),
        (0, (5, 9), (9, 1), True),
        (0, (9, 5), (1, 9), True),
        (0, (1, 9), (9, 1), False),
        (0, (3, 8, 8), (68, 8, 1), True),
        (0, (1, 8, 8), (68, 8, 1), False),
        (16, (3, 8, 8), (64, 8, 1), False),
    ],
)
def test_off_16_bytes(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], off: bool
) -> None:
    assert is_off(address, shape, strides, 2) is off


def test_float32_is_off_at_other_strides() -> None:
    assert is_off(0, (5, 4), (4, 1), 2)
    assert not is_off(0, (5, 4), (4, 1), 4)


def groups() -> dict[str, list[Shape]]:
    """The suites by group, as memory that is aligned makes them."""
    found: dict[str, list[Shape]] = {}
    for suite, shapes in SUITES.items():
        for shape in shapes:
            sizes = (2, 2, 4 if shape.is_wide else 2)
            off = any(
                is_off(x.offset * size, x.shape, x.strides, size)
                for x, size in zip(shape.views(), sizes, strict=True)
            )
            found.setdefault(group_of(suite, off), []).append(shape)
    return found


def test_the_suites_hold_what_they_are_named_for() -> None:
    found = groups()
    assert set(found) == {"square", "llm", "odd, off 16 bytes", "odd, the rest", "thin"}
    assert {shape.m for shape in found["square"]} == {*SQUARES, 1000, 3000, 5000}
    assert all(shape.m == shape.n == shape.k for shape in found["square"])
    assert {shape.layout for shape in found["llm"]} == {"NT"}
    assert len(found["llm"]) == 42
    assert all(min(shape.m, shape.n) <= 8 for shape in found["thin"])
    for group in ("odd, off 16 bytes", "odd, the rest"):
        assert len(found[group]) >= 14
        assert any(shape.batch > 1 for shape in found[group])
    assert {shape.layout for shape in SUITES["odd"]} == {"NN", "NT", "TN", "TT"}
    assert any(shape.is_wide for shape in SUITES["odd"])
    assert any(shape.a.is_shared for shape in SUITES["odd"])
    names = [(suite, x.name, x.layout) for suite, shapes in SUITES.items() for x in shapes]
    assert len(set(names)) == len(names)


def test_a_name_says_what_is_special() -> None:
    plain = Shape(3, 4, 5, ROWS, COLUMNS)
    assert (plain.name, plain.layout, plain.flops) == ("3x4x5", "NT", 120)
    shape = Shape(3, 4, 5, Storage(is_shared=True), Storage(padding=2, offset=1), batch=6)
    assert shape.name == "6*3x4x5 one A, B pad 2, B from 1"
    assert Shape(3, 4, 5, is_wide=True).name == "3x4x5 float32 D"


@given(nbytes=st.integers(1, 10**9), cache=st.integers(1, 10**8))
def test_sets_pass_twice_the_cache_or_are_64(nbytes: int, cache: int) -> None:
    count = sets(nbytes, cache)
    assert count == 64 or (count * nbytes >= 2 * cache and (count - 1) * nbytes < 2 * cache)


# Summaries


@given(st.lists(st.floats(1e-3, 1e3), min_size=1))
def test_the_geometric_mean(values: list[float]) -> None:
    mean = geometric_mean(values)
    assert min(values) * (1 - 1e-12) <= mean <= max(values) * (1 + 1e-12)
    assert math.isclose(mean ** len(values), math.prod(values), rel_tol=1e-9) or len(values) > 20
    assert math.isclose(geometric_mean([1 / x for x in values]), 1 / mean, rel_tol=1e-12)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0], [math.nan]])
def test_no_mean_of_nothing(values: list[float]) -> None:
    with pytest.raises(ValueError, match="mean"):
        geometric_mean(values)


def test_summaries_go_by_group() -> None:
    rows: list[dict[str, Any]] = [
        {"group": "odd, the rest", "name": "x", "layout": "NN", "ratio": 2.0},
        {"group": "square", "name": "y", "layout": "NT", "ratio": 3.0},
        {"group": "odd, the rest", "name": "z", "layout": "TN", "ratio": 0.5},
        {"group": "square", "name": "wrong", "layout": "NN"},
    ]
    first, second = summaries(rows)
    assert first == {
        "group": "odd, the rest", "products": 2, "mean": pytest.approx(1), "worst": 0.5,
        "name": "z", "layout": "TN", "below_95": 1,
    }  # fmt: skip
    assert second["below_95"] == 0
    assert (second["group"], second["products"], second["mean"]) == ("square", 1, pytest.approx(3))


def test_random_products_are_drawn_by_their_seed() -> None:
    drawn = Random(200, 7, 8)
    shapes = drawn.shapes()
    assert shapes == Random(200, 7, 8).shapes()
    assert shapes != Random(200, 8, 8).shapes()
    sizes = [size for x in shapes for size in (x.m, x.n, x.k)]
    assert len(shapes) == 200
    assert all(size % 8 == 0 for size in sizes)
    assert 64 <= min(sizes) < 128
    assert 6144 < max(sizes) <= 12288
    assert {x.layout for x in shapes} == {"NN", "NT", "TN", "TT"}
    # As many between 64 and 887 as between that and 12288, whose geometric mean it is.
    small = sum(size < 887 for size in sizes) / len(sizes)
    assert 0.4 < small < 0.6
    assert any(size % 8 for x in Random(20, 7).shapes() for size in (x.m, x.n, x.k))
    settings = record.Settings((), "float64", random=Random(3, 1))
    assert [name for name, _ in settings.products] == ["random, any sizes, seed 1"] * 3


@pytest.mark.parametrize("changes", [{"count": 0}, {"multiple": 0}, {"multiple": 65}])
def test_random_products_that_are_none(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="takes"):
        Random(**{"count": 1, "seed": 0, "multiple": 1, **changes})


# The check


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize(
    "dtype", ["bfloat16", *(pytest.param(x, marks=thorough) for x in ("float16", "float64"))]
)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(60, 41, 131, COLUMNS, ROWS),
        Shape(9, 20, 30, Storage(padding=3, offset=1), ROWS, batch=3),
        Shape(9, 20, 30, Storage(is_shared=True), ROWS, d=Storage(padding=1), batch=3),
        Shape(33, 20, 300, is_wide=True),
    ],
    ids=lambda shape: str(shape.name),
)
def test_the_check_finds_what_is_wrong(torch: Any, shape: Shape, dtype: str) -> None:
    from tilewise.bench.products import error_share, operands

    if dtype == "float64":
        shape = replace(shape, is_wide=False)
    made = operands(shape, dtype, torch.Generator().manual_seed(0))
    a, b, d = made.a, made.b, made.d
    assert d.isnan().all()
    assert error_share(a, b, d) == math.inf  # nothing was written
    made.ours()
    assert 0 < error_share(a, b, d) <= 1
    right = d.clone()
    d[..., -1, 3] = math.inf
    assert error_share(a, b, d) == math.inf
    d[...] = right
    d[..., 0, 0] += 0.03 * (a.double().abs() @ b.double().abs())[..., 0, 0].to(d.dtype)
    assert error_share(a, b, d) > 1


def test_of_large_products_rows_are_drawn(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewise.bench import exact, products

    monkeypatch.setattr(products, "_CHECKED_FLOPS", 0)
    drawn = exact.sample(5000, 256, "cpu").tolist()
    assert len(set(drawn)) == 256
    assert {0, 4999} <= set(drawn) <= set(range(5000))
    made = products.operands(Shape(900, 8, 8), "bfloat16", torch.Generator().manual_seed(0))
    made.ours()
    assert products.error_share(made.a, made.b, made.d) <= 1
    made.d[899] *= 2
    assert products.error_share(made.a, made.b, made.d) > 1
    made.ours()
    made.d[:, 3] = math.nan  # in whichever row
    assert products.error_share(made.a, made.b, made.d) == math.inf


# The command


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A record that the command finds, with no GPU; change it to change what was measured."""
    found = made_up()
    monkeypatch.setattr(record, "find_gpu", lambda: None)
    monkeypatch.setattr(record, "run", lambda settings, gpu, step, command: found)
    return found


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    told = capsys.readouterr().out
    for option in ("--suite", "--dtype", "--rival", "--rounds", "--seconds", "--json", "--plot"):
        assert option in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bench --rounds 0", "rounds is 0"),
        ("bench --seconds 0", "seconds is 0"),
        ("bench --seconds nan", "seconds is nan"),
        ("bench --suite round", "is 'round'; it takes one of"),
        ("bench --dtype int8", "is 'int8'; it takes one of"),
        ("bench --rival mkl", "is 'mkl'; it takes one of torch"),
        ("bench --suite llm --plot x.png", "--suite llm has none"),
        ("bench --json nowhere/x.json", "there is no folder nowhere"),
        ("bench --plot nowhere/x.png", "there is no folder nowhere"),
        ("bench --plot x.gif", "must end in .png"),
        ("climb --sizes 12,x", "--sizes is '12,x'"),
        ("climb --sizes 0", "a size is 0"),
        ("climb --kernels naive,nave", "no kernel called 'nave'"),
        ("climb --dtype int8", "is 'int8'; it takes one of"),
        ("climb --rounds 0", "rounds is 0"),
        ("climb --seconds nan", "seconds is nan"),
        ("climb --json nowhere/x.json", "there is no folder nowhere"),
        ("climb --plot nowhere/x.png", "there is no folder nowhere"),
        ("climb --plot x.gif", "must end in .png"),
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
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert told in captured.err.replace("\n", " ")
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["bench", "climb", "tune", "ceilings"])
@pytest.mark.parametrize("words", ["", "--plot x.png", "--plot x.gif", "--seconds 0", "--nonsense"])
def test_without_a_gpu_that_is_said_first(
    command: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before what is wrong with the words, and before a package that is missing is looked for."""
    monkeypatch.undo()
    without_gpu(monkeypatch)
    present(monkeypatch)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main([command, *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("tilewise: no GPU can be used: none is here\n")
    assert "--device emulator" not in captured.err  # it has none
    assert captured.out == ""
    assert main([command, "--help"]) == 0


@pytest.mark.parametrize(
    ("packages", "words", "told"),
    [
        ((), [], "pip install torch"),
        (("torch",), ["--plot", "x.png"], "pip install matplotlib"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", ["bench", "climb"])
def test_what_the_machine_lacks(
    command: str,
    packages: tuple[str, ...],
    words: list[str],
    told: str,
    as_json: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "get_device", lambda _: FakeGpu())
    present(monkeypatch, *packages)
    assert main([command, *words, "--json", "-" if as_json else "x.json"]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert told in json.loads(captured.out)["error"] if as_json else captured.out == ""
    assert not list(tmp_path.iterdir())


def test_the_table_and_the_file(
    measured: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    file = Path("x.json")
    assert main(["bench", "--json", str(file)]) == 0
    assert json.loads(file.read_text()) == measured
    assert list(Path().iterdir()) == [file]
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("16384x16384x16384"))
    assert row.split()[1:] == ["NN", "10,996.1", "13,745.1", "799.9", "1.25", "0.50", "c"]
    assert "tensor cores 880 TFLOP/s, memory 4,270 GB/s" in out
    assert any(line.split()[:4] == ["square", "8", "1.250", "1.250"] for line in lines)


def test_a_dash_prints_the_record_and_nothing_else(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == measured


def test_a_wrong_product_is_said(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    row = measured["rows"][3]
    for name in ("ratio", "seconds", "tflops", "share", "limit"):
        del row[name]
    row |= {"correct": False, "error": None}
    measured["correct"] = False
    assert main(["bench", "--json", str(tmp_path / "x.json")]) == 1
    captured = capsys.readouterr()
    assert ["1024x1024x1024", "NN", "WRONG"] in [x.split() for x in captured.out.splitlines()]
    assert "1024x1024x1024 NN: a wrong result" in captured.err
    assert (tmp_path / "x.json").exists()


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x"
    write_whole(file, b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_command_is_kept_without_folders() -> None:
    assert provenance(["tilewise", "bench", "--json", "/a/b/x.json"])["command"] == (
        "tilewise bench --json x.json"
    )


# The figure and the page


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["x.png", "x.svg", "x.pdf"])
def test_the_figure(name: str, measured: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / name
    assert main(["bench", "--plot", str(file)]) == 0
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[file.suffix]
    assert file.read_bytes().startswith(start)
    measured["ceilings"]["tflops"] = None  # of a GPU with no probe
    measured["rows"] = measured["rows"][2:]
    plot.draw(measured, file)
    assert list(tmp_path.iterdir()) == [file]


def test_no_squares_no_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    with pytest.raises(ValueError, match="no squares"):
        plot.draw({**made_up(), "rows": []}, tmp_path / "x.png")


def test_the_page_is_drawn_from_the_record() -> None:
    page = script("performance.py")["page"]
    text = page(made_up(ratio=1.5))
    assert "| square | 8 | 1.500 | 1.500 | 128x128x128 NN |" in text
    assert (
        "| 16384x16384x16384 | NN | 10,996.1 | 16,494.2 | 799.9 | 533.3 | 1.500 | 0.50 c |" in text
    )
    told = " ".join(text.split())
    assert "on NVIDIA H200, made up. Every product was checked and right." in told
    assert "Driver 1.2. Versions: " in told
    assert "Wrong: 128x128x128 NN" in page(made_up(correct=False))


def test_the_page_is_of_the_record_that_is_kept() -> None:
    drawing = script("performance.py")
    assert drawing["FIGURE"].exists()
    assert "## Random products" in drawing["PAGE"].read_text()
    for path, records in drawing["PARTS"].items():
        parts = [json.loads(each.read_text()) for each in records]
        assert path.read_text() == drawing["page"](*parts)


def test_a_page_of_several_records_has_one_mean_for_all() -> None:
    page = script("performance.py")["page"]
    text = page(*({**made_up(ratio=ratio), "dtype": "float32"} for ratio in (1.0, 4.0)))
    assert "| square and odd | 16 | 2.000 |  |  |" in text
    assert "Random products" not in text


# On a GPU


@pytest.fixture
def gpu(gpu: Gpu, torch: Any, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.setattr(record, "CEILING_SECONDS", 0.05)
    monkeypatch.setitem(
        SUITES,
        "square",
        (
            Shape(200, 136, 64),
            Shape(127, 129, 131, COLUMNS, COLUMNS),
            Shape(64, 64, 64, Storage(is_shared=True), ROWS, batch=3),
            Shape(64, 64, 64, is_wide=True),
            Shape(4096, 4096, 4096),
        ),
    )
    return record.find_gpu()


@pytest.mark.parametrize("dtype", record.DTYPES)
def test_a_suite_from_end_to_end(gpu: Gpu, dtype: str) -> None:
    steps: list[str] = []
    settings = record.Settings(("square",), dtype, rounds=3, seconds=0.005)
    found = record.run(settings, gpu, steps.append)
    assert found["correct"]
    assert len(steps) == settings.steps == 2 + len(found["rows"])
    assert [row["off_16_bytes"] for row in found["rows"]] == [
        row["m"] == 127 for row in found["rows"]
    ]
    assert len(found["rows"]) == (4 if dtype == "float64" else 5)  # there, none has a wide D
    assert [row["in_graph"] for row in found["rows"]] == [row["m"] < 4096 for row in found["rows"]]
    for row in found["rows"]:
        assert 0 < row["error"] <= 1
        for name in ("ours", "torch"):
            assert len(row["seconds_of_rounds"][name]) == 3
            assert row["seconds"][name] in row["seconds_of_rounds"][name]
        assert row["ratio"] == row["seconds"]["torch"] / row["seconds"]["ours"]
        assert row["sets"] == 64 or row["m"] == 4096
        if row["share"] is not None:
            # Not below 1 for certain: what else runs on the GPU meanwhile, other tests too, may
            # slow the ceiling's measurement and not the product's.
            by_compute = pytest.approx(row["tflops"]["ours"] / found["ceilings"]["tflops"])
            assert row["share"] > 0
            assert row["share"] == by_compute or row["limit"] == "memory"
    json.dumps(found, allow_nan=False)


def test_a_wrong_kernel_is_found_and_not_timed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewise.bench import products

    monkeypatch.setattr(products, "matmul", lambda a, b, out: out.zero_())
    found = record.run(record.Settings(seconds=0.005, rounds=1), gpu)
    assert not found["correct"]
    assert not any(row["correct"] or "seconds" in row for row in found["rows"])
    assert found["summaries"] == []


def test_a_result_that_changes_is_found(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewise.bench import products

    calls: list[Any] = []

    def changes(a: Any, b: Any, out: Any) -> None:
        matmul(a, b, out=out)
        calls.append(out)
        if len(calls) > 1:
            out[0, 0] += 1

    monkeypatch.setattr(products, "matmul", changes)
    monkeypatch.setitem(SUITES, "square", (Shape(200, 136, 64),))
    found = record.run(record.Settings(seconds=0.005, rounds=1), gpu)
    assert not found["correct"]
    assert "changed" in found["rows"][0]["failure"]
    assert found["summaries"] == []
