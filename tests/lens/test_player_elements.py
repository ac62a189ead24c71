"""The player, in a real browser: what it tells of sectors and elements, and to the keyboard."""

from __future__ import annotations

import re
from typing import Any

import pytest
from player import (
    Open,
    asked,
    classes,
    point,
    position,
    recorded,
    sample,
    seek,
    within,
)
from reference import thorough

from tilewise.kernel import Kernel

pytestmark = thorough


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
    assert classes(tab, ".of-a .grid .cell", "begins") == [5]
    assert classes(tab, ".of-a .grid .cell", "ends") == [4, 11]
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
            .filter(one => one.checkVisibility({visibilityProperty: true}))
            .filter(one => !one.disabled && !one.closest('dialog'))
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
        keys = "Space Shift Home End Tab Enter Esc [ ] , . F"
        for key in keys.split():
            assert key in told
        before = position(tab)
        tab.keyboard.press("ArrowRight")  # the page behind keeps still
        assert position(tab) == before
        tab.keyboard.press("Escape")
        assert not tab.is_visible("#keys")
    tab.keyboard.press("ArrowRight")
    assert position(tab) == before + 1
