"""The concrete launches of tests: sizes are drawn, arrays filled, and results expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.exercises.catalogue import Exercise, Parameter, Test
from tilewise.places import Dim3
from tilewise.specs import expected as expectations
from tilewise.specs.arrays import Array, plan
from tilewise.specs.expected import Expected
from tilewise.specs.expressions import Number, evaluate, extents, whole
from tilewise.specs.formulas import Unset

WARP = 32
_WHOLE, _SPIKE = "whole:", "spike:"
_POISON = {1: 0xA5, 2: 0x7E5A, 4: 0x7FC5A5A5, 8: 0x7FF85A5A5A5A5A5A}
"""The bits of unwritten elements, by their bytes; as floats they are NaN."""


@dataclass(frozen=True)
class Case:
    """One launch of a submission.

    Attributes
    ----------
    test : Test
    sizes : mapping of str to int
        The test's sizes, and the ``threads`` and ``warps`` of a block and the ``blocks``.
    grid, block : (int, int, int)
    shared : int
    args : tuple
        The numbers and arrays. Unwritten elements hold a bit pattern of their own, which as a float
        is a NaN.
    names : tuple of str
        The names of the parameters.
    expected : tuple of Expected
    """

    test: Test
    sizes: Mapping[str, int]
    grid: Dim3
    block: Dim3
    shared: int
    args: tuple[Any, ...]
    names: tuple[str, ...]
    expected: tuple[Expected, ...]

    @property
    def arrays(self) -> dict[str, Array]:
        """The arguments that are arrays, by their names."""
        pairs = zip(self.names, self.args, strict=True)
        return {name: x for name, x in pairs if isinstance(x, np.ndarray)}

    def args_on(self, device: Device) -> tuple[Any, ...]:
        """Return the arguments of a launch on ``device``.

        An array without values becomes an unwritten array of the device, which sees reads of it.
        """
        return tuple(
            device.empty(x.shape, x.dtype)
            if isinstance(x, np.ndarray) and x.size and unwritten(x).all()
            else x
            for x in self.args
        )


def make(exercise: Exercise, test: Test, seed: int = 0, threads: int | None = None) -> Case:
    """Draw a test's sizes and values.

    Parameters
    ----------
    exercise : Exercise
    test : Test
    seed : int
        The seed, at least 0. The same seed gives the same values on every machine.
    threads : int, optional
        The threads of a block, if the submission sets them; by default the exercise's own.

    Raises
    ------
    ValueError, TypeError
        If the exercise has an expression that can't be read.
    """
    draw = np.random.default_rng((seed, test.number))
    sizes: dict[str, Any] = {
        name: int(draw.integers(size[0], size[1] + 1)) if isinstance(size, tuple) else size
        for name, size in test.sizes.items()
    }
    if exercise.threads is not None:
        sizes["threads"] = threads or exercise.threads
    what = f"{exercise.name}, {test.name}"
    args: list[Any] = []
    before: dict[str, Any] = {}
    for number, each in enumerate(exercise.parameters):
        text = test.given.get(each.name, each.text)
        if each.type.endswith("*"):
            array, is_written = _array(each, text, sizes, (seed, test.number, number), what)
            before[each.name] = array.copy() if is_written else Unset(array.shape, array.dtype)
            args.append(array)
        else:
            value = _number(each, text, sizes, what)
            if isinstance(value, int):
                sizes.setdefault(each.name, value)
            before[each.name] = np.float32(value) if each.type == "float" else value
            args.append(value)
    for name, text in exercise.values.items():
        before[name] = plan(text, "", sizes, f"{what}: {name}").make()
    grid, block = (_dim3(text, sizes, what) for text in (exercise.grid, exercise.block))
    sizes["blocks"] = grid[0] * grid[1] * grid[2]
    sizes["threads"] = block[0] * block[1] * block[2]
    sizes["warps"] = -(-sizes["threads"] // WARP)
    before = {**sizes, **before}
    names = tuple(each.name for each in exercise.parameters)
    found = [expectations.parse(text, before, names) for text in exercise.expect]
    if exercise.is_exact:
        found = [replace(each, error=None) for each in found]
    return Case(
        test, sizes, grid, block, whole(exercise.shared, sizes, what), tuple(args), names,
        tuple(found),
    )  # fmt: skip


def visible(exercise: Exercise, number: int) -> Test:
    """Return a visible test by its number, which counts from 1.

    Raises
    ------
    ValueError
        If the exercise has no visible test of this number.
    """
    tests = [test for test in exercise.tests if not test.is_hidden]
    if not 1 <= number <= len(tests):
        raise ValueError(
            f"{exercise.name} has visible tests 1 to {len(tests)}, and no test {number}"
        )
    return tests[number - 1]


def _number(each: Parameter, text: str, sizes: Mapping[str, Number], what: str) -> int | float:
    if each.type in ("float", "double"):
        return float(evaluate(text, sizes, f"{what}: {each.name}"))
    return whole(text, sizes, f"{what}: {each.name}")


def _array(
    each: Parameter, text: str, sizes: Mapping[str, Number], seed: tuple[int, ...], what: str
) -> tuple[Array, bool]:
    """Return an array, and whether it is written before the launch."""
    what = f"{what}: {each.name}"
    if text.startswith(_WHOLE):
        planned = plan(f"empty:{text.removeprefix(_WHOLE)}", each.type, sizes, what)
        values = np.random.default_rng(seed).integers(-4, 4, planned.shape)
        return (values + (values >= 0)).astype(planned.dtype), True
    if text.startswith(_SPIKE):
        shape, place, value = text.removeprefix(_SPIKE).split(":")
        array = plan(f"random:{shape}", each.type, sizes, what, seed=seed).make()
        array[..., whole(place, sizes, what)] = float(evaluate(value, sizes, what))
        return array, True
    planned = plan(text, each.type, sizes, what, seed=seed)
    made = planned.make()
    if planned.is_empty:
        bits_of(made)[...] = _POISON[made.itemsize]
    return made, not planned.is_empty


def _dim3(text: str, sizes: Mapping[str, Number], what: str) -> Dim3:
    x, y, z = (*extents(text, sizes, what), 1, 1)[:3]
    return x, y, z


def bits_of(array: Array) -> npt.NDArray[Any]:
    """Return the elements' bits, as unsigned integers, in the array's own memory."""
    return array.view(f"u{array.itemsize}")


def unwritten(array: Array) -> npt.NDArray[np.bool_]:
    """Return which elements still have the bits of unwritten ones."""
    return np.asarray(bits_of(array) == _POISON[array.itemsize])
