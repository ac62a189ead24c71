"""Compare a program's expected shared-memory accesses with those of its machine code.

The expected ones are those of the PTX, joined as ptxas should have joined them. For each source
line, the machine code must have the same loads and stores of each width, or a multiple of them
where ptxas unrolls a loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewise.compiler import Compiled
from tilewise.compiler import machine_code as sass
from tilewise.devices.emulator.counting.lines import machine_lines, names
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.ptx.types import TYPE_BYTES
from tilewise.devices.emulator.ptx.wmma import Matrix

Counted = tuple[int, int] | None

KINDS = {"ld": "LDS", "st": "STS"}


@dataclass(frozen=True)
class Group:
    """A group of accesses that ptxas joins into one.

    Attributes
    ----------
    width : int
        Bytes of the joined access.
    offset : int
        The place where it begins, in bytes from the address of the first member.
    members : tuple of int
        The instructions' indices.
    """

    width: int
    offset: int
    members: tuple[int, ...]


def accesses_of(groups: Iterable[Group]) -> dict[int, Counted]:
    """Return the widths and offsets at which the members of groups are counted."""
    found: dict[int, Counted] = {}
    for group in groups:
        first, *others = group.members
        found[first] = (group.width, group.offset)
        found.update(dict.fromkeys(others))
    return found


_Key = tuple[int, str]
"""A line, and ``"LDS"`` for its loads or ``"STS"`` for its stores."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing a program's accesses with those of its machine code.

    Attributes
    ----------
    keys : mapping of int to (int, str)
        The line and the kind of each instruction that is an access.
    doubtful : frozenset of (int, str)
        The lines and kinds for which the machine code has other accesses than expected.
    reason : str
        The accesses that the machine code has at the first of those lines, or why it can't be read.
    """

    keys: Mapping[int, _Key]
    doubtful: frozenset[_Key] = frozenset()
    reason: str = ""


def compare(program: Program, compiled: Compiled, groups: Iterable[Group]) -> Comparison:
    """Compare a program's accesses, joined by groups, with those of the machine code."""
    lines = machine_lines(program, compiled)
    keys = {
        index: (lines[index], KINDS[each.opcode])
        for index, each in enumerate(program.instructions)
        if is_access(each)
    }
    read = sass.disassemble(compiled)
    if read.instructions is None:
        return Comparison(keys, frozenset(keys.values()), read.reason)
    sides: dict[_Key, tuple[Counter[int], Counter[int]]]
    sides = defaultdict(lambda: (Counter(), Counter()))
    ours = counts_of(program, accesses_of(groups), lines)
    for side, counts in enumerate((ours, read.counts(*KINDS.values()))):
        for (line, kind, width), number in counts.items():
            sides[line, kind][side][width] += number
    doubtful = sorted(key for key, each in sides.items() if _differ(*each))
    if not doubtful:
        return Comparison(keys)
    accessed = [
        at for at, each in enumerate(program.instructions) if is_access(each) or of_matrix(each)
    ]
    places = names(program, compiled, lines, accessed)
    return Comparison(keys, frozenset(doubtful), _difference(doubtful, sides, places))


def _is_shared(instruction: Instruction) -> bool:
    return any(m in ("shared", "shared::cta") for m in instruction.modifiers)


def is_access(instruction: Instruction) -> bool:
    """Return whether an instruction is a load from shared memory or a store to it."""
    return instruction.opcode in KINDS and _is_shared(instruction)


def of_matrix(instruction: Instruction) -> Counter[tuple[str, int]]:
    """Return the shared accesses of a ``wmma`` load or store, by kind and width in bits."""
    if instruction.opcode != "wmma" or not _is_shared(instruction):
        return Counter()
    matrix = Matrix.of(instruction)
    if matrix.is_by_rows:
        return Counter()
    kind = KINDS["ld" if "load" in instruction.modifiers else "st"]
    return Counter((kind, 8 * each.count * matrix.unit) for each in matrix.transfers)


def shape_of(instruction: Instruction) -> tuple[int, int]:
    """Return the bytes of an element, and the number of elements."""
    vectors = [int(m[1:]) for m in instruction.modifiers if m in ("v2", "v4", "v8")]
    return TYPE_BYTES[instruction.modifiers[-1]], (vectors or [1])[0]


def counts_of(
    program: Program, accesses: Mapping[int, Counted], lines: Sequence[int] = ()
) -> Counter[tuple[int, str, int]]:
    """Return the accesses of each (line, kind, width in bits); a joined one counts once."""
    lines = lines or [instruction.line for instruction in program.instructions]
    counts: Counter[tuple[int, str, int]] = Counter()
    for index, instruction in enumerate(program.instructions):
        if is_access(instruction):
            size, count = shape_of(instruction)
            counted = accesses.get(index, (size * count, 0))
            if counted is not None:
                counts[lines[index], KINDS[instruction.opcode], 8 * counted[0]] += 1
        for (kind, width), number in of_matrix(instruction).items():
            counts[lines[index], kind, width] += number
    return counts


def _differ(ours: Counter[int], machine: Counter[int]) -> bool:
    """Return whether the machine code has other accesses, by width in bits, for one line and kind.

    ptxas may unroll a loop, which changes no count of a launch: the numbers of the widths must
    have the same proportion, and may not be smaller.
    """
    total, found = ours.total(), machine.total()
    widths = ours.keys() | machine.keys()
    return found < total or any(ours[width] * found != machine[width] * total for width in widths)


def _difference(
    doubtful: Sequence[_Key],
    sides: Mapping[_Key, tuple[Counter[int], Counter[int]]],
    places: Mapping[int, str],
) -> str:
    """Return a sentence on the first line where the machine code has other accesses.

    Lines of one number in several files count together, on both sides.
    """
    (line, kind), *others = doubtful
    expected, found = sides[line, kind]
    more = len({each for each, _ in others} - {line})
    return (
        f"the shared {'loads' if kind == 'LDS' else 'stores'} of "
        f"{places.get(line, f'line {line}')} are {_shown(found)} in the machine code, and by the "
        f"PTX should be {_shown(expected)}{_cause(expected, found)}"
        + (f"; {more} more line{'s are' if more > 1 else ' is'} in doubt" if more else "")
    )


def _cause(expected: Counter[int], found: Counter[int]) -> str:
    """Return what ptxas may have done if a line's accesses have more bytes or fewer."""
    before, after = (sum(n * width for width, n in each.items()) for each in (expected, found))
    if after > before:
        return (
            ": that happens where ptxas unrolls a loop and joins accesses of different iterations"
        )
    if after < before:
        return ": that happens where ptxas merges an access in an if with one in its else"
    return ""


def _shown(widths: Counter[int]) -> str:
    parts = [f"{number} of {width} bits" for width, number in sorted(widths.items())]
    return " and ".join(parts) or "none"
