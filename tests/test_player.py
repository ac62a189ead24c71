"""The player's page, in a real browser: what it shows against what the trace says."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise.kernel import Kernel
from tilewise.ladder import rung
from tilewise.lens.player import page
from tilewise.lens.watch import watch

SIZE, TILE = 4, 2
THREADS = TILE * TILE


def line_of(source: str, part: str) -> int:
    (found,) = (i for i, line in enumerate(source.splitlines(), 1) if part in line)
    return found


def sample(size: int = SIZE, tile: int = TILE) -> dict[str, Any]:
    """A trace of ``tiled``, as the recorder writes them: a size x size x size product."""
    source = rung("tiled").path.read_text(encoding="utf-8")
    a = np.arange(size * size).reshape(size, size) + 1
    b = (np.arange(size * size).reshape(size, size) * 3) % 7 - 2
    texts = (
        "ld.global.f32", "st.shared.f32", "bar.sync", "ld.shared.f32", "fma.rn.f32",
        "st.global.f32", "ret",
    )  # fmt: skip
    lines = {
        "load_a": line_of(source, "sa[ty][tx] ="),
        "load_b": line_of(source, "sb[ty][tx] ="),
        "full": line_of(source, "both tiles are whole"),
        "sum": line_of(source, "sum +="),
        "read": line_of(source, "everybody has read"),
        "store": line_of(source, "c[at] ="),
    }

    def array(name: str, values: Any) -> dict[str, Any]:
        return {
            "name": name, "dtype": "float32", "rows": size, "columns": size, "leading": size,
            "values": [float(value) for value in values.ravel()],
        }  # fmt: skip

    edge = tile * tile * 4  # bytes of a tile

    def block(x: int, y: int) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        places = [(t // tile, t % tile) for t in range(tile * tile)]

        def step(text: str, line: str, kind: str, phase: int | None, **more: Any) -> None:
            steps.append({
                "i": texts.index(text), "line": lines[line], "kind": kind,
                "threads": [[0, tile * tile]], "phase": phase,
                "say": f"Step {len(steps)}: {kind} at {line}.", **more,
            })  # fmt: skip

        def memory(
            text: str, line: str, kind: str, phase: int, space: str, at: list[int],
            values: list[float], array: str | None = None, **more: Any,
        ) -> None:  # fmt: skip
            step(
                text, line, kind, phase, space=space, array=array, at=at, width=4, values=values,
                requests=1, sectors=tile if space == "global" else 0,
                **({"conflicts": 0} | more),
            )  # fmt: skip

        sums = np.zeros((tile, tile))
        for p in range(size // tile):
            of_a = [(y * tile + r, p * tile + q) for r, q in places]
            of_b = [(p * tile + r, x * tile + q) for r, q in places]
            own = [4 * t for t in range(tile * tile)]
            for name, matrix, where, first in (("a", a, of_a, 0), ("b", b, of_b, edge)):
                values = [float(matrix[i]) for i in where]
                at = [r * size + q for r, q in where]
                line = f"load_{name}"
                memory("ld.global.f32", line, "load", p, "global", at, values, name)
                memory(
                    "st.shared.f32", line, "store", p, "shared", [first + i for i in own], values
                )
            step("bar.sync", "full", "barrier", p, why="Nobody reads before both tiles are whole.")
            for i in range(tile):
                rows = [float(a[y * tile + r, p * tile + i]) for r, _ in places]
                columns = [float(b[p * tile + i, x * tile + q]) for _, q in places]
                memory("ld.shared.f32", "sum", "load", p, "shared",
                       [4 * (r * tile + i) for r, _ in places], rows)  # fmt: skip
                memory("ld.shared.f32", "sum", "load", p, "shared",
                       [edge + 4 * (i * tile + q) for _, q in places], columns)  # fmt: skip
                sums = sums + np.outer(rows[::tile], columns[:tile])
                step("fma.rn.f32", "sum", "compute", p, values=[float(v) for v in sums.ravel()])
            step("bar.sync", "read", "barrier", p)
        at = [(y * tile + r) * size + x * tile + q for r, q in places]
        memory(
            "st.global.f32",
            "store",
            "store",
            p,
            "global",
            at,
            [float(v) for v in sums.ravel()],
            "c",
        )
        step("ret", "store", "end", p)
        return {"index": [x, y, 0], "cut": False, "first": 4, "steps": steps}

    return {
        "format": "tilewise trace", "version": 1, "kernel": "tiled", "file": "05_tiled.cu",
        "source": source, "arch": "sm_90a",
        "grid": [size // tile, size // tile, 1], "block": [tile, tile, 1],
        "problem": {"m": size, "n": size, "k": size, "dtype": "float32", "tile": tile,
                    "alpha": 1.0, "beta": 0.0},
        "arrays": [array("a", a), array("b", b), array("c", np.zeros((size, size)))],
        "shared": [
            {"name": name, "offset": first, "bytes": edge, "element": 4, "rows": tile,
             "columns": tile}
            for name, first in (("sa", 0), ("sb", edge))
        ],
        "instructions": [{"line": 1, "text": text} for text in texts],
        "blocks": [block(x, y) for y in range(size // tile) for x in range(size // tile)],
    }  # fmt: skip


# ---- the document ----


def test_holds_everything_it_needs() -> None:
    text = page(sample())
    assert not re.search(r"\{\{\w+\}\}", text)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", text)
    assert "default-src 'none'" in text


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

Open = Callable[..., Any]
SHARED = "#shared .grid .cell"
THREAD = "#threads .grid .cell"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as play:
        # No sandbox: in a container, as root, chromium starts in no other way.
        found = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the player of a trace; at the end, nothing may have gone wrong in it."""
    said: list[str] = []
    opened: list[Any] = []

    def show(trace: dict[str, Any], width: int = 1280, height: int = 800, **more: Any) -> Any:
        file = tmp_path / "player.html"
        file.write_text(page(trace), encoding="utf-8")
        tab = browser.new_page(viewport={"width": width, "height": height}, **more)
        opened.append(tab)
        tab.set_default_timeout(10_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: said.extend(
            [request.url] if request.url.startswith("http") else []
        ))  # fmt: skip
        tab.goto(file.as_uri())
        tab.wait_for_selector("body[data-step]")
        return tab

    yield show
    for tab in opened:
        tab.close()
    assert not said


def position(tab: Any) -> int:
    return int(tab.get_attribute("body", "data-step"))


def seek(tab: Any, step: int) -> None:
    tab.evaluate(
        "to => { const slider = document.getElementById('slider'); slider.value = to;"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        step,
    )
    assert position(tab) == step


def classes(tab: Any, selector: str, name: str) -> list[int]:
    found: list[int] = tab.eval_on_selector_all(
        selector,
        "(cells, name) => cells.flatMap((cell, i) => cell.classList.contains(name) ? [i] : [])",
        name,
    )
    return found


def shared_after(steps: list[dict[str, Any]]) -> dict[int, float]:
    """What the stores leave in shared memory: byte offset -> value."""
    return {
        at: value
        for step in steps
        if step["kind"] == "store" and step.get("space") == "shared"
        for at, value in zip(step["at"], step["values"], strict=True)
    }


def point(tab: Any, selector: str, nth: int = 0) -> None:
    tab.locator(selector).nth(nth).dispatch_event("pointerover")


def asked(step: dict[str, Any], array: dict[str, Any], warp: int) -> tuple[set[int], set[int]]:
    """The elements that a warp asks for in a step, and the sectors that they lie in."""
    element = np.dtype(array["dtype"]).itemsize
    threads = [t for first, count in step["threads"] for t in range(first, first + count)]
    elements = {
        at + i
        for thread, at in zip(threads, step["at"], strict=True) if thread // 32 == warp
        for i in range(step["width"] // element)
    }  # fmt: skip
    return elements, {(array.get("address", 0) + at * element) // 32 for at in elements}


def within(array: dict[str, Any], sectors: set[int]) -> list[int]:
    """The cells of a matrix, row by row, whose elements lie in sectors."""
    element = np.dtype(array["dtype"]).itemsize
    return [
        row * array["columns"] + column
        for row in range(array["rows"]) for column in range(array["columns"])
        if (array.get("address", 0) + (row * array["leading"] + column) * element) // 32 in sectors
    ]  # fmt: skip


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
    tab = show(sample())
    # A phase: each of 4 threads loads one of A and one of B; untiled, it would read 2 and 2.
    assert tab.inner_text("#loads") == "8 values"
    assert tab.inner_text("#untiled") == "16 values"
    assert tab.inner_text("#traffic-note").startswith("4 sectors")
    tab.keyboard.press("End")
    assert tab.inner_text("#loads") == "16 values"
    assert tab.inner_text("#untiled") == f"{THREADS * 2 * SIZE} values"


def test_back_undoes_forward(show: Open) -> None:
    # 16 phases: more steps than lie between two saved states.
    trace = sample(32, 2)
    trace["blocks"] = trace["blocks"][:1]
    tab = show(trace)
    last = len(trace["blocks"][0]["steps"]) - 1
    assert last > 100
    tab.locator(SHARED).nth(3).click()
    look = "document.body.innerHTML + document.getElementById('slider').value"
    choose = random.Random(7)
    for _ in range(12):
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
    assert "bank 0 serves a warp 32 words in turn" in tab.inner_text("#banks-note")


def test_a_conflict_of_lanes_in_pairs(show: Open) -> None:
    # Two lanes want the same 8 bytes: a whole warp is served at once, not half of it.
    step = {
        "at": [8 * 32 * (lane // 2) for lane in range(32)], "values": [[0.0, 0.0]] * 32,
        "width": 8, "conflicts": 15,
    }  # fmt: skip
    tab = show(after_the_barrier(step))
    tab.keyboard.press("End")
    assert classes(tab, "#banks .most .cell", "conflict") == [0, 1]
    assert "bank 0 serves a warp 16 words in turn" in tab.inner_text("#banks-note")


def after_the_barrier(step: dict[str, Any]) -> dict[str, Any]:
    """A trace that ends with a load from shared memory by the first warp."""
    trace = sample(32, 32)
    steps = trace["blocks"][0]["steps"]
    load = steps[5] | {"threads": [[0, 32]], "requests": 1} | step
    trace["blocks"][0]["steps"] = [*steps[:5], load]
    return trace


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1280])
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


# ---- traces as they are recorded ----


def recorded(name: str | Kernel, size: int, tile: int | None, **more: Any) -> dict[str, Any]:
    if importlib.util.find_spec("tilewise.lens.trace") is None:
        pytest.skip("there is no recorder")
    from tilewise.lens.trace import record

    found: dict[str, Any] = record(name, size, size, size, tile=tile, **more).to_dict()
    return found


def test_size_of_a_page() -> None:
    trace = recorded("tiled", 64, 32)
    data = len(json.dumps(trace, separators=(",", ":")))
    # Digits are 10 symbols in 8 bits: gzip can bring them to some 42 %, base64 adds a third.
    assert len(page(trace).encode()) - len(page(sample()).encode()) < data / 3


# Milliseconds a step, drawn and laid out, forward and back: the fastest of the batches, which other
# work on the machine disturbs least.
DRAWN = """(batches) => {
    const click = id => document.getElementById(id).click();
    let best = Infinity;
    for (let batch = 0; batch < batches; ++batch) {
        const before = performance.now();
        for (let i = 0; i < 20; ++i) {
            click(batch % 4 < 2 ? 'forward' : 'back');
            document.body.getBoundingClientRect();
            document.getElementById('threads').offsetHeight;
        }
        best = Math.min(best, (performance.now() - before) / 20);
    }
    return best;
}"""

# What is played at a speed, in half a second of real time: seconds, steps, and how many were drawn.
PLAYED = """() => new Promise(done => {
    const step = () => Number(document.body.dataset.step);
    document.getElementById('start').click();
    const seen = new Set();
    const before = performance.now();
    document.getElementById('play').click();
    const watch = now => {
        seen.add(step());
        if (now - before < 500) return requestAnimationFrame(watch);
        const played = [(now - before) / 1000, step(), seen.size];
        document.getElementById('start').click();
        done(played);
    };
    requestAnimationFrame(watch);
})"""


def test_sixty_steps_a_second(show: Open) -> None:
    tab = show(recorded("tiled", 16, 8))
    tab.keyboard.press("Home")
    assert tab.evaluate(DRAWN, 40) < 1000 / 60
    # And played, in real time: of some tries, the one that was least disturbed.
    tab.select_option("#speed", "60")
    tries = [tab.evaluate(PLAYED) for _ in range(5)]
    # Two frames may be under way, and a part of a step due.
    assert min(abs(60 * seconds - steps) for seconds, steps, _ in tries) <= 3
    assert max(drawn / seconds for seconds, _, drawn in tries) >= 30


@pytest.mark.parametrize("name", ["tiled", "naive"])
def test_a_thousand_threads(show: Open, name: str) -> None:
    trace = recorded(name, 64, 32)
    tab = show(trace)
    # Of the processor's time, which other work on the machine does not use up.
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.reload()
    tab.wait_for_selector("body[data-step]")
    metrics = session.send("Performance.getMetrics")["metrics"]
    (seconds,) = (one["value"] for one in metrics if one["name"] == "TaskDuration")
    assert 0 < seconds < 2
    tab.keyboard.press("Home")
    assert tab.evaluate(DRAWN, 12) < 33
    point(tab, "#source .asks")
    assert "The step's 32 warps" in tab.inner_text("#sectors")
    assert tab.evaluate(DRAWN, 12) < 33


@pytest.mark.parametrize(
    ("name", "size", "tile"), [("tiled", 12, 4), ("tiled", 7, 4), ("tiled_conflicts", 16, 16)]
)
def test_a_recorded_run(show: Open, name: str, size: int, tile: int) -> None:
    trace = recorded(name, size, tile)
    tab = show(trace)
    for number, block in enumerate(trace["blocks"]):
        tab.select_option("#block", str(number))
        assert position(tab) == block["first"]
        assert tab.inner_text("#say") == block["steps"][block["first"]]["say"]
        for step in range(0, len(block["steps"]), 7):
            seek(tab, step)
            assert tab.inner_text("#say") == block["steps"][step]["say"]
            stored = shared_after(block["steps"][: step + 1])
            assert classes(tab, SHARED, "unwritten") == [
                cell for cell in range(2 * tile * tile) if 4 * cell not in stored
            ]
            # The banks that are marked explain each conflict that was counted.
            marked = classes(tab, "#banks .most .cell", "conflict")
            assert bool(marked) == bool(block["steps"][step].get("conflicts"))


def test_a_kernel_with_no_shared_memory(show: Open) -> None:
    tab = show(recorded("single_thread", 3, None))
    for id in ("#shared-panel", "#banks-panel", "#phases", "#phase-back", "#phase-forward"):
        assert not tab.is_visible(id)
    assert "bank" not in tab.inner_text(".legend")
    tab.keyboard.press("End")
    assert tab.inner_text("#loads") == tab.inner_text("#untiled") == f"{3 * 3 * 3 * 2} values"


# ---- sectors ----


def counted(said: str) -> tuple[int, ...]:
    """Warp, line, threads, elements, bytes asked, sectors and their bytes, of the sentence."""
    found = re.match(
        r"Warp (\d+), line (\d+): (\d+) threads? (?:asks? for|stores?|updates?) (\d+) elements? of "
        r"[ABC] \(([\d,]+) bytes\) in ([\d,]+) sectors? \(([\d,]+) bytes\): (.*? used)\.",
        said,
    )
    assert found is not None, said
    numbers = tuple(int(number.replace(",", "")) for number in found.groups()[:-1])
    share = 100 * numbers[4] / numbers[6]
    assert found[8] == ("all used" if share == 100 else f"{round(share, 1):g} % used")
    return numbers


def test_sectors_of_an_element(show: Open) -> None:
    trace = recorded("tiled", 12, 4)
    a, b = trace["arrays"][:2]
    steps = trace["blocks"][0]["steps"]
    tab = show(trace)
    hint = tab.inner_text("#sectors")
    assert hint.startswith("Point at an element")
    for array, name in ((a, "a"), (b, "b")):
        number = next(i for i, step in enumerate(steps) if step.get("array") == name)
        step = steps[number]
        seek(tab, number)
        assert classes(tab, ".grid .cell", "asked") == []
        point(tab, f".of-{name} .grid .cell", step["at"][5])
        elements, sectors = asked(step, array, 0)
        cells = f".of-{name} .grid .cell"
        assert classes(tab, cells, "asked") == sorted(elements)
        assert classes(tab, cells, "sector") == within(array, sectors)
        said = tab.inner_text("#sectors")
        assert counted(said) == (
            0, step["line"], 16, 16, 64, step["sectors"], 32 * step["sectors"]
        )  # fmt: skip
        assert said.startswith(f"Warp 0, line {step['line']}: 16 threads ask for 16 elements of")
        # Another element, which nobody asks for in this step.
        point(tab, cells, 143)
        assert tab.inner_text("#sectors") == hint
        assert classes(tab, ".grid .cell", "sector") == []


VECTORS = """
extern "C" __global__ void vectors(
    int m, int n, int k, float alpha, const float* a, int lda, const float* b, int ldb,
    float beta, float* c, int ldc)
{
    unsigned t = threadIdx.y * TILE + threadIdx.x;
    if (t >= 16) return;
    float4 four = ((const float4*)a)[t];
    float2 two = *(const float2*)(b + 4 * t);
    float before = atomicAdd(c + t / 3, four.x + four.w + two.y);
    c[16 + 3 * t] = before + four.y + four.z + two.x;
}
"""


@pytest.mark.parametrize(
    ("name", "size", "tile", "more"),
    [
        ("tiled", 12, 4, {"beta": 1.0}), ("tiled", 7, 4, {}), ("tiled", 7, 4, {"dtype": "float64"}),
        ("coalesced", 8, None, {}), ("naive", 33, 32, {}), ("single_thread", 3, None, {}),
        ("single_block", 9, None, {}), ("tiled_branchless", 3, 2, {}),
    ],
)  # fmt: skip
def test_sectors_add_up(
    show: Open, name: str, size: int, tile: int | None, more: dict[str, Any]
) -> None:
    trace = recorded(name, size, tile, **more)
    tab = show(trace)
    arrays = {array["name"]: array for array in trace["arrays"]}
    lines = [place + 1 for place in classes(tab, "#source li", "asks")]
    several = 0
    for block, recording in enumerate(trace["blocks"]):
        tab.select_option("#block", str(block))
        steps = recording["steps"]
        accesses = [i for i, step in enumerate(steps) if step.get("space") == "global"]
        assert {steps[i]["line"] for i in accesses} == set(lines)
        for i in accesses[:: max(1, len(accesses) // 12)]:
            step = steps[i]
            warps = sorted(
                {t // 32 for first, n in step["threads"] for t in range(first, first + n)}
            )
            costs = [len(asked(step, arrays[step["array"]], warp)[1]) for warp in warps]
            assert sum(costs) == step["sectors"]
            seek(tab, i)
            point(tab, f"#source li:nth-child({step['line']})")
            said = tab.inner_text("#sectors")
            warp, line, *_, sectors, _ = counted(said)
            assert (warp, line, sectors) == (warps[0], step["line"], costs[0])
            assert "The run counted" not in said
            if len(warps) == 1:
                assert sectors == step["sectors"]
            else:
                several += 1
                all_of_them = f"{step['sectors']:,} sector{'s' if step['sectors'] > 1 else ''}"
                assert said.endswith(f"The step's {len(warps)} warps: {all_of_them}.")
    assert bool(several) == (name in ("coalesced", "naive", "single_block"))


def test_sectors_of_another_warp(show: Open) -> None:
    """A row of A is a warp's own: each element tells of the warp that asks for it."""
    trace = recorded("coalesced", 8, None)
    step, number = next(
        (step, i) for i, step in enumerate(trace["blocks"][0]["steps"]) if step.get("array") == "a"
    )
    tab = show(trace)
    seek(tab, number)
    for warp in (0, 3, 7):
        point(tab, ".of-a .grid .cell", step["at"][8 * warp])
        assert tab.inner_text("#sectors").startswith(
            f"Warp {warp}, line {step['line']}: 8 threads ask for 1 element of A (4 bytes) in "
            "1 sector (32 bytes): 12.5 % used."
        )
        assert classes(tab, ".of-a .grid .cell", "asked") == [step["at"][8 * warp]]


def test_sectors_of_vectors_and_atomics(show: Open) -> None:
    trace = recorded(Kernel(VECTORS, "vectors"), 8, 8, beta=1.0)
    arrays = {array["name"]: array for array in trace["arrays"]}
    tab = show(trace)
    seen = {}
    for i, step in enumerate(trace["blocks"][0]["steps"]):
        if step.get("space") != "global":
            continue
        seek(tab, i)
        point(tab, f"#source li:nth-child({step['line']})")
        _, line, threads, elements, _, sectors, _ = counted(tab.inner_text("#sectors"))
        assert (line, threads, sectors) == (step["line"], 16, step["sectors"])
        name = f".of-{step['array']} .grid .cell"
        of_warp, lie_in = asked(step, arrays[step["array"]], 0)
        assert elements == len(of_warp)
        assert classes(tab, name, "asked") == sorted(of_warp)
        assert classes(tab, name, "sector") == within(arrays[step["array"]], lie_in)
        seen[step["kind"], step["width"]] = sectors
    # 16 loads of 16 bytes; of 8, every other; up to three threads update one element, in turns.
    assert seen == {("load", 16): 8, ("load", 8): 8, ("atomic", 4): 3, ("store", 4): 6}


def test_sectors_by_where_memory_is(show: Open) -> None:
    """Rows that are padded, and an array that begins in the middle of a sector."""
    size, leading = 6, 7
    trace = sample(size, 2)
    array = trace["arrays"][0]
    array |= {"leading": leading, "address": 4096 + 12}
    step = trace["blocks"][0]["steps"][0]
    # Two threads, a vector each: of the first row's end, and of the second's middle.
    step |= {"threads": [[0, 2]], "at": [4, leading + 2], "width": 8,
             "values": [[1.0, 2.0], [3.0, 4.0]]}  # fmt: skip
    elements, sectors = asked(step, array, 0)
    step["sectors"] = len(sectors)
    assert elements == {4, 5, 9, 10}
    assert sectors == {128, 129}
    tab = show(trace)
    tab.keyboard.press("Home")
    point(tab, ".of-a .grid .cell", 5)
    assert classes(tab, ".of-a .grid .cell", "asked") == [4, 5, size + 2, size + 3]
    cells = within(array, sectors)
    assert cells == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert classes(tab, ".of-a .grid .cell", "sector") == cells
    # A sector's first element and its last are edges of its box: 5 of row 0 begins the second.
    assert classes(tab, ".of-a .grid .cell", "from") == [5]
    assert classes(tab, ".of-a .grid .cell", "to") == [4, 11]
    assert "ask for 4 elements of A (16 bytes) in 2 sectors (64 bytes): 25 %" in tab.inner_text(
        "#sectors"
    )


def test_sectors_of_a_line_are_of_its_last_access(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    line = steps[0]["line"]
    first, second = (i for i, step in enumerate(steps) if step.get("array") == "a")
    tab = show(trace)
    for place, access in ((first, first), (second - 1, first), (second, second), (18, second)):
        seek(tab, place)
        point(tab, f"#source li:nth-child({line})")
        assert classes(tab, ".of-a .grid .cell", "asked") == sorted(steps[access]["at"])
    # While it is pointed at, it follows.
    tab.keyboard.press("Home")
    assert classes(tab, ".of-a .grid .cell", "asked") == sorted(steps[first]["at"])
    # Of a line that comes later, its first.
    store = next(step for step in steps if step.get("array") == "c")
    point(tab, f"#source li:nth-child({store['line']})")
    assert classes(tab, ".of-c .grid .cell", "asked") == sorted(store["at"])
    assert "4 threads store 4 elements of C" in tab.inner_text("#sectors")


# ---- elements, and keys ----


def tab_to(tab: Any, selector: str) -> None:
    inside = f"document.activeElement.matches('{selector}')"
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate(inside):
            return
    raise AssertionError(f"Tab does not come to {selector}")


def test_an_element_tells_who_loaded_it(show: Open) -> None:
    trace = recorded("naive", 4, 4)
    steps = trace["blocks"][0]["steps"]
    a = trace["arrays"][0]
    loads = [i for i, step in enumerate(steps) if step.get("array") == "a" and 6 in step["at"]]
    tab = show(trace)
    seek(tab, loads[0])
    point(tab, ".of-a .grid .cell", 6)
    threads = "threads 1, 5, 9, 13"  # rows lie along x: thread t is of row t % 4
    assert tab.inner_text("#tip") == f"a[1][2] = {a['values'][6]:g}, read now by {threads}"
    tab.locator(".of-a .grid .cell").nth(6).click()
    assert tab.inner_text("#h-details") == "a[1][2]"
    story = tab.inner_text("#story")
    assert f"It holds {a['values'][6]:g}." in story
    line = steps[loads[0]]["line"]
    assert f"Loaded 4 times by this block up to here, by {threads}, at line {line}." in story
    assert classes(tab, ".of-a .grid .cell", "picked") == [6]
    tab.keyboard.press("Home")
    assert f"Not reached yet: first at step {loads[0] + 1}." in tab.inner_text("#story")
    tab.locator(".of-c .grid .cell").nth(6).click()
    assert "Nobody has stored it yet." in tab.inner_text("#story")
    tab.keyboard.press("End")
    (store,) = (step for step in steps if step.get("array") == "c")
    value = store["values"][store["at"].index(6)]
    assert f"It holds {value:g}." in tab.inner_text("#story")
    assert "Stored 1 time by this block up to here, by thread 9" in tab.inner_text("#story")
    tab.click("#story .events button")
    assert position(tab) == steps.index(store)


def test_the_keyboard_reads_a_matrix(show: Open) -> None:
    trace = sample()
    tab = show(trace)
    tab.keyboard.press("Home")
    tab_to(tab, ".of-b .grid .cell")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    told = tab.evaluate("document.activeElement.getAttribute('aria-label')")
    assert told == tab.inner_text("#tip") == f"b[1][2] = {trace['arrays'][1]['values'][6]:g}"
    tab.keyboard.press("Enter")
    assert tab.inner_text("#h-details") == "b[1][2]"
    # The sectors of what has the focus: b[0][1] is loaded in step 3.
    for key in ("ArrowUp", "ArrowLeft", ".", "."):
        tab.keyboard.press(key)
    assert position(tab) == 2
    assert "ask for 4 elements of B" in tab.inner_text("#sectors")
    assert "read now by thread 1" in tab.inner_text("#tip")


def test_the_keyboard_comes_to_the_lines_that_load(show: Open) -> None:
    trace = sample()
    steps = trace["blocks"][0]["steps"]
    tab = show(trace)
    tab_to(tab, "#source li")
    assert "4 elements of A" in tab.inner_text("#sectors")
    tab.keyboard.press("ArrowDown")
    assert "4 elements of B" in tab.inner_text("#sectors")
    assert classes(tab, ".of-b .grid .cell", "asked") == sorted(steps[2]["at"])
    tab.keyboard.press("ArrowDown")
    assert "4 elements of C" in tab.inner_text("#sectors")
    tab.keyboard.press("ArrowUp")
    assert "4 elements of B" in tab.inner_text("#sectors")
    tab.keyboard.press("Escape")
    assert tab.inner_text("#sectors").startswith("Point at an element")


def test_tab_comes_to_everything_and_is_seen(show: Open) -> None:
    tab = show(sample())
    reached: list[str] = []
    for _ in range(60):
        tab.keyboard.press("Tab")
        name, outline, style = tab.evaluate(
            """() => {
                const one = document.activeElement;
                const { outlineWidth, outlineStyle } = getComputedStyle(one);
                const place = one.id || (one.closest('[id]') || one).id;
                return [place, parseFloat(outlineWidth), outlineStyle];
            }"""
        )
        if name in reached[:1] and len(reached) > 20:
            break
        if name:
            assert (outline >= 2, style) == (True, "solid"), name
            reached.append(name)
    wanted = tab.evaluate(
        """() => [...document.querySelectorAll('button, select, input, .grid[role=grid]')]
            .filter(one => one.checkVisibility() && !one.closest('dialog'))
            .map(one => one.id || one.closest('[id]').id)"""
    )
    assert {"arrays", "shared", "threads", "block", "slider", "speed", "help"} <= set(wanted)
    assert set(wanted) <= set(reached)
    assert {"source", "story"} <= set(reached)


def test_the_keys_are_told(show: Open) -> None:
    tab = show(sample())
    for by_key in (True, False):
        if by_key:
            tab.keyboard.press("?")
        else:
            tab.click("#help")
        told = tab.inner_text("#keys")
        for key in ("Space", "Shift", "Home", "End", "Tab", "Enter", "Esc", "[", "]", ",", "."):
            assert key in told
        before = position(tab)
        tab.keyboard.press("ArrowRight")  # the page behind keeps still
        assert position(tab) == before
        tab.keyboard.press("Escape")
        assert not tab.is_visible("#keys")
    tab.keyboard.press("ArrowRight")
    assert position(tab) == before + 1


# ---- the page as a file ----


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


def test_a_page_that_is_damaged(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "player.html"
    whole = page(sample())
    packed = re.search(r'id="trace">(.*)</script>', whole)
    assert packed is not None
    file.write_text(whole.replace(packed[1], packed[1][:400]), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_function("document.getElementById('wait').textContent.includes('read')")
    assert "The recording in this page can't be read" in tab.inner_text("#wait")
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


# ---- what is recorded ----


def test_a_cut_recording_says_so(show: Open) -> None:
    trace = recorded("tiled", 12, 4, most=100)
    assert all(block["cut"] for block in trace["blocks"])
    tab = show(trace)
    assert "cut short" in tab.inner_text("#block")
    tab.keyboard.press("End")
    assert position(tab) == len(trace["blocks"][0]["steps"]) - 1
    why = tab.inner_text("#why")
    assert "The recording was cut here" in why
    assert "watch a smaller product" in why
    # How many loads there would be with no tiling, it does not know.
    assert not tab.is_visible("#untiled")
    tab.keyboard.press("ArrowLeft")
    assert "cut" not in tab.inner_text("#why")
    assert not show(recorded("tiled", 4, 2)).inner_text("#why").startswith("The recording")


def test_the_classic_example(show: Open) -> None:
    """4 x 4 with tiles of 2: what the block's threads load in each phase, as textbooks have it."""
    trace = recorded("tiled", 4, 2)
    block = trace["blocks"][0]
    assert block["index"] == [0, 0, 0]
    found = {
        (step["phase"], step["array"]): [divmod(at, 4) for at in step["at"]]
        for step in block["steps"] if (step["kind"], step.get("space")) == ("load", "global")
    }  # fmt: skip
    # Of threads (0,0), (0,1), (1,0), (1,1), as (row, column).
    assert found == {
        (0, "a"): [(0, 0), (0, 1), (1, 0), (1, 1)], (0, "b"): [(0, 0), (0, 1), (1, 0), (1, 1)],
        (1, "a"): [(0, 2), (0, 3), (1, 2), (1, 3)], (1, "b"): [(2, 0), (2, 1), (3, 0), (3, 1)],
    }  # fmt: skip
    tab = show(trace)
    assert tab.inner_text("#phases").split("\n") == ["phase 1", "phase 2"]
    tab.locator(THREAD).nth(0).click()
    first, second = re.split(r"Phase \d", tab.inner_text("#story"))[1:3]
    assert "reads a[0][0]" in first
    assert "reads b[0][0]" in first
    assert "reads a[0][2]" in second
    assert "reads b[2][0]" in second
    for phase in (0, 1):
        seek(tab, max(i for i, step in enumerate(block["steps"]) if step["phase"] == phase))
        for name in "ab":
            tile = sorted(4 * row + column for row, column in found[phase, name])
            assert classes(tab, f".of-{name} .grid .cell", "tile") == tile


@pytest.mark.parametrize("name", ["tiled", "tiled_branchless"])
def test_threads_past_the_edge(show: Open, name: str) -> None:
    """3 x 3 with tiles of 2: of the corner's block, thread 0 alone has an element of C."""
    tab = show(recorded(name, 3, 2))
    tab.select_option("#block", "1")
    tab.locator(THREAD).nth(0).click()
    assert "It stores c[2][2]." in tab.inner_text("#story")
    for thread in (1, 2, 3):
        tab.locator(THREAD).nth(thread).click()
        assert "It stores no element in this recording." in tab.inner_text("#story")
    tab.keyboard.press("End")
    assert classes(tab, ".of-c .grid .cell", "stored") == [8]
    assert classes(tab, ".of-c .grid .cell", "tile") == [8]
