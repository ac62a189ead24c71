"""The front door: arrays in, array out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """alpha op(A) op(B) + beta C, where op may transpose, or a function of that.

    Parameters
    ----------
    a, b : array, (..., m, k) and (..., k, n)
        Of one library: NumPy, CuPy or PyTorch; on one GPU, or on the host. float16, bfloat16,
        float32 or float64, both the same; 16-bit products are summed in float32. Leading
        dimensions broadcast, and one-dimensional arrays are taken, as in :func:`numpy.matmul`.
        Any view with strides of whole elements is read where it lies; one that runs backwards,
        or whose batch no single stride describes, is copied first. Of pairs, b may be a tuple of
        two such matrices.
    c : array, optional
        Of the result's shape and dtype; needed unless ``beta`` is 0, and then never read.
    alpha, beta : float
        Finite in the dtype of the sums. With ``alpha`` 0, A and B are not read.
    transpose_a, transpose_b : bool
        Swap the last two dimensions, of (..., k, m) and (..., n, k); of one dimension, nothing.
    out : array or tuple of array, optional
        Where the result goes, or each of an epilogue's results; may be ``c`` or an operand, must
        not overlap A or B.
    out_dtype : dtype, optional
        By default that of ``out``, or else of A and B. It may be float32 for 16-bit A and B.
    device : str or Device
        ``"auto"``: where the arrays lie, on their library's current stream, not waited for. From
        the host they go to the GPU and back; with no GPU, to their own library's product, and so
        do 16-bit arrays where the GPU is older than compute capability 8.0. ``"gpu"``: the same,
        but a missing GPU is an error, and arrays on the host go to an older one too.
        ``"emulator"``: arrays on the host, by the general kernel on the emulator. Or a device, as
        ``tilewise.emulator("sm_80")``.
    max_gpu_memory : int or str, optional
        For arrays on the host: what the product may take of the GPU's memory, in bytes or as
        ``"20GB"`` or ``"512MiB"``. By default what is free, less a reserve.
    epilogue : callable, optional
        A function of the product's elements before they are rounded and stored, and of operands,
        as ``lambda acc, bias: tilewise.gelu(acc + bias)``. It is called with symbols, at each call
        unless it can compute nothing else than before, and becomes part of the kernel. It may
        return a tuple: several results of one product.
        Of pairs its first two parameters are elements of two products, as
        ``lambda gate, up: tilewise.silu(gate) * up``: of A and the two matrices that b is.
    pairs : str, optional
        Says that one b is both matrices, (..., k, 2 n), and how their columns lie: ``"halves"``,
        first all of gate's and then up's; or ``"interleaved"``, in turn. There is no C then.
    invariant : bool, optional
        Whether a row of the result depends, to the bit, on its row of A, on B and on nothing else:
        not on m, on its place, on strides or alignment. By default what
        :func:`tilewise.set_invariant` set, or else False.
    **operands : array or float
        The function's other arguments, by their names: numbers, or arrays that broadcast to the
        result's shape, of any of the dtypes.

    Returns
    -------
    array, (..., m, n)
        ``out``, or a new array of the same library in the same place; a tuple of them where the
        epilogue returns one.

    Raises
    ------
    TypeError
        If the arrays are of different libraries or dtypes, or of a dtype that is not supported.
    TraceError
        If the epilogue does what no kernel can; a TypeError.
    ValueError
        If shapes don't fit, arrays lie in different places, a scalar is not finite, C is needed
        and missing, ``out`` overlaps an input, or ``out`` is given and autograd would record it.
    DeviceUnavailableError
        If a GPU was asked for and there is none, or in a process forked from one that used it.

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
    except TilewiseError as error:  # not by a decorator: a call costs the host microseconds
        hide_frames(error)
        raise


def _as_numpy_has_it(call: Call, result: Any) -> Any:
    """numpy.matmul gives a number, not an array, for two vectors."""
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
    """The same with an epilogue that was traced, which PyTorch does not see.

    A caller that looks for repeated calls itself gives the ``key`` of this one.
    """
    invariant = is_invariant(invariant)
    if key is None:
        key, again, addresses = repeat.find(
            a, b, c, out, alpha, beta, transpose_a, transpose_b, out_dtype, device, max_gpu_memory,
            invariant, asked=asked,
        )  # fmt: skip
        if again is not None and (result := again.run(addresses, out)) is not None:
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
    place = device_of(device) if device != "auto" else first_gpu()
    why = own_product.why_on_host(call.dtype, place) if device == "auto" else ""
    if place is None or why:
        result = own_product.multiply(call)
    elif isinstance(place, Gpu):
        result = _by_way_of(call, place, room)
    else:
        result = _on(call, place)
    return result if out is not None else _as_numpy_has_it(call, result)


dispatched.answered_by(_multiply)


class _Input(NamedTuple):
    """An array that a kernel can read: the caller's, or a copy, kept alive here."""

    array: Array
    operand: Operand
    address: int
    view: View | None
    """None of a copy."""


def _readable(call: Call, seen: Seen) -> _Input:
    """The array, or its copy where its own strides can't be described."""
    if seen.view is not None:
        return _Input(seen.array, seen.operand, seen.view.pointer, seen.view)
    assert seen.copy is not None
    x = call.library.contiguous(seen.array, seen.copy)
    return _Input(x, seen.operand, call.library.address(x), None)


def _inputs(call: Call) -> tuple[_Input, _Input, _Input | None, _Input | None]:
    a, b, c, up = inputs(call)
    of_c, of_up = (None if x is None else _readable(call, x) for x in (c, up))
    return _readable(call, a), _readable(call, b), of_c, of_up


def _by_way_of(call: Call, gpu: Gpu, max_gpu_memory: int | None) -> Any:
    """From the host to a GPU and back; an epilogue is computed on the host, of the sums."""
    if call.fusion is None:
        return multiply(call, gpu, max_gpu_memory)
    sums = ACCUMULATORS[call.dtype]
    c = None if call.c is None else call.library.cast(call.c, sums)
    plain = call._replace(c=c, out=None, out_dtype=sums, fusion=None)
    found = [multiply(each, gpu, max_gpu_memory) for each in own_product.unpaired(plain)]
    return own_product.finished(call, own_product.in_pairs(call, found))


class _Results(NamedTuple):
    """Where a call's results go.

    Attributes
    ----------
    results : list of array
        The caller's, or new ones.
    stored : list of array
        What the kernels store to: the results, or new arrays where strides can't describe those.
    views : list of View
        Of ``stored``.
    """

    results: list[Array]
    stored: list[Array]
    views: list[View]


def _results(call: Call) -> _Results:
    library, found = call.library, _Results([], [], [])
    for out in call.outs:
        result = library.empty(call.shape, call.out_dtype, call.a) if out is None else out
        stored, view = result, library.view(result)
        if result_operand(call, view) is None:
            stored = library.empty(call.shape, call.out_dtype, call.a)
            view = library.view(stored)
        assert view is not None
        found.results.append(result)
        found.stored.append(stored)
        found.views.append(view)
    return found


def _where_it_lies(call: Call, gpu: Gpu, key: repeat.Key | None) -> Any:
    """On the GPU that the arrays lie on, on their library's current stream."""
    library = call.library
    gpu.context.check_process()
    stream = library.stream(gpu.context.ordinal)
    # Copies are freed in the stream's order: not before the kernel has read them.
    a, b, c, up = _inputs(call)
    given = [strided(call, x) for _, x in call.fusion.arrays] if call.fusion else []
    found = _results(call)
    view = found.views[0]
    of_d = result_operand(call, view)
    assert of_d is not None
    epilogue = epilogue_of(call, [how for _, how in given], found.views[1:])
    of_c = None if c is None else c.operand
    of_up = None if up is None else up.operand
    product = call.product(a.operand, b.operand, of_c, of_d, epilogue, of_up)
    if call.invariant:
        product = fixed(product, chip_of(gpu))
    plan = plan_product(product, gpu)
    workspace = library.empty((plan.workspace,), "uint8", call.a) if plan.workspace else None
    addresses = (
        a.address,
        b.address,
        0 if c is None else c.address,
        view.pointer,
        0 if workspace is None else library.address(workspace),
        *(library.address(x) for x, _ in given),
        *(each.pointer for each in found.views[1:]),
        *(() if up is None else (up.address,)),
    )
    launches = beside.launches(product, plan, gpu)
    for launch in launches:
        gpu.enqueue(launch, stream, addresses)
    for each, stored in zip(found.results, found.stored, strict=True):
        if stored is not each:
            each[...] = stored
    arrays = [] if call.fusion is None else [x for _, x in call.fusion.arrays]
    of_operands = [x for x, _ in given]
    are_own = all(
        x is own
        for x, own in zip((*found.stored, *of_operands), (*found.results, *arrays), strict=True)
    )
    if key is not None and are_own and all(x is None or x.view for x in (a, b, c, up)):
        matrices = [x.array for x in (a, b, up) if x is not None]
        record = repeat.record(
            library, gpu, launches, matrices=matrices, operands=arrays, results=found.results,
            c=call.c, workspace=workspace, are_given=call.out is not None,
            is_tuple=call.fusion is not None and call.fusion.function.is_tuple,
        )  # fmt: skip
        repeat.remember(key, record)
    return call.returned(found.results)


def _on(call: Call, device: Device) -> Any:
    """To a device that is no GPU, and back."""
    library = call.library
    there: list[DeviceArray] = []  # keeps them alive

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

    a, b, c, up = _inputs(call)
    of_a, a_at = placed(a)
    of_b, b_at = placed(b)
    of_c, c_at = (None, 0) if c is None else placed(c)
    of_up, up_at = (None, 0) if up is None else placed(up)
    given, given_at = [], []
    for _, x in call.fusion.arrays if call.fusion else ():
        array, how = strided(call, library.contiguous(x, tuple(x.shape)))
        view = library.view(array)
        assert view is not None
        given.append(how)
        given_at.append(flat(library.bits(array), view) if span(view) else 0)
    results = [
        library.empty(call.shape, call.out_dtype, call.a) if out is None else out
        for out in call.outs
    ]
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
