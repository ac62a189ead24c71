"""Guesses, launches side by side, lines and checks: what they say, and what they refuse."""

from __future__ import annotations

import html
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise import notebook
from tilewise.ladder.run import run
from tilewise.notebook.tables import OF_LINES, USUAL, counters_of

NUMBERS = st.one_of(st.integers(-(10**12), 10**12), st.floats(-1e9, 1e9))


@given(guess=st.none() | NUMBERS, counted=NUMBERS)
def test_a_guess_is_told_as_it_is(guess: float | None, counted: float) -> None:
    found = notebook.reveal("sectors", guess, counted)
    text = str(found)
    assert found.is_right == (guess is not None and math.isclose(guess, counted, rel_tol=1e-6))
    assert ("Your guess is right." in text) == found.is_right
    assert ("There is no guess yet" in text) == (guess is None)
    assert ("Why?" in text) == (guess is not None and not found.is_right)
    assert html.escape("sectors") in found._repr_html_()


@pytest.mark.parametrize(
    ("guess", "counted", "said"),
    [
        (8, 32, "It is 4 times your guess."),
        (32, 8, "Your guess is 4 times as much."),
        (3, 0, "Your guess is another number."),
        (0, 3, "Your guess is another number."),
        (-3, 3, "Your guess is another number."),
        (-2, -8, "It is 4 times your guess."),
        (-2, -5e-324, "Your guess is another number."),
        (np.int64(8), 32, "It is 4 times your guess."),
        (np.float32(0.5), 1, "It is 2 times your guess."),
    ],
)
def test_how_far_a_guess_is(guess: float, counted: float, said: str) -> None:
    assert said in str(notebook.reveal("x", guess, counted))


@pytest.mark.parametrize("guess", ["32", True, [32]])
def test_a_guess_is_a_number(guess: Any) -> None:
    with pytest.raises(TypeError, match="it takes a number, as 32, or None"):
        notebook.reveal("x", guess, 1)


@pytest.mark.parametrize("guess", [math.inf, math.nan, 10**400])
def test_a_guess_is_finite(guess: float) -> None:
    with pytest.raises(ValueError, match="it takes a finite number, as 32, or None"):
        notebook.reveal("x", guess, 1)


def test_launches_side_by_side() -> None:
    profile = tilewise.profile("naive", 8, 8, 8)
    a = np.ones((8, 8), np.float32)
    ran = run("coalesced", a, a, device="emulator")
    found = notebook.beside({"one": profile, "other": ran, "third": profile.report})
    lines = str(found).splitlines()
    assert lines[0].split() == ["one", "other", "third"]
    shown = {" ".join(line.split()[:-3]): line.split()[-3:] for line in lines[1:]}
    assert ran.report is not None
    assert ran.report.counters is not None
    for name in USUAL:
        ours, theirs = getattr(profile.counters, name), getattr(ran.report.counters, name)
        row = shown.get(name.replace("_", " "))
        assert row == ([f"{ours:,}", f"{theirs:,}", f"{ours:,}"] if ours or theirs else None)
    named = notebook.beside({"one": profile}, ["barriers"])
    assert str(named).split() == ["one", "barriers", "0"]


def test_what_has_no_counters_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to show side by side"):
        notebook.beside({})
    profile = tilewise.profile("naive", 8, 8, 8)
    with pytest.raises(ValueError, match="no counter 'sectors'; it takes names such as"):
        notebook.beside({"it": profile}, ["sectors"])
    with pytest.raises(ValueError, match="no counter 'to_dict'"):
        notebook.lines(profile, ["to_dict"])
    wrong: Any = SimpleNamespace()
    with pytest.raises(TypeError, match="it is a SimpleNamespace"):
        notebook.beside({"it": wrong})
    a = np.ones((8, 0), np.float32)
    nothing = run("naive", a[:0], a.T, device="emulator")
    with pytest.raises(ValueError, match="x has no counters: only the emulator counts"):
        counters_of(nothing, "x")


def test_lines_have_what_was_counted() -> None:
    found = tilewise.profile("tiled_conflicts", 16, 16, 16, tile=8)
    shown = notebook.lines(found, ["shared_load_bank_conflicts", "barriers"])
    lines = str(shown).splitlines()
    text = found.source.splitlines()
    assert len(lines) == len(shown.source) + 1
    for (number, source), line in zip(shown.source, lines[1:], strict=True):
        assert source == text[number - 1]
        assert line.split()[0] == str(number)
        counted = found.report.lines.get(number)
        if counted is not None and counted.shared_load_bank_conflicts:
            assert line.endswith(f"{counted.shared_load_bank_conflicts:,}") or (
                f"{counted.shared_load_bank_conflicts:,}" in line.split()
            )
    total = sum(each.barriers for each in shown.by_line.values())
    assert total == found.counters.barriers > 0
    usual = notebook.lines(found)
    assert set(usual.counters) <= set(OF_LINES)
    assert "shared_load_bank_conflicts" in usual.counters
    assert "\u00a0" in usual._repr_html_()  # the source is indented
    assert "monospace" in usual._repr_html_()


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_checks_are_met_where_all_goals_are(met: list[bool]) -> None:
    found = notebook.check(*((f"goal {i}", is_met) for i, is_met in enumerate(met)))
    assert found.is_met == all(met)
    assert str(found).startswith("Right: " if all(met) else f"Not yet: {sum(met)} of {len(met)} ")
    assert repr(found).startswith("<Checked: " + ("Right" if all(met) else "Not yet"))
    assert found._repr_html_().count("✓ met") == sum(met)
    assert found._repr_html_().count("✗ not yet") == len(met) - sum(met)


def test_what_a_check_says() -> None:
    values: tuple[Any, ...] = (
        np.bool_(True),
        12345,
        0.5,
        [],
        ["first"],
        ["first", "x", "y"],
        "<text>",
    )
    found = notebook.check(*((str(i), each, each) for i, each in enumerate(values)))
    assert [said for _, _, said in found.goals] == [
        "True", "12,345", "0.5", "none", "first", "first (and 2 more)", "<text>",
    ]  # fmt: skip
    assert [is_met for _, is_met, _ in found.goals] == [True, True, True, False, True, True, True]
    assert "&lt;text&gt;" in found._repr_html_()
    with pytest.raises(ValueError, match="no goal to check"):
        notebook.check()
