"""Compile CUDA C++ to PTX and machine code, with ptxas's figures, without a GPU or a toolkit.

NVRTC compiles for a real architecture and returns PTX, machine code and ptxas's figures from one
compilation. Results are kept in the process and on disk (:mod:`tilewise.compiler.cache`).
"""

from __future__ import annotations

import threading
import zlib
from contextlib import nullcontext
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from tilewise.compiler import cache, left_out, nvrtc, shipped, toolkit
from tilewise.compiler import make as making
from tilewise.compiler.compiled import Compiled, Parameter, Variable
from tilewise.compiler.extract import PART
from tilewise.compiler.includes import Gathered
from tilewise.compiler.job import Job, job_of, key_of_shipped
from tilewise.compiler.options import left_defined
from tilewise.compiler.ptx import given
from tilewise.compiler.request import Request
from tilewise.compiler.underway import underway
from tilewise.counted import Resources
from tilewise.launch import DEFAULT_ARCH

__all__ = [
    "DEFAULT_ARCH", "Compiled", "Parameter", "Request", "Variable", "architectures", "compile",
]  # fmt: skip

_REMEMBERED = 1024
_Files = tuple[Path, ...]
_Environment = tuple[str | None, ...] | None
_NOTHING: tuple[None, tuple[Any, ...], _Files, _Environment] = (None, (), (), None)
_memory: dict[tuple[Any, ...], tuple[Compiled, tuple[Any, ...], _Files, _Environment]] = {}
_shipped: dict[tuple[Any, ...], Compiled] = {}
_lock = threading.Lock()


def architectures() -> tuple[str, ...]:
    """Return every architecture that :func:`compile` takes, oldest first: ``"sm_90"``,
    ``"sm_90a"``.

    Raises
    ------
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    return nvrtc.architectures()


def version() -> tuple[int, int]:
    """Return NVRTC's version, as in ``(13, 0)``.

    Raises
    ------
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    return nvrtc.version()


def compile(source: str, name: str, **more: Any) -> Compiled:
    """Compile one kernel, or take it from the cache.

    Parameters
    ----------
    source, name, **more
        The attributes of a :class:`Request`.

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
    return compile_request(Request(source, name, **more))


def compile_request(request: Request) -> Compiled:
    """Compile the kernel of a request, or take it from the cache.

    Raises
    ------
    CompileError, LimitError, ValueError, TypeError, DeviceUnavailableError
        As in :func:`compile`.
    """
    found = _shipped_in_memory(request)
    if found is not None:
        return found
    job = job_of(request)
    found = _others_in_memory(job)
    if found is not None:
        return found
    ready = _ready(job)
    return _on_disk(ready) or _compiled(ready)


def find(request: Request) -> Compiled | None:
    """Return a kernel from the cache; None if :func:`compile` would have to compile it.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As in :func:`compile`.
    """
    found = _shipped_in_memory(request)
    if found is not None:
        return found
    job = job_of(request)
    return _others_in_memory(job) or _on_disk(_ready(job))


def key_of(request: Request) -> bytes | None:
    """Return the key of a kernel in the cache on disk; None if the cache can't keep it.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As in :func:`compile`.
    """
    return _ready(job_of(request)).key


def kept_bytes(request: Request) -> int | None:
    """Return the bytes of a kernel's file in the cache on disk; None if there is none.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As in :func:`compile`.
    """
    key = key_of(request)
    return None if key is None else cache.size(key)


def forget() -> None:
    """Forget what this process compiled; the cache on disk stays."""
    with _lock:
        _memory.clear()
        _shipped.clear()
    making.forget()
    given.forget()


def remember(request: Request, compiled: Compiled) -> None:
    """Have the process remember a kernel that comes with tilewise, as if it had compiled it."""
    with _lock:
        _shipped[key_of_shipped(request)] = compiled


def _shipped_in_memory(request: Request) -> Compiled | None:
    """Return a compiled kernel that comes with tilewise from memory, in the shortest way."""
    at = "" if request.path is None else str(request.path)
    if not shipped.has(at, request.source) or type(request.options) is not tuple:
        return None
    return _shipped.get(key_of_shipped(request))


def _in_memory(job: Job) -> Compiled | None:
    """Return a compiled kernel from memory, whether it comes with tilewise or not."""
    return _shipped.get(job.shipped_key) if job.is_shipped else _others_in_memory(job)


def _others_in_memory(job: Job) -> Compiled | None:
    """Return a compiled kernel that does not come with tilewise from memory."""
    compiled, stamps, files, environment = _memory.get(job.memory_key, _NOTHING)
    if files and stamps != cache.stamps(files):
        return None
    # The variables may name another place of CUDA's headers now.
    return compiled if environment is None or environment == toolkit.environment() else None


@dataclass(frozen=True)
class _Ready:
    """A kernel that is ready to be compiled: its source is gathered.

    Attributes
    ----------
    job : Job
    gathered : Gathered
    key : bytes or None
        The key in the cache on disk; None if the cache can't keep it.
    stamps : tuple
        The stamps of the files, taken just after they were read.
    """

    job: Job
    gathered: Gathered
    key: bytes | None
    stamps: tuple[Any, ...]


def _ready(job: Job) -> _Ready:
    """Gather the source of a kernel."""
    check_architecture(job.request.arch)
    gathered = job.gathered()
    key = job.key(gathered) if gathered.is_whole else None
    return _Ready(job, gathered, key, cache.stamps(gathered.files))


def _compiled(ready: _Ready) -> Compiled:
    """Compile a kernel, or wait for whoever compiles it already, and keep it."""
    job, key = ready.job, ready.key
    if key is None:
        return _asked(ready, making.make(job, ready.gathered))
    # A compilation with limits does not wait for another thread, whose compilation may have none.
    waits = underway.compiling(key) if job.request.limits is None else nullcontext(False)
    with waits as was_waited_for:
        found = (_in_memory(job) or _on_disk(ready)) if was_waited_for else None
        if found is not None:
            return found
        compiled = making.make(job, ready.gathered)
        # NVRTC reads the headers that come with tilewise, which may have been edited since.
        if not job.is_shipped or shipped.is_unchanged():
            cache.store(key, _entry(compiled))
        return _remember(ready, compiled)


def _on_disk(ready: _Ready) -> Compiled | None:
    """Return a kernel from the cache on disk, and remember it; None where there is none."""
    job, request = ready.job, ready.job.request
    entry = None if ready.key is None else cache.load(ready.key)
    if entry is None or entry.get("part", PART) != PART:
        return None
    compiled = Compiled(
        request.name, entry["symbol"], request.arch, request.source, job.file, entry["ptx"],
        entry["cubin"],
        Resources(**entry["resources"]), tuple(Parameter(*each) for each in entry["parameters"]),
        entry["variables"],
        is_part="part" in entry, remarks=tuple(entry.get("remarks", ())),
        macros=tuple(left_defined(job.options)),
    )  # fmt: skip
    return _remember(ready, compiled)


def _asked(ready: _Ready, compiled: Compiled) -> Compiled:
    """Add the remarks on each ``__has_include`` of the source whose header is not found.

    They are not kept on disk: the key there is the text that NVRTC gets, in which each
    ``__has_include`` is already answered.
    """
    job = ready.job
    asked = left_out.questions(ready.gathered, job.file, job.folder)
    return replace(compiled, remarks=(*compiled.remarks, *asked)) if asked else compiled


def _remember(ready: _Ready, compiled: Compiled) -> Compiled:
    compiled = _asked(ready, compiled)
    job, gathered = ready.job, ready.gathered
    memory: dict[tuple[Any, ...], Any] = _shipped if job.is_shipped else _memory
    key = job.shipped_key if job.is_shipped else job.memory_key
    with _lock:
        memory.pop(key, None)
        memory[key] = (
            compiled
            if job.is_shipped
            else (compiled, ready.stamps, gathered.files, gathered.environment)
        )
        if len(memory) > _REMEMBERED:
            del memory[next(iter(memory))]
    return compiled


def _entry(compiled: Compiled) -> dict[str, Any]:
    """Return the cache entry of a kernel; the PTX is compressed, because it is rarely needed."""
    return {
        "symbol": compiled.symbol,
        "resources": asdict(compiled.resources),
        "parameters": [[p.name, p.type, p.size, p.align, p.declared] for p in compiled.parameters],
        "variables": [astuple(each) for each in compiled.variables],
        "ptx": zlib.compress(compiled.ptx.encode()),
        "cubin": compiled.cubin,
        **({"part": PART, "remarks": list(compiled.remarks)} if compiled.is_part else {}),
    }


def check_architecture(arch: str) -> None:
    """Raise ValueError if NVRTC does not compile for ``arch``."""
    if arch not in nvrtc.architectures():
        raise ValueError(
            f"NVRTC does not know arch {arch!r}; it knows {', '.join(nvrtc.architectures())}"
        )
