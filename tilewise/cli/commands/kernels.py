"""Commands on one kernel, or on every rung."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewise.cli.commands.launches import (
    AFTER_FAULT,
    After,
    Args,
    Asked,
    Atol,
    Block,
    Cast,
    Cooperative,
    Expect,
    Force,
    Grid,
    Rtol,
    Shared,
    advising,
    run_launch,
)
from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Arch,
    Device,
    Dtype,
    EmptyK,
    EmptyM,
    EmptyN,
    Json,
    OwnDtype,
    Place,
    Target,
    Tile,
    device_of,
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


def run(
    target: Target,
    m: EmptyM = None,
    n: EmptyN = None,
    k: EmptyK = None,
    a: Annotated[Path | None, typer.Option(help="Matrix A, a .npy file.")] = None,
    b: Annotated[Path | None, typer.Option(help="Matrix B, a .npy file.")] = None,
    c: Annotated[Path | None, typer.Option(help="Matrix C, a .npy file, for beta.")] = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE.npy",
            help="Write the result; with --grid an array, may be given again, or all to a folder.",
        ),
    ] = None,
    tile: Tile = None,
    dtype: OwnDtype = None,
    alpha: Annotated[float, typer.Option(help="C = alpha A B + beta C.")] = 1.0,
    beta: Annotated[float, typer.Option()] = 0.0,
    device: Device = Place.auto,
    arch: Arch = None,
    seed: Annotated[int | None, typer.Option(help="Of random matrices and arrays.")] = None,
    grid: Grid = None,
    block: Block = None,
    args: Args = None,
    shared: Shared = "0",
    expect: Expect = None,
    rtol: Rtol = None,
    atol: Atol = None,
    cast: Cast = False,
    cooperative: Cooperative = False,
    force: Force = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="On the emulator: a note is a finding too.")
    ] = False,
    global_races: Annotated[
        bool,
        typer.Option("--global-races", help="On the emulator: races in global memory too."),
    ] = False,
    include: Include = None,
    define: Define = None,
    undefine: Undefine = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """One kernel on one problem: is it right, and what did it do?

    The matrices are random, or those of --a, --b and --c. Sizes that are not given are 64, or for
    single_thread and single_block 32, and fewer beside a larger one.

    A kernel of any other signature is launched with --grid, --block and --args.

    On the emulator, it lists all faults that it finds within 2 seconds of the first.
    """
    from tilewise.cli import show
    from tilewise.kernel import Kernel
    from tilewise.ladder import matrix_files
    from tilewise.ladder import run as runs
    from tilewise.ladder.prepared import dtype_of, sizes_of
    from tilewise.ladder.problem import random_problem

    asked = Asked(grid, block, args, shared, seed or 0, cast, cooperative)
    after = After(tuple(expect or ()), rtol, atol, tuple(out or ()), force)
    checks = "strict" if strict else "raise"
    kernel = the_source(target, include, trusted, limit, no_limits, define, undefine)
    if asked.is_there:
        product = {
            "-m": m is not None, "-n": n is not None, "-k": k is not None, "--a": a, "--b": b,
            "--c": c, "--tile": tile, "--dtype": dtype, "--alpha": alpha != 1, "--beta": beta,
        }  # fmt: skip
        own = asked.check(target, kernel, product)
        place = own.place(device.value) if arch is None else device_of(device, arch)
        prepared = asked.prepared("run", target, own, place.arch)
        return run_launch(prepared, target, place, after, checks, global_races, as_json)
    after.refuse(target, kernel)
    if out is not None and len(out) > 1:
        raise ValueError("--out is given twice; a product has one result")
    out_file = None if not out else Path(out[0])
    if out_file is not None:
        matrix_files.check_npy_target(out_file)
        if dtype is Dtype.bfloat16:
            raise ValueError(
                ".npy files have no name for bfloat16: --out takes the other dtypes' results"
            )
    given = {"A": a, "B": b, "C": c}
    place = device_of(device, arch)
    if any(given.values()):
        matrices = _read(given, beta, {"-m": m, "-n": n, "-k": k}, dtype, seed)
    else:
        with show.progress(None, "drawing the matrices"):
            sizes = sizes_of(kernel, m, n, k)
            matrices = random_problem(*sizes, dtype_of(kernel, dtype), seed or 0)
    left, right, start = matrices
    if arch is None and isinstance(kernel, Kernel):
        place = kernel.place(device.value)
    with show.block_progress(place, f"running {target}"), advising("run", target, kernel):
        result = runs.run(
            kernel,
            left,
            right,
            start if beta != 0 else None,
            alpha=alpha,
            beta=beta,
            tile=tile,
            device=place,
            checks=checks,
            global_races=global_races,
            after_fault=AFTER_FAULT,
        )
    correct = result.correct
    if out_file is not None and correct:
        matrix_files.save_matrix(out_file, result.result)
    if as_json:
        is_written = out_file is not None and correct
        print_json({**result.to_dict(), "out": str(out_file) if is_written else None})
    else:
        show.run_result(result)
        if out_file is not None:
            print(f"{out_file}: {'C written' if correct else 'not written, the result is wrong'}")
    return RIGHT if correct else WRONG


def _read(
    given: Mapping[str, Path | None],
    beta: float,
    sizes: Mapping[str, int | None],
    dtype: Dtype | None,
    seed: int | None,
) -> tuple[Any, Any, Any]:
    """Return the matrices of --a, --b and --c, checked against the other options."""
    from tilewise.ladder.matrix_files import load_matrix

    for name in ("A", "B"):
        if given[name] is None:
            raise ValueError(
                f"--{name.lower()} is missing: --a and --b go together, and --c with them"
            )
    if beta != 0 and given["C"] is None:
        raise ValueError(f"beta is {beta:g}, so C is read: give it with --c, or leave beta at 0")
    if beta == 0 and given["C"] is not None:
        raise ValueError("--c is given, but beta is 0, so C is not read: give --beta, or no --c")
    if seed is not None:
        raise ValueError("--seed is for random matrices; with --a and --b nothing is random")
    left, right, start = (
        None if path is None else load_matrix(path, name) for name, path in given.items()
    )
    assert left is not None
    assert right is not None
    for option, found in zip(sizes, (left.shape[0], right.shape[1], left.shape[1]), strict=True):
        wanted = sizes[option]
        if wanted is not None and wanted != found:
            raise ValueError(
                f"{option} is {wanted:,}, but the files say {found:,}; "
                "with --a and --b leave it out"
            )
    if dtype is not None and left.dtype != dtype.value:
        raise ValueError(
            f"--dtype is {dtype.value}, but {given['A']} is {left.dtype}; "
            "with --a and --b leave it out"
        )
    return left, right, start


def ladder(
    m: EmptyM = None,
    n: EmptyN = None,
    k: EmptyK = None,
    tile: Tile = None,
    dtype: Annotated[
        Dtype | None,
        typer.Option(help="Of the rungs that take it. By default all rungs, each with its first."),
    ] = None,
    device: Device = Place.auto,
    arch: Arch = None,
    seed: Annotated[int, typer.Option(help="Of the random matrices.")] = 0,
    as_json: Json = False,
) -> int:
    """Every rung on one problem, a row each.

    A size that is not given is 64 on the emulator and 1024 on a GPU. A rung that can't do the
    problem's size runs at one that it can, and its row says which.
    """
    from tilewise.cli import show
    from tilewise.ladder import climb
    from tilewise.ladder.geometry import DEFAULT_SIZE

    place = device_of(device, arch)
    size = 1024 if place.name == "gpu" else DEFAULT_SIZE
    rows, columns, depth = (size if given is None else given for given in (m, n, k))
    kind = None if dtype is None else dtype.value
    problem = climb.Climb(rows, columns, depth, kind, tile, place, seed)
    with show.progress(len(problem.rungs), "ladder") as step:
        document = problem.run(step)
    if as_json:
        print_json(document)
    else:
        show.ladder(document)
    return RIGHT if document["correct"] else WRONG


def demo(device: Device = Place.auto, arch: Arch = None, as_json: Json = False) -> int:
    """Mirror and blur a picture by a product of matrices.

    What is shown is the picture before and after it, and what a tile saves.
    """
    from tilewise.cli import show
    from tilewise.ladder import demo as picture

    place = device_of(device, arch)
    with show.progress(None, "multiplying"):
        found = picture.multiply(place)
    if as_json:
        print_json(found.to_dict())
    else:
        show.demo(found)
    return RIGHT if found.correct else WRONG
