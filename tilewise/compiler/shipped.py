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
_Stamp = tuple[int, int, int]  # the times of a file's content and of its entry, and its bytes
_read: dict[str, tuple[str, _Stamp]] = {}
"""The texts that were read, by their paths, each with the file's stamp, taken before."""


def text(path: Path | str) -> str | None:
    """Return the text of a file that comes with tilewise; None for any other.

    Raises
    ------
    OSError
        If there is no such file.
    """
    at = str(path)
    found = _read.get(at)
    if found is None:
        path = Path(path)
        if not at.startswith(_BEGIN) or ".." in path.parts:
            return None
        stamp = _stamp(path.stat())
        # If several threads read it, all get what one of them read, with its stamp.
        found = _read.setdefault(at, (path.read_text(encoding="utf-8-sig"), stamp))
    return found[0]


def has(path: str, source: str) -> bool:
    """Return whether ``source`` is what :func:`text` gave for this path."""
    found = _read.get(path)
    return found is not None and found[0] == source


def relative(path: str) -> str:
    """Return the path below the folder, with slashes."""
    return path.removeprefix(_BEGIN).replace(os.sep, "/")


def digest() -> str:
    """Return the digest of all the files, as of the first call."""
    return _first()[0]


@cache
def _first() -> tuple[str, dict[str, _Stamp]]:
    """Return the digest, and the stamps of the files, taken before they were read.

    The texts are kept, too: the files of a kernel are opened here, and not once more for each use.
    """
    stamps, digest = dict(_stamps(str(FOLDER))), hashlib.sha256()
    for at in sorted(stamps, key=lambda at: at.split(os.sep)):  # noqa: PTH206
        data = Path(at).read_bytes()
        digest.update(f"{relative(at)} {len(data)}\0".encode())
        digest.update(data)
        _read.setdefault(at, (data.decode("utf-8-sig").replace("\r\n", "\n"), stamps[at]))
    return digest.hexdigest(), stamps


def is_unchanged() -> bool:
    """Return whether no file's times or size have changed since it was read.

    To read the files takes ten milliseconds, in which no other thread runs, and this is asked after
    each compilation.
    """
    read = list(_read.items())
    try:
        stamps = dict(_stamps(str(FOLDER)))
    except OSError:
        return False
    return stamps == _first()[1] and all(stamps.get(at) == stamp for at, (_, stamp) in read)


def _stamps(folder: str) -> Iterator[tuple[str, _Stamp]]:
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir():
                yield from _stamps(each.path)
            elif ".cu" in each.name:
                yield each.path, _stamp(each.stat())


def _stamp(status: os.stat_result) -> _Stamp:
    # A copy that keeps the first time (cp -p, tar) does not keep the second one.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size
