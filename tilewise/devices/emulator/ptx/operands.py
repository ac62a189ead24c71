"""Read the operands of instructions: the names of a function's scopes, and operands of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.compiler.ptx.text import shortened
from tilewise.devices.emulator.ptx.declarations import LONGEST
from tilewise.devices.emulator.ptx.lexer import NUMBER, parse_number, split_commas
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Function,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from tilewise.errors import CompileError, UnsupportedInstructionError

_SPECIAL = re.compile(
    r"^%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock_hi|clock64"
    r"|globaltimer|globaltimer_lo|globaltimer_hi|lanemask_(?:eq|le|lt|ge|gt)|dynamic_smem_size"
    r"|total_smem_size|aggr_smem_size|is_explicit_cluster|clusterid|nclusterid|cluster_ctaid"
    r"|cluster_nctaid|cluster_ctarank|cluster_nctarank|envreg\d+|pm\d+(?:_64)?"
    r"|reserved_smem_offset_(?:begin|end|cap|[01])|current_graph_exec)(?:\.[xyzw])?$"
)
_REGISTERS = re.compile(r"\.reg\s*(?:\.v[248]\s*)?\.(\w+)\s+(.*)$", re.S)
_FAMILY = re.compile(r"^([\w$%]+)<\s*(\d{1,9})\s*>$")
_NAME = re.compile(r"^[\w$%.]+$")
_PLUS = re.compile(r"^([\w$%.]+)\s*([+-])\s*(0[xX][0-9a-fA-F]+|\d+)$")
_BASE = re.compile(r"^([\w$%.]+)\s*(?:\+\s*([+-]?\s*(?:0[xX][0-9a-fA-F]+|\d+)U?))?$")
_BASE_MINUS = re.compile(r"^([\w$%.]+)\s*(-\s*(?:0[xX][0-9a-fA-F]+|\d+)U?)$")
_DEEPEST = 64  # scopes inside one another


@dataclass(frozen=True)
class _Family:
    """A family of registers: ``.reg .b32 %r<32>`` declares %r0 to %r31 of one scope."""

    prefix: str
    count: int
    type: str
    suffix: str


class Names:
    """The names that mean something at one place of a function, and the operands made of them.

    Registers and variables of nested scopes get names of their own, so that a function has one
    flat name space.
    """

    def __init__(self, function: Function, aliases: Mapping[str, str]) -> None:
        self.function, self._aliases = function, aliases
        self._scopes: list[dict[str, str]] = [{}]
        self._families: list[list[_Family]] = [[]]
        self._count = 0
        # The operands that were read in these scopes, by text: most of them come again and again.
        self._operands: dict[str, Operand] = {}

    @property
    def depth(self) -> int:
        """The number of open scopes."""
        return len(self._scopes)

    def enter(self) -> None:
        """Open a scope."""
        if len(self._scopes) > _DEEPEST:
            raise CompileError(
                f"the PTX of {self.function.name} has scopes nested more than {_DEEPEST} deep"
            )
        self._operands.clear()
        self._count += 1
        self._scopes.append({})
        self._families.append([])

    def leave(self) -> dict[str, str]:
        """Close a scope, and return the names that it declared, and what they are called."""
        self._operands.clear()
        self._families.pop()
        return self._scopes.pop()

    def declare(self, name: str) -> str:
        """Return the unique name of a name that this scope declares."""
        self._operands.clear()
        found = name if len(self._scopes) == 1 else f"{name}@{self._count}"
        self._scopes[-1][name] = found
        return found

    def registers(self, text: str) -> None:
        """Read ``.reg``."""
        match = _REGISTERS.match(text)
        if match is None:
            raise UnsupportedInstructionError(
                f"the emulator can't read the PTX declaration {shortened(text)!r}"
            )
        self._operands.clear()
        kind, names = match.groups()
        suffix = "" if len(self._scopes) == 1 else f"@{self._count}"
        for name in split_commas(names):
            if family := _FAMILY.match(name):
                self._families[-1].append(_Family(family[1], int(family[2]), kind, suffix))
            else:
                scoped = self.declare(name)
                self.function.registers[scoped] = Register(scoped, kind)

    def resolve(self, name: str) -> Register | Symbol | Special:
        """Return the register, special register or symbol that ``name`` means here."""
        function = self.function
        for depth in range(len(self._scopes) - 1, -1, -1):
            if name in self._scopes[depth]:
                scoped = self._scopes[depth][name]
                return function.registers.get(scoped) or Symbol(scoped)
            for family in self._families[depth]:
                number = name.removeprefix(family.prefix)
                if number != name and number.isdigit() and int(number) < family.count:
                    scoped = name + family.suffix
                    return function.registers.setdefault(scoped, Register(scoped, family.type))
        if _SPECIAL.match(name) or name == "WARP_SZ":
            return Special(name.lstrip("%"))
        if name.startswith("%"):
            raise UnsupportedInstructionError(f"the emulator does not know the register {name}")
        return Symbol(self._aliases.get(name, name))

    def register(self, name: str) -> Register:
        """Return the register that ``name`` means here."""
        found = self.resolve(name)
        if not isinstance(found, Register):
            raise UnsupportedInstructionError(f"the emulator takes a register, not {name!r}")
        return found

    def operand(self, text: str) -> Operand:
        """Return the operand that an instruction's text means here."""
        found = self._operands.get(text)
        if found is None:
            found = self._operands[text] = self._read(text)
        return found

    def _read(self, text: str) -> Operand:
        if len(text) > LONGEST:
            raise UnsupportedInstructionError("the emulator can't read an operand so long")
        if text == "_":
            return Sink()
        if text[0] in "{(":
            inner = split_commas(text[1:-1])
            if any(part[:1] in ("{", "(") for part in inner):
                raise UnsupportedInstructionError(
                    f"the emulator can't read the operand {shortened(text)!r}"
                )
            return Vector(tuple(self.operand(part) for part in inner))
        if text[0] == "[":
            return self._address(text[1:-1].strip())
        if text[0] == "!":
            return Negated(self.register(text[1:].strip()))
        if "|" in text:
            first, second = (part.strip() for part in text.split("|"))
            return Pair(*(None if each == "_" else self.register(each) for each in (first, second)))
        if NUMBER.match(text):
            return parse_number(text)
        match = _PLUS.match(text)
        if match:
            offset = int(match[3], 0) * (-1 if match[2] == "-" else 1)
            symbol = self.resolve(match[1])
            if isinstance(symbol, Symbol):
                return Symbol(symbol.name, offset)
        if not _NAME.match(text):
            raise UnsupportedInstructionError(
                f"the emulator can't read the operand {shortened(text)!r}"
            )
        return self.resolve(text)

    def _address(self, text: str) -> Address:
        text, *coordinates = split_commas(text)
        if coordinates:
            (vector,) = coordinates
            place, along = self._address(text), self.operand(vector)
            assert isinstance(along, Vector)
            return Address(place.base, place.offset, along.elements)
        if NUMBER.match(text):
            return Address(None, int(parse_number(text).value))
        match = _BASE.match(text) or _BASE_MINUS.match(text)
        base = None if match is None else self.resolve(match[1])
        if match is None or isinstance(base, Special):
            raise UnsupportedInstructionError(
                f"the emulator can't read the address [{shortened(text)}]"
            )
        offset = int((match[2] or "0").replace(" ", "").rstrip("U"), 0)
        return Address(base, offset)
