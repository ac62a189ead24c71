"""Make machine code from PTX, by nvJitLink or else by ptxas. Neither needs a GPU."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewise.compiler.gate import gate
from tilewise.compiler.nvrtc import Output

INSTALL_HINT = 'pip install "tilewise[ptx]"'
_WHEEL = "nvidia-cuda-nvcc"
_SUFFIX = ".exe" if sys.platform == "win32" else ""
# nvJitLink's own summary, which follows that of ptxas.
_SUMMARY = re.compile(r"^info\s+:[^\n]*\n?", re.MULTILINE)


LINKER = "nvJitLink"


def tools() -> tuple[str, ...]:
    """Return the assemblers that there are, with versions, in the order of preference."""
    linker, program = _nvjitlink(), find_ptxas()
    found = [] if linker is None else ["{} {}.{}".format(LINKER, *linker.version())]
    version = "" if program is None else _version(program)
    return tuple([*found, version] if version else found)


@lru_cache(maxsize=1)
def _nvjitlink() -> Any:
    """Return the bindings of nvJitLink; None if it is not installed."""
    try:
        # Imported here, for it is optional.
        linker = import_module("cuda.bindings.nvjitlink")
        linker.version()
    except Exception:  # the loader's own exception types differ from version to version
        return None
    return linker


@lru_cache(maxsize=1)
def find_ptxas() -> Path | None:
    """Return ``ptxas`` of PyPI's nvidia-cuda-nvcc, of ``CUDA_HOME`` or of the ``PATH``; or None."""
    try:
        files = importlib.metadata.files(_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    places = [Path(str(file.locate())) for file in files if file.name == f"ptxas{_SUFFIX}"]
    homes = filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH")))
    places += (Path(home) / "bin" / f"ptxas{_SUFFIX}" for home in homes)
    found = next((place for place in places if place.is_file()), None)
    on_path = shutil.which("ptxas")
    return found or (Path(on_path) if on_path else None)


@lru_cache(maxsize=4)
def _version(program: Path) -> str:
    try:
        said = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"V(\d+(?:\.\d+)*)", said.stdout)
    return f"ptxas {match[1]}" if match else ""


def assemble(text: str, arch: str, tool: str, seconds: float | None = None) -> Output:
    """Make the machine code of a module.

    Parameters
    ----------
    text : str
        PTX.
    arch : str
        The architecture, as in ``"sm_90a"``.
    tool : str
        One of the names that :func:`tools` returns.
    seconds : float, optional
        The most seconds that a program may take.

    Returns
    -------
    Output
        The output, with ptxas's messages in ``log`` and an empty ``ptx``.
    """
    if not tool.startswith(LINKER):
        return _by_ptxas(text, arch, seconds)
    linker = _nvjitlink()
    given = [f"-arch={arch}", "-verbose", "-lineinfo"]
    with gate.inside():
        try:
            handle = linker.create(len(given), given)
        except linker.nvJitLinkError as error:
            return Output(str(error), ok=False)
        try:
            data = text.encode() + b"\0"
            linker.add_data(handle, linker.InputType.PTX, data, len(data), "kernel.ptx")
            linker.complete(handle)
            cubin = bytearray(linker.get_linked_cubin_size(handle))
            linker.get_linked_cubin(handle, cubin)
            return Output(_info(linker, handle), cubin=bytes(cubin))
        except linker.nvJitLinkError as error:
            log = bytearray(linker.get_error_log_size(handle))
            linker.get_error_log(handle, log)
            return Output(_text(log) or str(error), ok=False)
        finally:
            linker.destroy(handle)


def _info(linker: Any, handle: int) -> str:
    log = bytearray(linker.get_info_log_size(handle))
    linker.get_info_log(handle, log)
    return _SUMMARY.sub("", _text(log))


def _text(log: bytearray) -> str:
    return log.decode(errors="replace").replace("\0", "").strip()


def _by_ptxas(text: str, arch: str, seconds: float | None) -> Output:
    """Assemble by the program ``ptxas``, which must be there; return its output."""
    program = find_ptxas()
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(text, encoding="utf-8")
        command = [str(program), f"-arch={arch}", "-v", "-lineinfo", str(source), "-o", str(made)]
        try:
            said = subprocess.run(command, capture_output=True, check=False, timeout=seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Output(f"ptxas could not be run: {error}", ok=False)
        log = (said.stderr + said.stdout).decode(errors="replace").replace(str(source), "ptx input")
        if said.returncode or not made.is_file():
            return Output(log.strip() or f"ptxas ended with {said.returncode}", ok=False)
        return Output(log.strip(), cubin=made.read_bytes())
