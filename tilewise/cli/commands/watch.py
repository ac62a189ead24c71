"""``tilewise watch``: a page in which a kernel runs, step by step."""

from __future__ import annotations

import json
import re
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Dtype,
    Json,
    K,
    M,
    N,
    Target,
    Tile,
    plain,
    print_json,
)
from tilewise.cli.commands.sources import Include, Limit, NoLimits, Trusted, the_source
from tilewise.kernel import split_target
from tilewise.places import Dim3

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
            metavar="X[,Y]",
            help="The block to watch; may be given again. By default the first and the last.",
        ),
    ] = None,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.float32,
    alpha: Annotated[float, typer.Option(help="C = alpha A B + beta C.")] = 1.0,
    beta: Annotated[float, typer.Option()] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the random matrices.")] = 0,
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
    """
    from tilewise.cli import show
    from tilewise.ladder.matrix_files import check_target
    from tilewise.lens import animation
    from tilewise.lens.watch import watch as record
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
    if gif is not None or frames is not None:
        animation.check(gif)
    kernel = the_source(target, include, trusted, limit, no_limits)
    with show.progress(None, f"running {target}"):
        found = record(
            kernel, m, n, k, dtype=dtype.value, tile=tile, alpha=alpha, beta=beta,
            blocks=[_index(each) for each in block or ()], seed=seed,
        )  # fmt: skip
    trace = found.trace.to_dict()
    if gif is not None or frames is not None:
        animation.frames(trace)  # what can't be drawn is said before anything is written
    if trace_to is not None:
        write_whole(trace_to, json.dumps(plain(trace)).encode() + b"\n")
    found.save(path)
    drawn = None
    if gif is not None or frames is not None:
        with show.progress(None, "drawing"):
            drawn = animation.draw(trace, gif, frames)
    written = {"page": path, "trace": trace_to, "gif": gif, "frames": frames}
    if as_json:
        print_json(_document(found, written))
    else:
        _say(found, written, drawn)
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
    trace, check = found.trace.to_dict(), found.check
    return {
        "kernel": trace["kernel"], **trace["problem"], "grid": trace["grid"],
        "block": trace["block"],
        "blocks": [
            {"index": each["index"], "steps": len(each["steps"]), "cut": each["cut"]}
            for each in trace["blocks"]
        ],
        "correct": None if check is None else bool(check.correct),
        "max_error": None if check is None else check.max_error,
        "bound": None if check is None else check.bound,
        "written": {name: str(path) for name, path in written.items() if path is not None},
    }  # fmt: skip


def _say(found: Watch, written: dict[str, Path | None], drawn: int | None) -> None:
    """The same in lines for people."""
    trace, path = found.trace.to_dict(), written["page"]
    assert path is not None
    print(f"{path}: written, {path.stat().st_size / 1e6:.2f} MB; open it in a browser")
    if written["trace"] is not None:
        print(f"{written['trace']}: written")
    if drawn is not None:
        files = [str(written[name]) for name in ("gif", "frames") if written[name] is not None]
        print(f"{' and '.join(files)}: {drawn} frames")
    for each in trace["blocks"]:
        if each["cut"]:
            index = ", ".join(map(str, each["index"]))
            print(
                f"block ({index}) is cut: its first {len(each['steps']):,} steps are kept; a "
                "smaller product is seen to its end, unless the kernel has a loop without one"
            )
    problem, check = trace["problem"], found.check
    sizes = ", ".join(f"{name} = {problem[name]:,}" for name in ("m", "n", "k"))
    tile = "" if problem["tile"] is None else f", tile {problem['tile']}"
    if check is None and any(each["cut"] for each in trace["blocks"]):
        verdict = "not checked, for it was not run to its end; `tilewise run` checks it"
    elif check is None:
        verdict = "not checked, for it is too large to be run whole here; `tilewise run` checks it"
    elif check.correct:
        verdict = f"right against float64, max error {check.max_error:.3g} of |A||B|"
    else:
        verdict = f"WRONG: max error {check.max_error:.3g} of |A||B|, bound {check.bound:.3g}"
        if check.worst is not None:
            verdict += ", worst at C[{}, {}]".format(*check.worst)
    print(f"{trace['kernel']}, {sizes}{tile}: {verdict}")


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
