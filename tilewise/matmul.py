"""The front door of products: it takes arrays and returns an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from tilewise import sizes
from tilewise.arrays import dispatched, fusion, own_product, repeat
from tilewise.arrays.call import Call, check
from tilewise.arrays.dispatched import DIRECT
from tilewise.arrays.fusion import Asked
from tilewise.arrays.invariance import is_invariant
from tilewise.arrays.libraries import Array, View
from tilewise.arrays.operands import (
    Seen,
    epilogue_of,
    first_gpu,
    gpu_of,
    inputs,
    new,
    result_operand,
    span,
    strided,
)
from tilewise.devices import Device, DeviceArray, device_of
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.gemm import beside
from tilewise.gemm.invariant import fixed
from tilewise.gemm.plan import chip_of, plan_product
from tilewise.gemm.product import ACCUMULATORS, Operand, offset
from tilewise.gemm.steps import execute
from tilewise.host import quick
from tilewise.host.product import multiply
from tilewise.tracebacks import hide_frames


def matmul(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | Sequence[Array] | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    max_gpu_memory: int | str | None = None,
    epilogue: Callable[..., Any] | None = None,
    pairs: str | None = None,
    invariant: bool | None = None,
    **operands: Any,
) -> Any:
    """Return alpha op(A) op(B) + beta C, where op may transpose, or a function of it.

    Parameters
    ----------
    a, b : array, (..., m, k) and (..., k, n)
        Arrays of one library, NumPy, CuPy or PyTorch, on one GPU or on the host. Both have the same
        dtype: float16, bfloat16, float32 or float64; 16-bit products are summed in float32. Leading
        dimensions broadcast, and one-dimensional arrays are taken, as in :func:`numpy.matmul`. Any
        view with strides of whole elements is read in place; one with negative strides, or whose
        batch no single stride describes, is copied first. For a product of pairs, b may be a tuple
        of two such matrices.
    c : array, optional
        An array of the result's shape and dtype; needed unless ``beta`` is 0, in which case it is
        never read.
    alpha, beta : float
        The factors, finite in the dtype of the sums. If ``alpha`` is 0, A and B are not read.
    transpose_a, transpose_b : bool
        Whether to swap the last two dimensions of a, (..., k, m), and of b, (..., n, k); vectors
        are not changed.
    out : array or tuple of array, optional
        The array for the result, or one for each of an epilogue's results. It may be ``c`` or an
        operand, and must not overlap A or B.
    out_dtype : dtype, optional
        The dtype of the result, by default that of ``out``, or else of A and B. It may be float32
        for 16-bit A and B.
    device : str or Device
        ``"auto"`` computes in the place of the arrays, on their library's current stream, and does
        not wait. Arrays on the host go to the GPU and back; if there is no GPU, their own library
        multiplies them, and it also multiplies 16-bit arrays if the GPU is older than compute
        capability 8.0. ``"gpu"`` does the same, but a missing GPU is an error, and arrays on the
        host go to an older GPU too. ``"emulator"`` computes products of arrays on the host by the
        general kernel on the emulator. A device may be given, too, as in
        ``tilewise.emulator("sm_80")``.
    max_gpu_memory : int or str, optional
        The memory that a product of arrays on the host may take of the GPU's, in bytes or as in
        ``"20GB"`` or ``"512MiB"``. By default it is the free memory, less a reserve.
    epilogue : callable, optional
        A function of the product's elements before they are rounded and stored, and of operands, as
        in ``lambda acc, bias: tilewise.gelu(acc + bias)``. It is called with symbols, at each call
        unless it can compute nothing else than before, and becomes part of the kernel. It may
        return a tuple: several results of one product. For pairs, its first two parameters are the
        elements of two products of A, with the two matrices of b, as in
        ``lambda gate, up: tilewise.silu(gate) * up``.
    pairs : str, optional
        The layout of the columns if one b holds both matrices, (..., k, 2 n): ``"halves"`` if all
        of gate's columns come before up's, or ``"interleaved"`` if they alternate. There is no C
        then.
    invariant : bool, optional
        Whether a row of the result depends, to the bit, only on its row of A and on B, and neither
        on m, on its place, on strides nor on alignment. By default it is as set by
        :func:`tilewise.set_invariant`, or else False.
    **operands : array or float
        The function's other arguments, by their names: numbers, or arrays of any of the dtypes that
        broadcast to the result's shape.

    Returns
    -------
    array, (..., m, n)
        ``out``, or a new array of the same library in the same place; a tuple of arrays if the
        epilogue returns one.

    Raises
    ------
    TypeError
        If the arrays are of different libraries or dtypes, or of a dtype that is not supported, or
        if a flag is neither True nor False.
    TraceError
        If the epilogue does what no kernel can do; it is a TypeError.
    ValueError
        If shapes don't fit, arrays lie in different places, a scalar is not finite, C is needed
        and missing, ``out`` overlaps an input, or ``out`` is given and autograd would record it.
    DeviceUnavailableError
        If a GPU was asked for and there is none, or if this process was forked from one that used
        it.

    Notes
    -----
    Everything is checked before anything is allocated or launched. Infinity and NaN spread as
    IEEE 754 has it, with BLAS's exceptions above. On a device, two runs give the same bits.
    Autograd records products of PyTorch's tensors that require a gradient, and ``torch.compile``
    takes them into its graphs: :mod:`tilewise.torch`.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> tilewise.matmul(a, a, transpose_b=True)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    >>> bias = np.array([-10, -20], np.float32)
    >>> tilewise.matmul(
    ...     a, a, transpose_b=True, epilogue=lambda acc, bias: tilewise.relu(acc + bias), bias=bias
    ... )
    array([[ 0.,  0.],
           [ 4., 30.]], dtype=float32)
    """
    try:
        if dispatched.route(a, b, c, out, *operands.values()) is not DIRECT:
            from tilewise.torch.operator import matmul as recorded

            return recorded(
                a, b, c, alpha=alpha, beta=beta, transpose_a=transpose_a, transpose_b=transpose_b,
                out=out, out_dtype=out_dtype, device=device, max_gpu_memory=max_gpu_memory,
                epilogue=epilogue, pairs=pairs, invariant=invariant, **operands,
            )  # fmt: skip
        is_more = epilogue is not None or operands or pairs is not None or type(b) is tuple
        asked = fusion.asked(epilogue, operands, b, pairs) if is_more else None
        return _multiply(
            a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, max_gpu_memory,
            asked, invariant,
        )  # fmt: skip
    except TilewiseError as error:  # no decorator, because a call costs the host microseconds
        hide_frames(error)
        raise


def _as_numpy_has_it(call: Call, result: Any) -> Any:
    """Return a scalar instead of an array for two vectors, as numpy.matmul does."""
    if call.shape or call.library.name != "numpy":
        return result
    return tuple(x[()] for x in result) if isinstance(result, tuple) else result[()]


def _multiply(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None = None,
    alpha: float = 1,
    beta: float = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | Sequence[Array] | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    max_gpu_memory: int | str | None = None,
    asked: Asked | None = None,
    invariant: bool | None = None,
    key: repeat.Key | None = None,
) -> Any:
    """Multiply, with an epilogue that was traced; PyTorch does not see this call.

    A caller that looks for repeated calls itself passes the ``key`` of this one.
    """
    invariant = is_invariant(invariant)
    if key is None:
        key, again, addresses = repeat.find(
            a, b, c, out, alpha, beta, transpose_a, transpose_b, out_dtype, device, max_gpu_memory,
            invariant, asked=asked,
        )  # fmt: skip
        if again is not None and (result := again.run(addresses, out)) is not None:
            return result
    small = None
    if out is None and c is None and asked is None and max_gpu_memory is None:
        options = transpose_a, transpose_b, out_dtype, device, invariant
        small = quick.key_of(a, b, alpha, beta, *options)
        if small is not None and (result := quick.repeated(small, a, b)) is not None:
            return result
    call = check(
        a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, asked, invariant
    )
    ordinal = call.library.ordinal(a)
    room = None if max_gpu_memory is None else sizes.parse(max_gpu_memory, "max_gpu_memory")
    if ordinal is not None:
        if room is not None:
            raise ValueError(
                "max_gpu_memory is for arrays on the host; these lie on the GPU already"
            )
        if own_product.why_on_gpu(call.dtype, ordinal):
            return own_product.multiply(call)
        return _where_it_lies(call, gpu_of(ordinal), key)
    if not call.library.has_values(a):
        return own_product.multiply(call._replace(invariant=False))
    place = device_of(device) if device != "auto" else first_gpu()
    why = own_product.why_on_host(call.dtype, place) if device == "auto" else ""
    if place is None or why:
        result = own_product.multiply(call)
    elif isinstance(place, Gpu):
        result = _by_way_of(call, place, room, small)
    else:
        result = _on(call, place)
    return result if out is not None else _as_numpy_has_it(call, result)


dispatched.answered_by(_multiply)


class _Input(NamedTuple):
    """An array that a kernel can read: the caller's, or a copy, which is kept alive here."""

    array: Array
    operand: Operand
    address: int
    view: View | None
    """The array's view; None for a copy."""


def _readable(call: Call, seen: Seen) -> _Input:
    """Return the array, or its copy if strides can't describe it."""
    if seen.view is not None:
        return _Input(seen.array, seen.operand, seen.view.pointer, seen.view)
    assert seen.copy is not None
    x = call.library.contiguous(seen.array, seen.copy)
    return _Input(x, seen.operand, call.library.address(x), None)


def _inputs(call: Call) -> tuple[_Input, _Input, _Input | None, _Input | None]:
    a, b, c, up = inputs(call)
    of_c = None if c is None else _readable(call, c)
    of_up = None if up is None else _readable(call, up)
    return _readable(call, a), _readable(call, b), of_c, of_up


def _by_way_of(
    call: Call, gpu: Gpu, max_gpu_memory: int | None, key: quick.Key | None = None
) -> Any:
    """Multiply arrays on the host by a GPU; an epilogue is computed on the host, from the sums."""
    if call.fusion is None:
        return multiply(call, gpu, max_gpu_memory, key)
    sums = ACCUMULATORS[call.dtype]
    c = None if call.c is None else call.library.cast(call.c, sums)
    plain = call._replace(c=c, out=None, out_dtype=sums, fusion=None)
    found = [multiply(each, gpu, max_gpu_memory) for each in own_product.unpaired(plain)]
    return own_product.finished(call, own_product.in_pairs(call, found))


class _Results(NamedTuple):
    """The arrays that a call's results go to.

    Attributes
    ----------
    results : list of array
        The caller's arrays, or new ones.
    stored : list of array
        The arrays that the kernels store to: the results, or new arrays if strides can't describe
        the results.
    views : list of View
        The views of ``stored``.
    operands : list of Operand
        The layouts of ``stored``.
    """

    results: list[Array]
    stored: list[Array]
    views: list[View]
    operands: list[Operand]


def _results(call: Call) -> _Results:
    library, found = call.library, _Results([], [], [], [])
    for out in call.outs:
        result = library.empty(call.shape, call.out_dtype, call.a) if out is None else out
        stored, view = result, library.view(result)
        operand = result_operand(call, view)
        if operand is None:
            stored = library.empty(call.shape, call.out_dtype, call.a)
            view = library.view(stored)
            operand = result_operand(call, view)
        assert view is not None
        assert operand is not None
        found.results.append(result)
        found.stored.append(stored)
        found.views.append(view)
        found.operands.append(operand)
    return found


def _where_it_lies(call: Call, gpu: Gpu, key: repeat.Key | None) -> Any:
    """Multiply on the GPU that the arrays lie on, on their library's current stream."""
    library = call.library
    gpu.context.check_process()
    stream = library.stream(gpu.context.ordinal)
    # Copies are freed in the stream's order, so after the kernel has read them.
    a, b, c, up = _inputs(call)
    given = [strided(call, x) for _, x in call.fusion.arrays] if call.fusion else []
    found = _results(call)
    epilogue = epilogue_of(call, [how for _, how in given], found.views[1:])
    of_c = None if c is None else c.operand
    of_up = None if up is None else up.operand
    product = call.product(a.operand, b.operand, of_c, found.operands[0], epilogue, of_up)
    if call.invariant:
        product = fixed(product, chip_of(gpu))
    plan = plan_product(product, gpu)
    workspace = library.empty((plan.workspace,), "uint8", call.a) if plan.workspace else None
    addresses = [
        a.address,
        b.address,
        0 if c is None else c.address,
        found.views[0].pointer,
        0 if workspace is None else library.address(workspace),
    ]
    if call.fusion is not None:
        addresses += [library.address(x) for x, _ in given]
        addresses += [each.pointer for each in found.views[1:]]
        if up is not None:
            addresses.append(up.address)
    launches = beside.launches(product, plan, gpu)
    for launch in launches:
        gpu.enqueue(launch, stream, addresses)
    are_own = True  # whether all arrays of the launches are the call's own, without copies
    for each, stored in zip(found.results, found.stored, strict=True):
        if stored is not each:
            each[...] = stored
            are_own = False
    for x in (a, b, c, up):
        if x is not None and x.view is None:
            are_own = False
    arrays = [] if call.fusion is None else [x for _, x in call.fusion.arrays]
    if key is not None and are_own and all(map(is_, [x for x, _ in given], arrays)):
        matrices = [x.array for x in (a, b, up) if x is not None]
        record = repeat.record(
            library, gpu, launches, matrices=matrices, operands=arrays, results=found.results,
            c=call.c, workspace=workspace, are_given=call.out is not None,
            is_tuple=call.fusion is not None and call.fusion.function.is_tuple,
        )  # fmt: skip
        repeat.remember(key, record)
    return call.returned(found.results)


def _on(call: Call, device: Device) -> Any:
    """Copy the arrays to a device that is not a GPU, multiply them there, and copy back."""
    library = call.library
    there: list[DeviceArray] = []  # keeps the arrays alive

    def factor(seen: Seen) -> tuple[Operand, int]:
        if call.alpha == 0:  # A and B are not read
            return seen.operand._replace(offset=0), 0
        return placed(_readable(call, seen))

    def placed(x: _Input) -> tuple[Operand, int]:
        bits = library.bits(x.array)
        view = library.view(x.array)
        assert view is not None
        if not bits.size:
            return x.operand._replace(offset=0), 0
        address = flat(bits, view)
        return x.operand._replace(offset=offset(address)), address

    def flat(bits: Any, view: View) -> int:
        elements = np.lib.stride_tricks.as_strided(
            bits, (span(view),), (bits.itemsize,), writeable=False
        )
        there.append(device.array(elements))
        return there[-1].pointer

    results = [
        library.empty(call.shape, call.out_dtype, call.a) if out is None else out
        for out in call.outs
    ]
    if 0 in call.shape:
        return call.returned(results)
    a, b, c, up = inputs(call)
    of_a, a_at = factor(a)
    of_b, b_at = factor(b)
    of_c, c_at = (None, 0) if c is None else placed(_readable(call, c))
    of_up, up_at = (None, 0) if up is None else factor(up)
    given, given_at = [], []
    for _, x in call.fusion.arrays if call.fusion else ():
        array, how = strided(call, library.contiguous(x, tuple(x.shape)))
        view = library.view(array)
        assert view is not None
        given.append(how)
        given_at.append(flat(library.bits(array), view) if span(view) else 0)
    targets = [library.bits(x) for x in results]
    back = [device.empty((x.size,), x.dtype) for x in targets]
    of_d = Operand(max(call.n, 1), 1, call.m * call.n, offset(back[0].pointer))
    epilogue = epilogue_of(call, given, [new(call.shape)] * (len(results) - 1))
    product = call.product(of_a, of_b, of_c, of_d, epilogue, of_up)
    plan = plan_product(fixed(product, None) if call.invariant else product, device)
    workspace = device.empty((plan.workspace,), np.uint8)
    addresses = a_at, b_at, c_at, back[0].pointer, workspace.pointer, *given_at
    execute(plan, device, 0, (*addresses, *(x.pointer for x in back[1:]), up_at))
    for target, stored in zip(targets, back, strict=True):
        target[...] = stored.to_numpy().reshape(call.shape)
    return call.returned(results)
