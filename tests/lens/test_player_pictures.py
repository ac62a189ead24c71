"""The player, in a real browser: what slides, fills, waits and is served, against the trace."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from player import (
    SHARED,
    STILL,
    Open,
    classes,
    of_rung,
    position,
    recorded,
    sample,
    seek,
    steps_of,
)
from reference import thorough

from tilewise.lens.costs import costs, is_folded, phase_ends
from tilewise.lens.player import page

KILOBYTES = 100


@cache
def tiled() -> dict[str, Any]:
    return recorded("tiled", 12, 4)


def loads(trace: dict[str, Any], name: str, phase: int) -> list[int]:
    return sorted(
        at for step in steps_of(trace)
        if step["kind"] == "load" and step.get("array") == name and step["phase"] == phase
        for at in step["at"]
    )  # fmt: skip


def test_the_program_is_small() -> None:
    """A page of a trace of a few steps: what is left is the program and its style."""
    assert len(page(sample()).encode()) <= KILOBYTES * 1000


# ---- tiles that slide, and C ----


FRAME = """name => {
    const grid = document.querySelector(`.of-${name} .grid`);
    const frame = grid.querySelector('.frame');
    if (frame.classList.contains('off')) return null;
    const box = frame.getBoundingClientRect();
    return [...grid.querySelectorAll('.cell')].flatMap((cell, i) => {
        const at = cell.getBoundingClientRect();
        const [x, y] = [(at.left + at.right) / 2, (at.top + at.bottom) / 2];
        return x > box.left && x < box.right && y > box.top && y < box.bottom ? [i] : []; }); }"""


def test_a_frame_slides_along_k_and_leaves_a_trail(show: Open) -> None:
    trace = tiled()
    tab = show(trace, **STILL)
    ends = phase_ends(steps_of(trace))
    for phase, end in enumerate(ends):
        seek(tab, end)
        before = {name: [loads(trace, name, p) for p in range(phase)] for name in "ab"}
        for name in "ab":
            assert tab.evaluate(FRAME, name) == loads(trace, name, phase)
            trail = sorted(at for each in before[name] for at in each)
            assert classes(tab, f".of-{name} .grid .cell", "trail") == trail
    assert tab.evaluate(FRAME, "c") is None
    tab.keyboard.press("Home")
    assert tab.evaluate(FRAME, "a") is None


def test_without_phases_the_frame_is_the_last_load(show: Open) -> None:
    trace = recorded("naive", 5, None)
    tab = show(trace, **STILL)
    for number, step in enumerate(steps_of(trace)):
        if step["kind"] == "load" and step.get("array") == "b":
            seek(tab, number)
            assert tab.evaluate(FRAME, "b") == sorted(set(step["at"]))


def test_c_fills_with_the_sums(show: Open) -> None:
    trace = tiled()
    tab = show(trace)
    steps = steps_of(trace)
    ends = phase_ends(steps)
    stored = sorted(next(s for s in steps if s["kind"] == "store" and s["space"] == "global")["at"])
    for end, level in zip(ends, (2, 5, 8), strict=True):  # eighths, of 1/3, 2/3 and all
        seek(tab, end)
        assert classes(tab, ".of-c .grid .cell", f"f{level}") == stored
        assert not classes(tab, ".of-c .grid .cell", "stored")
    tab.keyboard.press("End")
    assert classes(tab, ".of-c .grid .cell", "stored") == stored


# ---- one thread's sum ----


def shown_sum(tab: Any) -> tuple[float, ...]:
    parts = (tab.inner_text(f"#sum .{name}") for name in ("before", "one", "other", "result"))
    return tuple(float(text.replace("−", "-")) for text in parts)  # noqa: RUF001


def test_a_sum_with_its_numbers_and_where_they_lie(show: Open) -> None:
    trace = tiled()
    steps = steps_of(trace)
    adds = [i for i, step in enumerate(steps) if step["kind"] == "compute" and "terms" in step]
    tab = show(trace)
    tab.locator("#threads .grid .cell").nth(6).click()  # row 1, column 2 of 4 x 4
    for i in range(4):
        number = adds[i + 4]  # of the second tile
        seek(tab, number)
        before, one, other, result = shown_sum(tab)
        unit = 5e-4  # of four digits
        slack = unit * (2 * abs(one * other) + abs(before) + abs(result))
        assert abs(before + one * other - result) <= slack
        row, column = 1, 2
        a, b = (np.array(x["values"]).reshape(12, 12) for x in trace["arrays"][:2])
        factors = {f"{a[row, 4 + i]:.4g}", f"{b[4 + i, column]:.4g}"}
        assert {f"{one:.4g}", f"{other:.4g}"} == factors
        assert abs(steps[number]["values"][6] - result) <= unit * abs(result)
        # In shared memory: sa[1][i], and sb[i][2] behind its 16 cells; and in A and B.
        lit = classes(tab, SHARED, "one") + classes(tab, SHARED, "other")
        assert sorted(lit) == [4 * row + i, 16 + 4 * i + column]
        for name, at in (("a", 12 * row + 4 + i), ("b", 12 * (4 + i) + column)):
            cells = f".of-{name} .grid .cell"
            assert classes(tab, cells, "one") + classes(tab, cells, "other") == [at]
        places = tab.inner_text("#sum .note")
        assert f"sa[1][{i}], which came from A[1][{4 + i}]" in places
        assert f"sb[{i}][2], which came from B[{4 + i}][2]" in places
    # A step on no factor is lit, and the last sum stays.
    tab.keyboard.press("ArrowRight")
    assert not classes(tab, SHARED, "one")
    assert "last" in tab.inner_text("#sum .thread")


@pytest.mark.parametrize("name", ["vectorized", pytest.param("double_buffered", marks=thorough)])
def test_factors_of_wide_stores_and_of_asynchronous_copies(show: Open, name: str) -> None:
    """What is said to have come from an element of A or B has its value."""
    trace = of_rung(name)
    arrays = {array["name"].upper(): array for array in trace["arrays"][:2]}
    adds = [
        i for i, step in enumerate(steps_of(trace)) if "terms" in step and len(step["terms"]) > 2
    ]
    tab = show(trace, **STILL)
    seen = set()
    for number in adds[5 :: len(adds) // 12]:
        seek(tab, number)
        _, *factors, _ = shown_sum(tab)
        said = re.findall(r"which came from ([AB])\[(\d+)\]\[(\d+)\]", tab.inner_text("#sum .note"))
        assert len(said) == 2
        for factor, (matrix, row, column) in zip(factors, said, strict=True):
            array = arrays[matrix]
            value = array["values"][int(row) * array["columns"] + int(column)]
            assert factor == float(f"{value:.4g}")
            seen.add(int(column) % 4)
    assert len(seen) > 1  # of more than a vector's first


# ---- sectors ----


def sectors(tab: Any, row: str) -> list[str]:
    found: list[str] = tab.eval_on_selector_all(
        f"#requests .{row} .sector",
        "all => all.map(x => [...x.children].map(y => y.className ? 1 : 0).join(''))",
    )
    return found


@pytest.mark.parametrize(("name", "own"), [("naive", 32), ("coalesced", 4)])
def test_sectors_beside_the_fewest(show: Open, name: str, own: int) -> None:
    """A column of A: 32 sectors, an eighth of each used. A row of B: 4, all used."""
    trace = of_rung(name)
    steps = steps_of(trace)
    number = next(
        i for i, step in enumerate(steps)
        if step["kind"] == "load" and step["sectors"] == own * step["requests"]
    )  # fmt: skip
    tab = show(trace)
    seek(tab, number)
    found = sectors(tab, "own")
    assert len(found) == own
    assert {slots.count("1") for slots in found} == {8 * 4 // own}
    assert sectors(tab, "best") == ["1" * 8] * 4
    assert f"{own} sectors for 128 bytes" in tab.inner_text("#requests .own h3")
    used = "(12.5 % used)" if own == 32 else "as here"
    assert used in tab.inner_text("#requests")


# ---- steps that compute indices ----


def test_index_steps_are_folded(show: Open) -> None:
    trace = tiled()
    steps = steps_of(trace)
    shown = [i for i, step in enumerate(steps) if not is_folded(step)]
    assert len(shown) < len(steps) - 10
    tab = show(trace)
    tab.keyboard.press("Home")
    visited = []
    for _ in shown:
        tab.keyboard.press("ArrowRight")
        visited.append(position(tab))
    assert visited == [*shown[0:], shown[-1]][: len(visited)]
    for expected in reversed(shown[:-1]):
        tab.keyboard.press("ArrowLeft")
        assert position(tab) == expected
    # One key unfolds them, and one click folds them again.
    tab.keyboard.press("Home")
    tab.keyboard.press("f")
    assert tab.get_attribute("#fold", "aria-pressed") == "false"
    tab.keyboard.press("ArrowRight")
    assert position(tab) == 1
    tab.click("#fold")
    assert tab.get_attribute("#fold", "aria-pressed") == "true"
    tab.keyboard.press("ArrowRight")
    assert position(tab) == shown[0]
    # Lines and phases are left for steps that are shown.
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "]", "]", "[", "Shift+ArrowLeft"):
        tab.keyboard.press(key)
        assert position(tab) in shown


def test_playing_passes_over_them(show: Open) -> None:
    trace = tiled()
    steps = steps_of(trace)
    tab = show(trace)
    tab.select_option("#speed", "60")
    tab.evaluate("""() => { window.seen = new Set();
        new MutationObserver(() => window.seen.add(Number(document.body.dataset.step)))
            .observe(document.body, {attributes: true}); }""")
    tab.click("#start")
    tab.click("#play")
    tab.wait_for_selector(f"body[data-step='{len(steps) - 1}']")
    seen = set(tab.evaluate("[...window.seen]")) - {0}
    assert len(seen) > 20
    assert not [i for i in seen if is_folded(steps[i])]


# ---- what was drawn wrong ----


def test_an_mbarrier_is_written_when_it_is_initialised(show: Open) -> None:
    trace = of_rung("specialized")
    steps = steps_of(trace)
    inits = [i for i, s in enumerate(steps) if s.get("sync", {}).get("do") == "init"]
    tab = show(trace)
    firsts = {array["name"]: array["offset"] for array in trace["shared"]}
    names = [array["name"] for array in trace["shared"]]
    seek(tab, inits[-1])
    written = {at for i in inits for at in steps[i]["sync"]["at"]}
    for array in names[:2]:
        place = names.index(array) + 1
        cells = f"#shared .array:nth-child({place}) .cell"
        blank = classes(tab, cells, "unwritten")
        assert not [c for c in blank if firsts[array] + 4 * c in written]
    seek(tab, inits[0] - 1)
    assert len(classes(tab, "#shared .array:nth-child(1) .cell", "unwritten")) > len(blank)


def test_pieces_name_their_array(show: Open) -> None:
    trace = of_rung("ldmatrix")
    tab = show(trace)
    labels = set(tab.locator("#pieces > .pieces .cell").all_inner_texts()) - {""}
    letters = {label[0] for label in labels if ":" in label}
    assert letters <= {"A", "B"}
    assert letters


def test_costs_of_the_page_are_those_of_python(show: Open) -> None:
    trace = tiled()
    found = costs(trace, 0)
    tab = show(trace)
    for number in (10, 40, len(found.work) - 1):
        seek(tab, number)
        values, read = found.at("loads", number), found.at("sectors", number)
        assert tab.inner_text("#loads") == f"{values:,} values, {read:,} sectors"
