"""The kernels of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from tilewise.cli.show.console import console, first_error
from tilewise.cli.usage import with_options
from tilewise.shown import number, plural

if TYPE_CHECKING:
    from tilewise.listed import ListedKernel, ListedLaunch

_MOST = 6  # instances of a template that are shown
_INDENT = (0, 0, 0, 4)


def listing(
    kernels: Sequence[ListedKernel], files: Sequence[str], arch: str | None, default: str
) -> None:
    """Print each kernel with its parameters, its place, and whether it compiles.

    Parameters
    ----------
    kernels, files
    arch : str or None
        The architecture that was asked for. Without one, PTX was compiled for its own target, and
        CUDA C++ for ``default``.
    default : str
    """
    out = console()
    if not kernels:
        out.print(
            f"{', '.join(files)}: no kernel (__global__ function, or .entry of PTX)", markup=False
        )
        return
    for kernel in kernels:
        if not kernel.name:
            out.print(Text(kernel.file, "bold"))
            out.print(Padding(kernel.problem.splitlines()[0], _INDENT, expand=False), markup=False)
            continue
        out.print(Text.assemble((kernel.name, "bold"), f"({', '.join(kernel.parameters)})"))
        for line in _lines(kernel, arch or kernel.target or default):
            out.print(Padding(line, _INDENT, expand=False), markup=False)
    tried = [kernel for kernel in kernels if kernel.compiles is not None]
    told = f"{plural(sum(bool(k.name) for k in kernels), 'kernel')}"
    if tried:
        told += (
            f", of which {number(sum(map(bool, (k.compiles for k in tried))))} compile for "
            + ", ".join(dict.fromkeys(arch or k.target or default for k in tried))
        )
    if unread := sum(not kernel.name for kernel in kernels):
        told += f"; {plural(unread, 'file')} can't be read"
    out.print()
    out.print(told)


def _lines(kernel: ListedKernel, arch: str) -> list[str]:
    """Return the lines on a kernel besides its parameters."""
    place = f"{kernel.source}:{kernel.line}"
    if kernel.file != kernel.source:
        place += f", as {kernel.file}:{kernel.name}"
    lines = [place]
    if kernel.target:
        lines.append(f"PTX for {kernel.target}")
    if kernel.template:
        lines.append(f"template <{', '.join(kernel.template)}>")
    if kernel.launch_bounds:
        lines.append(f"launch bounds {kernel.launch_bounds}")
    if kernel.cluster_dims:
        lines.append(f"cluster dimensions {kernel.cluster_dims}")
    if kernel.instances:
        shown = ", ".join(kernel.instances[:_MOST])
        more = len(kernel.instances) - _MOST
        lines.append(f"launched as {shown}{f' and {more} more' if more > 0 else ''}")
    lines += map(_launch, kernel.launches[:_MOST])
    if len(kernel.launches) > _MOST:
        lines.append(f"and {len(kernel.launches) - _MOST} more launches")
    if kernel.compiles is None:
        if kernel.template and not kernel.instances:
            lines.append("a template that the file does not launch: ask for NAME<...>")
    elif kernel.compiles:
        lines.append("compiles" if kernel.tried == kernel.name else f"compiles as {kernel.tried}")
    else:
        told = with_options(first_error(kernel.problem))
        lines.append(f"does not compile for {arch}: {told}")
    return lines + [f"note: {with_options(note)}" for note in kernel.notes]


def _launch(launch: ListedLaunch) -> str:
    """Return the line at which a file launches a kernel, and the launch's grid and block."""
    known = [
        f"{what} {' x '.join(map(str, extents[: 3 if extents[2] > 1 else 2]))}"
        for what, extents in (("grid", launch.grid), ("block", launch.block))
        if extents is not None
    ]
    told = f": {', '.join(known)}" if known else ""
    return f"{launch.file}:{launch.line} launches it as {launch.text}{told}"
