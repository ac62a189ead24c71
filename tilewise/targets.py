"""The names of kernels in files: ``FILE.cu:NAME`` and ``FILE.ptx:NAME``."""

from __future__ import annotations

import re
from pathlib import Path

SUFFIXES = (".cu", ".cuh")
"""The suffixes of files with CUDA C++."""
PTX_SUFFIX = ".ptx"
_TARGET = re.compile(r"(.*?\.(?:cuh?|ptx)):(.*)", re.DOTALL)


def split_target(target: str) -> tuple[Path, str] | None:
    """Return the file and the kernel's name of ``"FILE.cu:NAME"`` or ``"FILE.ptx:NAME"``.

    Return None for a string of another form.

    Examples
    --------
    >>> split_target("folder/own.cu:space::kernel<64>")
    (PosixPath('folder/own.cu'), 'space::kernel<64>')
    """
    # A kernel's name may contain a colon too.
    match = _TARGET.fullmatch(target)
    return None if match is None else (Path(match[1]), match[2])


def check_is_file(path: Path) -> None:
    """Raise an error if there is no regular file.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    IsADirectoryError
        If it is a folder.
    OSError
        If it is a pipe or a device.
    """
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder; `tilewise kernels {path}` lists the kernels of its files"
        )
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.is_file():
        raise OSError(f"{path} is not a regular file; copy its contents into one")
