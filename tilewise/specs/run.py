"""Launch any kernel from a command line: prepare, launch, inspect, compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.compiler import Compiled
from tilewise.compiler.names import signature
from tilewise.devices import Device, device_of
from tilewise.devices import limits as hardware
from tilewise.devices.emulator import EmulatorArray
from tilewise.kernel import Kernel
from tilewise.launch import Launch, LaunchReport, dim3
from tilewise.places import Dim3
from tilewise.shown import Part, Shown, Table
from tilewise.specs import expected as expectations
from tilewise.specs.arguments import Arguments, parse
from tilewise.specs.arrays import Array
from tilewise.specs.expected import Compared, Expected
from tilewise.specs.expressions import extents as sizes
from tilewise.specs.expressions import whole
from tilewise.specs.formulas import Unset
from tilewise.specs.results import HEAD, ArrayResult


@dataclass(frozen=True)
class Prepared:
    """A launch that may be made: everything in it was checked, and no array is made yet.

    Attributes
    ----------
    kernel : Kernel
    compiled : Compiled
    grid, block : (int, int, int)
    shared : int
        Dynamic shared memory a block, bytes.
    arguments : Arguments
    cooperative : bool
        Whether all blocks are resident at once.
    """

    kernel: Kernel
    compiled: Compiled
    grid: Dim3
    block: Dim3
    shared: int
    arguments: Arguments
    cooperative: bool = False

    def values(self, device: Device | None = None) -> tuple[Any, ...]:
        """Return the arguments' values; arrays are NumPy's, and an empty one is ``device``'s own.

        Parameters
        ----------
        device : Device, optional
            The device; the emulator knows that nothing has written an empty array.
        """
        return tuple(
            x.value if x.plan is None
            else device.empty(x.plan.shape, x.plan.dtype)
            if device is not None and device.name == "emulator" and x.plan.is_empty
            else x.plan.make()
            for x in self.arguments.each
        )  # fmt: skip

    def expected(self, texts: Sequence[str], values: Sequence[Any]) -> list[Expected]:
        """Return what arrays should be after the launch (:func:`tilewise.specs.expected.parse`)."""
        before: dict[str, Any] = {}
        for x, value in zip(self.arguments.each, values, strict=True):
            if x.plan is not None and x.plan.is_empty:
                before[x.name] = Unset(x.plan.shape, x.plan.dtype)
            elif x.plan is not None:
                before[x.name] = value
            elif x.number is not None:
                is_float = x.parameter.type == "f32"
                before[x.name] = np.float32(x.number) if is_float else x.number
        names = [x.name for x in self.arguments.each]
        return [expectations.parse(text, before, names) for text in texts]


def prepare(
    kernel: Kernel,
    args: Sequence[str],
    grid: str,
    block: str,
    shared: str = "0",
    *,
    arch: str,
    seed: int = 0,
    is_cast: bool = False,
    cooperative: bool = False,
) -> Prepared:
    """Read a launch, and check all of it that can be checked before it is made.

    Parameters
    ----------
    kernel : Kernel
    args : sequence of str
        The texts, as in :func:`tilewise.specs.arguments.parse`.
    grid, block : str
        One to three extents, x first, each an expression of the numbers among the arguments.
    shared : str
        The bytes of dynamic shared memory of a block, as an expression.
    arch : str
        The architecture to compile for.
    seed, is_cast
        As in :func:`tilewise.specs.arguments.parse`.
    cooperative : bool
        As in :meth:`tilewise.Kernel.launch`.

    Raises
    ------
    CompileError, LaunchError, OSError, MemoryError, ValueError, TypeError
    """
    compiled = kernel.compile(arch)
    arguments = parse(compiled, args, seed=seed, is_cast=is_cast)
    names = arguments.numbers
    blocks = dim3(sizes(grid, names, "--grid"), "--grid")
    threads = dim3(sizes(block, names, "--block"), "--block")
    dynamic = whole(shared, names, "--shared")
    if dynamic < 0:
        raise ValueError(f"--shared is {shared}; it must be at least 0 bytes")
    hardware.check_launch(
        Launch(blocks, threads, (), dynamic), compiled.resources.shared_bytes,
        max_shared=hardware.max_shared(arch),
    )  # fmt: skip
    return Prepared(kernel, compiled, blocks, threads, dynamic, arguments, cooperative)


@dataclass(frozen=True, repr=False)
class LaunchResult(Shown):
    """A launch, and the results in its arrays.

    Attributes
    ----------
    signature : str
        The signature of the kernel in its source.
    report : LaunchReport
    arguments : mapping of str to str
        The texts of the arguments.
    arrays : tuple of ArrayResult
    compared : tuple of Compared
    results : mapping of str to ndarray
        The arrays themselves.
    """

    signature: str
    report: LaunchReport
    arguments: Mapping[str, str]
    arrays: tuple[ArrayResult, ...]
    compared: tuple[Compared, ...]
    results: Mapping[str, Array]

    @property
    def correct(self) -> bool:
        """Whether no check found a fault, and every array is as it was expected."""
        return not self.report.findings and all(each.correct for each in self.compared)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the arrays' elements."""
        return {
            **self.report.to_dict(),
            "signature": self.signature,
            "arguments": dict(self.arguments),
            "arrays": [each.to_dict() for each in self.arrays],
            "expected": [each.to_dict() for each in self.compared],
            "correct": self.correct,
            "checked": bool(self.compared),
        }

    def _summary(self) -> str:
        verdict = {True: "right", False: "WRONG"}[self.correct] if self.compared else "not compared"
        return f"{self.report._summary()}, {verdict}"

    def _parts(self) -> list[Part]:
        _, *launched = self.report._parts()
        return [
            self.signature,
            *(each._summary() for each in self.compared),
            Table([each.cells() for each in self.arrays], HEAD, left=3),
            *launched,
        ]


def launch(
    prepared: Prepared,
    *,
    device: str | Device = "auto",
    expect: Sequence[str] = (),
    rtol: float | None = None,
    atol: float | None = None,
    checks: str = "raise",
    global_races: bool = False,
    after_fault: float = 0.0,
) -> LaunchResult:
    """Launch, and return the results in the arrays.

    Parameters
    ----------
    prepared : Prepared
    device : str or Device
        ``"auto"``, ``"gpu"``, ``"emulator"``, or a device of the architecture that it was
        prepared for.
    expect : sequence of str
        The texts, as in :func:`tilewise.specs.expected.parse`.
    rtol, atol : float, optional
        As in :func:`tilewise.specs.expected.compare`.
    checks, global_races, after_fault
        As in :meth:`tilewise.Kernel.launch`.

    Raises
    ------
    LaunchError, LimitError, CheckError, DeviceUnavailableError, OSError, ValueError, TypeError

    Examples
    --------
    >>> from tilewise.kernel import Kernel
    >>> source = '''extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) y[i] = a * x[i] + y[i];
    ... }'''
    >>> texts = ["n=1000", "a=2.5", "x=random:n", "y=ones:n"]
    >>> kernel = Kernel(source, "saxpy")
    >>> ready = prepare(kernel, texts, "ceil(n/256)", "256", arch="sm_90a")
    >>> found = launch(ready, device="emulator", expect=["y = a*x + y"])
    >>> found.correct, found.arrays[1].changed
    (True, 1000)
    """
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise ValueError(f"{name} is {tolerance}; it must be at least 0, and finite")
    place = device_of(device)
    # On a GPU, what has limits runs in a process of its own.
    is_isolated = place.name == "gpu" and prepared.kernel.limits is not None
    args = prepared.values(place)
    wanted = prepared.expected(expect, args)
    before = [x.copy() if isinstance(x, np.ndarray) else None for x in args]
    report = prepared.kernel.launch(
        prepared.grid, prepared.block, args, prepared.shared, place, checks,
        global_races=global_races, isolated=is_isolated, cooperative=prepared.cooperative,
        after_fault=after_fault,
    )  # fmt: skip
    arrays: list[ArrayResult] = []
    results: dict[str, Array] = {}
    unwritten: dict[str, Array] = {}
    for argument, old, now in zip(prepared.arguments.each, before, args, strict=True):
        if argument.plan is None:
            continue
        after = now if isinstance(now, np.ndarray) else now.to_numpy()
        if isinstance(now, EmulatorArray):
            left = now.unwritten_elements()
            unwritten[argument.name] = np.zeros(after.shape, bool) if left is None else left
        was = None if argument.plan.is_empty else old
        results[argument.name] = after
        arrays.append(ArrayResult.of(argument.name, was, after, unwritten.get(argument.name)))
    compared = tuple(
        expectations.compare(each, results[each.name], rtol, atol, unwritten.get(each.name))
        for each in wanted
    )
    return LaunchResult(
        signature(prepared.compiled), report, {x.name: x.text for x in prepared.arguments.each},
        tuple(arrays), compared, results,
    )  # fmt: skip
