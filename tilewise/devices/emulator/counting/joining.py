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

That is applied only where it is confirmed: to the loads, or the stores, of a source line for which
the machine code of the same compilation has the same accesses
(:mod:`tilewise.devices.emulator.counting.confirming`). ``nvdisasm`` takes a quarter of a second to
read a kernel's machine code. Where nothing can join, no count depends on it, and it is read only
when a report is asked whether its counts are confirmed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, product

from tilewise.compiler import Compiled
from tilewise.devices.emulator.counting.confirming import (
    Comparison,
    Counted,
    Group,
    accesses_of,
    compare,
    is_access,
    of_matrix,
    shape_of,
)
from tilewise.devices.emulator.counting.symbolic import Values, Writers
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Address, Function, Instruction, Symbol

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
        another instruction. An access that is not here is counted as the PTX has it; so are all of
        a line that the machine code does not confirm.
    compare : callable
        Gives :attr:`reason`. It may read the machine code, and is called once.
    """

    accesses: Mapping[int, Counted] = field(default_factory=dict)
    compare: Callable[[], str] = lambda: ""

    @cached_property
    def reason(self) -> str:
        """Why the accesses of some lines are not confirmed; empty if all are confirmed."""
        return self.compare()

    @property
    def confirmed(self) -> bool:
        """Whether the machine code has the same accesses."""
        return not self.reason

    def counted(self, index: int, width: int) -> Counted:
        """Return the width and offset, in bytes, of the counted access for one of ``width``."""
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
    if not any(is_access(i) or of_matrix(i) for i in program.instructions):
        return Joining()
    # ptxas turns short branches into predicates, or not: it weighs what that costs. And it adds
    # an index to an array's place in one of two ways, by its version and the architecture.
    found: list[list[Group]] = []
    followed = [_Followed(program, function) for function in program.functions]
    for is_plain, over_branches in product((False, True), repeat=2):
        groups = _find(program, followed, is_plain, over_branches)
        if groups not in found:
            found.append(groups)
    if found == [[]]:
        return Joining({}, lambda: compare(program, compiled, []).reason)
    if [] not in found:
        found.append([])
    # Choose the groups that the machine code confirms, or confirms for most lines.
    compared = [(compare(program, compiled, groups), groups) for groups in found]
    best, groups = min(compared, key=lambda each: len(each[0].doubtful))
    if not best.doubtful:
        return Joining(accesses_of(groups))
    return Joining(accesses_of(_confirmed(groups, best)), lambda: best.reason)


def _confirmed(groups: Sequence[Group], found: Comparison) -> list[Group]:
    """Leave out the groups that have a member in a doubtful line.

    The lines of their other members are then doubtful too, and so on.
    """
    doubtful, kept = set(found.doubtful), list(groups)
    while True:
        out = [
            group for group in kept
            if any(found.keys[index] in doubtful for index in group.members)
        ]  # fmt: skip
        if not out:
            return kept
        doubtful.update(found.keys[index] for group in out for index in group.members)
        kept = [group for group in kept if group not in out]


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
        """The key of the accesses that may join. Sign extension is a part of a narrow load."""
        return self.root, self.size, self.is_signed

    @property
    def whole(self) -> int:
        """Bytes of the widest access that it may join in."""
        return min(4 * self.size, 16)

    @property
    def elements(self) -> range:
        return range(self.start, self.start + self.size * self.count, self.size)


def _orders(instruction: Instruction) -> bool:
    """Return whether no shared-memory access moves past an instruction that is not one itself."""
    if instruction.opcode in ("st", "atom", "red") or instruction.modifiers[:1] == ("store",):
        return not _OTHER_SPACES.intersection(instruction.modifiers)
    return instruction.opcode in _ORDERING


class _Followed:
    """A function, with the facts about it that every way to join its accesses needs.

    Attributes
    ----------
    function : Function
    writers : Writers or None
        The writers of the registers that the addresses of its accesses depend on; None if it has
        none.
    blocks : dict of bool to (set of int, set of int)
        The results of :func:`_blocks`, by ``over_branches``.
    """

    def __init__(self, program: Program, function: Function) -> None:
        self.function = function
        addresses = [
            operand
            for instruction in function.instructions
            if is_access(instruction)
            for operand in instruction.operands
            if isinstance(operand, Address)
        ]
        self.writers = Writers(program, function, addresses) if addresses else None
        ways = (False, True) if addresses else ()
        self.blocks = {over_branches: _blocks(function, over_branches) for over_branches in ways}


def _find(
    program: Program, followed: Sequence[_Followed], is_plain: bool, over_branches: bool
) -> list[Group]:
    found: list[Group] = []
    base = 0
    for each in followed:
        for section in _sections(program, each, is_plain, over_branches):
            for is_load, run in groupby(section, key=lambda access: access.is_load):
                members = list(run)
                if is_load:
                    found += _groups([a for a in members if a.is_joinable], base)
                else:
                    for stores in _store_runs(members):
                        found += _groups(stores, base)
        base += len(each.function.instructions)
    return found


def _sections(
    program: Program, followed: _Followed, is_plain: bool, over_branches: bool
) -> Iterator[list[_Access]]:
    """Yield the shared-memory accesses between two points that order them, block by block."""
    if followed.writers is None:
        return
    values = Values(program, followed.writers, is_plain)
    starts, uncertain = followed.blocks[over_branches]
    section: list[_Access] = []
    for instruction in followed.function.instructions:
        index = instruction.index
        if index in starts:
            yield section
            section = []
            values.enter(index)
        if is_access(instruction):
            section.append(_access(instruction, values, index not in uncertain))
        elif _orders(instruction):
            yield section
            section = []
        values.step(instruction, index not in uncertain)
    yield section


def _access(instruction: Instruction, values: Values, is_certain: bool) -> _Access:
    size, count = shape_of(instruction)
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
    """Yield runs of consecutive stores that lie within the bytes that one access may cover."""
    for key, run in groupby(stores, key=lambda s: (s.is_joinable, s.family, s.start // s.whole)):
        if key[0]:
            yield list(run)


def _groups(members: Iterable[_Access], base: int) -> Iterator[Group]:
    """Yield the groups that join, of accesses whose order is free.

    ``base`` is the index of the function's first instruction.
    """
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
                yield Group(
                    width, piece * width - inside[0].start,
                    tuple(base + access.index for access in inside),
                )  # fmt: skip


def _blocks(function: Function, over_branches: bool) -> tuple[set[int], set[int]]:
    """Return where basic blocks start, and which instructions may not run with their block.

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
