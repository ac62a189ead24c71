"""``tilewise watch``: a page in which a kernel runs, step by step."""

from __future__ import annotations

import json
import re
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.launches import (
    Args,
    Asked,
    Cast,
    Cooperative,
    Grid,
    Shared,
    advising,
)
from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Arch,
    Json,
    K,
    M,
    N,
    OwnDtype,
    Target,
    Tile,
    plain,
    print_json,
)
from tilewise.cli.commands.sources import (
    Define,
    Include,
    Limit,
    NoLimits,
    Trusted,
    Undefine,
    the_source,
)
from tilewise.ladder.verdict import as_dict
from tilewise.places import Dim3
from tilewise.targets import split_target

if TYPE_CHECKING:
    from tilewise.lens.watch import Watch

SUFFIX = ".html"


def watch(
    target: Target,
    m: M = None,
    n: N = None,
    k: K = None,
    tile: Tile = None,
    block: Annotated[
        list[str] | None,
        typer.Option(
            "--block",
            metavar="X[,Y[,Z]]",
            help="With --grid, threads of a block; without it, the same as --at.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="X[,Y]",
            help="The block to watch; may be given again. By default the first and the last.",
        ),
    ] = None,
    dtype: OwnDtype = None,
    alpha: Annotated[float, typer.Option(help="C = alpha A B + beta C.")] = 1.0,
    beta: Annotated[float, typer.Option()] = 0.0,
    arch: Arch = None,
    seed: Annotated[int, typer.Option(help="Of random matrices and arrays.")] = 0,
    grid: Grid = None,
    args: Args = None,
    shared: Shared = "0",
    cooperative: Cooperative = False,
    cast: Cast = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="F.html", help="By default RUNG.html, or FILE_NAME.html."
        ),
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
    define: Define = None,
    undefine: Undefine = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    is_opened: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Json = False,
) -> int:
    """Watch a kernel run, step by step, on one page.

    The page needs no network, and shows what one block really did. The kernel is run on the
    emulator, and its result is checked. Sizes and a tile that are not given are those at which what
    the rung is about happens, and can be read.

    A kernel of any other signature is launched with --grid, --block and --args.
    """
    from tilewise.cli import show
    from tilewise.ladder.matrix_files import check_target
    from tilewise.lens import animation
    from tilewise.lens.trace import record as record_trace
    from tilewise.lens.watch import watch as record
    from tilewise.lens.watch import watch_launch
    from tilewise.provenance import write_whole

    path = out or Path(f"{page_name(target)}{SUFFIX}")
    if frames is not None and frames.exists() and not frames.is_dir():
        raise ValueError(f"--frames is {frames}, which is no folder")
    inside = None if frames is None else (frames / "000.png" if frames.exists() else frames)
    files = [file for file in (path, trace_to, gif, inside) if file is not None]
    for file in files:
        check_target(file)
        if sum(other.resolve() == file.resolve() for other in files) > 1:
            raise ValueError(f"two things would be written to {file}; give each its own file")
    is_launch = Asked(grid, None, args, shared, seed, cast, cooperative).is_there
    if gif is not None or frames is not None:
        if is_launch:
            raise ValueError("--gif and --frames draw the tiles of a product, and this is none")
        animation.check(gif)
    kernel = the_source(target, include, trusted, limit, no_limits, define, undefine)
    threads = None if not block else block[0]
    if is_launch:
        asked = Asked(grid, threads, args, shared, seed, cast, cooperative)
        product = {
            "-m": m is not None, "-n": n is not None, "-k": k is not None, "--tile": tile,
            "--dtype": dtype, "--alpha": alpha != 1, "--beta": beta,
        }  # fmt: skip
        own = asked.check(target, kernel, product)
        if len(block or ()) > 1:
            raise ValueError("--block is given twice; --at names the blocks to watch")
        prepared = asked.prepared("watch", target, own, arch or own.arch)
        with show.progress(None, f"running {target}"):
            found = watch_launch(prepared, blocks=[_index(each, "--at") for each in at or ()])
    else:
        chosen = [_index(each, "--block") for each in block or ()]
        chosen += [_index(each, "--at") for each in at or ()]
        with show.progress(None, f"running {target}"), advising("watch", target, kernel):
            found = record(
                kernel, m, n, k, dtype=dtype, tile=tile, alpha=alpha, beta=beta,
                blocks=chosen, seed=seed, arch=arch,
            )  # fmt: skip
    trace = found.trace.to_dict()
    pictured = trace
    if gif is not None or frames is not None:
        animation.frames(trace)  # what can't be drawn is said before anything is written
        every = [(x, y, 0) for y in range(trace["grid"][1]) for x in range(trace["grid"][0])]
        if not chosen and len(trace["blocks"]) < len(every) <= animation.MOST_BLOCKS:
            problem = trace["problem"]
            pictured = record_trace(
                kernel, problem["m"], problem["n"], problem["k"], dtype=problem["dtype"],
                tile=problem["tile"], alpha=alpha, beta=beta, blocks=every, seed=seed,
                arch=trace["arch"],
            ).to_dict()  # fmt: skip
    if trace_to is not None:
        write_whole(trace_to, json.dumps(plain(trace)).encode() + b"\n")
    found.save(path)
    drawn = None
    if gif is not None or frames is not None:
        with show.progress(None, "drawing"):
            drawn = animation.draw(pictured, gif, frames)
    written = {"page": path, "trace": trace_to, "gif": gif, "frames": frames}
    if as_json:
        print_json(_document(found, written))
    else:
        show.watched(found, written, drawn)
    if is_opened:
        webbrowser.open(path.resolve().as_uri())
    return RIGHT if found.correct else WRONG


def page_name(target: str) -> str:
    """What the page of a kernel is called: a rung by its name, another by its file and its name.

    The file's folders are part of it, from the working directory where they lie in that: pages of
    two files' kernels of one name are two pages.
    """
    found = split_target(target)
    if found is None:
        return re.sub(r"\W+", "_", target)
    file_of, name = found
    path, here = file_of.resolve(), Path.cwd().resolve()
    path = path.with_suffix("") if path.suffix == ".cu" else path
    if path.is_relative_to(here):
        path = path.relative_to(here)
    parts = [part for part in path.parts if part != path.anchor]
    file = "-".join(re.sub(r"\W+", "_", part) for part in parts)
    instance = re.sub(r"[^\w-]+", "_", name).strip("_")
    return f"{file}_{instance}"


def _document(found: Watch, written: dict[str, Path | None]) -> dict[str, Any]:
    """What was watched, whether it is right, and what was written."""
    trace = found.trace.to_dict()
    return {
        "kernel": trace["kernel"], **(trace["problem"] or {}), "arch": trace["arch"],
        "grid": trace["grid"], "block": trace["block"],
        "blocks": [
            {"index": each["index"], "steps": len(each["steps"]), "cut": each["cut"]}
            for each in trace["blocks"]
        ],
        **as_dict(found.verdict),
        "written": {name: str(path) for name, path in written.items() if path is not None},
    }  # fmt: skip


def _index(text: str, option: str) -> Dim3:
    """Of ``2,1`` or ``2,1,0``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        raise ValueError(f"{option} is {text!r}; it takes a block's index as X,Y, for example 2,1")
    x, y, z = (*numbers, 0, 0)[:3]
    return x, y, z
