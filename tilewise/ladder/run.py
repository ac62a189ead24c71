"""Run one kernel on one problem: launch it, check the result, and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.kernel import Kernel
from tilewise.ladder.prepared import prepare
from tilewise.ladder.problem import Gemm
from tilewise.ladder.rungs import Rung
from tilewise.ladder.signature import check_signature
from tilewise.ladder.untouched import Untouched
from tilewise.ladder.verdict import Verdict, as_dict, judge
from tilewise.launch import DEFAULT_ARCH, LaunchReport, device_name
from tilewise.numbers import Check
from tilewise.shown import Part, Shown, product_line
from tilewise.tracebacks import front_door

NO_ELEMENTS = "C has no elements: nothing was launched"
REPEATS = 5
LONG = 1.0  # seconds; a longer launch is timed well enough by itself


@dataclass(frozen=True, repr=False)
class RunResult(Shown):
    """The result of a kernel on a problem.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    m, n, k : int
        The sizes: C is m x n, A is m x k, B is k x n.
    dtype : str
        The dtype, one of :data:`tilewise.precision.DTYPES`.
    tile : int or None
        The tile; None for a rung that has no tiles.
    alpha, beta : float
        The factors as they were asked for.
    device : str
        ``"gpu"`` or ``"emulator"``.
    result : ndarray, (m, n)
        The result, a new array; the caller's arrays do not change.
    check : Check
        The check of ``result`` against float64.
    report : LaunchReport or None
        The report; None if C has no elements, so that there was nothing to launch. On a GPU its
        ``seconds`` are the median of several launches.
    untouched : Untouched or None
        The elements of C that the kernel did not change; None if none is known.
    arch : str
        The architecture that the kernel was compiled for, as in ``"sm_90a"``.
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
        """Whether the result is correct, and what is wrong with it."""
        return Verdict(self.check, self.untouched)

    @property
    def correct(self) -> bool:
        """Whether the result is correct, and no element of it is known to be unwritten."""
        return self.verdict.correct

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the result; None for infinity, which JSON lacks."""
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
    after_fault: float = 0.0,
    repeats: int = REPEATS,
) -> RunResult:
    """Compute alpha A B + beta C by one kernel, and check it against float64.

    Parameters
    ----------
    target : str, Rung or Kernel
        A rung or its name; or a kernel with the ladder's signature, also as ``"FILE.cu:NAME"`` or
        ``"FILE.ptx:NAME"``.
        That is launched as ``tiled`` is: blocks of ``TILE`` x ``TILE`` threads, columns along x,
        and the macros ``TILE`` and ``real`` are defined for it; of 16-bit matrices ``BFLOAT16``,
        0 or 1, in place of ``real``.
    a, b : ndarray, (m, k) and (k, n)
        The matrices, as in :meth:`tilewise.ladder.problem.Gemm.of`.
    c : ndarray, (m, n), optional
        C before the product; needed unless ``beta`` is 0.
    alpha, beta : float
        The factors, which have to be finite.
    tile : int, optional
        One of the rung's ``tiles``, or from 2 to 32 for a Kernel. By default it is the rung's own,
        the Kernel's ``TILE``, or 16.
    device : str or Device
        ``"auto"``, ``"gpu"``, ``"emulator"``, or a device.
    checks : str
        How the emulator treats a fault: ``"raise"`` raises an error; ``"strict"`` also raises for
        faults that are otherwise only noted; ``"collect"`` puts faults in the report; ``"off"``
        still raises at an access outside every array, and if threads wait forever.
    global_races : bool
        Whether the emulator looks for races in global memory too, which takes time and memory.
    after_fault : float
        The most seconds for which the emulator continues after the first finding, to look for
        others, if ``checks`` is ``"raise"`` or ``"strict"``; the error has all of them. At 0, the
        first finding is raised at once.
    repeats : int
        The number of launches that are timed on a GPU, after the one whose result is checked. The
        time is a first look, because the inputs may be in L2. A launch of more than a second is not
        repeated.

    Returns
    -------
    RunResult

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    TypeError, ValueError
        If the arrays, the scalars, the tile or the target's name is invalid, the rung does not take
        the dtype, or the problem is too large for it.
    CompileError, LaunchError, CheckError, DeviceUnavailableError
        As in :meth:`tilewise.Kernel.launch`.

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
    prepared = prepare(target, gemm, tile)
    place = prepared.kernel.place(device)
    prepared = prepared.on(place, gemm)
    kernel, edge, (grid, block) = prepared.kernel, prepared.tile, prepared.geometry
    if gemm.m and gemm.n:
        on_the_host = prepared.args(gemm, a, b, a if c is None else c)
        check_signature(kernel.compiled_on(place, counts=True), gemm, on_the_host)
    report: LaunchReport | None = None
    c_there: Any = None
    if gemm.m == 0 or gemm.n == 0:
        result = np.empty((gemm.m, gemm.n), gemm.dtype)
    else:
        # A kernel with limits runs in a process of its own on a GPU, with the host's arrays.
        is_isolated = place.name == "gpu" and kernel.limits is not None
        there: Any = _pitched_copy if is_isolated else place.array
        # Without a C, an uninitialised one, so that the emulator catches a kernel that reads it.
        empty: Any = np.empty if is_isolated else place.empty
        c_there = empty((gemm.m, gemm.n), gemm.dtype) if c is None else there(c)
        args = prepared.args(gemm, there(a), there(b), c_there)
        report = kernel.launch(
            grid, block, args, prepared.shared, place, checks, global_races=global_races,
            isolated=is_isolated, after_fault=after_fault,
        )  # fmt: skip
        result = c_there if is_isolated else c_there.to_numpy()
        if place.name == "gpu" and repeats and report.seconds < LONG and not is_isolated:
            again = [
                kernel.launch(grid, block, args, prepared.shared, place).seconds
                for _ in range(repeats)
            ]
            report = replace(report, seconds=median(again))
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
    """Return a copy of a matrix on the host with the same row pitch."""
    pitch = max(matrix.strides[0] // matrix.itemsize, matrix.shape[1])
    copied = np.empty((matrix.shape[0], pitch), matrix.dtype)[:, : matrix.shape[1]]
    copied[...] = matrix
    return copied
