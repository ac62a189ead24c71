"""The request for a compilation: one kernel of a source, and how to compile it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tilewise.launch import DEFAULT_ARCH
from tilewise.limits import Limits


class Request(NamedTuple):
    """A request for one compiled kernel.

    It is not checked here; :func:`tilewise.compiler.compile` does that.

    Attributes
    ----------
    source : str
        CUDA C++. A function with no ``__device__`` or ``__global__`` is a device function.
    name : str
        The kernel's name: plain, qualified (``"space::kernel"``), a template's instance
        (``"sgemm<64, 64, 8>"``), or the symbol.
    defines : mapping, optional
        Macros: ``{"TILE": 16}`` is ``-DTILE=16``. True is a bare ``-DNAME``; False leaves the
        macro undefined.
    arch : str
        A real architecture, one of :func:`tilewise.compiler.architectures`.
    path : Path, optional
        The file that the source came from. Messages name it, and ``#include`` reads files in its
        folder and below. It need not exist.
    options : sequence of str
        More options for NVRTC, of those that read and write no file.
    include : sequence of str or Path
        More folders that ``#include`` searches and reads. It reads no other file.
    lines : bool
        Whether PTX and machine code say which source line each instruction comes from, and
        :attr:`tilewise.compiler.Compiled.parameters` say as what each parameter is declared.
        Without, the instructions are the same, and the machine code takes a third of the bytes.
    trusted : bool
        Whether the source may include any file of the machine, and ``options`` may have NVRTC
        read and write files.
    limits : Limits, optional
        The most that compiling may take. A process of its own compiles then. It is killed when its
        time is over; on Linux its memory is limited, and with Landlock it can open no file.
    machine_code : bool
        Whether ptxas makes machine code of the PTX, and says what it takes. Without, compiling it
        takes half the time, and the PTX is the same.
    apart : bool
        Whether to compile in a forked process, where there can be one. Threads wait for one another
        in NVRTC's front end. The outcome is the same.
    """

    source: str
    name: str
    defines: Mapping[str, Any] | None = None
    arch: str = DEFAULT_ARCH
    path: Path | None = None
    options: Sequence[str] = ()
    include: Sequence[str | Path] = ()
    lines: bool = True
    trusted: bool = False
    limits: Limits | None = None
    machine_code: bool = True
    apart: bool = False
