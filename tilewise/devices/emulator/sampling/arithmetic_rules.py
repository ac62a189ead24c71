"""What arithmetic does to the gains of registers, and to the region of alike blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic import resolve as arithmetic
from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.ptx.syntax import Register, Vector
from tilewise.devices.emulator.ptx.types import DTYPES, TYPE_BYTES
from tilewise.devices.emulator.sampling.dependence import (
    LOADED,
    RANGES,
    Gain,
    added,
    clipped,
    combined,
    difference,
    divided,
    extremes,
    fits,
    picked,
    remaining,
    scaled,
    undivided,
    without,
)
from tilewise.devices.emulator.sampling.regions import GRID, PINNED, ZERO, Moves, Shift
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Value

if TYPE_CHECKING:
    from tilewise.devices.emulator.sampling.tracker import Blockwise

Rule = Callable[[Lanes], Gain]
Exact = Callable[[Lanes], Shift | None]
"""What the result gains whatever the instruction is; None where that is not known."""
BLOCKS = 1 << 18
"""Blocks of an axis, or of a grid, for all of which an instruction is run at once."""
_BITS = {"b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}
_RELATIONS: dict[str, Callable[[Any], Any]] = {
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
}


class ArithmeticRules:
    """The rule of an instruction that takes registers to registers.

    Each looks first whether there is anything to follow.

    Parameters
    ----------
    blockwise : Blockwise
    op : Op
    """

    def __init__(self, blockwise: Blockwise, op: Op) -> None:
        self.blockwise, self.machine, self.op = blockwise, blockwise.machine, op
        self.sources = op.instruction.operands[1:]
        self.gains = [blockwise.gain_of(op, operand) for operand in self.sources]
        self.modifiers = op.instruction.modifiers
        self.type = self.modifiers[-1] if self.modifiers else ""
        self.exact: Exact = _unknown

    def rule(self) -> Rule:
        """From the sources' gains to the result's.

        Raises
        ------
        UnsupportedInstructionError
            If it is not arithmetic.
        """
        opcode = self.op.instruction.opcode
        self.exact = self._evaluated(arithmetic.resolve(opcode, self.modifiers))
        made = getattr(self, f"_{opcode}", None)
        is_integer = opcode in ("setp", "selp", "cvt") or _BITS.get(self.type, self.type) in RANGES
        found: Rule | None = made() if made is not None and is_integer else None
        return found or self._mixed()

    def value(self, place: int, type_: str) -> Callable[[Lanes], Value]:
        """How to read a source of the lanes."""
        return self.machine.registers.reader(self.op, self.sources[place], type_, picked=True)

    def _evaluated(self, meaning: Semantics) -> Exact:
        """How to run it for all blocks along an axis, where all lanes have the same values."""
        target = self.op.instruction.operands[0]
        is_plain = len(self.sources) == len(meaning.inputs) and isinstance(target, Register)
        if not is_plain or any(isinstance(source, Vector) for source in self.sources):
            return _unknown
        reads = [self.value(place, type_) for place, type_ in enumerate(meaning.inputs)]
        gains, blockwise, function = self.gains, self.blockwise, meaning.function

        def exact(lanes: Lanes) -> Shift | None:
            found, region = [gain() for gain in gains], blockwise.region
            whole = combined(found)
            if isinstance(whole, str) or whole == ZERO:
                return None
            axis = whole.index(None) if whole.count(None) == 1 else GRID
            if axis in region.pinned or region.size(axis) > BLOCKS:
                return None
            inputs = []
            for gain, read in zip(found, reads, strict=True):
                value = read(lanes).reshape(-1)
                bits = _bits(value)
                if isinstance(gain, str) or None in gain or bits.min() != bits.max():
                    return None
                moved = region.over(gain).reshape(-1) if axis == GRID else region.along(gain, axis)
                inputs.append(_after(value[:1], bits[0] + moved))
            result = function(*inputs)
            made = _bits(result[0] if isinstance(result, tuple) else result)
            made = np.broadcast_to(made, region.size(axis))
            return region.curve(axis, made - made[region.place(axis)])

        return exact

    def _mixed(self) -> Rule:
        """Nothing is known but what it is made of."""
        gains = self.gains

        def rule(lanes: Lanes) -> Gain:
            found = combined([gain() for gain in gains])
            return found if found in (LOADED, ZERO) else self.exact(lanes) or found

        return rule

    def _add(self) -> Rule | None:
        return self._sum(1)

    def _sub(self) -> Rule | None:
        return self._sum(-1)

    def _sum(self, sign: int) -> Rule | None:
        if "sat" in self.modifiers:
            return None
        a, b = self.gains
        return lambda lanes: added(a(), b(), sign)

    def _neg(self) -> Rule:
        gain = self.gains[0]
        return lambda lanes: scaled(gain(), -1)

    def _not(self) -> Rule:
        """Of x it is -x - 1."""
        return self._neg()

    def _mul(self) -> Rule | None:
        return self._product(None)

    def _mad(self) -> Rule | None:
        return self._product(2)

    def _product(self, plus: int | None) -> Rule | None:
        """``mul`` and ``mad``, low or wide."""
        if "hi" in self.modifiers or "sat" in self.modifiers:
            return None
        is_wide = "wide" in self.modifiers
        reads = [self.value(place, self.type) for place in (0, 1)]
        signed = [self.value(place, _signed(self.type)) for place in (0, 1)]
        gains, blockwise = self.gains, self.blockwise

        def rule(lanes: Lanes) -> Gain:
            one, other = gains[0](), gains[1]()
            rest = ZERO if plus is None else gains[plus]()
            if one == ZERO and other == ZERO:
                return rest
            if LOADED in (one, other, rest):
                return LOADED
            which, gain = (0, one) if one != ZERO else (1, other)
            values = reads[1 - which](lanes) if is_wide else signed[1 - which](lanes)
            low, high = extremes(values)
            # A gain of its own for each lane is none of the register's.
            if (one != ZERO and other != ZERO) or low != high:
                return self.exact(lanes) or combined([one, other, rest])
            if is_wide:
                blockwise.stay_in_range(gain, reads[which](lanes), self.type)
            return added(scaled(gain, low), rest)

        return rule

    def _shl(self) -> Rule:
        gain, count = self.gains
        read = self.value(1, "u32")

        def rule(lanes: Lanes) -> Gain:
            shifted, by = gain(), count()
            if shifted == ZERO and by == ZERO:
                return ZERO
            low, high = extremes(read(lanes))
            if by != ZERO or low != high or low > 63:
                return self.exact(lanes) or combined([shifted, by])
            return scaled(shifted, 1 << low)

        return rule

    def _shr(self) -> Rule:
        return self._quotient(lambda value: 1 << min(value, 63), "u32", divided)

    def _div(self) -> Rule:
        return self._quotient(lambda value: value, self.type, divided)

    def _rem(self) -> Rule:
        return self._quotient(lambda value: value, self.type, remaining)

    def _quotient(
        self, divisor: Callable[[int], int], count_type: str, result: Callable[[Shift, int], Shift]
    ) -> Rule:
        gain, by = self.gains
        read, count = self.value(0, self.type), self.value(1, count_type)
        blockwise = self.blockwise
        rounds_down = self.op.instruction.opcode == "shr"  # a quotient rounds to zero

        def rule(lanes: Lanes) -> Gain:
            one, other = gain(), by()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            low, high = extremes(count(lanes))
            values = read(lanes)
            least, _ = extremes(values)
            whole = combined([one, other])
            is_even = other == ZERO and low == high and divisor(low) > 0 and None not in one
            if is_even and (rounds_down or least >= 0) and blockwise.region.most(one) < 2**62:
                found = result(one, divisor(low))
                exact = self.exact(lanes) if None in found else None
                if exact is None and found != whole:
                    blockwise.stay_in_range(one, values, self.type)
                    if not rounds_down:
                        blockwise.region.limit(one, -least, None)
                    return found
                return exact or whole
            return self.exact(lanes) or whole

        return rule

    def _and(self) -> Rule:
        return self._logic()

    def _or(self) -> Rule:
        plain = self._logic()
        type_ = f"s{self.type[1:]}"
        if type_ not in RANGES:
            return plain
        gains, blockwise = self.gains, self.blockwise
        reads = [self.value(place, type_) for place in (0, 1)]
        settled = [blockwise.is_settled(self.op, source) for source in self.sources]

        def rule(lanes: Lanes) -> Gain:
            """As with many conditions in one: (x | y) == 0, (x | y) < 0."""
            found = plain(lanes)
            if found == LOADED or None not in found:
                return found
            for source, read, is_settled in zip(gains, reads, settled, strict=True):
                gain = source()
                if isinstance(gain, str):
                    return found
                if None not in gain:
                    self._compare(gain, ZERO, read(lanes), np.int64(0), "eq", type_)
                elif not is_settled():
                    return found
            blockwise.settles = True
            return found

        return rule

    def _xor(self) -> Rule:
        return self._logic()

    def _logic(self) -> Rule:
        """With a small number, these touch the low bits only."""
        gains = self.gains
        reads = [self.value(place, _BITS.get(self.type, self.type)) for place in (0, 1)]
        is_and, width = self.op.instruction.opcode == "and", int(self.type[1:])

        def rule(lanes: Lanes) -> Gain:
            one, other = gains[0](), gains[1]()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            if one == ZERO or other == ZERO:
                which, gain = (0, one) if one != ZERO else (1, other)
                least, most = extremes(reads[1 - which](lanes))
                # Above the bits of such a number, and keeps nothing; above its zeros, or xor
                # above its ones, and all is left as it was.
                other_bits = (1 << width) - 1 - least if is_and else most
                changed = undivided(gain, 1 << other_bits.bit_length())
                lost = undivided(gain, 1 << most.bit_length()) if is_and else {0, 1, 2, GRID}
                found = without(without(gain, {0, 1, 2, GRID} - lost, 0), changed & lost)
                return found if None not in found else self.exact(lanes) or found
            return self.exact(lanes) or combined([one, other])

        return rule

    def _bfi(self) -> Rule:
        """A block's number above a lane's: what is inserted gains as if it were shifted."""
        gains, width = self.gains, int(self.type[1:])
        inserted, _, place, length = (
            self.value(i, type_)
            for i, type_ in enumerate((*2 * (_BITS.get(self.type, self.type),), "u32", "u32"))
        )

        def rule(lanes: Lanes) -> Gain:
            one, *others = (gain() for gain in gains)
            if one == ZERO and others == [ZERO] * 3:
                return ZERO
            if isinstance(one, str) or others != [ZERO] * 3 or None in one:
                return self.exact(lanes) or combined([one, *others])
            ends = [extremes(read(lanes)) for read in (place, length)]
            (low, high), (count, most) = ends
            if low != high or count != most:
                return self.exact(lanes) or combined([one])
            values = inserted(lanes)
            if low + count < width:  # what does not fit is left out
                if extremes(values)[1] >> count:
                    return self.exact(lanes) or combined([one])
                least, largest = extremes(values)
                self.blockwise.region.limit(one, -least, (1 << count) - 1 - largest)
            return scaled(one, 1 << low)

        return rule

    def _min(self) -> Rule:
        return self._choice("le")

    def _max(self) -> Rule:
        return self._choice("ge")

    def _choice(self, relation: str) -> Rule:
        a, b = self.gains
        reads = [self.value(place, self.type) for place in (0, 1)]

        def rule(lanes: Lanes) -> Gain:
            one, other = a(), b()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            found = self.exact(lanes)
            if found is not None or None in one or None in other:
                return found or combined([one, other])
            left, right = (read(lanes) for read in reads)
            return picked(one, other, self._compare(one, other, left, right, relation, self.type))

        return rule

    def _selp(self) -> Rule:
        a, b, p = self.gains
        read = self.value(2, "pred")

        def rule(lanes: Lanes) -> Gain:
            one, other, by = a(), b(), p()
            if isinstance(by, str) or LOADED in (one, other):
                return LOADED
            if by != ZERO:
                found = self.exact(lanes)
                if found is not None:
                    return found
                self.blockwise.decide(self.op, by)
            return one if one == other else picked(one, other, np.asarray(read(lanes)))

        return rule

    def _cvt(self) -> Rule | None:
        types = [word for word in self.modifiers if word in RANGES]
        target = self.op.instruction.operands[0]
        if len(types) != 2 or "sat" in self.modifiers or not isinstance(target, Register):
            return None
        made, source = types
        gain, blockwise = self.gains[0], self.blockwise
        # The bits that the result has, and those that its register has beyond.
        bits, room = DTYPES[made].itemsize, TYPE_BYTES[target.type]
        narrow = source if DTYPES[source].itemsize < bits else made if bits < room else ""
        read = self.value(0, narrow or source)

        def rule(lanes: Lanes) -> Gain:
            found = gain()
            if narrow and found not in (ZERO, LOADED):
                blockwise.stay_in_range(found, read(lanes), narrow)
            return found

        return rule

    def _setp(self) -> Rule | None:
        relation = self.modifiers[0]
        gains = self.gains
        type_ = _BITS.get(self.type, self.type)
        if type_ not in RANGES:
            return None
        reads = [self.value(place, type_) for place in (0, 1)]
        settled = self.blockwise.is_settled(self.op, self.sources[0])

        def rule(lanes: Lanes) -> Gain:
            one, other = gains[0](), gains[1]()
            rest = gains[2]() if len(gains) > 2 else ZERO
            if one == ZERO and other == ZERO:
                return combined([rest])
            if isinstance(one, str) or isinstance(other, str) or rest == LOADED:
                return LOADED
            left, right = (read(lanes) for read in reads)
            if (settled() and other == ZERO) and _is_sign(relation, right):
                return combined([rest])
            if not (fits(one, left, type_) and fits(other, right, type_)):
                return self.exact(lanes) or PINNED
            self._compare(one, other, left, right, relation, type_)
            return combined([rest])

        return rule

    def _compare(
        self, one: Shift, other: Shift, left: Value, right: Value, relation: str, type_: str
    ) -> npt.NDArray[np.bool_]:
        """Keep to the blocks where the comparison has the same outcome in each lane: this one."""
        for gain, values in ((one, left), (other, right)):
            self.blockwise.stay_in_range(gain, values, type_)
        distance = clipped(left, type_) - clipped(right, type_)
        gain = difference(one, other)
        relation = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
        outcome = np.asarray(_RELATIONS[relation](distance))
        if relation in ("eq", "ne"):
            for part, least, most in (
                (distance[distance > 0], 1, None), (distance[distance < 0], None, -1),
                (distance[distance == 0], 0, 0),
            ):  # fmt: skip
                self._keep(gain, part, least, most)
            return outcome
        # Where it holds, the distance stays on this side of the border, else on the other.
        border = 0 if relation in ("lt", "ge") else 1
        self._keep(gain, distance[distance < border], None, border - 1)
        self._keep(gain, distance[distance >= border], border, None)
        return outcome

    def _keep(self, gain: Shift, distance: Moves, least: int | None, most: int | None) -> None:
        if distance.size:
            low, high = extremes(distance)
            self.blockwise.region.limit(
                gain,
                None if least is None else least - low,
                None if most is None else most - high,
            )


def _is_sign(relation: str, right: Value) -> bool:
    """Whether a comparison asks for no more than whether a number is negative, or zero."""
    low, high = extremes(right)
    return low == high and (low == 0 or (low == -1 and relation in ("gt", "le")))


def _unknown(lanes: Lanes) -> None:
    """No result."""


def _bits(values: Value) -> Moves:
    """Values as the integers that their bits are."""
    if values.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    found: Moves = values.astype(np.int64)
    return found


def _after(value: npt.NDArray[Any], bits: Moves) -> npt.NDArray[Any]:
    """Integers as the values whose bits they are, of the same type as a value."""
    if value.dtype.kind == "b":
        return (bits & 1).astype(np.bool_)
    return bits.astype(f"u{value.dtype.itemsize}").view(value.dtype)


def _signed(type_: str) -> str:
    return "s" + type_[1:] if type_[0] in "ub" else type_
