"""Capture the output of ``printf`` and ``assert`` in a kernel on a GPU, and explain its failure.

The driver writes that output to the process's own standard output and error.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewise.compiler import Compiled
from tilewise.errors import KernelAssertError, LaunchError
from tilewise.launch import Launch

_PRINTING = re.compile(r"\b(?:vprintf|__assertfail)\b")


@dataclass
class Output:
    """The captured output, complete at the end of the ``with`` block.

    Attributes
    ----------
    printed : str
        The text on standard output.
    complained : str
        The text on standard error.
    """

    printed: str = ""
    complained: str = ""


@contextmanager
def captured() -> Iterator[Output]:
    """Capture what is written below Python, to the file descriptors 1 and 2."""
    output = Output()
    _flush()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = os.dup(1), os.dup(2)
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            yield output
        finally:
            _flush()
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)
            out.seek(0)
            err.seek(0)
            output.printed = out.read().decode(errors="replace")
            output.complained = err.read().decode(errors="replace")


@contextmanager
def printed_by(compiled: Compiled) -> Iterator[Output]:
    """Capture what a kernel prints; add the message of a failed ``assert`` to the error.

    Nothing is captured for a kernel that can't print.
    """
    if not _PRINTING.search(compiled.ptx):
        yield Output()
        return
    output = Output()
    try:
        with captured() as output:
            yield output
    except LaunchError as error:
        sys.stdout.write(output.printed)
        if isinstance(error, KernelAssertError) and output.complained:
            raise KernelAssertError(f"{output.complained.strip()}\n{error}") from error
        raise
    sys.stderr.write(output.complained)


@contextmanager
def advising(compiled: Compiled, launch: Launch) -> Iterator[None]:
    """Add to the error of a kernel that uses the grid's workspace what may be missing."""
    try:
        yield
    except LaunchError as error:
        if launch.cooperative or "%envreg2" not in compiled.ptx:
            raise
        raise type(error)(
            f"{error}; where it waits for the whole grid, launch it with cooperative=True"
        ) from error


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # None is the process itself, which on Windows has no C library of its own.
    ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).fflush(None)
