"""The commands on tile sizes and on occupancy. They need no GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.options import (
    RIGHT,
    Json,
    OwnDtype,
    Real,
    RequiredK,
    RequiredM,
    RequiredN,
    Tile,
    print_json,
    rungs,
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
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.kernel import Kernel
    from tilewise.ladder.rungs import Rung
    from tilewise.places import Dim3


def tiles(
    m: RequiredM,
    n: RequiredN,
    k: RequiredK,
    dtype: Annotated[Real, typer.Option(help="Of all three matrices.")] = Real.float32,
    arch: Annotated[str, typer.Option("--arch", metavar="ARCH", help="Of the GPU.")] = "sm_90",
    registers: Annotated[
        int, typer.Option(help="That a thread takes, whatever the tile; 0 leaves them out.")
    ] = 0,
    as_json: Json = False,
) -> int:
    """Say what each size of tile loads and takes; nothing is run.

    It says too how often what is loaded is reused. The square tiles are the ladder's; the others
    have a tile of C for each thread, in registers.
    """
    from tilewise.cli.show import tiles as show
    from tilewise.lens.tiles import tiles as table

    rows = table(m, n, k, dtype.value, arch, registers=registers)
    if as_json:
        sizes = {"m": m, "n": n, "k": k, "dtype": dtype.value}
        settings = {"arch": arch, "registers": registers}
        print_json({**sizes, **settings, "tiles": [row.to_dict() for row in rows]})
    else:
        show.tiles(rows)
    return RIGHT


def occupancy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|FILE.cu:NAME",
            help="A rung of the ladder, or any kernel.",
            autocompletion=rungs,
        ),
    ],
    tile: Tile = None,
    block: Annotated[
        str | None,
        typer.Option(
            metavar="X[,Y[,Z]]",
            help="Threads a block. By default the rung's; for another kernel of products "
            "TILE,TILE; for any other kernel those of the launch in its file, or of its launch "
            "bounds.",
        ),
    ] = None,
    dtype: OwnDtype = None,
    shared: Annotated[
        int, typer.Option(metavar="BYTES", help="Dynamic shared memory a block.")
    ] = 0,
    arch: Annotated[
        list[str] | None,
        typer.Option(
            "--arch",
            metavar="ARCH",
            help="As sm_90; may be given again. By default all that are known; for PTX its own.",
        ),
    ] = None,
    include: Include = None,
    define: Define = None,
    undefine: Undefine = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Say how many blocks of a kernel a multiprocessor holds.

    It says so by architecture, with what limits them. The kernel is compiled for each; the rest is
    NVIDIA's tables. No GPU is needed.
    """
    from tilewise.cli.show import tiles as show
    from tilewise.devices.limits import MAX_BLOCK
    from tilewise.errors import CompileError
    from tilewise.ladder.prepared import dtype_of
    from tilewise.ladder.rungs import Rung
    from tilewise.ladder.signature import takes_product
    from tilewise.launch import dim3

    if shared < 0:
        raise ValueError(f"--shared is {shared}; it must be at least 0 bytes")
    threads = None if block is None else dim3(_extents(block), "--block")
    for axis, extent, most in zip("xyz", threads or (), MAX_BLOCK, strict=False):
        if extent > most:
            raise ValueError(f"--block is {block}; along {axis} a block has at most {most:,}")
    found = source(target, include, trusted, limit, no_limits, define, undefine)
    alone = None if tile or dtype else _as_it_is(found)
    if alone is not None and threads is None and takes_product(alone.compile()):
        alone = None  # it computes a product, and has a tile
    if alone is None:
        real = dtype_of(found, dtype)
        kernel, edge, own, of_rung = _kernel(found, real, tile)
        shared += of_rung
    else:
        kernel, edge, own, real = alone, None, (1, 1, 1), None
    told = ""
    if threads is None and not isinstance(found, Rung) and not tile and _is_other(kernel):
        threads, told = _own_block(kernel)
        edge = None
    document: dict[str, Any] = {
        "kernel": kernel.name,
        "tile": edge,
        "dtype": real,
        "block": list(threads or own),
        "threads": math.prod(threads or own),
        "block_from": told,
        "dynamic_shared_bytes": shared,
    }
    try:
        document |= _rows(kernel, document["threads"], shared, arch)
    except CompileError:
        if alone is None and not isinstance(found, Rung) and _as_it_is(found) is not None:
            raise ValueError(
                f"--block is missing: {found.name} does not compile with the macros of a product, "
                "real and TILE, so its block is not known; as --block 256"
            ) from None
        raise
    if as_json:
        print_json(document)
    else:
        show.occupancy(document)
    return RIGHT


def _extents(block: str) -> list[int]:
    try:
        return [int(extent) for extent in block.split(",")]
    except ValueError:
        raise ValueError(f"--block is {block!r}; it takes the form 16,16") from None


def _as_it_is(target: Kernel | Rung) -> Kernel | None:
    """Return a file's kernel that needs no macros of a product; None of another."""
    from tilewise.errors import CompileError
    from tilewise.ladder.rungs import Rung

    if isinstance(target, Rung):
        return None
    try:
        target.compile()
    except CompileError:
        return None
    return target


def _is_other(kernel: Kernel) -> bool:
    """Return whether a kernel compiles, and does not have the signature of a product."""
    from tilewise.errors import CompileError
    from tilewise.ladder.signature import takes_product

    try:
        return not takes_product(kernel.compile())
    except CompileError:
        return False


def _own_block(kernel: Kernel) -> tuple[Dim3, str]:
    """Return the block with which a kernel's own file launches it, and where that is written."""
    from tilewise.compiler.names import signature
    from tilewise.specs.advice import known_block

    compiled = kernel.compile()
    block, told = known_block(kernel, compiled)
    if block is None:
        raise ValueError(
            f"--block is missing, as --block 256: {signature(compiled)} has no launch bounds, and "
            + (told or "its file does not launch it")
        )
    return block, told


def _kernel(
    target: Kernel | Rung, dtype: str, tile: int | None
) -> tuple[Kernel, int | None, Dim3, int]:
    """Return the kernel, its tile, its block, and its bytes of dynamic shared memory."""
    import numpy as np

    from tilewise.ladder.prepared import prepare
    from tilewise.ladder.problem import Gemm
    from tilewise.precision import dtype_of

    # For a C of 32 x 32: the largest block of a rung with one thread for each element.
    kind = dtype_of(dtype)
    gemm = Gemm.of(np.empty((32, 1), kind), np.empty((1, 32), kind))
    prepared = prepare(target, gemm, tile)
    return prepared.kernel, prepared.tile, prepared.geometry[1], prepared.shared


def _rows(
    kernel: Kernel, threads: int, shared: int, asked: Sequence[str] | None
) -> dict[str, list[Any]]:
    """Return a row for each architecture, those left out with the reason, and notes on headers.

    An architecture is left out only if it was not asked for by name.
    """
    from tilewise import compiler
    from tilewise.cli import show
    from tilewise.devices.limits import best_architecture, compute_capability
    from tilewise.devices.occupancy import ARCHITECTURES, multiprocessor
    from tilewise.devices.occupancy import occupancy as reckon
    from tilewise.errors import CompileError, LaunchError

    known = compiler.architectures()
    # By default PTX is compiled only for its own target, and for others if they are named; CUDA C++
    # as for a GPU of each capability, with the instructions that only this one has.
    own = [best_architecture(compute_capability(x), known) for x in ARCHITECTURES if x in known]
    wanted = asked or ([kernel.arch] if kernel.is_ptx else own)
    places = [multiprocessor(arch) for arch in dict.fromkeys(wanted)]
    rows: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    refused: Exception | None = None
    with show.progress(len(places), "compiling") as step:
        for place in places:
            step(place.name)
            try:
                compiled = kernel.compile(place.name)
                resources = compiled.resources
                if resources.missing:
                    raise ValueError(
                        f"the registers of {kernel.name} are not known: {resources.missing}"
                    )
                total = resources.shared_bytes + shared
                if total > place.max_shared:
                    raise ValueError(
                        f"--shared is {plural(shared, 'byte')}, and {kernel.name} has "
                        f"{resources.shared_bytes:,} of its own; a block of {place.name} has at "
                        f"most {place.max_shared:,}"
                    )
                found = reckon(
                    place, threads, resources.registers, total, barriers=resources.barriers
                )
            except (CompileError, LaunchError, ValueError) as error:
                if asked:
                    raise
                refused = error
                left_out.append({"arch": place.name, "why": str(error)})
            else:
                rows.append(found.to_dict())
                notes.update(dict.fromkeys(compiled.remarks))
    if refused is not None and not rows:
        raise refused
    return {"rows": rows, "left_out": left_out, "notes": list(notes)}
