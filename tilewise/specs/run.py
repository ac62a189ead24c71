"""Any kernel, launched as a command line has it: prepared, launched, looked at, compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.compiler import Compiled
from tilewise.compiler.names import signature
from tilewise.devices import Device, get_device
from tilewise.devices import limits as hardware
from tilewise.kernel import Kernel
from tilewise.launch import Launch, LaunchReport, dim3
from tilewise.places import Dim3
from tilewise.shown import Part, Record, Shown, Table, number
from tilewise.specs import expected as expectations
from tilewise.specs.arguments import Arguments, parse
from tilewise.specs.arrays import Array
from tilewise.specs.expected import Compared, Expected
from tilewise.specs.expressions import extents as sizes
from tilewise.specs.expressions import whole

FIRST = 4  # values that are shown of an array


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
    """

    kernel: Kernel
    compiled: Compiled
    grid: Dim3
    block: Dim3
    shared: int
    arguments: Arguments

    def values(self, device: Device | None = None) -> tuple[Any, ...]:
        """Make the arguments' values; arrays are NumPy's, and an empty one is ``device``'s own.

        Parameters
        ----------
        device : Device, optional
            Where it is the emulator, it knows of an empty array that nobody wrote it.
        """
        return tuple(
            x.value if x.plan is None
            else device.empty(x.plan.shape, x.plan.dtype)
            if device is not None and device.name == "emulator" and x.plan.is_empty
            else x.plan.make()
            for x in self.arguments.each
        )  # fmt: skip

    def expected(self, texts: Sequence[str], values: Sequence[Any]) -> list[Expected]:
        """What arrays should be behind the launch (:func:`tilewise.specs.expected.parse`)."""
        before: dict[str, Any] = {}
        for x, value in zip(self.arguments.each, values, strict=True):
            if x.plan is not None and not isinstance(value, np.ndarray):
                before[x.name] = np.full(x.plan.shape, _nothing(x.plan.dtype), x.plan.dtype)
            elif x.plan is not None:
                before[x.name] = value
            elif x.number is not None:
                is_float = x.parameter.type == "f32"
                before[x.name] = np.float32(x.number) if is_float else x.number
        return [expectations.parse(text, before) for text in texts]


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
) -> Prepared:
    """Read a launch, and check all of it that can be checked before it is made.

    Parameters
    ----------
    kernel : Kernel
    args : sequence of str
        As :func:`tilewise.specs.arguments.parse` takes them.
    grid, block : str
        One to three extents, x first, each an expression of the numbers among the arguments.
    shared : str
        Dynamic shared memory a block, bytes: an expression.
    arch : str
        To compile for.
    seed, is_cast
        As :func:`tilewise.specs.arguments.parse` takes them.

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
    return Prepared(kernel, compiled, blocks, threads, dynamic, arguments)


@dataclass(frozen=True, repr=False)
class ArrayResult(Record):
    """An array behind a launch.

    Attributes
    ----------
    name, dtype : str
    shape : tuple of int
    changed : int or None
        Elements whose bits are others than before; None of an array that was empty.
    unwritten : int or None
        Elements of an empty array that nobody wrote; None where that is not known.
    min, max, mean : float, int or None
        Of the finite elements; None where there are none, or they are complex.
    nan, infinite : int
    first : tuple
        The first few elements, row by row.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    changed: int | None
    unwritten: int | None
    min: float | int | None
    max: float | int | None
    mean: float | None
    nan: int
    infinite: int
    first: tuple[Any, ...]

    @classmethod
    def of(
        cls, name: str, before: Array | None, after: Array, unwritten: int | None
    ) -> ArrayResult:
        """What there is to say of an array; ``before`` is None where it was empty."""
        changed = None if before is None else int(np.count_nonzero(_bits(before) != _bits(after)))
        kind = after.dtype.kind
        real = (
            after if kind in "biu" else after.astype(np.complex128 if kind == "c" else np.float64)
        )
        odd = np.zeros(after.shape, bool) if kind in "biu" else ~np.isfinite(real)
        nan = 0 if kind in "biu" else int(np.count_nonzero(np.isnan(real)))
        finite = real[~odd]
        low, high, mean = None, None, None
        if finite.size and kind != "c":
            low, high = finite.min().item(), finite.max().item()
            mean = float(finite.mean(dtype=np.float64))
        first = tuple(x.item() for x in real.reshape(-1)[:FIRST])
        return cls(
            name, after.dtype.name, after.shape, changed, unwritten, low, high, mean, nan,
            int(np.count_nonzero(odd)) - nan, first,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by their names, for JSON; complex numbers as pairs."""
        first = [[x.real, x.imag] if isinstance(x, complex) else x for x in self.first]
        return {**super().to_dict(), "shape": list(self.shape), "first": first}

    def cells(self) -> tuple[str, ...]:
        """A row of the table: name, shape, dtype, changed, least, largest, mean, not finite."""
        if self.changed is not None:
            changed = number(self.changed)
        else:
            total = math.prod(self.shape)
            changed = "?" if self.unwritten is None else number(total - self.unwritten)
        odd = " ".join(
            f"{number(count)} {what}" for count, what in ((self.nan, "NaN"), (self.infinite, "inf"))
            if count
        )  # fmt: skip
        figures = (_short(x) for x in (self.min, self.max, self.mean))
        return (
            self.name,
            " x ".join(map(number, self.shape)) or "1",
            self.dtype,
            changed,
            *figures,
            odd,
        )

    @property
    def begins(self) -> str:
        """The first few elements in words."""
        more = ", ..." if math.prod(self.shape) > len(self.first) else ""
        return f"{', '.join(map(_short, self.first))}{more}"


HEAD = ("arrays", "shape", "dtype", "changed", "least", "largest", "mean", "")
"""Of a table of :meth:`ArrayResult.cells`."""


@dataclass(frozen=True, repr=False)
class LaunchResult(Shown):
    """A launch, and what became of its arrays.

    Attributes
    ----------
    signature : str
        The kernel's, as its source declares it.
    report : LaunchReport
    arguments : mapping of str to str
        As they were given.
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
        """Plain data for JSON, without the arrays' elements."""
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
) -> LaunchResult:
    """Launch, and say what became of the arrays.

    Parameters
    ----------
    prepared : Prepared
    device : str or Device
        ``"auto"``, ``"gpu"``, ``"emulator"``, or a device of the architecture that it was
        prepared for.
    expect : sequence of str
        As :func:`tilewise.specs.expected.parse` takes them.
    rtol, atol : float, optional
        As :func:`tilewise.specs.expected.compare` takes them.
    checks, global_races
        As :meth:`tilewise.Kernel.launch` takes them.

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
    place = get_device(device) if isinstance(device, str) else device
    # On a GPU, what has limits runs in a process of its own.
    is_isolated = place.name == "gpu" and prepared.kernel.limits is not None
    args = prepared.values(place)
    wanted = prepared.expected(expect, args)
    before = [x.copy() if isinstance(x, np.ndarray) else None for x in args]
    report = prepared.kernel.launch(
        prepared.grid, prepared.block, args, prepared.shared, place, checks,
        global_races=global_races, isolated=is_isolated,
    )  # fmt: skip
    arrays, results = [], {}
    for argument, old, now in zip(prepared.arguments.each, before, args, strict=True):
        if argument.plan is None:
            continue
        find = getattr(now, "unwritten_elements", None)
        left = None if find is None else find()
        unwritten = None if find is None else 0 if left is None else int(left.sum())
        after = now if isinstance(now, np.ndarray) else now.to_numpy()
        was = None if argument.plan.is_empty else old
        results[argument.name] = after
        arrays.append(ArrayResult.of(argument.name, was, after, unwritten))
    compared = tuple(expectations.compare(each, results[each.name], rtol, atol) for each in wanted)
    return LaunchResult(
        signature(prepared.compiled), report, {x.name: x.text for x in prepared.arguments.each},
        tuple(arrays), compared, results,
    )  # fmt: skip


def _nothing(dtype: np.dtype[Any]) -> Any:
    """What an empty array is to an expression: NaN, where there is one."""
    return np.nan if dtype.kind in "fc" else 0


def _bits(array: Array) -> Array:
    """Elements as their bits: a NaN is what it was, and -0 is not 0."""
    whole = np.ascontiguousarray(array)
    size = whole.itemsize
    if size in (1, 2, 4, 8):
        return whole.view(f"u{size}")
    return whole.view([("", f"V{size}")]) if size != 16 else whole.view(np.complex128)


def _short(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.4g}"
    return f"{value:.4g}"
