"""A kernel of anybody's: CUDA C++ source, a name and macros; compile it, launch it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise import compiler
from tilewise.compiler import Compiled, Request, includes, shipped
from tilewise.devices import Device, get_device
from tilewise.isolated import launch as in_a_process
from tilewise.launch import Launch, LaunchReport, dim3
from tilewise.limits import Limits
from tilewise.tracebacks import front_door

if TYPE_CHECKING:
    from tilewise.lens.profile import Profile

CHECKS = ("raise", "strict", "collect", "off")
SOURCES = shipped.FOLDER
"""The folder of the kernels that come with tilewise."""


SUFFIXES = (".cu", ".cuh")
"""How the names of files with CUDA C++ end."""
_TARGET = re.compile(r"(.*?\.cuh?):(.*)", re.DOTALL)


def split_target(target: str) -> tuple[Path, str] | None:
    """The file and the kernel's name of ``"FILE.cu:NAME"``; None of what has not that form.

    Examples
    --------
    >>> split_target("folder/own.cu:space::kernel<64>")
    (PosixPath('folder/own.cu'), 'space::kernel<64>')
    """
    # A kernel's name may hold a colon too.
    match = _TARGET.fullmatch(target)
    return None if match is None else (Path(match[1]), match[2])


def _read(path: Path) -> str:
    if (text := shipped.text(path)) is not None:
        return text
    return includes.read(path)


def _size(shared: int) -> int:
    if isinstance(shared, bool) or not hasattr(shared, "__index__"):
        raise TypeError(f"shared is {shared!r}; it takes a whole number of bytes")
    return index(shared)


class Kernel:
    """One kernel of a CUDA C++ source.

    Parameters
    ----------
    source_or_path : str or path-like
        CUDA C++ source, or the path of a file with it. A ``Path``, or a string of one line
        that ends in ``.cu`` or ``.cuh``, is a path. Of a file with host code in it, the part that
        the kernel needs is compiled.
    name : str
        The kernel's name: plain, qualified, or a template instance such as
        ``"sgemm<64, 64, 8>"``; where several have it, with the types of its parameters, as
        ``"scale(float*, int)"``.
    defines : mapping, optional
        Macros: ``{"TILE": 16}`` is ``-DTILE=16``; a value of True is a bare ``-DNAME``.
    options : sequence of str, optional
        More options for NVRTC, such as ``--ptxas-options=-O1``, of those that read and write no
        file.
    include : sequence of str or Path, optional
        More folders that ``#include`` searches, beside the file's own. It reads no file elsewhere.
    trusted : bool
        Whether the source may include any file of the machine, and the options may have NVRTC read
        and write files.
    limits : Limits, optional
        What compiling it, and each launch, may take. By default there are none.

    Raises
    ------
    FileNotFoundError
        If the path, or a folder of ``include``, is not there.
    TypeError
        If the source, the name or the macros are of another type.
    ValueError
        If the file is no text.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> source = '''extern "C" __global__ void twice(int n, float* x) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) x[i] *= 2;
    ... }'''
    >>> x = np.arange(5, dtype=np.float32)
    >>> report = tilewise.Kernel(source, "twice").launch(1, 32, (5, x), device="emulator")
    >>> x
    array([0., 2., 4., 6., 8.], dtype=float32)
    >>> report.counters.global_load_requests
    1
    """

    def __init__(
        self,
        source_or_path: str | os.PathLike[str],
        name: str,
        defines: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        *,
        include: Sequence[str | Path] = (),
        trusted: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.path: Path | None = None
        if not isinstance(source_or_path, str | os.PathLike):
            raise TypeError(
                f"source_or_path is {source_or_path!r}; it takes CUDA C++ source as a string, or "
                "the path of a file with it"
            )
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}; it takes the kernel's name as a string")
        if not isinstance(defines, Mapping | None):
            raise TypeError(f"defines is {defines!r}; it takes a mapping of macros to values")
        if not isinstance(limits, Limits | None):
            raise TypeError(f"limits is {limits!r}; it takes tilewise.Limits, or None for none")
        if not isinstance(source_or_path, str) or (
            "\n" not in source_or_path and source_or_path.endswith(SUFFIXES)
        ):
            self.path = Path(source_or_path)
        self.source = _read(self.path) if self.path else str(source_or_path)
        self.name = name
        self.defines: dict[str, Any] = dict(defines or {})
        # A string stays one: to compile then says what is wrong with it.
        self.options = options if isinstance(options, str) else tuple(options)
        self.include = include if isinstance(include, str | Path) else tuple(include)
        for folder in () if isinstance(include, str | Path) else self.include:
            if not Path(folder).is_dir():
                what = "it is a file" if Path(folder).exists() else "there is no such folder"
                raise FileNotFoundError(f"include has {str(folder)!r}: {what}")
        self.trusted, self.limits = trusted, limits

    def __repr__(self) -> str:
        return f"Kernel({str(self.path or '<source>')!r}, {self.name!r}, {self.defines!r})"

    def with_macros(self, defines: Mapping[str, Any]) -> Kernel:
        """The same kernel with more macros."""
        found = copy(self)
        found.defines = {**self.defines, **defines}
        return found

    def request(self, arch: str | None = None, *, lines: bool = True) -> Request:
        """What the compiler is asked for; :meth:`compile` says what ``arch`` and ``lines`` are."""
        return Request(
            self.source, self.name, self.defines, arch or compiler.DEFAULT_ARCH, self.path,
            self.options, self.include, lines, self.trusted, self.limits,
        )  # fmt: skip

    @front_door
    def compile(self, arch: str | None = None, *, lines: bool = True) -> Compiled:
        """Compile for ``arch`` (by default the emulator's), or take it from the cache.

        Parameters
        ----------
        arch : str, optional
            As ``"sm_90a"``.
        lines : bool
            Whether PTX and machine code say of which source line each instruction is: the
            emulator needs it, and so do profilers that show the source.

        Raises
        ------
        CompileError
            If the source does not compile or has no kernel of this name.
        ValueError
            If NVRTC does not know ``arch``.
        """
        return compiler.compile_request(self.request(arch, lines=lines))

    def find(self, arch: str | None = None, *, lines: bool = True) -> Compiled | None:
        """Take it from the cache; return None where :meth:`compile` would have to compile it.

        Parameters
        ----------
        arch, lines
            As :meth:`compile` takes them.

        Raises
        ------
        ValueError
            If NVRTC does not know ``arch``.
        """
        return compiler.find(self.request(arch, lines=lines))

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
    ) -> LaunchReport:
        """Compile, launch, wait, report.

        Parameters
        ----------
        grid, block : int or sequence of ints
            Blocks a grid and threads a block, x first.
        args : sequence
            One a parameter: numbers, NumPy arrays (copied in and out), arrays on the device.
        shared : int
            Dynamic shared memory a block, bytes.
        device : str or Device
            ``"auto"``, ``"gpu"``, ``"emulator"``, or a device.
        checks : str
            On the emulator: ``"raise"`` at a fault; ``"strict"``, also at what is only noted
            otherwise; ``"collect"`` faults in the report; or ``"off"``.
        global_races : bool
            On the emulator: look for races in global memory too. It remembers every access of
            the launch, and is for small grids.
        isolated : bool
            Whether it runs in a process of its own, which ends with it: the report, the arrays
            and the errors are the same. Arrays are NumPy's. The kernel's limits hold, or
            :class:`tilewise.Limits`' own.

        Raises
        ------
        CompileError, LaunchError, LimitError, CheckError, DeviceUnavailableError
        ValueError
            If an argument can't be; or if the kernel has limits and the launch is on a GPU, which
            can't be stopped but with its process, and is not isolated.
        TypeError
        """
        if checks not in CHECKS:
            raise ValueError(f"checks is {checks!r}; it takes one of {', '.join(CHECKS)}")
        place = get_device(device) if isinstance(device, str) else device
        launch = Launch(
            dim3(grid, "grid"), dim3(block, "block"), tuple(args), _size(shared), checks,
            global_races=global_races, limits=self.limits,
        )  # fmt: skip
        compiled = self.compile(place.arch)
        if isolated:
            return in_a_process(place.name, place.arch, compiled, launch)
        if self.limits is not None and place.name == "gpu":
            raise ValueError(
                "a launch on a GPU can't be stopped from inside; with limits, launch it with "
                "isolated=True"
            )
        return place.launch(compiled, launch)

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
    ) -> Profile:
        """Count what a launch does to memory, on the emulator; no array changes.

        Of blocks that do the same, one is run and its counts multiplied, so that the size of the
        grid hardly matters; ``profile.report.alike`` says which.

        Parameters
        ----------
        grid, block, args, shared, checks
            As :meth:`launch` takes them; arrays are NumPy's.
        arch : str, optional
            To compile for, as ``"sm_80"``; by default the emulator's.
        whole : bool
            Run every block.

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
            self, grid, block, args, shared=shared, arch=arch or compiler.DEFAULT_ARCH,
            checks=checks, whole=whole,
        )  # fmt: skip
