"""What a kernel does to memory, counted on the emulator: for a learner, and for a kernel's author.

A profile is a launch's counters with what follows from them: sectors a request, the share of each
sector that was used, floating-point operations a byte, occupancy, the line with the most bank
conflicts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tilewise.compiler import DEFAULT_ARCH, Compiled
from tilewise.devices.emulator import Emulator, EmulatorArray, UnlikeBlocksError
from tilewise.devices.emulator.counting import SECTOR
from tilewise.devices.occupancy import WARP, Occupancy, multiprocessor, occupancy
from tilewise.kernel import CHECKS, Kernel
from tilewise.ladder import Geometry, Rung, real_of
from tilewise.launch import Counters, Launch, LaunchReport, dim3
from tilewise.lens.nsight import LIMITS, SHARED_CONFIG, Hardware, Row, compare, given_registers
from tilewise.lens.nsight_child import Case
from tilewise.lens.roofline import Work
from tilewise.numbers import Check, check
from tilewise.problem import Gemm, check_sizes, random_problem
from tilewise.run import prepare

# Products of so many steps along k, of all threads, are run whole, and checked; larger ones block
# by kind.
SMALL = 1 << 21
# Matrices of more elements are zeros where what is counted does not depend on them.
DRAWN = 1 << 22

Count = Callable[[Compiled, Launch], LaunchReport]


@dataclass(frozen=True)
class Figure:
    """One row of a profile.

    Attributes
    ----------
    group : str
        ``"global memory"``, ``"shared memory"``, ``"arithmetic"``, ``"control"``,
        ``"resources"`` or ``"occupancy"``.
    name : str
    value : int, float, str or None
        None where there is nothing to divide by.
    unit : str
        ``"bytes"``, ``"%"`` or nothing.
    """

    group: str
    name: str
    value: int | float | str | None
    unit: str = ""


@dataclass(frozen=True)
class Profile:
    """One kernel on one problem, counted.

    Attributes
    ----------
    kernel : str
        Its name.
    file, source : str
        Where its CUDA C++ came from, and what it is.
    arch : str
        The architecture that it was compiled for.
    report : LaunchReport
        With counters, by line too, and the footprint. ``report.alike`` are the kinds of blocks of
        which one was run and multiplied; empty where every block was run.
    occupancy : Occupancy
    case : Case
        The launch, so that it can be made again.
    problem : mapping or None
        ``m``, ``n``, ``k``, ``dtype``, ``tile``, ``alpha``, ``beta`` of a product.
    check : Check or None
        The product's, against float64; None where a block was not run.
    """

    kernel: str
    file: str
    source: str
    arch: str
    report: LaunchReport
    occupancy: Occupancy
    case: Case
    problem: Mapping[str, Any] | None = None
    check: Check | None = None

    @property
    def counters(self) -> Counters:
        assert self.report.counters is not None
        return self.report.counters

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return math.prod(self.report.launch.grid)

    @property
    def blocks_run(self) -> int:
        """How many of them were run."""
        return len(self.report.alike) or self.blocks

    @property
    def correct(self) -> bool:
        """Whether no check found a fault, and the result is right as far as it is known."""
        return not self.report.findings and (self.check is None or self.check.correct)

    @property
    def work(self) -> Work:
        """What a GPU has to do, for the roofline."""
        c, footprint = self.counters, self.report.footprint
        assert footprint is not None
        is_double = c.dadd + c.dmul + c.dfma > c.fadd + c.fmul + c.ffma
        stored = c.global_store_sectors + c.global_atomic_sectors
        memory = sum(count for name, count in c.to_dict().items() if name.endswith("_requests"))
        arithmetic = -(-(c.fadd + c.fmul + c.ffma + c.dadd + c.dmul + c.dfma) // WARP)
        return Work(
            flops=c.flops,
            dtype="float64" if is_double else "float32",
            dram_bytes=SECTOR * (footprint.loads + footprint.stores),
            l2_bytes=SECTOR * (footprint.block_loads + stored),
            shared_wavefronts=c.shared_load_wavefronts + c.shared_store_wavefronts,
            warp_instructions=memory + arithmetic + c.barriers,
        )

    @property
    def worst_line(self) -> tuple[int, int] | None:
        """The line with the most shared bank conflicts, and how many; None if there are none."""
        counts = {
            line: c.shared_load_bank_conflicts + c.shared_store_bank_conflicts
            for line, c in self.report.lines.items()
        }
        if not any(counts.values()):
            return None
        line = max(counts, key=counts.__getitem__)
        return line, counts[line]

    def figures(self) -> tuple[Figure, ...]:
        """All rows, group by group."""
        return (
            *self._global(), *self._shared(), *self._arithmetic(), *self._control(),
            *self._resources(), *self._occupancy(),
        )  # fmt: skip

    def _global(self) -> list[Figure]:
        c, group = self.counters, "global memory"
        rows: list[Figure] = []
        for verb, requests, sectors, used in (
            ("load", c.global_load_requests, c.global_load_sectors, c.global_load_bytes),
            ("store", c.global_store_requests, c.global_store_sectors, c.global_store_bytes),
        ):
            rows += [
                Figure(group, f"{verb} requests", requests),
                Figure(group, f"{verb} sectors", sectors),
                Figure(group, f"sectors a {verb} request", _ratio(sectors, requests)),
                Figure(group, f"bytes of {verb} sectors", SECTOR * sectors, "bytes"),
                Figure(group, f"used of each sector, {verb}s", _share(used, SECTOR * sectors), "%"),
            ]
        if c.global_atomic_requests:
            rows.append(Figure(group, "atomic requests", c.global_atomic_requests))
            rows.append(Figure(group, "atomic sectors", c.global_atomic_sectors))
        footprint = self.report.footprint
        if footprint is not None:
            for name, sectors in (
                ("loaded, each sector once a block", footprint.block_loads),
                ("loaded, each sector once", footprint.loads),
                ("stored, each sector once", footprint.stores),
            ):
                rows.append(Figure(group, name, SECTOR * sectors, "bytes"))
        return rows

    def _shared(self) -> list[Figure]:
        c, group = self.counters, "shared memory"
        rows = [
            Figure(group, "load requests", c.shared_load_requests),
            Figure(group, "load wavefronts", c.shared_load_wavefronts),
            Figure(group, "load bank conflicts", c.shared_load_bank_conflicts),
            Figure(group, "store requests", c.shared_store_requests),
            Figure(group, "store wavefronts", c.shared_store_wavefronts),
            Figure(group, "store bank conflicts", c.shared_store_bank_conflicts),
        ]
        if c.shared_atomic_requests:
            rows.append(Figure(group, "atomic requests", c.shared_atomic_requests))
        worst = self.worst_line
        if worst is not None:
            rows.append(Figure(group, "line with the most conflicts", worst[0]))
        return rows

    def _arithmetic(self) -> list[Figure]:
        c, group = self.counters, "arithmetic"
        moved = SECTOR * (c.global_load_sectors + c.global_store_sectors)
        rows = [
            Figure(group, "floating-point operations", c.flops),
            Figure(group, "fused multiply-adds", c.ffma + c.dfma),
            Figure(group, "multiplications", c.fmul + c.dmul),
            Figure(group, "additions", c.fadd + c.dadd),
            Figure(group, "operations a byte of global memory", _ratio(c.flops, moved)),
        ]
        if self.report.footprint is not None:
            rows.append(
                Figure(group, "operations a byte, each sector once", _finite(self.work.intensity))
            )
        return rows

    def _control(self) -> list[Figure]:
        c, group = self.counters, "control"
        return [
            Figure(group, "warp instructions", c.warp_instructions),
            Figure(
                group,
                "mean active lanes",
                _ratio(c.thread_instructions, c.warp_instructions),
            ),
            Figure(group, "divergent branches", c.divergent_branches),
            Figure(group, "barriers", c.barriers),
        ]

    def _resources(self) -> list[Figure]:
        r, group = self.report.resources, "resources"
        return [
            Figure(group, "registers a thread", r.registers),
            Figure(group, "shared memory a block", r.shared_bytes + self.report.launch.shared,
                   "bytes"),
            Figure(group, "spills a thread", r.spill_bytes, "bytes"),
        ]  # fmt: skip

    def _occupancy(self) -> list[Figure]:
        found, group = self.occupancy, "occupancy"
        return [
            Figure(group, "blocks a multiprocessor", found.blocks),
            Figure(group, "warps a multiprocessor", found.warps),
            Figure(group, "of its warps", 100 * found.share, "%"),
            Figure(group, "limited by", ", ".join(found.limits)),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the figures by group, the counters, by line too."""
        groups: dict[str, dict[str, Any]] = {}
        for figure in self.figures():
            name = f"{figure.name}, {figure.unit}" if figure.unit else figure.name
            groups.setdefault(figure.group, {})[name] = figure.value
        launched = self.report.to_dict()
        for name in ("device", "seconds"):
            del launched[name]
        return {
            "kernel": self.kernel,
            "file": self.file,
            "arch": self.arch,
            **({} if self.problem is None else self.problem),
            "blocks": self.blocks,
            "blocks_run": self.blocks_run,
            "emulation_seconds": self.report.seconds,
            "correct": self.correct,
            "checked": self.check is not None,
            "figures": groups,
            **launched,
            "occupancy": self.occupancy.to_dict(),
            "work": None if self.report.footprint is None else self.work.to_dict(),
        }


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _share(a: float, b: float) -> float | None:
    return 100 * a / b if b else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def profile_launch(
    kernel: Kernel,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    shared: int = 0,
    arch: str = DEFAULT_ARCH,
    checks: str = "raise",
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Count what a launch does; none of its arrays changes.

    Parameters
    ----------
    kernel : Kernel
    grid, block, args, shared
        As :meth:`tilewise.Kernel.launch` takes them; arrays are NumPy's.
    arch : str
        To compile for, as ``"sm_90a"``.
    checks : str
        ``"raise"``, ``"collect"`` or ``"off"``.
    whole : bool
        Run every block. Else one of each kind is run and its counts multiplied, wherever it
        follows from the instructions which blocks do the same.
    progress : callable, optional
        Called with the blocks that are counted and the blocks there are.

    Raises
    ------
    CompileError, LaunchError, CheckError, ValueError, TypeError
    """
    if checks not in CHECKS:
        raise ValueError(f"checks is {checks!r}; it takes one of {', '.join(CHECKS)}")
    emulator = Emulator(arch, progress)
    launch = Launch(dim3(grid, "grid"), dim3(block, "block"), tuple(args), shared, checks)
    return _profile(kernel, launch, emulator, partial(emulator.profile, whole=whole))


def _profile(kernel: Kernel, launch: Launch, emulator: Emulator, count: Count) -> Profile:
    """What ``count``, a method of the emulator, finds."""
    compiled = kernel.compile(emulator.arch)
    multiprocessor(emulator.arch)  # where it is not known, nothing is run
    report = count(compiled, launch)
    resources = compiled.resources
    held = occupancy(
        emulator.arch, math.prod(launch.block), resources.registers,
        resources.shared_bytes + launch.shared, barriers=resources.barriers,
    )  # fmt: skip
    case = Case(
        kernel.path or kernel.source, kernel.name, launch.grid, launch.block, launch.args,
        kernel.defines, launch.shared,
    )  # fmt: skip
    return Profile(
        kernel.name, compiled.file, compiled.source, emulator.arch, report, held, case
    )  # fmt: skip


def profile_product(
    target: str | Rung | Kernel,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    seed: int = 0,
    arch: str = DEFAULT_ARCH,
    checks: str = "raise",
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Count what a kernel does for C = alpha A B + beta C, of random matrices.

    Parameters
    ----------
    target : str, Rung or Kernel
        As :func:`tilewise.run` takes it.
    m, n, k : int
        At least 1.
    dtype : str
        ``"float32"`` or ``"float64"``.
    tile : int, optional
        As :func:`tilewise.run` takes it.
    alpha, beta : float
    seed : int
    arch, checks, whole, progress
        As :func:`profile_launch` takes them. A small product is run whole in any case. Where
        every block is run, the result is checked.

    Raises
    ------
    FileNotFoundError, CompileError, LaunchError, CheckError, MemoryError, ValueError, TypeError
    """
    emulator = Emulator(arch, progress)
    product = _product(target, (m, n, k), dtype, tile, alpha, beta)
    grid, block = product.geometry
    blocks = math.prod(grid)
    if blocks == 1 or blocks * math.prod(block) * k <= SMALL:
        whole = True
    if not whole and m * k + k * n + m * n > DRAWN:
        try:
            return product.count(emulator, checks, emulator.sample)
        except UnlikeBlocksError:
            pass  # what was loaded decides: it takes numbers, and every block is run
    return product.drawn(seed).count(emulator, checks, partial(emulator.profile, whole=whole))


def check_product(
    target: str | Rung | Kernel,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    arch: str = DEFAULT_ARCH,
) -> None:
    """Raise what :func:`profile_product` would before it runs anything: it compiles the kernel.

    Parameters
    ----------
    target, m, n, k, dtype, tile, alpha, beta, arch
        As :func:`profile_product` takes them.

    Raises
    ------
    FileNotFoundError, CompileError, MemoryError, ValueError, TypeError
    """
    product = _product(target, (m, n, k), dtype, tile, alpha, beta)
    product.kernel.compile(arch)
    multiprocessor(arch)


@dataclass(frozen=True)
class _Product:
    """A product and the launch that computes it; its matrices are zeros, or drawn."""

    gemm: Gemm
    kernel: Kernel
    tile: int | None
    geometry: Geometry
    alpha: float
    beta: float
    is_drawn: bool = False

    def drawn(self, seed: int) -> _Product:
        """The same of random matrices."""
        gemm = self.gemm
        m, n, k = gemm.m, gemm.n, gemm.k
        held = gemm.dtype.itemsize * (m * k + k * n + m * n)
        # They are drawn in float64, one by one, and the emulator has copies. With too little
        # memory the system would end the process, and nothing would be said.
        needed = held + max(held, 8 * max(m * k, k * n, m * n))
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise MemoryError(
                f"to run every block takes {needed / 2**30:,.0f} GiB for the matrices and their "
                f"copies, and it has {there / 2**30:,.0f} GiB"
            )
        a, b, c = random_problem(m, n, k, gemm.dtype, seed)
        return replace(self, gemm=Gemm.of(a, b, c, alpha=self.alpha, beta=self.beta), is_drawn=True)

    def count(self, emulator: Emulator, checks: str, how: Count) -> Profile:
        """What ``how``, a method of the emulator, finds; checked, if all of it was run."""
        gemm, (grid, block) = self.gemm, self.geometry
        a, b, c = gemm.a, gemm.b, gemm.c
        assert c is not None
        there = emulator.array if self.is_drawn else _zeros_on(emulator)
        out = there(c) if gemm.beta else emulator.empty(c.shape, c.dtype)
        args = (
            gemm.m, gemm.n, gemm.k, gemm.alpha, there(a), gemm.lda, there(b), gemm.ldb,
            gemm.beta, out, gemm.ldc,
        )  # fmt: skip
        found = _profile(self.kernel, Launch(grid, block, args, 0, checks), emulator, how)
        again = (
            gemm.m, gemm.n, gemm.k, gemm.alpha, a, gemm.lda, b, gemm.ldb, gemm.beta, c, gemm.ldc,
        )  # fmt: skip
        problem = {
            "m": gemm.m, "n": gemm.n, "k": gemm.k, "dtype": gemm.dtype.name, "tile": self.tile,
            "alpha": float(self.alpha), "beta": float(self.beta),
        }  # fmt: skip
        checked = None
        if self.is_drawn and found.blocks_run == found.blocks:
            before = c if self.beta else None
            checked = check(out.to_numpy(), a, b, before, self.alpha, self.beta)
        return replace(found, case=replace(found.case, args=again), problem=problem, check=checked)


def _product(
    target: str | Rung | Kernel,
    sizes: tuple[int, int, int],
    dtype: str,
    tile: int | None,
    alpha: float,
    beta: float,
) -> _Product:
    """The product of zeros, which take no memory before they are touched."""
    m, n, k = sizes
    check_sizes(m, n, k)
    real_of(dtype)
    a, b, c = (np.zeros(shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    gemm = Gemm.of(a, b, c, alpha=alpha, beta=beta)
    return _Product(gemm, *prepare(target, gemm, tile), alpha, beta)


def _zeros_on(emulator: Emulator) -> Callable[[Any], EmulatorArray]:
    return lambda host: emulator.zeros(host.shape, host.dtype)


def against(found: Profile, hardware: Hardware) -> tuple[Row, ...]:
    """A profile beside what Nsight Compute counted of the same launch.

    Counters, registers, and the blocks a multiprocessor that each limit of occupancy allows.
    """
    registers = given_registers(found.report.resources.registers)
    counters = found.counters.to_dict() | {"registers": registers}
    held, place = found.occupancy, multiprocessor(found.arch)
    by_shared = held.by_shared
    if SHARED_CONFIG in hardware.metrics:  # of the shared memory, what that launch had
        by_shared = hardware.metrics[SHARED_CONFIG] // place.shared_of_a_block(held.shared)
    ours = {
        "blocks": held.by_blocks, "warps": held.by_warps, "registers": held.by_registers,
        "shared": by_shared,
    }  # fmt: skip
    limits = [
        Row(f"occupancy_limit_{name}", LIMITS[name], mine, hardware.limits[name],
            mine == hardware.limits[name])
        for name, mine in ours.items()
        if mine is not None and name in hardware.limits
    ]  # fmt: skip
    return (*compare(counters, hardware), *limits)
