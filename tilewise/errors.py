"""What tilewise raises. Everything that is not a plain ``ValueError``, ``TypeError`` or
``FileNotFoundError`` of the caller's own derives from :class:`TilewiseError`."""

from __future__ import annotations

from typing import Any

from tilewise.launch import Finding, in_groups

MOST_SHOWN = 4
"""So many findings, those of one kind at one line taken together, stand in an error's message."""


class TilewiseError(Exception):
    """Base of the errors that tilewise itself defines."""


class CompileError(TilewiseError):
    """The source does not compile, or a kernel of that name is not in it."""


class TraceError(TilewiseError, TypeError):
    """A function that was given as an epilogue does what no kernel can."""


class LaunchError(TilewiseError):
    """A launch that no device of this kind can make, or that failed on the device."""


class VariableError(TilewiseError, KeyError):
    """A kernel's module has no variable of that name, or several."""

    __str__ = Exception.__str__  # a KeyError's is the message in quotes


class DeviceUnavailableError(TilewiseError):
    """The device that was asked for is not there, or can't be used."""


class GpuTooOldError(DeviceUnavailableError):
    """The GPU, or its driver, is too old for what the compiler makes."""


class ParserMissingError(TilewiseError):
    """The parser that finds a kernel in a file is not installed."""


class UnsupportedInstructionError(TilewiseError):
    """The emulator does not know an instruction; it names it rather than guess."""


class KernelAssertError(LaunchError):
    """``assert`` failed, or ``__trap()`` was reached, inside a kernel."""


class LimitError(TilewiseError):
    """A compilation or a launch took more than its limits allow, and was stopped.

    Attributes
    ----------
    limit : str
        Which of :class:`tilewise.Limits`: ``"seconds"``, ``"instructions"``, ``"memory"`` or
        ``"output"``.
    value : float
        What it allows.
    file : str
        Of the source.
    line : int
        The line that was executed; 0 where none was.
    """

    def __init__(self, limit: str, value: float, what: str, file: str, line: int = 0) -> None:
        self.limit, self.value, self.what = limit, value, what
        self.file, self.line = file, line
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {what}: limit of {told(limit, value)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit, self.value, self.what, self.file, self.line)


def told(limit: str, value: float) -> str:
    """A limit for people, as ``"4 GiB of memory"``."""
    if limit == "memory" and value >= 1 << 20:
        size = value / 2**30
        return f"{size:,.3g} GiB of memory" if size >= 1 else f"{value / 2**20:,.4g} MiB of memory"
    unit = {"memory": "bytes of memory", "output": "bytes of output"}.get(limit, limit)
    return f"{value:,} {unit}" if isinstance(value, int) else f"{value:g} {unit}"


class CheckError(TilewiseError):
    """A check of the emulator found a fault in the kernel.

    Parameters
    ----------
    findings : sequence of Finding
        What was found, first one first; the message shows the first few.
    """

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        shown = in_groups(findings)
        if len(shown) > MOST_SHOWN:
            shown[MOST_SHOWN:] = [f"... and {len(shown) - MOST_SHOWN} more"]
        super().__init__("\n".join(shown))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.findings,)


class MemoryAccessError(CheckError):
    """An access outside every array, or not aligned to its own width."""


class UninitializedReadError(CheckError):
    """A read of memory that nobody wrote."""


class RaceError(CheckError):
    """Two threads touch one place in memory, and nothing orders them; one of them writes."""


class BarrierError(CheckError):
    """A barrier that a part of the block never reaches, or a shuffle that a lane misses."""
