"""Read PTX text into instructions and variables.

The grammar is that of the PTX ISA, sections 4 and 5, as far as NVRTC writes it. Registers and
variables of nested scopes get names of their own, so that a function has one flat name space.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace

from tilewise.devices.emulator.ptx.lexer import NUMBER, parse_number, split_commas, statements
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Function,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from tilewise.devices.emulator.ptx.types import TYPE_BYTES
from tilewise.errors import UnsupportedInstructionError

_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:.*function_name\s+([\w$]+).*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\b(?P<attributes>(?:\s+\.\w+(?:\s+\d+)?)*?)"
    r"(?:\s+\.v(?P<vector>[248]))?\s+\.(?P<type>pred|[usbf]\d+(?:x2)?|bf16(?:x2)?)\b(?:\s+\.ptr(?:\s+\.\w+)*(?:\s+\d+)?)?"
    r"\s+(?P<rest>.+)$",
    re.S,
)
_BOUNDS = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+(?:\s*,\s*\d+)*)")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_SPECIAL = re.compile(
    r"^%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock_hi|clock64"
    r"|globaltimer|globaltimer_lo|globaltimer_hi|lanemask_(?:eq|le|lt|ge|gt)|dynamic_smem_size"
    r"|total_smem_size|aggr_smem_size|is_explicit_cluster|clusterid|nclusterid|cluster_ctaid"
    r"|cluster_nctaid|cluster_ctarank|cluster_nctarank|envreg\d+|pm\d+)(?:\.[xyzw])?$"
)


@dataclass(frozen=True)
class _Family:
    """``.reg .b32 %r<32>``: the registers %r0 to %r31 of one scope."""

    prefix: str
    count: int
    type: str
    suffix: str


class _Parser:
    def __init__(self, text: str) -> None:
        self.module = Module()
        self.text = text
        self.function: Function | None = None
        self.scopes: list[dict[str, str]] = []
        self.families: list[list[_Family]] = []
        self.starts: list[tuple[int, int]] = []  # of each scope: instructions, and tables
        self.scope_count = 0
        # What was read in these scopes, by its text: most operands come again and again.
        self.operands: dict[str, Operand] = {}
        self._leave_lines()

    def _leave_lines(self) -> None:
        # File and line, and then those of the calls inlined around it, from the innermost on.
        self.place: tuple[tuple[int, int], ...] = ((0, 0),)
        self.inlined = ""  # the label of the innermost one's name
        self.places: dict[tuple[int, int, int], tuple[tuple[tuple[int, int], ...], str]] = {}

    def parse(self) -> Module:
        for kind, text in statements(self.text):
            if kind == "loc":
                self._loc(text)
            elif kind == "file":
                if match := _FILE.match(text):
                    self.module.files[int(match.group(1))] = match.group(2)
            elif kind == "open":
                self._open(text)
            elif kind == "close":
                self._close()
            elif kind == "label":
                assert self.function is not None
                self.function.labels[self._scoped(text)] = len(self.function.instructions)
            else:
                self._statement(text)
        self.module.strings = self.text.partition(".debug_str")[2]
        return self.module

    def _loc(self, text: str) -> None:
        match = _LOC.match(text)
        if match is None or int(match.group(2)) == 0:
            # Line 0 is the compiler's "no line of its own": the line before goes on.
            return
        file, line, column = map(int, match.groups()[:3])
        if match[4]:
            # A .loc before says where the function that it was inlined into was inlined itself.
            at_file, at_line, at_column = map(int, match.groups()[4:])
            outer, _ = self.places.get((at_file, at_line, at_column), (((at_file, at_line),), ""))
            # Once each: one that was inlined into itself would grow with every .loc.
            self.place, self.inlined = tuple(dict.fromkeys(((file, line), *outer))), match[4]
        else:
            # Behind a line 0 NVRTC leaves out where a place that it had before was inlined.
            alone = ((file, line),), ""
            self.place, self.inlined = self.places.get((file, line, column), alone)
        self.places[file, line, column] = self.place, self.inlined

    def _open(self, header: str) -> None:
        self.operands.clear()
        if header:
            self.function = self._header(header)
            self.module.functions[self.function.name] = self.function
            self.scopes, self.families, self.starts = [{}], [[]], [(0, 0)]
            self._leave_lines()
        else:
            self.scope_count += 1
            assert self.function is not None
            self.scopes.append({})
            self.families.append([])
            self.starts.append((len(self.function.instructions), len(self.function.tables)))

    def _close(self) -> None:
        self.operands.clear()
        names, starts = self.scopes.pop(), self.starts.pop()
        self.families.pop()
        self._rename_targets(names, *starts)
        if not self.scopes:
            self.function = None

    def _rename_targets(self, names: dict[str, str], start: int, first_table: int) -> None:
        """Branches to labels of a scope that stood further down were read before the labels."""
        assert self.function is not None
        instructions, tables = self.function.instructions, self.function.tables
        for index in range(start, len(instructions)):
            instruction = instructions[index]
            if instruction.opcode in ("bra", "brx"):
                operands = tuple(
                    Symbol(names[x.name]) if isinstance(x, Symbol) and x.name in names else x
                    for x in instruction.operands
                )
                instructions[index] = replace(instruction, operands=operands)
        for table in list(tables)[first_table:]:
            tables[table] = tuple(names.get(label, label) for label in tables[table])

    def _header(self, text: str) -> Function:
        match = re.search(
            r"\.(?:entry|func)\s*(?:\.noreturn\s*)?(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\((.*?)\))?",
            text,
            re.S,
        )
        if match is None:
            raise UnsupportedInstructionError(f"the emulator can't read the PTX header {text!r}")
        results, name, parameters = match.groups()
        function = Function(name)
        if cluster := _CLUSTER.search(text):
            x, y, z = (int(extent or 1) for extent in cluster.groups())
            function.cluster = x, y, z
        if bounds := _BOUNDS.search(text):
            function.most_threads = math.prod(map(int, bounds[1].split(",")))
        for part in split_commas(results or ""):
            variable = self._variable(part)
            function.results.append(variable)
            function.variables[variable.name] = variable
        for part in split_commas(parameters or ""):
            variable = self._variable(part)
            function.parameters.append(variable)
            function.variables[variable.name] = variable
        return function

    def _variable(self, text: str) -> Variable:
        match = _VARIABLE.search(text)
        if match is None:
            raise UnsupportedInstructionError(
                f"the emulator can't read the PTX declaration {text!r}"
            )
        space, kind = match["space"], match["type"]
        if kind not in TYPE_BYTES:
            raise UnsupportedInstructionError(f"the emulator does not know the PTX type .{kind}")
        rest, _, initial = match["rest"].partition("=")
        name_match = re.match(r"\s*([\w$%]+)\s*((?:\[\s*\d*\s*\]\s*)*)$", rest)
        if name_match is None:
            raise UnsupportedInstructionError(
                f"the emulator can't read the PTX declaration {text!r}"
            )
        name, extents = name_match.groups()
        count = int(match["vector"] or 1)
        for extent in re.findall(r"\[\s*(\d*)\s*\]", extents or ""):
            count *= int(extent or 0)
        element = TYPE_BYTES[kind]
        align_match = re.search(r"\.align\s+(\d+)", text)
        align = int(align_match.group(1)) if align_match else element * int(match["vector"] or 1)
        extern = ".extern" in text
        values = self._initial(initial.strip()) if initial.strip() else ()
        return Variable(name, space, kind, align, count * element, extern, values)

    def _initial(self, text: str) -> tuple[int | float | tuple[int, str, int, bool], ...]:
        parts = split_commas(text.strip()[1:-1]) if text.startswith("{") else [text]
        values: list[int | float | tuple[int, str, int, bool]] = []
        for part in parts:
            if part.startswith("{"):
                values.extend(self._initial(part))
            elif NUMBER.match(part):
                values.append(parse_number(part).value)
            else:
                match = re.match(
                    r"^(?:(0[xX][0-9a-fA-F]+)\s*\()?\s*(generic\s*\()?\s*([\w$]+)\s*\)?\s*"
                    r"([+-]\s*\d+)?\s*\)?\s*([+-]\s*\d+)?\s*\)?$",
                    part,
                )
                if match is None:
                    raise UnsupportedInstructionError(f"the emulator can't read {part!r} in PTX")
                mask, generic, symbol, inner, outer = match.groups()
                offset = int((inner or outer or "0").replace(" ", ""))
                values.append((int(mask, 16) if mask else -1, symbol, offset, generic is not None))
        return tuple(values)

    def _statement(self, text: str) -> None:
        if text.startswith("."):
            self._directive(text)
            return
        function = self.function
        assert function is not None
        predicate = None
        if text.startswith("@"):
            guard, text = text[1:].split(None, 1)
            register = self._resolve(guard.lstrip("!"))
            assert isinstance(register, Register)
            predicate = (register, guard.startswith("!"))
        head, rest = (*text.split(None, 1), "")[:2]
        opcode, modifiers = _words(head)
        operands = tuple(self._operand(part) for part in split_commas(rest))
        (file, line), *sites = self.place
        function.instructions.append(
            Instruction(
                opcode, modifiers, operands, predicate, line, len(function.instructions),
                file, tuple(sites), self.inlined,
            )
        )  # fmt: skip

    def _directive(self, text: str) -> None:
        word = text.split(None, 1)[0]
        if word in (".branchtargets", ".calltargets", ".callprototype"):
            assert self.function is not None
            # The label that was read last names the table.
            label = list(self.function.labels)[-1]
            del self.function.labels[label]
            if word == ".callprototype":
                self.function.tables[label] = ()
            else:
                self.function.tables[label] = tuple(split_commas(text[len(word) :]))
            return
        if word in (".pragma", ".alias", ".noreturn", ".maxntid", ".minnctapersm", ".section"):
            return
        if ".func" in text.split() or ".entry" in text.split():
            return  # a declaration without a body
        if word == ".reg":
            self._registers(text)
            return
        variable = self._variable(text)
        if self.function is None:
            self.module.variables[variable.name] = variable
        else:
            name = self._scoped(variable.name)
            self.function.variables[name] = Variable(
                name, variable.space, variable.type, variable.align, variable.size,
                variable.extern, variable.values,
            )  # fmt: skip

    def _scoped(self, name: str) -> str:
        self.operands.clear()
        if len(self.scopes) == 1:
            self.scopes[-1][name] = name
            return name
        self.scopes[-1][name] = f"{name}@{self.scope_count}"
        return self.scopes[-1][name]

    def _registers(self, text: str) -> None:
        assert self.function is not None
        self.operands.clear()
        kind, names = text.split(None, 2)[1:]
        suffix = "" if len(self.scopes) == 1 else f"@{self.scope_count}"
        for name in split_commas(names):
            if family := re.match(r"^([\w$%]+)<(\d+)>$", name):
                self.families[-1].append(
                    _Family(family.group(1), int(family.group(2)), kind[1:], suffix)
                )
            else:
                scoped = self._scoped(name)
                self.function.registers[scoped] = Register(scoped, kind[1:])

    def _resolve(self, name: str) -> Register | Symbol | Special:
        """The register, special register or symbol that ``name`` means here."""
        function = self.function
        assert function is not None
        for depth in range(len(self.scopes) - 1, -1, -1):
            if name in self.scopes[depth]:
                scoped = self.scopes[depth][name]
                return function.registers.get(scoped) or Symbol(scoped)
            for family in self.families[depth]:
                number = name.removeprefix(family.prefix)
                if number != name and number.isdigit() and int(number) < family.count:
                    scoped = name + family.suffix
                    return function.registers.setdefault(scoped, Register(scoped, family.type))
        if _SPECIAL.match(name) or name == "WARP_SZ":
            return Special(name.lstrip("%"))
        if name.startswith("%"):
            raise UnsupportedInstructionError(f"the emulator does not know the register {name}")
        return Symbol(name)

    def _operand(self, text: str) -> Operand:
        operand = self.operands.get(text)
        if operand is None:
            operand = self.operands[text] = self._read_operand(text)
        return operand

    def _read_operand(self, text: str) -> Operand:
        if text == "_":
            return Sink()
        if text[0] == "{":
            return Vector(tuple(self._operand(part) for part in split_commas(text[1:-1])))
        if text[0] == "(":
            return Vector(tuple(self._operand(part) for part in split_commas(text[1:-1])))
        if text[0] == "[":
            return self._address(text[1:-1].strip())
        if text[0] == "!":
            register = self._resolve(text[1:].strip())
            assert isinstance(register, Register)
            return Negated(register)
        if "|" in text:
            first, second = (part.strip() for part in text.split("|"))
            pair = [None if name == "_" else self._resolve(name) for name in (first, second)]
            assert all(p is None or isinstance(p, Register) for p in pair)
            return Pair(*pair)  # type: ignore[arg-type]
        if NUMBER.match(text):
            return parse_number(text)
        match = re.match(r"^([\w$%.]+)\s*([+-])\s*(0[xX][0-9a-fA-F]+|\d+)$", text)
        if match:
            offset = int(match.group(3), 0) * (-1 if match.group(2) == "-" else 1)
            symbol = self._resolve(match.group(1))
            if isinstance(symbol, Symbol):
                return Symbol(symbol.name, offset)
        if not re.match(r"^[\w$%.]+$", text):
            raise UnsupportedInstructionError(f"the emulator can't read the operand {text!r}")
        return self._resolve(text)

    def _address(self, text: str) -> Address:
        text, *coordinates = split_commas(text)
        if coordinates:
            (vector,) = coordinates
            place, along = self._address(text), self._operand(vector)
            assert isinstance(along, Vector)
            return Address(place.base, place.offset, along.elements)
        if NUMBER.match(text):
            return Address(None, int(parse_number(text).value))
        match = re.match(r"^([\w$%.]+)\s*(?:\+\s*([+-]?\s*(?:0[xX][0-9a-fA-F]+|\d+)))?$", text)
        if match is None:
            match = re.match(r"^([\w$%.]+)\s*(-\s*(?:0[xX][0-9a-fA-F]+|\d+))$", text)
        if match is None:
            raise UnsupportedInstructionError(f"the emulator can't read the address [{text}]")
        base = self._resolve(match.group(1))
        offset = int((match.group(2) or "0").replace(" ", ""), 0)
        if isinstance(base, Special):
            raise UnsupportedInstructionError(f"the emulator can't read the address [{text}]")
        return Address(base, offset)


@functools.lru_cache(4096)
def _words(head: str) -> tuple[str, tuple[str, ...]]:
    """The opcode and the modifiers: the parts between dots, of which ``::`` parts none."""
    opcode, *modifiers = (part for part in head.replace("::", "\0").split(".") if part)
    return opcode, tuple(word.replace("\0", "::") for word in modifiers)


def parse(text: str) -> Module:
    """Read a translation unit.

    Parameters
    ----------
    text : str
        PTX as NVRTC writes it.

    Returns
    -------
    Module

    Raises
    ------
    UnsupportedInstructionError
        If something in it is not understood.
    """
    return _Parser(text).parse()
