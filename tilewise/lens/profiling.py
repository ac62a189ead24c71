"""Count what a launch does, on the emulator: any launch, or one of a product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import getfullargspec, unwrap
from typing import Any, Never

from tilewise.compiler import Compiled
from tilewise.devices.emulator import Emulator, EmulatorArray, UnlikeBlocksError
from tilewise.devices.occupancy import multiprocessor, occupancy
from tilewise.kernel import Kernel
from tilewise.ladder.prepared import arch_of, kernel_of, sizes_of
from tilewise.ladder.rungs import Rung
from tilewise.ladder.signature import refuse_launch
from tilewise.ladder.verdict import judge
from tilewise.launch import Finding, Launch, LaunchReport, dim3, each_of
from tilewise.launchable import CHECKS, Launchable
from tilewise.lens.nsight_child import Case
from tilewise.lens.prepared_gemm import PreparedGemm
from tilewise.lens.profile import Profile
from tilewise.specs.run import Prepared
from tilewise.tracebacks import front_door

# Products with at most so many multiply-adds are run whole and checked; for larger ones a block of
# each kind is run.
SMALL = 1 << 21
# Matrices with more elements are zeros, if the counts do not depend on the values.
DRAWN = 1 << 22

Count = Callable[[Compiled, Launch], LaunchReport]


@front_door
def profile_launch(
    kernel: Launchable,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    shared: int = 0,
    arch: str | None = None,
    checks: str = "raise",
    whole: bool = False,
    cooperative: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Count what a launch does; none of its arrays changes.

    Parameters
    ----------
    kernel : Kernel
    grid, block, args, shared, cooperative
        The arguments of :meth:`tilewise.Kernel.launch`; arrays have to be NumPy's.
    arch : str
        The architecture to compile for, as in ``"sm_90a"``; by default
        :attr:`tilewise.Kernel.arch`.
    checks : str
        ``"raise"``, ``"strict"``, ``"collect"`` or ``"off"``.
    whole : bool
        Whether to run every block. Otherwise one block of each kind is run and its counts
        multiplied, if it follows from the instructions which blocks do the same.
    progress : callable, optional
        A function that is called with the number of blocks that are counted, first 0, and of all
        blocks.

    Raises
    ------
    CompileError, LaunchError, CheckError, ValueError, TypeError
    """
    if checks not in CHECKS:
        raise ValueError(f"checks is {checks!r}; it takes one of {', '.join(CHECKS)}")
    emulator = Emulator(arch or kernel.arch, progress)
    launch = Launch(
        dim3(grid, "grid"), dim3(block, "block"), each_of(args), shared, checks,
        limits=kernel.limits, cooperative=cooperative,
    )  # fmt: skip
    compiled = kernel.compile(emulator.arch)
    launch = replace(launch, module=kernel.variables.for_a_look(emulator, compiled))
    how = partial(emulator.profile, whole=whole)
    return _profile(kernel, compiled, launch, emulator, how)


def profile_prepared(
    prepared: Prepared,
    *,
    checks: str = "raise",
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    finding: Callable[[Finding], None] | None = None,
) -> Profile:
    """Count what a launch does whose description was read from text.

    Parameters
    ----------
    prepared : Prepared
        The launch, whose empty arrays count as uninitialised.
    checks, whole, progress
        The arguments of :func:`profile_launch`.
    note, finding : callable, optional
        As in :func:`profile`.

    Raises
    ------
    LaunchError, CheckError, OSError, ValueError, TypeError
    """
    emulator = Emulator(prepared.compiled.arch, progress, finding)
    args = prepared.values(emulator)
    launch = Launch(
        prepared.grid, prepared.block, args, prepared.shared, checks,
        limits=prepared.kernel.limits, cooperative=prepared.cooperative,
    )  # fmt: skip
    how = partial(emulator.profile, whole=whole, note=note)
    found = _profile(prepared.kernel, prepared.compiled, launch, emulator, how)
    host = tuple(x.to_numpy() if isinstance(x, EmulatorArray) else x for x in args)
    return replace(found, case=replace(found.case, args=host))


def _profile(
    kernel: Launchable, compiled: Compiled, launch: Launch, emulator: Emulator, count: Count
) -> Profile:
    """Return the profile that ``count``, a method of the emulator, makes."""
    multiprocessor(emulator.arch)  # if it is not known, nothing is run
    report = count(compiled, launch)
    resources = report.resources
    held = occupancy(
        emulator.arch, math.prod(launch.block), resources.registers,
        resources.shared_bytes + launch.shared, barriers=resources.barriers,
    )  # fmt: skip
    case = Case(
        kernel.path or kernel.source, kernel.name, launch.grid, launch.block, launch.args,
        kernel.defines, launch.shared, kernel.options, kernel.include, kernel.trusted,
        kernel.is_ptx, launch.cooperative,
    )  # fmt: skip
    return Profile(
        kernel.name, compiled.file, compiled.source, emulator.arch, report, held, case
    )  # fmt: skip


@front_door
def profile(
    target: str | Rung | Kernel,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    *,
    dtype: str | None = None,
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    seed: int = 0,
    arch: str | None = None,
    checks: str = "raise",
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    finding: Callable[[Finding], None] | None = None,
    **launch: Never,
) -> Profile:
    """Count what a kernel does for C = alpha A B + beta C with random matrices.

    Among blocks that do the same, only one is run and its counts are multiplied, so that the size
    hardly matters; ``report.alike`` of the result lists them. Large matrices then take no memory,
    and what is not computed is not checked: ``check`` of the result is None.

    Parameters
    ----------
    target : str, Rung or Kernel
        A rung's name, ``"FILE.cu:NAME"`` or ``"FILE.ptx:NAME"``; a rung; or a kernel with the
        ladder's signature. Any other kernel is profiled by :meth:`tilewise.Kernel.profile`.
    m, n, k : int, optional
        The sizes, at least 1. A size that is not given is 64, or follows from
        :meth:`tilewise.Rung.sizes` for a rung that can't take 64.
    dtype : str, optional
        The dtype of all three matrices: ``"float32"`` or ``"float64"``, or for rungs with tensor
        cores ``"float16"`` or ``"bfloat16"``. By default it is the rung's first; for another kernel
        float32.
    tile : int, optional
        The edge of a block's tile; by default the rung's own, or as the kernel defines it.
    alpha, beta : float
    seed : int
        The seed of the matrices.
    arch : str, optional
        The architecture to compile for, as in ``"sm_80"``.
    checks : str
        ``"raise"``, ``"strict"``, ``"collect"`` or ``"off"``, as in :meth:`tilewise.Kernel.launch`.
    whole : bool
        Whether to run every block, and check the result. A small product is run whole in any case.
    progress : callable, optional
        A function that is called with the number of blocks that are counted, first 0, and of all
        blocks.
    note : callable, optional
        A function that is called with the reason, if every block is to be run without ``whole``.
    finding : callable, optional
        A function that is called with the first finding of a launch, if the launch goes on after
        it, as with ``checks="collect"``. Where one block of each kind was not enough, and every
        block is run, that is a second launch.

    Returns
    -------
    Profile

    Raises
    ------
    FileNotFoundError
        If the target's file does not exist.
    CompileError, LaunchError
        If the kernel does not compile, or can't be launched.
    CheckError
        If a check of the emulator found a fault.
    MemoryError
        If the matrices are needed and too large for this machine.
    ValueError
        If there is no such rung, or a size, a tile, a dtype or ``checks`` is not one that it takes.
    TypeError
        If the kernel does not take a product's matrices, or an argument is of another type.

    Examples
    --------
    >>> import tilewise
    >>> found = tilewise.profile("tiled_conflicts", 8192, 8192, 8192)
    >>> found.counters.shared_load_bank_conflicts, found.blocks_run, found.blocks
    (120259084288, 1, 65536)
    """
    refuse_launch("profile", launch, getfullargspec(unwrap(profile)).kwonlyargs)
    target = kernel_of(target)
    emulator = Emulator(arch_of(target, arch), progress, finding)
    m, n, k = sizes_of(target, m, n, k)
    product = PreparedGemm.of(target, m, n, k, dtype=dtype, tile=tile, alpha=alpha, beta=beta)
    grid, block = product.geometry
    blocks = math.prod(grid)
    if blocks == 1 or blocks * math.prod(block) * k <= SMALL:
        whole = True
    why = ""
    if not whole and m * k + k * n + m * n > DRAWN:
        try:
            return _count(product, emulator, checks, partial(emulator.sample, computes=False))
        except UnlikeBlocksError as error:
            why = f"every block would be run ({error}), and "
    try:
        drawn = product.drawn(seed)  # what it does depends on loaded values, so it needs numbers
    except MemoryError as error:
        raise MemoryError(f"{why}{error}") from None
    return _count(drawn, emulator, checks, partial(emulator.profile, whole=whole, note=note))


def check_product(
    target: str | Rung | Kernel,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str | None = None,
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    arch: str | None = None,
) -> None:
    """Raise the errors that :func:`profile` would raise before it runs anything.

    Parameters
    ----------
    target, m, n, k, dtype, tile, alpha, beta, arch
        The arguments of :func:`profile`.

    Raises
    ------
    FileNotFoundError, CompileError, MemoryError, ValueError, TypeError
    """
    product = PreparedGemm.of(target, m, n, k, dtype=dtype, tile=tile, alpha=alpha, beta=beta)
    where = arch_of(target, arch)
    product.compile(where)
    multiprocessor(where)


def _count(product: PreparedGemm, emulator: Emulator, checks: str, how: Count) -> Profile:
    """Return the profile that ``how``, a method of the emulator, makes; check it if all was run."""
    compiled = product.compile(emulator.arch)
    placed, gemm = product.on(emulator, checks), product.gemm
    found = _profile(product.kernel, compiled, placed.launch, emulator, how)
    found = replace(found, case=replace(found.case, args=product.args), problem=product.problem)
    if not product.is_drawn or found.blocks_run < found.blocks:
        return found
    before = gemm.c if gemm.beta else None
    verdict = judge(
        placed.c, placed.c.to_numpy(), gemm.a, gemm.b, before, product.alpha, product.beta
    )
    return replace(found, check=verdict.check, untouched=verdict.untouched)
