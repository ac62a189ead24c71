"""benchmarks/README.md, and the records in benchmarks/results: each has a command and a reader."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from scripts import BENCHMARKS, script

from tilewise.provenance import provenance

README = script("readme.py")
RECORDS = sorted((BENCHMARKS / "results").glob("*.json"))


def test_the_readme_is_what_its_script_writes() -> None:
    text = README["PAGE"].read_text("utf-8")
    assert text == README["page"](), "python benchmarks/readme.py writes it anew"


def test_each_script_is_in_one_group_and_described_by_a_sentence() -> None:
    names = sorted(name for group in README["GROUPS"].values() for name in group)
    assert names == sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    for name in names:
        assert re.fullmatch(r"[A-Z].+\.", README["sentence"](BENCHMARKS / f"{name}.py")), name


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_each_command_parses_its_command_line(path: Path) -> None:
    """Its ``--help`` then describes it, and measures or writes nothing."""
    tree = ast.parse(path.read_text("utf-8"))
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    is_command = any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
                     for node in tree.body)  # fmt: skip
    parses = {"parser_of", "product_options", "takes_no_options"}
    assert is_command == (path.stem not in README["GROUPS"]["What these commands import"])
    assert not is_command or parses & called


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_each_record_has_readers_and_a_command_that_is_there(path: Path) -> None:
    """A record that no page, test, script or command reads is to be deleted."""
    record = json.loads(path.read_text("utf-8"))
    assert README["readers_of"](path)
    for command in README["commands_of"](record):
        scripts = re.findall(r"benchmarks/\w+\.py", command)
        assert scripts or command.startswith("tilewise "), command
        assert all((BENCHMARKS.parent / name).exists() for name in scripts), command


def test_a_record_that_nothing_reads_is_seen(tmp_path: Path) -> None:
    path = tmp_path / f"nobodys_{'h200'}.json"
    path.write_text(json.dumps({"command": "python benchmarks/choices.py"}))
    assert README["readers_of"](path) == []


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"command": "x --limit 5", "elapsed_seconds": 61.2}, "61 s"),
        ({"command": "x --limit 60 --rounds 3"}, "limit 60 s"),
        (
            {"command": "x --resume --budget 5", "earlier_commands": ["2026-11-27: x --limit 7"]},
            "limit 12 s",
        ),
        (
            {
                "command": "x",
                "method": {"rounds": 4, "seconds_a_round": 2, "warm_up_seconds": 1},
                "rows": [{"seconds": {"ours": 1, "torch": 2}}, {"seconds": 3}, {"wrong": []}],
                "training": [{"seconds": {"eager": {"torch": 1, "tilewise": 2}}}],
            },
            "rounds 60 s",
        ),
        ({"command": "x --seconds 5"}, "unknown"),
    ],
)
def test_the_time_is_what_the_record_says(record: dict[str, Any], told: str) -> None:
    assert README["time_of"](record) == told


def test_records_have_their_commands_duration() -> None:
    """The duration is in seconds, from the import of tilewise to the writing of the record."""
    first, second = (provenance()["elapsed_seconds"] for _ in range(2))
    assert 0 <= first <= second


def test_the_model_of_grouped_products_chooses_better_than_chance() -> None:
    """Its choices among the timed tiles lose less than a random choice does on average."""
    pytest.importorskip("torch", reason="torch is not installed")
    fit = script("fit_grouped.py")
    products = fit["read"](fit["RECORD"])
    losses = [each.loss(fit["model"].OF_K) for each in products]
    drawn = [
        geometric_mean(each.seconds.values()) / min(each.seconds.values()) for each in products
    ]
    assert len(products) > 1
    assert all(loss >= 1 for loss in losses)
    assert geometric_mean(losses) < geometric_mean(drawn)
