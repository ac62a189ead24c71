"""How a product is answered: the kernel and its grid, enqueued on a device."""

from __future__ import annotations

import struct
import warnings
from functools import cache
from pathlib import Path

from tilewise import hopper
from tilewise.compiler import Compiled
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.devices.limits import MAX_GRID
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.product import ACCUMULATORS, ITEM_SIZES, Operand, Product

FOLDER = Path(__file__).parent / "kernels" / "gemm"
BLOCK, THREADS = 64, 256  # of any.cu

_LAYOUT = struct.Struct("<4q2d" + 4 * "Q3q")  # any.cu's Product
_NOWHERE = Operand(0, 0, 0)
_TYPES = {
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "float32": "float",
    "float64": "double",
}


def launch_product(product: Product, device: Device, stream: int = 0) -> None:
    """Launch the product on ``device``.

    Parameters
    ----------
    product : Product
        Its pointers are addresses of that device.
    device : Device
        On a GPU it is enqueued, and not waited for. The emulator has computed it on return.
    stream : int
        A handle of the driver's, of the GPU's primary context; 0 is the default stream.

    Raises
    ------
    CompileError
        If the kernel does not compile for this device.
    LaunchError
        If it can't be launched.
    DeviceUnavailableError
        In a process forked from one that used the GPU already.
    """
    if not (product.m and product.n and product.batch):
        return
    if not device.arch.startswith("sm_90"):
        if ITEM_SIZES[product.dtype] == 2:
            _warn_general(device.description)
    elif isinstance(device, Gpu) and not hopper.objection(product):
        hopper.enqueue(product, device, stream)
        return
    compiled = _general(product.dtype, product.out_dtype, device.arch)
    tiles = -(-product.m // BLOCK) * -(-product.n // BLOCK)
    grid = (min(tiles, MAX_GRID[0]), 1, min(product.batch, MAX_GRID[2]))
    launch = Launch(grid, (THREADS, 1, 1), (_packed(product),))
    if isinstance(device, Gpu):
        device.enqueue(device.prepare(compiled, launch), stream)
    else:
        device.launch(compiled, launch)


@cache
def _general(dtype: str, out_dtype: str, arch: str) -> Compiled:
    defines = {
        "INPUT": _TYPES[dtype],
        "OUTPUT": _TYPES[out_dtype],
        "ACCUMULATE": _TYPES[ACCUMULATORS[dtype]],
        "LOAD_INPUT": f"of_{dtype}" if ITEM_SIZES[dtype] == 2 else "",
        "LOAD_OUTPUT": f"of_{out_dtype}" if ITEM_SIZES[out_dtype] == 2 else "",
        "STORE_OUTPUT": f"to_{out_dtype}" if ITEM_SIZES[out_dtype] == 2 else "",
    }
    return Kernel(FOLDER / "any.cu", "gemm_any", defines).compile(arch)


def _packed(product: Product) -> bytes:
    fields: list[int | float] = [product.m, product.n, product.k, product.batch]
    fields += [product.alpha, product.beta]
    for x in (product.a, product.b, product.c or _NOWHERE, product.d):
        fields += [x.pointer, x.row_stride, x.column_stride, x.batch_stride]
    return _LAYOUT.pack(*fields)


@cache
def _warn_general(description: str) -> None:
    warnings.warn(
        f"{description}: tilewise has tensor-core kernels for compute capability 9.0 only; "
        "16-bit products are right here, but slow, by the general kernel",
        RuntimeWarning,
        stacklevel=4,
    )
