"""The figures of what a kernel does to memory, for learners and for authors of kernels.

A profile is a launch's counters with the figures that follow from them: sectors a request, the
share of each sector that was used, floating-point operations a byte, occupancy, the line with the
most bank conflicts. :mod:`tilewise.lens.profiling` makes profiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tilewise.counted import Counters
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.occupancy import WARP, Occupancy
from tilewise.ladder.untouched import Untouched
from tilewise.ladder.verdict import Verdict, as_dict
from tilewise.launch import LaunchReport, in_groups
from tilewise.lens.nsight_child import Case
from tilewise.lens.roofline import WAVEFRONT_BYTES, Work
from tilewise.numbers import Check
from tilewise.shown import Part, Shown, Table, grid_line, plural, product_line, value


@dataclass(frozen=True)
class Figure:
    """A row of a profile.

    Attributes
    ----------
    group : str
        ``"global memory"``, ``"shared memory"``, ``"arithmetic"``, ``"control"``,
        ``"resources"`` or ``"occupancy"``.
    name : str
    value : int, float, str or None
        The value; None if there is nothing to divide by.
    unit : str
        The unit: ``"bytes"``, ``"%"`` or empty.
    """

    group: str
    name: str
    value: int | float | str | None
    unit: str = ""


@dataclass(frozen=True, repr=False)
class Profile(Shown):
    """The counted launch of a kernel on a problem.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    file, source : str
        The file of its CUDA C++, and the text.
    arch : str
        The architecture that it was compiled for.
    report : LaunchReport
        The report with counters, also by line, and the footprint. ``report.alike`` has the kinds of
        blocks of which one was run and multiplied; it is empty if every block was run.
    occupancy : Occupancy
    case : Case
        The launch, from which it can be made again.
    problem : mapping or None
        ``m``, ``n``, ``k``, ``dtype``, ``tile``, ``alpha`` and ``beta`` of a product.
    check : Check or None
        The product's check against float64; None if some block was not run.
    untouched : Untouched or None
        The elements of the product's C that the kernel did not change; None if none is known.
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
    untouched: Untouched | None = None

    @property
    def counters(self) -> Counters:
        """The counters of the whole launch: ``report.counters``."""
        assert self.report.counters is not None
        return self.report.counters

    @property
    def blocks(self) -> int:
        """The number of blocks of the grid."""
        return math.prod(self.report.launch.grid)

    @property
    def blocks_run(self) -> int:
        """The number of blocks that were run."""
        return len(self.report.alike) or self.blocks

    @property
    def correct(self) -> bool:
        """Whether no check found a fault, and the result is correct as far as that is known."""
        return not self.report.findings and (self.verdict is None or self.verdict.correct)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the product is correct, and what is wrong with it; None if it is not checked."""
        return None if self.check is None else Verdict(self.check, self.untouched)

    @property
    def work(self) -> Work:
        """The work of a GPU in this launch, for the roofline."""
        c, footprint = self.counters, self.report.footprint
        assert footprint is not None
        is_double = c.dadd + c.dmul + c.dfma > c.fadd + c.fmul + c.ffma
        stored = c.global_store_sectors + c.global_atomic_sectors
        stored += c.bulk_store_sectors + c.bulk_reduction_sectors
        memory = sum(count for name, count in c.to_dict().items() if name.endswith("_requests"))
        memory -= c.cp_async_requests  # which are among the global loads
        arithmetic = -(-(c.fadd + c.fmul + c.ffma + c.dadd + c.dmul + c.dfma) // WARP)
        by_type = {
            "float16": c.tensor_float16_flops, "bfloat16": c.tensor_bfloat16_flops,
            "float64": c.tensor_float64_flops,
        }  # fmt: skip
        added = c.fadd + c.fmul + c.dadd + c.dmul + 2 * (c.ffma + c.dfma)
        return Work(
            flops=c.flops,
            dtype="float64" if is_double else "float32",
            dram_bytes=SECTOR * (footprint.loads + footprint.stores),
            l2_bytes=SECTOR * (footprint.block_loads + stored),
            shared_wavefronts=c.shared_wavefronts + c.wgmma_bytes // WAVEFRONT_BYTES,
            warp_instructions=memory + arithmetic + c.barriers,
            blocks=self.blocks,
            other_flops=c.flops - added - sum(by_type.values()),
            tensor_cores={kind: count for kind, count in by_type.items() if count},
        )

    @property
    def worst_line(self) -> tuple[int, int] | None:
        """The line with the most shared bank conflicts, and their number; None without any."""
        counts = {line: c.shared_bank_conflicts for line, c in self.report.lines.items()}
        if not any(counts.values()):
            return None
        line = max(counts, key=counts.__getitem__)
        return line, counts[line]

    def figures(self) -> tuple[Figure, ...]:
        """Return all rows, group by group."""
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
        for name, requests, sectors, moved in (
            ("load", c.bulk_load_requests, c.bulk_load_sectors, c.bulk_load_bytes),
            ("store", c.bulk_store_requests, c.bulk_store_sectors, c.bulk_store_bytes),
            (
                "reduction",
                c.bulk_reduction_requests,
                c.bulk_reduction_sectors,
                c.bulk_reduction_bytes,
            ),
        ):
            if requests:
                rows += [
                    Figure(group, f"bulk {name} requests", requests),
                    Figure(group, f"bulk {name} sectors", sectors),
                    Figure(group, f"bulk {name}s", moved, "bytes"),
                ]
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
        for name, requests, wavefronts, conflicts in (
            ("ldmatrix", c.ldmatrix_requests, c.ldmatrix_wavefronts, c.ldmatrix_bank_conflicts),
            ("stmatrix", c.stmatrix_requests, c.stmatrix_wavefronts, c.stmatrix_bank_conflicts),
            ("cp.async", c.cp_async_requests, c.cp_async_wavefronts, c.cp_async_bank_conflicts),
        ):
            if requests:
                rows += [
                    Figure(group, f"{name} requests", requests),
                    Figure(group, f"{name} wavefronts", wavefronts),
                    Figure(group, f"{name} bank conflicts", conflicts),
                ]
        if c.wgmma_requests:
            rows.append(Figure(group, "wgmma requests", c.wgmma_requests))
            rows.append(Figure(group, "wgmma operands", c.wgmma_bytes, "bytes"))
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
        shared = r.shared_bytes + self.report.launch.shared
        of_block = Figure(group, "shared memory a block", shared, "bytes")
        if r.missing:
            return [of_block, Figure(group, "registers and spills", f"not known: {r.missing}")]
        return [
            Figure(group, "registers a thread", r.registers),
            of_block,
            Figure(group, "spills a thread", r.spill_bytes, "bytes"),
        ]

    def _occupancy(self) -> list[Figure]:
        found, group = self.occupancy, "occupancy"
        if self.report.resources.missing:
            most = f"at most {found.blocks}, for its registers are not known"
            return [Figure(group, "blocks a multiprocessor", most)]
        return [
            Figure(group, "blocks a multiprocessor", found.blocks),
            Figure(group, "warps a multiprocessor", found.warps),
            Figure(group, "of its warps", 100 * found.share, "%"),
            Figure(group, "limited by", ", ".join(found.limits)),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: the figures by group, and the counters, also by line."""
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
            **as_dict(self.verdict),
            "correct": self.correct,
            "checked": self.check is not None,
            "figures": groups,
            **launched,
            "occupancy": self.occupancy.to_dict(),
            "work": None if self.report.footprint is None else self.work.to_dict(),
        }

    def _title(self) -> str:
        x = self.problem
        if x is None:
            return self.kernel
        tile = "" if x["tile"] is None else f", tile {x['tile']}"
        line = product_line(x["m"], x["n"], x["k"], x["alpha"], x["beta"])
        return f"{self.kernel}: {line}, {x['dtype']}{tile}"

    def _summary(self) -> str:
        found = len(self.report.findings)
        return (
            f"{self._title()}, {self.blocks_run:,} of {plural(self.blocks, 'block')} run"
            + ("" if self.verdict is None or self.verdict.correct else ", the result WRONG")
            + (f", {plural(found, 'fault')} found" if found else "")
        )

    def _parts(self) -> list[Part]:
        launch = self.report.launch
        run = "every block was run"
        if self.blocks_run < self.blocks:
            run = f"{plural(self.blocks_run, 'block')} run, the rest multiplied"
        checked = ["the result was not checked"]
        if self.verdict is not None:
            first, *remarks = self.verdict.lines()
            checked = [f"result {first}", *remarks]
        parts: list[Part] = [
            self._title(),
            f"{grid_line(launch.grid, launch.block)}, {self.arch}",
            run,
            *checked,
        ]
        rows: list[tuple[str, ...]] = []
        for group, figures in groupby(self.figures(), key=lambda figure: figure.group):
            rows += [("",), (group,)]
            rows += [(f"  {x.name}", f"{value(x.value)} {x.unit}".strip()) for x in figures]
        parts.append(Table(rows))
        parts += [f"found: {finding}" for finding in in_groups(self.report.findings)]
        return [*parts, *(f"note: {note}" for note in self.report.notes)]


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _share(a: float, b: float) -> float | None:
    return 100 * a / b if b else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
