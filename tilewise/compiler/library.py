"""The headers that are not the source's own: CUDA's, and replacements of the host's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tilewise.compiler import headers, pasted, toolkit
from tilewise.compiler.toolkit import Misused, Toolkit

# Between the two words there may be a comment.
_DEFINED = re.compile(r"(?:define|undef|\*/)[ \t\v\f\r]*+(\w+)", re.ASCII)


class Library:
    """A search for headers for one source, which records the headers that it uses.

    Parameters
    ----------
    include : sequence of Path
        The caller's folders.

    Attributes
    ----------
    ours : dict of Path to str
        The texts of tilewise's own headers that the source uses.
    uses_toolkit : bool
        Whether the source uses one of CUDA's headers.
    lacks : set of str
        The headers of CUDA's that it includes and that are missing.
    """

    def __init__(self, include: Sequence[Path] = ()) -> None:
        self._include = include
        self.ours: dict[Path, str] = {}
        self.uses_toolkit = False
        self.lacks: set[str] = set()

    @cached_property
    def toolkit(self) -> Toolkit | None:
        """CUDA's headers, which are searched for when they are first needed."""
        return toolkit.find(self._include)

    @cached_property
    def misused(self) -> Misused:
        """The parts of CUDA's headers that a source could misuse."""
        assert self.toolkit is not None
        return self.toolkit.misused()

    @property
    def are_the_callers(self) -> bool:
        """Whether CUDA's headers are those of a folder of ``include=``.

        The author of the source may then have written them, too.
        """
        return self.toolkit is not None and self.toolkit.origin == "include="

    @property
    def environment(self) -> tuple[str | None, ...] | None:
        """The variables that decided where CUDA's headers are; None if none were looked for."""
        return toolkit.environment() if "toolkit" in self.__dict__ else None

    @property
    def used(self) -> Toolkit | None:
        """CUDA's headers, if the source uses one."""
        return self.toolkit if self.uses_toolkit else None

    def find(self, name: str) -> tuple[Path | None, str]:
        """Return the file of a header, or None and why it is not read.

        For a header that is not CUDA's there is no reason: it is merely not there.
        """
        if self._is_the_callers(name):
            return self._of_toolkit(name)
        found = headers.find(name)
        if found is not None and name.startswith("cub/"):  # it includes others of CUB's
            if self.toolkit is None:
                return self._missing(name)
            self.uses_toolkit = True
        if found is None and self.toolkit is not None and self.toolkit.find(name) is not None:
            return self._of_toolkit(name)
        found = found or headers.find_without_toolkit(name)
        if found is None:
            return self._missing(name)
        self.ours[found] = headers.text(found)
        return found, ""

    def is_misused(self, texts: Sequence[str], given: Sequence[str]) -> bool:
        """Return whether the source may have CUDA's headers open or look for other files.

        Parameters
        ----------
        texts : sequence of str
            The source and what it includes, and ``given``; lines that a backslash joins are one.
        given : sequence of str
            The macros that come beside it, as ``NAME=VALUE``.
        """
        if self.are_the_callers:
            return True
        misused = self.misused
        defined = {name for text in texts for name in _DEFINED.findall(text)}
        defined.update(re.split(r"\W", macro, maxsplit=1)[0] for macro in given)
        # Macros of CUDA's headers may put names together that no macro of theirs has.
        if any(pasted.is_made_of(name, misused.names) for name in defined):
            return True
        return bool(misused.asking) and not misused.asking.isdisjoint(pasted.words(texts))

    def _is_the_callers(self, name: str) -> bool:
        """Return whether a header that NVRTC knows is in a folder that the caller names."""
        if not self._include or not headers.is_known_to_nvrtc(name) or self.toolkit is None:
            return False
        return self.are_the_callers and self.toolkit.find(name) is not None

    def _missing(self, name: str) -> tuple[None, str]:
        if reason := toolkit.missing(name, self.toolkit):
            self.lacks.add(name)
        return None, reason

    def _of_toolkit(self, name: str) -> tuple[Path | None, str]:
        assert self.toolkit is not None
        found = self.toolkit.find(name)
        if '"' in str(found):
            return None, "the path of its folder has a quotation mark"
        self.uses_toolkit = True
        return found, ""
