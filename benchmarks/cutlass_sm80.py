"""Build CUTLASS's GEMM for the tensor cores of compute capability 8.0, and call it.

nvcc builds a library for each dtype and layout from ``cutlass_sm80.cu`` and CUTLASS's headers; that
needs no GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from padded_products import Call, is_aligned
from triton_sm80 import sizes_of

from tilewise.bench.products import Operands
from tilewise.bench.suites import Shape

SOURCE = Path(__file__).with_suffix(".cu")
ELEMENTS = {"bfloat16": "cutlass::bfloat16_t", "float16": "cutlass::half_t"}
LAYOUTS = {"N": "RowMajor", "T": "ColumnMajor"}
SWIZZLES = 1, 2, 4, 8  # columns of tiles


def library(folder: Path, dtype: str, layout: str, arch: str) -> Path:
    """Return the path of the library for a dtype and a layout."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    return folder / f"cutlass_{arch}_{dtype}_{layout}_{digest}.so"


def build(
    kinds: Iterable[tuple[str, str]], folder: Path, arch: str, headers: Path, workers: int
) -> list[str]:
    """Build what is not in the folder yet.

    Parameters
    ----------
    kinds : iterable of (str, str)
        Dtypes and layouts.
    folder : Path
        It is made where it is missing.
    arch : str
        Of the machine code, as ``"sm_90"``.
    headers : Path
        CUTLASS's folder ``include``.
    workers : int
        As many nvcc at once.

    Returns
    -------
    list of str
        What was not built, and why.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def one(kind: tuple[str, str]) -> str:
        dtype, layout = kind
        path = library(folder, dtype, layout, arch)
        if path.exists():
            return ""
        part = path.with_suffix(".part")
        of_a, of_b = (LAYOUTS[letter] for letter in layout)
        words = [
            "nvcc", "-std=c++17", "-O3", "-w", "-shared", "-Xcompiler", "-fPIC",
            f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}", f"-I{headers}",
            f"-DELEMENT={ELEMENTS[dtype]}", f"-DLAYOUT_A={of_a}", f"-DLAYOUT_B={of_b}",
            str(SOURCE), "-o", str(part),
        ]  # fmt: skip
        try:
            said = subprocess.run(words, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"CUTLASS, {dtype} {layout}: {error}"
        if said.returncode:
            part.unlink(missing_ok=True)
            return f"CUTLASS, {dtype} {layout}: {(said.stderr or said.stdout)[:2000]}"
        part.replace(path)
        return ""

    with ThreadPoolExecutor(workers) as pool:
        return [each for each in pool.map(one, dict.fromkeys(kinds)) if each]


@cache
def _loaded(path: Path) -> Any:
    found = ctypes.CDLL(str(path.resolve()))
    found.cutlass_tiling.restype = ctypes.c_char_p
    pair = ctypes.c_void_p, ctypes.c_int64
    found.cutlass_product.argtypes = [ctypes.c_int] * 5 + [*pair, *pair, *pair, ctypes.c_void_p]
    return found


def ways(
    shape: Shape, dtype: str, folder: Path, arch: str, swizzles: Sequence[int] = SWIZZLES
) -> dict[str, Call]:
    """Return functions that enqueue a product on PyTorch's current stream, by tiling and swizzle.

    There are none if the library is not built or does not take the product.
    """
    path = library(folder, dtype, shape.layout, arch)
    if not path.exists() or not is_aligned(shape):
        return {}
    found = _loaded(path)
    return {
        f"{found.cutlass_tiling(index).decode()}, {swizzle} columns": _call(
            found, index, swizzle, sizes_of(shape)
        )
        for index in range(found.cutlass_tilings())
        for swizzle in swizzles
    }


def _call(found: Any, index: int, swizzle: int, sizes: dict[str, int]) -> Call:
    import torch

    m, n, k, *strides, of_d = sizes.values()
    of_a, of_b = max(strides[:2]), max(strides[2:])  # the other one is 1

    def call(x: Operands) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        a, b, d = (each.data_ptr() for each in (x.a, x.b, x.d))
        status = found.cutlass_product(index, swizzle, m, n, k, a, of_a, b, of_b, d, of_d, stream)
        if status:
            raise RuntimeError(f"CUTLASS's status is {status}")

    return call
