"""The player's page, in a real browser: what it shows against what the trace says."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from player import (
    SHARED,
    SIZE,
    THREAD,
    THREADS,
    Open,
    classes,
    position,
    sample,
    seek,
    shared_after,
)
from reference import thorough

from tilewise.lens.player import page
from tilewise.lens.watch import watch

# ---- the document ----


def test_holds_everything_it_needs() -> None:
    text = page(sample())
    assert not re.search(r"\{\{\w+\}\}", text)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("title", "shown"),
    [("own.cu:sum<4>", "own.cu:sum&lt;4&gt;"), ("tiled", "tiled"), (None, "KERNEL")],
)
def test_the_page_is_called_as_the_trace(title: str | None, shown: str) -> None:
    """A trace of before there were titles has its kernel's name."""
    trace = {**sample(), "kernel": "KERNEL", "title": title}
    assert f"<title>{shown} - tilewise</title>" in page(trace)


def test_no_text_of_the_trace_ends_the_script() -> None:
    trace = sample()
    trace["source"] += "\n// </script><script>alert(1)</script> <!-- {{style}}\n"
    trace["kernel"] = "</title><b>"
    text = page(trace)
    assert text.count("</script>") == page(sample()).count("</script>")
    assert "<b>" not in text
    (data,) = re.findall(r'<script type="text/plain" id="trace">(.*)</script>', text)
    assert json.loads(gzip.decompress(base64.b64decode(data, validate=True))) == trace


def test_the_same_page_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once = page(sample())
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert page(sample()) == once


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "something"}, "format is 'something'"),
        ({"version": 2}, "version 2"),
        ({"blocks": []}, "nothing to show"),
        ({"blocks": [{"index": [0, 0, 0], "steps": []}]}, "nothing to show"),
        ({"extra": float("nan")}, "JSON"),
    ],
)
def test_what_is_no_trace(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        page(sample() | change)


# ---- in a browser ----


def test_opens_on_the_interesting_step(show: Open) -> None:
    tab = show(sample())
    assert position(tab) == 4
    assert tab.inner_text("#say") == "Step 4: barrier at full."
    assert tab.inner_text("#why") == "Nobody reads before both tiles are whole."
    assert "bar.sync" in tab.inner_text("#where")
    assert tab.locator("#source .now").count() == 1
    assert "both tiles are whole" in tab.inner_text("#source .now")


def test_shared_memory_behind_the_barrier(show: Open) -> None:
    trace = sample()
    tab = show(trace)
    stored = shared_after(trace["blocks"][0]["steps"][:5])
    assert len(stored) == 2 * THREADS
    assert [float(text) for text in tab.locator(SHARED).all_inner_texts()] == [
        stored[at] for at in sorted(stored)
    ]


def test_unwritten_until_it_is_stored(show: Open) -> None:
    tab = show(sample())
    everything = list(range(2 * THREADS))
    tab.keyboard.press("Home")
    assert classes(tab, SHARED, "unwritten") == everything
    tab.keyboard.press("ArrowRight")
    assert classes(tab, SHARED, "write") == everything[:THREADS]
    assert classes(tab, SHARED, "unwritten") == everything[THREADS:]


def test_what_a_step_lights(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    tab = show(trace)
    tab.keyboard.press("Home")
    assert classes(tab, ".of-a .grid .cell", "read") == sorted(steps[0]["at"])
    assert classes(tab, ".of-b .grid .cell", "tile") == sorted(steps[2]["at"])
    seek(tab, 5)
    offsets = sorted(set(steps[5]["at"]))
    assert classes(tab, SHARED, "read") == [at // 4 for at in offsets]
    words = "#banks .grid:not(.most) .cell"
    assert classes(tab, words, "read") == [at // 4 for at in offsets]
    assert classes(tab, THREAD, "active") == list(range(THREADS))


def test_sums_of_the_threads_and_of_c(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    sums = [step for step in steps if step["kind"] == "compute"][-1]["values"]
    tab = show(trace)
    tab.keyboard.press("End")
    assert position(tab) == len(steps) - 1
    assert [float(text) for text in tab.locator(THREAD).all_inner_texts()] == sums
    assert classes(tab, THREAD, "active") == list(range(THREADS))
    assert classes(tab, ".of-c .grid .cell", "stored") == sorted(steps[-2]["at"])


def test_loads_beside_those_of_no_tiling(show: Open) -> None:
    """Compared where a phase ends: within one, a tile is loaded of which not all is used."""
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    ends = [max(i for i, step in enumerate(steps) if step["phase"] == phase) for phase in (0, 1)]
    tab = show(trace)
    # A phase: each of 4 threads loads one of A and one of B; untiled, it would read 2 and 2.
    assert tab.inner_text("#loads") == "8 values, 4 sectors"
    assert tab.inner_text("#untiled") == ""
    assert tab.inner_text("#traffic-note").startswith("Compared at the end of each phase")
    seek(tab, ends[0] - 1)
    assert tab.inner_text("#untiled") == ""
    seek(tab, ends[0])
    assert tab.inner_text("#untiled") == "16 values"
    assert "At the end of phase 1: 8 values, 2 times fewer" in tab.inner_text("#traffic-note")
    # The next phase's tile is loaded: what was compared stays.
    seek(tab, ends[0] + 4)
    assert tab.inner_text("#loads") == "16 values, 8 sectors"
    assert "At the end of phase 1: 8 values" in tab.inner_text("#traffic-note")
    tab.keyboard.press("End")
    assert tab.inner_text("#untiled") == f"{THREADS * 2 * SIZE} values"
    marks = tab.eval_on_selector_all("#traffic-chart .mark", "all => all.map(x => x.tagName)")
    assert marks == ["rect", "rect", "circle", "circle"]


@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=thorough)])
def test_back_undoes_forward(show: Open, rounds: int) -> None:
    # 16 phases: more steps than lie between two saved states.
    trace = sample(32, 2)
    trace["blocks"] = trace["blocks"][:1]
    tab = show(trace)
    last = len(trace["blocks"][0]["steps"]) - 1
    assert last > 100
    tab.locator(SHARED).nth(3).click()
    look = "document.body.innerHTML + document.getElementById('slider').value"
    choose = random.Random(7)
    for _ in range(rounds):
        count = choose.randint(1, 60)
        start = choose.randint(0, last - count)
        seek(tab, start)
        before = tab.evaluate(look)
        for _ in range(count):
            tab.keyboard.press("ArrowRight")
        assert position(tab) == start + count
        assert tab.evaluate(look) != before
        for _ in range(count):
            tab.keyboard.press("ArrowLeft")
        assert tab.evaluate(look) == before


@thorough
def test_slider_shows_what_stepping_does(show: Open) -> None:
    tab = show(sample())
    look = "document.querySelector('main').innerHTML"
    tab.keyboard.press("Home")
    for _ in range(17):
        tab.keyboard.press("ArrowRight")
    stepped = tab.evaluate(look)
    tab.keyboard.press("End")
    seek(tab, 17)
    assert tab.evaluate(look) == stepped
    assert tab.inner_text("#say").startswith("Step 17:")
    assert tab.inner_text("#position").startswith("Step 18 of")


def test_keys(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    lines = [i for i in range(1, len(steps)) if steps[i]["line"] != steps[i - 1]["line"]]
    second = next(i for i, step in enumerate(steps) if step["phase"] == 1)
    tab = show(trace)
    visited = []
    for key in ("Home", "Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowLeft", "]", "[", "End",
                "ArrowRight", "ArrowLeft"):  # fmt: skip
        tab.keyboard.press(key)
        visited.append(position(tab))
    last = len(steps) - 1
    assert visited == [0, lines[0], lines[1], lines[0], second, 0, last, last, last - 1]


@thorough
def test_buttons_do_what_the_keys_do(show: Open) -> None:
    tab = show(sample())
    keys = {
        "start": "Home", "end": "End", "back": "ArrowLeft", "forward": "ArrowRight",
        "line-back": "Shift+ArrowLeft", "line-forward": "Shift+ArrowRight",
        "phase-back": "[", "phase-forward": "]",
    }  # fmt: skip
    for button, key in keys.items():
        seek(tab, 12)
        tab.keyboard.press(key)
        by_key = position(tab)
        seek(tab, 12)
        tab.click(f"#{button}")
        assert position(tab) == by_key != 12
        # A click leaves the keys to the player.
        tab.keyboard.press("Home")
        assert position(tab) == 0


def test_space_plays_and_pauses(show: Open) -> None:
    tab = show(sample())
    tab.select_option("#speed", "60")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("Home")
    tab.keyboard.press("Space")
    assert tab.get_attribute("#play", "aria-label") == "Pause"
    while position(tab) <= 3:
        tab.wait_for_timeout(20)
    tab.keyboard.press("Space")
    stopped = position(tab)
    tab.wait_for_timeout(200)
    assert position(tab) == stopped
    tab.click("#play")
    last = len(sample()["blocks"][0]["steps"]) - 1
    tab.wait_for_selector(f"body[data-step='{last}']")
    assert tab.get_attribute("#play", "aria-label") == "Play"


def test_a_cell_tells_who_wrote_and_read_it(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    tab = show(trace)
    seek(tab, 7)  # the first row of sa was read once, by the threads of its row
    tab.locator(SHARED).nth(0).click()
    assert tab.inner_text("#h-details") == "sa[0][0]: byte 0, bank 0"
    story = tab.inner_text("#story")
    assert f"It holds {steps[1]['values'][0]:g}." in story
    assert f"Written by thread 0 at step 2, line {steps[1]['line']}." in story
    assert "Read 2 times since, by threads 0, 1." in story
    tab.click("#story button:last-of-type >> nth=-1")  # the oldest: its store
    assert position(tab) == 1
    assert "Not read since." in tab.inner_text("#story")
    tab.keyboard.press("Escape")
    assert "Click a cell" in tab.inner_text("#story")


def test_a_thread_tells_its_story(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    tab = show(trace)
    tab.locator(THREAD).nth(3).click()
    assert tab.inner_text("#h-details") == "Thread 3: x 1, y 1, warp 0, lane 3"
    story = tab.inner_text("#story")
    assert "It stores c[1][1]." in story
    assert f"reads a[1][1] = {steps[0]['values'][3]:g}; writes sa[1][1]" in story
    assert f"result {steps[7]['values'][3]:g}" in story
    assert classes(tab, ".of-c .grid .cell", "picked") == [SIZE + 1]
    assert "waits at the barrier" in tab.inner_text("#story .now")
    tab.keyboard.press("End")
    tab.locator(THREAD).nth(2).click()
    assert tab.inner_text("#story .now").strip().endswith("ends")
    place, box = (tab.locator(one).bounding_box() for one in ("#story .now", "#story"))
    assert box["y"] <= place["y"] <= box["y"] + box["height"] - place["height"]


@thorough
def test_another_block(show: Open) -> None:
    trace = sample()
    tab = show(trace)
    tab.select_option("#block", "3")
    assert position(tab) == 4
    stored = shared_after(trace["blocks"][3]["steps"][:5])
    shown = [float(text) for text in tab.locator(SHARED).all_inner_texts()]
    assert shown == [stored[at] for at in sorted(stored)]


def test_keyboard_alone_reaches_a_cell(show: Open) -> None:
    tab = show(sample())
    inside = "document.activeElement.closest('#shared .grid') !== null"
    for _ in range(20):
        tab.keyboard.press("Tab")
        if tab.evaluate(inside):
            break
    assert tab.evaluate(inside)
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert position(tab) == 4
    assert tab.inner_text("#h-details").startswith("sa[1][1]")
    assert "written by thread 3" in tab.inner_text("#tip")


def test_a_bank_conflict_is_lit(show: Open) -> None:
    # A column of sa, by a warp: 32 words of one bank.
    step = {"at": [4 * 32 * lane for lane in range(32)], "values": [0.0] * 32, "conflicts": 31}
    tab = show(after_the_barrier(step))
    tab.keyboard.press("End")
    assert classes(tab, "#banks .most .cell", "conflict") == [0]
    assert tab.locator("#banks .most .cell").first.inner_text() == "32"
    words = classes(tab, "#banks .grid:not(.most) .cell", "conflict")
    assert words == [32 * row for row in range(32)]
    assert "Warp 0: bank 0 serves 32 words in turn" in tab.inner_text("#banks-note")


@thorough
def test_a_conflict_of_lanes_in_pairs(show: Open) -> None:
    # Two lanes want the same 8 bytes: a whole warp is served at once, not half of it.
    step = {
        "at": [8 * 32 * (lane // 2) for lane in range(32)], "values": [[0.0, 0.0]] * 32,
        "width": 8, "conflicts": 15,
    }  # fmt: skip
    tab = show(after_the_barrier(step))
    tab.keyboard.press("End")
    assert classes(tab, "#banks .most .cell", "conflict") == [0, 1]
    assert "Warp 0: bank 0 serves 16 words in turn" in tab.inner_text("#banks-note")


def after_the_barrier(step: dict[str, Any]) -> dict[str, Any]:
    """A trace that ends with a load from shared memory by the first warp."""
    trace = sample(32, 32)
    steps = trace["blocks"][0]["steps"]
    load = steps[5] | {"threads": [[0, 32]], "requests": 1} | step
    trace["blocks"][0]["steps"] = [*steps[:5], load]
    return trace


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "light"),
        (800, "dark"),
        (1280, "light"),
        *(
            pytest.param(*look, marks=thorough)
            for look in ((360, "dark"), (800, "light"), (1280, "dark"))
        ),
    ],
)
def test_fits_the_width_and_keeps_still(show: Open, width: int, scheme: str) -> None:
    tab = show(sample(16, 8), width, color_scheme=scheme)
    wide = "document.documentElement.scrollWidth > window.innerWidth"
    assert not tab.evaluate(wide)
    small = """() => [...document.querySelectorAll('body *')].filter(one =>
        [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()) &&
        parseFloat(getComputedStyle(one).fontSize) < 12).map(one => one.tagName + one.className)"""
    assert set(tab.evaluate(small)) <= {"SCRIPT", "STYLE"}
    places = """() => [...document.querySelectorAll('.panel, #controls')].map(one => {
        const box = one.getBoundingClientRect(); return [box.top, box.left, box.height]; })"""
    before = tab.evaluate(places)
    tab.keyboard.press("Home")
    for _ in range(20):
        tab.keyboard.press("Shift+ArrowRight")
        assert tab.evaluate(places) == before
    tab.locator(THREAD).nth(9).click()
    assert not tab.evaluate(wide)


# ---- the page as a file ----


@thorough
def test_a_browser_that_can_not_unpack(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "player.html"
    file.write_text(page(sample()), encoding="utf-8")
    tab = browser.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto(file.as_uri())
    assert tab.inner_text("body").strip().startswith("This browser is too old for this page")
    assert not tab.is_visible("header")
    assert not errors
    tab.close()


@pytest.mark.parametrize(("part", "called"), [("trace", "recording"), ("program", "program")])
def test_a_page_that_is_damaged(browser: Any, tmp_path: Path, part: str, called: str) -> None:
    file = tmp_path / "player.html"
    whole = page(sample())
    packed = re.search(rf'id="{part}">(.*)</script>', whole)
    assert packed is not None
    file.write_text(whole.replace(packed[1], packed[1][:400]), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    tab.locator("#wait", has_text=f"The {called} in this page can't be read").wait_for()
    assert not tab.is_visible("header")
    tab.close()


def test_nothing_is_shown_before_it_is_whole(show: Open) -> None:
    tab = show(sample())
    assert not tab.is_visible("#wait")
    assert tab.is_visible("header")
    # As the page is before its program has run.
    bare = re.sub(r'<script type="module">.*?</script>', "", page(sample()), flags=re.DOTALL)
    tab.set_content(bare)
    assert tab.is_visible("#wait")
    for part in ("header", "main", "#controls", "#words"):
        assert not tab.is_visible(part)


def test_in_the_frame_of_a_notebook(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    shown = watch("tiled", 4, 4, 4, tile=2)._repr_html_()
    file.write_text(f"<!doctype html><body>{shown}</body>", encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    frame = tab.frame_locator("iframe")
    frame.locator("body[data-step]").wait_for(timeout=10_000)
    assert frame.locator("#say").inner_text()
    assert frame.locator(SHARED).count() == 2 * THREADS
    tab.close()
