"""Call NVRTC directly: one source in; PTX, machine code and log out. It needs no GPU.

``cuda.core.Program`` is not used: it gives one kind of output a call and drops the log of a
compilation that succeeds, and ptxas's figures stand in that log. One NVRTC call for a real
architecture (``sm_90``) gives PTX, machine code and log of one and the same compilation.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from tilewise.compiler.gate import gate
from tilewise.errors import DeviceUnavailableError

INSTALL_HINT = (
    "NVIDIA has no NVRTC for macOS, so no kernel can be compiled there"
    if sys.platform == "darwin"
    else "A browser has none, so only kernels that were compiled beforehand run there"
    if sys.platform == "emscripten"
    else 'pip install cuda-core "cuda-bindings==13.*" "nvidia-cuda-nvrtc==13.*"'
)


@dataclass(frozen=True)
class Output:
    """The output of one NVRTC call.

    Attributes
    ----------
    log : str
        The messages of NVRTC and ptxas.
    ptx : str
        The PTX; empty if the compilation failed.
    cubin : bytes
        The machine code; empty if the compilation failed.
    symbol : str
        The symbol of the name expression; empty if there was none.
    ok : bool
        Whether it compiled.
    is_full : bool
        Whether it did not compile for lack of memory.
    """

    log: str
    ptx: str = ""
    cubin: bytes = b""
    symbol: str = ""
    ok: bool = True
    is_full: bool = False


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    try:
        # Imported here, so that ``import tilewise`` neither waits for it nor needs it.
        nvrtc = import_module("cuda.bindings.nvrtc")
        nvrtc.nvrtcVersion()
    except Exception as error:  # the loader's own exception types differ from version to version
        raise DeviceUnavailableError(
            f"NVRTC, NVIDIA's runtime compiler, can't be loaded ({error}). "
            f"It needs no GPU. {INSTALL_HINT}"
        ) from error
    return nvrtc


def _call(function: str, *args: Any) -> Any:
    nvrtc = _nvrtc()
    result, *values = getattr(nvrtc, function)(*args)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceUnavailableError(
            f"NVRTC's {function} failed with {result.name}. Is its installation whole? "
            f"{INSTALL_HINT}"
        )
    return values[0] if len(values) == 1 else tuple(values)


def version() -> tuple[int, int]:
    """Return NVRTC's version, as in ``(13, 0)``.

    Raises
    ------
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    major, minor = _call("nvrtcVersion")
    return int(major), int(minor)


@lru_cache(maxsize=1)
def architectures() -> tuple[str, ...]:
    """Return every real architecture that NVRTC compiles for, oldest first.

    ``sm_90a`` is ``sm_90`` with instructions that later architectures may lack (from 90 on);
    ``sm_100f`` has those that its family keeps (from 100 on). CUDA C++ Programming Guide, "Feature
    Availability".

    Raises
    ------
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    names: list[str] = []
    for number in _call("nvrtcGetSupportedArchs"):
        names.append(f"sm_{number}")
        if number >= 90:
            names.append(f"sm_{number}a")
        if number >= 100:
            names.append(f"sm_{number}f")
    return tuple(names)


def _text(program: Any, what: str) -> bytes:
    size = _call(f"nvrtcGet{what}Size", program)
    buffer = bytearray(size)
    _call(f"nvrtcGet{what}", program, buffer)
    return bytes(buffer)


def run(
    source: str,
    file: str,
    options: Sequence[str],
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Output:
    """Compile ``source`` once.

    Parameters
    ----------
    source : str
        CUDA C++.
    file : str
        The source's name in messages and line information.
    options : sequence of str
        NVRTC's options, including the architecture.
    name : str, optional
        A name expression: a kernel or a template's instance to emit and to look up.
    headers : mapping of str to str, optional
        The texts of headers, by the names in the includes.

    Raises
    ------
    DeviceUnavailableError
        If NVRTC can't be loaded, or fails in another way than by refusing the source.
    """
    nvrtc = _nvrtc()
    if name is not None:
        # NVRTC 13 makes nothing of an instance that it is asked for where a constructor of a class
        # template, with its members' initializers, is the last definition of the source.
        source += "\n;\n"
    texts = [text.encode() for text in (headers or {}).values()]
    names = [each.encode(errors="surrogateescape") for each in headers or {}]
    program = _call("nvrtcCreateProgram", source.encode(), file.encode(), len(names), texts, names)
    try:
        if name is not None:
            _call("nvrtcAddNameExpression", program, name.encode())
        encoded = [option.encode() for option in options]
        with gate.inside():
            (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(program, "ProgramLog").decode(errors="replace").replace("\0", "\n").strip()
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            is_full = result == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY
            return Output(log or f"NVRTC says {result.name}", ok=False, is_full=is_full)
        symbol = ""
        if name is not None:
            symbol = _call("nvrtcGetLoweredName", program, name.encode()).decode()
        # NVRTC counts C's closing NUL as a part of the PTX.
        ptx = _text(program, "PTX").rstrip(b"\0").decode(errors="replace")
        return Output(log, ptx, _text(program, "CUBIN"), symbol)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
