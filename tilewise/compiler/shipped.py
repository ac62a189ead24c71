"""The sources of the kernels that come with tilewise, each of which is read once in a process.

They may be edited between two processes, but a process keeps what it read first. One digest of all
of them, headers included, represents everything that a kernel among them includes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "kernels"
_BEGIN = f"{FOLDER}{os.sep}"
_texts: dict[str, str] = {}
_Stamp = tuple[int, int]  # a file's time and its bytes
_read: dict[str, _Stamp] = {}  # of the texts, taken before they were read


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
        stamp = _stamp(path.stat())
        found = _texts[at] = path.read_text(encoding="utf-8-sig")
        _read[at] = stamp
    return found


def has(path: str, source: str) -> bool:
    """Return whether ``source`` is what :func:`text` gave for this path."""
    return _texts.get(path) == source


def relative(path: str) -> str:
    """Return the path below the folder."""
    return Path(path.removeprefix(_BEGIN)).as_posix()


def digest() -> str:
    """Return the digest of all the files, as of the first call."""
    return _first()[0]


@cache
def _first() -> tuple[str, dict[str, _Stamp]]:
    """Return the digest, and the stamps of the files, taken before they were read."""
    stamps = dict(_stamps(str(FOLDER)))
    return _digest(), stamps


def is_unchanged() -> bool:
    """Return whether the files still are as :func:`digest` found them, and as first read.

    Their times and sizes tell. To read them takes ten milliseconds, in which no other thread runs,
    and this is asked after each compilation.
    """
    read = list(_read.items())
    try:
        stamps = dict(_stamps(str(FOLDER)))
    except OSError:
        return False
    return stamps == _first()[1] and all(stamps.get(path) == stamp for path, stamp in read)


def _stamps(folder: str) -> Iterator[tuple[str, _Stamp]]:
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir():
                yield from _stamps(each.path)
            elif ".cu" in each.name:
                yield each.path, _stamp(each.stat())


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_mtime_ns, status.st_size


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(FOLDER.rglob("*.cu*")):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(FOLDER).as_posix()} {len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
