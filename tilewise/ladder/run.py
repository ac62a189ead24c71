"""One kernel on one problem: launch it, check the result, and say what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import (
    DEFAULT_SIZE,
    Geometry,
    check_tile,
    columns_along_x,
    real_of,
)
from tilewise.ladder.problem import Gemm
from tilewise.ladder.rungs import Rung, rung
from tilewise.ladder.signature import OTHERWISE, check_signature, in_order
from tilewise.ladder.untouched import Untouched
from tilewise.ladder.verdict import Verdict, as_dict, judge
from tilewise.launch import DEFAULT_ARCH, LaunchReport, device_name
from tilewise.numbers import Check
from tilewise.shown import Part, Shown, product_line
from tilewise.targets import SUFFIXES, split_target
from tilewise.tracebacks import front_door

DEFAULT_TILE = 16  # of a kernel that is not on the ladder
NO_ELEMENTS = "C has no elements: nothing was launched"
REPEATS = 5
LONG = 1.0  # seconds; a launch this long is timed well enough by itself


@dataclass(frozen=True, repr=False)
class RunResult(Shown):
    """One kernel on one problem.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    m, n, k : int
        C is m x n, A is m x k, B is k x n.
    dtype : str
        ``"float32"`` or ``"float64"``.
    tile : int or None
        None for a rung that has no tiles.
    alpha, beta : float
        As they were asked for.
    device : str
        ``"gpu"`` or ``"emulator"``.
    result : ndarray, (m, n)
        New; the caller's arrays are as they were.
    check : Check
        Of ``result`` against float64.
    report : LaunchReport or None
        None where C has no elements: there was nothing to launch. On a GPU its ``seconds`` are
        the median of several launches.
    untouched : Untouched or None
        Elements of C that the kernel left as they were; None where none is known to be.
    arch : str
        What the kernel was compiled for, as ``"sm_90a"``.
    """

    kernel: str
    m: int
    n: int
    k: int
    dtype: str
    tile: int | None
    alpha: float
    beta: float
    device: str
    result: npt.NDArray[Any]
    check: Check
    report: LaunchReport | None
    untouched: Untouched | None = None
    arch: str = DEFAULT_ARCH

    @property
    def verdict(self) -> Verdict:
        """Whether the result is right, and what is wrong with it."""
        return Verdict(self.check, self.untouched)

    @property
    def correct(self) -> bool:
        """Whether the result is right, and no element of it is known to be unwritten."""
        return self.verdict.correct

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the result; None for infinity, which JSON lacks."""
        launched: dict[str, Any]
        if self.report is None:
            launched = dict.fromkeys(("grid", "block", "seconds", "counters", "resources"))
            launched |= {"findings": [], "notes": [NO_ELEMENTS]}
        else:
            launched = self.report.to_dict()
        return {
            **launched,
            "kernel": self.kernel,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "dtype": self.dtype,
            "tile": self.tile,
            "alpha": self.alpha,
            "beta": self.beta,
            "device": self.device,
            "arch": self.arch,
            **as_dict(self.verdict),
        }

    def _title(self) -> str:
        tile = "" if self.tile is None else f", tile {self.tile}"
        line = product_line(self.m, self.n, self.k, self.alpha, self.beta)
        return f"{self.kernel}: {line}, {self.dtype}{tile}"

    def _summary(self) -> str:
        verdict = "right" if self.correct else "WRONG"
        return f"{self._title()}, {verdict}, on {device_name(self.device, self.arch)}"

    def _parts(self) -> list[Part]:
        if self.report is None:
            launched: Sequence[Part] = [NO_ELEMENTS]
        else:
            _, *launched = self.report._parts()
        return [self._title(), *self.verdict.lines(), *launched]


@front_door
def run(
    target: str | Rung | Kernel,
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    tile: int | None = None,
    device: str | Device = "auto",
    checks: str = "raise",
    global_races: bool = False,
    repeats: int = REPEATS,
) -> RunResult:
    """alpha A B + beta C by one kernel, checked against float64.

    Parameters
    ----------
    target : str, Rung or Kernel
        A rung or its name; or a kernel with the ladder's signature, also as ``"FILE.cu:NAME"`` or
        ``"FILE.ptx:NAME"``.
        That is launched as ``tiled`` is: blocks of ``TILE`` x ``TILE`` threads, columns along x,
        and the macros ``TILE`` and ``real`` are defined for it.
    a, b : ndarray, (m, k) and (k, n)
        As :meth:`tilewise.ladder.problem.Gemm.of` takes them.
    c : ndarray, (m, n), optional
        C before; needed unless ``beta`` is 0.
    alpha, beta : float
        Finite.
    tile : int, optional
        One of the rung's ``tiles``, or of a Kernel from 2 to 32. By default the rung's own, the
        Kernel's ``TILE``, or 16.
    device : str or Device
        ``"auto"``, ``"gpu"``, ``"emulator"``, or a device.
    checks : str
        On the emulator: ``"raise"`` at a fault; ``"strict"``, also at what is only noted
        otherwise; ``"collect"`` faults in the report; or ``"off"``, which still raises at an
        access outside every array, and where threads wait forever.
    global_races : bool
        On the emulator: look for races in global memory too, which takes time and memory.
    repeats : int
        On a GPU, launches that are timed, after the one whose result is checked. It is a first
        look: the inputs may lie in L2. A launch of more than a second is not repeated.

    Returns
    -------
    RunResult

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    TypeError, ValueError
        If the arrays, the scalars, the tile or the target's name is not as it must be, or the
        problem is too large for the rung.
    CompileError, LaunchError, CheckError, DeviceUnavailableError
        As :meth:`tilewise.Kernel.launch`.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.ones((3, 4), np.float32)
    >>> run("tiled", a, a.T.copy(), tile=2, device="emulator").result
    array([[4., 4., 4.],
           [4., 4., 4.],
           [4., 4., 4.]], dtype=float32)
    """
    if repeats < 0:
        raise ValueError(f"repeats is {repeats}; it must be at least 0")
    gemm = Gemm.of(a, b, c, alpha=alpha, beta=beta)
    kernel, edge, (grid, block) = prepare(target, gemm, tile)
    place = kernel.place(device)
    if gemm.m and gemm.n:
        on_the_host = in_order(gemm, a, b, a if c is None else c)
        check_signature(kernel.compile(place.arch), gemm, on_the_host)
    report: LaunchReport | None = None
    c_there: Any = None
    if gemm.m == 0 or gemm.n == 0:
        result = np.empty((gemm.m, gemm.n), gemm.dtype)
    else:
        # On a GPU, what has limits runs in a process of its own, and has the host's arrays.
        is_isolated = place.name == "gpu" and kernel.limits is not None
        there: Any = _pitched_copy if is_isolated else place.array
        # Where there is no C, one that nobody wrote: the emulator then catches a kernel that
        # reads it.
        empty: Any = np.empty if is_isolated else place.empty
        c_there = empty((gemm.m, gemm.n), gemm.dtype) if c is None else there(c)
        args = in_order(gemm, there(a), there(b), c_there)
        report = kernel.launch(
            grid, block, args, device=place, checks=checks, global_races=global_races,
            isolated=is_isolated,
        )  # fmt: skip
        result = c_there if is_isolated else c_there.to_numpy()
        if place.name == "gpu" and repeats and report.seconds < LONG and not is_isolated:
            again = (kernel.launch(grid, block, args, device=place) for _ in range(repeats))
            report = replace(report, seconds=median(each.seconds for each in again))
    verdict = judge(c_there, result, a, b, c, alpha, beta)
    return RunResult(
        kernel=kernel.name,
        m=gemm.m,
        n=gemm.n,
        k=gemm.k,
        dtype=gemm.dtype.name,
        tile=edge,
        alpha=float(alpha),
        beta=float(beta),
        device=place.name,
        result=result,
        check=verdict.check,
        report=report,
        untouched=verdict.untouched,
        arch=place.arch,
    )


def _pitched_copy(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of a matrix on the host, its row pitch kept."""
    pitch = max(matrix.strides[0] // matrix.itemsize, matrix.shape[1])
    copied = np.empty((matrix.shape[0], pitch), matrix.dtype)[:, : matrix.shape[1]]
    copied[...] = matrix
    return copied


def arch_of(target: str | Rung | Kernel, asked: str | None) -> str:
    """The architecture that is asked for, or that a kernel is for by itself."""
    found = kernel_of(target)
    return asked or (found.arch if isinstance(found, Kernel) else DEFAULT_ARCH)


def sizes_of(
    target: Rung | Kernel, m: int | None = None, n: int | None = None, k: int | None = None
) -> tuple[int, int, int]:
    """m, n and k: those that are given, and for each None a size at which ``target`` works.

    Raises
    ------
    TypeError
        As :func:`check_sizes`.
    """
    if isinstance(target, Rung):
        return target.sizes(m, n, k)
    check_sizes(m, n, k)
    rows, columns, depth = (DEFAULT_SIZE if size is None else size for size in (m, n, k))
    return rows, columns, depth


def check_sizes(m: object, n: object, k: object) -> None:
    """Raise TypeError where m, n or k is no integer, such as the grid of a launch."""
    for name, size in (("m", m), ("n", n), ("k", k)):
        if size is not None and not hasattr(size, "__index__"):
            raise TypeError(f"{name} is {size!r}; a product's sizes are integers. {OTHERWISE}")


def prepare(
    target: str | Rung | Kernel, gemm: Gemm, tile: int | None
) -> tuple[Kernel, int | None, Geometry]:
    """The kernel, its tile, its grid and block."""
    target = kernel_of(target)
    if isinstance(target, Rung):
        edge = target.tile_for(gemm.m, gemm.n, gemm.k, gemm.dtype, tile)
        geometry = target.geometry(gemm.m, gemm.n, edge, gemm.dtype)
        return target.kernel(gemm.dtype, edge), edge, geometry
    real = real_of(gemm.dtype)
    if target.defines.get("real", real) != real:
        raise ValueError(
            f"{target.name} is defined for real = {target.defines['real']}, and the matrices "
            f"are {gemm.dtype.name}: that is {real}"
        )
    own = target.defines.get("TILE")
    if own is not None and tile is not None and own != tile:
        raise ValueError(
            f"{target.name} is defined with TILE = {own}, and tile {tile} is asked for"
        )
    edge = check_tile(tile if own is None and tile is not None else own or DEFAULT_TILE)
    kernel = target.with_macros({"real": real, "TILE": edge})
    return kernel, edge, columns_along_x(gemm.m, gemm.n, edge)


def kernel_of(target: str | Rung | Kernel) -> Rung | Kernel:
    """``target``, or what :func:`named` finds by that name.

    Raises
    ------
    FileNotFoundError, ValueError
        As :func:`named`.
    TypeError
        If it is neither a name nor a kernel.
    """
    if isinstance(target, str):
        return named(target)
    if not isinstance(target, Rung | Kernel):
        raise TypeError(f"{target!r} is no kernel: it must be a name, a Rung or a Kernel")
    return target


def named(target: str, **source: Any) -> Rung | Kernel:
    """The kernel of ``"FILE.cu:NAME"`` or ``"FILE.ptx:NAME"``, or the rung of that name.

    Parameters
    ----------
    target : str
    **source
        Of the kernel: ``include``, ``trusted`` and ``limits``, as :class:`tilewise.Kernel` takes
        them. Of PTX, ``limits`` alone, and no other that is set.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    ValueError
        If there is no such rung, or no kernel is named.
    """
    found = split_target(target)
    if found is not None:
        path, name = found
        if not name.strip():
            raise ValueError(f"{target!r} names no kernel; write {path}:NAME")
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        if path.suffix != ".ptx":
            return Kernel(path, name, **source)
        limits = source.pop("limits", None)
        if meant := [name for name, value in source.items() if value]:
            raise ValueError(f"{meant[0]} is for CUDA C++; {path} is PTX, which includes nothing")
        return Kernel.from_ptx(path, name, limits=limits)
    if target.endswith((*SUFFIXES, ".ptx")):
        raise ValueError(
            f"{target!r} is a file; say which kernel in it: {target}:NAME (`tilewise kernels "
            f"{target}` lists them)"
        )
    try:
        return rung(target)
    except ValueError as error:
        own = "or a kernel of your own, as FILE.cu:NAME or FILE.ptx:NAME"
        raise ValueError(f"{error}; {own}") from None
