"""``tilewise watch``: pages, traces and pictures in files; and in a notebook."""

from __future__ import annotations

import html
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewise.cli.main import main
from tilewise.kernel import Kernel
from tilewise.lens import animation
from tilewise.lens.trace import record
from tilewise.lens.watch import watch

needs_pictures = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib"
)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        code = main(["watch", *map(str, words)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_a_page(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, err = run("tiled")
    assert (code, err) == (0, "")
    assert out.startswith("tiled.html: written, 0.")
    page = (tmp_path / "tiled.html").read_text()
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page), "the page asks the network"


def test_the_trace_too(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    words = ("tiled", "-m", 3, "-n", 3, "-k", 3, "--tile", 2, "--block", "1,1", "-o", "p.html")
    code, _, _ = run(*words, "--trace", "t.json")
    assert code == 0
    trace = json.loads((tmp_path / "t.json").read_text())
    assert (trace["format"], trace["version"]) == ("tilewise trace", 1)
    assert [block["index"] for block in trace["blocks"]] == [[1, 1, 0]]
    assert trace == record("tiled", 3, 3, 3, tile=2, blocks=[(1, 1, 0)]).to_dict()
    assert (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiled", "--block", "9,9"], "there is no block (9, 9, 0): the grid is 3 x 3 x 1"),
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
        (["tiled", "--dtype", "float16"], "'float16' is not one of 'float32', 'float64'"),
        (["tiled", "-o", "."], "it is a folder"),
        (["tiled", "-o", "t.html", "--trace", "t.html"], "two things would be written to t.html"),
        (["tiled", "--frames", "there/f"], "there is no folder there"),
        (["naive", "--gif", "t.gif"], "naive has no phases to draw"),
        (["there.cu:name"], "there is no file there.cu"),
        (["there.cu"], "say which kernel in it"),
    ],
)
def test_bad_input(
    words: list[str], message: str, run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    if {"--gif", "--frames"} & set(words):
        pytest.importorskip("matplotlib")
    code, _, err = run(*words)
    assert code == 2
    assert message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_another_signature(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text('extern "C" __global__ void own(float* x) { x[0] = 1; }')
    code, _, err = run("own.cu:own")
    assert code == 2
    assert "own takes 1 arguments, not 11" in err
    assert "has the signature own(int m, int n, int k, real alpha, const real* a" in err
    assert list(tmp_path.iterdir()) == [path]


def test_a_long_run_is_cut(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """At a size that this page can hold: the rest is not run."""
    code, out, err = run("single_thread", "-m", 300, "-n", 300, "-k", 300)
    assert (code, err) == (0, "")
    assert re.search(r"block \(0, 0, 0\) is cut: its first [\d,]+ steps are kept", out)
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
        "The block's tile of C",
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
        "The block's tile of C",
    ]  # fmt: skip
    assert [frame.tiles.get("a", set()) for frame in found[2:6]] == [
        {0, 1, 2, 3, 6, 7, 8, 9}, {4, 5, 10, 11}, {4, 5, 10, 11}, set(),
    ]  # fmt: skip


@needs_pictures
def test_pictures(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    from PIL import Image

    words = ("tiled", "-m", 4, "-n", 4, "-k", 4, "--tile", 2, "--gif", "t.gif", "--frames", "f")
    code, out, _ = run(*words)
    assert code == 0
    assert "t.gif and f: 7 frames" in out
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == [
        f"{i:03d}.png" for i in range(7)
    ]
    with Image.open(tmp_path / "t.gif") as gif:
        assert getattr(gif, "n_frames", 1) == 7
        assert gif.size == (900, 640)
    assert run(*words)[0] == 0  # the folder is there now


@pytest.mark.parametrize(("module", "package"), [("matplotlib", "matplotlib"), ("PIL", "pillow")])
def test_pictures_need_packages(
    module: str, package: str, run: Callable[..., tuple[int, str, str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    there = importlib.util.find_spec

    def find(name: str, *rest: Any) -> Any:
        if name == "matplotlib" and module != name:  # it may be missing here too
            return True
        return None if name == module else there(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    code, _, err = run("tiled", "--gif", "t.gif")
    assert code == 2
    assert f"pip install {package}" in " ".join(err.split())
    assert not list(tmp_path.iterdir())
