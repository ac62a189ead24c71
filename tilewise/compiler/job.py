"""A kernel to compile: what was asked, checked, and what NVRTC gets of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewise.compiler import apart, cache, confine, headers, minimal, nvrtc, shipped
from tilewise.compiler.clock import Clock
from tilewise.compiler.includes import Gathered, gather
from tilewise.compiler.options import (
    check_options,
    check_text,
    defined,
    folders,
    is_known,
    may_last,
    not_defined,
    of_macros,
)
from tilewise.compiler.pasted import check_given
from tilewise.compiler.request import Request
from tilewise.compiler.source_files import MOST_BYTES
from tilewise.errors import CompileError
from tilewise.limits import NO_LIMITS

_OF_PTXAS = "--ptxas-options=-v"
_FIXED_OPTIONS = (
    # NVRTC's own cache, which it keeps where there is a driver, gives code without ptxas's log.
    "--no-cache",
    "--device-as-default-execution-space",
    # Elsewhere NVRTC has no 128-bit integers.
    *(("--device-int128",) if sys.platform == "linux" else ()),
)
_NO_SEARCH = "--no-source-include"
_MACROS_ANEW = "--diag-suppress=47"  # a macro that is defined anew with another text
_LINES = "--generate-line-info"


@dataclass(frozen=True)
class Job:
    """One kernel to compile, its arguments checked.

    Attributes
    ----------
    request : Request
    file : str
        The source's name in messages and line information.
    folder : Path or None
        The absolute folder of the source; None for a source that is a string.
    include : tuple of Path
        Further absolute folders that ``#include`` searches.
    options : tuple of str
        All options that NVRTC gets.
    is_shipped : bool
        Whether the source and all of its headers are tilewise's own.
    is_told : bool
        Whether every file that the options make NVRTC read is known.
    may_last : bool
        Whether its options may change how NVRTC compiles later jobs in the same process.
    clock : Clock
        The time that is left for compiling it.
    memory_key : tuple
        The key of the compiled kernel in the process's memory, unless it is tilewise's own.
    shipped_key : tuple
        The key of the compiled kernel in the process's memory if it is tilewise's own.
    """

    request: Request
    file: str
    folder: Path | None
    include: tuple[Path, ...]
    options: tuple[str, ...]
    is_shipped: bool
    is_told: bool
    may_last: bool
    clock: Clock
    memory_key: tuple[Any, ...]
    shipped_key: tuple[Any, ...]

    def run(self, gathered: Gathered, options: Sequence[str], name: str | None) -> nvrtc.Output:
        """Return NVRTC's output, from a process of its own if necessary."""
        if gathered.is_doubtful and not confine.can_close_files():
            raise CompileError(f"{self.file}: {apart.NOT_CLOSED}")
        options = _with_folders(options, gathered)
        if not self._is_minimal(gathered, options, name):
            return self._run(gathered, options, name)
        output = self._run(gathered, (*options, minimal.OPTION), name)
        # Another version of NVRTC may leave out more.
        is_doubtful = not output.ok and "undefined" in output.log
        return self._run(gathered, options, name) if is_doubtful else output

    def _is_minimal(self, gathered: Gathered, options: Sequence[str], name: str | None) -> bool:
        if gathered.toolkit is not None or not gathered.is_whole or minimal.OPTION in options:
            return False
        given = (*defined(options), name or "")
        return minimal.is_enough((gathered.source, *gathered.headers.values(), *given))

    def _run(self, gathered: Gathered, options: Sequence[str], name: str | None) -> nvrtc.Output:
        limits, is_trusted = self.request.limits, self.request.trusted or self.is_shipped
        is_harmless = self.is_shipped or (limits is None and not gathered.is_doubtful)

        def run_apart() -> nvrtc.Output:
            return apart.run(
                gathered.source, self.file, options, name, gathered.headers,
                limits=limits or NO_LIMITS, is_trusted=is_trusted, must_close=gathered.is_doubtful,
                clock=self.clock, folders=gathered.folders,
            )  # fmt: skip

        if not is_harmless or self.may_last:
            return run_apart()
        if self.request.apart and apart.has_server():
            with suppress(CompileError):  # the process was killed, or did not start
                return run_apart()
        return nvrtc.run(gathered.source, self.file, options, name, gathered.headers)

    def gathered(self, texts: Mapping[str, str] | None = None) -> Gathered:
        """Return a source and everything that it includes; NVRTC finds what comes with tilewise.

        ``texts`` replace the source, by the name ``file``, and headers, by their paths.
        """
        if self.is_shipped:
            return Gathered(self.request.source, {}, (), True)
        # An edited kernel in tilewise's own folder includes headers of its parts.
        is_own = self.folder is not None and self.folder.is_relative_to(shipped.FOLDER)
        with self.clock.running():
            found = gather(
                (texts or {}).get(self.file, self.request.source),
                self.file, self.folder, self.include,
                more=(shipped.FOLDER,) if is_own else (), options=self.options,
                name=self.request.name, is_trusted=self.request.trusted, check=self.clock.check,
                given=texts,
            )  # fmt: skip
        return found if self.is_told else replace(found, is_whole=False)

    def key(self, gathered: Gathered) -> bytes:
        """Return the key of a kernel in the cache on disk.

        For a kernel that comes with tilewise it does not depend on where that is installed, except
        for the lines.
        """
        version = "{}.{}".format(*nvrtc.version())
        if not self.is_shipped:
            texts = [text for header in gathered.headers.items() for text in header]
            # An untrusted source must not learn what a trusted one finds in files.
            trust = str(self.request.trusted)
            without = ",".join(not_defined(self.request.defines or {}))
            parts = (
                gathered.source, self.request.name, self.file, version, trust, without,
                *self.options,
            )  # fmt: skip
            return cache.key((*parts, *texts, *gathered.version()))
        decisive = [option for option in self.options if not option.startswith("--include-path=")]
        place = self.file if self.request.lines else shipped.relative(self.file)
        return cache.key((shipped.digest(), place, self.request.name, version, *decisive))


def _with_folders(options: Sequence[str], gathered: Gathered) -> Sequence[str]:
    """Return options that have NVRTC search CUDA's headers, where the source includes one.

    They include one another by quoted names too, and have macros that the host's have as well.
    """
    if not gathered.folders and gathered.is_whole:
        return options
    # The headers of a trusted source, which NVRTC finds, may include files beside them.
    kept = (option for option in options if option != _NO_SEARCH)
    folders = (f"--include-path={folder}" for folder in gathered.folders)
    return (*kept, *folders, _MACROS_ANEW)


def key_of_shipped(request: Request) -> tuple[Any, ...]:
    """Return the key in memory of a kernel that comes with tilewise."""
    at = "" if request.path is None else str(request.path)
    # repr tells True from 1, which are equal.
    return (
        at, request.name, repr(request.defines), request.arch, tuple(request.options),
        request.lines, request.machine_code,
    )  # fmt: skip


def job_of(request: Request) -> Job:
    """Check the arguments of :func:`tilewise.compiler.compile`.

    Raises
    ------
    ValueError, TypeError
        As in :func:`tilewise.compiler.compile`.
    """
    (
        source, name, defines, arch, path, options, include, lines, is_trusted, limits, makes_code,
        _,
    ) = request  # fmt: skip
    check_text(source, "source")
    if (size := len(source.encode())) > MOST_BYTES:
        raise ValueError(f"source has {size:,} bytes; at most {MOST_BYTES:,} are taken")
    check_text(name, "name")
    if not name.strip() or "\n" in name:
        raise ValueError(f"{name!r} is not the name of a kernel")
    if isinstance(include, str | Path):
        raise TypeError(f"include is {include!r}; it takes a sequence of folders")
    check_options(options, is_trusted)
    macros = of_macros(defines or {})
    if not is_trusted:
        check_given(name, f"the name {name!r}")
        for macro in defined((*macros, *options)):
            check_given(macro, f"the macro {macro!r}")
    for each in include:
        check_text(str(each), "a folder of include=")
    file = "<source>" if path is None else str(path)
    check_text(file, "path")
    folder = None if path is None else Path(path).absolute().parent
    more = tuple(Path(each).absolute() for each in (*include, *folders(options)))
    is_shipped = folder is not None and not more and shipped.has(file, source)
    # NVRTC itself searches for the headers of a source that is trusted, and of no other. It would
    # look beside a source with no path in the working directory.
    search = [_NO_SEARCH]
    if folder is not None and (is_shipped or is_trusted):
        search = [f"--include-path={folder}"]
    if is_trusted:
        search += (f"--include-path={Path(each).absolute()}" for each in include)
    # The header that nvcc includes before each source.
    before = [minimal.OPTION] if is_shipped else [f"--pre-include={headers.IMPLICIT}"]
    of_lines = [_LINES] * lines
    # For a virtual architecture NVRTC makes PTX alone, and the same.
    target = arch if makes_code else arch.replace("sm_", "compute_")
    of_ptxas = [_OF_PTXAS] * makes_code
    every = (
        f"--gpu-architecture={target}", *of_lines, *before, *of_ptxas, *_FIXED_OPTIONS, *search,
        *macros, *options,
    )  # fmt: skip
    given = tuple(options)
    memory_key = (
        source, name, macros, not_defined(defines or {}), arch, file, folder, given, lines, more,
        is_trusted, makes_code,
    )  # fmt: skip
    return Job(
        request, file, folder, more, every, is_shipped,
        not is_trusted or is_known(options), may_last(options),
        Clock(limits.seconds if limits else None, file), memory_key, key_of_shipped(request),
    )  # fmt: skip
