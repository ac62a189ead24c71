"""The sources of the kernels that come with tilewise, each of which is read once in a process.

They may be edited between two processes, but a process keeps what it read first. One digest of all
of them, headers included, represents everything that a kernel among them includes.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "kernels"
_BEGIN = f"{FOLDER}{os.sep}"
_texts: dict[str, str] = {}


def text(path: Path) -> str | None:
    """Return the source of a file that comes with tilewise; None for any other.

    Raises
    ------
    OSError
        If there is no such file.
    """
    at = str(path)
    found = _texts.get(at)
    if found is None and at.startswith(_BEGIN) and ".." not in path.parts:
        found = _texts[at] = path.read_text(encoding="utf-8-sig")
    return found


def has(path: str, source: str) -> bool:
    """Return whether ``source`` is what :func:`text` gave for this path."""
    return _texts.get(path) == source


def relative(path: str) -> str:
    """Return the path below the folder."""
    return Path(path.removeprefix(_BEGIN)).as_posix()


@cache
def digest() -> str:
    """Return the digest of all the files, as of the first call."""
    return _digest()


def is_unchanged() -> bool:
    """Return whether the files still are as :func:`digest` found them, and as first read."""
    texts = list(_texts.items())
    try:
        return _digest() == digest() and all(
            Path(path).read_text(encoding="utf-8-sig") == text for path, text in texts
        )
    except OSError:
        return False


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(FOLDER.rglob("*.cu*")):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(FOLDER).as_posix()} {len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
