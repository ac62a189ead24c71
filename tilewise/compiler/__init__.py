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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewise.compiler import cache, nvrtc, shipped, symbols
from tilewise.compiler.options import check_text, folders, of_macros
from tilewise.compiler.underway import underway
from tilewise.errors import CompileError
from tilewise.launch import Resources

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
_REMEMBERED = 1024
_memory: dict[tuple[Any, ...], tuple[Compiled, tuple[Any, ...], tuple[Path, ...]]] = {}
_shipped: dict[tuple[Any, ...], Compiled] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, as the PTX declares it.

    Attributes
    ----------
    name : str
        The PTX's name of it, as ``"sgemm_param_0"``.
    type : str
        PTX type without the dot: ``"u32"``, ``"f32"``, ``"u64"``; ``"b8"`` for a structure.
    size, align : int
        Bytes.
    """

    name: str
    type: str
    size: int
    align: int


@dataclass(frozen=True)
class Compiled:
    """One kernel, compiled.

    Attributes
    ----------
    name : str
        The kernel's name as it was asked for.
    symbol : str
        Its name in PTX and machine code: the mangled one, or the same for ``extern "C"``.
    arch : str
        As ``"sm_90a"``.
    source : str
        CUDA C++.
    file : str
        The source's name in messages and in the PTX.
    ptx : str
        The whole module.
    cubin : bytes
        The whole module's machine code, an ELF file.
    resources : Resources
        What ptxas reports.
    parameters : tuple of Parameter
        In order.
    """

    name: str
    symbol: str
    arch: str
    source: str
    file: str
    ptx: str
    cubin: bytes
    resources: Resources
    parameters: tuple[Parameter, ...]

    def __repr__(self) -> str:
        return f"Compiled({self.name!r}, {self.arch!r}, {self.file!r}, {self.resources!r})"


class _Inflated:
    """A text of an object, which may be given compressed and is then inflated when it is read."""

    def __init__(self, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, instance: object, owner: type) -> str:
        value: str | bytes = instance.__dict__[self._name]
        if isinstance(value, bytes):
            instance.__dict__[self._name] = value = zlib.decompress(value).decode()
        return value

    def __set__(self, instance: object, value: str | bytes) -> None:
        instance.__dict__[self._name] = value


# A launch on a GPU needs no PTX. Set here, for in the class it would look like a default.
setattr(Compiled, "ptx", _Inflated("ptx"))  # noqa: B010


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
    lines: bool = True,
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
        Where the source came from: its name in messages, and its folder is searched for
        headers. Without it, ``#include`` finds nothing but what ``options`` add.
    options : sequence of str
        More options for NVRTC.
    lines : bool
        Whether PTX and machine code say of which source line each instruction is. The
        instructions are the same without, and the machine code's file is a third as large.

    Raises
    ------
    CompileError
        If the source does not compile, or has no kernel of this name.
    ValueError
        If NVRTC does not know ``arch``, or a macro's name or value is none.
    TypeError
        If an argument is of another type.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    known = _known(source, name, defines, arch, path, options, lines)
    if known is not None:
        return known
    job = _job(source, name, defines, arch, path, options, lines)
    return _recalled(job) or _compiled(job)


def find(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    arch: str = DEFAULT_ARCH,
    path: Path | None = None,
    options: Sequence[str] = (),
    lines: bool = True,
) -> Compiled | None:
    """Take one kernel from the cache; return None where :func:`compile` would have to compile it.

    Parameters
    ----------
    source, name, defines, arch, path, options, lines
        As :func:`compile` takes them.

    Raises
    ------
    ValueError, TypeError, DeviceUnavailableError
        As :func:`compile`.
    """
    known = _known(source, name, defines, arch, path, options, lines)
    if known is not None:
        return known
    return _recalled(_job(source, name, defines, arch, path, options, lines))


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
    job = _job(source, name, defines, arch, path, options, lines)
    _check_architecture(arch)
    headers = () if job.is_shipped else cache.headers(source, job.folders)
    return None if headers is None else _key(job, headers)


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
    folders : tuple of Path
        That ``#include`` searches.
    options : tuple of str
        All that NVRTC gets.
    is_shipped : bool
        Whether the source comes with tilewise, and all that it may include.
    asked, known_by : tuple
        What the process remembers it by; one that comes with tilewise, by the latter.
    """

    source: str
    name: str
    arch: str
    file: str
    lines: bool
    folders: tuple[Path, ...]
    options: tuple[str, ...]
    is_shipped: bool
    asked: tuple[Any, ...]
    known_by: tuple[Any, ...]


def _job(
    source: str,
    name: str,
    defines: Mapping[str, Any] | None,
    arch: str,
    path: Path | None,
    options: Sequence[str],
    lines: bool,
) -> _Job:
    check_text(source, "source")
    check_text(name, "name")
    if not name.strip() or "\n" in name:
        raise ValueError(f"{name!r} is not the name of a kernel")
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise TypeError(f"options is {options!r}; it takes a sequence of strings")
    macros = of_macros(defines or {})
    file = "<source>" if path is None else str(path)
    searched = folders(path, options)
    is_shipped = path is not None and len(searched) == 1 and shipped.has(file, source)
    # NVRTC would look beside a source with no path in the working directory.
    search = "--no-source-include" if path is None else f"--include-path={searched[0]}"
    of_lines = [_LINES] if lines else [_MINIMAL] if is_shipped else []
    every = (f"--gpu-architecture={arch}", *of_lines, *_FIXED_OPTIONS, search, *macros, *options)
    asked = (source, name, macros, arch, file, tuple(options), lines)
    at = "" if path is None else file
    known_by = (at, name, repr(defines), arch, tuple(options), lines)
    return _Job(
        source, name, arch, file, lines, tuple(searched), every, is_shipped, asked, known_by
    )


def _key(job: _Job, headers: Sequence[Path]) -> bytes:
    """What the cache on disk keeps a kernel by.

    One that comes with tilewise does not depend on where that is installed, but for its lines.
    """
    version = "{}.{}".format(*nvrtc.version())
    if not job.is_shipped:
        return cache.key((job.source, job.name, job.file, version, *job.options), headers)
    decisive = [option for option in job.options if not option.startswith("--include-path=")]
    place = job.file if job.lines else shipped.relative(job.file)
    return cache.key((shipped.digest(), place, job.name, version, *decisive), ())


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


def _recalled(job: _Job) -> Compiled | None:
    """Return a kernel from the process's memory or from the cache on disk; None if none has it."""
    if job.is_shipped:
        _check_architecture(job.arch)
        return _loaded(job, _key(job, ()), ())
    remembered = _memory.get(job.asked)
    if remembered is not None:
        compiled, stamps, headers = remembered
        if not headers or stamps == cache.stamps(headers):
            return compiled
    _check_architecture(job.arch)
    found = cache.headers(job.source, job.folders)
    return None if found is None else _loaded(job, _key(job, found), found)


def _compiled(job: _Job) -> Compiled:
    """Compile a kernel, or wait for whoever compiles it already, and keep it."""
    headers = () if job.is_shipped else cache.headers(job.source, job.folders)
    if headers is None:
        return _compile(job)
    key = _key(job, headers)
    with underway.compiling(key) as was_waited_for:
        found = _loaded(job, key, headers) if was_waited_for else None
        if found is not None:
            return found
        stamps = cache.stamps(headers)
        compiled = _compile(job)
        # NVRTC has read the headers anew, which may have been edited since they had this key.
        if not job.is_shipped or shipped.is_unchanged():
            cache.store(key, _entry(compiled))
        _remember(job, compiled, headers, stamps)
        return compiled


def _loaded(job: _Job, key: bytes, headers: tuple[Path, ...]) -> Compiled | None:
    """Return a kernel from the cache on disk, and remember it; None where there is none."""
    stamps = cache.stamps(headers)
    entry = cache.load(key)
    if entry is None:
        return None
    compiled = Compiled(
        job.name, entry["symbol"], job.arch, job.source, job.file, entry["ptx"], entry["cubin"],
        Resources(**entry["resources"]), tuple(Parameter(*each) for each in entry["parameters"]),
    )  # fmt: skip
    _remember(job, compiled, headers, stamps)
    return compiled


def _remember(
    job: _Job, compiled: Compiled, headers: tuple[Path, ...], stamps: tuple[Any, ...]
) -> None:
    memory: dict[tuple[Any, ...], Any] = _shipped if job.is_shipped else _memory
    key = job.known_by if job.is_shipped else job.asked
    with _lock:
        memory.pop(key, None)
        memory[key] = compiled if job.is_shipped else (compiled, stamps, headers)
        if len(memory) > _REMEMBERED:
            del memory[next(iter(memory))]


def _entry(compiled: Compiled) -> dict[str, Any]:
    """What is kept of a kernel; the PTX is compressed, for few ask for it."""
    return {
        "symbol": compiled.symbol,
        "resources": asdict(compiled.resources),
        "parameters": [[p.name, p.type, p.size, p.align] for p in compiled.parameters],
        "ptx": zlib.compress(compiled.ptx.encode()),
        "cubin": compiled.cubin,
    }


def _check_architecture(arch: str) -> None:
    if arch not in nvrtc.architectures():
        raise ValueError(
            f"NVRTC does not know arch {arch!r}; it knows {', '.join(nvrtc.architectures())}"
        )


def _compile(job: _Job) -> Compiled:
    source, name, arch, file, options = job.source, job.name, job.arch, job.file, job.options
    output = nvrtc.run(source, file, options, name)
    symbol = output.symbol
    if not output.ok:
        # Without the name: is it the source that is wrong, or the name?
        output = nvrtc.run(source, file, options)
        if not output.ok:
            raise CompileError(_message(output.log, source, file, arch, options))
        symbol = name
    if symbol not in symbols.entries(output.ptx):
        raise CompileError(_no_such_kernel(name, file, source, output.ptx))
    resources = symbols.resources(output.log, output.cubin, symbol)
    ptx = symbols.with_file_name(output.ptx, file)
    parameters = tuple(Parameter(*fields) for fields in symbols.parameters(ptx, symbol))
    return Compiled(name, symbol, arch, source, file, ptx, output.cubin, resources, parameters)


def _no_such_kernel(name: str, file: str, source: str, ptx: str) -> str:
    there = symbols.kernels(source, ptx)
    if not there:
        return f"{file} has no kernel called {name!r}; it has no kernel (__global__ function)"
    message = f"{file} has no kernel called {name!r}; it has {', '.join(there)}"
    if f"{name}<...>" in there:
        message += f". {name} is a template: ask for an instance, such as {name}<...> filled in"
    return message


def _message(log: str, source: str, file: str, arch: str, options: Sequence[str]) -> str:
    """NVRTC's log for a reader: ``file:line: error: ...``, the source line below it."""
    lines = [line for line in log.splitlines() if not re.match(r"ptxas +(info|\.) ", line)]
    text = re.sub(r"^(\S.*?)\((\d+)\): ", r"\1:\2: ", "\n".join(lines), flags=re.MULTILINE)
    if "ptxas" in text and (refused := re.search(r", line (\d+); ", text)):
        # ptxas names a line of the PTX, which a virtual architecture gives without it.
        virtual = [o.replace("=sm_", "=compute_") for o in options if "ptxas" not in o]
        line = symbols.source_line(nvrtc.run(source, file, virtual).ptx, int(refused[1]), file)
        rows = source.splitlines()
        if 1 <= line <= len(rows):
            text = f"{file}:{line}: error: ptxas refuses this line\n  {rows[line - 1]}\n{text}"
    return f"{file} does not compile for {arch}:\n{text}"
