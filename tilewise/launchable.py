"""The base class of kernels from CUDA C++ and from PTX: how they are launched and profiled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tilewise.compiler import Compiled
from tilewise.devices import Device, device_of
from tilewise.flags import check_flags
from tilewise.isolated import launch as in_a_process
from tilewise.launch import Launch, LaunchReport, dim3, each_of
from tilewise.limits import Limits
from tilewise.places import Dim3
from tilewise.tracebacks import front_door
from tilewise.variables import Variables

if TYPE_CHECKING:
    from tilewise.lens.profile import Profile
    from tilewise.lens.watch import Watch

CHECKS = ("raise", "strict", "collect", "off")


def _seconds(after_fault: float) -> float:
    """Return a time as a Python float."""
    if not isinstance(after_fault, Real):
        raise TypeError(f"after_fault is {after_fault!r}; it takes a number of seconds")
    if not after_fault >= 0:
        raise ValueError(f"after_fault is {after_fault!r}; it takes seconds, at least 0")
    return float(after_fault)


def _size(shared: int) -> int:
    if isinstance(shared, bool) or not hasattr(shared, "__index__"):
        raise TypeError(f"shared is {shared!r}; it takes a whole number of bytes")
    return index(shared)


class Launchable(ABC):
    """A kernel that can be compiled, launched and profiled.

    Attributes
    ----------
    path : Path or None
        The file of the source; None if the source was given as a string.
    source, name : str
    defines : mapping
        The macros.
    options : sequence of str
        The options for NVRTC.
    include : sequence of str or Path
    trusted : bool
    limits : Limits or None
    is_ptx : bool
        Whether the source is PTX.
    """

    is_ptx: ClassVar[bool] = False
    path: Path | None
    source: str
    name: str
    defines: dict[str, Any]
    options: Sequence[str]
    include: Sequence[str | Path]
    trusted: bool
    limits: Limits | None
    _variables: Variables | None = None

    @property
    @abstractmethod
    def arch(self) -> str:
        """The architecture that it is compiled for by default."""

    @abstractmethod
    def compile(self, arch: str | None = None, *, lines: bool = True) -> Compiled:
        """Compile for ``arch``, or take it from the cache."""

    @property
    def variables(self) -> Variables:
        """The ``__constant__`` and ``__device__`` variables of the kernel's module.

        ``kernel.variables["weights"] = array`` sets a variable for the following launches, on any
        device, as ``cudaMemcpyToSymbol`` does; ``kernel.variables["total"]`` is the value that the
        last launch left in a variable.
        """
        if self._variables is None:
            self._variables = self._own_variables()
        return self._variables

    def compiled_on(self, place: Device, counts: bool) -> Compiled:
        """Compile for a launch on a device; only to PTX if the launch needs no more.

        Parameters
        ----------
        place : Device
        counts : bool
            Whether the launch is to be counted, if the device counts.
        """
        return self.compile(place.arch)

    def _own_variables(self, given: Launchable | None = None) -> Variables:
        return Variables(self.compile, None if given is None else given._variables)

    def place(self, device: str | Device = "auto") -> Device:
        """Return the device with a name."""
        return device_of(device)

    @front_door
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        device: str | Device = "auto",
        checks: str = "raise",
        *,
        global_races: bool = False,
        isolated: bool = False,
        cooperative: bool = False,
        counts: bool = True,
        after_fault: float = 0.0,
    ) -> LaunchReport:
        """Compile the kernel, launch it, wait for it, and return a report.

        Parameters
        ----------
        grid, block : int or sequence of ints
            The blocks of the grid and the threads of a block, x first.
        args : sequence
            One argument for each parameter: numbers, NumPy arrays (copied in and out), arrays on
            the device, the result of :func:`tilewise.pointer` for a pointer into an array, and the
            result of :func:`tilewise.tensor_map` for a ``CUtensorMap`` or a pointer to one.
        shared : int
            The bytes of dynamic shared memory of a block.
        device : str or Device
            ``"auto"``, ``"gpu"``, ``"emulator"``, or a device, as in
            ``tilewise.emulator("sm_80")``.
        checks : str
            How the emulator treats a fault: ``"raise"`` raises an error; ``"strict"`` also raises
            for faults that are otherwise only noted; ``"collect"`` puts faults in the report;
            ``"off"`` still raises at an access outside every array, and if threads wait forever.
        global_races : bool
            Whether the emulator looks for races in global memory too. It then remembers every
            access of the launch, which is meant for small grids.
        isolated : bool
            Whether it runs in a process of its own, so that a crash ends only that process; the
            report, the arrays and the errors are the same. Arrays have to be NumPy's. The kernel's
            limits hold, or the defaults of :class:`tilewise.Limits`.
        cooperative : bool
            Whether all blocks are resident at once, so that they may wait for each other, as
            ``cooperative_groups::this_grid().sync()`` does; see ``cudaLaunchCooperativeKernel``.
        counts : bool
            Whether the emulator counts what the launch does. Without counts, the report has no
            counters; arrays and findings are the same, and it takes less time. ptxas makes no
            machine code then, so what only ptxas refuses is not found, for example a block with too
            many registers.
        after_fault : float
            The most seconds for which the emulator continues after the first finding, to look for
            others, if ``checks`` is ``"raise"`` or ``"strict"``; the error has all of them. At 0,
            the first finding is raised at once.

        Raises
        ------
        CompileError, LaunchError, LimitError, CheckError, DeviceUnavailableError
        ValueError
            If an argument has a wrong value; or if the kernel has limits and the launch is on a GPU
            without ``isolated``, because only the end of its process can stop it there.
        TypeError
            If an argument is of another type, or a flag is neither True nor False.
        """
        if checks not in CHECKS:
            raise ValueError(f"checks is {checks!r}; it takes one of {', '.join(CHECKS)}")
        check_flags(
            global_races=global_races, isolated=isolated, cooperative=cooperative, counts=counts
        )
        place = self.place(device)
        launch = Launch(
            dim3(grid, "grid"), dim3(block, "block"), each_of(args), _size(shared), checks,
            global_races=global_races, limits=self.limits, cooperative=cooperative, counts=counts,
            after_fault=_seconds(after_fault),
        )  # fmt: skip
        compiled = self.compiled_on(place, counts)
        # Most kernels have no variables, and are launched often.
        has_variables = bool(compiled.variables) or self._variables is not None
        variables = self.variables if has_variables else None
        if variables is not None:
            launch = replace(launch, module=variables.module(place, compiled))
        if isolated:
            carried = frozenset() if variables is None else variables.carried(compiled)
            report, changed = in_a_process(place.name, place.arch, compiled, launch, carried)
            if variables is not None:
                variables.changed(changed)
            return report
        if self.limits is not None and place.name == "gpu":
            raise ValueError(
                "a launch on a GPU can't be stopped from inside; with limits, launch it with "
                "isolated=True"
            )
        report = place.launch(compiled, launch)
        if variables is not None:
            variables.launched(compiled)
        return report

    @front_door
    def profile(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        *,
        arch: str | None = None,
        checks: str = "raise",
        whole: bool = False,
        cooperative: bool = False,
    ) -> Profile:
        """Count what a launch does to memory, on the emulator; no array changes.

        Among blocks that do the same, only one is run and its counts are multiplied, so that the
        size of the grid hardly matters; ``profile.report.alike`` lists them.

        Parameters
        ----------
        grid, block, args, shared, checks, cooperative
            The arguments of :meth:`launch`; arrays have to be NumPy's. In a cooperative launch
            every block is run.
        arch : str, optional
            The architecture to compile for, as in ``"sm_80"``; by default :attr:`arch`.
        whole : bool
            Whether to run every block.

        Raises
        ------
        CompileError, LaunchError, CheckError, ValueError, TypeError

        Examples
        --------
        >>> import numpy as np, tilewise
        >>> source = '''extern "C" __global__ void copy(int n, const float* x, float* y) {
        ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
        ...     if (i < n) y[i] = x[i];
        ... }'''
        >>> x = np.ones(100_000, dtype=np.float32)
        >>> found = tilewise.Kernel(source, "copy").profile(391, 256, (100_000, x, x.copy()))
        >>> found.counters.global_load_sectors, found.blocks_run, found.occupancy.blocks
        (12500, 2, 8)
        """
        from tilewise.lens.profiling import profile_launch

        return profile_launch(
            self, grid, block, args, shared=shared, arch=arch or self.arch,
            checks=checks, whole=whole, cooperative=cooperative,
        )  # fmt: skip

    @front_door
    def watch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        *,
        blocks: Sequence[Dim3] = (),
        arch: str | None = None,
        cooperative: bool = False,
    ) -> Watch:
        """Run some blocks of a launch on the emulator, and show what they do, step by step.

        In Jupyter the result shows itself; ``.save("FILE.html")`` keeps it. No array changes.

        Parameters
        ----------
        grid, block, args, shared, cooperative
            The arguments of :meth:`launch`; arrays have to be NumPy's. The other blocks of the
            shown blocks' clusters run too, and in a cooperative launch all blocks do.
        blocks : sequence of (int, int, int)
            The blocks to show, x first; by default the first of the grid and the last.
        arch : str, optional
            The architecture to compile for, as in ``"sm_80"``; by default :attr:`arch`.

        Returns
        -------
        Watch
            The recording, without a check of the result. A small launch is also run whole, so that
            faults of other blocks are found. If a check finds a fault, the page ends there, and
            ``.fault`` of the result holds the error that :meth:`launch` raises.

        Raises
        ------
        CompileError, LaunchError, MemoryError, ValueError, TypeError
        CheckError
            If a check finds a fault of a block that is not there when the block runs by itself.

        Examples
        --------
        >>> import numpy as np, tilewise
        >>> source = '''extern "C" __global__ void copy(int n, const float* x, float* y) {
        ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
        ...     if (i < n) y[i] = x[i];
        ... }'''
        >>> x = np.ones(100, dtype=np.float32)
        >>> found = tilewise.Kernel(source, "copy").watch(2, 64, (100, x, x.copy()))
        >>> [block["index"] for block in found.trace.to_dict()["blocks"]]
        [[0, 0, 0], [1, 0, 0]]
        """
        from tilewise.lens.watch import watch_args

        return watch_args(
            self, grid, block, args, shared=_size(shared), blocks=blocks, arch=arch,
            cooperative=cooperative,
        )  # fmt: skip
