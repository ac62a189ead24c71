"""Pictures of a lesson agree with what the emulator counts, and say in words what they show."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise import notebook
from tilewise.lens.figures import WIDTH
from tilewise.notebook.pictures import turns_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib"
)
SHARED = r"""
extern "C" __global__ void read(const int* at, float* y)
{
    __shared__ float words[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) words[i] = i;
    __syncthreads();
    y[threadIdx.x] = words[at[threadIdx.x]];
}
"""
GLOBAL = r"""
extern "C" __global__ void load(const float* x, const int* at, float* y)
{
    y[threadIdx.x] = x[at[threadIdx.x]];
}
"""
READ, LOAD = tilewise.Kernel(SHARED, "read"), tilewise.Kernel(GLOBAL, "load")


@given(st.lists(st.integers(0, 1023), min_size=32, max_size=32))
def test_turns_are_the_wavefronts_that_the_emulator_counts(words: list[int]) -> None:
    turns = turns_of(words)
    at = np.array(words, np.int32)
    report = READ.launch(1, 32, (at, np.zeros(32, np.float32)), device="emulator")
    assert report.counters is not None
    assert max(map(len, turns)) == report.counters.shared_load_wavefronts
    assert sorted(lane for bank in turns for turn in bank for lane in turn) == list(range(32))
    for bank, found in enumerate(turns):
        for lanes in found:
            assert {words[lane] for lane in lanes} == {words[lanes[0]]}
            assert words[lanes[0]] % 32 == bank


@given(
    st.integers(1, 40), st.integers(1, 40),
    st.lists(st.integers(0, 10**6), min_size=32, max_size=32),
)  # fmt: skip
def test_sectors_are_those_that_the_emulator_counts(
    rows: int, columns: int, drawn: list[int]
) -> None:
    places = [each % (rows * columns) for each in drawn]
    picture = notebook.sectors((rows, columns), [divmod(each, columns) for each in places])
    x = np.zeros(rows * columns, np.float32)
    at = np.array(places, np.int32)
    report = LOAD.launch(1, 32, (x, at, np.zeros(32, np.float32)), device="emulator")
    assert report.counters is not None
    fetched = report.counters.global_load_sectors - 4  # those of `at`
    used = 4 * len(set(places)) / (32 * fetched)
    assert picture.says == f"{fetched} sectors of 32 bytes fetched, {used:.1%} used"


def texts(picture: Any) -> list[str]:
    figure = picture.figure
    return [each.get_text() for axes in figure.axes for each in axes.texts] + [
        each.get_text() for each in figure.texts
    ]


@pytest.mark.parametrize("log", [False, True])
def test_bars_have_their_numbers_and_their_lengths(log: bool) -> None:
    values = {"naive": 17_301_504, "none": 0, "tiled": 131_072.5}
    picture = notebook.bars(values, "Sectors", log=log)
    (axes,) = picture.figure.axes
    lengths = [patch.get_width() for patch in axes.patches]
    assert lengths[0] > lengths[2] > lengths[1] == 0
    if not log:
        assert lengths[2] / lengths[0] == pytest.approx(131_072.5 / 17_301_504)
    assert {"17,301,504", "0", "131,072"} <= set(texts(picture))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(values)
    scale = ", logarithmic" if log else ""
    assert repr(picture) == f"<picture: Sectors{scale}: naive 17,301,504, none 0, tiled 131,072>"
    for text in (*axes.texts, *picture.figure.texts):  # all in the figure, and legible
        box = text.get_window_extent()
        assert picture.figure.bbox.x0 <= box.x0
        assert box.x1 <= picture.figure.bbox.x1
        assert text.get_fontsize() / 72 * 390 / WIDTH >= 10


def test_a_picture_shows_itself_and_is_saved(tmp_path: Path) -> None:
    picture = notebook.banks([32 * lane for lane in range(8)], "eight rows")
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert "8 turns, 7 bank conflicts" in repr(picture)
    assert picture.save(tmp_path / "it.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match="must end in"):
        picture.save(tmp_path / "it.gif")
    assert [each.name for each in tmp_path.iterdir()] == ["it.svg"]
    assert "1 turn, 0 bank conflicts" in repr(notebook.banks([5] * 32))


def test_a_roofline_of_profiles() -> None:
    found = {name: tilewise.profile(name, 64, 64, 64) for name in ("naive", "tiled")}
    picture = notebook.roofline(found, "T4")
    assert "tiled bound by shared memory" in repr(picture)
    assert "Under the ceilings of Tesla T4" in texts(picture)
    measured = notebook.roofline(found, "T4", {"naive": 1e-3, "tiled": 1e-3})
    assert any(text.startswith("tiled, ") and text.endswith("%") for text in texts(measured))
    with pytest.raises(ValueError, match="NVIDIA H200"):
        notebook.roofline(found, "no such GPU")


@pytest.mark.parametrize(
    ("drawn", "told"),
    [
        (lambda: notebook.bars({}, "x"), "nothing to draw"),
        (lambda: notebook.bars({"a": -1}, "x"), "a is -1; a bar takes a number of at least 0"),
        (lambda: notebook.bars({"a": math.nan}, "x"), "a is nan"),
        (lambda: notebook.sectors((0, 3), []), "shape is 0 x 3"),
        (lambda: notebook.sectors((3, 97), []), "shape is 3 x 97; it takes up to 96"),
        (lambda: notebook.sectors((3, 3), [(3, 0)]), r"\(3, 0\) is outside the 3 x 3 matrix"),
        (lambda: notebook.banks([]), "there are 0 lanes"),
        (lambda: notebook.banks([0] * 33), "there are 33 lanes; a warp has 1 to 32"),
        (lambda: notebook.banks([0, -4]), "lane 1 reads word -4"),
    ],
)
def test_what_can_t_be_drawn(drawn: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        drawn()


def test_pictures_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        notebook.bars({"a": 1}, "x")
