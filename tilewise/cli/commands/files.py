"""The command that multiplies matrices in files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewise.cli.commands.options import RIGHT, WRONG, Json, print_json


class Where(StrEnum):
    auto = "auto"
    gpu = "gpu"
    host = "host"


def multiply(
    a: Annotated[Path, typer.Argument(metavar="A.npy", help="m x k.", readable=False)],
    b: Annotated[
        Path, typer.Argument(metavar="B.npy", help="k x n, of A's dtype.", readable=False)
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="C.npy", help="Where the product goes."),
    ],
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The most of the host's memory that the pieces take, as 4GB or 512MiB. By default "
            "the free memory, less 1 GiB.",
        ),
    ] = None,
    max_gpu_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The most of the GPU's memory that they take. By default its free memory, less a "
            "reserve.",
        ),
    ] = None,
    device: Annotated[
        Where,
        typer.Option(help="auto takes the GPU if there is one, and else the host; host is NumPy."),
    ] = Where.auto,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted run of the same product."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace C.npy if it exists.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check a sample of C against float64.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Multiply matrices in .npy files, larger than memory, by pieces.

    Pieces go through memory in the order that reads and writes the fewest bytes. C.npy appears when
    all of it is on the disk. An interrupted run leaves files beside it, for --resume.
    """
    from contextlib import nullcontext

    from tilewise.cli import show
    from tilewise.files.multiply import multiply_files

    # The time that remains is told from the last ten minutes: a piece may take one of them.
    with nullcontext() if as_json else show.counting("multiply", 600) as step:
        found = multiply_files(
            a, b, out, memory=memory, max_gpu_memory=max_gpu_memory, device=device.value,
            force=force, resume=resume, check=check, progress=step,
        )  # fmt: skip
    if as_json:
        print_json(found.to_dict())
    else:
        show.multiplied(found)
    return RIGHT if found.correct else WRONG
