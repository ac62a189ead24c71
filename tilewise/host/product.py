"""Calls of matmul whose arrays lie in the host's memory, on a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewise import sizes
from tilewise.arrays.call import Call
from tilewise.arrays.libraries import Array
from tilewise.arrays.operands import batch_stride
from tilewise.devices.gpu import Gpu
from tilewise.gemm import blocking
from tilewise.gemm.chip import Chip
from tilewise.gemm.invariant import division
from tilewise.gemm.plan import best, chip_of, offers_of_piece
from tilewise.gemm.product import ACCUMULATORS, Operand, Product
from tilewise.host import at_once, quick, resident
from tilewise.host.choose import choose
from tilewise.host.divided import TooLittleError
from tilewise.host.execute import COMPUTE_STREAMS, Matrices, execute
from tilewise.host.launcher import MOST_WORKSPACE, GpuLauncher, Operation
from tilewise.host.matrices import HostMatrix, MatrixLayout
from tilewise.host.pages import ask_for_huge_pages
from tilewise.host.plan import Compute, HostPlan, HostProblem
from tilewise.host.staging import helpers_of, staging
from tilewise.places import ITEM_SIZES

RESERVE = 0.02
"""The share of the GPU's free memory that is left to everything else."""
WORKSPACE = 1 / 16
"""The share of a product's memory that is left to its kernels' workspaces."""
_LEAST_RESERVE = 256 << 20
_SHARE = 1 / 32
_LEAST_PINNED = 1 << 20  # bytes: smaller arrays are not looked up
_TRIES = 3  # another process may take memory that was free when the product was planned


def multiply(
    call: Call, gpu: Gpu, max_gpu_memory: int | None = None, key: quick.Key | None = None
) -> Array:
    """Compute a call's result, in the host's memory.

    Parameters
    ----------
    call : Call
        The call, whose arrays lie in the host's memory.
    gpu : Gpu
    max_gpu_memory : int, optional
        The bytes of the GPU's memory that the product may take; by default the free memory, less a
        reserve.
    key : tuple, optional
        The key under which a small product is kept, to be repeated.

    Raises
    ------
    ValueError
        If the memory is too small for one element of each matrix.
    MemoryError
        If another process took the memory that was free.
    """
    gpu.context.check_process()
    library = call.library
    result = call.out
    if result is None:
        result = library.empty(call.shape, call.out_dtype, call.a)
        if library.name != "numpy":  # NumPy asks for huge pages by itself
            ask_for_huge_pages(library.bits(result))
    if not (call.m and call.n and all(call.batch)):
        return result
    target, found = _target(call, gpu, result)
    problem, operation = _problem(call, found, gpu)
    with staging().channel(gpu) as channel:
        if max_gpu_memory is not None:
            channel.release(most=0)
        for tries_left in range(_TRIES - 1, -1, -1):
            room = max_gpu_memory
            if room is None:
                room = free(problem, gpu, is_sure=tries_left < _TRIES - 1)
            launcher = prepared(problem, operation, gpu, room)
            size = launcher.plan.memory + COMPUTE_STREAMS * launcher.workspace
            try:
                base = channel.allocate(size)
                break
            except MemoryError:
                if not tries_left or max_gpu_memory is not None:
                    raise
        helpers = helpers_of(gpu)
        if at_once.is_for(launcher.plan, found):
            at_once.execute(launcher, found, channel, base, helpers.copiers)
            if key is not None:
                quick.remember(key, call, gpu, launcher)
        else:
            execute(launcher, found, channel, base, helpers)
    if target is not result:
        result[...] = target
    return result


@lru_cache(maxsize=256)
def prepared(problem: HostProblem, operation: Operation, gpu: Gpu, room: int) -> GpuLauncher:
    """Return a plan that takes at most ``room`` bytes of the GPU's memory, and its launches.

    The GPU's context is current. Raises what :func:`planned` raises, and what compiling raises.
    """
    return GpuLauncher(gpu, problem, operation, planned(problem, operation, gpu, room), room)


def forget() -> None:
    """Drop what was found out about products, so that every call is planned again."""
    prepared.cache_clear()
    quick.forget()


class Journey(NamedTuple):
    """The way of a call's arrays to a GPU and back.

    Attributes
    ----------
    problem : HostProblem
    room : int
        The bytes of the GPU's memory that the product may take.
    plan : HostPlan
    is_copied : bool
        Whether the result is copied once more on the host.
    """

    problem: HostProblem
    room: int
    plan: HostPlan
    is_copied: bool


def journey(call: Call, gpu: Gpu, max_gpu_memory: int | None = None) -> Journey | None:
    """Return how a call's arrays would travel; None if the result has no elements.

    Parameters
    ----------
    call, gpu, max_gpu_memory
        The arguments of :func:`multiply`.

    Raises
    ------
    ValueError
        If the memory is too small.
    """
    if not (call.m and call.n and all(call.batch)):
        return None
    result = call.out
    if result is None:
        result = call.library.empty(call.shape, call.out_dtype, call.a)
    target, found = _target(call, gpu, result)
    problem, operation = _problem(call, found, gpu)
    room = max_gpu_memory or free(problem, gpu, is_sure=False)
    return Journey(problem, room, planned(problem, operation, gpu, room), target is not result)


def described(call: Call, gpu: Gpu, max_gpu_memory: int | None = None) -> str:
    """Return :func:`journey` in words."""
    found = journey(call, gpu, max_gpu_memory)
    if found is None:
        return "the result has no elements"
    p, plan = found.problem, found.plan
    of_one = blocking.Problem(p.m, p.n, p.k, p.a.item, p.sums, p.d.item)
    least = p.bytes_in + p.bytes_out
    if not p.shared:
        least = max(least, p.batch * of_one.bound(found.room))
    moved = plan.bytes_in + plan.bytes_out
    words = f"{sizes.shown(plan.bytes_in)} there and {sizes.shown(plan.bytes_out)} back"
    if moved > least:
        words += f", {moved / least:.2f} times the fewest bytes that so much memory allows"
    if found.is_copied:
        words += ", and the result is copied once more on the host"
    return f"{words}; {plan.words}"


def planned(problem: HostProblem, operation: Operation, gpu: Gpu, room: int) -> HostPlan:
    """Return the plan of a product within ``room`` bytes of the GPU's memory.

    Raises
    ------
    ValueError
        If the memory is too small.
    """
    for_workspace = min(int(WORKSPACE * room), MOST_WORKSPACE)
    seconds = SecondsOf(problem, operation, chip_of(gpu))
    try:
        plan = choose(problem, room - for_workspace, seconds)
    except TooLittleError as error:
        least = math.ceil(error.least / (1 - WORKSPACE))
        raise ValueError(
            f"the product may take {room:,} bytes of the GPU's memory (max_gpu_memory, or what is "
            f"free); the least that it takes is {least:,}"
        ) from None
    computed = [step for step in plan.steps() if isinstance(step, Compute)]
    if operation.parts and any(step.k != problem.k for step in computed):
        raise ValueError(
            f"an invariant product's k is not divided by memory, as {room:,} bytes of the GPU's "
            "would need (max_gpu_memory, or what is free); pass fewer rows at a time"
        )
    return plan


def free(problem: HostProblem, gpu: Gpu, is_sure: bool) -> int:
    """Return the bytes of a GPU's memory that a product may take by default.

    Asking the driver takes some 100 µs. Unless the answer must be sure, a small share of the whole
    memory is assumed to be free.
    """
    share = int(_SHARE * gpu.memory)
    if not is_sure and resident.memory(problem) * problem.batch < share // 2:
        return share
    there = gpu.free_memory()
    found = max(there - max(_LEAST_RESERVE, int(RESERVE * there)), there // 2)
    grain = 1 << max(0, found.bit_length() - 8)
    # Rounded down, so that the cache hits though the free memory varies a little.
    return found // grain * grain


@dataclass(frozen=True)
class SecondsOf:
    """The seconds that a GPU takes for a product of m, n and k, by the planner's model.

    Attributes
    ----------
    problem : HostProblem
        The problem, which has the layouts of the matrices.
    operation : Operation
    chip : Chip or None
    """

    problem: HostProblem
    operation: Operation
    chip: Chip | None

    def __call__(self, m: int, n: int, k: int, is_piece: bool = False) -> float:
        p, operation = self.problem, self.operation
        product = Product(
            m, n, k, 1, operation.dtype, operation.out_dtype, operation.alpha, 0.0,
            _of_layout(p.a, m, k), _of_layout(p.b, k, n), None, _of_layout(p.d, m, n),
            parts=operation.parts,
        )  # fmt: skip
        if is_piece:
            return offers_of_piece(product, self.chip)[0].seconds
        return best(product, self.chip).seconds


def _of_layout(x: MatrixLayout, rows: int, columns: int) -> Operand:
    pitch = x.pitch(rows, columns) // x.item
    return Operand(pitch, 1) if x.by_rows else Operand(1, pitch)


def problem_of(x: Matrices, alpha: float, sums: int) -> HostProblem:
    """Return the problem of some matrices; with ``alpha`` 0, A and B do not travel.

    Parameters
    ----------
    x : Matrices
    alpha : float
    sums : int
        The bytes of an element of the sums.
    """
    batch, m, n = x.d.array.shape
    k = x.a.array.shape[2] if alpha else 0
    shared = ""
    if not (x.a.is_one_matrix or x.b.is_one_matrix):
        if x.a.is_same_as(x.b):
            shared = "same"
        elif x.a.is_same_as(x.b.transposed) and x.a.layout.by_rows != x.b.layout.by_rows:
            shared = "transposed"
    return HostProblem(
        m, n, k, batch, x.a.layout, x.b.layout, x.d.layout, x.a.is_one_matrix, x.b.is_one_matrix,
        shared, x.c is not None, sums, x.a.is_pinned and x.b.is_pinned and x.d.is_pinned,
    )  # fmt: skip


def _target(call: Call, gpu: Gpu, result: Array) -> tuple[Array, Matrices]:
    """Return the array that the product is stored to, new if strides forbid, and the matrices."""
    found = _matrices(call, gpu, result)
    if found is None:
        result = call.library.empty(call.shape, call.out_dtype, call.a)
        found = _matrices(call, gpu, result)
    assert found is not None
    return result, found


def _problem(call: Call, matrices: Matrices, gpu: Gpu) -> tuple[HostProblem, Operation]:
    problem = problem_of(matrices, call.alpha, ITEM_SIZES[ACCUMULATORS[call.dtype]])
    parts = division(call.n, call.k, call.dtype, chip_of(gpu)) if call.invariant else 0
    return problem, Operation(call.dtype, call.out_dtype, call.alpha, call.beta, parts)


def _matrices(call: Call, gpu: Gpu, result: Array) -> Matrices | None:
    """Return the arrays as batches of matrices; None if strides can't describe the result."""
    d = _collapsed(_as_matrices(call, result))
    if d is None:
        return None

    def read(x: Array, *, transpose: bool = False, **sides: bool) -> Any:
        seen = _as_matrices(call, x, transpose=transpose, **sides)
        found = _collapsed(seen)
        return np.ascontiguousarray(seen).reshape(-1, *seen.shape[-2:]) if found is None else found

    a = read(call.a, transpose=call.transpose_a, has_columns=True)
    b = read(call.b, transpose=call.transpose_b, has_rows=True)
    c = None if call.c is None else read(call.c)
    together = _below(a, b, c, d)
    if together is not None:
        a, b, c, d = together
    pinned = [None if x is None else HostMatrix(x, _is_pinned(gpu, x)) for x in (a, b, c, d)]
    of_a, of_b, of_c, of_d = pinned
    assert of_a is not None
    assert of_b is not None
    assert of_d is not None
    return Matrices(of_a, of_b, of_c, of_d)


def _as_matrices(
    call: Call,
    x: Array,
    *,
    has_rows: bool | None = None,
    has_columns: bool | None = None,
    transpose: bool = False,
) -> Any:
    """Return an array's bits with all of the call's dimensions: (..., rows, columns)."""
    library = call.library
    if library.name != "numpy" and library.view(x) is None:  # a lazily negated tensor
        x = library.contiguous(x, tuple(x.shape))
    bits = library.bits(x)
    rows = call.has_rows if has_rows is None else has_rows
    columns = call.has_columns if has_columns is None else has_columns
    if not columns:
        bits = bits[..., np.newaxis]
    if not rows:
        bits = bits[..., np.newaxis, :]
    if rows and columns and transpose:
        bits = bits.swapaxes(-1, -2)
    shape = (*call.batch, *bits.shape[-2:])
    return bits if bits.shape == shape else np.broadcast_to(bits, shape)


def _collapsed(x: Any) -> Any | None:
    """Return a view (batch, rows, columns); None if no single stride describes the batch."""
    if x.ndim == 2:
        return x[np.newaxis]
    *batch, rows, columns = x.shape
    step = batch_stride(batch, x.strides[:-2])
    if step is None:
        return None
    shape, strides = (math.prod(batch), rows, columns), (step, *x.strides[-2:])
    return as_strided(x, shape, strides, writeable=x.flags.writeable)


def _below(a: Any, b: Any, c: Any | None, d: Any) -> tuple[Any, Any, Any | None, Any] | None:
    """Return matrices A below one another, times one B, as one matrix; None if they are not so."""
    if len(d) < 2 or b.strides[0]:
        return None

    def one(x: Any) -> Any | None:
        batch, rows, columns = x.shape
        if x.strides[0] != rows * x.strides[1]:
            return None
        return as_strided(
            x, (1, batch * rows, columns), (0, *x.strides[1:]), writeable=x.flags.writeable
        )  # fmt: skip

    found = [None if x is None else one(x) for x in (a, c, d)]
    if found[0] is None or found[2] is None or (c is not None and found[1] is None):
        return None
    return found[0], b[:1], found[1], found[2]


def _is_pinned(gpu: Gpu, x: Any) -> bool:
    """Return whether a GPU can copy from and to all of an array by itself."""
    if x.nbytes <= _LEAST_PINNED or any(stride < 0 for stride in x.strides):
        return False
    driver = gpu.context.driver
    first = x.ctypes.data
    span = sum((n - 1) * stride for n, stride in zip(x.shape, x.strides, strict=True))
    which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    host = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    return all(
        driver.cuPointerGetAttribute(which, address) == (driver.CUresult.CUDA_SUCCESS, int(host))
        for address in (first, first + span + x.itemsize - 1)
    )
