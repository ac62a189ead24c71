"""The command that lists kernels: the ladder's, or those of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.options import RIGHT, Arch, Json, print_json
from tilewise.cli.commands.sources import Include, Limit, NoLimits, Trusted, limits_of
from tilewise.targets import split_target

if TYPE_CHECKING:
    from tilewise.listed import ListedKernel


def kernels(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.cu|FILE.ptx|FOLDER|FILE.cu:NAME ...]",
            help="Files of CUDA C++ or PTX, or folders of them. By default the ladder's rungs.",
        ),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile/--no-compile",
            help="Of files: say of each kernel whether it compiles, a template as the first of the "
            "instances that the files launch.",
        ),
    ] = True,
    arch: Arch = None,
    include: Include = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """List the rungs of the ladder, or the kernels of files.

    Of each rung: what it does, the tiles it takes, and what running it shows. The counters are
    those of a product of 512 x 512 x 512 in float32, as the emulator counts them. Of each kernel of
    a file: its template's parameters, its own, where it stands, and whether it compiles.
    """
    from tilewise.cli import show
    from tilewise.compiler import DEFAULT_ARCH
    from tilewise.ladder.rungs import RUNGS

    if files:
        limits = None if no_limits else limits_of(limit or ())
        with show.progress(None, "compiling") as step:
            options = {"include": include or (), "trusted": trusted, "limits": limits}
            found = _listed(files, compiled, arch, {**options, "done": step})
        if as_json:
            print_json({"kernels": [each.to_dict() for each in found]})
        else:
            show.listing(found, files, arch, DEFAULT_ARCH)
    elif as_json:
        print_json({"kernels": [rung.to_dict() for rung in RUNGS]})
    else:
        show.kernels(RUNGS)
    return RIGHT


def _listed(
    targets: Sequence[str], compiled: bool, arch: str | None, options: Mapping[str, Any]
) -> list[ListedKernel]:
    """Return the kernels of files and folders, and of ``FILE.cu:NAME`` those of that name."""
    from tilewise.listing import list_kernels

    whole = [each for each in targets if split_target(each) is None]
    found = list(list_kernels(whole, compiled=compiled, arch=arch, **options)) if whole else []
    for file, name in filter(None, map(split_target, targets)):
        if not name.strip():
            raise ValueError(f"'{file}:{name}' names no kernel; write {file}:NAME, or {file} alone")
        found += list_kernels(file, compiled=compiled, arch=arch, name=name, **options)
    return found
