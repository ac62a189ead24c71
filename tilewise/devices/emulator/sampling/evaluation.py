"""Run an arithmetic instruction for many blocks at once, to see how its result depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.ptx.syntax import Register, Vector
from tilewise.devices.emulator.sampling.affine import (
    GRID,
    LOADED,
    ZERO,
    Affine,
    Dependence,
    combined,
)
from tilewise.devices.emulator.sampling.regions import Moves
from tilewise.devices.emulator.sampling.tracker import Tracker
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Value

Rule = Callable[[Lanes], Dependence]
Exact = Callable[[Lanes], Affine | None]
"""The result's dependence, found by running the instruction for all blocks; None if not found."""
BLOCKS = 1 << 18
"""The most blocks of an axis, or of a grid, for all of which an instruction is run at once."""
UNTYPED = {"b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}
"""The integers that operands of untyped bits are followed as."""


class Evaluation:
    """The base of the rules of all instructions that take registers to registers.

    Parameters
    ----------
    tracker : Tracker
    op : Op

    Attributes
    ----------
    dependences : list of callable
        The functions that look up the dependences of the source operands.
    exact : callable
        The function that runs the instruction for all blocks.
    """

    def __init__(self, tracker: Tracker, op: Op) -> None:
        self.tracker, self.machine, self.op = tracker, tracker.machine, op
        self.sources = op.instruction.operands[1:]
        self.dependences = [tracker.dependence_of(op, operand) for operand in self.sources]
        self.modifiers = op.instruction.modifiers
        self.type = self.modifiers[-1] if self.modifiers else ""
        self.exact: Exact = _unknown

    def value(self, place: int, type_: str) -> Callable[[Lanes], Value]:
        """Return the function that reads a source of the lanes."""
        return self.machine.registers.reader(self.op, self.sources[place], type_, picked=True)

    def evaluated(self, meaning: Semantics) -> Exact:
        """Return the function that runs the instruction for all blocks of an axis, on one value."""
        target = self.op.instruction.operands[0]
        is_plain = len(self.sources) == len(meaning.inputs) and isinstance(target, Register)
        if not is_plain or any(isinstance(source, Vector) for source in self.sources):
            return _unknown
        reads = [self.value(place, type_) for place, type_ in enumerate(meaning.inputs)]
        dependences, tracker, function = self.dependences, self.tracker, meaning.function

        def exact(lanes: Lanes) -> Affine | None:
            found, region = [dependence() for dependence in dependences], tracker.region
            whole = combined(found)
            if isinstance(whole, str) or whole == ZERO:
                return None
            axis = whole.index(None) if whole.count(None) == 1 else GRID
            if axis in region.pinned or region.size(axis) > BLOCKS:
                return None
            inputs = []
            for dependence, read in zip(found, reads, strict=True):
                value = read(lanes).reshape(-1)
                bits = _bits(value)
                if isinstance(dependence, str) or None in dependence or bits.min() != bits.max():
                    return None
                moved = (
                    region.over(dependence).reshape(-1)
                    if axis == GRID
                    else region.along(dependence, axis)
                )
                inputs.append(_after(value[:1], bits[0] + moved))
            result = function(*inputs)
            made = _bits(result[0] if isinstance(result, tuple) else result)
            made = np.broadcast_to(made, region.size(axis))
            return region.curve(axis, made - made[region.place(axis)])

        return exact

    def mixed(self) -> Rule:
        """Return the rule of an instruction of which only the operands are known."""
        dependences = self.dependences

        def rule(lanes: Lanes) -> Dependence:
            found = combined([dependence() for dependence in dependences])
            return found if found in (LOADED, ZERO) else self.exact(lanes) or found

        return rule


def _unknown(lanes: Lanes) -> None:
    """Return None: nothing is known of the result."""


def _bits(values: Value) -> Moves:
    """Return the bits of the values, as integers."""
    if values.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    found: Moves = values.astype(np.int64)
    return found


def _after(value: npt.NDArray[Any], bits: Moves) -> npt.NDArray[Any]:
    """Return values of the type of ``value``, from their bits."""
    if value.dtype.kind == "b":
        return (bits & 1).astype(np.bool_)
    return bits.astype(f"u{value.dtype.itemsize}").view(value.dtype)
