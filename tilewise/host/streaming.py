"""Copy large arrays with non-temporal stores.

An ordinary store first reads the cache line that it writes to, so that a copy moves three bytes
through memory for each byte copied, and where several cores copy, memory is what limits them. A
non-temporal store does not read the line: the copy moves two. The C library's ``memcpy`` takes such
stores only for sizes near that of the shared cache, and the shares that threads copy here are
smaller.

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

MIN_LINE_BYTES = 1 << 12
"""Shorter lines are left to NumPy, because the head and the tail of a line are copied byte by byte.
"""
MIN_CALL_BYTES = 1 << 16
"""Fewer bytes are left to NumPy, because their reader may find them in its cache."""

CODE = bytes.fromhex(
    "f30f1efa4c8d141740f6c73f74114c39d774598a06880748ffc648ffc7ebe94d89d34983e3c0eb2ef30f6f06f30f"
    "6f4e10f30f6f5620f30f6f5e30660fe707660fe74f10660fe75720660fe75f304883c6404883c7404c39df72cd4c"
    "39d7740c8a06880748ffc648ffc7ebef4829d74c01c74829d64c01ce48ffc975870faef8c3"
)

_MFD_EXEC = 0x10  # of memfd_create(2): the file may be executed; Python has no name for it

Function = Callable[[int, int, int, int, int, int], None]


def copy(to: Array, source: Array) -> None:
    """Copy an array to one of its shape, which must not overlap it.

    Parameters
    ----------
    to, source : array
        Arrays of any dtypes and strides. If they have the same dtype and long lines, the copy is
        written to memory past the caches; the source is read through them, as usual.

    Raises
    ------
    ValueError
        If ``to`` is read-only.
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
    """Return whether both have consecutive elements in lines that are long enough."""
    if to.dtype != source.dtype or to.dtype.hasobject or not to.flags.writeable:
        return False
    if to.shape != source.shape or not to.ndim or not to.size:
        return False
    lines, width = (1, *to.shape)[-2:]
    line = width * to.itemsize
    is_consecutive = all(x.strides[-1] == x.itemsize for x in (to, source))
    return is_consecutive and line >= MIN_LINE_BYTES and line * lines >= MIN_CALL_BYTES


@cache
def _function() -> Function | None:
    """Return the function of :data:`CODE`; None if it can't run here."""
    is_known = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32
    return _executable(CODE) if is_known else None


def _executable(code: bytes) -> Function | None:
    """Map machine code as executable, and return it as a function.

    None if the system forbids that. The mapping is of a file in memory that is open to be read
    alone, and it lasts as long as the process: a thread may be running its code when Python ends.
    """
    try:
        file = _read_only(code)
        try:
            memory = mmap.mmap(
                file, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
            )
        finally:
            os.close(file)
    except (AttributeError, OSError):  # there is no such call, or it is forbidden
        return None
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # so that Python never unmaps it
    address = np.frombuffer(memory, np.uint8).ctypes.data
    sizes = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_ssize_t, ctypes.c_ssize_t
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *sizes)(address)


def _read_only(content: bytes) -> int:
    """Return the descriptor, for reading alone, of a file in memory that has this content."""
    name = "tilewise stream_copy"
    try:
        file = os.memfd_create(name, os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:  # Linux before 6.3 does not know the flag
        file = os.memfd_create(name)
    try:
        os.write(file, content)
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    finally:
        os.close(file)
