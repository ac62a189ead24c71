"""CUDA C++ to PTX and machine code, with what ptxas says of it. Needs no GPU and no toolkit.

NVRTC compiles for a real architecture and gives PTX, machine code and ptxas's figures of one
compilation. What was compiled once is kept, in the process and on disk
(:mod:`tilewise.compiler.cache`).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewise.compiler import cache, nvrtc, shipped
from tilewise.compiler import make as making
from tilewise.compiler.compiled import Compiled, Parameter
from tilewise.compiler.includes import Gathered
from tilewise.compiler.job import Job, job_of
from tilewise.compiler.underway import underway
from tilewise.counted import Resources
from tilewise.launch import DEFAULT_ARCH
from tilewise.limits import Limits

__all__ = ["DEFAULT_ARCH", "Compiled", "Parameter", "architectures", "compile"]

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
        The file that the source came from. Messages name it, and ``#include`` reads files in its
        folder and below. It need not exist.
    options : sequence of str
        More options for NVRTC, of those that read and write no file.
    include : sequence of str or Path
        More folders that ``#include`` searches and reads. It reads no other file.
    lines : bool
        Whether PTX and machine code say which source line each instruction comes from, and
        :attr:`Compiled.parameters` say as what each parameter is declared. Without, the
        instructions are the same, and the machine code takes a third of the bytes.
    trusted : bool
        Whether the source may include any file of the machine, and ``options`` may have NVRTC
        read and write files.
    limits : Limits, optional
        The most that compiling may take. A process of its own compiles then. It is killed when its
        time is over; on Linux its memory is limited, and with Landlock it can open no file.

    Raises
    ------
    CompileError
        If the source does not compile, has no kernel of this name, or the compiler breaks down.
    LimitError
        If compiling it takes more than ``limits`` allow.
    ValueError
        If NVRTC does not know ``arch``, a macro's name or value is none, the source has more than
        16 MiB, or an option, a macro or the name is one for sources that are trusted.
    TypeError
        If an argument is of another type.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    known = _known(source, name, defines, arch, path, options, lines)
    if known is not None:
        return known
    job = job_of(source, name, defines, arch, path, options, include, lines, trusted, limits)
    known = _remembered(job)
    if known is not None:
        return known
    asked = _asked(job)
    return _kept(asked) or _compiled(asked)


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
    job = job_of(source, name, defines, arch, path, options, include, lines, trusted, None)
    return _remembered(job) or _kept(_asked(job))


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
    return _asked(job_of(source, name, defines, arch, path, options, (), lines, False, None)).key


def forget() -> None:
    """Forget what this process compiled; what is on disk stays."""
    with _lock:
        _memory.clear()
        _shipped.clear()
    making.forget()


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


def _in_memory(job: Job) -> Compiled | None:
    """Return what the process remembers of a kernel, whether it comes with tilewise or not."""
    return _shipped.get(job.shipped_key) if job.is_shipped else _remembered(job)


def _remembered(job: Job) -> Compiled | None:
    """Return what the process remembers of a source that does not come with tilewise."""
    compiled, stamps, files = _memory.get(job.memory_key, (None, (), ()))
    return compiled if not files or stamps == cache.stamps(files) else None


@dataclass(frozen=True)
class _Asked:
    """A kernel to compile, its source gathered.

    Attributes
    ----------
    job : Job
    gathered : Gathered
    key : bytes or None
        What the cache on disk keeps it by; None where it can't keep it.
    stamps : tuple
        Of the files, when they had just been read.
    """

    job: Job
    gathered: Gathered
    key: bytes | None
    stamps: tuple[Any, ...]


def _asked(job: Job) -> _Asked:
    """Gather the source of a kernel."""
    check_architecture(job.arch)
    gathered = job.gathered()
    key = job.key(gathered) if gathered.is_whole else None
    return _Asked(job, gathered, key, cache.stamps(gathered.files))


def _compiled(asked: _Asked) -> Compiled:
    """Compile a kernel, or wait for whoever compiles it already, and keep it."""
    job, key = asked.job, asked.key
    if key is None:
        return making.make(job, asked.gathered)
    # What has limits waits for nobody: another thread's compilation may have none.
    waits = underway.compiling(key) if job.limits is None else nullcontext(False)
    with waits as was_waited_for:
        found = (_in_memory(job) or _kept(asked)) if was_waited_for else None
        if found is not None:
            return found
        compiled = making.make(job, asked.gathered)
        # NVRTC reads the headers that come with tilewise, which may have been edited since.
        if not job.is_shipped or shipped.is_unchanged():
            cache.store(key, _entry(compiled))
        _remember(asked, compiled)
        return compiled


def _kept(asked: _Asked) -> Compiled | None:
    """Return a kernel from the cache on disk, and remember it; None where there is none."""
    job = asked.job
    entry = None if asked.key is None else cache.load(asked.key)
    if entry is None:
        return None
    compiled = Compiled(
        job.name, entry["symbol"], job.arch, job.source, job.file, entry["ptx"], entry["cubin"],
        Resources(**entry["resources"]), tuple(Parameter(*each) for each in entry["parameters"]),
    )  # fmt: skip
    _remember(asked, compiled)
    return compiled


def _remember(asked: _Asked, compiled: Compiled) -> None:
    job, files = asked.job, asked.gathered.files
    memory: dict[tuple[Any, ...], Any] = _shipped if job.is_shipped else _memory
    key = job.shipped_key if job.is_shipped else job.memory_key
    with _lock:
        memory.pop(key, None)
        memory[key] = compiled if job.is_shipped else (compiled, asked.stamps, files)
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


def check_architecture(arch: str) -> None:
    """Raise ValueError if NVRTC does not compile for ``arch``."""
    if arch not in nvrtc.architectures():
        raise ValueError(
            f"NVRTC does not know arch {arch!r}; it knows {', '.join(nvrtc.architectures())}"
        )
