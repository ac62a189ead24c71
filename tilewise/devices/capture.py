"""What the driver prints: a kernel's ``printf`` and ``assert`` go to the process's own files."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Output:
    """What was printed, complete once the ``with`` is over.

    Attributes
    ----------
    printed : str
        On standard output.
    complained : str
        On standard error.
    """

    printed: str = ""
    complained: str = ""


@contextmanager
def captured() -> Iterator[Output]:
    """Catch what is printed below Python, at file descriptors 1 and 2, in the meantime."""
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


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # None is the process itself, which on Windows has no C library of its own.
    ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).fflush(None)
