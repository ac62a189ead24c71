"""The emulator as a device: what it launches, profiles and records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import DEFAULT_ARCH, Compiled
from tilewise.counted import Confirmation, Resources
from tilewise.devices import arguments, limits, occupancy
from tilewise.devices.arguments import ArrayArgument
from tilewise.devices.emulated import emulator
from tilewise.devices.emulator import programs
from tilewise.devices.emulator.checks.happens_before import batch_limit
from tilewise.devices.emulator.copies.tensor_maps import encode
from tilewise.devices.emulator.counting.counters import count
from tilewise.devices.emulator.machine import Machine
from tilewise.devices.emulator.memory.arrays import EmulatorArray
from tilewise.devices.emulator.memory.global_memory import GlobalMemory
from tilewise.devices.emulator.memory.image import Image
from tilewise.devices.emulator.memory.module import EmulatorModule
from tilewise.devices.emulator.memory.shapes import SharedShapes
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.sources import Sources
from tilewise.devices.emulator.recording.batches import batches
from tilewise.devices.emulator.recording.events import MOST_EVENTS, Recording, check_blocks
from tilewise.devices.emulator.recording.recorder import Recorder
from tilewise.devices.emulator.sampling.sample import UnlikeBlocksError, sample
from tilewise.devices.emulator.setup import Setup
from tilewise.devices.emulator.synchronisation import clusters
from tilewise.devices.emulator.threads.budget import Budget
from tilewise.devices.emulator.threads.faults import Faults
from tilewise.devices.emulator.threads.lanes import Geometry
from tilewise.errors import CheckError, TilewiseError
from tilewise.launch import Alike, Finding, Launch, LaunchReport, Module
from tilewise.limits import NO_LIMITS
from tilewise.places import Dim3

__all__ = ["Emulator", "EmulatorArray", "UnlikeBlocksError"]

LANES = 16384
"""The number of lanes of a batch: registers of this many lanes stay in a core's cache."""


class Emulator:
    """The emulator as a device.

    Parameters
    ----------
    arch : str
        The architecture whose code it runs and whose limits hold.
    progress : callable, optional
        Called with the blocks that ran and the blocks there are, first with 0 as a launch begins.
    on_first_finding : callable, optional
        Called with the first finding of a launch, if the launch goes on after it.

    Attributes
    ----------
    name, arch, description : str
    """

    name = "emulator"

    def __init__(
        self,
        arch: str = DEFAULT_ARCH,
        progress: Callable[[int, int], None] | None = None,
        on_first_finding: Callable[[Finding], None] | None = None,
    ) -> None:
        self.arch = arch
        self.description = f"emulator of {arch}, NumPy {np.__version__}"
        self.progress = progress
        self.on_first_finding = on_first_finding
        self._memory = GlobalMemory()

    def __repr__(self) -> str:
        return f"<{self.description}>"

    def __copy__(self) -> Emulator:
        """Return the device itself: a copy would not own the arrays in its memory."""
        return self

    def __deepcopy__(self, _: Any) -> Emulator:
        """Return the device itself: a copy would not own the arrays in its memory."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: the architecture, of which it becomes the shared emulator."""
        if self.progress is not None or self.on_first_finding is not None:
            raise TypeError(
                f"{self!r} calls functions of this process during launches, so it can't be "
                "pickled; pickle its arch"
            )
        return emulator, (self.arch,)

    def array(self, host: npt.NDArray[Any]) -> EmulatorArray:
        """Return a copy of ``host``, its row pitch kept."""
        return EmulatorArray.of(host, self._memory)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> EmulatorArray:
        """Return an array that nobody wrote yet: reading it before writing is a fault."""
        return EmulatorArray.unwritten(tuple(shape), np.dtype(dtype), self._memory)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> EmulatorArray:
        """Return an array of zeros that takes memory only for the pages that a kernel touches."""
        return EmulatorArray.zeros(tuple(shape), np.dtype(dtype), self._memory)

    def module(self, compiled: Compiled) -> EmulatorModule:
        """Return the variables of a kernel's module, as the source initializes them."""
        return EmulatorModule(self._memory, programs.of(compiled).program, compiled)

    def launch(self, compiled: Compiled, launch: Launch) -> LaunchReport:
        """Run every block, check, and count if the launch is to be counted.

        See :meth:`tilewise.devices.Device.launch`.
        """
        return self._launch(compiled, launch, self._run, is_counting=launch.counts)

    def profile(
        self,
        compiled: Compiled,
        launch: Launch,
        whole: bool = False,
        note: Callable[[str], None] | None = None,
    ) -> LaunchReport:
        """Return the report of a launch, even if the grid is too large to be run; no array changes.

        One block of each kind is run, and its counts multiplied: blocks are of one kind where it
        follows from the instructions that they run the same ones and reach memory alike. Where it
        does not, because what was loaded decides it, every block is run, and a note says why.

        Parameters
        ----------
        compiled : Compiled
        launch : Launch
        whole : bool
            Run every block.
        note : callable, optional
            Called with the reason, if every block is to be run that was not asked for.

        Raises
        ------
        LaunchError, CheckError
            As :meth:`launch`.
        """
        remark: tuple[str, ...] = ()
        if not whole:
            try:
                return self.sample(compiled, launch)
            except UnlikeBlocksError as error:
                remark = (f"every block was run: {error}",)
                if note is not None:
                    note(str(error))
        report = self._launch(compiled, launch, self._run, is_mapping=True)
        return replace(report, remarks=(*report.remarks, *remark))

    def sample(self, compiled: Compiled, launch: Launch, *, computes: bool = True) -> LaunchReport:
        """Return what :meth:`profile` does, but raise if that would run every block.

        Parameters
        ----------
        compiled : Compiled
        launch : Launch
        computes : bool
            Whether the blocks that run store right values. Else what only ends in global memory is
            not computed, and what the launch writes there is not defined; the counts are the same.

        Raises
        ------
        UnlikeBlocksError
            If blocks can't be told to do the same.
        LaunchError, CheckError
            As :meth:`launch`.
        """

        def run(machine: Machine, launch: Launch, cluster: Dim3) -> tuple[Alike, ...]:
            return sample(machine, launch, self.progress, computes)

        return self._launch(compiled, launch, run, is_mapping=True)

    def record(
        self,
        compiled: Compiled,
        launch: Launch,
        blocks: Sequence[Dim3],
        most: int = MOST_EVENTS,
        *,
        stops_at_fault: bool = False,
    ) -> tuple[LaunchReport, tuple[Recording, ...]]:
        """Run some blocks of a launch, and record what each of them does.

        No other block runs, but those of their clusters, and in a cooperative launch all.

        Parameters
        ----------
        compiled : Compiled
        launch : Launch
        blocks : sequence of (int, int, int)
            The blocks to record, each once.
        most : int
            The most events of a block that are kept. A longer run ends there, unfinished, and so
            does one whose events have too many threads; its recording says that it is cut.
        stops_at_fault : bool
            Whether a fault of a recorded block ends the run and is kept in its recording. If not,
            or if another block has the fault, the error is raised.

        Returns
        -------
        report : LaunchReport
            The report on the blocks that ran, as far as they ran.
        recordings : tuple of Recording
            The recordings, in the order of ``blocks``; if the run ended with a fault, those of the
            blocks that ran to their end before, and of the block with the fault.

        Raises
        ------
        ValueError
            If the grid has no such block.
        LaunchError, CheckError
            As :meth:`launch`.
        """
        check_blocks(launch.grid, blocks)
        found: dict[Dim3, Recording] = {}

        def run(machine: Machine, launch: Launch, cluster: Dim3) -> tuple[Alike, ...]:
            recorder = Recorder(machine, most, stops_at_fault)
            for geometry, rows in batches(launch, cluster, blocks):
                recordings = recorder.run(geometry, rows)
                found.update((each.block, each) for each in recordings)
                if any(each.fault for each in recordings):
                    break
            return ()

        report = self._launch(compiled, launch, run)
        return report, tuple(found[block] for block in blocks if block in found)

    def _launch(
        self,
        compiled: Compiled,
        launch: Launch,
        run: Callable[[Machine, Launch, Dim3], tuple[Alike, ...]],
        is_mapping: bool = False,
        is_counting: bool = True,
    ) -> LaunchReport:
        bound = arguments.bind(compiled.name, compiled.parameters, launch.args)
        for argument in bound:
            if isinstance(argument, ArrayArgument):
                EmulatorArray.accept(argument.value, self._memory)
        at_first: Callable[[], None] | None = None
        budget = None
        if launch.limits is not None or launch.after_fault:
            budget = Budget(launch.limits or NO_LIMITS, compiled.file)
            if launch.after_fault:
                at_first = partial(budget.end_after_finding, launch.after_fault)
        known = programs.of(compiled)
        program, rules = known.program, known.rules if is_counting else None
        if budget is not None:
            budget.check_time()
        cluster = program.kernel.cluster or (1, 1, 1)
        # What the system keeps is not the kernel's.
        declared = program.static_shared - program.reserved_shared.get("cap", 0)
        limits.check_launch(
            launch,
            max(declared, compiled.resources.shared_bytes),
            max_shared=limits.max_shared(self.arch),
            max_threads=self._most_threads(program, compiled),
        )
        clusters.check(cluster, launch.grid)
        if launch.cooperative:
            self._check_together(launch, compiled.resources, declared)
        start = time.perf_counter()
        output: list[str] = []
        faults = Faults(launch.checks, at_first, self.on_first_finding)
        # Its list of blocks takes 16 GiB for the largest x, so it is made only where it is used.
        whole = (
            Geometry(launch.grid, launch.block, 0, math.prod(launch.grid))
            if launch.global_races and not is_mapping
            else None
        )
        sources = Sources(program.module.files, compiled.file, program.module.strings)
        module = self._of_here(launch.module)
        image_of = partial(Image, is_cooperative=launch.cooperative)
        with image_of(self._memory, program, compiled, bound, encode, module) as image:
            setup = Setup(
                memory=self._memory,
                parameters=image.parameters,
                symbols=image.symbols,
                dynamic_shared=launch.shared,
                rules=rules,
                faults=faults,
                sources=sources,
                shapes=SharedShapes(program, compiled, launch.shared),
                in_python=compiled.in_python,
                is_checking=launch.checks != "off",
                print=output.append,
                is_mapping=is_mapping,
                whole=whole,
                budget=budget,
                workspace=image.workspace,
            )
            machine = Machine(program, setup)
            try:
                with np.errstate(all="ignore"):
                    alike = run(machine, launch, cluster)
                    if machine.global_races is not None:
                        machine.global_races.finish()
            except CheckError:
                raise
            except TilewiseError as error:
                machine.raise_found(error)
                raise
            except MemoryError:
                if budget is None or budget.limits.memory is None:
                    raise
                exceeded = budget.exceeded("memory")
                machine.raise_found(exceeded)
                raise exceeded from None
            faults.raise_found()
            if not is_mapping:
                image.copy_back()
        seconds = time.perf_counter() - start
        total, lines = (None, {}) if rules is None else count(machine.ops, sources)
        remarks = (*compiled.remarks, *faults.notes)
        resources = compiled.resources
        if resources.missing:
            resources = replace(resources, shared_bytes=declared)
        footprint = None if machine.footprints is None else machine.footprints.result()
        machine.release()
        return LaunchReport(
            device=self.name,
            kernel=compiled.name,
            launch=replace(launch, args=(), module=None),
            resources=resources,
            seconds=seconds,
            counters=total,
            lines=lines,
            findings=faults.findings,
            output="".join(output),
            remarks=remarks,
            alike=alike,
            footprint=footprint,
            confirmation=Confirmation() if rules is None else Confirmation(rules.doubt),
            arch=self.arch,
        )

    def blocks_per_multiprocessor(self, compiled: Compiled, threads: int, shared: int = 0) -> int:
        """Return the occupancy, from the tables of the CUDA programming guide."""
        return occupancy.blocks_per_multiprocessor(self.arch, compiled.resources, threads, shared)

    def _check_together(self, launch: Launch, resources: Resources, declared: int) -> None:
        """Raise LaunchError where no GPU of the architecture holds all the blocks at once."""
        gpu = occupancy.largest_gpu(self.arch)
        if gpu is None:
            return
        name, multiprocessors = gpu
        shared = max(declared, resources.shared_bytes) + launch.shared
        found = occupancy.occupancy(
            self.arch, math.prod(launch.block), resources.registers, shared,
            barriers=resources.barriers,
        )  # fmt: skip
        limits.check_together(launch, found.blocks, multiprocessors, f"the {name}")

    def _of_here(self, module: Module | None) -> EmulatorModule | None:
        """Return a module of the emulator; another device's has no meaning here."""
        if module is not None and not isinstance(module, EmulatorModule):
            raise TypeError(f"the launch's module is {module!r}, which is none of the emulator's")
        return module

    def _most_threads(self, program: Program, compiled: Compiled) -> int:
        """Return the most threads a block, as the kernel's bounds and its registers allow."""
        bound = program.kernel.most_threads or limits.MAX_THREADS
        return min(bound, occupancy.most_threads(self.arch, compiled.resources.registers))

    def _run(self, machine: Machine, launch: Launch, cluster: Dim3) -> tuple[Alike, ...]:
        grid, block = launch.grid, launch.block
        threads, cluster_size = math.prod(block), math.prod(cluster)
        blocks = math.prod(grid)
        count = blocks // cluster_size
        size = max(1, LANES // (threads * cluster_size))
        if launch.limits is not None and launch.limits.memory is not None:
            held = machine.shared_bytes + threads * machine.program.frame_bytes
            size = min(size, max(1, launch.limits.memory // (4 * held * cluster_size + 1)))
        if machine.ordering is not None:
            size = min(size, batch_limit(cluster_size, threads))
        if launch.cooperative:
            size = count  # they wait for each other
        footprints = machine.footprints
        if self.progress is not None:
            self.progress(0, blocks)
        for first in range(0, count, size):
            last = min(first + size, count)
            machine.run(Geometry(grid, block, first, last - first, cluster))
            if footprints is not None:
                footprints.end()
            if self.progress is not None:
                self.progress(last * cluster_size, blocks)
        return ()
