"""The player's page, in a real browser: what it shows against what the trace says."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise.ladder import rung
from tilewise.lens.player import page

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
    assert text.count("</script>") == 2
    assert "<b>" not in text.split("<body>")[0]
    (data,) = re.findall(r'<script type="application/json" id="trace">(.*)</script>', text)
    assert json.loads(data) == trace


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


def recorded(name: str, size: int, tile: int | None) -> dict[str, Any]:
    if importlib.util.find_spec("tilewise.lens.trace") is None:
        pytest.skip("there is no recorder")
    from tilewise.lens.trace import record

    found: dict[str, Any] = record(name, size, size, size, tile=tile).to_dict()
    return found


def test_size_of_a_page() -> None:
    assert len(page(recorded("tiled", 12, 4)).encode()) < 2_000_000


def test_sixty_steps_a_second(show: Open) -> None:
    tab = show(recorded("tiled", 16, 8))
    # Each step drawn by itself, with its layout, forward and back.
    drawn = tab.evaluate(
        """() => {
            const button = id => document.getElementById(id);
            const before = performance.now();
            let steps = 0;
            while (performance.now() - before < 1000) {
                const way = Math.floor(steps / 50) % 2 ? 'back' : 'forward';
                button(way).click();
                document.body.getBoundingClientRect();
                document.getElementById('threads').offsetHeight;
                steps += 1;
            }
            return steps;
        }"""
    )
    assert drawn >= 60
    # And played, in real time.
    tab.keyboard.press("Home")
    tab.select_option("#speed", "240")
    played = tab.evaluate(
        """() => new Promise(done => {
            let steps = 0;
            let last = 0;
            const before = performance.now();
            document.getElementById('play').click();
            const watch = () => {
                const now = Number(document.body.dataset.step);
                steps += now - last;
                last = now;
                const seconds = (performance.now() - before) / 1000;
                const button = document.getElementById('play');
                if (seconds >= 1 || button.getAttribute('aria-label') === 'Play') {
                    done(steps / seconds);
                } else {
                    requestAnimationFrame(watch);
                }
            };
            requestAnimationFrame(watch);
        })"""
    )
    assert played >= 60


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
    assert "uses none" in tab.inner_text("#shared")
    assert not tab.is_visible("#banks")
    tab.keyboard.press("End")
    assert tab.inner_text("#loads") == tab.inner_text("#untiled") == f"{3 * 3 * 3 * 2} values"
