"""The errors that tilewise raises.

All errors derive from :class:`TilewiseError`, except for a plain ``ValueError``, ``TypeError`` or
``FileNotFoundError`` about the caller's arguments.
"""

from __future__ import annotations

from typing import Any

from tilewise.launch import Finding, in_groups

MOST_SHOWN = 4
"""The most groups of findings, each of one kind at one line, that an error's message shows."""

ADVICE = {
    "out of bounds": "Compare the index with the array's size before the access, for every thread "
    "of the last block too.",
    "misaligned": "An access of 8 or 16 bytes needs an address that is a multiple of that; where a "
    "row may begin elsewhere, use narrower accesses for it.",
    "uninitialised": "Something reads memory before anybody wrote it: look for a value that is "
    "not set at the edges, or a barrier between the write and the read.",
    "race": "Two threads touch one place, one of them writes, and nothing says who is first: a "
    "barrier between them orders the threads of a block, and an atomic makes one update of a read "
    "and a write.",
    "barrier": "Every thread of the block has to reach the same barrier: no return, and no "
    "condition on the thread, may stand before it.",
}
"""What to look for, by the kind of what a check found."""


class TilewiseError(Exception):
    """The base of the errors that tilewise itself defines."""


class CompileError(TilewiseError):
    """The source does not compile, or it has no kernel of that name."""


class TraceError(TilewiseError, TypeError):
    """A function that was given as an epilogue does what no kernel can do."""


class LaunchError(TilewiseError):
    """A launch that no device of this kind can make, or that failed on the device."""


class VariableError(TilewiseError, KeyError):
    """A kernel's module has no variable of that name, or several."""

    __str__ = Exception.__str__  # a KeyError's is the message in quotes


class DeviceUnavailableError(TilewiseError):
    """The device that was asked for does not exist, or can't be used."""


class GpuTooOldError(DeviceUnavailableError):
    """The GPU or its driver is too old for the code that the compiler makes."""


class ParserMissingError(TilewiseError):
    """The parser that finds a kernel in a file is not installed."""


class UnsupportedInstructionError(TilewiseError):
    """The emulator does not know an instruction; the error names it."""


class KernelAssertError(LaunchError):
    """``assert`` failed, or ``__trap()`` was reached, inside a kernel."""


class LimitError(TilewiseError):
    """A compilation or a launch took more than its limits allow, and was stopped.

    Attributes
    ----------
    limit : str
        The limit of :class:`tilewise.Limits` that was exceeded: ``"seconds"``, ``"instructions"``,
        ``"memory"`` or ``"output"``.
    value : float
        The value of the limit.
    file : str
        The file of the source.
    line : int
        The line that was executed; 0 if none was.
    """

    def __init__(self, limit: str, value: float, what: str, file: str, line: int = 0) -> None:
        self.limit, self.value, self.what = limit, value, what
        self.file, self.line = file, line
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {what}: limit of {told(limit, value)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit, self.value, self.what, self.file, self.line)


def told(limit: str, value: float) -> str:
    """Return a limit in words, as in ``"4 GiB of memory"``."""
    if limit == "memory" and value >= 1 << 20:
        size = value / 2**30
        return f"{size:,.3g} GiB of memory" if size >= 1 else f"{value / 2**20:,.4g} MiB of memory"
    unit = {"memory": "bytes of memory", "output": "bytes of output"}.get(limit, limit)
    if value == 1:
        unit = unit.replace("s", "", 1) if unit.startswith("bytes") else unit.removesuffix("s")
    return f"{value:,} {unit}" if isinstance(value, int) else f"{value:g} {unit}"


class CheckError(TilewiseError):
    """A check of the emulator found a fault in the kernel.

    Parameters
    ----------
    findings : sequence of Finding
        The findings, the first one first; the message shows the first few.
    stopped : TilewiseError or None
        The error that ended the launch before its end, as :class:`LimitError` at a limit; None if
        the launch ran to its end, or a finding ended it.
    """

    def __init__(self, findings: tuple[Finding, ...], stopped: TilewiseError | None = None) -> None:
        self.findings, self.stopped = findings, stopped
        super().__init__(self.text(MOST_SHOWN))

    def text(self, most: int | None = None) -> str:
        """Return the message with at most ``most`` groups of findings; by default with all."""
        shown = in_groups(self.findings)
        if most is not None and len(shown) > most:
            shown[most:] = [f"... and {len(shown) - most} more"]
        if self.stopped is not None:
            shown.append(str(self.stopped))
        return "\n".join(shown)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.findings, self.stopped)


class MemoryAccessError(CheckError):
    """An access outside every array, or not aligned to its own width."""


class UninitializedReadError(CheckError):
    """A read of memory that nothing has written."""


class RaceError(CheckError):
    """Two threads access one place in memory in no order, and at least one of them writes."""


class BarrierError(CheckError):
    """A barrier that a part of the block never reaches, or a shuffle that a lane misses."""
