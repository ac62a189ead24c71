"""Kernels of files by name: ``FILE.cu:NAME`` and ``FILE.ptx:NAME``."""

from __future__ import annotations

import re
from pathlib import Path

SUFFIXES = (".cu", ".cuh")
"""How the names of files with CUDA C++ end."""
PTX_SUFFIX = ".ptx"
_TARGET = re.compile(r"(.*?\.(?:cuh?|ptx)):(.*)", re.DOTALL)


def split_target(target: str) -> tuple[Path, str] | None:
    """The file and the kernel's name of ``"FILE.cu:NAME"`` or ``"FILE.ptx:NAME"``.

    None of what has not that form.

    Examples
    --------
    >>> split_target("folder/own.cu:space::kernel<64>")
    (PosixPath('folder/own.cu'), 'space::kernel<64>')
    """
    # A kernel's name may hold a colon too.
    match = _TARGET.fullmatch(target)
    return None if match is None else (Path(match[1]), match[2])
