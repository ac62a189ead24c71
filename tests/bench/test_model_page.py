"""benchmarks/model_page.py, of records that the benchmarks leave of tiny products."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import script

torch = pytest.importorskip("torch", reason="the records are of PyTorch's models")

from tilewise.bench.stand import Stand  # noqa: E402
from tilewise.bench.timing import Timings  # noqa: E402

PAGE, KEEP = script("model_page.py"), script("keep.py")
MACHINE = {"gpu": "NVIDIA H200, made up", "driver": "1.2"}


def made_up(self: Stand, contenders: dict[str, Any], *, in_graph: bool | None = None) -> Timings:
    """Times of contenders that do nothing."""
    seconds = {name: [1e-3 * (i + 3)] for i, name in enumerate(contenders)}
    return Timings(seconds, dict.fromkeys(contenders, 1), bool(in_graph))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Records as they are written, but of tiny products and made-up times; said to be of a GPU."""
    folder = tmp_path_factory.mktemp("measured")
    more = {
        "epilogues": ["--compile", "1", "--backend", "eager"],
        "invariant": [],
        "models": [
            "--backend", "eager", "--batches", "1", "64", "--steps", "3", "--seeds", "4",
        ],
    }  # fmt: skip
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stand, "time", made_up)
        for kind, words in more.items():
            path = folder / f"{kind}.json"
            with pytest.raises(SystemExit) as ended:
                script(f"{kind}.py")["main"](["--tiny", *words, "--json", str(path)])
            assert ended.value.code == 0
            found[kind] = json.loads(path.read_text()) | {"tiny": False, "machine": MACHINE}
    for row in found["models"]["decoding"]:
        for key in ("seconds", "ratios"):
            row[key]["captured"] = row[key]["eager"]
    first = found["invariant"]
    found["operator_cost"] = {
        **{key: first[key] for key in ("date", "command", "machine", "versions")},
        "dtype": "bfloat16", "microseconds": {"F.linear": 5.25, "tilewise.torch.linear": 6.5},
    }  # fmt: skip
    return found


def test_all_of_it(measured: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for kind, record in measured.items():
        (tmp_path / f"{kind}_h200.json").write_text(json.dumps(KEEP["kept"](record)))
    text = PAGE["page"](PAGE["records"](tmp_path))
    assert [x for x in text.splitlines() if x.startswith("## ")] == [
        "## Epilogues", "## The same bits in any batch", "## Models", "## The host",
    ]  # fmt: skip
    assert "bias + gelu, `gelu(acc + bias)`" in " ".join(text.split())
    for kind, record in measured.items():
        assert f"    {record['command']}\n" in text
        for each in record.get("summaries", ()):
            assert each["what"] in text
            assert f"{each['mean']:.3f}" in text
        for row in (*record.get("rows", ()), *record.get("beside", ())):
            for ratio in row["ratios"].values():
                assert f"| {ratio:.3f} |" in text, kind
    models = measured["models"]
    losses = models["losses"]
    assert f"| {losses['torch'][0][0]:.4f} / {losses['tilewise'][0][0]:.4f} |" in text
    assert "within the spread of seeds" in " ".join(text.split())
    assert "NOT within" not in text
    assert "A step reads 0 MB of weights, 0 µs at 4.27 TB/s" in " ".join(text.split())
    assert "| ratio | torch, captured | tilewise, captured | ratio |" in text
    assert "| tilewise.torch.linear | 6.50 |" in text
    assert max(map(len, text.splitlines())) < 400
    widths: list[int] = []
    for line in text.splitlines():  # every table has as many cells in each of its lines
        if line.startswith("|"):
            widths.append(line.count("|"))
        else:
            assert len(set(widths)) <= 1
            widths = []


def test_what_is_missing_is_left_out(measured: dict[str, dict[str, Any]]) -> None:
    record = measured["models"] | {
        "training": None, "losses": None, "not_measured": 2, "failures": ["training: no memory"],
    }  # fmt: skip
    text = PAGE["page"]({"models": record})
    assert "### Decoding" in text
    assert "### A training step" not in text
    assert "### Losses" not in text
    assert "When the time was up, 2 were not measured." in " ".join(text.split())
    assert "training: no memory" in text
    earlier = measured["models"] | {"earlier_commands": ["2026-11-02: models.py --earlier"]}
    assert "on 2026-11-02, by\n\n    models.py --earlier\n" in PAGE["page"]({"models": earlier})
    elsewhere = measured["models"] | {"machine": {"gpu": "another"}}
    assert "MB of weights" not in PAGE["page"]({"models": elsewhere})
    missed = measured["models"]["losses"] | {"is_within": False}
    assert "NOT within" in PAGE["page"]({"models": measured["models"] | {"losses": missed}})
    record = measured["epilogues"] | {"beside": []}
    assert "ours, µs" not in PAGE["page"]({"epilogues": record})
    with pytest.raises(ValueError, match="there is no record"):
        PAGE["page"]({})


def test_what_no_page_is_drawn_of(measured: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    assert PAGE["records"](tmp_path) == {}
    record = measured["invariant"]
    path, other = (tmp_path / f"invariant_{gpu}.json" for gpu in ("h200", "h100"))
    path.write_text(json.dumps(record | {"tiny": True}))
    with pytest.raises(ValueError, match="is of tiny products"):
        PAGE["records"](tmp_path)
    row = record["rows"][0] | {"wrong": ["invariant"]}
    path.write_text(json.dumps(record | {"rows": [row]}))
    with pytest.raises(ValueError, match="has wrong results: 1x16x24"):
        PAGE["records"](tmp_path)
    path.write_text(json.dumps(record))
    assert list(PAGE["records"](tmp_path)) == ["invariant"]
    other.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="more than one record"):
        PAGE["records"](tmp_path)


def test_the_page_is_of_the_records() -> None:
    """Where there are any."""
    given = PAGE["records"](PAGE["RESULTS"])
    if not given:
        pytest.skip("nothing was measured yet")
    assert PAGE["PAGE"].read_text(encoding="utf-8") == PAGE["page"](given)
