"""The compiler's cache: compiled kernels on disk, found by everything that went into them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

FORMAT = 10  # raise it when the format, or the way to compile, changes
MAX_BYTES = 512 << 20
_MAGIC = b"tilewise"
_DIGEST = 32


def directory() -> Path | None:
    """Return the folder of the cache: ``TILEWISE_CACHE_DIR``, or the platform's for caches.

    Return None if there is no home directory for it.
    """
    chosen = os.environ.get("TILEWISE_CACHE_DIR")
    return _chosen(chosen) if chosen else _usual(*map(os.environ.get, _DECISIVE))


# To read a variable takes a microsecond.
_DECISIVE = (
    ("LOCALAPPDATA", "USERPROFILE") if sys.platform == "win32" else ("XDG_CACHE_HOME", "HOME")
)
_chosen = lru_cache(maxsize=4)(Path)


@lru_cache(maxsize=4)
def _usual(place: str | None, _home: str | None) -> Path | None:
    """Return the platform's place by the environment: :meth:`Path.home` takes 40 microseconds."""
    try:
        if sys.platform == "win32":
            return (Path(place) if place else Path.home() / "AppData" / "Local") / "tilewise"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "tilewise"
        return (Path(place) if place else Path.home() / ".cache") / "tilewise"
    except RuntimeError:  # Path.home() found none
        return None


@lru_cache(maxsize=4)
def _store(place: Path) -> Any:
    # Imported here, so that ``import tilewise`` does not wait for it.
    utils = import_module("cuda.core.utils")
    return utils.FileStreamProgramCache(place, max_size_bytes=MAX_BYTES)


def load(key: bytes) -> dict[str, Any] | None:
    """Return what was stored under ``key``; None if there is nothing, or it is damaged."""
    return unpack(_stored(key))


def size(key: bytes) -> int | None:
    """Return the bytes of what is stored under ``key``; None if :func:`load` finds nothing."""
    data = _stored(key)
    return None if unpack(data) is None else len(data)


def _stored(key: bytes) -> bytes:
    """Return the bytes of the file of ``key``; empty if it can't be read."""
    place = directory()
    if place is None:
        return b""
    try:
        return _store(place).get(key) or b""
    except (ImportError, OSError):
        return b""


def store(key: bytes, entry: Mapping[str, Any]) -> None:
    """Store ``entry`` (JSON values, and ``bytes``) under ``key``.

    Does nothing where the place can't be written: a cache may not stop a compilation.
    """
    place = directory()
    if place is None:
        return
    try:
        _store(place)[key] = pack(entry)
    except (ImportError, OSError):
        return


def pack(entry: Mapping[str, Any]) -> bytes:
    """Return ``entry``, of JSON values and ``bytes``, as bytes with a checksum."""
    binary = {name: value for name, value in entry.items() if isinstance(value, bytes)}
    plain = {name: value for name, value in entry.items() if name not in binary}
    sizes = [[name, len(value)] for name, value in binary.items()]
    head = json.dumps([plain, sizes]).encode()
    body = b"".join((len(head).to_bytes(8, "little"), head, *binary.values()))
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes) -> dict[str, Any] | None:
    """Return what :func:`pack` was given; None for other bytes."""
    start = len(_MAGIC) + _DIGEST
    body = memoryview(data)[start:]
    if data[:start] != _MAGIC + hashlib.sha256(body).digest():
        return None
    at = 8 + int.from_bytes(body[:8], "little")
    entry: dict[str, Any]
    entry, sizes = json.loads(bytes(body[8:at]))
    for name, size in sizes:
        entry[name] = bytes(body[at : at + size])
        at += size
    return entry


def key(parts: Iterable[str]) -> bytes:
    """Return a key from everything that the outcome depends on."""
    digest = hashlib.sha256(f"{FORMAT}".encode())
    for part in parts:
        text = part.encode(errors="surrogateescape")
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.digest()


def stamps(files: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """Return names, times and sizes, which show whether a file changed without reading it."""
    out = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            out.append((str(file), -1, -1))
        else:
            out.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(out)
