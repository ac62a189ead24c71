"""Make traces, and open their player in a real browser, for its tests."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise.kernel import Kernel
from tilewise.ladder.rungs import rung
from tilewise.ladder.watched import sizes
from tilewise.lens.player import page
from tilewise.lens.trace import record

SIZE, TILE = 4, 2
THREADS = TILE * TILE


def line_of(source: str, part: str) -> int:
    """Return the number of the only line that contains a text, counted from 1."""
    (found,) = (i for i, line in enumerate(source.splitlines(), 1) if part in line)
    return found


def sample(size: int = SIZE, tile: int = TILE) -> dict[str, Any]:
    """Return a trace of ``tiled`` in the recorder's form, of a size x size x size product."""
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


Open = Callable[..., Any]
SHARED = "#shared .grid .cell"
THREAD = "#threads .grid .cell"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Yield a browser; the test is skipped if Playwright or a browser is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with api.sync_playwright() as play:
        try:
            # With no path, the browser that playwright installed. No sandbox: in a container, as
            # root, chromium starts in no other way.
            found = play.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"], timeout=300_000
            )
        except api.Error:
            if chromium is not None:
                raise
            pytest.skip("there is no browser: install chromium, or run playwright install chromium")
        yield found
        found.close()


@pytest.fixture(scope="session")
def shared_tab(browser: Any) -> Any:
    """Return a tab that tests without options of their own share: each new tab is a process."""
    return browser.new_page()


@pytest.fixture
def show(browser: Any, shared_tab: Any, tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens the player of a trace, and assert that no error occurred in it.

    A player replaces the one that the test has opened before.
    """
    said: list[str] = []
    opened: list[Any] = []
    heard: dict[str, Callable[[Any], None]] = {
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
        "request": lambda request: said.extend(
            [request.url] if request.url.startswith("http") else []
        ),
    }

    def show(
        trace: dict[str, Any], width: int = 1280, height: int = 800, at: str = "play", **more: Any
    ) -> Any:
        """Open for free play; at the opening if ``at`` is empty, or at a stop, as ``stop-3``."""
        file = tmp_path / "player.html"
        file.write_text(page(trace), encoding="utf-8")
        tab = browser.new_page(**more) if more else shared_tab
        tab.set_viewport_size({"width": width, "height": height})
        tab.set_default_timeout(10_000)
        if tab not in opened:
            opened.append(tab)
            for event, hear in heard.items():
                tab.on(event, hear)
        tab.goto("about:blank")  # or another place in the same page would not load it anew
        tab.goto(file.as_uri() + (f"#{at}" if at else ""))
        tab.wait_for_selector("body[data-shown]")
        return tab

    yield show
    for tab in opened:
        if tab is not shared_tab:
            tab.close()
            continue
        tab.goto("about:blank")
        for event, hear in heard.items():
            tab.remove_listener(event, hear)
    assert not said


def position(tab: Any) -> int:
    """Return the step that the player shows."""
    return int(tab.get_attribute("body", "data-step"))


def seek(tab: Any, step: int) -> None:
    """Move the slider to a step."""
    tab.evaluate(
        "to => { const slider = document.getElementById('slider'); slider.value = to;"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        step,
    )
    assert position(tab) == step


def classes(tab: Any, selector: str, name: str) -> list[int]:
    """Return the places of the elements of a selector that have a class."""
    found: list[int] = tab.eval_on_selector_all(
        selector,
        "(cells, name) => cells.flatMap((cell, i) => cell.classList.contains(name) ? [i] : [])",
        name,
    )
    return found


def shared_after(steps: list[dict[str, Any]]) -> dict[int, float]:
    """Return what the stores leave in shared memory, by the offset in bytes."""
    return {
        at: value
        for step in steps
        if step["kind"] == "store" and step.get("space") == "shared"
        for at, value in zip(step["at"], step["values"], strict=True)
    }


def point(tab: Any, selector: str, nth: int = 0) -> None:
    """Move the pointer over an element."""
    tab.locator(selector).nth(nth).dispatch_event("pointerover")


def asked(step: dict[str, Any], array: dict[str, Any], warp: int) -> tuple[set[int], set[int]]:
    """Return the elements that a warp requests in a step, and the 32-byte sectors they lie in."""
    element = np.dtype(array["dtype"]).itemsize
    threads = [t for first, count in step["threads"] for t in range(first, first + count)]
    elements = {
        at + i
        for thread, at in zip(threads, step["at"], strict=True) if thread // 32 == warp
        for i in range(step["width"] // element)
    }  # fmt: skip
    return elements, {(array.get("address", 0) + at * element) // 32 for at in elements}


def within(array: dict[str, Any], sectors: set[int]) -> list[int]:
    """Return the cells of a matrix, row by row, whose elements lie in sectors."""
    element = np.dtype(array["dtype"]).itemsize
    return [
        row * array["columns"] + column
        for row in range(array["rows"]) for column in range(array["columns"])
        if (array.get("address", 0) + (row * array["leading"] + column) * element) // 32 in sectors
    ]  # fmt: skip


def recorded(name: str | Kernel, size: int, tile: int | None, **more: Any) -> dict[str, Any]:
    """Record the trace of a kernel, of a size x size x size product."""
    found: dict[str, Any] = record(name, size, size, size, tile=tile, **more).to_dict()
    return found


@cache
def of_rung(name: str) -> dict[str, Any]:
    """Return the trace of a rung at the sizes at which it is watched; it must not be changed."""
    at = sizes(rung(name))
    found: dict[str, Any] = record(name, at.m, at.n, at.k, tile=at.tile).to_dict()
    return found


STILL = {"reduced_motion": "reduce"}


def steps_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a trace's first block."""
    found: list[dict[str, Any]] = trace["blocks"][0]["steps"]
    return found


def until(tab: Any, expression: str) -> None:
    """Wait up to 10 s until an expression is true; the page's policy forbids wait_for_function."""
    end = time.monotonic() + 10
    while not tab.evaluate(expression):
        assert time.monotonic() < end, expression
        tab.wait_for_timeout(30)
