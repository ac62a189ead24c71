"""Find the undefined bits of an arithmetic instruction's results, from its operands' bits.

Moves, shifts, permutations and conversions of integers take each bit where its value goes. A
bitwise operation's result is undefined where an undefined bit can change it, and a selection's
where its chosen operand is. Any other arithmetic makes all of its result undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.ptx.types import DTYPES, TYPE_BYTES

Bits = npt.NDArray[np.uint64]
Rule = Callable[[list[Bits], list[npt.NDArray[Any]]], list[Bits]]
"""A function from the undefined bits and the values of each operand, of shape (lanes,), to the
undefined bits of each result.
"""

_BITWISE = frozenset(("and", "or", "xor", "not", "lop3"))
_MOVING = {"shl": 1, "shr": 1, "shf": 2, "prmt": 2, "brev": 1, "bfe": 1, "bfi": 2, "cvt": 1}
"""The number of operands that hold the bits, for instructions that move bits; the other operands
say where to.
"""


def full(type_: str) -> np.uint64:
    """Return all bits of a PTX type of up to 8 bytes."""
    return np.uint64((1 << (1 if type_ == "pred" else 8 * min(TYPE_BYTES[type_], 8))) - 1)


def rule(opcode: str, modifiers: tuple[str, ...], meaning: Semantics) -> Rule:
    """Return the rule of one arithmetic instruction."""
    if meaning.carry_in or meaning.carry_out:
        return _any(meaning)
    if opcode in _BITWISE and len(meaning.outputs) == 1:
        return _bitwise(meaning)
    if opcode in _MOVING and "sat" not in modifiers and _are_integers(meaning):
        return _moving(meaning, _MOVING[opcode])
    if opcode == "selp":
        return _selected(meaning, lambda c: c)
    if opcode == "slct" and "ftz" not in modifiers:
        return _selected(meaning, lambda c: c >= c.dtype.type(0))
    if opcode == "setp" and len(meaning.inputs) == 3 and "xor" not in modifiers:
        return _combined(meaning, decided_by="or" in modifiers)
    return _any(meaning)


def _are_integers(meaning: Semantics) -> bool:
    return all(kind[0] in "bus" and kind[1:].isdigit() for kind in meaning.inputs + meaning.outputs)


def _spread(given: list[Bits]) -> npt.NDArray[np.bool_]:
    """Return in which lanes any operand has an undefined bit."""
    found: npt.NDArray[np.bool_] = np.bitwise_or.reduce(given) != 0
    return found


def _any(meaning: Semantics) -> Rule:
    kinds = [*meaning.outputs, *(["u32"] * meaning.carry_out)]
    return lambda given, values: [_spread(given) * full(kind) for kind in kinds]


def _held(bits: Bits, type_: str) -> npt.NDArray[Any]:
    """Return bits as an array of the dtype that holds values of the type."""
    dtype = DTYPES[type_]
    if type_ == "pred":
        return bits.astype(np.bool_)
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


def _released(held: npt.NDArray[Any]) -> Bits:
    if held.dtype == np.bool_:
        return held.astype(np.uint64)
    return np.ascontiguousarray(held).view(f"u{held.dtype.itemsize}").astype(np.uint64)


def _bitwise(meaning: Semantics) -> Rule:
    """Return the rule by which a bit is undefined if some choice of undefined bits changes it."""

    def run(given: list[Bits], values: list[npt.NDArray[Any]]) -> list[Bits]:
        masks = [_held(bits, kind) for bits, kind in zip(given, meaning.inputs, strict=True)]
        open_ = [bits.any() for bits in given]
        first, changed = None, np.zeros(len(given[0]), np.uint64)
        for choice in product(*((False, True) if is_open else (False,) for is_open in open_)):
            chosen = [
                value | mask if bit else value & ~mask
                for value, mask, bit in zip(values, masks, choice, strict=True)
            ]
            result = _released(meaning.function(*chosen))
            first = result if first is None else first
            changed |= result ^ first
        return [changed]

    return run


def _moving(meaning: Semantics, count: int) -> Rule:
    kind = meaning.outputs[0]

    def run(given: list[Bits], values: list[npt.NDArray[Any]]) -> list[Bits]:
        taken = [_held(bits, k) for bits, k in zip(given[:count], meaning.inputs, strict=False)]
        moved = _released(meaning.function(*taken, *values[count:]))
        if len(given) > count:
            moved = np.where(_spread(given[count:]), full(kind), moved)
        return [moved & full(kind)]

    return run


def _selected(
    meaning: Semantics, is_first: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
) -> Rule:
    def run(given: list[Bits], values: list[npt.NDArray[Any]]) -> list[Bits]:
        first, second, by = given
        chosen = np.where(is_first(values[2]), first, second)
        # For any choice, bits that both define and have in common are defined.
        either = first | second | (_released(values[0]) ^ _released(values[1]))
        return [np.where(by != 0, either, chosen)]

    return run


def _combined(meaning: Semantics, decided_by: bool) -> Rule:
    """Return the rule of a comparison that is combined with a predicate, which may decide alone."""

    def run(given: list[Bits], values: list[npt.NDArray[Any]]) -> list[Bits]:
        is_decided = (given[2] == 0) & (values[2] == decided_by)
        unknown = (_spread(given) & ~is_decided).astype(np.uint64)
        return [unknown for _ in meaning.outputs]

    return run
