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
