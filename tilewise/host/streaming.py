"""Copy large arrays past the processor's caches.

An ordinary store reads the cache line that it writes to, so that a copy moves three bytes through
memory for each that it copies; where several cores copy, memory is what limits them. A non-temporal
store does not read the line: two bytes. The C library's ``memcpy`` has such stores only for sizes
near that of the shared cache, which are larger than the shares that threads copy here.

Neither NumPy nor the C library lets a caller ask for them, so a function of 129 bytes of machine
code does: ``stream_copy.s`` is its text. Where it can't run, on another processor or system, or
where memory must not be executable, NumPy copies.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from tilewise.host.matrices import Array

LEAST_LINE = 1 << 12
"""The least bytes of a line: its ends are copied byte by byte."""
LEAST = 1 << 16
"""The least bytes of a call: what is smaller may stay in the cache that its reader uses."""

CODE = bytes.fromhex(
    "f30f1efa4c8d141740f6c73f74114c39d774598a06880748ffc648ffc7ebe94d89d34983e3c0eb2ef30f6f06f30f"
    "6f4e10f30f6f5620f30f6f5e30660fe707660fe74f10660fe75720660fe75f304883c6404883c7404c39df72cd4c"
    "39d7740c8a06880748ffc648ffc7ebef4829d74c01c74829d64c01ce48ffc975870faef8c3"
)

_kept: list[mmap.mmap] = []  # the memory of functions, which may run as long as the process does

Function = Callable[[int, int, int, int, int, int], None]


def copy(to: Array, source: Array) -> None:
    """Copy an array to one of its shape, which must not overlap it.

    Parameters
    ----------
    to, source : array
        Arrays of numbers, of any dtypes and strides. If they have the same dtype and long lines,
        the copy leaves no part of them in the caches.
    """
    function = _function()
    if function is None or not _has_long_lines(to, source):
        np.copyto(to, source)
        return
    lines, width = (1, *to.shape)[-2:]
    to_pitch, pitch = (x.strides[-2] if x.ndim > 1 else 0 for x in (to, source))
    for index in np.ndindex(to.shape[:-2]):
        function(
            to[index].ctypes.data, source[index].ctypes.data, width * to.itemsize, lines, to_pitch,
            pitch,
        )  # fmt: skip


def _has_long_lines(to: Array, source: Array) -> bool:
    """Return whether each call of the function copies enough, and lines of consecutive bytes."""
    if to.dtype != source.dtype or to.shape != source.shape or not to.ndim or not to.size:
        return False
    lines, width = (1, *to.shape)[-2:]
    line = width * to.itemsize
    is_consecutive = all(x.strides[-1] == x.itemsize for x in (to, source))
    return is_consecutive and line >= LEAST_LINE and line * lines >= LEAST


@cache
def _function() -> Function | None:
    """Return the function of :data:`CODE`; None if it can't run here."""
    is_known = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32
    return _executable(CODE) if is_known else None


def _executable(code: bytes) -> Function | None:
    """Return the function of some machine code; None if no memory may be executed.

    The memory is never writable and executable at once.
    """
    try:
        file = os.memfd_create("tilewise stream_copy")
        try:
            os.write(file, code)
            memory = mmap.mmap(
                file, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
            )
        finally:
            os.close(file)
    except (AttributeError, OSError):  # there is no such call, or it is forbidden
        return None
    address = np.frombuffer(memory, np.uint8).ctypes.data
    sizes = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_ssize_t, ctypes.c_ssize_t
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *sizes)(address)
    _kept.append(memory)
    return function
