"""What a kernel does to memory, counted on the emulator: for a learner, and for a kernel's author.

A profile is a launch's counters with what follows from them: sectors a request, the share of each
sector that was used, floating-point operations a byte, occupancy, the line with the most bank
conflicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewise.compiler import DEFAULT_ARCH
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.counting import SECTOR
from tilewise.devices.occupancy import WARP, Occupancy, multiprocessor, occupancy
from tilewise.kernel import CHECKS, Kernel
from tilewise.ladder import Rung
from tilewise.launch import Counters, Launch, LaunchReport, dim3
from tilewise.lens.nsight import LIMITS, SHARED_CONFIG, Hardware, Row, compare, given_registers
from tilewise.lens.nsight_child import Case
from tilewise.lens.roofline import Work
from tilewise.numbers import Check, check
from tilewise.problem import Gemm, random_problem
from tilewise.run import prepare

# Products of so many multiply-adds are run whole, and checked; larger ones block by kind.
SMALL = 1 << 21
# Matrices of more elements are zeros where what is counted does not depend on them.
DRAWN = 1 << 22


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
    return _profile(kernel, launch, emulator, whole)


def _profile(kernel: Kernel, launch: Launch, emulator: Emulator, whole: bool) -> Profile:
    compiled = kernel.compile(emulator.arch)
    report = emulator.profile(compiled, launch, whole)
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
        As :func:`profile_launch` takes them. Where every block is run, the result is checked.

    Raises
    ------
    FileNotFoundError, CompileError, LaunchError, CheckError, ValueError, TypeError
    """
    for name, size in (("m", m), ("n", n), ("k", k)):
        if isinstance(size, int) and size < 1:
            raise ValueError(f"{name} is {size}; to be profiled, a product has at least 1 of each")
    emulator = Emulator(arch, progress)
    whole = whole or m * n * k <= SMALL
    if not whole and m * k + k * n + m * n > DRAWN:
        found = _product(target, _zeros(m, n, k, dtype), alpha, beta, tile, emulator, checks, whole)
        if found.report.alike:
            return found
        whole = True  # what was loaded decides: it takes numbers, and then every block is run
    drawn = random_problem(m, n, k, dtype, seed)
    return _product(target, drawn, alpha, beta, tile, emulator, checks, whole)


def _zeros(m: int, n: int, k: int, dtype: str) -> tuple[Any, Any, Any]:
    a, b, c = (np.zeros(shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    return a, b, c


def _product(
    target: str | Rung | Kernel,
    matrices: tuple[Any, Any, Any],
    alpha: float,
    beta: float,
    tile: int | None,
    emulator: Emulator,
    checks: str,
    whole: bool,
) -> Profile:
    a, b, c = matrices
    gemm = Gemm.of(a, b, c, alpha=alpha, beta=beta)
    kernel, edge, (grid, block) = prepare(target, gemm, tile)
    out = emulator.array(c) if beta else emulator.empty(c.shape, c.dtype)
    args = (
        gemm.m, gemm.n, gemm.k, gemm.alpha, emulator.array(a), gemm.lda, emulator.array(b),
        gemm.ldb, gemm.beta, out, gemm.ldc,
    )  # fmt: skip
    found = _profile(kernel, Launch(grid, block, args, 0, checks), emulator, whole)
    again = (
        gemm.m, gemm.n, gemm.k, gemm.alpha, a, gemm.lda, b, gemm.ldb, gemm.beta, c, gemm.ldc,
    )  # fmt: skip
    problem = {
        "m": gemm.m, "n": gemm.n, "k": gemm.k, "dtype": gemm.dtype.name, "tile": edge,
        "alpha": float(alpha), "beta": float(beta),
    }  # fmt: skip
    checked = None
    if found.blocks_run == found.blocks:
        checked = check(out.to_numpy(), a, b, c if beta else None, alpha, beta)
    return replace(found, case=replace(found.case, args=again), problem=problem, check=checked)


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
