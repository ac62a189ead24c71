"""What the checks found, said so that a person can act on it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.devices.emulator.threads.lanes import Geometry
from tilewise.errors import (
    BarrierError,
    CheckError,
    MemoryAccessError,
    RaceError,
    UninitializedReadError,
)
from tilewise.launch import Finding

LIMIT = 100
_ERRORS: dict[str, type[CheckError]] = {
    "out of bounds": MemoryAccessError,
    "misaligned": MemoryAccessError,
    "uninitialised": UninitializedReadError,
    "race": RaceError,
    "barrier": BarrierError,
}


@dataclass(frozen=True)
class Place:
    """A place in memory, as a person names it."""

    array: str | None
    index: int | tuple[int, ...] | None

    def __str__(self) -> str:
        if self.array is None:
            return "memory that belongs to no array"
        index = self.index if isinstance(self.index, tuple) else (self.index,)
        return f"{self.array}[{', '.join(str(i) for i in index)}]"


class Faults:
    """Collects findings, one of a kind for each instruction, or raises at the first.

    Parameters
    ----------
    mode : str
        ``"raise"``, ``"strict"``, ``"collect"`` or ``"off"``; ``"strict"`` raises at what the
        others only note.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self._seen: set[tuple[str, int]] = set()

    def note(
        self,
        kind: str,
        instruction: int,
        file: str,
        line: int,
        message: str,
        geometry: Geometry,
        lane: int,
    ) -> None:
        """Something that is no fault, or not surely one, but that a person would want to know.

        Raises
        ------
        CheckError
            In the mode ``"strict"``: there it is a finding.
        """
        if self.mode == "strict":
            self.add(kind, instruction, file, line, message, geometry, lane)
        elif (f"{kind} note", instruction) not in self._seen:
            self._seen.add((f"{kind} note", instruction))
            block, thread = geometry.block_index(lane), geometry.thread_index(lane)
            self.notes.append(f"{file}:{line}: thread {thread} of block {block} {message}")

    def remark(self, message: str) -> None:
        """Something about the checks themselves."""
        self.notes.append(message)

    def add(
        self,
        kind: str,
        instruction: int,
        file: str,
        line: int,
        message: str,
        geometry: Geometry,
        lane: int,
        place: Place | None = None,
        others: int = 0,
    ) -> None:
        """One fault of one lane; ``others`` lanes have it at the same instruction.

        Raises
        ------
        CheckError
            In the mode ``"raise"``.
        """
        if (kind, instruction) in self._seen or len(self.findings) >= LIMIT:
            return
        self._seen.add((kind, instruction))
        block, thread = geometry.block_index(lane), geometry.thread_index(lane)
        more = f" (and {others:,} other threads here)" if others else ""
        finding = Finding(
            kind,
            f"thread {thread} of block {block} {message}{more}",
            file,
            line,
            block,
            thread,
            place.array if place else None,
            place.index if place else None,
        )
        self.findings.append(finding)
        # Nothing may be read or written beyond the arrays, whatever is asked.
        is_out = self.mode == "off" and _ERRORS[kind] is MemoryAccessError
        if self.mode in ("raise", "strict") or is_out:
            raise _ERRORS[kind]((finding,))
