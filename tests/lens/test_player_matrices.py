"""The player, in a real browser: fragments, pieces in the banks, stages and warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from player import Open, classes, of_rung, position, recorded, seek
from reference import thorough

from tilewise.kernel import Kernel
from tilewise.ladder.rungs import rung

TURNS, LINES = "#pieces .served .cell", "#pieces > .pieces .cell"
ACROSS = 9  # cells of a line: where it begins, and 8 pieces
RUNGS = ("tensor_core", "ldmatrix", "multistage", "specialized", "persistent")


def number_of(trace: dict[str, Any], kind: str, *, last: bool = False) -> int:
    steps = trace["blocks"][0]["steps"]
    found = [
        i for i, s in enumerate(steps)
        if s["kind"] == kind and (kind != "load" or ("layout" in s and s["space"] == "shared"))
    ]  # fmt: skip
    return found[-1] if last else found[0]


def texts(tab: Any, selector: str) -> list[str]:
    found: list[str] = tab.eval_on_selector_all(selector, "all => all.map(x => x.textContent)")
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """Rung 15 without its swizzle: a row of a tile after another."""
    source = rung("ldmatrix").path.read_text(encoding="utf-8")
    (line,) = (x for x in source.splitlines() if x.strip().startswith("return y * L"))
    source = source.replace(line, "    return y * L + x + 0 * (PIECES + SHARE);")
    sizes = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "WARP_M": 16, "WARP_N": 32}
    kernel = Kernel(source, "ldmatrix", defines=sizes)
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape).astype(np.float16) for shape in ((32, 64), (64, 64)))
    found = kernel.watch(1, 128, (32, 64, 64, 1.0, a, 64, b, 64, 0.0, np.zeros_like(a), 64))
    return found.trace.to_dict()


def test_a_swizzled_tile_is_read_without_conflicts(show: Open) -> None:
    trace = of_rung("ldmatrix")
    tab = show(trace)
    seek(tab, number_of(trace, "load"))
    rows = np.reshape(texts(tab, TURNS), (4, ACROSS))
    assert rows[:, 0].tolist() == ["0–7", "8–15", "16–23", "24–31"]  # noqa: RUF001
    assert (rows[:, 1:] == "1").all()
    assert "served at once. All 4 together: 4 wavefronts." in tab.inner_text("#pieces-note")
    # The first matrix's eight rows are in eight columns.
    lit = classes(tab, LINES, "read")
    assert sorted(place % ACROSS for place in lit) == list(range(1, ACROSS))
    labels = texts(tab, LINES)
    assert sorted(labels[place] for place in lit) == [f"A{row}:0" for row in range(8)]


def test_without_a_swizzle_rows_meet_in_banks(show: Open, plain: dict[str, Any]) -> None:
    tab = show(plain)
    steps = plain["blocks"][0]["steps"]
    number = plain["blocks"][0]["first"]
    # 64 columns of B: its rows have 128 bytes, and all begin in bank 0.
    assert steps[number]["conflicts"] == 4 * 4 * 7
    assert position(tab) == number
    rows = np.reshape(texts(tab, TURNS), (4, ACROSS))
    assert [sorted(row) for row in rows[:, 1:].tolist()] == [[""] * 7 + ["8"]] * 4
    crowded = classes(tab, LINES, "conflict")
    assert len(crowded) == 8
    (column,) = {place % ACROSS for place in crowded}
    labels = texts(tab, LINES)
    assert [labels[place] for place in crowded] == [f"b{row}:{column - 1}" for row in range(8)]
    assert "up to 8 different words in one bank: 8 turns" in tab.inner_text("#pieces-note")
    # The other matrices of the same instruction.
    tab.click(f"{TURNS} >> nth={2 * ACROSS}")
    other = {place % ACROSS for place in classes(tab, LINES, "conflict")}
    assert other == {column + 1}


def test_pieces_of_a_bulk_copy_and_of_wgmma(show: Open) -> None:
    trace = of_rung("specialized")
    tab = show(trace)
    seek(tab, number_of(trace, "copy"))
    lines = np.reshape(texts(tab, LINES), (-1, ACROSS))[:, 1:]
    assert lines[:8].tolist() == [[f"A{r}:{i ^ r}" for i in range(8)] for r in range(8)]
    assert not tab.is_visible("#pieces .served")
    seek(tab, number_of(trace, "matrix"))
    lit = classes(tab, LINES, "read")
    labels = texts(tab, LINES)
    assert [sorted((labels[i], labels[i + 1])) for i in lit[::2]] == [
        [f"A{row}:0", f"A{row}:1"] for row in range(16)
    ]
    tab.select_option("#pieces-of", "B")
    assert "pieces of B that the warpgroup multiplies" in tab.inner_text("#pieces-note")


def test_fragments_of_a_product(show: Open) -> None:
    trace = of_rung("ldmatrix")
    tab = show(trace)
    seek(tab, number_of(trace, "matrix"))
    assert tab.inner_text("#h-fragments").startswith("mma.m16n8k16")
    (layout,) = (each for each in trace["layouts"] if each["what"] == "mma.m16n8k16")
    for matrix in layout["matrices"]:
        cells = f"#fragments .held:not([hidden]) .of-{matrix['name'].lower()} .cell"
        lanes = np.zeros((matrix["rows"], matrix["columns"]), int)
        for lane, (row, column) in enumerate(matrix["lanes"]):
            for down, across in matrix["elements"]:
                lanes[row + down, column + across] = lane
        assert [int(text) for text in texts(tab, cells)] == lanes.ravel().tolist()
        tab.click(f"{cells} >> nth=5")
        (marked,) = {lanes.ravel()[place] for place in classes(tab, cells, "active")}
        assert marked == lanes[0, 5]
        assert len(classes(tab, cells, "active")) == len(matrix["elements"])
    assert f"Lane {marked} (marked) holds 4 elements of D" in tab.inner_text("#fragments")


def test_fragments_by_the_keyboard(show: Open) -> None:
    trace = of_rung("ldmatrix")
    tab = show(trace)
    seek(tab, number_of(trace, "matrix"))
    tab.focus("#fragments .held:not([hidden]) .of-a .cell")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')") == (
        "A[1][2]: lane 5, register 0, part 0"
    )
    tab.keyboard.press("Enter")
    assert "Lane 5 (marked)" in tab.inner_text("#fragments")
    tab.keyboard.press("Escape")
    tab.keyboard.press("ArrowRight")
    assert position(tab) == number_of(trace, "matrix") + 1


def test_a_threads_elements_follow_it(show: Open) -> None:
    trace = of_rung("specialized")
    tab = show(trace)
    seek(tab, number_of(trace, "matrix"))
    tab.locator("#threads .grid .cell").nth(128 + 32 + 7).dispatch_event("click")
    assert "Thread 39 of the warpgroup (marked) holds 128 elements" in tab.inner_text("#fragments")
    assert "rows 16–31" in tab.inner_text("#fragments h3")  # noqa: RUF001


def test_stages_over_time(show: Open) -> None:
    trace = of_rung("specialized")
    tab = show(trace)
    assert tab.locator("#stages .strip").count() == 4
    first = trace["blocks"][0]["stages"][0]
    for step, text in (
        (0, "empty"), (first["fills"][0]["begin"], "filled by warp 0 (fill 1 of 2)"),
        (first["fills"][0]["full"] + 1, "full, for warps 4–11 (fill 1 of 2)"),  # noqa: RUF001
        (first["fills"][0]["read"][0], "read by warps 4–11 (fill 1 of 2)"),  # noqa: RUF001
        (first["fills"][0]["read"][1] + 1, "empty: read by all who need it"),
        (first["fills"][1]["begin"], "filled by warp 0 (fill 2 of 2)"),
    ):  # fmt: skip
        seek(tab, step)
        assert tab.inner_text("#stages .strip >> nth=0 >> b") == text
    # What was painted there, in the middle of a fill that is full.
    middle = (first["fills"][0]["full"] + first["fills"][0]["read"][0]) / 2
    steps = trace["blocks"][0]["steps"]
    has_room = [s["kind"] not in ("other", "branch", "compute") for s in steps]
    middle = next(i for i, there in enumerate(has_room) if there and i >= middle)
    share = (sum(has_room[:middle]) + 0.5) / sum(has_room)
    painted = tab.evaluate(
        "share => { const one = document.querySelector('#stages canvas');"
        " const pen = one.getContext('2d');"
        " return [...pen.getImageData(one.width * share, one.height / 2, 1, 1).data]; }",
        share,
    )
    assert painted == [0x00, 0x9E, 0x73, 255]
    box = tab.locator("#stages .strip .track").first.bounding_box()
    tab.mouse.click(box["x"] + box["width"] * share, box["y"] + 3)
    assert position(tab) == middle


def test_producer_and_consumers_side_by_side(show: Open) -> None:
    trace = of_rung("specialized")
    tab = show(trace)
    steps = trace["blocks"][0]["steps"]
    labels = texts(tab, "#warps .strip span")
    assert labels == ["Warp 0", "Warps 1–3", "Warps 4, 8", "Warps 5–7, 9–11"]  # noqa: RUF001
    held = next(i for i, s in enumerate(steps) if s.get("sync", {}).get("passes") is False)
    released = next(i for i, s in enumerate(steps[held + 1 :], held + 1) if s["threads"][0][0] == 0)
    for step in (held, (held + released) // 2, released - 1):
        seek(tab, step)
        assert tab.inner_text("#warps .strip >> nth=0 >> b") == "waits at empty[0]"
    seek(tab, number_of(trace, "matrix"))
    assert tab.inner_text("#warps .strip >> nth=2 >> b") == "multiplies"


def test_kernels_of_single_words_have_none_of_it(show: Open) -> None:
    tab = show(recorded("tiled", 8, 4))
    for name in ("stages", "warps", "pieces", "fragments"):
        assert not tab.is_visible(f"#{name}-panel")


@thorough
@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window(show: Open, name: str, width: int) -> None:
    trace = of_rung(name)
    for scheme in ("light", "dark") if width == 390 else ("light",):
        tab = show(trace, width=width, color_scheme=scheme)
        for kind in ("load", "copy", "matrix", "sync"):
            if any(s["kind"] == kind and (kind != "load" or "layout" in s)
                   for s in trace["blocks"][0]["steps"]):  # fmt: skip
                seek(tab, number_of(trace, kind))
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
        for panel in ("pieces", "fragments"):
            assert tab.is_visible(f"#{panel}-panel")


def test_a_long_name_is_not_wider_than_a_phone(show: Open) -> None:
    trace = {**recorded("tiled", 8, 4), "title": f"{'kernels_of_' * 6}mine.cu:{'products' * 8}<16>"}
    for width in (390, 1280):
        tab = show(trace, width=width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
