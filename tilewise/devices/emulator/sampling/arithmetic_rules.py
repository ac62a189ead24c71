"""Apply arithmetic to the dependences of registers, and to the region of alike blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.ptx.syntax import Register
from tilewise.devices.emulator.ptx.types import DTYPES, TYPE_BYTES
from tilewise.devices.emulator.sampling.affine import (
    GRID,
    LOADED,
    RANGES,
    ZERO,
    Affine,
    Dependence,
    added,
    combined,
    divided,
    extremes,
    remaining,
    scaled,
    undivided,
    without,
)
from tilewise.devices.emulator.sampling.comparison_rules import ComparisonRules
from tilewise.devices.emulator.sampling.evaluation import UNTYPED, Rule
from tilewise.devices.emulator.threads.lanes import Lanes


class ArithmeticRules(ComparisonRules):
    """The rule of an instruction that takes registers to registers.

    Each looks first whether there is anything to follow.

    Parameters
    ----------
    tracker : Tracker
    op : Op
    """

    def rule(self) -> Rule:
        """Return the rule that makes the result's dependence from the sources' dependences.

        Raises
        ------
        UnsupportedInstructionError
            If it is not arithmetic.
        """
        opcode = self.op.instruction.opcode
        self.exact = self.evaluated(resolve(opcode, self.modifiers))
        made = getattr(self, f"_{opcode}", None)
        is_integer = (
            opcode in ("setp", "selp", "cvt") or UNTYPED.get(self.type, self.type) in RANGES
        )
        found: Rule | None = made() if made is not None and is_integer else None
        return found or self.mixed()

    def _add(self) -> Rule | None:
        return self._sum(1)

    def _sub(self) -> Rule | None:
        return self._sum(-1)

    def _sum(self, sign: int) -> Rule | None:
        if "sat" in self.modifiers:
            return None
        a, b = self.dependences
        return lambda lanes: added(a(), b(), sign)

    def _neg(self) -> Rule:
        dependence = self.dependences[0]
        return lambda lanes: scaled(dependence(), -1)

    def _not(self) -> Rule:
        """Return the rule of ``not x``, which is -x - 1."""
        return self._neg()

    def _mul(self) -> Rule | None:
        return self._product(None)

    def _mad(self) -> Rule | None:
        return self._product(2)

    def _product(self, plus: int | None) -> Rule | None:
        """Return the rule of ``mul`` and ``mad``, low or wide."""
        if "hi" in self.modifiers or "sat" in self.modifiers:
            return None
        is_wide = "wide" in self.modifiers
        reads = [self.value(place, self.type) for place in (0, 1)]
        signed = [self.value(place, _signed(self.type)) for place in (0, 1)]
        dependences, tracker = self.dependences, self.tracker

        def rule(lanes: Lanes) -> Dependence:
            one, other = dependences[0](), dependences[1]()
            rest = ZERO if plus is None else dependences[plus]()
            if one == ZERO and other == ZERO:
                return rest
            if LOADED in (one, other, rest):
                return LOADED
            which, dependence = (0, one) if one != ZERO else (1, other)
            values = reads[1 - which](lanes) if is_wide else signed[1 - which](lanes)
            low, high = extremes(values)
            # Lanes with different coefficients have no dependence in common.
            if (one != ZERO and other != ZERO) or low != high:
                return self.exact(lanes) or combined([one, other, rest])
            if is_wide:
                tracker.stay_in_range(dependence, reads[which](lanes), self.type)
            return added(scaled(dependence, low), rest)

        return rule

    def _shl(self) -> Rule:
        dependence, count = self.dependences
        read = self.value(1, "u32")

        def rule(lanes: Lanes) -> Dependence:
            shifted, by = dependence(), count()
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
        self,
        divisor: Callable[[int], int],
        count_type: str,
        result: Callable[[Affine, int], Affine],
    ) -> Rule:
        dependence, by = self.dependences
        read, count = self.value(0, self.type), self.value(1, count_type)
        tracker = self.tracker
        rounds_down = self.op.instruction.opcode == "shr"  # a quotient rounds to zero

        def rule(lanes: Lanes) -> Dependence:
            one, other = dependence(), by()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            low, high = extremes(count(lanes))
            values = read(lanes)
            least, _ = extremes(values)
            whole = combined([one, other])
            is_even = other == ZERO and low == high and divisor(low) > 0 and None not in one
            if is_even and (rounds_down or least >= 0) and tracker.region.most(one) < 2**62:
                found = result(one, divisor(low))
                exact = self.exact(lanes) if None in found else None
                if exact is None and found != whole:
                    tracker.stay_in_range(one, values, self.type)
                    if not rounds_down:
                        tracker.region.limit(one, -least, None)
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
        dependences, tracker = self.dependences, self.tracker
        reads = [self.value(place, type_) for place in (0, 1)]
        settled = [tracker.is_settled(self.op, source) for source in self.sources]

        def rule(lanes: Lanes) -> Dependence:
            """Return the dependence of ``or``; it joins conditions: (x | y) == 0, (x | y) < 0."""
            found = plain(lanes)
            if found == LOADED or None not in found:
                return found
            for source, read, is_settled in zip(dependences, reads, settled, strict=True):
                dependence = source()
                if isinstance(dependence, str):
                    return found
                if None not in dependence:
                    self.compare(dependence, ZERO, read(lanes), np.int64(0), "eq", type_)
                elif not is_settled():
                    return found
            tracker.settles = True
            return found

        return rule

    def _xor(self) -> Rule:
        return self._logic()

    def _logic(self) -> Rule:
        """Return the rule of ``and``, ``or``, ``xor``: a small number touches the low bits only."""
        dependences = self.dependences
        reads = [self.value(place, UNTYPED.get(self.type, self.type)) for place in (0, 1)]
        is_and, width = self.op.instruction.opcode == "and", int(self.type[1:])

        def rule(lanes: Lanes) -> Dependence:
            one, other = dependences[0](), dependences[1]()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            if one == ZERO or other == ZERO:
                which, dependence = (0, one) if one != ZERO else (1, other)
                least, most = extremes(reads[1 - which](lanes))
                # `and` clears what moves above the number's highest bit, and keeps what moves above
                # its highest zero; `or` and `xor` keep what moves above its highest bit.
                other_bits = (1 << width) - 1 - least if is_and else most
                changed = undivided(dependence, 1 << other_bits.bit_length())
                lost = undivided(dependence, 1 << most.bit_length()) if is_and else {0, 1, 2, GRID}
                found = without(without(dependence, {0, 1, 2, GRID} - lost, 0), changed & lost)
                return found if None not in found else self.exact(lanes) or found
            return self.exact(lanes) or combined([one, other])

        return rule

    def _bfi(self) -> Rule:
        """A block's index above a lane's number: the inserted bits move as if they were shifted."""
        dependences, width = self.dependences, int(self.type[1:])
        inserted, _, place, length = (
            self.value(i, type_)
            for i, type_ in enumerate((*2 * (UNTYPED.get(self.type, self.type),), "u32", "u32"))
        )

        def rule(lanes: Lanes) -> Dependence:
            one, *others = (dependence() for dependence in dependences)
            if one == ZERO and others == [ZERO] * 3:
                return ZERO
            if isinstance(one, str) or others != [ZERO] * 3 or None in one:
                return self.exact(lanes) or combined([one, *others])
            ends = [extremes(read(lanes)) for read in (place, length)]
            (low, high), (count, most) = ends
            if low != high or count != most:
                return self.exact(lanes) or combined([one])
            values = inserted(lanes)
            if low + count < width:  # values that do not fit are left out
                if extremes(values)[1] >> count:
                    return self.exact(lanes) or combined([one])
                least, largest = extremes(values)
                self.tracker.region.limit(one, -least, (1 << count) - 1 - largest)
            return scaled(one, 1 << low)

        return rule

    def _cvt(self) -> Rule | None:
        types = [word for word in self.modifiers if word in RANGES]
        target = self.op.instruction.operands[0]
        if len(types) != 2 or "sat" in self.modifiers or not isinstance(target, Register):
            return None
        made, source = types
        dependence, tracker = self.dependences[0], self.tracker
        # The bits that the result has, and those that its register has beyond.
        bits, room = DTYPES[made].itemsize, TYPE_BYTES[target.type]
        narrow = source if DTYPES[source].itemsize < bits else made if bits < room else ""
        read = self.value(0, narrow or source)

        def rule(lanes: Lanes) -> Dependence:
            found = dependence()
            if narrow and found not in (ZERO, LOADED):
                tracker.stay_in_range(found, read(lanes), narrow)
            return found

        return rule


def _signed(type_: str) -> str:
    return "s" + type_[1:] if type_[0] in "ub" else type_
