"""The front door of grouped products: it takes arrays and the ends of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewise.arrays import dispatched, grouped, own_product, repeat
from tilewise.arrays.dispatched import DIRECT
from tilewise.arrays.fusion import Asked
from tilewise.arrays.grouped import GroupedCall
from tilewise.arrays.libraries import Array
from tilewise.arrays.operands import gpu_of, new
from tilewise.devices import Device, DeviceArray, device_of
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.gemm.epilogue import Strided
from tilewise.gemm.plan import chip_of, plan_on
from tilewise.gemm.product import Operand, offset
from tilewise.gemm.steps import execute, prepare
from tilewise.tracebacks import hide_frames


def grouped_matmul(
    x: Array,
    w: Array,
    offsets: Array,
    *,
    out: Array | Sequence[Array] | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    check_offsets: bool = False,
    epilogue: Callable[..., Any] | None = None,
    **operands: Any,
) -> Any:
    """Return the product of each group of rows with a matrix of its own, in one launch.

    Group g is the rows of ``x`` from ``offsets[g - 1]`` (from 0, for the first) up to
    ``offsets[g]``, and is multiplied by ``w[g]``, as for the experts of a mixture. If ``w`` has two
    dimensions, k is in groups, and each group of columns of ``x`` and rows of ``w`` has a product
    of its own, as for the gradients of the experts' weights.

    Parameters
    ----------
    x : array, (rows, k) or (m, total)
        An array of NumPy, CuPy or PyTorch, on one GPU or on the host. float16 and bfloat16 are
        fast; float32 and float64 are taken too. 16-bit products are summed in float32.
    w : array, (groups, k, n) or (total, n)
        An array with the dtype of ``x`` and any strides. For weights that are stored as (groups, n,
        k), pass the view with the last two dimensions swapped.
    offsets : array of int32 or int64, (groups,)
        The end of each group, at which the next one begins, as ``offs`` of
        ``torch.nn.functional.grouped_mm``: offsets do not decrease, and the last one is the extent
        of the dimension in groups. Groups may be empty. The array lies in the same place as ``x``.
        On a GPU only kernels read it, so that no call waits, and a CUDA graph reads it again at
        each replay.
    out : array or tuple of array, optional
        The array for the result, or one for each of an epilogue's results. It must not overlap an
        input.
    out_dtype : dtype, optional
        The dtype of the result, by default that of ``out``, or else of ``x``. It may be float32 for
        16-bit inputs.
    device : str or Device
        ``"auto"`` computes in the place of the arrays; on the host by their own library, group by
        group. For ``"gpu"`` and ``"emulator"``, arrays on the host are copied there and back. A
        device may be given, too.
    check_offsets : bool
        Whether to check the values of offsets that lie on a GPU, which waits for it. On the host
        they are always checked. Without a check, offsets that decrease or lie outside the array are
        clamped, and rows of the result that are in no group are not written.
    epilogue : callable, optional
        A function of the products' elements, as in :func:`tilewise.matmul`.
    **operands : array or float
        The function's other arguments, by their names: numbers, or arrays that broadcast to the
        result's shape. If rows are in groups, an array of shape (groups, 1, n) has a row for each
        group, as the experts' biases do.

    Returns
    -------
    array, (rows, n) or (groups, m, n)
        ``out``, or a new array of the same library in the same place; a tuple of arrays if the
        epilogue returns one.

    Raises
    ------
    TypeError
        If the arrays are of different libraries or dtypes, or of a dtype that is not supported.
    TraceError
        If the epilogue does what no kernel can do; it is a TypeError.
    ValueError
        If shapes don't fit, arrays lie in different places, checked offsets decrease or don't end
        where the rows do, or ``out`` overlaps an input.
    DeviceUnavailableError
        If a GPU was asked for and there is none.

    Notes
    -----
    Everything is checked before anything is launched. On GPUs of compute capability 9.0, 16-bit
    arrays whose rows are 16-byte aligned are multiplied by a persistent kernel over the tiles of
    all groups; other 16-bit arrays, and those on other GPUs since compute capability 8.0, by
    ``mma.sync``; everything else by a general kernel, slowly.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> x = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> w = np.stack([np.eye(2, dtype=np.float32), 10 * np.eye(2, dtype=np.float32)])
    >>> tilewise.grouped_matmul(x, w, np.array([1, 3]))
    array([[ 0.,  1.],
           [20., 30.],
           [40., 50.]], dtype=float32)
    """
    try:
        if dispatched.route(x, w, offsets, out, *operands.values()) is not DIRECT:
            from tilewise.torch.grouped import grouped_matmul as recorded

            return recorded(
                x, w, offsets, out=out, out_dtype=out_dtype, device=device,
                check_offsets=check_offsets, epilogue=epilogue, **operands,
            )  # fmt: skip
        function = grouped.traced(epilogue, operands)
        return _multiply(x, w, offsets, out, out_dtype, device, check_offsets, function)
    except TilewiseError as error:  # no decorator, because a call costs the host microseconds
        hide_frames(error)
        raise


def _multiply(
    x: Array,
    w: Array,
    offsets: Array,
    out: Array | Sequence[Array] | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    check_offsets: bool = False,
    function: Asked | None = None,
) -> Any:
    """Multiply, with a traced epilogue; PyTorch's autograd does not see this call."""
    key, again, addresses = repeat.find(
        x, w, offsets, out, 1, 0, "grouped", out_dtype, device, asked=function
    )  # fmt: skip
    if again is not None and not check_offsets:
        result = again.run(addresses, out)
        if result is not None:
            return result
    call = grouped.check(x, w, offsets, out, out_dtype, device, function)
    ordinal = call.library.ordinal(x)
    if not call.library.has_values(x):
        return call.returned([
            call.library.empty(call.shape, call.out_dtype, x) if each is None else each
            for each in call.outs
        ])  # fmt: skip
    if ordinal is None or check_offsets:
        total, what = grouped.extent_in_groups(call)
        grouped.check_ends([int(end) for end in offsets.tolist()], total, what)
    if ordinal is not None:
        if own_product.why_on_gpu(call.dtype, ordinal):
            return grouped.multiply(call)
        return _where_it_lies(call, gpu_of(ordinal), key)
    if device == "auto":
        return grouped.multiply(call)
    return _on(call, device_of(device))


dispatched.grouped_answered_by(_multiply)


def _where_it_lies(call: GroupedCall, gpu: Gpu, key: repeat.Key | None) -> Any:
    """Multiply on the GPU that the arrays lie on, on their library's current stream."""
    library = call.library
    gpu.context.check_process()
    stream = library.stream(gpu.context.ordinal)
    x, of_x = _readable(call, call.x)
    w, of_w = _readable(call, call.w)
    offsets = call.offsets
    if call.groups > 1 and getattr(library.view(offsets), "strides", None) != (1,):
        offsets = library.contiguous(offsets, (call.groups,))
    given = [_lying(call, each) for _, each in call.fusion.arrays] if call.fusion else []
    results, stored, others = [], [], []
    for out in call.outs:
        result = library.empty(call.shape, call.out_dtype, call.x) if out is None else out
        there = result
        if grouped.result_operand(call, library.view(result)) is None:
            there = library.empty(call.shape, call.out_dtype, call.x)
            if library.ordinal(result) is not None:
                there[...] = result  # rows that are in no group stay as they are
        results.append(result)
        stored.append(there)
        how = grouped.lying(call, library.view(there), call.out_dtype)
        assert how is not None
        others.append(how)
    of_d = grouped.result_operand(call, library.view(stored[0]))
    assert of_d is not None
    epilogue = grouped.epilogue_of(call, [how for _, how in given], others[1:])
    plan = plan_on(call.product(of_x, of_w, of_d, epilogue), chip_of(gpu))
    addresses = (
        library.address(x), library.address(w), library.address(offsets),
        library.address(stored[0]), 0, *(library.address(each) for each, _ in given),
        *(library.address(each) for each in stored[1:]),
    )  # fmt: skip
    launches = prepare(plan, gpu)
    for launch in launches:
        gpu.enqueue(launch, stream, addresses)
    for result, there in zip(results, stored, strict=True):
        if there is not result:
            result[...] = there
    own = [call.x, call.w, call.offsets, *results]
    own += [each for _, each in call.fusion.arrays] if call.fusion else []
    used = [x, w, offsets, *stored, *(each for each, _ in given)]
    if key is not None and all(a is b for a, b in zip(own, used, strict=True)):
        # The offsets take C's place.
        record = repeat.record(
            library, gpu, launches, matrices=(x, w), operands=[each for each, _ in given],
            results=results, c=offsets, c_may_be_result=False,
            are_given=call.outs[0] is not None,
            is_tuple=call.fusion is not None and call.fusion.function.is_tuple,
        )  # fmt: skip
        repeat.remember(key, record)
    return call.returned(results)


def _readable(call: GroupedCall, x: Array) -> tuple[Array, Operand]:
    """Return the array, or its copy if strides can't describe it, and its layout."""
    found = grouped.input_operand(call, call.library.view(x))
    if found is not None:
        return x, found
    shape = tuple(x.shape)
    found = grouped.input_operand(call, new(shape))
    assert found is not None
    return call.library.contiguous(x, shape), found


def _lying(call: GroupedCall, x: Array) -> tuple[Array, Strided]:
    """Return an array of the epilogue, or its copy if strides can't describe it, and its layout."""
    library, dtype = call.library, call.library.dtype_of(x)
    found = grouped.lying(call, library.view(x), dtype)
    if found is None:
        x = library.contiguous(x, tuple(x.shape))
        found = grouped.lying(call, library.view(x), dtype)
    assert found is not None
    return x, found


def _on(call: GroupedCall, device: Device) -> Any:
    """Copy the arrays to a device, multiply them there, and copy the results back."""
    library = call.library
    there: list[DeviceArray] = []  # keeps the arrays alive

    def placed(x: Array) -> int:
        bits = library.bits(library.contiguous(x, tuple(x.shape)))
        there.append(device.array(np.ascontiguousarray(bits).reshape(-1)))
        return there[-1].pointer if bits.size else 0

    def operand(x: Array, at: int) -> Operand:
        found = grouped.input_operand(call, new(tuple(x.shape)))
        assert found is not None
        return found._replace(offset=offset(at))

    x_at, w_at, offsets_at = placed(call.x), placed(call.w), placed(call.offsets)
    given, given_at = [], []
    for _, each in call.fusion.arrays if call.fusion else ():
        dtype = library.dtype_of(each)
        how = grouped.lying(call, new(tuple(each.shape)), dtype)
        assert how is not None
        given.append(how)
        given_at.append(placed(each))
    results = [
        library.empty(call.shape, call.out_dtype, call.x) if out is None else out
        for out in call.outs
    ]
    targets = [library.bits(each) for each in results]
    back = [device.empty((each.size,), each.dtype) for each in targets]
    of_d = grouped.result_operand(call, new(call.shape))
    how = grouped.lying(call, new(call.shape), call.out_dtype)
    assert of_d is not None
    assert how is not None
    epilogue = grouped.epilogue_of(call, given, [how] * (len(results) - 1))
    product = call.product(
        operand(call.x, x_at), operand(call.w, w_at),
        of_d._replace(offset=offset(back[0].pointer)), epilogue,
    )  # fmt: skip
    plan = plan_on(product, chip_of(device))
    addresses = (x_at, w_at, offsets_at, back[0].pointer, 0, *given_at)
    execute(plan, device, 0, (*addresses, *(each.pointer for each in back[1:])))
    for target, stored in zip(targets, back, strict=True):
        target[...] = stored.to_numpy().reshape(call.shape)
    return call.returned(results)
