"""benchmarks/epilogues.py: what needs no GPU, and all of it on tiny products."""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import script

import tilewise
from tilewise.bench.suites import COLUMNS, ROWS, SUITES, Shape
from tilewise.gemm.chip import H200
from tilewise.gemm.plan import plan_on

torch = pytest.importorskip("torch", reason="the script times PyTorch's product")

from tilewise.bench import epilogues  # noqa: E402
from tilewise.bench.products import Operands  # noqa: E402
from tilewise.bench.stand import Stand  # noqa: E402

SCRIPT = script("epilogues.py")
AT = Stand("cpu", None, 1, 1e-4)
SHAPE = Shape(70, 48, 40, ROWS, COLUMNS)


@pytest.mark.parametrize("case", epilogues.CASES, ids=lambda x: x.name)
def test_a_result_is_held_against_float64(case: epilogues.Case) -> None:
    (given, other) = epilogues.sets_of(SHAPE, "bfloat16", AT, epilogues.CASES)
    assert not torch.equal(given.matrices.a, other.matrices.a)
    case.ours(given, "emulator")
    d = case.result(given)
    assert 0 < epilogues.enclosed_share(case, given, d) <= 1
    assert epilogues.enclosed_share(case, given, d) > 0
    wrong = d.clone()
    wrong[-1, -1] *= 1.03
    assert epilogues.enclosed_share(case, given, wrong) > 1
    wrong[3, 5] = math.nan
    assert epilogues.enclosed_share(case, given, wrong) == math.inf
    # The same expression by PyTorch, in float64: what the bound lies around.
    x = given.matrices
    wide = epilogues.Given(
        Operands(x.a.double(), x.b.double(), x.d),
        {name: each.double() for name, each in given.extra.items()},
    )
    exact = case.theirs(case.torch, wide)
    assert epilogues.enclosed_share(case, given, exact.bfloat16()) < 1
    assert epilogues.enclosed_share(case, given, (exact * 1.01).bfloat16()) > 1


@pytest.mark.parametrize(("extent", "most"), [(5, 8), (8, 8), (1000, 7), (57344, 4096)])
def test_what_is_looked_at_lies_everywhere(extent: int, most: int) -> None:
    found = epilogues.spread(extent, most, torch.Generator().manual_seed(1)).tolist()
    assert len(found) == min(extent, most)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (0, extent - 1)
    assert max(b - a for a, b in pairwise(found)) < 2 * extent / most + 1


def test_the_products_are_as_matmul_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing would be compiled ahead."""
    asked = []
    module = sys.modules["tilewise.matmul"]
    plan = module.plan_product

    def planned(product: Any, device: Any) -> Any:
        asked.append(product)
        return plan(product, device)

    monkeypatch.setattr(module, "plan_product", planned)
    for m in (1, 3):
        shape = Shape(m, 16, 24, ROWS, COLUMNS)
        for case in epilogues.CASES:
            case.ours(epilogues.sets_of(shape, "bfloat16", AT)[0], "emulator")
            expected = case.product(shape, "bfloat16")
            assert asked[-1].epilogue == expected.epilogue
            assert asked[-1]._replace(d=expected.d) == expected


def test_every_product_of_the_suite_has_a_plan() -> None:
    for shape in SUITES["llm"]:
        for case in epilogues.CASES:
            plan = plan_on(case.product(shape, "bfloat16"), H200)
            assert any("EPILOGUE" in step.kernel.defines for step in plan.steps)


def test_everything_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    values = SCRIPT["compile_all"].__globals__
    compiled: list[Any] = []
    monkeypatch.setitem(values, "chip_of", lambda gpu: H200)
    monkeypatch.setitem(
        values, "compile_ahead", lambda kernels, arch, lines: compiled.extend(kernels)
    )
    at: Any = SimpleNamespace(gpu=SimpleNamespace(arch="sm_90a"))
    SCRIPT["compile_all"](SUITES["llm"], epilogues.CASES, "bfloat16", at)
    fused = [x for x in compiled if "EPILOGUE" in x.defines]
    assert len({x.defines["EPILOGUE"] for x in fused}) >= len(epilogues.CASES)
    assert 0 < len(compiled) - len(fused) < len(fused)
    assert SCRIPT["compile_all"](SUITES["llm"], epilogues.CASES, "bfloat16", AT) == []


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = epilogues.CASES[0]
    sets = epilogues.sets_of(SHAPE, "bfloat16", AT, [case])

    def wrong(self: Any, given: Any, place: str) -> None:
        given.matrices.d.fill_(1.0)

    monkeypatch.setattr(epilogues.Case, "ours", wrong)
    row = epilogues.measure(SHAPE, "bfloat16", AT, sets, [case])
    assert row["wrong"] == [case.name]
    assert "ratios" not in row
    row = epilogues.beside_compile(case, SHAPE, "bfloat16", AT, sets, lambda function: function)
    assert row["wrong"] == [case.name]
    assert "ratios" not in row
    assert epilogues.summaries([row], [row]) == []


def test_summaries_part_many_rows_from_few() -> None:
    def row(m: int, **ratios: float) -> dict[str, Any]:
        return {"name": f"{m}", "m": m, "case": "x", "ratios": ratios}

    rows = [row(512, x=1.01), row(2048, x=1.02), row(511, x=1.04), row(1, x=1.08)]
    beside = [row(1, **{"torch.compile": 1.2, "torch": 1.5})]
    many, few, compiled, eager = epilogues.summaries(rows, beside)
    assert (many["count"], many["worst"], many["goal"], many["is_met"]) == (2, 1.02, 1.02, True)
    assert (few["count"], few["worst_at"], few["goal"], few["is_met"]) == (2, "1", 1.05, False)
    assert (compiled["rival"], compiled["goal"], compiled["worst_goal"]) == (
        "torch.compile", 1.05, 0.95,
    )  # fmt: skip
    assert (eager["rival"], eager["goal"]) == ("torch", None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--products 12", "'12' is not a weight"),
        ("--products 0x4", "'0x4' is not a weight"),
        ("--rows 1,x", "'x' is not a number of rows"),
        ("--rounds 0", "--rounds must be at least 1"),
        ("--seconds 0", "must be above 0"),
        ("--limit -1", "must be above 0"),
        ("--compile -1", "--compile is -1"),
        ("--cases swish", "invalid choice: 'swish'"),
        ("--dtype float32", "invalid choice: 'float32'"),
    ],
)
def test_what_is_none(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        SCRIPT["parsed"](words.split())
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_what_is_asked_for() -> None:
    options = SCRIPT["parsed"](["--products", "24x40,8x16", "--rows", "1,512"])
    found = [x.size for x in SCRIPT["products_of"](options)]
    assert found == ["1x24x40", "512x24x40", "1x8x16", "512x8x16"]
    assert SCRIPT["products_of"](SCRIPT["parsed"]([])) == list(SUITES["llm"])
    shapes = list(SUITES["llm"])
    few, more = SCRIPT["sample"](shapes, 5), SCRIPT["sample"](shapes, 12)
    assert more[:5] == few
    assert len({x.m for x in more}) > 3
    assert sorted(map(str, SCRIPT["sample"](shapes, 99))) == sorted(map(str, shapes))


def test_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    words = f"--tiny --compile 1 --backend eager --seconds 1e-4 --rounds 1 --json {path}"
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](words.split())
    assert ended.value.code == 0
    found = json.loads(path.read_text())
    assert found["tiny"]
    assert found["versions"]["tilewise"] == tilewise.__version__
    assert [row["wrong"] for row in found["rows"]] == [[]] * 2
    assert len(found["beside"]) == len(epilogues.CASES)
    assert {"bias + gelu", "bias + residual", "SwiGLU"} == set(found["rows"][0]["ratios"])
    assert found["cases"][0] == {"name": "bias + gelu", "epilogue": "gelu(acc + bias)"}
    told = capsys.readouterr()
    assert told.out.count("geometric mean") == len(found["summaries"]) == 5
    assert "5x24x16: bias + gelu" in told.err


def test_what_was_found_is_kept_where_something_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival that does not compile, and a limit of time."""

    def fails(*args: Any) -> None:
        raise RuntimeError("no kernel\nof many")

    monkeypatch.setattr(epilogues, "beside_compile", fails)
    path = tmp_path / "found.json"
    words = f"--tiny --compile 1 --seconds 1e-4 --rounds 1 --json {path}"
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](words.split())
    assert ended.value.code == 1
    found = json.loads(path.read_text())
    assert len(found["rows"]) == 2
    assert [x.partition(", ")[2] for x in found["failures"]] == [
        f"{case.name}: no kernel" for case in epilogues.CASES
    ]
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"]([*words.split(), "--limit", "1e-9"])
    assert ended.value.code == 0
    found = json.loads(path.read_text())
    assert (found["rows"], found["not_measured"]) == ([], 2 + len(epilogues.CASES))
