"""A kernel of anybody's: CUDA C++ source, a name and macros; compile it, launch it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise import compiler
from tilewise.compiler import Compiled, Request, shipped, source_files
from tilewise.compiler.ptx import given
from tilewise.devices import Device, device_of
from tilewise.devices.emulated import emulator
from tilewise.isolated import launch as in_a_process
from tilewise.launch import Launch, LaunchReport, dim3, each_of
from tilewise.limits import Limits
from tilewise.targets import SUFFIXES
from tilewise.tracebacks import front_door
from tilewise.variables import Variables

if TYPE_CHECKING:
    from tilewise.lens.profile import Profile

CHECKS = ("raise", "strict", "collect", "off")
SOURCES = shipped.FOLDER
"""The folder of the kernels that come with tilewise."""


def _read(path: Path) -> str:
    if (text := shipped.text(path)) is not None:
        return text
    return source_files.read(path)


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
        self.is_ptx = False
        self.lines_of: tuple[str, str] | None = None
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
        self._variables: Variables | None = None

    @classmethod
    @front_door
    def from_ptx(
        cls,
        text_or_path: str | os.PathLike[str],
        name: str | None = None,
        *,
        source: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> Kernel:
        """Take a kernel of PTX, of whichever compiler.

        It launches, profiles and is watched as one of CUDA C++. Machine code is made of it by
        nvJitLink (``pip install tilewise[ptx]``) or by ``ptxas`` of a CUDA toolkit, where one of
        them is there; counts are confirmed by it, and registers are known from it.

        Parameters
        ----------
        text_or_path : str or path-like
            PTX, or the path of a file with it. A ``Path``, or a string of one line that ends in
            ``.ptx``, is a path.
        name : str, optional
            The kernel's symbol, or its C++ name without arguments. Not needed where there is one.
        source : str or path-like, optional
            The file that the PTX's lines (``.loc``) are in, to be shown beside what is counted. Of
            those that the PTX names (``.file``), only what lies in its folder is read.
        limits : Limits, optional
            What making machine code of it, and each launch, may take. By default there are none.

        Raises
        ------
        FileNotFoundError
            If a file is not there.
        CompileError
            If the PTX can't be read, or has no kernel of this name.
        TypeError, ValueError

        Examples
        --------
        >>> import numpy as np, tilewise
        >>> ptx = '''
        ... .version 7.0
        ... .target sm_80
        ... .address_size 64
        ... .visible .entry twice(.param .u64 .ptr .global .align 4 x)
        ... {
        ...     .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<4>;
        ...     ld.param.u64 %rd1, [x];
        ...     mov.u32 %r1, %tid.x;
        ...     mul.wide.u32 %rd2, %r1, 4;
        ...     add.s64 %rd3, %rd1, %rd2;
        ...     ld.global.f32 %f1, [%rd3];
        ...     add.f32 %f1, %f1, %f1;
        ...     st.global.f32 [%rd3], %f1;
        ...     ret;
        ... }'''
        >>> x = np.arange(5, dtype=np.float32)
        >>> _ = tilewise.Kernel.from_ptx(ptx).launch(1, 5, (x,), device="emulator")
        >>> x
        array([0., 2., 4., 6., 8.], dtype=float32)
        """
        if not isinstance(text_or_path, str | os.PathLike):
            raise TypeError(
                f"text_or_path is {text_or_path!r}; it takes PTX as a string, or the path of a "
                "file with it"
            )
        if not isinstance(name, str | None):
            raise TypeError(f"name is {name!r}; it takes the kernel's name as a string")
        if not isinstance(limits, Limits | None):
            raise TypeError(f"limits is {limits!r}; it takes tilewise.Limits, or None for none")
        made = cls.__new__(cls)
        made.path = None
        if not isinstance(text_or_path, str) or (
            "\n" not in text_or_path and text_or_path.endswith(".ptx")
        ):
            made.path = Path(text_or_path)
        made.source = source_files.read(made.path) if made.path else str(text_or_path)
        made.is_ptx, made.defines = True, {}
        made.options, made.include = (), ()
        made.trusted, made.limits, made._variables = False, limits, None
        made.lines_of = None if source is None else (str(source), source_files.read(Path(source)))
        made.name = given.kernel_name(made.source, name, made._file)
        return made

    @property
    def _file(self) -> str:
        return given.NO_FILE if self.path is None else str(self.path)

    @property
    def arch(self) -> str:
        """Return what it is compiled for where nobody says: PTX, for its own target."""
        if not self.is_ptx:
            return compiler.DEFAULT_ARCH
        return given.default_arch(self.source, self._file)

    def __repr__(self) -> str:
        if self.is_ptx:
            return f"Kernel.from_ptx({str(self.path or '<text>')!r}, {self.name!r})"
        return f"Kernel({str(self.path or '<source>')!r}, {self.name!r}, {self.defines!r})"

    def with_macros(self, defines: Mapping[str, Any]) -> Kernel:
        """The same kernel with more macros; of PTX, which has none, the kernel itself."""
        if self.is_ptx:
            return self
        found = copy(self)
        found.defines = {**self.defines, **defines}
        found._variables = None if self._variables is None else found._own_variables(self)
        return found

    def request(self, arch: str | None = None, *, lines: bool = True) -> Request:
        """What the compiler is asked for; :meth:`compile` says what ``arch`` and ``lines`` are."""
        return Request(
            self.source, self.name, self.defines, arch or compiler.DEFAULT_ARCH, self.path,
            self.options, self.include, lines, self.trusted, self.limits,
        )  # fmt: skip

    @property
    def variables(self) -> Variables:
        """The ``__constant__`` and ``__device__`` variables of the kernel's module.

        ``kernel.variables["weights"] = array`` sets one for the launches that follow, on any
        device, as ``cudaMemcpyToSymbol`` does; ``kernel.variables["total"]`` is what the last
        launch left in one.
        """
        if self._variables is None:
            self._variables = self._own_variables()
        return self._variables

    def _own_variables(self, given: Kernel | None = None) -> Variables:
        return Variables(self.compile, None if given is None else given._variables)

    @front_door
    def compile(self, arch: str | None = None, *, lines: bool = True) -> Compiled:
        """Compile for ``arch``, or take it from the cache.

        Parameters
        ----------
        arch : str, optional
            As ``"sm_90a"``; by default :attr:`arch`.
        lines : bool
            Whether PTX and machine code say of which source line each instruction is: the
            emulator needs it, and so do profilers that show the source.

        Raises
        ------
        CompileError
            If the source does not compile or has no kernel of this name.
        ValueError
            If NVRTC does not know ``arch``, or it is older than PTX's target.
        """
        if self.is_ptx:
            return given.given(
                self.source, self.name, arch=arch, path=self.path, source=self.lines_of,
                limits=self.limits,
            )  # fmt: skip
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
        if self.is_ptx:
            return self.compile(arch)
        return compiler.find(self.request(arch, lines=lines))

    def place(self, device: str | Device = "auto") -> Device:
        """Return the device of a name; of the emulator, one of the kernel's own :attr:`arch`."""
        found = device_of(device)
        is_by_name = isinstance(device, str) and found.name == "emulator"
        return emulator(self.arch) if self.is_ptx and is_by_name else found

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
    ) -> LaunchReport:
        """Compile, launch, wait, report.

        Parameters
        ----------
        grid, block : int or sequence of ints
            Blocks a grid and threads a block, x first.
        args : sequence
            One a parameter: numbers, NumPy arrays (copied in and out), arrays on the device, and
            for a ``CUtensorMap`` or a pointer to one what :func:`tilewise.tensor_map` makes.
        shared : int
            Dynamic shared memory a block, bytes.
        device : str or Device
            ``"auto"``, ``"gpu"``, ``"emulator"``, or a device, as ``tilewise.emulator("sm_80")``.
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
        cooperative : bool
            Whether all blocks are resident at once, so that they may wait for each other, as
            ``cooperative_groups::this_grid().sync()`` does; as ``cudaLaunchCooperativeKernel``.

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
        place = self.place(device)
        launch = Launch(
            dim3(grid, "grid"), dim3(block, "block"), each_of(args), _size(shared), checks,
            global_races=global_races, limits=self.limits, cooperative=cooperative,
        )  # fmt: skip
        compiled = self.compile(place.arch)
        # Most kernels have none, and are launched often.
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

        Of blocks that do the same, one is run and its counts multiplied, so that the size of the
        grid hardly matters; ``profile.report.alike`` says which.

        Parameters
        ----------
        grid, block, args, shared, checks, cooperative
            As :meth:`launch` takes them; arrays are NumPy's. Of a cooperative launch every block is
            run.
        arch : str, optional
            To compile for, as ``"sm_80"``; by default :attr:`arch`.
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
            self, grid, block, args, shared=shared, arch=arch or self.arch,
            checks=checks, whole=whole, cooperative=cooperative,
        )  # fmt: skip
