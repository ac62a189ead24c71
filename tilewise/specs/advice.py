"""Suggest a command line that launches a kernel."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewise.compiler import Compiled, Parameter
from tilewise.compiler.names import declarations
from tilewise.compiler.ptx.module import module_of
from tilewise.compiler.source.launches import HostLaunch
from tilewise.devices import arguments as rules
from tilewise.devices import elements
from tilewise.devices.limits import MAX_THREADS
from tilewise.kernel import Kernel
from tilewise.listing import launches_of
from tilewise.places import Dim3
from tilewise.specs.arguments import names_of

_SIZE, _EDGE = 1024, 32  # sizes for a kernel with one integer, and for one with more
_THREADS, _SQUARE = 256, 16
_MOST_THREADS = 1 << 17
"""A launch in the file that has more is suggested with smaller sizes: to emulate it takes long."""
_MOST_ELEMENTS = 1 << 24
_WIDEST = 8  # bytes of an element of shared memory
_MOST_FACTOR = 32  # the most that a small size is multiplied by, to fill a block's tile


@dataclass(frozen=True)
class Advice:
    """A suggestion of how to launch a kernel.

    Attributes
    ----------
    options : str
        The options of ``tilewise run``, quoted for a shell.
    told : str
        The launch in the file that they follow, or the one that could not be followed; empty if the
        file's host code does not launch the kernel.
    """

    options: str
    told: str


@dataclass(frozen=True)
class _Geometry:
    """A launch's grid, block and dynamic shared memory, and the values of its numbers."""

    grid: Dim3
    block: Dim3
    shared: int
    numbers: Mapping[str, int | float]

    @property
    def threads(self) -> int:
        """The number of threads of the whole grid."""
        return math.prod(self.grid) * math.prod(self.block)


def advice(kernel: Kernel, compiled: Compiled) -> Advice:
    """Suggest how to launch a kernel.

    Grid, block and numbers are those with which its own file launches it, if they are known without
    running the file's host code and the emulator runs them in a moment. Otherwise the sizes are
    small. How the kernel uses its arrays is not known: they get as many elements as its only
    integer says, or the product of the two largest integers, and at least one for each thread. A
    dynamic shared array whose size is not in the file gets 8 bytes for each thread. A launch is
    cooperative if one in the file is, or if the kernel waits for the whole grid.
    """
    names = names_of(compiled)
    parts = declarations(compiled) or [""] * len(names)
    own = launches_of(kernel)
    found, told = _own(own, compiled, names)
    numbers = dict(found.numbers)
    sizes = _sizes(compiled, names)
    if len(sizes) == 1 and sizes[0].isidentifier():
        (size,) = sizes
        is_square = min(found.block[:2]) > 1 or min(found.grid[:2]) > 1
        shape = f"{size}x{size}" if is_square else size
    elif sizes:
        largest = sorted(int(numbers[name]) for name in sizes)[-2:]
        shape = str(min(max(math.prod(largest), found.threads), _MOST_ELEMENTS))
    else:
        shape = str(max(_SIZE, found.threads))
    given = (
        f"{name}={_given(parameter, part, numbers.get(name), shape)}"
        for name, parameter, part in zip(names, compiled.parameters, parts, strict=True)
    )
    words = [f"--grid {_text(found.grid)}", f"--block {_text(found.block)}"]
    # A dynamic shared array gets one element of the widest type for each thread.
    shared = found.shared or _has_open_array(compiled) * _WIDEST * math.prod(found.block)
    words += [f"--shared {shared}"] * bool(shared)
    cooperative = _waits_for_grid(compiled) or any(each.is_cooperative for each in own)
    words += ["--cooperative"] * cooperative
    listed = " ".join(map(shlex.quote, given))
    options = " ".join((*words, f"--args {listed}" if listed else "")).strip()
    return Advice(options, told)


def known_block(kernel: Kernel, compiled: Compiled) -> tuple[Dim3 | None, str]:
    """Return the block that a kernel is launched with, and where that is written.

    It is that of the launch in its file, or otherwise that of its launch bounds. It is None where
    neither is known; then the text says what the launch in the file is, if there is one.
    """
    unknown = ""
    for launch in launches_of(kernel):
        block = launch.block()
        if block is not None and math.prod(block) <= MAX_THREADS:
            return block, f"{launch.file}:{launch.line}, {launch.text}"
        unknown = unknown or (_unknown(launch) if block is None else "")
    most = _bounds(compiled)
    if most is not None:
        return (most, 1, 1), "its launch bounds"
    return None, unknown


def _own(
    launches: Sequence[HostLaunch], compiled: Compiled, names: Sequence[str]
) -> tuple[_Geometry, str]:
    """Return the geometry of the file's first launch with a known block, or the usual one."""
    usual = _usual(compiled, names)
    for launch in launches:
        block = launch.block()
        is_known = block is not None and math.prod(block) <= MAX_THREADS
        if len(launch.arguments) > len(names) or not is_known:
            continue
        for is_small in (False, True):
            geometry, told = _of(launch, compiled, names, usual, is_small=is_small)
            if geometry.threads <= _MOST_THREADS:
                return geometry, told
    unknown = (f"({_unknown(launch)})" for launch in launches if launch.block() is None)
    return usual, next(unknown, "")


def _of(
    launch: HostLaunch,
    compiled: Compiled,
    names: Sequence[str],
    usual: _Geometry,
    *,
    is_small: bool,
) -> tuple[_Geometry, str]:
    """Return the geometry of a launch in the file, with its own numbers or small ones."""
    numbers = dict(usual.numbers)
    assumed: dict[str, int | float] = {}
    for index, name in enumerate(names):
        value = launch.argument(index)
        said = launch.arguments[index] if index < len(launch.arguments) else ""
        if name in numbers and (value is None or is_small):
            if said.isidentifier():
                assumed[said] = numbers[name]
        elif value is not None and not compiled.parameters[index].declared.endswith("*"):
            numbers[name] = value
    scale = _filling(launch, assumed)
    for name in assumed:
        assumed[name] *= scale
    for index, name in enumerate(names):
        if index < len(launch.arguments) and launch.arguments[index] in assumed:
            numbers[name] = assumed[launch.arguments[index]]
    block = launch.block(assumed) or launch.block()
    assert block is not None
    grid = launch.grid(assumed)
    whose = "the block" if grid is None else "grid and block"
    of = ", with sizes chosen here" if assumed else ""
    refused = launch.refused()
    but = f", but {refused}" if refused else ""
    if grid is None:
        grid = _cover(block)
    return (
        _Geometry(grid, block, launch.shared(assumed) or 0, numbers),
        f"({whose} as {launch.file}:{launch.line} launches it{of}: {launch.text}{but})",
    )


def _filling(launch: HostLaunch, assumed: Mapping[str, int | float]) -> int:
    """Return the factor by which sizes may grow without more blocks, so that blocks are full."""
    grid, factor = launch.grid(assumed), 1
    while assumed and grid is not None and factor < _MOST_FACTOR:
        if launch.grid({name: 2 * factor * size for name, size in assumed.items()}) != grid:
            return factor
        factor *= 2
    return 1  # the grid does not depend on them


def _cover(block: Dim3) -> Dim3:
    """Return the grid of such blocks that covers the small sizes."""
    if min(block[:2]) > 1:
        return -(-_EDGE // block[0]), -(-_EDGE // block[1]), 1
    return -(-_SIZE // math.prod(block)), 1, 1


def _usual(compiled: Compiled, names: Sequence[str]) -> _Geometry:
    """Return small sizes, and extents that cover them."""
    sizes = _sizes(compiled, names)
    most = _bounds(compiled) or _THREADS
    is_square = bool(sizes) and "%tid.y" in _entry(compiled)[1] and most >= _SQUARE**2
    size = _EDGE if is_square or len(sizes) > 1 else _SIZE
    block = (_SQUARE, _SQUARE, 1) if is_square else (min(_THREADS, most), 1, 1)
    return _Geometry(_cover(block), block, 0, dict.fromkeys(sizes, size))


def _unknown(launch: HostLaunch) -> str:
    why = launch.refused() or "its block is known only when the host code runs"
    return f"the file launches it as {launch.text} at {launch.file}:{launch.line}, and {why}"


def _sizes(compiled: Compiled, names: Sequence[str]) -> list[str]:
    """Return the names of parameters that may be sizes."""
    return [
        name for name, x in zip(names, compiled.parameters, strict=True)
        if x.size >= 4 and x.declared in elements.INTEGERS and x.declared != "bool"
    ]  # fmt: skip


def _text(extents: Dim3) -> str:
    """Return extents in the form of an option: ``"4"`` or ``"2,2"``."""
    kept = 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1
    return ",".join(map(str, extents[:kept]))


def _given(parameter: Parameter, part: str, number: int | float | None, shape: str) -> str:
    """Return an argument that fits a parameter."""
    declared = parameter.declared
    if declared.endswith("*") or (not declared and rules.takes_address(parameter)):
        if declared.endswith("**"):
            return "null"
        of = "" if elements.meant(declared)[0] else ":float32"
        return f"{'random' if part.startswith('const ') else 'zeros'}:{shape}{of}"
    if parameter.type == "b8":
        kind, lanes = elements.lanes(declared)
        return ",".join(["1"] * lanes) if kind else f"hex:{'00' * parameter.size}"
    if number is not None:
        return str(int(number) if number == int(number) else number)
    return "2.5" if parameter.type.startswith("f") else "1"


def _entry(compiled: Compiled) -> tuple[str, str]:
    """Return the head and the body of the kernel's own PTX."""
    _, _, behind = compiled.ptx.partition(f".entry {compiled.symbol}")
    head, _, body = behind.partition("{")
    return head, body.partition(".entry ")[0]


def _waits_for_grid(compiled: Compiled) -> bool:
    """Return whether the kernel takes the grid's workspace, as ``this_grid().sync()`` does."""
    split = module_of(compiled.ptx).split
    reached = (x for x in split.functions.values() if x.name == compiled.symbol or not x.is_kernel)
    return any("%envreg2" in split.text[each.start : each.end] for each in reached)


def _has_open_array(compiled: Compiled) -> bool:
    """Return whether the kernel itself uses dynamic shared memory."""
    names = re.findall(r"\.extern \.shared [^;]*?([\w$]+)\[\];", compiled.ptx)
    return any(re.search(rf"(?<![\w$]){re.escape(n)}(?![\w$])", _entry(compiled)[1]) for n in names)


def _bounds(compiled: Compiled) -> int | None:
    """Return the most threads of a block by the kernel's launch bounds; None without bounds."""
    found = re.search(r"\.(?:maxntid|reqntid)\s+([\d, ]+)", _entry(compiled)[0])
    return math.prod(map(int, found[1].split(","))) if found else None
