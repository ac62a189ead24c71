"""The headers that come with tilewise: what device code uses of the host's headers.

NVRTC has none of the host's headers, and device code needs little of them: integer types, limits,
``std::min``. Those that lie in :data:`FOLDER` have that much. Others are empty: those of which it
needs nothing (``empty.txt``), and those of CUDA's that NVRTC knows by itself (``known.txt``).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "headers"
IMPLICIT = FOLDER / "implicit.h"
"""The header that nvcc includes before each source, as far as NVRTC does not know it."""
_EMPTY = FOLDER / "none.h"

_OF_HOST_LIBRARIES = re.compile(r"(?:ATen|c10|torch|pybind11|nanobind|benchmark|gtest|gmock)/.")
# Their algorithms and containers are for host code; these few are for both.
_THRUST = re.compile(
    r"thrust/(?!(?:addressof|advance|distance|functional|pair|tuple|version|zip_function)\.h$|"
    r"detail/|iterator/)[\w./]+\.h"
)
_INCLUDE = re.compile(r'^#include "([^"\n]+)"\n', re.MULTILINE)


def find(name: str) -> Path | None:
    """Return the file that replaces a header of the host's, or one that NVRTC has built in."""
    if name in _listed("empty.txt") or is_known_to_nvrtc(name):
        return _EMPTY
    if _OF_HOST_LIBRARIES.match(name) or _THRUST.fullmatch(name):
        return _EMPTY
    return FOLDER / name if name in _names() else None


def find_without_toolkit(name: str) -> Path | None:
    """Return the file that replaces a header of CUDA's if CUDA's headers are missing."""
    return FOLDER / "without" / name if f"without/{name}" in _names() else None


def is_known_to_nvrtc(name: str) -> bool:
    """Return whether NVRTC knows by itself what a header of CUDA's declares."""
    return name in _listed("known.txt")


@cache
def _listed(name: str) -> frozenset[str]:
    return frozenset((FOLDER / name).read_text(encoding="utf-8").split())


@cache
def implicit() -> Mapping[str, str]:
    """Return :data:`IMPLICIT` by its name, with its text."""
    return {str(IMPLICIT): text(IMPLICIT)}


@cache
def text(file: Path) -> str:
    """Return the text of one of these headers, those that it includes put in their places."""
    found = file.read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda m: text(Path(os.path.normpath(file.parent / m[1]))), found)


@cache
def version() -> str:
    """Return a digest of all of them."""
    digest = hashlib.sha256()
    for name in sorted(_names()):
        digest.update(f"{name}\0".encode() + (FOLDER / name).read_bytes())
    return digest.hexdigest()


@cache
def _names() -> frozenset[str]:
    return frozenset(
        file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*") if file.is_file()
    )
