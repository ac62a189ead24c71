"""Commands that compute a product say in the same words whether it is right, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import PLACE, SIGNATURE

import tilewise
from tilewise.cli.main import main
from tilewise.kernel import Kernel

BODY = """
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = VALUE;
}
"""
HEAD = f'extern "C" __global__ void own{SIGNATURE} {{{PLACE}\n'
EVERY, SOME = "    if (row >= m || col >= n) return;", "    if (row > 1 && col != 0) return;"
RIGHT = HEAD + EVERY + BODY.replace("VALUE", "alpha * sum")
LEAVES = HEAD + EVERY + SOME + BODY.replace("VALUE", "alpha * sum")
MAKES = HEAD + EVERY + BODY.replace("VALUE", "row == 1 && col == 2 ? MADE : alpha * sum")

WRONG = [
    (LEAVES, "unwritten 42 elements of C were never written, the first of them C[2][1]"),
    (
        MAKES.replace("MADE", "0 / (alpha - alpha)"),
        "not finite C has 1 NaN, at C[1][2], where the inputs have none",
    ),
    (
        MAKES.replace("MADE", "1 / (alpha - alpha)"),
        "not finite C has 1 infinity, at C[1][2], where the inputs have none",
    ),
]
COMMANDS = ("run --device emulator", "profile", "profile --whole --lines", "watch")

Called = Callable[..., tuple[int, str]]


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Called:
    """Call a command on a kernel of 8 x 8 x 8; return the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(command: str, source: str, *more: str) -> tuple[int, str]:
        Path("own.cu").write_text(source)
        name, *options = command.split()
        sizes = ["-m", "8", "-n", "8", "-k", "8", "--tile", "8"]
        code = main([name, "own.cu:own", *sizes, *options, *more])
        return code, capsys.readouterr().out

    return call


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("source", "told"), WRONG)
def test_what_is_wrong_is_told_and_is_the_exit_code(
    source: str, told: str, command: str, called: Called
) -> None:
    code, out = called(command, source)
    said = " ".join(out.split())
    assert code == 1
    assert "check WRONG against float64: max error " in said
    assert told in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_right_product_is_said_to_be_right(command: str, called: Called) -> None:
    code, out = called(command, RIGHT)
    assert code == 0
    assert "check right against float64: max error " in " ".join(out.split())
    assert "unwritten" not in out
    assert "not finite" not in out


@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_never_written_is_wrong_in_json_too(command: str, called: Called) -> None:
    code, out = called(command, LEAVES, "--json")
    document = json.loads(out)
    assert code == 1
    assert document["correct"] is False
    assert document["unwritten"] == {"count": 42, "first": [2, 1], "is_certain": True}
    code, out = called(command, MAKES.replace("MADE", "0 / (alpha - alpha)"), "--json")
    document = json.loads(out)
    assert (code, document["correct"], document["nan"]) == (1, False, 1)
    assert (document["first_not_finite"], document["unwritten"]) == ([1, 2], None)


def test_what_was_never_written_is_wrong_even_where_it_is_right_by_chance(called: Called) -> None:
    """With alpha 0 C is 0, as fresh memory often is."""
    for command in COMMANDS:
        code, out = called(command, LEAVES, "--alpha", "0")
        assert (code, "unwritten" in out) == (1, True), command


def test_from_python_too() -> None:
    found = tilewise.profile(Kernel(LEAVES, "own"), 8, 8, 8, tile=8)
    watched = tilewise.watch(Kernel(LEAVES, "own"), 8, 8, 8, tile=8)
    for result in (found, watched):
        assert not result.correct
        assert result.untouched is not None
        assert result.untouched.count == 42
    assert "42 elements of C were never written, the first of them C[2][1]" in str(found)
    assert "WRONG" in repr(found)
    assert "WRONG" in repr(watched)
