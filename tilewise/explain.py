"""Explain how a call with arrays would be computed, without launching anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewise import sizes
from tilewise.arrays import fusion, own_product
from tilewise.arrays.call import Call, check
from tilewise.arrays.invariance import is_invariant
from tilewise.arrays.libraries import Array
from tilewise.arrays.operands import (
    Seen,
    epilogue_of,
    first_gpu,
    gpu_of,
    inputs,
    lying,
    new,
    result_operand,
)
from tilewise.devices import Device, device_of
from tilewise.devices.gpu import Gpu
from tilewise.explanation import Explanation, explain_product, of_plan
from tilewise.gemm.chip import Chip, known
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.invariant import fixed
from tilewise.gemm.plan import chip_of, plan_on
from tilewise.gemm.product import ACCUMULATORS, Operand, Product
from tilewise.host.product import described
from tilewise.launch import device_name
from tilewise.places import ITEM_SIZES
from tilewise.tracebacks import front_door


@front_door
def explain(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    max_gpu_memory: int | str | None = None,
    gpu: str | None = None,
    epilogue: Callable[..., Any] | None = None,
    pairs: str | None = None,
    invariant: bool | None = None,
    **operands: Any,
) -> Explanation:
    """Return how :func:`tilewise.matmul` would compute a call with these arguments, and why.

    Nothing is launched, compiled or copied.

    Parameters
    ----------
    a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, max_gpu_memory
    epilogue, pairs, invariant, operands
        As :func:`tilewise.matmul` has them.
    gpu : str, optional
        The name of a GPU that the product is for, here or elsewhere, as in ``"rtx4090"``.
        ``device`` is then ``"auto"``.

    Returns
    -------
    Explanation
        The explanation, whose ``str()`` is a text.

    Raises
    ------
    TypeError, ValueError, DeviceUnavailableError
        The errors of :func:`tilewise.matmul`.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> a = np.ones((3, 4), np.float32)
    >>> print(tilewise.explain(a, a, transpose_b=True, device="emulator"))
    D = A·B, m = 3, n = 3, k = 4, float32, layout NT
    on            the emulator
    by            the general kernel, tiles of 64 x 64
    why           no other family takes it: this is no Hopper GPU; this is no GPU of
                  compute capability 8.0 or above, or it is an emulator, which runs
                  code and has no rates to choose by
    launches      gemm_general: grid 1, 256 threads a block
    workspace     none
    copied first  a and b to the emulator, and the result back
    """
    function = fusion.asked(epilogue, operands, b, pairs)
    call = check(
        a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, function,
        is_invariant(invariant),
    )  # fmt: skip
    room = None if max_gpu_memory is None else sizes.parse(max_gpu_memory, "max_gpu_memory")
    if gpu is not None:
        if device != "auto":
            raise ValueError(f"gpu is {gpu!r} and device {device!r}; one of them says where")
        chip = known(gpu)
        return explain_product(_as_asked(call, asked(call)[0], chip), chip)
    ordinal = call.library.ordinal(a)
    if ordinal is not None:
        product, copies = asked(call)
        if why := own_product.why_on_gpu(call.dtype, ordinal):
            return _by_library(call, product, f"GPU {ordinal}", why)
        owner = gpu_of(ordinal)
        return _by_kernels(_as_asked(call, product, chip_of(owner)), owner, copies)
    place = device_of(device) if device != "auto" else first_gpu()
    why = own_product.why_on_host(call.dtype, place) if device == "auto" else ""
    if place is None or why:
        return _by_library(call, on_arrival(call)[0], "the host", why)
    after = ""
    if call.fusion is not None and isinstance(place, Gpu):
        sums = ACCUMULATORS[call.dtype]
        after = f"; then the epilogue by the host, of the sums in {sums}: {call.fusion.function}"
        call, *others = own_product.unpaired(call._replace(out=None, out_dtype=sums, fusion=None))
        after = f"; the same for b[1]{after}" if others else after
    product, copies = on_arrival(call)
    there = device_name(place.name, place.arch)
    given = "a, b and c" if call.c is not None else "a and b"
    travel = f"{given} to {there}, and the result back"
    if isinstance(place, Gpu):
        travel += f": {described(call, place, room)}{after}"
    product = _as_asked(call, product, chip_of(place))
    return _by_kernels(product, place, [*copies, travel])


def _as_asked(call: Call, product: Product, chip: Chip | None) -> Product:
    return fixed(product, chip) if call.invariant else product


def asked(call: Call) -> tuple[Product, list[str]]:
    """Return the product of a call whose arrays are on a GPU, and the copies that are made there.

    Returns
    -------
    product : Product
    copies : list of str
        A line for each copy.
    """
    a, b, c, up = inputs(call)
    copies = _copies(a, b, c, up)
    d = None if call.out is None else result_operand(call, call.library.view(call.out))
    if d is None:
        d = result_operand(call, new(call.shape))
        if call.out is not None:
            copies.append("the result, from a new array into out: its strides can't be described")
    assert d is not None
    of_c = None if c is None else c.operand
    of_up = None if up is None else up.operand
    return call.product(a.operand, b.operand, of_c, d, _epilogue(call), of_up), copies


def _epilogue(call: Call) -> Epilogue | None:
    """Return a call's epilogue, with the layout of a copy if strides can't describe an array."""
    library, given = call.library, []
    for _, x in call.fusion.arrays if call.fusion else ():
        dtype = library.dtype_of(x)
        found = lying(call, library.view(x), dtype) or lying(call, new(tuple(x.shape)), dtype)
        given.append(found or Strided(dtype, 1, 1, 1))
    views = [new(call.shape) if out is None else library.view(out) for out in call.outs[1:]]
    return epilogue_of(call, given, views)


def on_arrival(call: Call) -> tuple[Product, list[str]]:
    """Return the product of a call whose arrays are on the host, for new arrays on a device."""
    a, b, c, up = inputs(call)
    operands = [None if x is None else x.operand._replace(offset=0) for x in (a, b, c, up)]
    of_a, of_b, of_c, of_up = operands
    assert of_a is not None
    assert of_b is not None
    of_d = Operand(max(call.n, 1), 1, call.m * call.n)
    product = call.product(of_a, of_b, of_c, of_d, _epilogue(call), of_up)
    return product, _copies(a, b, c, up)


def _copies(*seen: Seen | None) -> list[str]:
    return [
        f"{name}, as its strides can't be described, or it is sparse"
        for name, x in zip(("a", "b", "c", "b[1]"), seen, strict=True)
        if x is not None and x.copy is not None
    ]


def _by_kernels(product: Product, device: Device, copies: Sequence[str]) -> Explanation:
    chip = chip_of(device)
    if chip is not None:
        return explain_product(product, chip, copies)
    place = device.description if device.name == "gpu" else device_name("emulator", device.arch)
    return of_plan(product, place, plan_on(product, None), copies)


def _by_library(call: Call, product: Product, place: str, why: str) -> Explanation:
    name = {"numpy": "NumPy", "torch": "PyTorch", "cupy": "CuPy"}[call.library.name]
    copies = []
    if ITEM_SIZES[call.dtype] == 2 and not call.library.sums_in_float32(call.a):
        copies.append("a and b, as float32: the product is summed in it, and then rounded")
    return Explanation(product, place, f"{name}'s own product", why, tuple(copies))
