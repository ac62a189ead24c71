"""How each register depends on the block's index, followed while one block runs.

Beside every register stands what it would gain in the next block (:data:`Shift`), or that it came
from memory. Sums and products of these are followed through integer arithmetic. A comparison puts
a condition on the blocks that do the same (:class:`~tilewise.devices.emulator.regions.Region`), an
address too. Where what was loaded decides a branch or an address, no other block is known to do
the same, and ``varies`` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.counting import BANKS, SECTOR
from tilewise.devices.emulator.lanes import Lanes
from tilewise.devices.emulator.ptx import (
    Address,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
)
from tilewise.devices.emulator.regions import PINNED, ZERO, Region, Shift
from tilewise.errors import UnsupportedInstructionError

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine, Op, Value

Gain = Shift | str
"""What a register gains from block to block, or :data:`LOADED`."""
LOADED = "loaded"
Rule = Callable[[Lanes], Gain]

_RANGES = {
    "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**63 - 1),
    "s8": (-(2**7), 2**7 - 1), "s16": (-(2**15), 2**15 - 1), "s32": (-(2**31), 2**31 - 1),
    "s64": (-(2**63), 2**63 - 1),
}  # fmt: skip
# Of 64 bits, values beyond 2^63 are taken for what no comparison is made of: none is affine there.
_BITS = {"b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}
_AXES = {"ctaid.x": (1, 0, 0), "ctaid.y": (0, 1, 0), "ctaid.z": (0, 0, 1)}
_ALIKE = (
    "tid.", "ntid.", "nctaid.", "laneid", "warpid", "nwarpid", "gridid", "lanemask_", "WARP_SZ",
    "dynamic_smem_size", "total_smem_size", "aggr_smem_size", "nsmid",
)  # fmt: skip
_TIMERS = ("clock", "globaltimer", "smid")
_ROW = 4 * BANKS
_QUIET = frozenset(
    ("bar", "barrier", "membar", "fence", "ret", "exit", "trap", "brkpt", "prefetch", "prefetchu",
     "nanosleep", "pmevent", "applypriority", "discard", "createpolicy", "setmaxnreg",
     "griddepcontrol")
)  # fmt: skip
_CARRYING = frozenset(("addc", "subc", "madc"))
_WARP = frozenset(("shfl", "vote", "match", "redux", "activemask", "elect"))


class Blockwise:
    """The gains of all registers of a machine, and the region that follows from them.

    Parameters
    ----------
    machine : Machine
        Its ops are wrapped, so that each is followed before it runs.

    Attributes
    ----------
    region : Region
        The blocks that do the same as the one that runs.
    varies : str
        Why no block is known to do the same as another; empty where they are known.
    shift : Shift
        That of the address that the last access had.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.gains: dict[int, Gain] = {}
        self.region = Region((0, 0, 0))
        self.varies = ""
        self.shift: Shift = ZERO
        for op in machine.ops:
            self._follow(op)

    def start(self, region: Region) -> None:
        """A block begins to run."""
        self.region = region
        self.gains.clear()

    # Wrapping

    def _follow(self, op: Op) -> None:
        before = self._step(op)
        if before is None:
            return
        run, control = op.run, op.control

        def followed(lanes: Lanes) -> None:
            before(lanes)
            run(lanes)

        op.run = followed
        if control is not None:
            jump = control

            def followed_jump(lanes: Lanes) -> list[tuple[int, Lanes]]:
                before(lanes)
                return jump(lanes)

            op.control = followed_jump

    def _step(self, op: Op) -> Callable[[Lanes], None] | None:
        """What is to be done before an op runs."""
        instruction = op.instruction
        guard = None
        if instruction.predicate is not None:
            guard = self.gain_of(op, instruction.predicate[0])
        if instruction.opcode in ("call", "brx"):
            return lambda lanes: self.lose(op, f"{instruction.opcode} is not followed")
        try:
            rule = _Rules(self, op).rule(instruction)
        except UnsupportedInstructionError:
            rule = None  # it raises where it is reached
        targets = [self._slot(op, register) for register in _targets(instruction)]
        if rule is None and guard is None and not targets:
            return None
        is_partial = guard is not None

        def step(lanes: Lanes) -> None:
            if guard is not None:
                self._decide(op, guard())
            gain = ZERO if rule is None else rule(lanes)
            for slot in targets:
                self._put(slot, gain, lanes, is_partial)

        return step

    def _put(self, slot: int, gain: Gain, lanes: Lanes, is_partial: bool) -> None:
        if not lanes.whole or is_partial:
            old = self.gains.get(slot)
            if old is not None and old != gain:
                gain = both(old, gain)
        self.gains[slot] = gain

    def _decide(self, op: Op, gain: Gain) -> None:
        """Threads part by a predicate that gains so much."""
        if gain == LOADED:
            self.lose(op, "what was loaded decides it")
        elif gain != ZERO:
            self.pin(gain)

    def pin(self, gain: Gain) -> None:
        """Keep to the block along all axes on which something depends."""
        pinned = combined([gain])
        assert not isinstance(pinned, str)
        self.region.pin(pinned)

    def lose(self, op: Op, why: str) -> None:
        if not self.varies:
            self.varies = f"{op.file}:{op.line}: {why}"

    # Operands

    def _slot(self, op: Op, register: Register) -> int:
        return self.machine.number(self.machine.program.function_of(op.index), register)

    def gain_of(self, op: Op, operand: Operand | None) -> Callable[[], Gain]:
        """How to look an operand's gain up."""
        if isinstance(operand, Negated):
            operand = operand.register
        if isinstance(operand, Register):
            slot, gains = self._slot(op, operand), self.gains
            return lambda: gains.get(slot, ZERO)
        if isinstance(operand, Special):
            gain = _special(operand.name)
            return lambda: gain
        if isinstance(operand, Vector):
            parts = [self.gain_of(op, element) for element in operand.elements]
            return lambda: combined([part() for part in parts])
        return lambda: ZERO

    def reach(self, op: Op, gain: Gain, modulus: int) -> None:
        """An access to an address that gains so much."""
        if gain == LOADED:
            self.lose(op, "what was loaded is in an address")
            gain = PINNED
        assert not isinstance(gain, str)
        self.shift = self.region.pin(gain)
        self.region.divide(self.shift, modulus)

    def keep_inside(self, gain: Gain, low: int, high: int) -> None:
        """What lies between the addresses stays in one allocation."""
        if gain in (LOADED, ZERO):
            return
        assert not isinstance(gain, str)
        owner = self.machine.memory.find(low, high)
        if owner is None:
            self.region.limit(PINNED, None, None)
        else:
            self.region.limit(gain, owner.base - low, owner.base + owner.size - high)

    def stay_in_range(self, gain: Gain, values: Value, type_: str) -> None:
        """The values, as integers of a type, don't wrap around in any of the blocks."""
        if gain in (LOADED, ZERO):
            return
        assert not isinstance(gain, str)
        low, high = _extremes(values)
        least, most = _RANGES[_BITS.get(type_, type_)]
        if low < least or high > most:
            self.region.limit(PINNED, None, None)
        else:
            self.region.limit(gain, least - low, most - high)


def _special(name: str) -> Gain:
    if name in _AXES:
        return _AXES[name]
    if name.startswith(_TIMERS):
        return LOADED
    return ZERO if name.startswith(_ALIKE) else PINNED


def _targets(instruction: Instruction) -> list[Register]:
    """The registers that an instruction writes."""
    is_reduction = instruction.opcode in ("bar", "barrier") and "red" in instruction.modifiers
    if instruction.opcode in ("st", "bra", "red", *_QUIET) and not is_reduction:
        return []
    found = []
    for operand in instruction.operands[:1]:
        parts: Sequence[Operand | None] = (operand,)
        if isinstance(operand, Vector):
            parts = operand.elements
        elif isinstance(operand, Pair):
            parts = (operand.first, operand.second)
        found += [part for part in parts if isinstance(part, Register)]
    return found


def both(one: Gain, other: Gain) -> Gain:
    """The gain of a register that has one in some lanes and the other in others."""
    if one == LOADED or other == LOADED:
        return LOADED
    assert not isinstance(one, str)
    assert not isinstance(other, str)
    x, y, z = (a if a == b else None for a, b in zip(one, other, strict=True))
    return x, y, z


def combined(gains: Sequence[Gain]) -> Gain:
    """That of a result of which nothing more is known than what it is made of."""
    if LOADED in gains:
        return LOADED
    x, y, z = (0 if all(gain[axis] == 0 for gain in gains) else None for axis in range(3))
    return x, y, z


def scaled(gain: Gain, factor: int) -> Gain:
    if isinstance(gain, str):
        return gain
    x, y, z = (None if step is None else step * factor for step in gain)
    return x, y, z


def added(one: Gain, other: Gain, sign: int = 1) -> Gain:
    if isinstance(one, str) or isinstance(other, str):
        return LOADED
    x, y, z = (
        None if a is None or b is None else a + sign * b for a, b in zip(one, other, strict=True)
    )
    return x, y, z


def _difference(one: Shift, other: Shift) -> Shift:
    gain = added(one, other, -1)
    assert not isinstance(gain, str)
    return gain


def _divided(gain: Shift, divisor: int) -> Shift:
    """What a quotient gains; not affine where the gain is no multiple."""
    x, y, z = (None if s is None or s % divisor else s // divisor for s in gain)
    return x, y, z


def _remaining(gain: Shift, divisor: int) -> Shift:
    """What a remainder gains."""
    x, y, z = (None if s is None or s % divisor else 0 for s in gain)
    return x, y, z


def _picked(one: Gain, other: Gain, is_one: npt.NDArray[np.bool_]) -> Gain:
    """What lanes have that take one or the other."""
    return one if is_one.all() else other if not is_one.any() else both(one, other)


def _extremes(values: Value) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if values.ndim else (int(values), int(values))


class _Rules:
    """The rule of one instruction: from its operands' gains to its result's."""

    def __init__(self, blockwise: Blockwise, op: Op) -> None:
        self.blockwise, self.machine, self.op = blockwise, blockwise.machine, op
        operands = op.instruction.operands
        self.sources = operands[1:]
        self.gains = [blockwise.gain_of(op, operand) for operand in self.sources]
        self.modifiers = op.instruction.modifiers
        self.type = self.modifiers[-1] if self.modifiers else ""

    def rule(self, instruction: Instruction) -> Rule | None:
        opcode = instruction.opcode
        if opcode in _CARRYING or "cc" in instruction.modifiers:
            return lambda lanes: LOADED if LOADED in [g() for g in self.gains] else PINNED
        if opcode in ("bar", "barrier") and "red" in instruction.modifiers:
            return lambda lanes: LOADED
        if opcode in _QUIET or opcode == "bra":
            return None
        if opcode in ("ld", "ldu"):
            return self._load()
        if opcode == "st":
            return self._address(instruction.operands[0], ZERO)
        if opcode in ("atom", "red"):
            return self._address(instruction.operands[opcode == "atom"], LOADED)
        if opcode == "cp" and instruction.modifiers[:1] == ("async",):
            return self._copy(instruction)
        if opcode in _WARP:
            return lambda lanes: combined([gain() for gain in self.gains])
        if opcode in ("mov", "cvta"):
            return self._same() if _is_plain(instruction) else self._mixed()
        made = getattr(self, f"_{opcode}", None)
        if made is not None and self._is_integer(opcode):
            found: Rule | None = made()
            if found is not None:
                return found
        from tilewise.devices.emulator import arithmetic

        try:
            arithmetic.resolve(opcode, instruction.modifiers)
        except UnsupportedInstructionError:
            return lambda lanes: LOADED  # tensor cores, barriers in memory: not followed
        return self._mixed()

    def _is_integer(self, opcode: str) -> bool:
        if opcode in ("setp", "selp", "cvt"):
            return True
        return self.type in _RANGES or self.type in _BITS

    def value(self, place: int, type_: str) -> Callable[[Lanes], Value]:
        """How to read a source of the lanes."""
        return self.machine.reader(self.op, self.sources[place], type_, picked=True)

    # Rules. Each looks first whether there is anything to follow.

    def _same(self) -> Rule:
        gain = self.gains[0]
        return lambda lanes: gain()

    def _mixed(self) -> Rule:
        gains = self.gains

        def rule(lanes: Lanes) -> Gain:
            found = [gain() for gain in gains]
            return ZERO if all(gain is ZERO or gain == ZERO for gain in found) else combined(found)

        return rule

    def _add(self) -> Rule | None:
        return self._sum(1)

    def _sub(self) -> Rule | None:
        return self._sum(-1)

    def _sum(self, sign: int) -> Rule | None:
        if "sat" in self.modifiers or "cc" in self.modifiers:
            return None
        a, b = self.gains
        return lambda lanes: added(a(), b(), sign)

    def _neg(self) -> Rule:
        gain = self.gains[0]
        return lambda lanes: scaled(gain(), -1)

    def _not(self) -> Rule:
        """Of x it is -x - 1."""
        return self._mixed() if self.type == "pred" else self._neg()

    def _mul(self) -> Rule | None:
        return self._product(None)

    def _mad(self) -> Rule | None:
        return self._product(2)

    def _product(self, plus: int | None) -> Rule | None:
        """``mul`` and ``mad``, low or wide."""
        if "hi" in self.modifiers or "sat" in self.modifiers or "cc" in self.modifiers:
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
            if one != ZERO and other != ZERO:
                return combined([one, other, rest])
            which, gain = (0, one) if one != ZERO else (1, other)
            if is_wide:
                blockwise.stay_in_range(gain, reads[which](lanes), self.type)
            values = reads[1 - which](lanes) if is_wide else signed[1 - which](lanes)
            low, high = _extremes(values)
            if low != high:  # a gain of its own for each lane
                return combined([gain, rest])
            return added(scaled(gain, low), rest)

        return rule

    def _shl(self) -> Rule:
        gain, count = self.gains
        read = self.value(1, "u32")

        def rule(lanes: Lanes) -> Gain:
            shifted, by = gain(), count()
            if shifted == ZERO and by == ZERO:
                return ZERO
            low, high = _extremes(read(lanes))
            if by != ZERO or low != high or low > 63:
                return combined([shifted, by])
            return scaled(shifted, 1 << low)

        return rule

    def _shr(self) -> Rule:
        return self._quotient(lambda value: 1 << min(value, 63), "u32", _divided)

    def _div(self) -> Rule:
        return self._quotient(lambda value: value, self.type, _divided)

    def _rem(self) -> Rule:
        return self._quotient(lambda value: value, self.type, _remaining)

    def _quotient(
        self, divisor: Callable[[int], int], count_type: str, result: Callable[[Shift, int], Shift]
    ) -> Rule:
        gain, by = self.gains
        read, count = self.value(0, self.type), self.value(1, count_type)
        blockwise = self.blockwise

        def rule(lanes: Lanes) -> Gain:
            one, other = gain(), by()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            low, high = _extremes(count(lanes))
            if other != ZERO or low != high or divisor(low) <= 0:
                return combined([one, other])
            values = read(lanes)
            blockwise.stay_in_range(one, values, self.type)
            least, _ = _extremes(values)
            if self.op.instruction.opcode != "shr":  # which rounds down; a quotient, to zero
                if least < 0:
                    return combined([one])
                blockwise.region.limit(one, -least, None)
            return result(one, divisor(low))

        return rule

    def _and(self) -> Rule:
        return self._bits()

    def _or(self) -> Rule:
        return self._bits()

    def _xor(self) -> Rule:
        return self._bits()

    def _bits(self) -> Rule:
        """With a small number, these touch the low bits only."""
        gains = self.gains
        if self.type == "pred":
            return self._mixed()
        reads = [self.value(place, _BITS.get(self.type, self.type)) for place in (0, 1)]
        is_and = self.op.instruction.opcode == "and"

        def rule(lanes: Lanes) -> Gain:
            one, other = gains[0](), gains[1]()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            if one != ZERO and other != ZERO:
                return combined([one, other])
            which, gain = (0, one) if one != ZERO else (1, other)
            _, most = _extremes(reads[1 - which](lanes))
            unit = 1 << most.bit_length()
            x, y, z = (
                None if step is None or step % unit else 0 if is_and else step for step in gain
            )
            return x, y, z

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
            left, right = (read(lanes) for read in reads)
            first = self._compare(one, other, left, right, relation, self.type)
            if first is None:
                return combined([one, other])
            return _picked(one, other, first)

        return rule

    def _selp(self) -> Rule:
        a, b, p = self.gains
        read = self.value(2, "pred")

        def rule(lanes: Lanes) -> Gain:
            one, other = a(), b()
            if LOADED in (p(), one, other):
                return LOADED
            if p() != ZERO:
                self.blockwise.pin(p())
            if one == other:
                return one
            return _picked(one, other, np.asarray(read(lanes)))

        return rule

    def _cvt(self) -> Rule | None:
        types = [word for word in self.modifiers if word in _RANGES]
        if len(types) != 2 or "sat" in self.modifiers:
            return None
        gain, source = self.gains[0], types[1]
        read, blockwise = self.value(0, source), self.blockwise
        widens = np.iinfo(_dtype(types[0])).bits > np.iinfo(_dtype(source)).bits

        def rule(lanes: Lanes) -> Gain:
            found = gain()
            if widens and found != ZERO:
                blockwise.stay_in_range(found, read(lanes), source)
            return found

        return rule

    def _setp(self) -> Rule | None:
        relation = self.modifiers[0]
        gains = self.gains
        if self.type not in _RANGES and self.type not in _BITS:
            return None
        type_ = _BITS.get(self.type, self.type)
        reads = [self.value(place, type_) for place in (0, 1)]

        def rule(lanes: Lanes) -> Gain:
            one, other = gains[0](), gains[1]()
            rest = gains[2]() if len(gains) > 2 else ZERO
            if one == ZERO and other == ZERO:
                return rest
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            left, right = (read(lanes) for read in reads)
            self._compare(one, other, left, right, relation, type_)
            return rest

        return rule

    def _compare(
        self, one: Shift, other: Shift, left: Value, right: Value, relation: str, type_: str
    ) -> npt.NDArray[np.bool_] | None:
        """Keep to the blocks where the comparison has the same outcome in each lane.

        Returns
        -------
        ndarray of bool or None
            The outcome; None where it is not followed, and holds for this block alone.
        """
        region = self.blockwise.region
        for gain, values in ((one, left), (other, right)):
            self.blockwise.stay_in_range(gain, values, type_)
        distance = left.astype(np.int64) - right.astype(np.int64)
        if type_ == "u64" and max(_extremes(left)[1], _extremes(right)[1]) >= 2**63:
            region.pin(PINNED)
            return None
        gain = _difference(one, other)
        relation = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
        outcome = np.asarray(_RELATIONS[relation](distance))
        distance = np.asarray(distance)
        if None in gain:
            region.pin(gain)
        if relation in ("eq", "ne"):
            for part, least, most in (
                (distance[distance > 0], 1, None), (distance[distance < 0], None, -1),
                (distance[distance == 0], 0, 0),
            ):  # fmt: skip
                self._keep(gain, part, least, most)
            return outcome
        # Where it holds, the distance stays on this side of the border, else on the other.
        border = 0 if relation in ("lt", "ge") else 1
        below, above = distance[distance < border], distance[distance >= border]
        self._keep(gain, below, None, border - 1)
        self._keep(gain, above, border, None)
        return outcome

    def _keep(
        self, gain: Shift, distance: npt.NDArray[np.int64], least: int | None, most: int | None
    ) -> None:
        if len(distance := distance.reshape(-1)):
            low, high = int(distance.min()), int(distance.max())
            self.blockwise.region.limit(
                gain,
                None if least is None else least - low,
                None if most is None else most - high,
            )

    # Memory

    def _load(self) -> Rule:
        words = set(self.modifiers)
        address = self.op.instruction.operands[1]
        assert isinstance(address, Address)
        if self._constant_or_parameter(words):
            gain = self.blockwise.gain_of(self.op, address.base)
            is_kernels = self._is_kernels_parameter(address) or "const" in words
            return lambda lanes: ZERO if is_kernels and gain() == ZERO else LOADED
        return self._address(address, LOADED)

    def _constant_or_parameter(self, words: set[str]) -> bool:
        return any(word.partition("::")[0] in ("param", "const") for word in words)

    def _is_kernels_parameter(self, address: Address) -> bool:
        program = self.machine.program
        if program.function_of(self.op.index) != program.kernel.name:
            return False
        base = address.base
        if isinstance(base, Symbol):
            return base.name in program.parameter_offsets
        return isinstance(base, Register)

    def _address(self, operand: Operand, result: Gain) -> Rule:
        assert isinstance(operand, Address)
        words = {word.partition("::")[0] for word in self.modifiers}
        gain, op, blockwise = (
            self.blockwise.gain_of(self.op, operand.base),
            self.op,
            self.blockwise,
        )
        if "local" in words:

            def local(lanes: Lanes) -> Gain:
                if gain() != ZERO:
                    blockwise.reach(op, gain(), 1)
                return result

            return local
        modulus = SECTOR if "global" in words else _ROW
        is_global = "shared" not in words
        bounds = self._extent(operand) if is_global else None

        def rule(lanes: Lanes) -> Gain:
            found = gain()
            if found == ZERO:
                blockwise.shift = ZERO
                return result
            blockwise.reach(op, found, modulus)
            if bounds is not None:
                blockwise.keep_inside(found, *bounds(lanes))
            return result

        return rule

    def _extent(self, address: Address) -> Callable[[Lanes], tuple[int, int]]:
        """The bytes that the lanes reach, from the first to behind the last."""
        op = self.op
        if not isinstance(address.base, Register):
            return lambda lanes: (0, 0)
        read = self.machine.reader(op, address.base, "s64", picked=True)

        def extent(lanes: Lanes) -> tuple[int, int]:
            low, high = _extremes(read(lanes))
            return low + address.offset, high + address.offset + op.width

        return extent

    def _copy(self, instruction: Instruction) -> Rule | None:
        """``cp.async``: from global to shared memory."""
        addresses = [x for x in instruction.operands[:2] if isinstance(x, Address)]
        if len(addresses) != 2:
            return None
        to, source = (self.blockwise.gain_of(self.op, x.base) for x in addresses)
        sizes = [self.blockwise.gain_of(self.op, x) for x in instruction.operands[2:]]
        extent, op, blockwise = self._extent(addresses[1]), self.op, self.blockwise

        def rule(lanes: Lanes) -> Gain:
            if any(size() != ZERO for size in sizes):
                blockwise.lose(op, "how much is copied is not followed")
            if to() != ZERO:
                blockwise.reach(op, to(), _ROW)
            blockwise.reach(op, source(), SECTOR)
            if source() != ZERO:
                blockwise.keep_inside(source(), *extent(lanes))
            return ZERO

        return rule


_RELATIONS: dict[str, Callable[[Any], Any]] = {
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
}


def _signed(type_: str) -> str:
    return "s" + type_[1:] if type_[0] in "ub" else type_


def _dtype(type_: str) -> str:
    return f"{'i' if type_[0] == 's' else 'u'}{int(type_[1:]) // 8}"


def _is_plain(instruction: Instruction) -> bool:
    """Whether a move takes one register to another, unchanged."""
    return not any(isinstance(operand, Vector) for operand in instruction.operands)
