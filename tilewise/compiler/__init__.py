"""CUDA C++ to PTX and machine code, with what ptxas says of it. Needs no GPU and no toolkit.

NVRTC compiles for a real architecture and gives PTX, machine code and ptxas's figures of one
compilation. What was compiled once is kept, in the process and on disk
(:mod:`tilewise.compiler.cache`).
"""

from __future__ import annotations

import re
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewise.compiler import apart, cache, confine, nvrtc, shipped, signatures, symbols
from tilewise.compiler.compiled import Compiled, Parameter
from tilewise.compiler.includes import Gathered, gather
from tilewise.compiler.options import (
    check_options,
    check_text,
    folders,
    is_known,
    of_macros,
)
from tilewise.compiler.underway import underway
from tilewise.errors import CompileError
from tilewise.launch import Resources
from tilewise.limits import Limits

__all__ = ["DEFAULT_ARCH", "Compiled", "Parameter", "architectures", "compile"]

DEFAULT_ARCH = "sm_90a"
_FIXED_OPTIONS = (
    "--ptxas-options=-v",
    # NVRTC's own cache, which it keeps where there is a driver, gives code without ptxas's log.
    "--no-cache",
    "--device-as-default-execution-space",
    # Elsewhere NVRTC has no 128-bit integers.
    *(("--device-int128",) if sys.platform == "linux" else ()),
)
_LINES = "--generate-line-info"
# NVRTC leaves out what it declares of textures and surfaces, which no kernel of tilewise's uses.
_MINIMAL = "--minimal"
_NO_LIMITS = Limits(seconds=None, instructions=None, memory=None, output=None)
_REMEMBERED = 1024
_memory: dict[tuple[Any, ...], tuple[Compiled, tuple[Any, ...], tuple[Path, ...]]] = {}
_shipped: dict[tuple[Any, ...], Compiled] = {}
_lock = threading.Lock()


def architectures() -> tuple[str, ...]:
    """Every architecture that :func:`compile` takes, oldest first, as ``"sm_90"``, ``"sm_90a"``.

    Raises
    ------
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    return nvrtc.architectures()


def compile(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    arch: str = DEFAULT_ARCH,
    path: Path | None = None,
    options: Sequence[str] = (),
    include: Sequence[str | Path] = (),
    lines: bool = True,
    trusted: bool = False,
    limits: Limits | None = None,
) -> Compiled:
    """Compile one kernel, or take it from the cache.

    Parameters
    ----------
    source : str
        CUDA C++. A function with no ``__device__`` or ``__global__`` is a device function.
    name : str
        The kernel's name: plain, qualified (``"space::kernel"``), a template's instance
        (``"sgemm<64, 64, 8>"``), or the symbol.
    defines : mapping, optional
        Macros: ``{"TILE": 16}`` is ``-DTILE=16``. True is a bare ``-DNAME``; False leaves the
        macro undefined.
    arch : str
        A real architecture, one of :func:`architectures`.
    path : Path, optional
        Where the source came from: its name in messages, and ``#include`` reads its folder, and
        what lies in that.
    options : sequence of str
        More options for NVRTC, of those that read and write no file.
    include : sequence of str or Path
        More folders that ``#include`` searches and reads. It reads no other file.
    lines : bool
        Whether PTX and machine code say of which source line each instruction is, and the
        parameters as what they are declared. The instructions are the same without, and the
        machine code's file is a third as large.
    trusted : bool
        Whether the source may include any file of the machine, and ``options`` may have NVRTC
        read and write files.
    limits : Limits, optional
        With them a process of its own compiles, which is stopped where it takes more, and which
        on Linux can open no file.

    Raises
    ------
    CompileError
        If the source does not compile, or has no kernel of this name.
    LimitError
        If compiling it takes more than ``limits`` allow.
    ValueError
        If NVRTC does not know ``arch``, a macro's name or value is none, or an option is one for
        sources that are trusted.
    TypeError
        If an argument is of another type.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    known = _known(source, name, defines, arch, path, options, lines)
    if known is not None:
        return known
    job = _job(source, name, defines, arch, path, options, include, lines, trusted, limits)
    return _remembered(job) or _kept(job) or _compiled(job)


def find(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    arch: str = DEFAULT_ARCH,
    path: Path | None = None,
    options: Sequence[str] = (),
    include: Sequence[str | Path] = (),
    lines: bool = True,
    trusted: bool = False,
) -> Compiled | None:
    """Take one kernel from the cache; return None where :func:`compile` would have to compile it.

    Parameters
    ----------
    source, name, defines, arch, path, options, include, lines, trusted
        As :func:`compile` takes them.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As :func:`compile`.
    """
    known = _known(source, name, defines, arch, path, options, lines)
    if known is not None:
        return known
    job = _job(source, name, defines, arch, path, options, include, lines, trusted, None)
    return _remembered(job) or _kept(job)


def kept_bytes(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    arch: str = DEFAULT_ARCH,
    path: Path | None = None,
    options: Sequence[str] = (),
    lines: bool = True,
) -> int | None:
    """How large the cache's file of a kernel on disk is; None where it keeps none.

    Parameters
    ----------
    source, name, defines, arch, path, options, lines
        As :func:`compile` takes them.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As :func:`compile`.
    """
    key = key_of(source, name, defines=defines, arch=arch, path=path, options=options, lines=lines)
    return None if key is None else cache.size(key)


def key_of(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    arch: str = DEFAULT_ARCH,
    path: Path | None = None,
    options: Sequence[str] = (),
    lines: bool = True,
) -> bytes | None:
    """Return what the cache on disk keeps a kernel by; None where it can't keep it.

    Parameters
    ----------
    source, name, defines, arch, path, options, lines
        As :func:`compile` takes them.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As :func:`compile`.
    """
    job = _job(source, name, defines, arch, path, options, (), lines, False, None)
    _check_architecture(arch)
    gathered = _gathered(job)
    return _key(job, gathered) if gathered.is_whole else None


def forget() -> None:
    """Forget what this process compiled; what is on disk stays."""
    with _lock:
        _memory.clear()
        _shipped.clear()


@dataclass(frozen=True)
class _Job:
    """One kernel to compile, its arguments checked.

    Attributes
    ----------
    folder : Path or None
        The source's own.
    include : tuple of Path
        More that ``#include`` searches.
    options : tuple of str
        All that NVRTC gets.
    is_shipped : bool
        Whether the source comes with tilewise, and all that it may include.
    is_trusted : bool
    is_told : bool
        Whether what the options have NVRTC read is known.
    limits : Limits or None
    asked, known_by : tuple
        What the process remembers it by; one that comes with tilewise, by the latter.
    """

    source: str
    name: str
    arch: str
    file: str
    lines: bool
    folder: Path | None
    include: tuple[Path, ...]
    options: tuple[str, ...]
    is_shipped: bool
    is_trusted: bool
    is_told: bool
    limits: Limits | None
    asked: tuple[Any, ...]
    known_by: tuple[Any, ...]

    def run(self, gathered: Gathered, options: Sequence[str], name: str | None) -> nvrtc.Output:
        """What NVRTC makes of it: in a process of its own, where there are limits."""
        if gathered.is_doubtful and not confine.can_close_files():
            raise CompileError(
                f"{self.file}: names in it may be pasted (##) to __has_include, which would look "
                "for any file, and this system can't forbid that; trust it with trusted=True"
            )
        if self.is_shipped or (self.limits is None and not gathered.is_doubtful):
            return nvrtc.run(gathered.source, self.file, options, name, gathered.headers)
        return apart.run(
            gathered.source, self.file, options, name, gathered.headers,
            limits=self.limits or _NO_LIMITS, is_trusted=self.is_trusted,
        )  # fmt: skip


def _job(
    source: str,
    name: str,
    defines: Mapping[str, Any] | None,
    arch: str,
    path: Path | None,
    options: Sequence[str],
    include: Sequence[str | Path],
    lines: bool,
    is_trusted: bool,
    limits: Limits | None,
) -> _Job:
    check_text(source, "source")
    check_text(name, "name")
    if not name.strip() or "\n" in name:
        raise ValueError(f"{name!r} is not the name of a kernel")
    if "__has_" in name and not is_trusted:
        raise ValueError(f"{name!r} asks for files; that takes trusted=True")
    if isinstance(include, str | Path):
        raise TypeError(f"include is {include!r}; it takes a sequence of folders")
    check_options(options, is_trusted)
    macros = of_macros(defines or {})
    file = "<source>" if path is None else str(path)
    folder = None if path is None else Path(path).absolute().parent
    more = tuple(Path(each).absolute() for each in (*include, *folders(options)))
    is_shipped = folder is not None and not more and shipped.has(file, source)
    # NVRTC itself searches for the headers of a source that is trusted, and of no other. It would
    # look beside a source with no path in the working directory.
    search = ["--no-source-include"]
    if folder is not None and (is_shipped or is_trusted):
        search = [f"--include-path={folder}"]
    if is_trusted:
        search += (f"--include-path={Path(each).absolute()}" for each in include)
    of_lines = [_LINES] if lines else [_MINIMAL] if is_shipped else []
    every = (f"--gpu-architecture={arch}", *of_lines, *_FIXED_OPTIONS, *search, *macros, *options)
    asked = (source, name, macros, arch, file, tuple(options), lines, more, is_trusted)
    at = "" if path is None else file
    known_by = (at, name, repr(defines), arch, tuple(options), lines)
    return _Job(
        source, name, arch, file, lines, folder, more, every, is_shipped, is_trusted,
        not is_trusted or is_known(options), limits, asked, known_by,
    )  # fmt: skip


def _gathered(job: _Job) -> Gathered:
    """Return a source and all that it includes; NVRTC itself finds what comes with tilewise."""
    if job.is_shipped:
        return Gathered(job.source, {}, (), True)
    # A kernel in tilewise's own folder, which somebody edits, includes what lies in its parts.
    is_own = job.folder is not None and job.folder.is_relative_to(shipped.FOLDER)
    gathered = gather(
        job.source, job.file, job.folder, job.include, more=(shipped.FOLDER,) if is_own else (),
        options=job.options, is_trusted=job.is_trusted,
    )  # fmt: skip
    return gathered if job.is_told else replace(gathered, is_whole=False)


def _key(job: _Job, gathered: Gathered) -> bytes:
    """What the cache on disk keeps a kernel by.

    One that comes with tilewise does not depend on where that is installed, but for its lines.
    """
    version = "{}.{}".format(*nvrtc.version())
    if not job.is_shipped:
        headers = [text for header in gathered.headers.items() for text in header]
        parts = (gathered.source, job.name, job.file, version, *job.options)
        return cache.key((*parts, *headers))
    decisive = [option for option in job.options if not option.startswith("--include-path=")]
    place = job.file if job.lines else shipped.relative(job.file)
    return cache.key((shipped.digest(), place, job.name, version, *decisive))


def _known(
    source: str,
    name: str,
    defines: Mapping[str, Any] | None,
    arch: str,
    path: Path | None,
    options: Sequence[str],
    lines: bool,
) -> Compiled | None:
    """Return what the process remembers of a kernel that comes with tilewise, the shortest way."""
    at = "" if path is None else str(path)
    if not shipped.has(at, source) or type(options) is not tuple:
        return None
    # repr tells True from 1, which are equal.
    return _shipped.get((at, name, repr(defines), arch, options, lines))


def _remembered(job: _Job) -> Compiled | None:
    """Return what the process remembers of a source that does not come with tilewise."""
    compiled, stamps, files = _memory.get(job.asked, (None, (), ()))
    return compiled if not files or stamps == cache.stamps(files) else None


def _kept(job: _Job) -> Compiled | None:
    """Return a kernel from the cache on disk, and remember it; None where there is none."""
    _check_architecture(job.arch)
    gathered = _gathered(job)
    return _loaded(job, _key(job, gathered), gathered.files) if gathered.is_whole else None


def _compiled(job: _Job) -> Compiled:
    """Compile a kernel, or wait for whoever compiles it already, and keep it."""
    gathered = _gathered(job)
    if not gathered.is_whole:
        return _compile(job, gathered)
    key = _key(job, gathered)
    with underway.compiling(key) as was_waited_for:
        found = _loaded(job, key, gathered.files) if was_waited_for else None
        if found is not None:
            return found
        stamps = cache.stamps(gathered.files)
        compiled = _compile(job, gathered)
        # NVRTC reads the headers that come with tilewise, which may have been edited since.
        if not job.is_shipped or shipped.is_unchanged():
            cache.store(key, _entry(compiled))
        _remember(job, compiled, gathered.files, stamps)
        return compiled


def _loaded(job: _Job, key: bytes, files: tuple[Path, ...]) -> Compiled | None:
    stamps = cache.stamps(files)
    entry = cache.load(key)
    if entry is None:
        return None
    compiled = Compiled(
        job.name, entry["symbol"], job.arch, job.source, job.file, entry["ptx"], entry["cubin"],
        Resources(**entry["resources"]), tuple(Parameter(*each) for each in entry["parameters"]),
    )  # fmt: skip
    _remember(job, compiled, files, stamps)
    return compiled


def _remember(
    job: _Job, compiled: Compiled, files: tuple[Path, ...], stamps: tuple[Any, ...]
) -> None:
    memory: dict[tuple[Any, ...], Any] = _shipped if job.is_shipped else _memory
    key = job.known_by if job.is_shipped else job.asked
    with _lock:
        memory.pop(key, None)
        memory[key] = compiled if job.is_shipped else (compiled, stamps, files)
        if len(memory) > _REMEMBERED:
            del memory[next(iter(memory))]


def _entry(compiled: Compiled) -> dict[str, Any]:
    """What is kept of a kernel; the PTX is compressed, for few ask for it."""
    return {
        "symbol": compiled.symbol,
        "resources": asdict(compiled.resources),
        "parameters": [[p.name, p.type, p.size, p.align, p.declared] for p in compiled.parameters],
        "ptx": zlib.compress(compiled.ptx.encode()),
        "cubin": compiled.cubin,
    }


def _check_architecture(arch: str) -> None:
    if arch not in nvrtc.architectures():
        raise ValueError(
            f"NVRTC does not know arch {arch!r}; it knows {', '.join(nvrtc.architectures())}"
        )


def _compile(job: _Job, gathered: Gathered) -> Compiled:
    source, name, file = job.source, job.name, job.file
    output = job.run(gathered, job.options, name)
    symbol = output.symbol
    if not output.ok:
        # Without the name: is it the source that is wrong, or the name?
        refused, output = output.log, job.run(gathered, job.options, None)
        if not output.ok:
            raise CompileError(_message(output.log, job, gathered))
        symbol = name
        if symbols.is_instance(name, source):
            raise CompileError(f"{name} of {_message(refused, job, gathered, name)}")
    if symbol not in symbols.entries(output.ptx):
        raise CompileError(_no_such_kernel(name, file, source, output.ptx))
    resources = symbols.resources(output.log, output.cubin, symbol)
    ptx = symbols.with_file_name(output.ptx, file)
    parameters = _parameters(job, gathered, symbols.parameters(ptx, symbol))
    return Compiled(name, symbol, job.arch, source, file, ptx, output.cubin, resources, parameters)


def _parameters(
    job: _Job, gathered: Gathered, found: list[tuple[str, str, int, int]]
) -> tuple[Parameter, ...]:
    """The parameters; where the PTX leaves the type of one open, with what the source declares."""

    def run(more: str, option: str, told: str) -> nvrtc.Output:
        longer = replace(gathered, source=gathered.source + more)
        return job.run(longer, [*job.options, option], told)

    declared: tuple[str, ...] = ()
    if job.lines and any(kind[0] in "bsu" and kind != "b8" for _, kind, _, _ in found):
        declared = signatures.declared(job.name, run)
    if len(declared) != len(found):
        declared = ("",) * len(found)
    return tuple(Parameter(*fields, each) for fields, each in zip(found, declared, strict=True))


def _no_such_kernel(name: str, file: str, source: str, ptx: str) -> str:
    there = symbols.kernels(source, ptx)
    if not there:
        return f"{file} has no kernel called {name!r}; it has no kernel (__global__ function)"
    message = f"{file} has no kernel called {name!r}; it has {', '.join(there)}"
    if f"{name}<...>" in there:
        message += f". {name} is a template: ask for an instance, such as {name}<...> filled in"
    return message


def _message(log: str, job: _Job, gathered: Gathered, name: str | None = None) -> str:
    """NVRTC's log, of a template's instance ``name``: ``file:line: error: ...`` and the line."""
    lines = [line for line in log.splitlines() if not re.match(r"ptxas +(info|\.) ", line)]
    text = re.sub(r"^(\S.*?)\((\d+)\): ", r"\1:\2: ", "\n".join(lines), flags=re.MULTILINE)
    if "ptxas" in text and (refused := re.search(r", line (\d+); ", text)):
        # ptxas names a line of the PTX, which a virtual architecture gives without it.
        virtual = [o.replace("=sm_", "=compute_") for o in job.options if "ptxas" not in o]
        ptx = job.run(gathered, virtual, name).ptx
        line = symbols.source_line(ptx, int(refused[1]), job.file)
        rows = job.source.splitlines()
        if 1 <= line <= len(rows):
            text = f"{job.file}:{line}: error: ptxas refuses this line\n  {rows[line - 1]}\n{text}"
    return f"{job.file} does not compile for {job.arch}:\n{text}"
