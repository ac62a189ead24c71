"""Find the file that an include names, or the reason why the source may not read it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tilewise.compiler.library import Library
from tilewise.compiler.source_files import MOST_BYTES, read

MOST_FILES = 1000
"""The most headers that one source may include."""

_OUTSIDE = (
    "an include outside the folder of the source and the folders of include= is not read; name its "
    "folder in include=, or trust the source with trusted=True"
)
_ODD_PATH = "a header whose path has a quotation mark or a new line is not read"
_NOWHERE = "there is no such header in the folder of the source; name its folder in include="


@dataclass
class Search:
    """A search for the headers of one source, which keeps what it found.

    Parameters
    ----------
    file : str
        The source's name in messages.
    folders : tuple of Path
        The folders that includes search, absolute, in order.
    roots : tuple of Path
        The folders whose files may be read, absolute.
    is_trusted : bool
        Whether any file may be read.
    macros : mapping of str to str
        The macros that the caller defines.
    library : Library
        The headers that are found elsewhere: tilewise's own, and CUDA's.
    given : mapping of str to str
        The texts of headers by absolute path, in place of the files' contents.
    check : callable
        A function that is called at each step, and raises if the time is over.

    Attributes
    ----------
    is_whole : bool
        Whether every include is resolved, so that NVRTC reads no file.
    size : int
        The bytes of the headers so far.
    texts : dict of Path to str
        The headers so far.
    files : dict of Path to None
        The files that were read or looked for, in order.
    by_macro : set of str
        The macros that replace the name in an include.
    answers : dict
        The results of :meth:`find` so far.
    """

    file: str
    folders: tuple[Path, ...]
    roots: tuple[Path, ...]
    is_trusted: bool
    macros: Mapping[str, str]
    library: Library = field(default_factory=Library)
    is_whole: bool = True
    size: int = 0
    texts: dict[Path, str] = field(default_factory=dict)
    files: dict[Path, None] = field(default_factory=dict)
    by_macro: set[str] = field(default_factory=set)
    answers: dict[tuple[str, Path | None], tuple[Path | None, str]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None

    def find(self, name: str, folder: Path | None) -> tuple[Path | None, str]:
        """Return the file that an include means, or None, and why it is not read.

        If a header of a trusted source is just not found, the reason is empty: NVRTC may find it.
        """
        self.check()
        asked = (name, folder)
        if asked not in self.answers:
            found, reason = self._find(name, folder)
            if found is None and not reason:
                found, reason = self.library.find(name)
            if found is None and not reason and not self.is_trusted:
                reason = _NOWHERE
            self.answers[asked] = found, reason
        return self.answers[asked]

    def missing(self) -> dict[str, str]:
        """Return the headers that were not found for any include, by name, each with the reason."""
        found = {name for (name, _), (file, _) in self.answers.items() if file is not None}
        return {
            name: reason or _NOWHERE
            for (name, _), (_, reason) in self.answers.items()
            if name not in found
        }

    @cached_property
    def real_roots(self) -> list[Path]:
        """The folders that may be read, with all links followed."""
        return [root.resolve() for root in self.roots]

    def _find(self, name: str, folder: Path | None) -> tuple[Path | None, str]:
        reason = ""
        places = dict.fromkeys((*(() if folder is None else (folder,)), *self.folders))
        for place in (Path("/"),) if Path(name).is_absolute() else places:
            file = absolute(place / name)
            if not self._is_inside(file, self.roots):
                reason = _OUTSIDE
                continue
            if file in self.texts:
                return file, ""
            self.files[file] = None
            try:
                # A link is judged by the file that it leads to.
                if not self._is_inside(file.resolve(), self.real_roots):
                    reason = _OUTSIDE
                    continue
                text = self.given.get(str(file)) or read(file, MOST_BYTES - self.size)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RuntimeError) as error:
                why = getattr(error, "strerror", "") or error
                return None, " ".join(f"this header is not read: {why}".split())
            if '"' in str(file) or "\n" in str(file):
                return None, _ODD_PATH
            if len(self.texts) >= MOST_FILES:
                return None, f"no more than {MOST_FILES:,} headers are read"
            self.size += len(text.encode())
            self.texts[file] = text
            return file, ""
        return None, reason

    def _is_inside(self, file: Path, roots: Sequence[Path]) -> bool:
        return self.is_trusted or any(file.is_relative_to(root) for root in roots)


def absolute(path: Path) -> Path:
    """Return an absolute path with no ``..`` in it; no file is looked at."""
    return Path(os.path.normpath(path.absolute()))
