"""Matrices in ``.npy`` files, of which one piece at a time is in memory.

Files are read and written at positions rather than mapped. If another process truncates a mapped
file, or a disk fills up, a signal ends the process; here it is an error.
"""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from tilewise.gemm.blocking import Span
from tilewise.ladder.matrix_files import check_npy
from tilewise.shown import plural

DTYPES = ("float16", "float32", "float64")

Array = npt.NDArray[Any]

_MOST_RANGES = 1 << 14  # of a piece that the system is asked to read ahead


@dataclass(frozen=True)
class Header:
    """The contents of a ``.npy`` file, and what tells whether it is still the same file.

    Attributes
    ----------
    shape : (int, int)
    dtype : str
        The dtype as in :attr:`numpy.dtype.str`, with the byte order.
    is_fortran : bool
        Whether columns are contiguous rather than rows.
    offset : int
        The bytes before the first element.
    size : int
        The size of the file in bytes.
    modified : int
        The time of its last change, in nanoseconds.
    """

    shape: tuple[int, int]
    dtype: str
    is_fortran: bool
    offset: int
    size: int
    modified: int

    @property
    def name(self) -> str:
        """The dtype's name, without the byte order."""
        return np.dtype(self.dtype).name

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "shape": list(self.shape)}


class _Opened:
    """A file that is closed at the end of a ``with``."""

    _file: FileIO

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


class MatrixFile(_Opened):
    """A matrix in a ``.npy`` file that is read by pieces; a context that closes it.

    Parameters
    ----------
    path : Path
    what : str
        The matrix's name in messages, as ``"A"``.

    Raises
    ------
    OSError
        If there is no such file, or it can't be read.
    ValueError
        If it holds no matrix, or less than its header says.
    TypeError
        If its elements are not of :data:`DTYPES`.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path, self.what = path, what
        if not path.exists():
            raise FileNotFoundError(f"matrix {what}: there is no file {path}")
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a folder" if path.is_dir() else "no regular file"
            raise OSError(f"matrix {what}: {path} is {kind}; a .npy file is needed")
        self._file = FileIO(path, "r")
        try:
            self.header = self._header()
        except BaseException:
            self._file.close()
            raise

    def _header(self) -> Header:
        whose = f"matrix {self.what}: {self.path}"
        check_npy(self.path, f"matrix {self.what}")
        try:
            version = npy.read_magic(self._file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"version {version[0]}.{version[1]} holds fields, not numbers")
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, is_fortran, dtype = read(self._file)
        except (ValueError, EOFError, SyntaxError, TypeError, TokenError) as error:
            raise ValueError(
                f"{whose} is no .npy file of numbers: {error}; write one with numpy.save"
            ) from error
        if dtype.hasobject:
            raise TypeError(f"{whose} holds Python objects, which are never read; save numbers")
        if dtype.newbyteorder("=").name not in DTYPES:
            hint = (
                "; .npy files have no name for bfloat16, so save it as float32"
                if dtype.kind == "V"
                else ""
            )
            raise TypeError(f"{whose} is {dtype}; {', '.join(DTYPES)} are supported{hint}")
        if len(shape) != 2:
            raise ValueError(f"{whose} has the shape {shape}; a matrix has 2 dimensions")
        if min(shape) < 0:
            raise ValueError(f"{whose} has shape {shape}; no dimension can be negative")
        about, offset = os.fstat(self._file.fileno()), self._file.tell()
        wanted = offset + math.prod(shape) * dtype.itemsize
        if about.st_size < wanted:
            raise ValueError(
                f"{whose} is cut short: its header says {shape[0]:,} x {shape[1]:,} of {dtype}, "
                f"{plural(wanted, 'byte')}, and it has {about.st_size:,}"
            )
        return Header(
            (shape[0], shape[1]), dtype.str, is_fortran, offset, about.st_size, about.st_mtime_ns
        )

    def check_unchanged(self) -> None:
        """Raise an error if the file was written since it was opened."""
        about = os.fstat(self._file.fileno())
        if (about.st_size, about.st_mtime_ns) != (self.header.size, self.header.modified):
            raise OSError(f"matrix {self.what}: {self.path} was changed while it was read")

    def load(self, rows: Span, columns: Span, buffer: Array) -> Array:
        """Read a piece, and no byte besides.

        Parameters
        ----------
        rows, columns : Span
        buffer : ndarray, one-dimensional, of the file's dtype in this machine's byte order
            The buffer to read to, at least of the piece's size.

        Returns
        -------
        ndarray, (rows, columns)
            A view of the buffer, in the file's order.
        """
        lines, along = (columns, rows) if self.header.is_fortran else (rows, columns)
        width = self.header.shape[0 if self.header.is_fortran else 1]
        found = buffer[: lines.size * along.size]
        item, to = found.itemsize, found.data.cast("B")
        if along.size == width:  # whole lines follow one another
            self._read(self.header.offset + lines.start * width * item, to)
        else:
            step = along.size * item
            for at in range(lines.size):
                place = (lines.start + at) * width + along.start
                self._read(self.header.offset + place * item, to[at * step : (at + 1) * step])
        if not np.dtype(self.header.dtype).isnative:
            found.byteswap(inplace=True)
        piece = found.reshape(lines.size, along.size)
        return piece.T if self.header.is_fortran else piece

    def expect(self, rows: Span, columns: Span) -> None:
        """Ask the system to begin to read a piece into its cache, if it can."""
        lines, along = (columns, rows) if self.header.is_fortran else (rows, columns)
        width = self.header.shape[0 if self.header.is_fortran else 1]
        item = np.dtype(self.header.dtype).itemsize
        if not hasattr(os, "posix_fadvise"):  # on macOS and Windows
            return
        ranges = [(lines.start * width, lines.size * width)]
        if along.size < width:
            if lines.size > _MOST_RANGES:
                return
            ranges = [(line * width + along.start, along.size) for line in range(*lines)]
        for start, size in ranges:
            if self._file.closed:
                return
            place = self.header.offset + start * item
            with suppress(OSError):
                os.posix_fadvise(
                    self._file.fileno(), place, size * item, os.POSIX_FADV_WILLNEED
                )  # fmt: skip

    def _read(self, place: int, to: memoryview) -> None:
        if not to:
            return
        self._file.seek(place)
        done = 0
        while done < len(to):
            count = self._file.readinto(to[done:])
            if not count:
                raise OSError(
                    f"matrix {self.what}: {self.path} ends at byte {place + done:,}; it was cut "
                    "short while it was read"
                )
            done += count


class Target(_Opened):
    """A C-ordered ``.npy`` file that is written in pieces; a context that closes it.

    Parameters
    ----------
    path : Path
    shape : (int, int)
    dtype : dtype
    is_new : bool
        Whether to begin a new file, with its header, rather than to go on in an existing one.

    Raises
    ------
    OSError
        If it can't be written.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: npt.DTypeLike, is_new: bool
    ) -> None:
        self.path, self._shape = path, shape
        self.dtype = np.dtype(dtype)
        self._item = self.dtype.itemsize
        described = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        header = io.BytesIO()
        npy.write_array_header_1_0(header, described)
        self._offset = len(header.getvalue())
        self.size = self._offset + math.prod(shape) * self._item
        """Bytes of the whole file."""
        self._file = FileIO(path, "w+" if is_new else "r+")
        if is_new:
            self._write(0, memoryview(header.getvalue()))
            with self._errors_name_file():
                self._file.truncate(self.size)

    def store(self, rows: Span, columns: Span, piece: Array) -> None:
        """Write a C-contiguous piece of the file's dtype."""
        data, width = np.ascontiguousarray(piece).data.cast("B"), self._shape[1]
        place = self._offset + (rows.start * width + columns.start) * self._item
        if columns.size == width:
            self._write(place, data)
            return
        step = columns.size * self._item
        for at in range(rows.size):
            self._write(place + at * width * self._item, data[at * step : (at + 1) * step])

    def flush(self) -> None:
        """Have the disk hold all that was written."""
        with self._errors_name_file():
            os.fsync(self._file.fileno())

    def _write(self, place: int, data: memoryview) -> None:
        with self._errors_name_file():
            self._file.seek(place)
            done = 0
            while done < len(data):
                done += self._file.write(data[done:]) or 0

    @contextmanager
    def _errors_name_file(self) -> Iterator[None]:
        """Add the file's name to an OSError; that of a full disk or of a size limit lacks it."""
        try:
            yield
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(self.path)) from error
