"""``tilewise watch``: pages, traces and pictures in files; and in a notebook."""

from __future__ import annotations

import html
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SOURCE, RunWatch
from player import of_rung
from player import steps_of as all_steps_of
from reference import some, thorough

from tilewise.cli.commands.watch import page_name
from tilewise.kernel import Kernel
from tilewise.lens import animation
from tilewise.lens.trace import record
from tilewise.lens.watch import watch

needs_pictures = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib"
)


def test_a_page(run_watch: RunWatch, tmp_path: Path) -> None:
    code, out, err = run_watch("tiled")
    assert (code, err) == (0, "")
    assert out.startswith("tiled.html: written; open")
    page = (tmp_path / "tiled.html").read_text()
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page), "the page asks the network"


def test_the_trace_too(run_watch: RunWatch, tmp_path: Path) -> None:
    words = ("tiled", "-m", 3, "-n", 3, "-k", 3, "--tile", 2, "--block", "1,1", "-o", "p.html")
    code, _, _ = run_watch(*words, "--trace", "t.json")
    assert code == 0
    trace = json.loads((tmp_path / "t.json").read_text())
    assert (trace["format"], trace["version"]) == ("tilewise trace", 1)
    assert [block["index"] for block in trace["blocks"]] == [[1, 1, 0]]
    assert trace == record("tiled", 3, 3, 3, tile=2, blocks=[(1, 1, 0)]).to_dict()
    assert (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiled", "--block", "9,9"], "there is no block (9, 9, 0): the grid is 2 x 2 x 1"),
        (["tiled", "--block", "one"], "--block is 'one'"),
        (["tiled", "-m", "0"], "m is 0"),
        (["tiled", "-o", "there/is/none.html"], "there is no folder there/is"),
        (["tiled", "--trace", "there/t.json"], "there is no folder there"),
        (["tiled", "--gif", "t.png"], "its name must end in .gif"),
        (["none"], "no kernel called 'none'"),
        (["tiled", "--tile", "0"], "tile is 0; it must be from 2 to 32"),
        (["warp_tile", "--tile", "16"], "tile is 16; it must be 32, 64 or 128 for warp_tile"),
        (["tiled", "--block", "0,-1"], "there is no block (0, -1, 0)"),
        (["tiled", "--block", "0,0,0,0"], "it takes a block's index as X,Y"),
        (["tiled", "--alpha", "nan"], "alpha is nan; it must be finite"),
        (["tiled", "--beta", "inf"], "beta is inf; it must be finite"),
        (["tiled", "--seed", "-1"], "seed is -1"),
        (["tiled", "--dtype", "float16"], "float16 is not supported: tiled takes float32 and"),
        (["tiled", "-o", "."], "it is a folder"),
        (["tiled", "-o", "t.html", "--trace", "t.html"], "two things would be written to t.html"),
        (["tiled", "--frames", "there/f"], "there is no folder there"),
        (["naive", "--gif", "t.gif"], "naive has no phases to draw"),
        (["there.cu:name"], "there is no file there.cu"),
        (["there.cu"], "say which kernel in it"),
    ],
)
def test_bad_input(words: list[str], message: str, run_watch: RunWatch, tmp_path: Path) -> None:
    if {"--gif", "--frames"} & set(words):
        pytest.importorskip("matplotlib")
    code, _, err = run_watch(*words)
    assert code == 2
    assert message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_the_page_and_the_trace_name_the_file_and_the_kernel(
    run_watch: RunWatch, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    for file in ("own.cu", "below/own.cu"):
        (tmp_path / file).write_text(SOURCE)
    for words, title, file in (
        (["own.cu:talks"], "own.cu:talks", "own.cu"),
        (["below/own.cu:talks"], "own.cu:talks", "own.cu"),
        (["tiled"], "tiled", "05_tiled.cu"),
    ):
        sizes = ("-m", 2, "-n", 2, "-k", 2, "--tile", 2)
        assert run_watch(*words, *sizes, "-o", "p.html", "--trace", "t.json")[0] == 0
        trace = json.loads((tmp_path / "t.json").read_text())
        assert (trace["title"], trace["file"]) == (title, file)
        assert f"<title>{title} - tilewise</title>" in (tmp_path / "p.html").read_text()
    from_text = watch(Kernel(SOURCE, "talks"), 2, 2, 2, tile=2)
    assert "<title>talks - tilewise</title>" in from_text.page


def test_another_signature(run_watch: RunWatch, tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text('extern "C" __global__ void own(float* x) { x[0] = 1; }')
    code, _, err = run_watch("own.cu:own")
    assert code == 2
    assert "own takes 1 argument, not 11" in err
    assert "has the signature own(int m, int n, int k, real alpha, const real* a" in err
    assert list(tmp_path.iterdir()) == [path]


@thorough
def test_a_long_run_is_cut(run_watch: RunWatch, tmp_path: Path) -> None:
    """At a size that this page can hold: the rest is not run."""
    code, out, err = run_watch("single_thread", "-m", 300, "-n", 300, "-k", 300)
    assert (code, err) == (0, "")
    assert re.search(r"block \(0, 0, 0\) is cut: its first [\d,]+ steps are kept", out)
    assert "C is not checked: it was not run to its end" in out
    assert (tmp_path / "single_thread.html").stat().st_size < 10_000_000


def test_in_a_notebook() -> None:
    found = watch("tiled", 4, 4, 4, tile=2)
    shown = found._repr_html_()
    inner = re.fullmatch(r'<iframe srcdoc="([^"]*)" .*></iframe>', shown, re.DOTALL)
    assert inner is not None
    assert html.unescape(inner[1]) == found.page
    assert "tiled" in repr(found)


def test_frames() -> None:
    """Of 4 x 4 with tiles of 2: two phases, each a load and two uses; then the result."""
    trace = record("tiled", 4, 4, 4, tile=2).to_dict()
    found = animation.frames(trace)
    assert [frame.title for frame in found] == [
        "Phase 1: a tile of A and a tile of B", "Phase 1, use 1", "Phase 1, use 2",
        "Phase 2: a tile of A and a tile of B", "Phase 2, use 1", "Phase 2, use 2",
        "The block's tile of C", "Block (1, 1): its own tile of C",
    ]  # fmt: skip
    assert found[0].tiles == {"a": {0, 1, 4, 5}, "b": {0, 1, 4, 5}}
    assert found[3].tiles == {"a": {2, 3, 6, 7}, "b": {8, 9, 12, 13}}
    a, b = (trace["arrays"][place]["values"] for place in (0, 1))
    values = [a[at] for at in (2, 3, 6, 7)] + [b[at] for at in (8, 9, 12, 13)]
    assert [found[3].shared[4 * i] for i in range(8)] == values
    # Thread 3 is at row 1 and column 1.
    assert found[4].now == {0, 8, 16, 20}
    assert found[1].sums[3] == pytest.approx(a[4] * b[1], abs=1e-5)
    with pytest.raises(ValueError, match="coalesced has no phases to draw"):
        animation.frames(record("coalesced", 4, 4, 4, tile=2).to_dict())


def test_the_frames_of_all_blocks_end_with_the_finished_product() -> None:
    every = [(x, y, 0) for y in range(2) for x in range(3)]
    trace = record("tiled", 4, 5, 3, tile=2, alpha=2.0, blocks=every).to_dict()
    *_, own, first, second, third, fourth, fifth, last = animation.frames(trace)
    sizes = [len(each.written) for each in (own, first, second, third, fourth, fifth, last)]
    assert sizes == [4, 8, 10, 14, 18, 20, 20]  # the last column of tiles is one element wide
    assert first.tiles == {
        "a": {0, 1, 2, 3, 4, 5}, "b": {2, 3, 7, 8, 12, 13}, "c": {2, 3, 7, 8},
    }  # fmt: skip
    assert (fifth.is_last, last.is_last) == (False, True)
    a, b = (
        np.reshape(trace["arrays"][place]["values"], shape)
        for place, shape in ((0, (4, 3)), (1, (3, 5)))
    )
    c = np.array([last.written[at] for at in range(20)]).reshape(4, 5)
    assert np.allclose(c, 2 * a @ b, rtol=1e-4, atol=1e-4)  # a trace has six digits
    without = record("tiled", 4, 5, 3, tile=2, blocks=every[:-1]).to_dict()
    assert not any(frame.is_last for frame in animation.frames(without))


def test_frames_of_two_buffers() -> None:
    """A phase loads the next tile while it uses its own, and the last loads none."""
    source = """extern "C" __global__ void buffered(int m, int n, int k, real alpha, const real* a,
        int lda, const real* b, int ldb, real beta, real* c, int ldc) {
        __shared__ real sa[2][TILE][TILE], sb[2][TILE][TILE];
        int tx = threadIdx.x, ty = threadIdx.y;
        real sum = 0;
        for (int p = 0, now = 0; p <= k; p += TILE, now ^= 1) {
            if (p < k) {
                sa[now][ty][tx] = a[ty * lda + p + tx];
                sb[now][ty][tx] = b[(p + ty) * ldb + tx];
            }
            if (p > 0) {
                for (int i = 0; i < TILE; ++i) sum += sa[now ^ 1][ty][i] * sb[now ^ 1][i][tx];
            }
            __syncthreads();
        }
        c[ty * ldc + tx] = alpha * sum;
    }"""
    trace = record(Kernel(source, "buffered"), 2, 2, 6, tile=2).to_dict()
    found = animation.frames(trace)
    assert [frame.title for frame in found] == [
        "Phase 1: a tile of A and a tile of B", "Phase 1, use 1", "Phase 1, use 2",
        "Phase 2, use 1", "Phase 2, use 2", "Phase 3, use 1", "Phase 3, use 2",
        "The block's tile of C", "C is finished",
    ]  # fmt: skip
    assert [frame.tiles.get("a", set()) for frame in found[2:6]] == [
        {0, 1, 2, 3, 6, 7, 8, 9}, {4, 5, 10, 11}, {4, 5, 10, 11}, set(),
    ]  # fmt: skip


@needs_pictures
def test_pictures(run_watch: RunWatch, tmp_path: Path) -> None:
    from PIL import Image

    words = ("tiled", "-m", 4, "-n", 4, "-k", 4, "--tile", 2, "--gif", "t.gif", "--frames", "f")
    code, out, _ = run_watch(*words)
    assert code == 0
    # Those of the first block, its tile of C, the tiles of the three others, and the finished C.
    assert "t.gif and f: 11 frames" in out
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == [
        f"{i:03d}.png" for i in range(11)
    ]
    with Image.open(tmp_path / "t.gif") as gif:
        assert getattr(gif, "n_frames", 1) == 11
        assert gif.size == (650, 660)
    # The folder is there now.
    assert run_watch("tiled", "-m", 2, "-n", 2, "-k", 2, "--tile", 2, "--frames", "f")[0] == 0


@pytest.mark.parametrize(("module", "package"), [("matplotlib", "matplotlib"), ("PIL", "pillow")])
def test_pictures_need_packages(
    module: str, package: str, run_watch: RunWatch, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    there = importlib.util.find_spec

    def find(name: str, *rest: Any) -> Any:
        if name == "matplotlib" and module != name:  # it may be missing here too
            return True
        return None if name == module else there(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    code, _, err = run_watch("tiled", "--gif", "t.gif")
    assert code == 2
    assert f"pip install {package}" in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_sizes_from_python_and_from_the_command_line_are_the_same(
    run_watch: RunWatch, tmp_path: Path
) -> None:
    for name in some(["single_thread", "naive", "tiled", "tiled_conflicts"], 2):
        code, out, _ = run_watch(name, "--trace", "t.json")
        assert code == 0
        assert json.loads((tmp_path / "t.json").read_text()) == watch(name).trace.to_dict()
        assert f"\n{name}: C = A·B, m = " in out
        assert "right against float64" in out


def steps_of(name: str, kind: str, space: str) -> list[dict[str, Any]]:
    """The steps of the first block that reach memory in this way."""
    return [
        step
        for step in all_steps_of(of_rung(name))
        if (step["kind"], step.get("space")) == (kind, space)
    ]


def test_a_trace_of_transposed_tiles_has_conflicts_and_of_others_none() -> None:
    for kind in ("load", "store"):
        assert all(step["conflicts"] == 0 for step in steps_of("tiled", kind, "shared"))
        found = steps_of("tiled_conflicts", kind, "shared")
        # A request is served in more turns than it must be: in two for each at least.
        assert any(step["conflicts"] >= step["requests"] > 0 for step in found)


def test_traces_of_naive_and_coalesced_loads_differ() -> None:
    a_request = {
        name: [step["sectors"] / step["requests"] for step in steps_of(name, "load", "global")]
        for name in ("naive", "coalesced")
    }
    assert (min(a_request["naive"]), max(a_request["naive"])) == (1, 32)
    assert (min(a_request["coalesced"]), max(a_request["coalesced"])) == (1, 4)


def test_a_trace_of_tiles_has_three_phases_and_wastes_nothing() -> None:
    found = steps_of("tiled", "load", "global")
    assert {step["phase"] for step in found} == {0, 1, 2}
    assert all("all used" in step["say"] for step in found)


@pytest.mark.parametrize(
    ("name", "space", "words"),
    [
        ("tiled_conflicts", "shared", "bank conflicts"),
        ("naive", "global", "1,024 sectors (32 a warp), 12.5 % of them used"),
        ("coalesced", "global", "128 sectors (4 a warp), all used"),
    ],
)
def test_a_page_opens_where_its_lesson_is(name: str, space: str, words: str) -> None:
    block = watch(name).trace.to_dict()["blocks"][0]
    step = block["steps"][block["first"]]
    assert step["space"] == space
    assert words in step["say"]


@cache
def of_one_phase(name: str) -> dict[str, Any]:
    found: dict[str, Any] = record(name, 64, 64, 8, tile=64).to_dict()
    return found


def wide_steps_of(name: str, kind: str, space: str) -> list[dict[str, Any]]:
    """Those of a rung's only block, of a single phase."""
    found = all_steps_of(of_one_phase(name))
    return [step for step in found if (step["kind"], step.get("space")) == (kind, space)]


def test_sentences_on_wide_accesses_name_all_columns() -> None:
    """Of 16 bytes: each of 16 threads loads 4 columns of a row of 64."""
    loads = wide_steps_of("vectorized", "load", "global")
    of_b = next(step for step in loads if step["array"] == "b")
    assert "rows 0 to 3, columns 0 to 63 of B" in of_b["say"]
    # A thread has 8 columns, and stores 4 of them at once.
    stores = wide_steps_of("vectorized", "store", "global")
    assert "8 rows from 0 to 56, 32 columns from 0 to 59 of C" in stores[0]["say"]
    # A half of a warp's lanes read 4 of columns 0 to 15, the others 32 columns on.
    reads = wide_steps_of("warp_tile", "load", "shared")
    assert reads[0]["width"] == 16
    assert "sa, row 0, columns 0 to 15 and 32 to 47: no bank conflict." in reads[0]["say"]


def test_a_wrong_kernel_is_watched_and_said_to_be_wrong(
    run_watch: RunWatch, tmp_path: Path
) -> None:
    (tmp_path / "own.cu").write_text(SOURCE)
    code, out, _ = run_watch("own.cu:forgets_last")
    assert code == 1
    assert "forgets_last: C = A·B, m = 16, n = 16, k = 24, float32, tile 8\ncheck  WRONG" in out
    assert (tmp_path / "own_forgets_last.html").exists()
    assert run_watch("own.cu:talks")[0] == 0
    code, out, _ = run_watch("own.cu:forgets_last", "--json")
    document = json.loads(out)
    assert (code, document["correct"], document["tile"]) == (1, False, 8)
    assert document["written"] == {"page": "own_forgets_last.html"}
    assert "WRONG" in repr(watch(Kernel(SOURCE, "forgets_last")))


def test_what_is_too_large_to_be_run_whole_is_said_not_to_be_checked(
    run_watch: RunWatch,
) -> None:
    code, out, _ = run_watch("naive", "-m", 512, "-n", 512, "-k", 9, "--block", "1,1")
    assert code == 0
    assert "not checked" in out


def test_kernels_of_one_name_have_pages_of_their_own(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for file in ("one.cu", "two.cu", "b/one.cu"):
        (tmp_path / file).write_text(SOURCE)
        assert run_watch(f"{file}:talks", "-m", 2, "-n", 2, "-k", 2, "--tile", 2)[0] == 0
    assert run_watch(f"{tmp_path}/b/two.cu:talks")[0] == 2
    pages = {path.name for path in tmp_path.glob("*.html")}
    assert pages == {"one_talks.html", "two_talks.html", "b-one_talks.html"}
    assert page_name(f"{tmp_path}/b/one.cu:space::talks<1>") == "b-one_space_talks_1"
    assert page_name("b_one.cu:talks") != page_name("b/one.cu:talks")
    assert page_name("../one.cu:talks") != page_name("one.cu:talks")
    assert page_name("one.cu:k<-1>") != page_name("one.cu:k<1>")
