"""The meaning of an arithmetic PTX instruction over lanes.

The meanings are those of the *PTX ISA*, chapter 9 ("Instruction Set"), sections on integer,
extended-precision, floating-point, half-precision, comparison, logic and conversion instructions.
"""

from __future__ import annotations

import functools

from tilewise.devices.emulator.arithmetic import (
    bits,
    comparisons,
    conversions,
    floats,
    halves,
    integers,
)
from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

__all__ = ["DTYPES", "Semantics", "resolve"]

_BY_OPCODE: dict[str, Builder] = {
    **bits.OPERATIONS,
    **comparisons.OPERATIONS,
    **conversions.OPERATIONS,
}


def _families(opcode: str, modifiers: tuple[str, ...]) -> Builder | None:
    """Return the builder of an opcode that integers, floats and halves share."""
    if opcode in _BY_OPCODE:
        return _BY_OPCODE[opcode]
    if any(word in halves.TYPES for word in modifiers):
        return halves.OPERATIONS.get(opcode)
    if any(word in ("f32", "f64", "f32x2") for word in modifiers):
        return floats.OPERATIONS.get(opcode)
    return integers.OPERATIONS.get(opcode)


@functools.cache
def resolve(opcode: str, modifiers: tuple[str, ...]) -> Semantics:
    """Return the semantics of an instruction.

    Parameters
    ----------
    opcode : str
        The part before the first dot, as in ``"fma"``.
    modifiers : tuple of str
        The parts after it, as in ``("rn", "f32")``.

    Raises
    ------
    UnsupportedInstructionError
        If the opcode is not arithmetic, or one of the modifiers is not known with it.
    """
    words = Words(opcode, modifiers)
    builder = _families(opcode, modifiers)
    if builder is None:
        raise words.unknown()
    return builder(words)
