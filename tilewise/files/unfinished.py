"""The files beside an output that is not finished: its part, its journal and its lock."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tilewise.errors import TilewiseError

VERSION = 1

_held: set[Path] = set()  # the locks that this process has: lockf does not keep it from itself
_guard = threading.Lock()


class InUseError(TilewiseError):
    """Another process writes the same output."""


class Unfinished:
    """An output that is being written, whose state is kept beside it.

    ``C.npy.part`` has the tiles that are finished, ``C.npy.journal`` lists them and the product.
    The part gets the output's name when all of it is there.

    Parameters
    ----------
    output : Path
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.part = output.with_name(f"{output.name}.part")
        self.journal = output.with_name(f"{output.name}.journal")
        self.lock = output.with_name(f"{output.name}.lock")
        self._new_journal = output.with_name(f"{output.name}.journal.new")

    @property
    def beside(self) -> tuple[Path, ...]:
        """The files beside the output that exist until the output is complete."""
        return self.part, self.journal, self.lock, self._new_journal

    def recorded(self) -> dict[str, Any] | None:
        """Return the contents of the journal; None if there is no journal and part.

        Raises
        ------
        ValueError
            If the journal can't be understood.
        """
        if not (self.journal.exists() and self.part.exists()):
            return None
        try:
            found = json.loads(self.journal.read_text("utf-8"))
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}, not {VERSION}")
            return dict(found)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.journal} is no journal that can be resumed ({error}); run it without "
                "resume=True to begin anew"
            ) from error

    def record(self, content: Mapping[str, Any]) -> None:
        """Write the journal, whole or not at all; what it tells of is on the disk already."""
        new = self._new_journal
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump({"version": VERSION, **content}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.journal)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise type(error)(error.errno, error.strerror, str(self.journal)) from error

    def discard(self) -> bool:
        """Remove the part and the journal; return whether there was one of them."""
        found = self.part.exists() or self.journal.exists()
        self.journal.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)
        return found

    def finish(self) -> None:
        """Give the part the output's name; it is on the disk already."""
        if self.output.exists():
            self.part.chmod(self.output.stat().st_mode & 0o7777)
        self.part.replace(self.output)
        self.journal.unlink(missing_ok=True)
        with suppress(OSError):  # so that the new name outlasts a power failure; not on Windows
            folder = os.open(self.output.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from this output.

        The lock is the system's, on a file that names the process: a process that was killed leaves
        the file, and no lock. If there are no such locks (Windows), the file is the lock.

        Raises
        ------
        InUseError
            If another process holds it.
        """
        with _guard:
            if self.lock in _held:
                raise InUseError(f"another thread of this process writes {self.output}")
            descriptor = self._taken()
            _held.add(self.lock)
        try:
            try:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
            except OSError as error:  # the error of a full disk lacks the file's name
                raise type(error)(error.errno, error.strerror, str(self.lock)) from error
            yield
        finally:
            if not _has_locks():  # an open file can't be removed there
                os.close(descriptor)
            with _guard:
                self.lock.unlink(missing_ok=True)
                _held.discard(self.lock)
            if _has_locks():
                os.close(descriptor)

    def _taken(self) -> int:
        while True:
            flags = os.O_RDWR | os.O_CREAT | (0 if _has_locks() else os.O_EXCL)
            try:
                descriptor = os.open(self.lock, flags, 0o644)
                if not _has_locks():
                    return descriptor
            except FileExistsError:
                raise InUseError(
                    f"{self._writer()} writes {self.output}, or left {self.lock} when it was "
                    "killed; remove that file if no such process is there"
                ) from None
            try:
                os.lockf(descriptor, os.F_TLOCK, 0)
                # The last one may have removed it between the opening and the lock.
                if os.fstat(descriptor).st_ino == self.lock.stat().st_ino:
                    return descriptor
            except (BlockingIOError, PermissionError):
                os.close(descriptor)
                raise InUseError(
                    f"{self._writer()} writes {self.output} at this moment; wait for it, or "
                    "name another output"
                ) from None
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def _writer(self) -> str:
        with suppress(OSError, ValueError):
            return f"process {int(self.lock.read_text())}"
        return "another process"


def _has_locks() -> bool:
    """Return whether the system frees a file's lock with the process that has it."""
    return hasattr(os, "lockf")
