"""A kernel given as CUDA C++ source or as PTX, which can be compiled and launched."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

from tilewise import compiler
from tilewise.compiler import Compiled, Request, shipped, source_files
from tilewise.compiler.ptx import given, module
from tilewise.devices import Device
from tilewise.devices.emulated import emulator
from tilewise.launchable import CHECKS, Launchable
from tilewise.limits import Limits
from tilewise.targets import PTX_SUFFIX, SUFFIXES
from tilewise.tracebacks import front_door

__all__ = ["CHECKS", "SOURCES", "Kernel", "PtxKernel"]

SOURCES = shipped.FOLDER
"""The folder of the kernels that come with tilewise."""
# PTX begins with its version, and C++ never does.
_PTX = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*+\.version\s+\d", re.DOTALL)


def _read(path: Path) -> str:
    if (text := shipped.text(path)) is not None:
        return text
    return source_files.read(path)


class Kernel(Launchable):
    """A kernel of a CUDA C++ source.

    Parameters
    ----------
    source_or_path : str or path-like
        CUDA C++ source, or the path of a file with it. A ``Path``, or a string of one line that
        ends in ``.cu`` or ``.cuh``, is a path. If the file has host code in it, the part that the
        kernel needs is compiled.
    name : str
        The kernel's name: plain, qualified, or a template instance such as ``"sgemm<64, 64, 8>"``.
        If several kernels have the name, add the types of the parameters, as in
        ``"scale(float*, int)"``.
    defines : mapping, optional
        The macros: ``{"TILE": 16}`` is ``-DTILE=16``; a value of True is a bare ``-DNAME``.
    options : sequence of str, optional
        Further options for NVRTC, such as ``--ptxas-options=-O1``, among those that read and write
        no file.
    include : sequence of str or Path, optional
        Further folders that ``#include`` searches, beside the file's own. Files elsewhere are not
        read.
    trusted : bool
        Whether the source may include any file of the machine, and the options may make NVRTC read
        and write files.
    limits : Limits, optional
        The most that its compilation, and each launch, may take. By default there are no limits.

    Raises
    ------
    FileNotFoundError
        If the path, or a folder of ``include``, does not exist.
    TypeError
        If the source, the name or the macros are of another type.
    ValueError
        If the file is not text, or the source is PTX, which :meth:`from_ptx` takes.

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

    _parameter: ClassVar[str] = "source_or_path"
    _language: ClassVar[str] = "CUDA C++ source"

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
        if not isinstance(source_or_path, str | os.PathLike):
            raise TypeError(
                f"{self._parameter} is {source_or_path!r}; it takes {self._language} as a string, "
                "or the path of a file with it"
            )
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}; it takes the kernel's name as a string")
        if not isinstance(defines, Mapping | None):
            raise TypeError(f"defines is {defines!r}; it takes a mapping of macros to values")
        if not isinstance(limits, Limits | None):
            raise TypeError(f"limits is {limits!r}; it takes tilewise.Limits, or None for none")
        is_text = isinstance(source_or_path, str) and (
            "\n" in source_or_path or not source_or_path.endswith((*SUFFIXES, PTX_SUFFIX))
        )
        self.path = None if is_text else Path(source_or_path)
        self.source = _read(self.path) if self.path else str(source_or_path)
        self._check_language(name)
        self.name = name
        self.defines = dict(defines or {})
        # A string stays a string, and the compilation then says what is wrong with it.
        self.options = options if isinstance(options, str) else tuple(options)
        self.include = include if isinstance(include, str | Path) else tuple(include)
        for folder in () if isinstance(include, str | Path) else self.include:
            if not Path(folder).is_dir():
                what = "it is a file" if Path(folder).exists() else "there is no such folder"
                raise FileNotFoundError(f"include has {str(folder)!r}: {what}")
        self.trusted, self.limits = trusted, limits

    def _check_language(self, name: str) -> None:
        """Raise an error if the source is PTX."""
        if _PTX.match(self.source) or (self.path and self.path.suffix == PTX_SUFFIX):
            what = "the source" if self.path is None else str(self.path)
            shown = "text" if self.path is None else repr(str(self.path))
            raise ValueError(
                f"{what} is PTX, and Kernel takes CUDA C++; "
                f"tilewise.Kernel.from_ptx({shown}, {name!r}) takes PTX"
            )

    @staticmethod
    @front_door
    def from_ptx(
        text_or_path: str | os.PathLike[str],
        name: str | None = None,
        *,
        source: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> PtxKernel:
        """Return a kernel from PTX, made by any compiler.

        It can be launched, profiled and watched like one of CUDA C++. nvJitLink
        (``pip install tilewise[ptx]``) or the ``ptxas`` of a CUDA toolkit makes its machine code,
        if one of them is installed; the machine code confirms the counts and gives the number of
        registers.

        Parameters
        ----------
        text_or_path : str or path-like
            PTX, or the path of a file with it. A ``Path``, or a string of one line that ends in
            ``.ptx``, is a path.
        name : str, optional
            The kernel's symbol, or its C++ name without arguments. It can be left out if there is
            only one kernel.
        source : str or path-like, optional
            The file that the PTX's lines (``.loc``) are in, which is shown beside the counts. Of
            the files that the PTX names (``.file``), only those in its folder are read.
        limits : Limits, optional
            The most that assembling it, and each launch, may take. By default there are no limits.

        Raises
        ------
        FileNotFoundError
            If a file does not exist.
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
        return PtxKernel(text_or_path, name, source=source, limits=limits)

    @property
    def arch(self) -> str:
        """The architecture that it is compiled for by default; for PTX, the PTX's own target."""
        return compiler.DEFAULT_ARCH

    def __repr__(self) -> str:
        return f"Kernel({str(self.path or '<source>')!r}, {self.name!r}, {self.defines!r})"

    def with_macros(self, defines: Mapping[str, Any]) -> Self:
        """Return the same kernel with more macros; a kernel of PTX has none, and returns itself."""
        found = copy(self)
        found.defines = {**self.defines, **defines}
        found._variables = None if self._variables is None else found._own_variables(self)
        return found

    def request(self, arch: str | None = None, *, lines: bool = True) -> Request:
        """Return the request to the compiler; for ``arch`` and ``lines`` see :meth:`compile`."""
        return Request(
            self.source, self.name, self.defines, arch or compiler.DEFAULT_ARCH, self.path,
            self.options, self.include, lines, self.trusted, self.limits,
        )  # fmt: skip

    @front_door
    def compile(self, arch: str | None = None, *, lines: bool = True) -> Compiled:
        """Compile for ``arch``, or take it from the cache.

        Parameters
        ----------
        arch : str, optional
            The architecture, as in ``"sm_90a"``; by default :attr:`arch`.
        lines : bool
            Whether PTX and machine code name the source line of each instruction; the emulator
            needs that, and so do profilers that show the source.

        Raises
        ------
        CompileError
            If the source does not compile or has no kernel of this name.
        ValueError
            If NVRTC does not know ``arch``.
        """
        return compiler.compile_request(self.request(arch, lines=lines))

    def compiled_on(self, place: Device, counts: bool) -> Compiled:
        """Compile for a launch on a device; only to PTX if the emulator is not to count."""
        asked = self.request(place.arch)
        makes_code = counts or place.name == "gpu"
        return compiler.compile_request(asked._replace(machine_code=makes_code))

    def find(self, arch: str | None = None, *, lines: bool = True) -> Compiled | None:
        """Return the kernel from the cache; None if :meth:`compile` would have to compile it.

        Parameters
        ----------
        arch, lines
            The arguments of :meth:`compile`.

        Raises
        ------
        ValueError
            If NVRTC does not know ``arch``.
        """
        return compiler.find(self.request(arch, lines=lines))


class PtxKernel(Kernel):
    """A kernel of PTX; :meth:`Kernel.from_ptx` makes it."""

    is_ptx = True
    _parameter, _language = "text_or_path", "PTX"

    def __init__(
        self,
        text_or_path: str | os.PathLike[str],
        name: str | None = None,
        *,
        source: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(text_or_path, "" if name is None else name, limits=limits)
        self.lines_of = None if source is None else (str(source), source_files.read(Path(source)))
        self.name = module.kernel_name(self.source, name, self._file)

    def _check_language(self, name: str) -> None:
        """Raise an error if the file is CUDA C++; the PTX's reader refuses any other text."""
        if self.path and self.path.suffix in SUFFIXES:
            asked = repr(name) if name else "NAME"
            raise ValueError(
                f"{self.path} is CUDA C++, and from_ptx takes PTX; "
                f"tilewise.Kernel({str(self.path)!r}, {asked}) takes CUDA C++"
            )

    @property
    def _file(self) -> str:
        return module.NO_FILE if self.path is None else str(self.path)

    @property
    def arch(self) -> str:
        """The PTX's own target."""
        return given.default_arch(self.source, self._file)

    def __repr__(self) -> str:
        return f"Kernel.from_ptx({str(self.path or '<text>')!r}, {self.name!r})"

    def with_macros(self, defines: Mapping[str, Any]) -> Self:
        """Return the kernel itself: PTX has no macros."""
        return self

    @front_door
    def compile(self, arch: str | None = None, *, lines: bool = True) -> Compiled:
        """Make machine code for ``arch``, as :meth:`Kernel.compile` does.

        ``lines`` has no effect, because the PTX has its lines or has none.

        Raises
        ------
        CompileError
            If the PTX can't be read, or an assembler refuses it.
        ValueError
            If ``arch`` is older than the PTX's target.
        """
        return given.given(
            self.source, self.name, arch=arch, path=self.path, source=self.lines_of,
            limits=self.limits,
        )  # fmt: skip

    def compiled_on(self, place: Device, counts: bool) -> Compiled:
        """Return what :meth:`compile` does, which takes little time for PTX."""
        return self.compile(place.arch)

    def find(self, arch: str | None = None, *, lines: bool = True) -> Compiled | None:
        """Return what :meth:`compile` does, which takes little time for PTX."""
        return self.compile(arch)

    def place(self, device: str | Device = "auto") -> Device:
        """Return the device with a name; ``"emulator"`` is one for the PTX's own target."""
        found = super().place(device)
        is_by_name = isinstance(device, str) and found.name == "emulator"
        return emulator(self.arch) if is_by_name else found
