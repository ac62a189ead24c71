"""Kernels of a file, as the command line names them: what they may read, and what they may take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.limits import MOST, Limits

if TYPE_CHECKING:
    from tilewise.kernel import Kernel
    from tilewise.ladder.rungs import Rung

Include = Annotated[
    list[Path] | None,
    typer.Option(
        "--include",
        metavar="DIR",
        help="A folder that FILE.cu may include from, beside its own; may be given again.",
    ),
]
Trusted = Annotated[
    bool, typer.Option("--trusted", help="FILE.cu may include any file of this machine.")
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=MOST",
        help="What FILE.cu may take: seconds, instructions, memory or output, as memory=2G; may be "
        "given again. By default seconds=60, memory=4G and output=1M.",
    ),
]
NoLimits = Annotated[bool, typer.Option("--no-limits", help="FILE.cu may take what it will.")]

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def source(
    target: str,
    include: Sequence[Path] | None = None,
    is_trusted: bool = False,
    limit: Sequence[str] | None = None,
    has_no_limits: bool = False,
) -> Kernel | Rung:
    """The rung of a name, or the kernel of ``FILE.cu:NAME`` within its limits.

    Raises
    ------
    FileNotFoundError, ValueError
        As :func:`tilewise.ladder.run.named`; or if a limit is none.
    """
    from tilewise.ladder.run import named

    limits = None if has_no_limits else limits_of(limit or ())
    if has_no_limits and limit:
        raise ValueError("--limit and --no-limits say the opposite; give one of them")
    return named(target, include=tuple(include or ()), trusted=is_trusted, limits=limits)


def the_source(
    target: str,
    include: Sequence[Path] | None = None,
    is_trusted: bool = False,
    limit: Sequence[str] | None = None,
    has_no_limits: bool = False,
) -> Kernel | Rung:
    """As :func:`source`, of the one target of a command.

    Raises
    ------
    FileNotFoundError, ValueError
        As :func:`source`; or if a rung is given what is for a file's kernel.
    """
    found = source(target, include, is_trusted, limit, has_no_limits)
    given = {
        "--include": include, "--trusted": is_trusted, "--limit": limit,
        "--no-limits": has_no_limits,
    }  # fmt: skip
    options = [option for option, value in given.items() if value]
    if options and ".cu:" not in target:
        raise ValueError(f"{options[0]} is for FILE.cu:NAME; {target} is a rung of the ladder")
    return found


def limits_of(limit: Sequence[str]) -> Limits:
    """The limits that ``NAME=MOST`` set, beside those that hold anyway.

    Raises
    ------
    ValueError
        If one is not of that form, or no number above 0.
    """
    given: dict[str, Any] = {}
    names = [each.name for each in fields(Limits)]
    for each in limit:
        name, _, most = each.partition("=")
        example = "10" if name == "seconds" else "2G"
        unit = "" if name == "seconds" else "[KMG]?"
        number = re.fullmatch(rf"(\d+(?:\.\d+)?(?:e\d+)?)({unit})", most)
        if name not in names or number is None:
            raise ValueError(
                f"--limit is {each!r}; it takes {', '.join(names)}, as {name}={example}"
                if name in names
                else f"--limit is {each!r}; it takes one of {', '.join(names)}, as seconds=10"
            )
        value = float(number[1]) * _SIZES[number[2]]
        if value > MOST[name]:
            raise ValueError(f"--limit is {each!r}; {name} takes at most {MOST[name]:,}")
        given[name] = value if name == "seconds" else int(value)
    return Limits(**given)
