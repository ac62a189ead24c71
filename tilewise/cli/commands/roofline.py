"""The commands on a GPU's ceilings, and on how near a kernel comes to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.launches import (
    Args,
    Asked,
    Block,
    Cast,
    Cooperative,
    Grid,
    Shared,
    advising,
    own_launch,
)
from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Json,
    K,
    M,
    N,
    OwnDtype,
    Tile,
    check_outputs,
    command_line,
    gpus,
    print_json,
    rungs,
    write_record,
)
from tilewise.cli.commands.sources import (
    Define,
    Include,
    Limit,
    NoLimits,
    Trusted,
    Undefine,
    source,
)

if TYPE_CHECKING:
    from tilewise.devices.gpu import Gpu
    from tilewise.kernel import Kernel
    from tilewise.lens.roofline import Ceilings
    from tilewise.specs.run import Prepared

WITHOUT_GPU = "H200"


def roofline(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNG|FILE.cu:NAME ...",
            help="Kernels, as `tilewise run` takes them. By default the rungs of many blocks that "
            "the GPU can run, each with the tile where it takes that.",
            autocompletion=rungs,
        ),
    ] = None,
    m: M = None,
    n: N = None,
    k: K = None,
    dtype: OwnDtype = None,
    tile: Tile = None,
    grid: Grid = None,
    block: Block = None,
    args: Args = None,
    shared: Shared = "0",
    cast: Cast = False,
    cooperative: Cooperative = False,
    seed: Annotated[int, typer.Option(help="Of random arrays.")] = 0,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="GPU",
            help="Whose ceilings, as H100 or rtx4090. By default the GPU's here, or an H200's.",
            autocompletion=gpus,
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            metavar="ARCH",
            help="The architecture to compile for, as sm_80. By default that GPU's own.",
        ),
    ] = None,
    plot_to: Annotated[
        Path | None, typer.Option("--plot", metavar="F.png", help="Draw it; also .svg and .pdf.")
    ] = None,
    include: Include = None,
    define: Define = None,
    undefine: Undefine = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Say the least time that kernels can take on a GPU.

    It says which of the GPU's ceilings sets that time. What the kernels do is counted on the
    emulator, so no GPU is needed. Where the GPU is here, and none other is asked for, they are
    timed on it too.

    A kernel of any other signature is launched with --grid, --block and --args.
    """
    from tilewise.cli import show
    from tilewise.cli.show import roofline as shown
    from tilewise.ladder.matrix_files import check_target
    from tilewise.ladder.prepared import kernel_of
    from tilewise.ladder.rungs import left_out
    from tilewise.lens import roofline_plot
    from tilewise.lens.profiling import check_product

    asked = Asked(grid, block, args, shared, seed, cast, cooperative)
    sources = (include, trusted, limit, no_limits, define, undefine)
    if not asked.is_there:
        if None in (m, n, k):
            _advise(targets or (), sources)
        m, n, k = _sizes(targets or (), (m, n, k), sources)
    if plot_to is not None:
        roofline_plot.check(plot_to)
        check_target(plot_to)
    kernels = [] if asked.is_there else _kernels(targets or (), dtype, tile, sources)
    ceilings, gpu = _place(on)
    arch = _architecture(arch, ceilings)
    if gpu is not None and arch != gpu.arch:
        gpu = None  # it would run other code
    notes: list[str] = []
    if not asked.is_there and not targets:
        kernels, notes = _rungs(arch, dtype, tile), left_out(arch, dtype)
    rows = []
    what: dict[str, Any]
    if asked.is_there:
        if not targets:
            raise ValueError(f"{asked.option} is for FILE.cu:NAME, and no kernel is named")
        product = {"-m": m is not None, "-n": n is not None, "-k": k is not None, "--tile": tile,
                   "--dtype": dtype}  # fmt: skip
        named = [(each, source(each, *sources)) for each in dict.fromkeys(targets)]
        ready = [
            asked.prepared("roofline", each, asked.check(each, kernel, product), arch)
            for each, kernel in named
        ]
        with show.parts(len(ready), "roofline") as step:
            for prepared in ready:
                told = step(prepared.kernel.name)
                rows.append(_row_of_launch(prepared, ceilings, gpu, told))
        what = {
            "m": None, "n": None, "k": None, "dtype": rows[0]["work"]["dtype"],
            "grid": list(ready[0].grid), "block": list(ready[0].block),
        }  # fmt: skip
    else:
        assert m is not None
        assert n is not None
        assert k is not None
        dtypes = {kind for _, kind, _ in kernels}
        what = {"m": m, "n": n, "k": k, "dtype": dtypes.pop() if len(dtypes) == 1 else None}
        # All of them first, so that an error in one comes early.
        for target, kind, edge in kernels:
            text = target if isinstance(target, str) else f"{target.path}:{target.name}"
            with advising("roofline", text, kernel_of(target)):
                check_product(target, m, n, k, dtype=kind, tile=edge, arch=arch)
        with show.parts(len(kernels), "roofline") as step:
            for target, kind, edge in kernels:
                told = step(target if isinstance(target, str) else target.name)
                rows.append(_row(target, (m, n, k), kind, edge, ceilings, arch, gpu, told))
    document: dict[str, Any] = {
        **what,
        "arch": arch,
        "ceilings": ceilings.to_dict(),
        "measured": gpu is not None,
        "correct": all(row["correct"] for row in rows),
        "notes": notes,
        "kernels": rows,
    }
    if plot_to is not None:
        draw(document, ceilings, plot_to)
    if as_json:
        print_json({**document, "plot": None if plot_to is None else str(plot_to)})
    else:
        shown.roofline(document)
        if plot_to is not None:
            print(f"{plot_to}: drawn")
    return RIGHT if document["correct"] else WRONG


def _advise(targets: Sequence[str], sources: tuple[Any, ...]) -> None:
    """Raise an error that explains how to launch a kernel that does not compute a product.

    Raises
    ------
    ValueError
        If there is such a kernel; or if a target can't be read.
    """
    for target in targets:
        if told := own_launch("roofline", target, source(target, *sources)):
            raise ValueError(told)


def _sizes(
    targets: Sequence[str],
    given: tuple[int | None, int | None, int | None],
    sources: tuple[Any, ...],
) -> tuple[int, int, int]:
    """Return the sizes of a product: those given, and for the rest the targets' own.

    The targets' own sizes are those of `tilewise run`; for several targets the largest, and for
    none those of most rungs.
    """
    from tilewise.ladder.geometry import DEFAULT_SIZE
    from tilewise.ladder.prepared import sizes_of
    from tilewise.ladder.problem import check_sizes

    own = [sizes_of(source(target, *sources), *given) for target in dict.fromkeys(targets)]
    usual = [DEFAULT_SIZE if size is None else size for size in given]
    m, n, k = (max(of) for of in zip(*own, strict=True)) if own else usual
    check_sizes(m, n, k)
    return m, n, k


def _kernels(
    targets: Sequence[str], dtype: str | None, tile: int | None, sources: tuple[Any, ...]
) -> list[tuple[str | Kernel, str, int | None]]:
    """Return the kernels, and each one's dtype and tile; raise an error for any fault in them."""
    from tilewise.ladder.prepared import dtype_of
    from tilewise.ladder.rungs import Rung

    found: list[tuple[str | Kernel, str, int | None]] = []
    for target in dict.fromkeys(targets):
        kernel = source(target, *sources)
        kind = dtype_of(kernel, dtype)
        if isinstance(kernel, Rung) and not (kernel.tile_by_size and tile is None):
            found.append((target, kind, kernel.tile(tile)))
        else:
            found.append((target if isinstance(kernel, Rung) else kernel, kind, tile))
    return found


def _rungs(
    arch: str, dtype: str | None, tile: int | None
) -> list[tuple[str | Kernel, str, int | None]]:
    """Return the rungs of many blocks that an architecture runs, with dtypes and tiles."""
    from tilewise.errors import LaunchError
    from tilewise.ladder.rungs import left_out, rungs_of, tile_each

    edges = tile_each(tile)
    found: list[tuple[str | Kernel, str, int | None]] = [
        (rung.name, rung.dtype(dtype), edges[rung.name] if tile or not rung.tile_by_size else None)
        for rung in rungs_of(dtype)
        if rung.tiles and rung.runs_on(arch)
    ]
    if not found:
        raise LaunchError(f"no rung of {dtype}: {'; '.join(left_out(arch, dtype))}")
    return found


def _place(on: str | None) -> tuple[Ceilings, Gpu | None]:
    """Return the ceilings, and the GPU to time kernels on, if it is in this machine."""
    from tilewise.devices import get_device
    from tilewise.devices.gpu import Gpu
    from tilewise.lens.roofline import find, for_gpu

    ceilings = None if on is None else find(on)
    here = get_device("auto")
    if not isinstance(here, Gpu):
        return ceilings or find(WITHOUT_GPU), None
    if ceilings is None:
        return for_gpu(here.description), here
    try:
        return ceilings, here if for_gpu(here.description) == ceilings else None
    except ValueError:  # a GPU that is not known has no ceilings to be theirs
        return ceilings, None


def _architecture(asked: str | None, ceilings: Ceilings) -> str:
    """Return the architecture to compile for, so that the code runs on the ceilings' GPU."""
    from tilewise.compiler import architectures
    from tilewise.devices.emulated import emulator
    from tilewise.devices.limits import best_architecture, compute_capability

    capability = compute_capability(ceilings.arch)
    if asked is None:
        return best_architecture(capability, architectures())
    arch = emulator(asked).arch
    if compute_capability(arch) > capability:
        raise ValueError(
            f"--arch is {arch}, and {ceilings.name} is {ceilings.arch}, which does not run code "
            "for later ones; --on names another GPU"
        )
    return arch


def _row(
    target: str | Kernel,
    sizes: tuple[int, int, int],
    dtype: str,
    tile: int | None,
    ceilings: Ceilings,
    arch: str,
    gpu: Gpu | None,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    from tilewise.ladder.problem import random_problem
    from tilewise.ladder.run import run
    from tilewise.lens.profiling import profile as profile_product
    from tilewise.lens.roofline import bound

    m, n, k = sizes
    profile = profile_product(target, m, n, k, dtype=dtype, tile=tile, arch=arch, progress=progress)
    found = bound(profile.work, ceilings)
    row: dict[str, Any] = {
        "kernel": profile.kernel,
        "file": profile.file,
        "dtype": dtype,
        "tile": None if profile.problem is None else profile.problem["tile"],
        **found.to_dict(),
        "seconds": None,
        "share": None,
        "correct": profile.correct,
        "checked": profile.check is not None,
    }
    if gpu is not None:
        a, b, _ = random_problem(m, n, k, dtype, 0)
        result = run(target, a, b, tile=tile, device=gpu)
        assert result.report is not None  # C has elements
        row["seconds"] = result.report.seconds
        row["share"] = found.share(result.report.seconds)
        row["correct"] = profile.correct and result.correct
        row["checked"] = True
    return row


def _row_of_launch(
    prepared: Prepared,
    ceilings: Ceilings,
    gpu: Gpu | None,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return the row of a launch that is not a product, whose result is not checked."""
    from tilewise.lens.profiling import profile_prepared
    from tilewise.lens.roofline import bound
    from tilewise.specs.run import launch

    profile = profile_prepared(prepared, progress=progress)
    found = bound(profile.work, ceilings)
    seconds = None if gpu is None else launch(prepared, device=gpu).report.seconds
    return {
        "kernel": profile.kernel, "file": profile.file, "dtype": None,
        "tile": None, **found.to_dict(),
        "seconds": seconds, "share": None if seconds is None else found.share(seconds),
        "correct": profile.correct, "checked": False,
    }  # fmt: skip


def draw(document: dict[str, Any], ceilings: Ceilings, path: Path) -> None:
    from tilewise.cli.show.console import labels
    from tilewise.cli.show.roofline import dtypes_of, what_is_done
    from tilewise.lens.roofline import roof_of
    from tilewise.lens.roofline_plot import Point, draw, intensities

    names = labels([(row["kernel"], row["file"]) for row in document["kernels"]])
    points = [
        Point(
            name,
            intensities(row["work"]),
            row["work"]["flops"] / row["seconds"] if row["seconds"] else row["best_flops"],
            roof_of(row["work"]),
            row["binding"],
            row["best_flops"] if row["seconds"] else None,
        )
        for row, name in zip(document["kernels"], names, strict=True)
    ]
    title = f"{what_is_done(document)}, {dtypes_of(document)}, on {ceilings.name}"
    note = (
        "Marks: as measured. Bars: the most that the binding ceiling allows. Percent: the share of "
        "that."
        if document["measured"]
        else "The most that each kernel's work allows, and the ceiling that binds it."
    )
    draw(points, ceilings, title, note, path)


def ceilings(
    seconds: Annotated[float, typer.Option(help="How long each is measured.")] = 1.0,
    record_to: Annotated[
        Path | None,
        typer.Option("--json", metavar="F", help="Write what was measured; - prints it."),
    ] = None,
) -> int:
    """Measure what the GPU here can do at most.

    Measured are its memories, its schedulers, its arithmetic and its tensor cores.
    """
    from tilewise.cli import show
    from tilewise.cli.show import roofline as shown
    from tilewise.devices import get_device
    from tilewise.devices.gpu import Gpu
    from tilewise.lens.ceilings import STEPS, measure
    from tilewise.lens.roofline import datasheet

    if not 0 < seconds <= 3600:
        raise ValueError(f"--seconds is {seconds:g}; it must be positive, and at most 3600")
    check_outputs(record_to)
    gpu = get_device("gpu")
    assert isinstance(gpu, Gpu)
    command = command_line("ceilings", {"--seconds": seconds})
    with show.progress(STEPS, "ceilings") as step:
        found = measure(gpu, seconds, step, command)
    if str(record_to) == "-":
        print_json(found.to_dict())
        return RIGHT
    shown.ceilings(found, datasheet(found.name))
    if record_to is not None:
        write_record(found.to_dict(), record_to)
    return RIGHT
