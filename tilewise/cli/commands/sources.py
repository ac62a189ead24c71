"""The kernels of a file on the command line: what they may read, and their limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.limits import MOST, Limits
from tilewise.targets import split_target

if TYPE_CHECKING:
    from tilewise.kernel import Kernel
    from tilewise.ladder.rungs import Rung

Include = Annotated[
    list[Path] | None,
    typer.Option(
        "-I",
        "--include",
        metavar="DIR",
        help="A folder that FILE.cu may include from, beside its own; may be given again.",
    ),
]
Define = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        "--define",
        metavar="NAME[=VALUE]",
        help="A macro for FILE.cu, as -D TILE=16; may be given again.",
    ),
]
Undefine = Annotated[
    list[str] | None,
    typer.Option(
        "-U", "--undefine", metavar="NAME",
        help="A macro that is not defined, where a header that is not found might define it; may "
        "be given again.",
    ),
]  # fmt: skip
Trusted = Annotated[
    bool, typer.Option("--trusted", help="FILE.cu may include any file of this machine.")
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=MOST",
        help="The most that FILE.cu may take: seconds, instructions, or bytes of memory or output; "
        "may be given again. K, M and G: of instructions 10^3, 10^6 and 10^9, of bytes 2^10, 2^20 "
        "and 2^30. By default seconds=60, memory=4G and output=1M.",
    ),
]
NoLimits = Annotated[bool, typer.Option("--no-limits", help="FILE.cu may take what it will.")]

_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_UNITS = {"seconds": {"": 1}, "instructions": _COUNTS, "memory": _BYTES, "output": _BYTES}
"""The factor of a letter after a limit's number, in either case."""
_TAKES = {
    "seconds": "a number of seconds above 0, as seconds=10",
    "instructions": "a count; K, M and G are 10^3, 10^6 and 10^9, as instructions=5M",
    "memory": "bytes; K, M and G are 2^10, 2^20 and 2^30, as memory=2G",
    "output": "bytes; K, M and G are 2^10, 2^20 and 2^30, as output=64K",
}


def source(
    target: str,
    include: Sequence[Path] | None = None,
    is_trusted: bool = False,
    limit: Sequence[str] | None = None,
    has_no_limits: bool = False,
    define: Sequence[str] | None = None,
    undefine: Sequence[str] | None = None,
) -> Kernel | Rung:
    """Return the rung with a name, or the kernel of ``FILE.cu:NAME`` or ``FILE.ptx:NAME``.

    Raises
    ------
    FileNotFoundError, ValueError
        As in :func:`tilewise.ladder.prepared.named`; or if a folder does not exist, or a limit or a
        macro is invalid.
    """
    from tilewise.ladder.prepared import named

    for folder in include or ():
        if not folder.is_dir():
            what = "it is a file" if folder.exists() else "there is no such folder"
            raise FileNotFoundError(f"--include is {folder}: {what}")
    limits = None if has_no_limits else limits_of(limit or ())
    if has_no_limits and limit:
        raise ValueError("--limit and --no-limits say the opposite; give one of them")
    return named(
        target, include=tuple(include or ()), trusted=is_trusted, limits=limits,
        defines=macros_of(define or (), undefine or ()),
    )  # fmt: skip


def the_source(
    target: str,
    include: Sequence[Path] | None = None,
    is_trusted: bool = False,
    limit: Sequence[str] | None = None,
    has_no_limits: bool = False,
    define: Sequence[str] | None = None,
    undefine: Sequence[str] | None = None,
) -> Kernel | Rung:
    """Return what :func:`source` does, for the only target of a command.

    Raises
    ------
    FileNotFoundError, ValueError
        As in :func:`source`; or if a rung gets an option for a file's kernel.
    """
    found = source(target, include, is_trusted, limit, has_no_limits, define, undefine)
    given = {
        "--include": include, "--trusted": is_trusted, "--limit": limit,
        "--no-limits": has_no_limits, "-D": define, "-U": undefine,
    }  # fmt: skip
    options = [option for option, value in given.items() if value]
    if options and split_target(target) is None:
        raise ValueError(
            f"{options[0]} is for FILE.cu:NAME or FILE.ptx:NAME; {target} is a rung of the ladder"
        )
    return found


def macros_of(define: Sequence[str], undefine: Sequence[str] = ()) -> dict[str, Any]:
    """Return the macros that ``NAME=VALUE`` and ``NAME`` set; whole numbers as such.

    Those of ``undefine`` are False: not defined.

    Raises
    ------
    ValueError
        If one is not of that form, is set twice, or is both defined and not.
    """
    found: dict[str, Any] = {}
    for each in define:
        name, mark, value = each.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"-D is {each!r}; it takes NAME=VALUE or NAME, as TILE=16")
        if name in found:
            raise ValueError(f"-D {name} is given twice")
        found[name] = (int(value) if re.fullmatch(r"-?\d+", value) else value) if mark else True
    for name in undefine:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"-U is {name!r}; it takes a macro's name, as FAST")
        if found.get(name, False) is not False:
            raise ValueError(f"-D {name} and -U {name} say the opposite; give one of them")
        found[name] = False
    return found


def limits_of(limit: Sequence[str]) -> Limits:
    """Return the limits that ``NAME=MOST`` set, beside those that hold anyway.

    Raises
    ------
    ValueError
        If one is not of that form, or no number above 0.
    """
    given: dict[str, Any] = {}
    names = [each.name for each in fields(Limits)]
    for each in limit:
        name, _, most = each.partition("=")
        if name not in names:
            raise ValueError(
                f"--limit is {each!r}; it takes one of {', '.join(names)}, as seconds=10"
            )
        number = re.fullmatch(
            r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)([KMG]?)", most, re.IGNORECASE
        )
        if number is None or number[2].upper() not in _UNITS[name]:
            raise ValueError(f"--limit is {each!r}; {name} takes {_TAKES[name]}")
        value = float(number[1]) * _UNITS[name][number[2].upper()]
        if value > MOST[name]:
            raise ValueError(f"--limit is {each!r}; {name} takes at most {MOST[name]:,}")
        given[name] = value if name == "seconds" else int(value)
    return Limits(**given)
