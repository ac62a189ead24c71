"""Matrices in ``.npy`` files: every fault is named, and files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from codecs import getincrementaldecoder
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DTYPES = ("float16", "float32", "float64")  # a .npy file has no name for bfloat16


_NPY = b"\x93NUMPY"
_KINDS = (
    (b"PK\x03\x04", "a zip archive, as numpy.savez and torch.save write it"),
    *((b"\x80%c" % x, "a Python pickle, which is never read") for x in range(2, 6)),
    (b"\x89HDF", "an HDF5 file"),
)


def what_instead(path: Path) -> str:
    """Return what a file is that is no ``.npy`` file, as in ``"it is empty"``.

    Return an empty string if it begins as a ``.npy`` file does.

    Raises
    ------
    OSError
        If it can't be read.
    """
    with path.open("rb") as file:
        begin = file.read(64)
    if begin.startswith(_NPY):
        return ""
    if not begin:
        return "it is empty"
    if _NPY.startswith(begin):
        return "it is a .npy file that is cut short"
    for first, kind in _KINDS:
        if begin.startswith(first):
            return f"it is {kind}"
    with suppress(UnicodeDecodeError):
        text = getincrementaldecoder("utf-8")().decode(begin)  # the last character may be cut
        if all(x.isprintable() or x.isspace() for x in text):
            return "it is text, which numpy.loadtxt reads"
    return f"it begins with the bytes {begin[:8].hex(' ')}, and a .npy file with {_NPY.hex(' ')}"


def check_npy(path: Path, what: str) -> None:
    """Raise ValueError if a regular file does not begin as a ``.npy`` file does.

    Parameters
    ----------
    path : Path
    what : str
        What it is to be, as in ``"matrix A"``.
    """
    if path.is_file() and (found := what_instead(path)):
        raise ValueError(
            f"{what}: {path} is no .npy file of numbers: {found}; write one array with numpy.save"
        )


def load_matrix(path: Path, what: str) -> npt.NDArray[Any]:
    """Return the matrix in the ``.npy`` file at ``path``, with contiguous rows.

    Parameters
    ----------
    path : Path
        The path of a file that ``numpy.save`` wrote.
    what : str
        The matrix's name in messages, as in ``"A"``.

    Returns
    -------
    ndarray, shape (rows, columns), of one of :data:`DTYPES`

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    OSError
        If it can't be read.
    MemoryError
        If its header says that it is larger than this machine's memory.
    ValueError
        If it does not contain a matrix of a supported dtype.
    """
    if not path.exists():
        raise FileNotFoundError(f"matrix {what}: there is no file {path}")
    if path.is_dir():
        raise IsADirectoryError(f"matrix {what}: {path} is a folder; a .npy file is needed")
    check_npy(path, f"matrix {what}")
    try:
        loaded = np.load(path, allow_pickle=False)
    except MemoryError as error:  # also if a file that is cut short says that it is so large
        raise MemoryError(f"matrix {what}: {path}: {error}") from None
    except (ValueError, EOFError, SyntaxError) as error:
        # NumPy takes what it does not know for a pickle, and its message says so, which misleads.
        reason = "" if "pickle" in str(error).lower() else f": {error}"
        raise ValueError(
            f"matrix {what}: {path} is no .npy file of numbers{reason}; write one with numpy.save"
        ) from error
    if loaded.ndim != 2:
        raise ValueError(
            f"matrix {what}: {path} has the shape {loaded.shape}; a matrix has 2 dimensions"
        )
    if loaded.dtype.newbyteorder("=").name not in DTYPES:
        raise ValueError(
            f"matrix {what}: {path} is {loaded.dtype}; the kernels take {', '.join(DTYPES)}"
        )
    # A file may be column-major or of the other byte order; the copy here need not be.
    return np.ascontiguousarray(loaded, dtype=loaded.dtype.newbyteorder("="))


def check_target(path: Path) -> None:
    """Raise the errors that writing ``path`` would raise, before the work for it is done.

    Raises
    ------
    OSError
        If its folder does not exist or can't be written to, or the path is a folder or a device.
        The folder of a symbolic link is that of its target.
    """
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    if place.is_symlink():
        raise OSError(f"can't write {path}: it is a symbolic link that leads back to itself")
    folder = place.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"can't write {path}: there is no folder {folder}")
    if path.is_dir():
        raise IsADirectoryError(f"can't write {path}: it is a folder")
    if path.exists() and not path.is_file():  # a new file would replace /dev/null
        raise OSError(f"can't write {path}: it is no regular file")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"can't write {path}: the folder {folder} is read-only")


def check_npy_target(path: Path) -> None:
    """Raise the errors that writing a matrix to ``path`` would raise.

    Raises
    ------
    ValueError
        If the file's name does not end in ``.npy``, in lower or upper case.
    OSError
        As in :func:`check_target`.
    """
    check_target(path)
    if not path.name.lower().endswith(".npy"):
        raise ValueError(
            f"can't write {path}: it would hold a matrix as numpy.save writes it, so the file's "
            f"name must end in .npy, as {path.with_suffix('.npy')}"
        )


def save_matrix(path: Path, matrix: npt.NDArray[Any]) -> None:
    """Write ``matrix`` to ``path`` as ``.npy`` such that at no time it exists in part.

    The file appears by a rename within its folder, as the last step. An existing file keeps its
    mode; of a symbolic link the target is replaced, not the link.

    Raises
    ------
    OSError
        If it can't be written; then nothing has changed.
    """
    check_target(path)
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            np.save(file, matrix, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except OSError as error:
        # The error of a full disk does not name the file.
        raise type(error)(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
