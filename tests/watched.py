"""Watch a file that no source may read: tests assert that no process opens it."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewise import compiler
from tilewise.errors import CompileError

SECRET = "int the_secret = of_the_machine;\n"
IN_OPEN = 0x20


class Watched:
    """A file outside of what a source may read; inotify counts how often it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text(SECRET)
        self._system = ctypes.CDLL(None, use_errno=True)
        self._number = self._system.inotify_init1(os.O_NONBLOCK)
        assert self._system.inotify_add_watch(self._number, os.fsencode(path), IN_OPEN) >= 0

    def opened(self) -> int:
        """Return how often it was opened since the last call."""
        try:
            return len(os.read(self._number, 1 << 16)) // struct.calcsize("iIII")
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Stop watching."""
        os.close(self._number)


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Watched]:
    """Yield a watched file beside the folder of sources."""
    (tmp_path / "outside").mkdir()
    watched = Watched(tmp_path / "outside" / "secret.txt")
    yield watched
    watched.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder that sources may read."""
    place = tmp_path / "own"
    place.mkdir()
    return place


def told(source: str, path: Path | None, options: tuple[str, ...] = ()) -> str:
    """Compile a source; return its PTX, or the error's message."""
    try:
        return compiler.compile(source, "k", path=path, options=options).ptx
    except CompileError as error:
        return str(error)
