"""Compile kernels in background threads before they are asked for.

The first product of a kind (a dtype, a layout, an alignment) whose kernel is not in the cache on
disk waits for its compilation. Products of the same kind and other sizes are likely to follow, so
the kernels that the planner would choose for them are compiled meanwhile. A caller that needs a
kernel that another thread is compiling waits for that thread. The choice of kernel does not depend
on what is compiled, so neither does any bit of a result. ``TILEWISE_COMPILE_BESIDE=0`` turns this
off.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tilewise.compiler import ahead
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.environment import is_on
from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import chip_of, kernels_of
from tilewise.gemm.product import Operand, Pairing, Product, paired
from tilewise.gemm.steps import NotKeptError, Plan, prepare
from tilewise.kernel import Kernel

VARIABLE = "TILEWISE_COMPILE_BESIDE"
SAMPLES, LARGEST = 320, 4096  # products with another m alone, then others; the largest size

Kind = tuple[object, ...]
_begun: set[Kind] = set()
_planning: list[threading.Thread] = []
_lock = threading.Lock()


def _begin_anew() -> None:
    """Forget which compilations the parent process began: a fork does not have its threads."""
    global _lock
    _lock = threading.Lock()
    _begun.clear()
    _planning.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def launches(product: Product, plan: Plan, gpu: Gpu) -> tuple[Prepared, ...]:
    """Return a plan's launches; if a kernel is missing, begin to compile those of similar products.

    Parameters
    ----------
    product : Product
        The product that the plan computes.
    plan : Plan
    gpu : Gpu
    """
    with suppress(NotKeptError):
        return prepare(plan, gpu, compiles=False)
    kernels = [step.kernel for step in plan.steps]
    missing = [each for each in kernels if each.find(gpu.arch, lines=False) is None]
    expect(product, missing, chip_of(gpu), gpu.arch)
    return prepare(plan, gpu)


def expect(product: Product, missing: Sequence[Kernel], chip: Chip | None, arch: str) -> bool:
    """Begin to compile kernels that products of the same kind may need; once per process and kind.

    Parameters
    ----------
    product : Product
    missing : sequence of Kernel
        The product's kernels that are not in the cache. The caller compiles the first one itself;
        the compilation of the others begins at once.
    chip : Chip or None
    arch : str
        The architecture of the GPU.

    Returns
    -------
    bool
        Whether this call began to compile the kernels of other products.

    Raises
    ------
    ValueError
        If ``TILEWISE_COMPILE_BESIDE`` is neither on nor off.
    """
    is_wanted = is_on(VARIABLE, default=True)
    workers = min(ahead.WORKERS, ahead.cores() - 1)  # one core stays free
    if chip is None or not workers or not is_wanted:
        return False
    ahead.compile_beside(missing[1:], arch, workers, is_urgent=True)
    kind = _kind(product)
    with _lock:
        if kind in _begun:
            return False
        _begun.add(kind)
    thread = threading.Thread(
        target=_compile, args=(product, chip, arch, workers), name="plan beside", daemon=True
    )
    thread.start()
    with _lock:
        _planning[:] = [*(each for each in _planning if each.is_alive()), thread]
    return True


def wait(seconds: float) -> bool:
    """Wait until nothing is compiled beside any more, at most so long.

    What is timed meanwhile shares the processor, and Python's lock, with these threads.

    Parameters
    ----------
    seconds : float

    Returns
    -------
    bool
        Whether nothing is compiled any more.
    """
    end = time.monotonic() + seconds
    for thread in _planning.copy():
        thread.join(max(0.0, end - time.monotonic()))
    is_planned = not any(thread.is_alive() for thread in _planning.copy())
    return ahead.wait(max(0.0, end - time.monotonic())) and is_planned


def alike(product: Product) -> Iterator[Product]:
    """Yield products of the same kind as a given one.

    The first ones have another m alone, as mini-batches vary; then all sizes vary. Each size is
    drawn uniformly or log-uniformly.
    """
    drawn = random.Random(0)
    fixed = product.n, product.k

    def size() -> int:
        if drawn.random() < 0.5:
            return drawn.randint(1, LARGEST)
        return int(LARGEST ** drawn.random())

    for _ in range(SAMPLES):
        yield _of_sizes(product, size(), *fixed)
    for _ in range(SAMPLES):
        yield _of_sizes(product, size(), size(), size())


def _compile(product: Product, chip: Chip, arch: str, workers: int) -> None:
    ahead.compile_beside(kernels_of(chip, alike(product)), arch, workers)


def _kind(product: Product) -> Kind:
    asked = product.m, product.n, product.k
    return (
        product.dtype, product.out_dtype, product.beta != 0, product.batch > 1,
        product.epilogue and product.epilogue.function, product.pairing is not None, product.order,
        *(x.column_stride == 1 for x in (product.a, product.b, product.d)),
        *(size % 8 == 0 for size, is_row in zip(asked, _rows(product), strict=True) if is_row),
        product.m <= 8, *(bool(x.offset) for x in (product.a, product.b)),
    )  # fmt: skip


def _rows(product: Product) -> tuple[bool, bool, bool]:
    """Return, for each of m, n and k, whether a matrix is contiguous along it.

    Whether such a size is a multiple of 8 decides the alignment, and so which kernels there are.
    """
    a, b, d = (x.column_stride == 1 for x in (product.a, product.b, product.d))
    return not a or not d, b or d, a or not b


def _of_sizes(product: Product, *sizes: int) -> Product:
    """Return a product of the same kind and of about these sizes, whose matrices have no gaps."""
    asked = product.m, product.n, product.k
    m, n, k = (
        size if not is_row else -(-size // 8) * 8 if like % 8 == 0 else size + (size % 8 == 0)
        for size, like, is_row in zip(sizes, asked, _rows(product), strict=True)
    )
    if sizes[0] <= 8:  # up to 8 rows have kernels of their own, whatever the alignment of m
        m = sizes[0]

    def lying(like: Operand, rows: int, columns: int) -> Operand:
        step = rows * columns if like.batch_stride else 0
        if like.column_stride == 1:
            return Operand(columns, 1, step)
        return Operand(1, rows, step)

    d, b, pairing = lying(product.d, m, n), lying(product.b, k, n), product.pairing
    if pairing is not None and pairing.whole is not None:
        b, pairing = paired(lying(pairing.whole, k, 2 * n), product.order, n, product.dtype)
    elif pairing is not None:
        pairing = Pairing(lying(pairing.operand, k, n))
    return Product(
        m, n, k, product.batch, product.dtype, product.out_dtype, product.alpha, product.beta,
        lying(product.a, m, k), b, d if product.c else None, d, product.epilogue, pairing=pairing,
    )  # fmt: skip
