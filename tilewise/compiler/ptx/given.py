"""A kernel of PTX that a caller gives, as a compiled kernel."""

from __future__ import annotations

import re
import threading
import zlib
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewise.compiler import cache, nvrtc, symbols
from tilewise.compiler.clock import Clock
from tilewise.compiler.compiled import Compiled
from tilewise.compiler.options import check_text
from tilewise.compiler.ptx import apart, assembler, origins
from tilewise.compiler.ptx.lines import escaped
from tilewise.compiler.ptx.linking import undefined
from tilewise.compiler.ptx.module import (
    NO_FILE,
    Module,
    module_of,
    parameters_of,
    symbol_of,
    target,
)
from tilewise.compiler.ptx.origins import Origin
from tilewise.compiler.ptx.parameters import variables
from tilewise.compiler.ptx.placed import with_alignment
from tilewise.compiler.ptx.text import split
from tilewise.compiler.source_files import MOST_BYTES
from tilewise.counted import Resources
from tilewise.errors import CompileError
from tilewise.limits import Limits

MOST_LINES = 20
"""The most messages of an assembler in an error."""
_REMEMBERED = 64
_memory: OrderedDict[tuple[Any, ...], Compiled] = OrderedDict()
_lock = threading.Lock()

# Messages of an assembler that are not faults of the PTX: it is too new, or a part is elsewhere.
_BEYOND = re.compile(
    r"Unsupported \.version|UNSUPPORTED_ARCH|is not (?:defined|supported) for option|"
    r"[Uu]nresolved (?:extern|symbol)|[Uu]ndefined reference|is newer than",
)
_PLACE = re.compile(r"ptxas [^\n,;]*, line (\d+); (\w+) *: ")
_NOISE = re.compile(r"^(?:ptxas fatal *: Ptx assembly aborted.*|ERROR NVJITLINK.*)\n?", re.M)


def forget() -> None:
    """Forget what this process read; the cache on disk stays."""
    with _lock:
        _memory.clear()
    module_of.cache_clear()


def default_arch(text: str, file: str = NO_FILE) -> str:
    """Return the default architecture of PTX: its own target.

    For a target older than every architecture that NVRTC knows, it is the oldest of those.
    """
    own = target(text, file)
    known = nvrtc.architectures()
    if own in known:
        return own
    return next((arch for arch in known if not refusal(own, arch)), own)


def refusal(target: str, arch: str) -> str:
    """Return why PTX of a target can't be compiled for an architecture; empty if it can.

    By the PTX ISA, ".target", PTX runs on its own architecture and on later ones; that of
    ``sm_90a`` only on this one, and that of ``sm_100f`` on later ones of the same family.
    """
    own, asked = (re.fullmatch(r"sm_(\d+)([af]?)", each) for each in (target, arch))
    if own is None or asked is None:
        return f"{target if own is None else arch!r} is no architecture"
    number, wanted = int(own[1]), int(asked[1])
    if own[2] == "a" and arch != target:
        return f"PTX for {target} runs on {target} alone"
    if own[2] == "f" and (wanted < number or wanted // 10 != number // 10):
        return f"PTX for {target} runs on it and on later ones of its family"
    if wanted < number:
        return f"PTX for {target} runs on {target} and on later ones"
    return ""


def given(
    text: str,
    name: str | None = None,
    *,
    arch: str | None = None,
    path: Path | None = None,
    source: tuple[str, str] | None = None,
    limits: Limits | None = None,
) -> Compiled:
    """Return a kernel of a PTX module, with machine code if there is an assembler.

    Parameters
    ----------
    text : str
        PTX.
    name : str, optional
        The kernel's symbol, or its C++ name; not needed if there is only one kernel.
    arch : str, optional
        The architecture of the machine code; by default the PTX's own target.
    path : Path, optional
        The file that the PTX came from. Sources that ``.file`` names are read only in its folder
        and below.
    source : (str, str), optional
        The path and the text of the source that the kernel's lines are in.
    limits : Limits, optional
        The most that making machine code may take.

    Raises
    ------
    CompileError
        If the PTX can't be read, an assembler refuses it, it has no kernel of this name, or that
        calls a function which is not defined.
    LimitError
        If making machine code of it takes more than ``limits`` allow.
    ValueError
        If ``arch`` is older than the PTX's target, or the PTX has more than 16 MiB.
    """
    check_text(text, "the PTX")
    if (size := len(text.encode())) > MOST_BYTES:
        raise ValueError(f"the PTX has {size:,} bytes; at most {MOST_BYTES:,} are taken")
    file = NO_FILE if path is None else str(path)
    own = target(text, file)
    arch = arch or default_arch(text, file)
    if why := refusal(own, arch):
        raise ValueError(f"{file} can't be compiled for {arch}: {why}")
    module = module_of(text, file)
    symbol = symbol_of(text, name, file)
    # The source may be edited between two calls.
    origin = origins.origin(module.split, symbol, path, source)
    key = (text, name, arch, file, origin)
    with _lock:
        if limits is None and key in _memory:
            _memory.move_to_end(key)
            return _memory[key]
    found = _made(text, module, symbol, name, arch, file, origin, limits)
    with _lock:
        _memory[key] = found
        if len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
    return found


def _made(
    text: str,
    module: Module,
    symbol: str,
    name: str | None,
    arch: str,
    file: str,
    origin: Origin | None,
    limits: Limits | None,
) -> Compiled:
    if module.split.address_size != 64:
        raise CompileError(
            f"{file} has addresses of {module.split.address_size} bits; 64 are taken"
        )
    if (call := undefined(module.split, symbol)) is not None:
        raise CompileError(
            f"{file}: {call[0]} calls {call[1]}, which the PTX declares and does not define; a "
            "kernel's PTX needs all of the functions that it calls in one module"
        )
    cubin, log, missing = _assembled(module, arch, file, limits)
    resources = Resources(0, 0, 0, 0, 0, 0, missing)
    if not missing:
        resources = symbols.resources(log, cubin, symbol)
        resources = replace(resources, shared_bytes=_static_shared(cubin, symbol, arch))
    named = parameters_of(module.split, symbol, file)
    if origin is None:
        origin = Origin(file, text)
    declared = origin.declared(name or symbol, named)
    numbered = module.numbered
    return Compiled(
        name or symbol, symbol, arch, origin.text, origin.name, numbered.ptx, cubin, resources,
        declared, variables(module.split), is_ptx=True, ptx_file=numbered.file,
        source_doubt=origin.doubt, remarks=(origin.doubt,) if origin.doubt else (),
    )  # fmt: skip


def _static_shared(cubin: bytes, symbol: str, arch: str) -> int:
    """Return the bytes of static shared memory a block; nvJitLink logs them before it links."""
    size = symbols.sections(cubin).get(f".nv.shared.{symbol}", 0)
    # From 9.0 on, shared memory begins with what the system reserves.
    is_kept = int(re.sub(r"\D", "", arch)) >= 90
    return max(0, size - 1024) if is_kept else size


def _assembled(
    module: Module, arch: str, file: str, limits: Limits | None
) -> tuple[bytes, str, str]:
    """Return machine code and ptxas's log; or why there is none."""
    missing = f"neither nvJitLink nor ptxas is there ({assembler.INSTALL_HINT})"
    clock = Clock(limits.seconds if limits else None, file)
    for at, tool in enumerate(assembler.tools()):
        cubin, log, why = _assembled_by(tool, module, arch, file, limits, clock)
        if not why:
            return cubin, log, ""
        missing = f"{missing}; {why}" if at else why
    return b"", "", missing


def _assembled_by(
    tool: str, module: Module, arch: str, file: str, limits: Limits | None, clock: Clock
) -> tuple[bytes, str, str]:
    text = module.numbered.by_block
    key = cache.key(("assembled", text, arch, tool))
    entry = None if limits is not None else cache.load(key)
    if entry is not None:
        return entry["cubin"], zlib.decompress(entry["log"]).decode(), entry["missing"]
    if not text.isascii():  # names of files, and comments
        text = "".join(c if c < "\x80" else escaped(c) for c in text)
    if "@@DWARF" in text:  # debug data of old compilers, which no assembler takes any more
        text = re.sub("@@DWARF[^\n]*", "", text)
    if tool.startswith(assembler.LINKER):
        text = with_alignment(split(text), text)
    if limits is None:
        output = assembler.assemble(text, arch, tool)
    else:
        output = apart.run(text, file, arch, tool, limits, clock)
    missing = "" if output.ok else _missing(output.log, file, arch, tool)
    log = zlib.compress(output.log.encode())
    cache.store(key, {"cubin": output.cubin, "log": log, "missing": missing})
    return output.cubin, output.log, missing


def _missing(log: str, file: str, arch: str, tool: str) -> str:
    """Return why an assembler could not make machine code.

    Raises
    ------
    CompileError
        If the PTX is wrong.
    """

    def placed(found: re.Match[str]) -> str:
        return f"{file}:{found[1]}: {found[2]}: "

    lines = _NOISE.sub("", _PLACE.sub(placed, log)).strip().splitlines()
    said = "\n".join(lines[:MOST_LINES])
    if len(lines) > MOST_LINES:
        said += f"\n... and {len(lines) - MOST_LINES} more"
    if _BEYOND.search(log) or not said:
        return f"{tool} can't make machine code of it: {lines[0] if lines else 'it says nothing'}"
    raise CompileError(f"{file} does not assemble for {arch}:\n{said}")
