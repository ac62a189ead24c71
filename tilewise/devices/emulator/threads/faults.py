"""Say what the checks found, so that a person can act on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilewise.devices.emulator.ptx.sources import SourceLine
from tilewise.devices.emulator.threads.lanes import Geometry
from tilewise.errors import (
    BarrierError,
    CheckError,
    MemoryAccessError,
    RaceError,
    TilewiseError,
    UninitializedReadError,
)
from tilewise.launch import Finding
from tilewise.shown import element, plural

LIMIT = 100
IMMEDIATE = ("out of bounds", "misaligned")
"""The kinds of fault found while the lane is at the instruction; others may come later."""
_ERRORS: dict[str, type[CheckError]] = {
    "out of bounds": MemoryAccessError,
    "misaligned": MemoryAccessError,
    "uninitialised": UninitializedReadError,
    "race": RaceError,
    "barrier": BarrierError,
}


@dataclass(frozen=True)
class Place:
    """A place in memory, as a person names it.

    Attributes
    ----------
    array : str or None
        The name of the array; None if it belongs to no array.
    index : int or tuple of int
    component : str
        The component, such as ``"x"``, if the element is a vector and only a part of it is meant;
        else empty.
    space : str
        ``"global"`` or ``"shared"``.
    address : int
        The address; in shared memory, the offset in the block's shared memory.
    in_python : bool
        Whether the kernel is written in Python, so that its elements are spelled as in Python.
    """

    array: str | None
    index: int | tuple[int, ...] = ()
    component: str = ""
    space: str = "global"
    address: int = 0
    in_python: bool = False

    def __str__(self) -> str:
        if self.array is None:
            return "memory that belongs to no array"
        index = self.index if isinstance(self.index, tuple) else (self.index,)
        return element(self.array, index, self.component, in_python=self.in_python)


@dataclass(frozen=True)
class Site:
    """The place of a fault in the program.

    Attributes
    ----------
    instruction : int
        The instruction's number in the program.
    access : str
        The access, as its opcode names it: ``ld`` or ``st``.
    source : SourceLine
    earlier : SourceLine or None
        The other line of two accesses that nothing orders; else None.
    """

    instruction: int
    access: str
    source: SourceLine
    earlier: SourceLine | None = None

    def with_calls(self, message: str) -> str:
        """Return a message, and which of the kernel's own lines lead here."""
        called = self.source.called()
        return f"{message}; {called}" if called else message


class _Group:
    """Findings, or notes, that are alike: of instructions that the compiler made of one line."""

    def __init__(self, site: Site, message: str, others: int = 0) -> None:
        self.site, self.message, self.others = site, message, others
        self.instructions = {site.instruction}

    def text(self) -> str:
        count = len(self.instructions)
        more = []
        if self.others:
            more.append(f"and {plural(self.others, 'other thread')} here")
        if count > 1:
            more.append(f"{count} instructions of this line do so")
        return self.site.with_calls(self.message + (f" ({'; '.join(more)})" if more else ""))


class Faults:
    """Collect findings, and raise at the first, or all of them at the launch's end, or never.

    Of one kind at one line, with one array and one kind of access, there is one: it counts the
    instructions, of which an unrolled loop has many.

    Parameters
    ----------
    mode : str
        ``"raise"``, ``"strict"``, ``"collect"`` or ``"off"``; ``"strict"`` raises at what the
        others only note.
    at_first : callable, optional
        In the modes ``"raise"`` and ``"strict"``, a function that is called at the first finding in
        place of raising it; :meth:`raise_found` raises all findings at the launch's end.
    tell : callable, optional
        A function that is called with the first finding, if the launch continues after it.

    Attributes
    ----------
    continues : bool
        Whether the launch continues after a finding.
    """

    def __init__(
        self,
        mode: str,
        at_first: Callable[[], None] | None = None,
        tell: Callable[[Finding], None] | None = None,
    ) -> None:
        self.mode = mode
        self._tell = tell
        self._raises = mode in ("raise", "strict")
        self._at_first = at_first if self._raises else None
        self.continues = mode == "collect" or self._at_first is not None
        self._found: dict[tuple[Any, ...], tuple[_Group, Finding]] = {}
        self._noted: dict[tuple[Any, ...], _Group | str] = {}
        self._seen: set[tuple[str, int]] = set()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, in the order in which each was first found."""
        return tuple(
            replace(first, message=group.text(), count=len(group.instructions))
            for group, first in self._found.values()
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes, in order."""
        return tuple(x if isinstance(x, str) else x.text() for x in self._noted.values())

    def has(self, kind: str, instruction: int) -> bool:
        """Return whether an instruction has a fault of a kind already: another one says no more."""
        return (kind, instruction) in self._seen

    def note(self, kind: str, site: Site, message: str, geometry: Geometry, lane: int) -> None:
        """Note an event that is no fault, or not surely one, but that a person would want to know.

        Raises
        ------
        CheckError
            In the mode ``"strict"``: there it is a finding.
        """
        if self.mode == "strict":
            self.add(kind, site, message, geometry, lane)
            return
        group = self._noted.get(key := (kind, site.access, site.source, site.earlier))
        if isinstance(group, _Group):
            group.instructions.add(site.instruction)
            return
        block, thread = geometry.block_index(lane), geometry.thread_index(lane)
        at = f"{site.source.file}:{site.source.line}"
        self._noted[key] = _Group(site, f"{at}: thread {thread} of block {block} {message}")

    def remark(self, message: str) -> None:
        """Add a remark on the checks themselves."""
        self._noted[message,] = message

    def add(
        self,
        kind: str,
        site: Site,
        message: str,
        geometry: Geometry,
        lane: int,
        place: Place | None = None,
        others: int = 0,
    ) -> None:
        """Add one fault of one lane; ``others`` lanes have it at the same instruction.

        Raises
        ------
        CheckError
            In the modes ``"raise"`` and ``"strict"``, unless the launch continues.
        """
        if (kind, site.instruction) in self._seen:
            return
        self._seen.add((kind, site.instruction))
        array = None if place is None else place.array
        key = (kind, site.access, site.source, site.earlier, array)
        if key in self._found:
            self._found[key][0].instructions.add(site.instruction)
            return
        if len(self._found) >= LIMIT:
            return
        block, thread = geometry.block_index(lane), geometry.thread_index(lane)
        group = _Group(site, f"thread {thread} of block {block} {message}", others)
        finding = Finding(
            kind, group.text(), site.source.file, site.source.line, block, thread,
            calls=site.source.own_calls,
        )  # fmt: skip
        if place is not None and array is not None:
            finding = replace(finding, array=array, index=place.index, component=place.component)
        self._found[key] = group, finding
        # Nothing may be read or written beyond the arrays, whatever is asked.
        is_out = self.mode == "off" and _ERRORS[kind] is MemoryAccessError
        if is_out or (self._raises and self._at_first is None):
            raise _ERRORS[kind]((finding,))
        if len(self._found) == 1:
            if self._at_first is not None:
                self._at_first()
            if self._tell is not None:
                self._tell(finding)

    def raise_found(self, error: TilewiseError | None = None) -> None:
        """Raise all findings, if there are any and no report will have them.

        Parameters
        ----------
        error : TilewiseError, optional
            The error that ended the launch, if it has no report for that reason.
        """
        has_report = error is None and self._at_first is None
        if self._found and not has_report:
            findings = self.findings
            raise _ERRORS[findings[0].kind](findings, error) from None
