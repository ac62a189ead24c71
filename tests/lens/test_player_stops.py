"""What a stop of a guided tour shows: all of its pictures, in the legend's colours."""

from __future__ import annotations

import pytest
from player import Open, of_rung

from tilewise.lens.tours.find import tour_of
from tilewise.lens.tours.run import Run

# Panels of the stop whose content is higher than they are; the source scrolls in itself.
CUT = """() => [...document.querySelectorAll('.panel:not(.aside)')]
    .filter(one => one.offsetParent && one.scrollHeight > one.clientHeight + 1)
    .map(one => one.querySelector('h2').textContent)"""
COLOURS = """() => [...new Set([...document.querySelectorAll('.of-c .cell.write.asked')]
    .map(one => getComputedStyle(one).backgroundColor))]"""


def link(name: str, title: str) -> str:
    titles = [each.title for each in tour_of(of_rung(name)).stops]
    return f"stop-{titles.index(title) + 1}"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("coalesced", "A block of many"), ("coalesced", "Who are neighbours?"),
        ("vectorized", "The next phase"), ("tensor_core", "Who holds what"),
    ],
)  # fmt: skip
def test_no_picture_is_cut_on_a_wide_screen(show: Open, name: str, title: str) -> None:
    tab = show(of_rung(name), 1280, 900, at=link(name, title))
    assert tab.inner_text("#tour-title") == title
    assert tab.evaluate(CUT) == []


def test_the_fragments_stand_above_the_card_on_a_small_screen(show: Open) -> None:
    tab = show(
        of_rung("tensor_core"), 390, 800, at=link("tensor_core", "The tensor core multiplies")
    )
    tab.keyboard.press("1")
    panel = tab.locator("#fragments-panel").bounding_box()
    assert panel["y"] + panel["height"] <= tab.locator("#tour").bounding_box()["y"]


def test_what_is_written_has_one_colour_where_sectors_begin_too(show: Open) -> None:
    tab = show(of_rung("single_block"), 1280, 900, at=link("single_block", "All of C at once"))
    colours = tab.evaluate(COLOURS)
    assert len(colours) == 1
    assert colours != ["rgba(0, 0, 0, 0)"]


@pytest.mark.parametrize("name", ["naive", "double_buffered", "specialized"])
def test_the_last_stop_compares_all_loads(show: Open, name: str) -> None:
    trace = of_rung(name)
    stops = tour_of(trace).stops
    tab = show(trace, 1280, 900, at=f"stop-{len(stops)}")
    run = Run(trace)
    assert tab.inner_text("#traffic-note").startswith("At the end: ")
    assert tab.inner_text("#untiled") == f"{2 * len(run.stored) * run.size('k'):,} values"
