"""Count shared-memory accesses as ptxas joins them.

After PTX, ptxas joins loads (and stores) of neighbouring shared memory into wider ones, and a
wide access has other bank conflicts than the narrow ones that it replaces. What it joins was
found by experiment (``tests/devices/emulator/test_joining.py`` is the table):

- Loads of one element size join where one basic block has them with nothing between that orders
  shared memory (a store to it, an atomic, a barrier, a fence, a call); their own order is free.
- Four elements of 2 or 4 bytes whose whole is aligned to its size become one access where at
  least three of them are loaded; else aligned pairs become one. Elements of 8 bytes join by
  aligned pairs. Single bytes, ``volatile`` and predicated accesses never join.
- Stores join in the same way, but none of the four may be missing, and they must follow one
  another with nothing between that reaches shared memory.

It is applied only where it is confirmed: where the machine code of the same compilation has the
same accesses from each source line. Reading that takes ``nvdisasm`` a quarter of a second a kernel.
Where nothing can join, no count depends on it, and it is read only when a report is asked whether
its counts are confirmed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, product

from tilewise.compiler import Compiled
from tilewise.compiler import machine_code as sass
from tilewise.devices.emulator.counting.lines import machine_lines, names
from tilewise.devices.emulator.counting.symbolic import Values
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Address, Function, Instruction, Symbol
from tilewise.devices.emulator.ptx.types import TYPE_BYTES
from tilewise.devices.emulator.ptx.wmma import Matrix

Counted = tuple[int, int] | None

_KINDS = {"ld": "LDS", "st": "STS"}
_ORDERING = frozenset(
    ("bar", "barrier", "membar", "fence", "call", "mbarrier", "cp", "stmatrix", "wgmma", "tcgen05")
)
_OTHER_SPACES = frozenset(("global", "local", "param", "const"))
_LONGEST_BRANCH = 12  # instructions that ptxas still predicates rather than jump over


@dataclass(frozen=True)
class Joining:
    """How the shared-memory accesses of one program are counted.

    Attributes
    ----------
    accesses : mapping of int to (int, int) or None
        Instruction index to the width in bytes of the access that it is counted as, and where
        that begins, in bytes from the instruction's own address; None where it is counted with
        another instruction. An access that is not here is counted as it is. Empty unless
        ``confirmed``.
    compare : callable
        Gives :attr:`reason`. It may read the machine code, and is called once.
    """

    accesses: Mapping[int, Counted] = field(default_factory=dict)
    compare: Callable[[], str] = lambda: ""

    @cached_property
    def reason(self) -> str:
        """Why the accesses are not confirmed; empty if they are."""
        return self.compare()

    @property
    def confirmed(self) -> bool:
        """Whether the machine code has the same accesses."""
        return not self.reason

    def counted(self, index: int, width: int) -> Counted:
        """Width and offset, in bytes, at which an access of ``width`` bytes is counted."""
        return self.accesses.get(index, (width, 0))


def join(program: Program, compiled: Compiled) -> Joining:
    """Find what ptxas joined in a program, and confirm it by the machine code.

    Parameters
    ----------
    program : Program
        The indices in the result are those of ``program.instructions``.
    compiled : Compiled
        The same kernel.
    """
    if missing := compiled.resources.missing:
        return Joining({}, lambda: f"there is no machine code: {missing}")
    if not any(_is_access(i) or _of_matrix(i) for i in program.instructions):
        return Joining()
    # ptxas turns short branches into predicates, or not: it weighs what that costs. And it adds
    # an index to an array's place in one of two ways, by its version and the architecture.
    found: list[dict[int, Counted]] = []
    for is_plain, over_branches in product((False, True), repeat=2):
        accesses = _find(program, is_plain, over_branches)
        if accesses not in found:
            found.append(accesses)
    if found == [{}]:
        return Joining({}, lambda: _unlike(program, compiled, {}))
    reasons = [_unlike(program, compiled, accesses) for accesses in found]
    for accesses, reason in zip(found, reasons, strict=True):
        if not reason:
            return Joining(accesses)
    if not _unlike(program, compiled, {}):
        return Joining()
    return Joining({}, lambda: reasons[0])


def _unlike(program: Program, compiled: Compiled, accesses: Mapping[int, Counted]) -> str:
    """Why the machine code does not confirm the accesses; empty if it does."""
    read = sass.disassemble(compiled)
    if read.instructions is None:
        return read.reason
    machine = read.counts(*_KINDS.values())
    lines = machine_lines(program, compiled)
    ours = _counts(program, accesses, lines)
    accessed = [
        at for at, each in enumerate(program.instructions) if _is_access(each) or _of_matrix(each)
    ]
    return _difference(ours, machine, names(program, compiled, lines, accessed))


@dataclass(frozen=True)
class _Access:
    """A shared-memory access: ``count`` elements of ``size`` bytes at ``root + start``."""

    index: int
    is_load: bool
    is_joinable: bool
    size: int
    count: int
    is_signed: bool = False
    root: int = 0
    zeros: int = 0
    start: int = 0

    @property
    def family(self) -> tuple[int, int, bool]:
        """Only accesses of one family join. Sign extension is a part of a narrow load."""
        return self.root, self.size, self.is_signed

    @property
    def whole(self) -> int:
        """Bytes of the widest access that it may join in."""
        return min(4 * self.size, 16)

    @property
    def elements(self) -> range:
        return range(self.start, self.start + self.size * self.count, self.size)


def _is_shared(instruction: Instruction) -> bool:
    return any(m in ("shared", "shared::cta") for m in instruction.modifiers)


def _is_access(instruction: Instruction) -> bool:
    return instruction.opcode in _KINDS and _is_shared(instruction)


def _of_matrix(instruction: Instruction) -> Counter[tuple[str, int]]:
    """The shared accesses, by kind and width in bits, that a matrix of a warp is moved by."""
    if instruction.opcode != "wmma" or not _is_shared(instruction):
        return Counter()
    matrix = Matrix.of(instruction)
    if matrix.is_by_rows:
        return Counter()
    kind = _KINDS["ld" if "load" in instruction.modifiers else "st"]
    return Counter((kind, 8 * each.count * matrix.unit) for each in matrix.transfers)


def _shape(instruction: Instruction) -> tuple[int, int]:
    """Bytes of an element, and elements."""
    vectors = [int(m[1:]) for m in instruction.modifiers if m in ("v2", "v4", "v8")]
    return TYPE_BYTES[instruction.modifiers[-1]], (vectors or [1])[0]


def _orders(instruction: Instruction) -> bool:
    """Whether no shared-memory access moves past an instruction that is not one itself."""
    if instruction.opcode in ("st", "atom", "red") or instruction.modifiers[:1] == ("store",):
        return not _OTHER_SPACES.intersection(instruction.modifiers)
    return instruction.opcode in _ORDERING


def _counts(
    program: Program, accesses: Mapping[int, Counted], lines: Sequence[int] = ()
) -> Counter[tuple[int, str, int]]:
    """Accesses of each (line, kind, width in bits), joined ones once."""
    lines = lines or [instruction.line for instruction in program.instructions]
    counts: Counter[tuple[int, str, int]] = Counter()
    for index, instruction in enumerate(program.instructions):
        if _is_access(instruction):
            size, count = _shape(instruction)
            counted = accesses.get(index, (size * count, 0))
            if counted is not None:
                counts[lines[index], _KINDS[instruction.opcode], 8 * counted[0]] += 1
        for (kind, width), number in _of_matrix(instruction).items():
            counts[lines[index], kind, width] += number
    return counts


def _difference(
    ours: Counter[tuple[int, str, int]],
    machine: Counter[tuple[int, str, int]],
    places: Mapping[int, str],
) -> str:
    """Where the machine code has other accesses; empty if nowhere.

    Lines of one number count together, of whichever file: that both sides do alike.

    ptxas may repeat a loop's body, which changes no count of a launch: the widths of a line
    must stand in the same proportion, and there may be no fewer.
    """
    sides: dict[tuple[int, str], tuple[Counter[int], Counter[int]]]
    sides = defaultdict(lambda: (Counter(), Counter()))
    for side, counts in enumerate((ours, machine)):
        for (line, kind, width), number in counts.items():
            sides[line, kind][side][width] += number
    for (line, kind), (expected, found) in sorted(sides.items()):
        total, found_total = expected.total(), found.total()
        widths = expected.keys() | found.keys()
        if found_total < total or any(
            expected[width] * found_total != found[width] * total for width in widths
        ):
            what = "loads" if kind == "LDS" else "stores"
            return (
                f"the shared {what} of {places.get(line, f'line {line}')} are {_shown(found)} in "
                f"the machine code, where the PTX lets expect {_shown(expected)}"
                f"{_cause(expected, found)}"
            )
    return ""


def _cause(expected: Counter[int], found: Counter[int]) -> str:
    """What ptxas does that makes more, or fewer, bytes of a line's accesses."""
    before, after = (sum(n * width for width, n in each.items()) for each in (expected, found))
    if after > before:
        return (
            ": as where ptxas repeats a loop's body, and joins accesses of one round and the next"
        )
    if after < before:
        return (
            ": as where ptxas makes one access of two that never both happen, in an if and its else"
        )
    return ""


def _shown(widths: Counter[int]) -> str:
    parts = [f"{number} of {width} bits" for width, number in sorted(widths.items())]
    return " and ".join(parts) or "none"


def _find(program: Program, is_plain: bool, over_branches: bool) -> dict[int, Counted]:
    accesses: dict[int, Counted] = {}
    base = 0
    for function in program.functions:
        for section in _sections(program, function, is_plain, over_branches):
            for is_load, run in groupby(section, key=lambda access: access.is_load):
                members = list(run)
                if is_load:
                    _join([a for a in members if a.is_joinable], base, accesses)
                else:
                    for stores in _store_runs(members):
                        _join(stores, base, accesses)
        base += len(function.instructions)
    return accesses


def _sections(
    program: Program, function: Function, is_plain: bool, over_branches: bool
) -> Iterator[list[_Access]]:
    """The shared-memory accesses between two points that order them, block by block."""
    shared = [i for i in function.instructions if _is_access(i)]
    if not shared:
        return
    addresses = [o for i in shared for o in i.operands if isinstance(o, Address)]
    values = Values(program, function, addresses, is_plain)
    starts, uncertain = _blocks(function, over_branches)
    section: list[_Access] = []
    for instruction in function.instructions:
        index = instruction.index
        if index in starts:
            yield section
            section = []
            values.enter(index)
        if _is_access(instruction):
            section.append(_access(instruction, values, index not in uncertain))
        elif _orders(instruction):
            yield section
            section = []
        values.step(instruction, index not in uncertain)
    yield section


def _access(instruction: Instruction, values: Values, is_certain: bool) -> _Access:
    size, count = _shape(instruction)
    is_load = instruction.opcode == "ld"
    address = values.address(next(o for o in instruction.operands if isinstance(o, Address)))
    is_joinable = (
        is_certain
        and size > 1
        and instruction.predicate is None
        and "volatile" not in instruction.modifiers
    )
    if address is None or not is_joinable:
        return _Access(instruction.index, is_load, False, size, count)
    is_signed = is_load and size == 2 and instruction.modifiers[-1] == "s16"
    return _Access(
        instruction.index, is_load, True, size, count, is_signed,
        address.root, address.zeros, address.offset,
    )  # fmt: skip


def _store_runs(stores: Iterable[_Access]) -> Iterator[list[_Access]]:
    """Stores that follow one another within what one access may cover."""
    for key, run in groupby(stores, key=lambda s: (s.is_joinable, s.family, s.start // s.whole)):
        if key[0]:
            yield list(run)


def _join(members: list[_Access], base: int, accesses: dict[int, Counted]) -> None:
    """Record what joins among accesses whose order is free."""
    families: dict[tuple[int, int, bool], list[_Access]] = defaultdict(list)
    for member in members:
        families[member.family].append(member)
    for (_, size, _), family in families.items():
        alone = family
        for width in sorted({family[0].whole, 2 * size, size}, reverse=True):
            if width > 1 << family[0].zeros and width > size:
                continue
            pieces: dict[int, list[_Access]] = defaultdict(list)
            for access in alone:
                pieces[access.start // width].append(access)
            alone = []
            for piece, inside in pieces.items():
                present = {element for access in inside for element in access.elements}
                missing = width // size - len(present)
                allowed = 1 if width == 4 * size and family[0].is_load else 0
                if len(inside) < 2 or missing > allowed:
                    alone += inside
                    continue
                leader, *others = inside
                accesses[base + leader.index] = (width, piece * width - leader.start)
                for other in others:
                    accesses[base + other.index] = None


def _blocks(function: Function, over_branches: bool) -> tuple[set[int], set[int]]:
    """Where basic blocks start, and instructions that do not run whenever their block does.

    With ``over_branches``, a short branch over a few instructions ends no block.
    """
    sources: dict[int, list[int]] = defaultdict(list)
    for instruction in function.instructions:
        if instruction.opcode in ("bra", "brx"):
            for operand in instruction.operands:
                if isinstance(operand, Symbol):
                    for name in function.tables.get(operand.name, (operand.name,)):
                        sources[function.labels[name]].append(instruction.index)
    starts: set[int] = {0}
    uncertain: set[int] = set()
    short: set[int] = set()
    if over_branches:
        for target, origins in sources.items():
            if all(_is_short(function, sources, origin, target) for origin in origins):
                short.update(origins)
                for origin in origins:
                    uncertain.update(range(origin + 1, target))
    for target, origins in sources.items():
        if not short.issuperset(origins):
            starts.add(target)
    for instruction in function.instructions:
        is_jump = instruction.opcode in ("bra", "brx") and instruction.index not in short
        ends = instruction.opcode in ("ret", "exit", "trap") and instruction.predicate is None
        if is_jump or ends:
            starts.add(instruction.index + 1)
    return starts, uncertain


def _is_short(
    function: Function, sources: Mapping[int, list[int]], origin: int, target: int
) -> bool:
    branch = function.instructions[origin]
    inside = function.instructions[origin + 1 : target]
    return (
        branch.opcode == "bra"
        and branch.predicate is not None
        and 0 < len(inside) <= _LONGEST_BRANCH
        and not any(i.opcode in ("bra", "brx", "ret", "exit", "bar", "call") for i in inside)
        and not any(origin < place < target for place in sources)
    )
