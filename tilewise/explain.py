"""Explain how a call with arrays would be computed, without launching anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewise import sizes
from tilewise.arrays import fusion, grouped, own_product
from tilewise.arrays.call import Call, check
from tilewise.arrays.grouped import GroupedCall
from tilewise.arrays.invariance import is_invariant
from tilewise.arrays.libraries import Array, Library
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
from tilewise.epilogue import Epilogue as Traceable
from tilewise.explanation import Explanation, explain_product, of_plan
from tilewise.gemm.chip import Chip, known
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.grouped.product import AnyProduct, Grouped
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
    offsets: Array | None = None,
    **operands: Any,
) -> Explanation:
    """Return how :func:`tilewise.matmul` would compute a call with these arguments, and why.

    With ``offsets``, how :func:`tilewise.grouped_matmul` would answer ``(a, b, offsets)``. Nothing
    is launched, compiled or copied, and the values of arrays are not looked at.

    Parameters
    ----------
    a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, max_gpu_memory
    epilogue, pairs, invariant, operands
        As :func:`tilewise.matmul` has them.
    gpu : str, optional
        The name of a GPU that the product is for, here or elsewhere, as in ``"rtx4090"``.
        ``device`` is then ``"auto"``.
    offsets : array, optional
        The offsets of a grouped product, whose ``x`` is ``a`` and whose ``w`` is ``b``. Arguments
        that :func:`tilewise.grouped_matmul` does not have can't be given then. If the epilogue has
        an operand of this name, it is that operand.

    Returns
    -------
    Explanation
        The explanation, whose ``str()`` is a text.

    Raises
    ------
    TypeError, ValueError, DeviceUnavailableError
        The errors of :func:`tilewise.matmul` or :func:`tilewise.grouped_matmul`.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> a = np.ones((3, 4), np.float32)
    >>> print(tilewise.explain(a, a, transpose_b=True, device="emulator"))
    D = A·B, m = 3, n = 3, k = 4, float32, layout NT
    on            the emulator
    by            the general kernel, tiles of 64 x 64
    why           no other family takes it: this is no Hopper GPU; this is no GPU of
                  compute capability 8.0 or above, whose rates the planner needs
    launches      gemm_general: grid 1, 256 threads a block
    workspace     none
    copied first  a and b to the emulator, and the result back
    """
    if offsets is not None and _has_parameter(epilogue, "offsets"):
        operands["offsets"] = offsets
    elif offsets is not None:
        excluded = {
            "c": c is not None, "alpha": alpha != 1, "beta": beta != 0, "transpose_a": transpose_a,
            "transpose_b": transpose_b, "max_gpu_memory": max_gpu_memory is not None,
            "pairs": pairs is not None, "invariant": invariant,
        }  # fmt: skip
        for name, is_given in excluded.items():
            if is_given:
                raise ValueError(f"{name} is given, and offsets; grouped_matmul has no {name}")
        function = grouped.traced(epilogue, operands, caller="explain")
        return _of_groups(
            grouped.check(a, b, offsets, out, out_dtype, device, function), device, gpu
        )
    function = fusion.asked(epilogue, operands, b, pairs, caller="explain")
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
            return _by_library(call.library, product, f"GPU {ordinal}", why, a)
        owner = gpu_of(ordinal)
        return _by_kernels(_as_asked(call, product, chip_of(owner)), owner, copies)
    if not call.library.has_values(call.a):
        why = "the tensors have no values; give gpu to see what would multiply them there"
        return _by_library(call.library, on_arrival(call)[0], "meta", why)
    place = device_of(device) if device != "auto" else first_gpu()
    why = own_product.why_on_host(call.dtype, place) if device == "auto" else ""
    if place is None or why:
        return _by_library(call.library, on_arrival(call)[0], "the host", why, a)
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


def _has_parameter(function: Callable[..., Any] | None, name: str) -> bool:
    function = function.function if isinstance(function, Traceable) else function
    try:
        return function is not None and name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in function may have no signature
        return False


def _of_groups(call: GroupedCall, device: str | Device, gpu: str | None) -> Explanation:
    """How :func:`tilewise.grouped_matmul` would answer a call."""
    ordinal = call.library.ordinal(call.x)
    if gpu is not None:
        if device != "auto":
            raise ValueError(f"gpu is {gpu!r} and device {device!r}; one of them says where")
        product, copies = _asked_of_groups(call)
        return explain_product(product, known(gpu), copies)
    if ordinal is not None:
        product, copies = _asked_of_groups(call)
        if why := own_product.why_on_gpu(call.dtype, ordinal):
            return _by_library(call.library, product, f"GPU {ordinal}", f"{why}, group by group")
        return _by_kernels(product, gpu_of(ordinal), copies)
    product, copies = _asked_of_groups(call, arrives=True)
    if not call.library.has_values(call.x):
        why = "the tensors have no values; give gpu to see what would multiply them there"
        return _by_library(call.library, product, "meta", why)
    if device == "auto":
        why = "grouped products of arrays on the host are computed there, group by group"
        return _by_library(call.library, product, "the host", why)
    place = device_of(device)
    there = device_name(place.name, place.arch)
    return _by_kernels(product, place, [f"x, w and offsets to {there}, and the result back"])


def _asked_of_groups(call: GroupedCall, arrives: bool = False) -> tuple[Grouped, list[str]]:
    """What a call asks of a GPU, and what is copied there.

    With ``arrives``, all arrays are new on the device.
    """
    library, copies = call.library, []

    def operand(name: str, x: Array) -> Operand:
        found = None if arrives else grouped.input_operand(call, library.view(x))
        if found is None:
            found = grouped.input_operand(call, new(tuple(x.shape)))
            if not arrives:
                copies.append(f"{name}, as its strides can't be described")
        assert found is not None
        return found._replace(offset=0) if arrives else found

    x, w = operand("x", call.x), operand("w", call.w)
    fresh = new(call.shape)
    views = [fresh if out is None or arrives else library.view(out) for out in call.outs]
    d = grouped.result_operand(call, views[0])
    if d is None:
        copies.append("the result, from a new array into out: its strides can't be described")
        d = grouped.result_operand(call, fresh)
    assert d is not None
    given, others = [], []
    for _, each in call.fusion.arrays if call.fusion else ():
        dtype = library.dtype_of(each)
        view = new(tuple(each.shape)) if arrives else library.view(each)
        found = grouped.lying(call, view, dtype) or grouped.lying(
            call, new(tuple(each.shape)), dtype
        )
        assert found is not None
        given.append(found)
    for view in views[1:]:
        found = grouped.lying(call, view, call.out_dtype)
        others.append(found or Strided(call.out_dtype, call.n, 1, call.m * call.n))
    return call.product(x, w, d, grouped.epilogue_of(call, given, others)), copies


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


def _by_kernels(product: AnyProduct, device: Device, copies: Sequence[str]) -> Explanation:
    chip = chip_of(device)
    if chip is not None:
        return explain_product(product, chip, copies)
    place = device.description if device.name == "gpu" else device_name("emulator", device.arch)
    return of_plan(product, place, plan_on(product, None), copies)


def _by_library(
    library: Library, product: AnyProduct, place: str, why: str, a: Array | None = None
) -> Explanation:
    name = {"numpy": "NumPy", "torch": "PyTorch", "cupy": "CuPy"}[library.name]
    copies = []
    if a is not None and ITEM_SIZES[product.dtype] == 2 and not library.sums_in_float32(a):
        copies.append("a and b, as float32: the product is summed in it, and then rounded")
    return Explanation(product, place, f"{name}'s own product", why, tuple(copies))
