"""Define a kernel of a public project, its launch, and the check of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tilewise
from tilewise.devices import Device
from tilewise.launch import LaunchReport
from tilewise.numbers import check

Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator], tuple[Sequence[Any], Callable[[], str]]]
"""Makes the arguments, and a check after the launch, which says what is wrong, or ``""``."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of running a kernel.

    Attributes
    ----------
    right : bool
    findings : tuple of str
        What the checks found, with its kind.
    counted_as : str
        What the counters follow: ``"machine code"`` or ``"PTX"``; empty where it did not run.
    seconds : float
        From the file to the report, compilation included.
    error : str
        Why it is not right.
    fault : str
        If that is the project's own fault: the fault, in a sentence.
    counted_why : tuple of str
        If the counts are the PTX's: the reason that the emulator gives for each launch.
    """

    right: bool
    findings: tuple[str, ...]
    counted_as: str
    seconds: float
    error: str = ""
    fault: str = ""
    counted_why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A kernel of a file, and its launch.

    Attributes
    ----------
    file : str
        In the project's folder.
    kernel : str
        Its name, with a template's arguments.
    grid, block : int or tuple of int
    draw : callable
        Makes the arguments of a random generator.
    shared : int
        Bytes of dynamic shared memory.
    arch : str
        The emulator's architecture.
    include : tuple of str
        Folders for includes, in the project's folder.
    defines : mapping
        Macros.
    global_races : bool
        Whether races in global memory are looked for too.
    fault : str
        If its result is wrong or a check finds something by the project's own fault: the reason.
    variables : mapping
        The values of the kernel's ``__constant__`` and ``__device__`` variables.
    cooperative : bool
        Whether all blocks are resident at once.
    """

    file: str
    kernel: str
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    draw: Draw
    shared: int = 0
    arch: str = "sm_90a"
    include: tuple[str, ...] = ()
    defines: Mapping[str, Any] = field(default_factory=dict)
    global_races: bool = False
    fault: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    cooperative: bool = False

    def run(
        self, folder: Path, rng: np.random.Generator, device: Device | None = None
    ) -> tuple[Sequence[LaunchReport], str]:
        """Launch it on ``device``, by default an emulator of ``arch``.

        Returns
        -------
        reports : sequence of LaunchReport
        wrong : str
            What is wrong with the result; empty where it is right.
        """
        kernel = tilewise.Kernel(
            folder / self.file, self.kernel, self.defines,
            include=[folder / each for each in self.include],
        )  # fmt: skip
        for name, value in self.variables.items():
            kernel.variables[name] = value
        args, wrong = self.draw(rng)
        report = kernel.launch(
            self.grid, self.block, args, self.shared, device or tilewise.emulator(self.arch),
            checks="collect", global_races=self.global_races, cooperative=self.cooperative,
        )  # fmt: skip
        return (report,), wrong()


@dataclass(frozen=True)
class Program:
    """Kernels of a Python file, launched by the functions of that file.

    Attributes
    ----------
    file : str
        In the project's folder.
    kernel : str
        The kernel's name, or those of the kernels that are launched in turn, and how.
    call : callable
        Runs it of the file's path, the emulator and a random generator; returns the reports of
        the launches, and what is wrong with the result.
    arch : str
        The emulator's architecture.
    fault : str
        As a case's.
    """

    file: str
    kernel: str
    call: Callable[[Path, Device, np.random.Generator], tuple[Sequence[LaunchReport], str]]
    arch: str = "sm_90a"
    fault: str = ""

    def run(self, folder: Path, rng: np.random.Generator) -> tuple[Sequence[LaunchReport], str]:
        """Run it on the emulator; return the reports, and what is wrong (``""`` for nothing)."""
        return self.call(folder / self.file, tilewise.emulator(self.arch), rng)


def right_product(
    c: Array, a: Array, b: Array, c0: Array | None = None, alpha: float = 1.0, beta: float = 0.0
) -> str:
    """Return what is wrong with alpha A B + beta C0; ``""`` if all elements are in bounds."""
    found = check(c, a, b, c0, alpha, beta)
    return "" if found.correct else f"max error {found.max_error:.3g}, bound {found.bound:.3g}"


def same(found: Array, wanted: Array, what: str = "the result") -> str:
    """Return where two arrays differ; ``""`` if all their elements are equal."""
    differs = np.flatnonzero((found != wanted).ravel())
    if not len(differs):
        return ""
    at = int(differs[0])
    return f"{what} differs in {len(differs):,} elements, the first {at}: {found.ravel()[at]!r}"


def near(found: Array, wanted: Array, steps: int, what: str = "the result") -> str:
    """Return where a result is off by more than its roundings allow; ``""`` if nowhere.

    Parameters
    ----------
    found : array
    wanted : array
        In float64.
    steps : int
        How many roundings stand between them, each of half a unit in the last place of a number
        that is no larger than the largest of ``wanted``.
    """
    unit = np.finfo(found.dtype).eps / 2
    bound = steps * unit * float(np.abs(wanted).max())
    return within(found, wanted, np.full(wanted.shape, bound), what)


def within(found: Array, wanted: Array, bound: Array, what: str = "the result") -> str:
    """Return where a result is off by more than a bound; ``""`` if no element is.

    Parameters
    ----------
    found : array
    wanted, bound : array
        In float64: what each element should be, and by how much it may be off.
    """
    error = np.abs(found.astype(np.float64) - wanted)
    outside = np.flatnonzero(~(error <= bound).ravel())
    if not len(outside):
        return ""
    at = int(outside[0])
    return (
        f"{what} is off in {len(outside):,} elements, the first {at}: by {error.ravel()[at]:.3g}, "
        f"and may be by {bound.ravel()[at]:.3g}"
    )
