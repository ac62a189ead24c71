"""``tilewise watch``: a page in which a kernel runs, step by step."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from tilewise.cli.commands.options import RIGHT, Dtype, K, M, N, Tile, plain
from tilewise.cli.commands.sources import Include, Limit, NoLimits, Trusted, source
from tilewise.launch import Dim3

SIZE = 12  # of a product whose sizes are not given, with tiles of
TILE = 4
SUFFIX = ".html"


def watch(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|FILE.cu:NAME",
            help="A rung of the ladder, or any kernel that has its signature.",
        ),
    ],
    m: M = None,
    n: N = None,
    k: K = None,
    tile: Tile = None,
    block: Annotated[
        list[str] | None,
        typer.Option(
            "--block",
            metavar="X[,Y]",
            help="The block to watch; may be given again. By default the first and the last.",
        ),
    ] = None,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.float32,
    alpha: Annotated[float, typer.Option(help="C = alpha A B + beta C.")] = 1.0,
    beta: Annotated[float, typer.Option()] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the random matrices.")] = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="F.html", help="By default KERNEL.html.")
    ] = None,
    trace_to: Annotated[
        Path | None,
        typer.Option("--trace", metavar="F.json", help="Write the trace too (docs/trace.md)."),
    ] = None,
    gif: Annotated[
        Path | None,
        typer.Option("--gif", metavar="F.gif", help="Draw the sliding tiles, for a slide."),
    ] = None,
    frames: Annotated[
        Path | None, typer.Option("--frames", metavar="DIR", help="The same, a PNG a frame.")
    ] = None,
    include: Include = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    is_opened: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> int:
    """Watch a kernel run: one page, with no network, of what one block really did.

    It is run on the emulator. Sizes that are not given are 12, with tiles of 4; of a rung that
    takes no such tile, C is three halves of its smallest.
    """
    from tilewise.cli import show
    from tilewise.ladder.matrix_files import check_target
    from tilewise.lens import animation
    from tilewise.lens.watch import watch as record
    from tilewise.provenance import write_whole

    name = target.rpartition(":")[2]
    path = out or Path(f"{name}{SUFFIX}")
    if frames is not None and frames.exists() and not frames.is_dir():
        raise ValueError(f"--frames is {frames}, which is no folder")
    inside = None if frames is None else (frames / "000.png" if frames.exists() else frames)
    files = [file for file in (path, trace_to, gif, inside) if file is not None]
    for file in files:
        check_target(file)
        if sum(other.resolve() == file.resolve() for other in files) > 1:
            raise ValueError(f"two things would be written to {file}; give each its own file")
    if gif is not None or frames is not None:
        animation.check(gif)
    edge, width = _small(target, tile, (m, n, k) == (None, None, None))
    rows, columns = (width if size is None else size for size in (m, n))
    depth = SIZE if k is None else k
    kernel = source(target, include, trusted, limit, no_limits)
    with show.progress(None, f"running {name}"):
        found = record(
            kernel, rows, columns, depth, dtype=dtype.value, tile=edge, alpha=alpha, beta=beta,
            blocks=[_index(each) for each in block or ()], seed=seed,
        )  # fmt: skip
    trace = found.trace.to_dict()
    if gif is not None or frames is not None:
        animation.frames(trace)  # what can't be drawn is said before anything is written
    if trace_to is not None:
        write_whole(trace_to, json.dumps(plain(trace)).encode() + b"\n")
        print(f"{trace_to}: written")
    found.save(path)
    print(f"{path}: written, {path.stat().st_size / 1e6:.2f} MB; open it in a browser")
    if gif is not None or frames is not None:
        with show.progress(None, "drawing"):
            count = animation.draw(trace, gif, frames)
        print(f"{' and '.join(str(x) for x in (gif, frames) if x is not None)}: {count} frames")
    for each in trace["blocks"]:
        if each["cut"]:
            index = ", ".join(map(str, each["index"]))
            print(
                f"block ({index}) is cut: its first {len(each['steps']):,} steps are kept; "
                "a smaller product is seen to its end"
            )
    if is_opened:
        webbrowser.open(path.resolve().as_uri())
    return RIGHT


def _small(target: str, tile: int | None, is_free: bool) -> tuple[int | None, int]:
    """The tile, and the width of C where it is not given: one that can be looked at.

    Of a kernel that takes tiles of 4, those, where no size is given either (``is_free``); of one
    that takes larger tiles only, its smallest.
    """
    from tilewise.ladder.rungs import RUNGS

    tiles = next((each.tiles for each in RUNGS if each.name == target), range(TILE, TILE + 1))
    if not tiles or TILE in tiles:
        return (TILE if tile is None and is_free and tiles else tile), SIZE
    edge = tiles[0] if tile is None else tile
    return edge, 3 * edge // 2


def _index(text: str) -> Dim3:
    """Of ``2,1`` or ``2,1,0``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        raise ValueError(f"--block is {text!r}; it takes a block's index as X,Y, for example 2,1")
    x, y, z = (*numbers, 0, 0)[:3]
    return x, y, z
