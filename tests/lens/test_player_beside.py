"""Two kernels on one page, in a real browser: the same clock, and costs beside each other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import RunWatch
from player import classes, of_rung, recorded
from reference import thorough

from tilewise.kernel import Kernel
from tilewise.ladder.rungs import rung
from tilewise.ladder.watched import sizes_of_two
from tilewise.lens.costs import COSTS, costs, fair, phase_ends, together
from tilewise.lens.player import page_of_two
from tilewise.lens.watch import watch

Show = Callable[..., Any]
KILOBYTES = 100


@cache
def pair() -> tuple[dict[str, Any], dict[str, Any]]:
    return recorded("naive", 12, 4), recorded("tiled", 12, 4)


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Any:
    """Opens two traces; at the end, nothing may have gone wrong, or asked the network."""
    said: list[str] = []
    tabs = []

    def open_(one: Any, other: Any, width: int = 1280, height: int = 800, **more: Any) -> Any:
        file = tmp_path / "two.html"
        file.write_text(page_of_two(one, other), encoding="utf-8")
        tab = browser.new_page(viewport={"width": width, "height": height}, **more)
        tabs.append(tab)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda x: said.extend([x.url] if x.url.startswith("http") else []))
        tab.goto(file.as_uri())
        tab.wait_for_selector("body[data-step]")
        return tab

    yield open_
    for tab in tabs:
        tab.close()
    assert not said


def ticks_of(one: dict[str, Any], other: dict[str, Any]) -> list[list[int]]:
    here, there = costs(one, 0), costs(other, 0)
    return together(here.work, there.work, one["blocks"][0]["steps"], other["blocks"][0]["steps"])


def at(tab: Any) -> int:
    return int(tab.get_attribute("body", "data-step"))


def seek(tab: Any, tick: int) -> None:
    tab.evaluate(
        "to => { const slider = document.getElementById('slider'); slider.value = to;"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        tick,
    )
    assert at(tab) == tick


def says(tab: Any) -> list[str]:
    found: list[str] = tab.locator(".pane > .say").all_inner_texts()
    return found


def test_both_stand_where_the_clock_says(show: Show) -> None:
    one, other = pair()
    ticks = ticks_of(one, other)
    tab = show(one, other)
    steps = [trace["blocks"][0]["steps"] for trace in (one, other)]
    for tick in (0, 7, len(ticks) // 2, len(ticks) - 1):
        seek(tab, tick)
        assert says(tab) == [each[i]["say"] for each, i in zip(steps, ticks[tick], strict=True)]
    tab.keyboard.press("End")
    assert at(tab) == len(ticks) - 1
    tab.keyboard.press("ArrowLeft")
    assert at(tab) == len(ticks) - 2
    # Both have all of C, and its values are the same.
    tab.keyboard.press("End")
    for side in (0, 1):
        assert len(classes(tab, f"#pane{side} .of-c .cell", "stored")) == 16


def table(tab: Any) -> dict[str, list[str]]:
    rows: list[list[str]] = tab.eval_on_selector_all(
        "#costs-table tbody tr", "all => all.map(x => [...x.children].map(y => y.textContent))"
    )
    return {name: cells for name, *cells in rows}


def test_costs_add_up_beside_each_other(show: Show) -> None:
    """16 elements each; at the ends of the tiled kernel's phases, 4 times as many values."""
    one, other = pair()
    here, there = costs(one, 0), costs(other, 0)
    ticks = ticks_of(one, other)
    tab = show(one, other)
    for tick in (5, 20, len(ticks) - 1):
        seek(tab, tick)
        cells = table(tab)["values loaded"]
        for text, found, step in zip(cells, (here, there), ticks[tick], strict=False):
            assert float(text) == pytest.approx(found.at("loads", step) / 16, rel=0.005)
    marks = fair(here, there, *(phase_ends(t["blocks"][0]["steps"]) for t in (one, other)))
    tab.keyboard.press("Home")
    assert table(tab)["values loaded"][2] == ""
    assert "before, not all" in tab.inner_text("#costs-note")
    for each in marks:
        tab.keyboard.press("]")
        assert all(i >= j for i, j in zip(ticks[at(tab)], each["steps"], strict=True))
        assert table(tab)["values loaded"][2] == "4 × as many"  # noqa: RUF001
    assert "Compared at the end: naive to tiled" in tab.inner_text("#costs-note")
    tab.keyboard.press("[")
    assert "33.3 %" not in tab.inner_text("#costs-note")
    assert "66.7 % of their work" in tab.inner_text("#costs-note")
    assert len(table(tab)) == len(COSTS)


def test_the_line_that_is_drawn_is_chosen(show: Show) -> None:
    one, other = recorded("tiled", 16, 8), recorded("tiled_conflicts", 16, 8)
    tab = show(one, other)
    # The cost in which they differ.
    assert tab.input_value("#cost") == "wavefronts"
    lines = "all => all.map(x => x.getAttribute('points'))"
    first, second = tab.eval_on_selector_all("#costs-chart .line", lines)
    assert first != second
    tab.select_option("#cost", "loads")
    first, second = tab.eval_on_selector_all("#costs-chart .line", lines)
    assert first == second
    # Told apart by more than colour.
    dashes = tab.eval_on_selector_all(
        "#costs-chart .line", "all => all.map(x => getComputedStyle(x).strokeDasharray)"
    )
    assert dashes[0] != dashes[1]
    # Both have their turns, those of the one fewer.
    seek(tab, at(tab))
    assert tab.locator(".pane .turns .beats").count() == 2


def test_the_keyboard_reaches_all(show: Show) -> None:
    tab = show(*pair())
    seen = set()
    for _ in range(30):
        tab.keyboard.press("Tab")
        seen.add(tab.evaluate("(document.activeElement.closest('[id]') || document.body).id"))
    assert {"pane0", "pane1", "cost", "block", "slider", "play", "speed"} <= seen
    tab.focus("#pane1 .of-a .cell >> nth=0")
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#tip").startswith("a[0][1] = ")
    tab.keyboard.press("Escape")
    tab.keyboard.press("?")
    assert tab.is_visible("#keys")


def test_it_plays_to_the_end(show: Show) -> None:
    one, other = pair()
    last = len(ticks_of(one, other)) - 1
    tab = show(one, other, reduced_motion="reduce")
    tab.select_option("#speed", "60")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("Home")
    tab.keyboard.press("Space")
    tab.wait_for_selector(f"body[data-step='{last}']")
    assert tab.get_attribute("#play", "aria-label") == "Play"


@pytest.mark.parametrize("width", [360, 390, pytest.param(800, marks=thorough), 1280])
def test_it_fits_and_keeps_still(show: Show, width: int) -> None:
    tab = show(*pair(), width, 844, color_scheme="dark")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    panes = [tab.locator(f"#pane{side} > .arrays").bounding_box() for side in (0, 1)]
    assert panes[0]["y"] == panes[1]["y"]
    assert panes[0]["x"] + panes[0]["width"] <= panes[1]["x"]
    places = """() => [...document.querySelectorAll('.panel, #controls')].map(one => {
        const box = one.getBoundingClientRect(); return [box.top, box.left, box.height]; })"""
    before = tab.evaluate(places)
    for _ in range(15):
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate(places) == before


@thorough
@pytest.mark.parametrize(
    ("one", "other"),
    [("multistage", "persistent"), ("tiled", "tensor_core"), ("naive", "ldmatrix")],
)
def test_any_two_rungs(show: Show, one: str, other: str) -> None:
    tab = show(of_rung(one), of_rung(other), 390, 844)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    for key in ("Home", "]", "ArrowRight", "End", "["):
        tab.keyboard.press(key)
    if tab.locator("#block option").count() > 1:
        tab.select_option("#block", "1")


SCALES = """
extern "C" __global__ void rows(int n, const float* a, float* b) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) b[i] = 2 * a[i];
}
extern "C" __global__ void strided(int n, const float* a, float* b) {
    int i = threadIdx.x * gridDim.x + blockIdx.x;
    if (i < n) b[i] = 2 * a[i];
}
"""


def test_launches_of_any_kernel(show: Show) -> None:
    """Watched from Python: kernels that are no products, by what a block of them costs."""
    a = np.arange(256, dtype=np.float32)
    rows, strided = (
        Kernel(SCALES, name).watch(8, 32, (256, a, np.zeros_like(a)))
        for name in ("rows", "strided")
    )
    found = strided.beside(rows)
    assert found.correct
    assert "strided beside rows" in repr(found)
    assert "<iframe srcdoc=" in found._repr_html_()
    tab = show(strided.trace.to_dict(), rows.trace.to_dict())
    tab.keyboard.press("End")
    assert table(tab)["sectors read"] == ["32", "4", "8 × as many"]  # noqa: RUF001
    assert tab.inner_text("#costs-table thead th >> nth=0") == "the block"
    assert "operations" in tab.inner_text("#clock")
    with pytest.raises(TypeError, match="that takes another one"):
        strided.beside("rows")  # type: ignore[arg-type]


# ---- sizes, and the command line ----


def test_one_product_and_one_tile() -> None:
    one, other = sizes_of_two(rung("naive"), rung("tiled"))
    assert one == other
    assert one.tile == 16
    one, other = sizes_of_two(rung("tiled"), rung("warp_tile"))
    assert (one.m, one.n, one.k) == (other.m, other.n, other.k)
    assert (one.tile, other.tile) == (8, 64)
    assert one.m % 64 == one.m % 8 == 0
    one, other = sizes_of_two(rung("naive"), rung("tiled"), 20, 30, tile=4)
    assert (one.m, one.n, one.tile, other.tile) == (20, 30, 4, 4)
    with pytest.raises(ValueError, match="tile is 5"):
        sizes_of_two(rung("warp_tile"), rung("vectorized"), tile=5)


MINE = """
extern "C" __global__ void mine(int m, int n, int k, real alpha, const real* a, int lda,
                                const real* b, int ldb, real beta, real* c, int ldc)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int i = 0; i < k - 1; ++i) sum += a[row * lda + i] * b[i * ldb + col];
    c[row * ldc + col] = alpha * sum;
}
"""


def test_a_page_of_two(run_watch: RunWatch, tmp_path: Path, browser: Any) -> None:
    (tmp_path / "own.cu").write_text(MINE)
    # A wrong kernel beside the reference: the page is written, and the exit code says it.
    code, out, _ = run_watch("own.cu:mine", "--beside", "tiled")
    assert code == 1
    assert "mine: C = A·B, m = 16, n = 16, k = 24, float32, tile 8\ncheck  WRONG" in out
    assert "tiled: C = A·B, m = 16, n = 16, k = 24, float32, tile 8\ncheck  right" in out
    file = tmp_path / "own_mine_beside_tiled.html"
    text = file.read_text()
    assert "<title>own.cu:mine beside tiled - tilewise</title>" in text
    assert not re.search(r"\{\{\w+\}\}|<!-- body", text)
    tab = browser.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_selector("body[data-step]")
    wrong, right = tab.locator(".pane > .told").all_inner_texts()
    assert wrong.startswith("WRONG against float64: max error 0.2")
    assert right.startswith("right against float64")
    tab.close()
    code, out, _ = run_watch("coalesced", "--beside", "own.cu:mine", "-D", "UNUSED=1", "--json")
    document = json.loads(out)
    assert (code, document["correct"], document["beside"]["correct"]) == (1, True, False)
    assert document["beside"]["kernel"] == "mine"
    assert document["tile"] == document["beside"]["tile"]


def test_a_launch_beside_another(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(SCALES)
    words = ("--grid", 8, "--block", 32, "--args", "n=256", "a=arange:n", "b=zeros:n")
    code, out, err = run_watch("own.cu:rows", "--beside", "own.cu:strided", *words)
    assert (code, err) == (0, "")
    assert out.startswith("own_rows_beside_own_strided.html: written; open")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiled", "--beside", "none"], "no kernel called 'none'"),
        (["tiled", "--beside", "naive", "--trace", "t.json"], "leave out --beside"),
        (["tiled", "--beside", "there.cu:own"], "there is no file there.cu"),
        (["tiled", "--beside", "tensor_core", "--dtype", "float32"], "float32 is not supported"),
        (["tiled", "--beside", "naive", "-D", "X=1"], "-D is for FILE.cu:NAME"),
    ],
)
def test_bad_input(words: list[str], message: str, run_watch: RunWatch, tmp_path: Path) -> None:
    code, _, err = run_watch(*words)
    assert code == 2
    assert message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_a_page_of_two_is_small() -> None:
    """Of what is no trace."""
    one, other = (watch(name, 2, 2, 2, tile=2).trace.to_dict() for name in ("naive", "tiled"))
    assert len(page_of_two(one, other).encode()) <= KILOBYTES * 1000
    with pytest.raises(ValueError, match="format is"):
        page_of_two(one, {})
