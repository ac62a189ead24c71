"""Find what a kernel of Numba's is linked with: the files that it names, and the device runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewise import compiler
from tilewise.compiler.ptx.module import target
from tilewise.compiler.request import Request
from tilewise.errors import CompileError
from tilewise.numba.packages import numba

_GRID = Path(__file__).parents[1] / "kernels" / "linked" / "grid.cu"
_CALLED = "cudaCGGetIntrinsicHandle"
_KERNEL = "tilewise_linked"
"""An empty kernel that is added to each source: a source is compiled for one of its kernels."""


def needed(ptx: str, library: Any, link: Sequence[Any]) -> list[str]:
    """Return the PTX of everything that a kernel is linked with.

    Parameters
    ----------
    ptx : str
        The kernel's PTX.
    library : numba.cuda.codegen.CUDACodeLibrary
        The kernel's library.
    link : sequence
        What the kernel itself names in ``@cuda.jit(link=...)``: paths, or objects with the contents
        of a file.

    Raises
    ------
    CompileError
        If a source does not compile, or what is linked is neither CUDA C++ nor PTX.
    OSError
        If a file can't be read.
    """
    arch = target(ptx)
    files = dict.fromkeys((*sorted(library._linking_files, key=str), *link))
    found = [_text(file, arch) for file in files]
    if _CALLED in ptx:
        found.append(_compiled(_GRID.read_text(encoding="utf-8"), _GRID, arch))
    return found


def _text(given: Any, arch: str) -> str:
    """Return the PTX of one thing that is linked."""
    kinds = numba("numba.cuda.cudadrv.linkable_code")
    try:
        found = kinds.LinkableCode.from_path_or_obj(given)
    except ValueError as error:
        raise CompileError(f"{given} can't be linked: {error}") from error
    name = given if isinstance(given, str) else found.name
    if not isinstance(found, kinds.CUSource | kinds.PTXSource):
        raise CompileError(
            f"{name} can't be linked: CUDA C++ (.cu) and PTX (.ptx) can, and it is neither"
        )
    text = found.data.decode() if isinstance(found.data, bytes) else str(found.data)
    return text if isinstance(found, kinds.PTXSource) else _compiled(text, Path(name), arch)


def _compiled(source: str, path: Path, arch: str) -> str:
    """Compile the device functions of a source, with the include folders that Numba searches."""
    folders = numba("numba.cuda").config.CUDA_NVRTC_EXTRA_SEARCH_PATHS
    asked = Request(
        f'{source}\nextern "C" __global__ void {_KERNEL}() {{}}\n', _KERNEL, arch=arch, path=path,
        options=("--relocatable-device-code=true",),
        include=[folder for folder in folders.split(":") if folder],
    )  # fmt: skip
    found = compiler.compile_request(asked)
    if found.is_part:  # functions that do not compile were left out: raise their error
        compiler.compile_request(asked._replace(source=source))
    return found.ptx
