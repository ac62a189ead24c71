"""Define PTX as data: modules, functions, variables, instructions, operands (PTX ISA 4 and 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Register:
    """A declared register, by its unique name and PTX type."""

    name: str
    type: str


@dataclass(frozen=True)
class Special:
    """A special register, as ``tid.x``."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A constant. ``bits`` is set for ``0f``/``0d`` literals: their bit pattern and width."""

    value: int | float
    bits: tuple[int, int] | None = None


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, a function or a label, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """An address: ``[base + offset]``, or ``[base + offset, {coordinates}]``."""

    base: Register | Symbol | None
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """A vector: ``{a, b, ...}``."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """A pair: ``p|q``, two destinations; either may be None (``_``)."""

    first: Register | None
    second: Register | None


@dataclass(frozen=True)
class Negated:
    """A negated predicate: ``!p``."""

    register: Register


@dataclass(frozen=True)
class Sink:
    """A sink: ``_``, for a result that is not used."""


Operand = Register | Special | Immediate | Symbol | Address | Vector | Pair | Negated | Sink


def registers_of(operand: Operand | None) -> Iterator[Register]:
    """Yield every register of an operand, those of its address among them."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Negated):
        yield operand.register
    elif isinstance(operand, Address):
        yield from registers_of(operand.base)
        for coordinate in operand.coordinates:
            yield from registers_of(coordinate)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from registers_of(element)
    elif isinstance(operand, Pair):
        yield from registers_of(operand.first)
        yield from registers_of(operand.second)


_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction.

    Attributes
    ----------
    opcode : str
        The opcode, as ``ld``.
    modifiers : tuple of str
        The words behind it, as ``("global", "nc", "f32")``.
    operands : tuple of Operand
        The operands; those of ``call`` are the return variables (Vector), the callee, the arguments
        (Vector), and the prototype or target list if there is one.
    predicate : (Register, bool) or None
        The guard and whether it is negated.
    line : int
        The source line; 0 if there is none.
    index : int
        The position in its function.
    file : int
        The number of the line's file; 0 where there is none.
    sites : tuple of (int, int)
        The file and line of each call that was inlined around it, the innermost first.
    function : str
        The label, in the module's strings, of the inlined function that its line is in; empty
        where it was not inlined.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: tuple[Register, bool] | None
    line: int
    index: int
    file: int = 0
    sites: tuple[tuple[int, int], ...] = ()
    function: str = ""

    @property
    def is_strong(self) -> bool:
        """Return whether this is an access that others may see at once, as those of flags are."""
        return not _STRONG.isdisjoint(self.modifiers)

    def __str__(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Variable:
    """A variable in a state space.

    Attributes
    ----------
    space : str
        ``global``, ``const``, ``shared``, ``local`` or ``param``.
    type : str
        Type of an element.
    size : int
        Bytes; 0 for ``extern __shared__``.
    values : tuple
        Initial elements: numbers, or ``(mask, symbol, offset, generic)`` for addresses.
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    extern: bool = False
    values: tuple[int | float | tuple[int, str, int, bool], ...] = ()


@dataclass
class Function:
    """A kernel or a device function.

    Attributes
    ----------
    cluster : (int, int, int) or None
        Blocks of its clusters, if it says so.
    most_threads : int or None
        Threads that a block may have, if it says so: ``__launch_bounds__``.
    """

    name: str
    cluster: tuple[int, int, int] | None = None
    most_threads: int | None = None
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    registers: dict[str, Register] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class Module:
    """A translation unit.

    Attributes
    ----------
    functions : mapping
    variables : dict
    files : dict
        The names that ``.file`` gives, by number.
    unread : dict
        Variables that can't be read, and why; an error where a kernel names one.
    """

    functions: Mapping[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    strings: str = ""
    """The PTX text behind ``.debug_str``: the names of functions that were inlined."""
