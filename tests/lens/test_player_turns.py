"""The player, in a real browser: what goes on within a step, by keyboard and on a small screen."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from player import STILL, Open, classes, of_rung, position, recorded, seek, steps_of, until
from reference import thorough

# ---- turns ----


def conflict(trace: dict[str, Any]) -> int:
    steps = steps_of(trace)
    return max(range(len(steps)), key=lambda i: steps[i].get("conflicts") or 0)


TURNS = "#turns .turns .cell"


@cache
def column() -> dict[str, Any]:
    """The first steps of a block that stores and loads columns of 32 floats."""
    return recorded("tiled_conflicts", 32, 32, most=120)


def test_turns_of_a_conflict(show: Open) -> None:
    """A column of 32 floats: each lane has a turn of its own, in one bank."""
    trace = column()
    number = conflict(trace)
    step = steps_of(trace)[number]
    tab = show(trace, **STILL)
    seek(tab, number)
    shown = tab.eval_on_selector_all(
        TURNS,
        "cells => cells.map(c => /read|conflict/.test(c.className) ? c.textContent || '?' : '')",
    )
    rows = np.reshape(shown, (-1, 32))
    wavefronts = 1 + step["conflicts"] // step["requests"]
    assert sum(bool(any(row)) for row in rows) == wavefronts == 32
    # Each lane is served once, and a bank at most once a turn.
    lanes = sorted(int(lane) for row in rows for lane in row if lane)
    assert lanes == list(range(32))
    assert f"32 turns, {wavefronts - 1} of them for conflicts" in tab.inner_text("#turns h3")


def test_turns_come_one_after_the_other(show: Open) -> None:
    trace = column()
    number = conflict(trace)
    tab = show(trace)
    seek(tab, number)
    says = "#turns output"
    first = int(tab.inner_text(says).split()[1])
    assert first < 32
    until(tab, "document.querySelector('#turns output').value === 'turn 32 of 32'")
    # By hand, with the keyboard alone.
    tab.focus("#turns button >> nth=0")
    tab.keyboard.press("Enter")
    assert tab.inner_text(says) == "turn 31 of 32"
    assert len(classes(tab, TURNS, "conflict")) == 30
    tab.focus("#turns button >> nth=1")
    tab.keyboard.press("Enter")
    assert len(classes(tab, TURNS, "conflict")) == 31
    assert position(tab) == number
    # A step away and back, they begin anew.
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowLeft")
    assert int(tab.inner_text(says).split()[1]) < 32


def test_the_player_waits_for_turns(show: Open) -> None:
    trace = column()
    number = conflict(trace)
    tab = show(trace)
    tab.select_option("#speed", "8")
    tab.evaluate("document.activeElement.blur()")
    seek(tab, number)
    tab.keyboard.press("Space")
    tab.wait_for_timeout(500)  # four steps, if it did not wait
    assert position(tab) == number
    until(tab, f"Number(document.body.dataset.step) > {number}")


# ---- a barrier ----


MARKS = "[...document.querySelectorAll('.arrivals li')].map(x => x.className)"


@cache
def four_warps() -> dict[str, Any]:
    return recorded("tiled", 32, 16, blocks=[(0, 0, 0)])


def barrier(trace: dict[str, Any]) -> int:
    return next(i for i, step in enumerate(steps_of(trace)) if step["kind"] == "barrier")


def test_warps_arrive_one_after_the_other_and_wait(show: Open) -> None:
    trace = four_warps()
    number = barrier(trace)
    tab = show(trace)
    seek(tab, number)
    found = tab.evaluate(MARKS)
    there = found.count("waits")
    assert 1 <= there < 8
    assert found == ["waits"] * there + ["runs"] * (8 - there)
    assert f"has arrived; {there} warp" in tab.inner_text("#arrivals .note")
    until(tab, f"{MARKS}.every(x => x === 'passes')")
    assert tab.inner_text("#arrivals .note").startswith("All 8 warps are there, and go on.")
    tab.click("#arrivals button >> nth=0")
    assert tab.evaluate(MARKS) == ["waits"] * 7 + ["runs"]
    assert "wait for 1 other." in tab.inner_text("#arrivals .note")
    tab.keyboard.press("ArrowRight")
    assert set(tab.evaluate(MARKS)) == {"runs"}


def test_with_reduced_motion_all_are_there_at_once(show: Open) -> None:
    trace = four_warps()
    tab = show(trace, **STILL)
    seek(tab, barrier(trace))
    assert tab.evaluate(MARKS) == ["passes"] * 8
    assert tab.evaluate(
        "getComputedStyle(document.querySelector('.frame')).transitionDuration"
    ) in ("0s", "")


def test_threads_that_come_later(show: Open) -> None:
    """A warp that is at the barrier in an earlier step waits until the other is there."""
    trace = copy.deepcopy(recorded("tiled", 16, 8, blocks=[(0, 0, 0)]))
    steps = steps_of(trace)
    number = barrier(trace)
    whole = steps[number]
    assert whole["threads"] == [[0, 64]]
    branch = next(step for step in steps if step["kind"] == "branch")
    steps[number : number + 1] = [
        {**whole, "threads": [[32, 32]]}, {**branch, "threads": [[0, 32]]},
        {**whole, "threads": [[0, 32]]},
    ]  # fmt: skip
    tab = show(trace, **STILL)
    seek(tab, number + 1)
    assert classes(tab, "#threads .grid .cell", "waits") == list(range(32, 64))
    assert tab.evaluate(MARKS) == ["runs", "waits"]
    assert "1 warp waits at a barrier" in tab.inner_text("#arrivals .note")
    seek(tab, number + 2)
    assert "waits" not in tab.evaluate(MARKS)
    assert classes(tab, "#threads .grid .cell", "waits") == []


# ---- a small screen ----


@pytest.fixture
def phone() -> dict[str, Any]:
    return {"width": 390, "height": 844}


def test_global_and_shared_memory_are_on_one_screen(show: Open, phone: dict[str, Any]) -> None:
    tab = show(of_rung("tiled"), **phone)
    boxes = [tab.locator(one).bounding_box() for one in ("#arrays", "#shared")]
    room = (
        tab.locator("#controls").bounding_box()["y"] - tab.locator("#say").bounding_box()["height"]
    )
    top = min(box["y"] for box in boxes)
    assert max(box["y"] + box["height"] for box in boxes) - top <= room
    # And they are neighbours: nothing is between them.
    assert 0 < boxes[1]["y"] - boxes[0]["y"] - boxes[0]["height"] < 100


@pytest.mark.parametrize(
    "name",
    ["tiled", "multistage", *(
        pytest.param(name, marks=thorough)
        for name in ("naive", "tiled_conflicts", "warp_tile", "tensor_core", "persistent")
    )],
)  # fmt: skip
def test_nothing_is_wider_than_a_phone(show: Open, phone: dict[str, Any], name: str) -> None:
    tab = show(of_rung(name), **phone)
    assert tab.evaluate("document.documentElement.scrollWidth") <= phone["width"]
    # The buttons of the player are in two rows.
    assert tab.locator("#buttons").bounding_box()["height"] < 2.5 * 36
    marks = "[...document.querySelectorAll('#phases span')]"
    assert tab.evaluate(f"{marks}.every(x => x.scrollWidth <= x.clientWidth + 1)")


def keyboard_stops(tab: Any) -> Iterator[str]:
    tab.evaluate("document.activeElement.blur()")
    for _ in range(60):
        tab.keyboard.press("Tab")
        yield tab.evaluate("(document.activeElement.closest('[id]') || document.body).id")


def test_everything_is_reached_by_the_keyboard(show: Open) -> None:
    trace = recorded("tiled_conflicts", 16, 8)
    tab = show(trace, **STILL)
    seek(tab, conflict(trace))
    reached = set(keyboard_stops(tab))
    assert {"fold", "play", "slider", "turns", "arrays", "shared", "threads", "speed"} <= reached
