"""The words of a launch: what is asked of a device, and what it reports back.

These are plain data that devices, kernels and views share, so that none of them has to know
another.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tilewise.counted import Confirmation, Counters, Footprint, Resources
from tilewise.limits import Limits
from tilewise.places import Dim3, Encode, Packed, Place, TensorMap
from tilewise.shown import PLACES, Part, Record, Shown, Table, duration, grid_line, plural

DEFAULT_ARCH = "sm_90a"
"""What is compiled for where nobody asks for another architecture, and the emulator's own."""


def device_name(device: str, arch: str | None = None) -> str:
    """``"the GPU"`` or ``"the emulator"``, and of which architecture where it is not the usual one.

    Parameters
    ----------
    device : str
        ``"gpu"`` or ``"emulator"``.
    arch : str, optional
        As ``"sm_80"``.
    """
    is_usual = device != "emulator" or arch is None or arch == DEFAULT_ARCH
    return f"the {PLACES[device]}" + ("" if is_usual else f" of {arch}")


def dim3(value: int | Sequence[int], what: str) -> Dim3:
    """``value`` as three extents, x first; missing ones are 1.

    Parameters
    ----------
    value : int or sequence of up to three ints
        As CUDA's ``dim3``.
    what : str
        ``"grid"`` or ``"block"``, for the message.

    Raises
    ------
    TypeError
        If an extent is not an integer.
    ValueError
        If there are none or more than three extents, or one is below 1.
    """
    extents = tuple(value) if isinstance(value, Iterable) else (value,)
    if not 1 <= len(extents) <= 3:
        raise ValueError(f"{what} has {len(extents)} extents; it takes one to three, x first")
    for extent in extents:
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"{what} is {value!r}; it takes an integer, or up to three, x first")
        if extent < 1:
            given = " x ".join(map(str, extents))
            raise ValueError(f"{what} is {given}; every extent must be at least 1")
    x, y, z = (*(int(extent) for extent in extents), 1, 1)[:3]
    return x, y, z


def each_of(args: Any) -> tuple[Any, ...]:
    """Return a kernel's arguments, one by one.

    Raises
    ------
    TypeError
        If it is a single one, which is no sequence of arguments although it may be iterated over.
    """
    if not isinstance(args, Iterable) or isinstance(args, str | bytes) or hasattr(args, "dtype"):
        kind = type(args).__name__
        raise TypeError(
            f"args is of type {kind}; it takes a sequence with a value for each of the kernel's "
            "parameters: of a single one, (x,)"
        )
    return tuple(args)


@dataclass(frozen=True)
class Alike:
    """Blocks of which one was run, and its counters multiplied.

    Attributes
    ----------
    block : (int, int, int)
        The one that was run.
    count : int
        How many there are, that one among them.
    """

    block: Dim3
    count: int


@dataclass(frozen=True, repr=False)
class Finding(Record):
    """One fault that a check found.

    Attributes
    ----------
    kind : str
        ``"out of bounds"``, ``"misaligned"``, ``"uninitialised"``, ``"race"`` or ``"barrier"``.
    message : str
        The whole of it in one sentence.
    file : str
        Source file: the kernel's own as given to the compiler, or a header, by its path from the
        same place if it lies below the kernel's folder.
    line : int
        Line of ``file``, from 1; 0 where the compiler gave none.
    block, thread : tuple of int or None
        Indices x, y, z.
    array : str or None
        The kernel's parameter or the shared variable.
    index : tuple of int or int or None
        Element index in ``array``.
    count : int
        Instructions of the line that have it: those of a loop that the compiler unrolled are one
        finding, and what it says besides is of the first.
    calls : tuple of int
        Where the line is in a device function, the lines of the kernel's own file that call it, the
        innermost first. They are known of inlined functions, and where an address is wrong.
    """

    kind: str
    message: str
    file: str
    line: int
    block: Dim3 | None = None
    thread: Dim3 | None = None
    array: str | None = None
    index: int | tuple[int, ...] | None = None
    count: int = 1
    calls: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.message}"

    def _summary(self) -> str:
        return f"{self.kind} at {self.file}:{self.line}"

    def _parts(self) -> list[Part]:
        return [str(self)]


def in_groups(findings: Iterable[Finding]) -> list[str]:
    """Findings as text: of each kind at each line the first one, and how many more there are."""
    groups: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.file, finding.line), []).append(finding)
    return [
        str(first)
        + (f" (and {plural(len(more), 'finding')} more of this kind here)" if more else "")
        for first, *more in groups.values()
    ]


class Module(Protocol):
    """A kernel's module on a device: its ``__constant__`` and ``__device__`` variables live there.

    Made by :meth:`tilewise.devices.Device.module`.
    """

    def read(self, symbol: str) -> bytes:
        """What a variable holds."""
        ...

    def write(self, symbol: str, data: bytes) -> None:
        """Set a variable, all of it."""
        ...


@dataclass(frozen=True, repr=False)
class Launch(Shown):
    """One launch: grid, block, arguments, dynamic shared memory.

    Attributes
    ----------
    grid, block : (int, int, int)
        Blocks a grid, threads a block; x first.
    args : tuple
        One a kernel parameter, in order. A :class:`Place`, a :class:`Packed` or a
        :class:`TensorMap` stands for what only a launch prepared beforehand is given later.
    shared : int
        Dynamic shared memory a block, bytes.
    checks : str
        What the emulator does with a fault: ``"raise"``; ``"strict"`` raises also at what is
        only noted otherwise; ``"collect"`` it in the report and go on; ``"off"`` looks for none,
        but raises where it can't go on: at an access outside every array, and where threads wait
        forever.
    overlap : bool
        On a GPU it may start before the kernel ahead of it in the stream has ended: the kernel
        itself waits, by ``griddepcontrol.wait`` (CUDA C++ Programming Guide, "Programmatic
        Dependent Launch and Synchronization").
    global_races : bool
        Whether the emulator looks for races in global memory too, which takes time and memory.
    limits : Limits or None
        What it may take on the emulator.
    module : Module or None
        The kernel's variables on that device; None for new ones.
    cooperative : bool
        Whether all blocks are resident at once, so that they may wait for each other (CUDA C++
        Programming Guide, "Grid Synchronization").
    counts : bool
        Whether the emulator counts what a launch does. Without, its report has no counters; arrays
        and findings are the same, and it takes less time. A profile and a recording always count.
    """

    grid: Dim3
    block: Dim3
    args: tuple[Any, ...]
    shared: int = 0
    checks: str = "raise"
    overlap: bool = False
    global_races: bool = False
    limits: Limits | None = None
    module: Module | None = None
    cooperative: bool = False
    counts: bool = True

    def _summary(self) -> str:
        shared = f", {self.shared:,} bytes of dynamic shared memory" if self.shared else ""
        together = ", cooperative" if self.cooperative else ""
        return f"{grid_line(self.grid, self.block)}{shared}{together}"

    def _parts(self) -> list[Part]:
        return [self._summary()]

    def filled(
        self,
        addresses: Sequence[int],
        encode: Encode | None = None,
    ) -> Launch:
        """The same with the addresses of arrays that begin at ``addresses``.

        Parameters
        ----------
        addresses : sequence of int
        encode : callable, optional
            Without it tensor maps stay as they are.
        """

        def known(argument: Any) -> Any:
            if isinstance(argument, Place):
                return argument.address(addresses)
            if isinstance(argument, TensorMap) and encode is not None:
                return encode(argument, argument.place.address(addresses))
            return argument.filled(addresses, encode) if isinstance(argument, Packed) else argument

        return replace(self, args=tuple(map(known, self.args)))

    def moved(self, to: Mapping[int, Place]) -> Launch:
        """As :meth:`Place.moved`."""
        given = (Place, Packed, TensorMap)
        return replace(
            self, args=tuple(x.moved(to) if isinstance(x, given) else x for x in self.args)
        )


@dataclass(frozen=True, repr=False)
class LaunchReport(Shown):
    """What one launch did.

    Attributes
    ----------
    device : str
        ``"gpu"`` or ``"emulator"``.
    kernel : str
        The kernel's name.
    launch : Launch
        Without its arguments, so that a report keeps no array alive.
    resources : Resources
    seconds : float
        On a GPU the kernel's time by device events; on the emulator the host's wall time.
    counters : Counters or None
        None where the device does not count, and of a launch that was not to be counted.
    lines : mapping of int to Counters
        The same a line of the kernel's own file; empty where ``counters`` is None. What a
        header's function does counts at the line that it was inlined at; where it was not
        inlined, in ``counters`` only.
    findings : tuple of Finding
    output : str
        What the kernel printed.
    remarks : tuple of str
        What is to be said of the launch; ``notes`` are these, and what is to be said of the counts.
    alike : tuple of Alike
        Where not every block was run but one of each kind, the kinds.
    footprint : Footprint or None
        None where it was not asked for.
    confirmation : Confirmation
        Whether the counts are those of the machine code.
    arch : str
        What the kernel was compiled for, as ``"sm_90a"``.
    """

    device: str
    kernel: str
    launch: Launch
    resources: Resources
    seconds: float
    counters: Counters | None = None
    lines: Mapping[int, Counters] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    output: str = ""
    remarks: tuple[str, ...] = ()
    alike: tuple[Alike, ...] = ()
    footprint: Footprint | None = None
    confirmation: Confirmation = field(default_factory=Confirmation)
    arch: str = DEFAULT_ARCH

    @property
    def counted_as(self) -> str:
        """``"machine code"`` where accesses to shared memory and atomics are counted as ptxas made
        them, ``"PTX"`` where that could not be confirmed (``notes`` says why)."""
        return "PTX" if self.confirmation.doubt else "machine code"

    @property
    def notes(self) -> tuple[str, ...]:
        """All that is to be said of the launch and of its counts."""
        doubt = self.confirmation.doubt
        return (*self.remarks, doubt) if doubt else self.remarks

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; without the arguments."""
        return {
            "device": self.device,
            "arch": self.arch,
            "kernel": self.kernel,
            "grid": list(self.launch.grid),
            "block": list(self.launch.block),
            "dynamic_shared_bytes": self.launch.shared,
            "cooperative": self.launch.cooperative,
            "seconds": self.seconds,
            "resources": self.resources.to_dict(),
            "counters": None if self.counters is None else self.counters.to_dict(),
            "lines": {str(line): c.to_dict() for line, c in sorted(self.lines.items())},
            "counted_as": self.counted_as,
            "findings": [finding.to_dict() for finding in self.findings],
            "output": self.output,
            "notes": list(self.notes),
            "alike": [{"block": list(each.block), "count": each.count} for each in self.alike],
            "footprint": None if self.footprint is None else self.footprint.to_dict(),
        }

    def _summary(self) -> str:
        found = f", {plural(len(self.findings), 'fault')} found" if self.findings else ""
        return (
            f"{self.kernel} on {device_name(self.device, self.arch)}, "
            f"{grid_line(self.launch.grid, self.launch.block)}, {duration(self.seconds)}{found}"
        )

    def _parts(self) -> list[Part]:
        launch, resources = self.launch, self.resources._summary()
        if launch.shared:
            resources += f", {launch.shared:,} bytes of dynamic shared memory"
        took = duration(self.seconds)
        if self.device == "emulator":
            took += " of emulation, which says nothing about a GPU's time"
        place = device_name(self.device, self.arch)
        together = ", cooperative" if launch.cooperative else ""
        where = f"{grid_line(launch.grid, launch.block)}{together}, on {place}"
        parts: list[Part] = [
            self.kernel,
            Table([("launch", where), ("time", took), ("resources", resources)], left=2),
        ]
        if self.counters is not None:
            parts += ["", *self.counters._parts()]
        if self.alike:
            run = plural(len(self.alike), "block")
            parts.append(f"{run} of {math.prod(launch.grid):,} run, the rest multiplied")
        parts += [f"found: {finding}" for finding in in_groups(self.findings)]
        parts += [f"note: {note}" for note in self.notes]
        if self.output:
            parts += ["", "The kernel printed:", textwrap.indent(self.output.rstrip("\n"), "  ")]
        return parts
