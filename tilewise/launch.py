"""The data of a launch: what a device is asked to run, and what it reports.

The classes are plain data that devices, kernels and views share, so that none of them depends on
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
"""The default architecture to compile for, and the emulator's own."""


def device_name(device: str, arch: str | None = None) -> str:
    """Return ``"the GPU"`` or ``"the emulator"``, with the architecture if it is not the default.

    Parameters
    ----------
    device : str
        ``"gpu"`` or ``"emulator"``.
    arch : str, optional
        The architecture, as in ``"sm_80"``.
    """
    is_usual = device != "emulator" or arch is None or arch == DEFAULT_ARCH
    return f"the {PLACES[device]}" + ("" if is_usual else f" of {arch}")


def dim3(value: int | Sequence[int], what: str) -> Dim3:
    """Return ``value`` as three extents, x first; missing ones are 1.

    Parameters
    ----------
    value : int or sequence of up to three ints
        The extents, in the order of CUDA's ``dim3``.
    what : str
        ``"grid"`` or ``"block"``, for the message.

    Raises
    ------
    TypeError
        If an extent is not an integer.
    ValueError
        If there are no extents or more than three, or one is below 1.
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
    """Return a kernel's arguments as a tuple.

    Raises
    ------
    TypeError
        If ``args`` is a single argument, which is not a sequence of arguments even if it can be
        iterated over.
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
    """Blocks of which one was run, and its counters multiplied by their number.

    Attributes
    ----------
    block : (int, int, int)
        The index of the block that was run.
    count : int
        The number of such blocks, including the one that was run.
    """

    block: Dim3
    count: int


@dataclass(frozen=True, repr=False)
class Finding(Record):
    """A fault that a check found.

    Attributes
    ----------
    kind : str
        ``"out of bounds"``, ``"misaligned"``, ``"uninitialised"``, ``"race"`` or ``"barrier"``.
    message : str
        The finding in one sentence.
    file : str
        The source file: the kernel's own as given to the compiler, or a header, by its path from
        the same place if it lies below the kernel's folder.
    line : int
        The line in ``file``, from 1; 0 if the compiler gave none.
    block, thread : tuple of int or None
        Indices x, y, z.
    array : str or None
        The name of the kernel's parameter or of the shared variable.
    index : tuple of int or int or None
        The element's index in ``array``.
    component : str
        The component of the element, such as ``"x"``, if the element is a vector, such as a
        ``float4``, and the access reaches only a part of it; else empty.
    count : int
        The number of the line's instructions that have the fault. Those of a loop that the compiler
        unrolled are one finding, whose other fields are those of the first.
    calls : tuple of int
        If the line is in a device function, the lines of the kernel's own file that call it, the
        innermost first. They are known for inlined functions, and if an address is wrong.
    """

    kind: str
    message: str
    file: str
    line: int
    block: Dim3 | None = None
    thread: Dim3 | None = None
    array: str | None = None
    index: int | tuple[int, ...] | None = None
    component: str = ""
    count: int = 1
    calls: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.message}"

    def _summary(self) -> str:
        return f"{self.kind} at {self.file}:{self.line}"

    def _parts(self) -> list[Part]:
        return [str(self)]


def in_groups(findings: Iterable[Finding]) -> list[str]:
    """Return findings as text: the first of each kind at each line, and a count of the others."""
    groups: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.file, finding.line), []).append(finding)
    return [
        str(first)
        + (f" (and {plural(len(more), 'finding')} more of this kind here)" if more else "")
        for first, *more in groups.values()
    ]


class Module(Protocol):
    """A kernel's module on a device, which holds its ``__constant__`` and ``__device__`` variables.

    :meth:`tilewise.devices.Device.module` makes it.
    """

    def read(self, symbol: str) -> bytes:
        """Return the bytes of a variable."""
        ...

    def write(self, symbol: str, data: bytes) -> None:
        """Set all bytes of a variable."""
        ...

    def accept(self, value: Any) -> None:
        """Raise TypeError if a variable of the module can't point to an array."""
        ...


@dataclass(frozen=True, repr=False)
class Launch(Shown):
    """One launch: grid, block, arguments, dynamic shared memory.

    Attributes
    ----------
    grid, block : (int, int, int)
        The blocks of the grid, and the threads of a block; x first.
    args : tuple
        The arguments, one for each of the kernel's parameters, in order. A :class:`Place`, a
        :class:`Packed` or a :class:`TensorMap` stands for a value that a prepared launch is given
        later.
    shared : int
        The bytes of dynamic shared memory of a block.
    checks : str
        How the emulator treats a fault. ``"raise"`` raises an error. ``"strict"`` also raises for
        faults that are otherwise only noted. ``"collect"`` puts it in the report and goes on.
        ``"off"`` looks for none, but raises if it can't go on: at an access outside every array,
        and if threads wait forever.
    overlap : bool
        Whether the launch may start on a GPU before the kernel ahead of it in the stream has ended.
        The kernel itself waits, by ``griddepcontrol.wait`` (CUDA C++ Programming Guide,
        "Programmatic Dependent Launch and Synchronization").
    after_fault : float
        The most seconds for which a launch on the emulator continues after the first finding, to
        look for others, if ``checks`` is ``"raise"`` or ``"strict"``; the error has all of them.
        At 0, the first finding is raised at once.
    global_races : bool
        Whether the emulator looks for races in global memory too, which takes time and memory.
    limits : Limits or None
        The most that it may take on the emulator.
    module : Module or None
        The kernel's variables on the device; None for new ones.
    cooperative : bool
        Whether all blocks are resident at once, so that they may wait for each other (CUDA C++
        Programming Guide, "Grid Synchronization").
    counts : bool
        Whether the emulator counts what a launch does. Without counts, its report has no counters;
        arrays and findings are the same, and it takes less time. A profile and a recording always
        count.
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
    after_fault: float = 0.0

    def _summary(self) -> str:
        shared = f", {plural(self.shared, 'byte')} of dynamic shared memory" if self.shared else ""
        together = ", cooperative" if self.cooperative else ""
        return f"{grid_line(self.grid, self.block)}{shared}{together}"

    def _parts(self) -> list[Part]:
        return [self._summary()]

    def filled(
        self,
        addresses: Sequence[int],
        encode: Encode | None = None,
    ) -> Launch:
        """Return the same launch with the addresses of arrays that begin at ``addresses``.

        Parameters
        ----------
        addresses : sequence of int
        encode : callable, optional
            A function that returns the bytes of a tensor map; without it, tensor maps stay as they
            are.
        """

        def known(argument: Any) -> Any:
            if isinstance(argument, Place):
                return argument.address(addresses)
            if isinstance(argument, TensorMap) and encode is not None:
                return encode(argument, argument.place.address(addresses))
            return argument.filled(addresses, encode) if isinstance(argument, Packed) else argument

        return replace(self, args=tuple(map(known, self.args)))

    def moved(self, to: Mapping[int, Place]) -> Launch:
        """Return the launch with its places moved, as :meth:`Place.moved` does."""
        given = (Place, Packed, TensorMap)
        return replace(
            self, args=tuple(x.moved(to) if isinstance(x, given) else x for x in self.args)
        )


@dataclass(frozen=True, repr=False)
class LaunchReport(Shown):
    """The report of a launch.

    Attributes
    ----------
    device : str
        ``"gpu"`` or ``"emulator"``.
    kernel : str
        The kernel's name.
    launch : Launch
        The launch without its arguments, so that a report keeps no array alive.
    resources : Resources
    seconds : float
        The seconds that the kernel took: on a GPU by device events, on the emulator the host's wall
        time.
    counters : Counters or None
        The counters; None if the device does not count, or the launch was not to be counted.
    lines : mapping of int to Counters
        The counters of each line of the kernel's own file; empty if ``counters`` is None. A
        function of a header counts at the line that it was inlined at; if it was not inlined, it
        counts in ``counters`` only.
    findings : tuple of Finding
    output : str
        The text that the kernel printed.
    remarks : tuple of str
        Remarks about the launch; ``notes`` also has those about the counts.
    alike : tuple of Alike
        The kinds of blocks, if only one block of each kind was run.
    footprint : Footprint or None
        The distinct sectors; None if they were not asked for.
    confirmation : Confirmation
        The confirmation that the counts are those of the machine code.
    arch : str
        The architecture that the kernel was compiled for, as in ``"sm_90a"``.
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
        """``"machine code"`` if the counts are those of the code that ptxas made, else ``"PTX"``.

        Accesses to shared memory and atomics are then counted as ptxas joined them. ``notes`` says
        why that could not be confirmed.
        """
        return "PTX" if self.confirmation.doubt else "machine code"

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks about the launch and about its counts."""
        doubt = self.confirmation.doubt
        return (*self.remarks, doubt) if doubt else self.remarks

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the arguments."""
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
            resources += f", {plural(launch.shared, 'byte')} of dynamic shared memory"
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
