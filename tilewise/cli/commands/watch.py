"""The command ``tilewise watch``: a page in which a kernel runs, step by step."""

from __future__ import annotations

import json
import re
import webbrowser
from collections.abc import Sequence
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
from tilewise.cli.failure import failed
from tilewise.ladder.verdict import as_dict
from tilewise.places import Dim3
from tilewise.targets import split_target

if TYPE_CHECKING:
    from tilewise.kernel import Kernel
    from tilewise.ladder.rungs import Rung
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
    exercise: Annotated[
        str | None,
        typer.Option(
            "--exercise",
            metavar="EXERCISE",
            help="Launch it as a test of this exercise does, and mark wrong elements.",
        ),
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(
            "--test", metavar="N", help="With --exercise, the visible test to launch; by default 1."
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="KERNEL",
            help="Another rung, or FILE.cu:NAME: both on one page, side by side.",
        ),
    ] = None,
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

    With --beside, two kernels run side by side: the same product, or the same launch. The one that
    has done the smaller share of its multiply-adds advances, and their costs are compared where a
    phase of either ends.

    Where a check of the emulator finds a fault, the page shows the run up to there, the fault is
    told as `tilewise run` tells it, and the exit code is 1.
    """
    from tilewise.cli import show
    from tilewise.ladder.matrix_files import check_target
    from tilewise.ladder.watched import sizes_of_two
    from tilewise.lens import animation
    from tilewise.lens.trace import record as record_trace
    from tilewise.lens.watch import watch as record
    from tilewise.lens.watch import watch_launch
    from tilewise.provenance import write_whole

    named = page_name(target) + ("" if beside is None else f"_beside_{page_name(beside)}")
    path = out or Path(f"{named}{SUFFIX}")
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
    if beside is not None and (trace_to or gif or frames):
        raise ValueError("--trace, --gif and --frames are of one kernel; leave out --beside")
    names = [target] if beside is None else [target, beside]
    kernel, *others = _sources(names, include, trusted, limit, no_limits, define, undefine)
    threads = None if not block else block[0]
    product = {
        "-m": m is not None, "-n": n is not None, "-k": k is not None, "--tile": tile,
        "--dtype": dtype, "--alpha": alpha != 1, "--beta": beta,
    }  # fmt: skip
    if exercise is not None:
        excluded = {
            "--grid": grid, "--block": block, "--args": args, "--shared": shared != "0",
            "--cooperative": cooperative, "--cast": cast, "--beside": beside, "--arch": arch,
            "--gif": gif, "--frames": frames, **product,
        }  # fmt: skip
        chosen = [_index(each, "--at") for each in at or ()]
        number = 1 if test is None else test
        found_each = [_of_exercise(target, kernel, exercise, number, seed, chosen, excluded)]
    elif test is not None:
        raise ValueError("--test chooses a test of an exercise; give --exercise too")
    elif is_launch:
        asked = Asked(grid, threads, args, shared, seed, cast, cooperative)
        compiled = [
            asked.check(name, each, product)
            for name, each in zip(names, (kernel, *others), strict=True)
        ]  # fmt: skip
        if len(block or ()) > 1:
            raise ValueError("--block is given twice; --at names the blocks to watch")
        chosen = [_index(each, "--at") for each in at or ()]
        found_each = []
        for name, own in zip(names, compiled, strict=True):
            prepared = asked.prepared("watch", name, own, arch or own.arch)
            with show.progress(None, f"running {name}"):
                found_each.append(watch_launch(prepared, blocks=chosen))
    else:
        chosen = [_index(each, "--block") for each in block or ()]
        chosen += [_index(each, "--at") for each in at or ()]
        at_sizes = [(m, n, k, tile)]
        if others:
            both = sizes_of_two(kernel, others[0], m, n, k, tile, dtype)
            at_sizes = [(each.m, each.n, each.k, each.tile) for each in both]
        found_each = []
        for name, each, size in zip(names, (kernel, *others), at_sizes, strict=True):
            with show.progress(None, f"running {name}"), advising("watch", name, each):
                found_each.append(record(
                    each, *size[:3], dtype=dtype, tile=size[3], alpha=alpha, beta=beta,
                    blocks=chosen, seed=seed, arch=arch,
                ))  # fmt: skip
    found = found_each[0]
    trace = found.trace.to_dict()
    pictured = trace
    fault = next((each.fault for each in found_each if each.fault is not None), None)
    if fault is not None:
        gif = frames = None  # of tiles that nobody has loaded or used to the end
    if gif is not None or frames is not None:
        animation.frames(trace)  # raises errors of drawing before anything is written
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
    shown = found if not others else found.beside(found_each[1])
    shown.save(path)
    drawn = None
    if gif is not None or frames is not None:
        with show.progress(None, "drawing"):
            drawn = animation.draw(pictured, gif, frames)
    written = {"page": path, "trace": trace_to, "gif": gif, "frames": frames}
    if as_json and fault is None:
        print_json(_document(found_each, written))
    elif not as_json and any(each.trace.fault for each in found_each):
        show.written(written, drawn)
    elif not as_json:
        show.watched(found_each, written, drawn)
    if is_opened:
        webbrowser.open(path.resolve().as_uri())
    if fault is not None:
        return failed(fault, str(fault), WRONG, as_json=as_json, written=_paths(written))
    return RIGHT if all(each.correct for each in found_each) else WRONG


def _of_exercise(
    target: str,
    kernel: Kernel | Rung,
    name: str,
    number: int,
    seed: int,
    blocks: Sequence[Dim3],
    excluded: dict[str, Any],
) -> Watch:
    """Record a submission in test ``number`` of an exercise.

    ``excluded`` has the values of the options that can't be combined with --exercise, by name.
    """
    from tilewise.cli import show
    from tilewise.exercises import cases, catalogue
    from tilewise.exercises.running import RefusedError, checked, threads_of
    from tilewise.kernel import Kernel
    from tilewise.lens.watch import watch_case

    given = [option for option, value in excluded.items() if value]
    if given:
        raise ValueError(f"{given[0]} can't be combined with --exercise; leave it out")
    exercise = catalogue.find(name)
    if not isinstance(kernel, Kernel) or kernel.name != exercise.kernel:
        raise ValueError(
            f"the exercise {name} takes a kernel {exercise.kernel}, as FILE.cu:{exercise.kernel}, "
            f"and not {target}"
        )
    test = cases.visible(exercise, number)
    try:
        compiled = checked(exercise, kernel.compile())
    except RefusedError as error:
        raise ValueError(str(error)) from None
    case = cases.make(exercise, test, seed, threads_of(exercise, compiled))
    with show.progress(None, f"running {target}"):
        return watch_case(kernel, case, blocks=blocks)


def page_name(target: str) -> str:
    """Return the name of a kernel's page: a rung's name, or the file and the name.

    The file's folders are part of it, from the working directory if they lie in that, so that two
    files' kernels with one name have two pages.
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


def _sources(names: Sequence[str], *options: Any) -> list[Kernel | Rung]:
    """Return the kernels; options for a file's kernel are not for a rung that is shown
    beside it.
    """
    of_files = [split_target(name) is not None for name in names]
    return [
        the_source(name, *(options if is_file or not any(of_files) else ()))
        for name, is_file in zip(names, of_files, strict=True)
    ]


def _document(found: Sequence[Watch], written: dict[str, Path | None]) -> dict[str, Any]:
    """Return what was watched, whether it is correct, the files written, and what was beside it."""
    one, *others = (_run(each) for each in found)
    beside = {"beside": others[0]} if others else {}
    return {**one, **beside, "written": _paths(written)}


def _paths(written: dict[str, Path | None]) -> dict[str, str]:
    return {name: str(path) for name, path in written.items() if path is not None}


def _run(found: Watch) -> dict[str, Any]:
    trace = found.trace.to_dict()
    return {
        "kernel": trace["kernel"], **(trace["problem"] or {}), "arch": trace["arch"],
        "grid": trace["grid"], "block": trace["block"],
        "blocks": [
            {"index": each["index"], "steps": len(each["steps"]), "cut": each["cut"]}
            for each in trace["blocks"]
        ],
        **as_dict(found.verdict),
        **(
            {"correct": found.correct, "expected": [each.to_dict() for each in found.compared]}
            if found.compared else {}
        ),
    }  # fmt: skip


def _index(text: str, option: str) -> Dim3:
    """Return the index ``2,1`` or ``2,1,0``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        raise ValueError(f"{option} is {text!r}; it takes a block's index as X,Y, for example 2,1")
    x, y, z = (*numbers, 0, 0)[:3]
    return x, y, z
