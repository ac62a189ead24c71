"""The opening and the guided tours, in a real browser, by keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from commands import SOURCE
from player import Open, classes, of_rung, position, sample
from reference import thorough

from tilewise.kernel import Kernel
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.player import page
from tilewise.lens.tours.find import tour_of
from tilewise.lens.trace import record
from tilewise.lens.watch import watch

QUICK = (("coalesced", 1280),)
CASES = [
    (each.name, width)
    for each in RUNGS
    for width in (1280, 390)
    if (each.name, width) != ("tiled", 390)
]
each_tour = pytest.mark.parametrize(
    ("name", "width"),
    [case if case in QUICK else pytest.param(*case, marks=thorough) for case in CASES],
)

TOO_WIDE = "document.documentElement.scrollWidth > window.innerWidth"
FOCUSED = "document.activeElement.id"
TEXTS_TOO_SMALL = """() => [...document.querySelectorAll('#opening *, #tour *')].filter(one =>
    [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()) &&
    parseFloat(getComputedStyle(one).fontSize) < 12).map(one => one.tagName)"""

# The steps that panels say they show where it is not the page's own; of panels that can be seen.
STEPS_NAMED = """() => [...document.querySelectorAll('#h-fragments, #pieces-note')]
    .filter(one => one.offsetParent)
    .flatMap(one => [...one.textContent.matchAll(/[Ss]tep ([\\d,]+)/g)])
    .map(found => found[1].replaceAll(',', ''))"""

# How much of the first thing that is looked at can be seen beside the card: pixels of its height,
# all of them, and whether the card is on the screen.
SEEN = """() => {
    const card = document.getElementById('tour').getBoundingClientRect();
    const [found] = ['.panel', '.array'].flatMap(
        kind => [...document.querySelectorAll(kind + '.pointed')]);
    const { top, bottom, left, right } = found.getBoundingClientRect();
    const below = card.top > 8 && card.bottom >= window.innerHeight - 1;
    const [from, to] = below ? [0, card.top] : [card.bottom, window.innerHeight];
    return {
        seen: Math.min(bottom, to) - Math.max(top, from), high: bottom - top,
        inside: left >= 0 && right <= window.innerWidth,
        card: card.top >= 0 && card.bottom <= window.innerHeight + 1 && card.height > 0,
    };
}"""


def start(tab: Any) -> None:
    """By keyboard: the first button is the tour's."""
    tab.keyboard.press("Tab")
    assert tab.evaluate(FOCUSED) == "tour-start"
    tab.keyboard.press("Enter")


def typeset(text: str) -> str:
    return text.replace(" \N{MULTIPLICATION SIGN} ", " x ")


def test_every_stop_by_keyboard_on_a_small_screen(show: Open) -> None:
    walk(show, "tiled", 390)


@each_tour
def test_every_stop_by_keyboard(show: Open, name: str, width: int) -> None:
    walk(show, name, width)


def walk(show: Open, name: str, width: int) -> None:
    """Every stop of a tour, a right answer and a wrong one by turns."""
    trace = of_rung(name)
    tour = tour_of(trace)
    tab = show(trace, width, 844 if width < 700 else 800, at="")
    assert tab.inner_text("#h-opening") == tour.question
    assert not tab.evaluate(TOO_WIDE)
    start(tab)
    for number, stop in enumerate(tour.stops, 1):
        assert tab.inner_text("#tour-count") == f"Stop {number} of {len(tour.stops)}"
        assert tab.inner_text("#tour-title") == stop.title
        assert int(tab.input_value("#block")) == stop.block
        if stop.ask is not None:
            # Nothing gives the answer away: the page stands before the step.
            assert position(tab) == max(0, stop.step - 1)
            assert all(int(number) <= stop.step for number in tab.evaluate(STEPS_NAMED)), stop.title
            assert said(tab) == [stop.before, stop.ask.question]
            assert (
                typeset(tab.inner_text("#tour-choices")).split()
                == " ".join(f"{i} {text}" for i, text in enumerate(stop.ask.choices, 1)).split()
            )
            look_at(tab)
            tab.keyboard.press(str(stop.ask.right + 1 if number % 2 else 1))
            assert tab.evaluate(FOCUSED) == "tour-next"
            verdict = said(tab)[0]
            right = stop.ask.choices[stop.ask.right]
            chose_right = number % 2 or stop.ask.right == 0
            assert verdict.startswith(f"✓ Right: {right}." if chose_right else "✗ No, not ")
            assert f"{right}." in verdict
        assert position(tab) == stop.step
        assert said(tab)[-1] == stop.text
        look_at(tab)
        tab.keyboard.press("ArrowRight")
    # Behind the last stop is free play, where the tour has brought one.
    assert not tab.is_visible("#tour")
    assert tab.is_visible("#controls")
    assert position(tab) == tour.stops[-1].step


def said(tab: Any) -> list[str]:
    """The paragraphs of the card."""
    return [typeset(text) for text in tab.locator("#tour-said p").all_inner_texts()]


def look_at(tab: Any) -> None:
    assert not tab.evaluate(TOO_WIDE)
    assert tab.evaluate(TEXTS_TOO_SMALL) == []
    found = tab.evaluate(SEEN)
    assert found["card"]
    assert found["inside"]
    assert found["seen"] >= min(found["high"] - 2, 120), found


def test_both_pictures_of_the_opening_have_room_on_a_small_screen(show: Open) -> None:
    tab = show(of_rung("thread_tile_1d"), 390, 844, at="")
    widths = tab.eval_on_selector_all("#opening figure svg", "all => all.map(x => x.clientWidth)")
    assert len(widths) == 2
    assert min(widths) >= 100


@thorough
def test_a_stage_of_many_pieces_is_named_by_its_ends(show: Open) -> None:
    """Those of ``tuned`` have a piece for each row of both tiles."""
    tab = show(of_rung("tuned"))
    labels = tab.locator("#stages .strip p").all_inner_texts()
    assert len(labels) == 3
    for i, (label, stage) in enumerate(
        zip(labels, of_rung("tuned")["blocks"][0]["stages"], strict=True)
    ):
        (first, _), (last, many) = stage["bytes"][0], stage["bytes"][-1]
        pieces = len(stage["bytes"])
        assert pieces > 4
        ends = f"{first:,}\N{EN DASH}{last + many - 1:,}"
        assert label.startswith(f"Stage {i}: bytes {ends}, in {pieces} pieces")


def test_the_opening(show: Open) -> None:
    trace = of_rung("tiled")
    tab = show(trace, at="")
    assert tab.inner_text("#h-opening") == "How can 8 times fewer loads give the same product?"
    for part in ("header", "main", "#controls", "#words", "#tour"):
        assert not tab.is_visible(part)
    for label in tab.eval_on_selector_all("#opening svg", "all => all.map(x => x.ariaLabel)"):
        assert label.endswith(".")
    assert tab.evaluate(TEXTS_TOO_SMALL) == []
    assert tab.evaluate("getComputedStyle(document.querySelector('.slides')).animationName") in (
        "along-x", "along-y",
    )  # fmt: skip
    # The player's other keys do nothing yet, and neither do those that go back.
    before = position(tab)
    for key in ("ArrowLeft", "PageUp", "]", "End", "Home", "1"):
        tab.keyboard.press(key)
    assert position(tab) == before
    assert tab.is_visible("#opening")
    tab.keyboard.press("Escape")
    assert tab.is_visible("#controls")
    assert tab.inner_text("#tour-again") == "Tour"


@pytest.mark.parametrize("key", ["ArrowRight", "PageDown", "n"])
def test_keys_for_the_next_stop_start_the_tour(key: str, show: Open) -> None:
    """A presenter's remote control has no other keys."""
    tab = show(of_rung("tiled"), at="")
    tab.keyboard.press(key)
    assert tab.inner_text("#tour-count").startswith("Stop 1 of ")
    assert tab.evaluate(FOCUSED) == "tour-title"
    assert not tab.is_visible("#opening")


def test_page_down_scrolls_a_long_opening_before_it_starts_the_tour(show: Open) -> None:
    tab = show(of_rung("tiled"), 360, 300, at="")
    tab.keyboard.press("PageDown")
    assert tab.is_visible("#opening")
    tab.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    tab.keyboard.press("PageDown")
    assert tab.inner_text("#tour-count").startswith("Stop 1 of ")


def test_the_button_is_on_the_screen(show: Open) -> None:
    for width, height in ((1280, 720), (390, 844)):
        for name in ("tiled", "naive"):
            tab = show(of_rung(name), width, height, at="")
            box = tab.locator("#tour-start").bounding_box()
            assert box["y"] + box["height"] <= height


def test_leaving_and_coming_back(show: Open) -> None:
    trace = of_rung("tiled")
    tour = tour_of(trace)
    tab = show(trace, at="")
    start(tab)
    assert tab.evaluate(FOCUSED) == "tour-title"
    tab.keyboard.press("PageDown")  # as a presenter's remote control does
    assert tab.inner_text("#tour-title") == tour.stops[1].title
    tab.keyboard.press("PageUp")
    assert tab.inner_text("#tour-title") == tour.stops[0].title
    tab.keyboard.press("End")
    assert tab.inner_text("#tour-title") == tour.stops[-1].title
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#tour")
    assert tab.locator(".panel.aside").count() == 0
    tab.keyboard.press("End")  # the player's own key again
    assert position(tab) == len(trace["blocks"][0]["steps"]) - 1
    assert tab.inner_text("#tour-again") == "Tour, stop 2"
    tab.click("#tour-again")
    assert tab.inner_text("#tour-title") == tour.stops[1].title


def test_next_shows_the_answer_first(show: Open) -> None:
    trace = of_rung("tiled")
    tour = tour_of(trace)
    number = next(i for i, stop in enumerate(tour.stops) if stop.ask)
    tab = show(trace, at=f"stop-{number + 1}")
    assert tab.inner_text("#tour-next") == "Show the answer"
    tab.click("#tour-next")
    ask = tour.stops[number].ask
    assert ask is not None
    assert tab.inner_text(".verdict") == f"{ask.choices[ask.right]}."
    assert tab.inner_text("#tour-next").startswith("Next")
    # What was answered stays so.
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text("#tour-next").startswith("Next")


def test_a_wrong_answer_is_told_why(show: Open) -> None:
    trace = of_rung("tiled")
    number, stop = next(
        (i, stop) for i, stop in enumerate(tour_of(trace).stops, 1)
        if stop.ask and any(stop.ask.remarks)
    )  # fmt: skip
    assert stop.ask is not None
    wrong = next(i for i, remark in enumerate(stop.ask.remarks) if remark)
    tab = show(trace, at=f"stop-{number}")
    tab.locator("#tour-choices button").nth(wrong).click()
    assert stop.ask.remarks[wrong] in tab.inner_text(".verdict")
    assert not tab.is_visible("#tour-choices")


def test_a_link_to_a_stop(show: Open) -> None:
    trace = of_rung("tiled")
    tab = show(trace, at="stop-4")
    assert tab.inner_text("#tour-count").startswith("Stop 4 of")
    tab.keyboard.press("ArrowRight")
    tab.reload()
    tab.wait_for_selector("body[data-shown]")
    assert tab.inner_text("#tour-count").startswith("Stop 5 of")
    tab.evaluate("location.hash = '#stop-2'")
    tab.wait_for_function("document.getElementById('tour-count').textContent.startsWith('Stop 2 ')")
    # A stop that there is not is the last one.
    assert show(trace, at="stop-99").inner_text("#tour-next") == "Explore freely"


def test_sectors_stay_though_the_pointer_rests_above(show: Open) -> None:
    """The page moves below a pointer that does not: that is not pointing at something."""
    trace = of_rung("tiled")
    number = next(i for i, stop in enumerate(tour_of(trace).stops, 1) if stop.shows_sectors)
    tab = show(trace, at=f"stop-{number}")
    tab.keyboard.press("1")
    box = tab.locator("#arrays .of-c").bounding_box()
    tab.mouse.move(box["x"] + 20, box["y"] + 30)
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowLeft")
    tab.wait_for_timeout(300)
    assert tab.locator(".of-a .cell.sector").count() > 0


def test_with_reduced_motion_nothing_moves(show: Open) -> None:
    tab = show(of_rung("tiled"), at="", reduced_motion="reduce")
    running = "document.getAnimations().filter(one => one.playState === 'running').length"
    assert tab.evaluate(running) == 0


def test_another_block_s_stop(show: Open) -> None:
    """The tour of tiled_branchless is of the block at the edge."""
    tab = show(of_rung("tiled_branchless"), at="")
    start(tab)
    assert tab.input_value("#block") == "1"
    tab.keyboard.press("Escape")
    assert tab.input_value("#block") == "1"


def test_a_kernel_of_one_s_own(show: Open) -> None:
    trace = record(Kernel(SOURCE, "talks"), 8, 8, 8, tile=4).to_dict()
    tour = tour_of(trace)
    tab = show(trace, at="")
    assert tab.inner_text("#h-opening") == "What does talks do?"
    assert tour.sentences[0] in typeset(tab.inner_text("#opening .says"))
    assert tab.locator("#tour-start").count() == bool(tour.stops)
    tab.click("#explore")
    assert tab.is_visible("#controls")


def test_a_trace_with_no_stops(show: Open) -> None:
    trace = sample()
    trace |= {"source": "nothing", "shared": []}
    for block in trace["blocks"]:
        block["steps"] = [step for step in block["steps"] if step["kind"] == "end"]
    tab = show(trace, at="")
    assert tab.locator("#tour-start").count() == 0
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.is_visible("#controls")
    assert not tab.is_visible("#tour-again")


def test_a_damaged_tour_leaves_free_play(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "player.html"
    whole = page(of_rung("tiled"))
    file.write_text(re.sub(r'(id="guide">).*(</script>)', r"\1H4sI\2", whole), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_selector("body[data-shown]")
    assert tab.locator("#tour-start").count() == 0
    tab.click("#explore")
    assert tab.is_visible("#controls")
    tab.close()


@thorough
def test_a_page_in_a_notebook_opens_with_its_question(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    shown = watch("tiled", 4, 4, 4, tile=2)._repr_html_()
    file.write_text(f"<!doctype html><body>{shown}</body>", encoding="utf-8")
    tab = browser.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(file.as_uri())
    frame = tab.frame_locator("iframe")
    frame.locator("#tour-start").click()
    assert frame.locator("#tour-count").inner_text().startswith("Stop 1 of")
    frame.locator("#tour-next").click()
    assert frame.locator("#tour-count").inner_text().startswith("Stop 2 of")
    assert not errors
    tab.close()


@pytest.mark.parametrize(
    "name",
    ["double_buffered", "multistage", pytest.param("specialized", marks=thorough)],
)
def test_strips_are_hidden_until_the_answer(show: Open, name: str) -> None:
    """They show all steps, so that the stages which are filled could be counted there."""
    trace = of_rung(name)
    tab = show(trace, at="stop-1")
    asked = [i for i, x in enumerate(tour_of(trace).stops, 1) if x.ask and "stages" in x.look]
    assert asked
    for number in asked:
        tab.evaluate("at => { location.hash = at; }", f"stop-{number}")
        tab.wait_for_selector("#tour-choices button")
        assert not tab.is_visible("#stages-panel")
        assert not tab.is_visible("#warps-panel")
        assert tab.locator(".panel:not(.aside):visible").count()
        tab.click("#tour-next")
        assert tab.is_visible("#stages-panel")


def test_a_question_shows_no_access_of_the_step_before(show: Open) -> None:
    """In vectorized the threads have just read A's tile, and the question is about B's."""
    trace = of_rung("vectorized")
    stops = tour_of(trace).stops
    number = next(i for i, x in enumerate(stops, 1) if x.ask and x.look[0] == "banks")
    stop, steps = stops[number - 1], trace["blocks"][0]["steps"]
    assert steps[stop.step - 1]["space"] == "shared"
    tab = show(trace, at=f"stop-{number}")
    assert not classes(tab, "#banks .grid .cell", "read")
    assert not classes(tab, "#turns .grid .cell", "read")
    assert tab.inner_text("#banks-note").startswith("Before this step.")
    lines = tab.locator("#source li.now")
    assert lines.count() == 1
    assert lines.evaluate("line => line.number") == steps[stop.step]["line"]
    assert tab.evaluate(IN_VIEW, "#source li.now")
    tab.click("#tour-next")
    assert classes(tab, "#banks .grid .cell", "read") or classes(
        tab, "#banks .grid .cell", "conflict"
    )


IN_VIEW = """selector => {
    const line = document.querySelector(selector), list = line.parentElement;
    const [inner, outer] = [line, list].map((one) => one.getBoundingClientRect());
    return inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
}"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x.name, marks=[thorough] * (x.name not in ("tiled", "tiled_conflicts")))
        for x in RUNGS
    ],
)
def test_banks_are_looked_at_where_shared_memory_is_accessed(name: str) -> None:
    """But where it is said what banks are, in front of the first store."""
    trace = of_rung(name)
    for stop in tour_of(trace).stops:
        after = trace["blocks"][stop.block]["steps"][stop.step : stop.step + 2]
        if stop.look[0] == "banks":
            assert any(step.get("space") == "shared" for step in after), stop.title
