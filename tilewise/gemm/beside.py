"""Kernels compiled beside the first calls, in other threads, before their turn comes.

The first product of a kind (a dtype, a layout, an alignment) whose kernel is not in the cache on
disk waits for its compilation. Others of its kind are likely to follow, with other sizes: what the
planner would ask for then is compiled meanwhile, and who asks for a kernel that another thread is
compiling waits for that. Which kernel answers a product does not depend on it, so that no bit of a
result does. ``TILEWISE_COMPILE_BESIDE=0`` turns this off.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tilewise.compiler import ahead
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import chip_of, kernels_of
from tilewise.gemm.product import Operand, Pairing, Product, paired
from tilewise.gemm.steps import NotKeptError, Plan, prepare
from tilewise.kernel import Kernel

VARIABLE = "TILEWISE_COMPILE_BESIDE"
SAMPLES, LARGEST = 160, 4096  # with another m alone, and as many of other sizes; the largest size

Kind = tuple[object, ...]
_begun: set[Kind] = set()
_lock = threading.Lock()


def _begin_anew() -> None:
    """Forget what the process began that this one was forked from: its threads are not here."""
    global _lock
    _lock = threading.Lock()
    _begun.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def launches(product: Product, plan: Plan, gpu: Gpu) -> tuple[Prepared, ...]:
    """Return a plan's launches; where kernels must be compiled, others are compiled beside.

    Parameters
    ----------
    product : Product
        That the plan is of.
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
    """Begin to compile what products of the same kind may ask for; once per process and kind.

    Parameters
    ----------
    product : Product
    missing : sequence of Kernel
        Its kernels that are not in the cache, the first of which the caller compiles itself. The
        others are begun at once.
    chip : Chip or None
    arch : str
        Of the GPU.

    Returns
    -------
    bool
        Whether other products' kernels were begun now.
    """
    workers = min(ahead.WORKERS, ahead.cores() - 1)  # one core stays free
    if chip is None or not workers or os.environ.get(VARIABLE) == "0":
        return False
    ahead.compile_beside(missing[1:], arch, workers, is_urgent=True)
    kind = _kind(product)
    with _lock:
        if kind in _begun:
            return False
        _begun.add(kind)
    threading.Thread(
        target=_compile, args=(product, chip, arch, workers), name="plan beside", daemon=True
    ).start()
    return True


def alike(product: Product) -> Iterator[Product]:
    """Yield products of the same kind.

    First with another m alone, as mini-batches vary, then of other sizes: each drawn uniformly or
    log-uniformly.
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

    How those are aligned follows from it, and so which kernels there are.
    """
    a, b, d = (x.column_stride == 1 for x in (product.a, product.b, product.d))
    return not a or not d, b or d, a or not b


def _of_sizes(product: Product, *sizes: int) -> Product:
    """Return a product of the same kind, of about these sizes, its matrices in one piece each."""
    asked = product.m, product.n, product.k
    m, n, k = (
        size if not is_row else -(-size // 8) * 8 if like % 8 == 0 else size + (size % 8 == 0)
        for size, like, is_row in zip(sizes, asked, _rows(product), strict=True)
    )
    if sizes[0] <= 8:  # a few rows have kernels of their own, whatever m is a multiple of
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
