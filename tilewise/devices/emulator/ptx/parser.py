"""Read PTX text into instructions and variables.

The grammar is that of the PTX ISA, sections 4 and 5. A function is read when it is first asked
for, so that one that no kernel reaches may hold what is not known here; and an instruction that
can't be read is an error only where a thread reaches it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from tilewise.compiler.ptx.text import Body, Split, shortened, split
from tilewise.devices.emulator.ptx.declarations import header, name_of, variable
from tilewise.devices.emulator.ptx.lexer import split_commas, statements
from tilewise.devices.emulator.ptx.operands import Names
from tilewise.devices.emulator.ptx.syntax import (
    Function,
    Instruction,
    Module,
    Operand,
    Symbol,
    Vector,
)
from tilewise.errors import CompileError, UnsupportedInstructionError

UNREADABLE = "unreadable"
"""The opcode of an instruction that can't be read."""

_LOC = re.compile(
    r"\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\b"
    r"(?:\s*,\s*function_name\s+([\w$]+)(?:\s*\+\s*\d+)?)?"
    r"(?:\s*,\s*inlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\b)?"
    r"(?:\s+(?:prologue_end|epilogue_begin|basic_block|is_stmt\s+\d+|discriminator\s+\d+)\b)*"
)
_GUARD = re.compile(r"@\s*(!?)\s*([\w$%]+)\s*")
_WORD = re.compile(r"\.(\w+)")
_TABLES = ("branchtargets", "calltargets", "callprototype")
_SPACES = ("global", "const", "shared", "local", "param", "extern", "visible", "weak", "common")
# Vectors of one element, which Triton writes, are that element.
_SCALAR = frozenset(("ld", "ldu", "st", "mov", "atom", "red"))


class _Reader:
    """Read the instructions of one function."""

    def __init__(self, module: Split, body: Body) -> None:
        self.text = module.text[body.start : body.end]
        self.function = header(body)
        self.names = Names(self.function, module.aliases)
        # The number of instructions and tables before each scope.
        self.starts: list[tuple[int, int]] = [(0, 0)]
        # File and line, and then those of the calls inlined around it, from the innermost on.
        self.place: tuple[tuple[int, int], ...] = ((0, 0),)
        self.inlined = ""  # the label of the innermost one's name
        self.places: dict[tuple[int, int, int], tuple[tuple[tuple[int, int], ...], str]] = {}

    def read(self) -> Function:
        function, names = self.function, self.names
        begun = ""  # the beginning of an instruction that continues behind the line of its .loc
        for kind, text in statements(self.text):
            if kind == "statement":
                self._statement(f"{begun} {text}" if begun else text)
                begun = ""
            elif kind == "loc":
                begun = self._loc(text).strip()
            elif kind == "label":
                function.labels[names.declare(text)] = len(function.instructions)
            elif kind == "open":
                names.enter()
                self.starts.append((len(function.instructions), len(function.tables)))
            else:
                self._rename_targets(names.leave(), *self.starts.pop())
        if names.depth == 1:
            self._rename_targets(names.leave(), *self.starts.pop())
        self._check_targets()
        return function

    def _loc(self, text: str) -> str:
        """Read ``.loc``, and return the text behind it."""
        match = _LOC.match(text)
        if match is None:
            return ""
        rest = text[match.end() :]
        if rest[:1] == ",":
            rest = ""  # the text that is not known here
        if int(match[2]) == 0:
            # Line 0 is the compiler's "no line of its own": the line before continues.
            return rest
        file, line, column = map(int, match.groups()[:3])
        if match[5]:
            # A .loc before says where the function that it was inlined into was inlined itself.
            at_file, at_line, at_column = map(int, match.groups()[4:])
            outer, _ = self.places.get((at_file, at_line, at_column), (((at_file, at_line),), ""))
            # Once each: one that was inlined into itself would grow with every .loc.
            self.place = tuple(dict.fromkeys(((file, line), *outer)))
            self.inlined = match[4] or ""
        else:
            # Behind a line 0 NVRTC leaves out where a place that it had before was inlined.
            alone = ((file, line),), ""
            self.place, self.inlined = self.places.get((file, line, column), alone)
        self.places[file, line, column] = self.place, self.inlined
        return rest

    def _rename_targets(self, names: dict[str, str], start: int, first_table: int) -> None:
        """Branches to labels of a scope that stood further down were read before the labels."""
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

    def _check_targets(self) -> None:
        """Raise where a branch goes to a label that is not there."""
        function = self.function
        for instruction in function.instructions:
            if instruction.opcode in ("bra", "brx"):
                for operand in instruction.operands:
                    name = operand.name if isinstance(operand, Symbol) else None
                    for label in () if name is None else function.tables.get(name, (name,)):
                        if label not in function.labels:
                            raise CompileError(
                                f"the PTX of {function.name} branches to {label}, which is no "
                                "label of it"
                            )

    def _statement(self, text: str) -> None:
        if text[0] == ".":
            if text.startswith(".loc") and text[4].isspace():
                text = self._loc(text).lstrip()
                if text:
                    self._statement(text)
                return
            self._directive(text)
            return
        function = self.function
        try:
            made = self._instruction(text)
        except (UnsupportedInstructionError, AssertionError, IndexError, ValueError) as error:
            made = self._unreadable(text, error)
        function.instructions.append(made)

    def _instruction(self, text: str) -> Instruction:
        predicate = None
        if text[0] == "@":
            guard = _GUARD.match(text)
            assert guard is not None
            predicate = (self.names.register(guard[2]), guard[1] == "!")
            text = text[guard.end() :]
        head, rest = (*text.split(None, 1), "")[:2]
        opcode, modifiers = _words(head)
        operand = self.names.operand
        operands: tuple[Operand, ...] = tuple([operand(part) for part in split_commas(rest)])
        if "{" in rest and opcode in _SCALAR:
            operands = tuple(
                x.elements[0] if isinstance(x, Vector) and len(x.elements) == 1 else x
                for x in operands
            )
        (file, line), *sites = self.place
        return Instruction(
            opcode, modifiers, operands, predicate, line, len(self.function.instructions),
            file, tuple(sites), self.inlined,
        )  # fmt: skip

    def _unreadable(self, text: str, error: Exception) -> Instruction:
        """Return an instruction that raises an error when a thread reaches it."""
        known = isinstance(error, UnsupportedInstructionError)
        why = f"{error}, in " if known else "the emulator can't read the instruction "
        (file, line), *sites = self.place
        guard = _GUARD.match(text)
        predicate = None
        if guard is not None:
            with suppress(UnsupportedInstructionError):
                predicate = (self.names.register(guard[2]), guard[1] == "!")
        return Instruction(
            UNREADABLE, (f"{why}{shortened(text)!r}",), (), predicate, line,
            len(self.function.instructions), file, tuple(sites), self.inlined,
        )  # fmt: skip

    def _directive(self, text: str) -> None:
        function = self.function
        match = _WORD.match(text)
        word = match[1] if match else ""
        if word == "reg":
            self.names.registers(text)
        elif word in _TABLES:
            if not function.labels:
                raise CompileError(f"the PTX of {function.name} has a .{word} without a label")
            # The label that was read last names the table.
            label = next(reversed(function.labels))
            del function.labels[label]
            targets = () if word == "callprototype" else split_commas(text[len(word) + 1 :])
            function.tables[label] = tuple(targets)
        elif word in _SPACES:
            found = variable(text)
            name = self.names.declare(found.name)
            function.variables[name] = replace(found, name=name)
        # All other directives, as .pragma, say nothing about what is computed.


class _Functions(Mapping[str, Function]):
    """A module's functions, each read when it is first asked for."""

    def __init__(self, module: Split) -> None:
        self._module = module
        self._read: dict[str, Function] = {}

    def __getitem__(self, name: str) -> Function:
        found = self._read.get(name)
        if found is None:
            reader = _Reader(self._module, self._module.functions[name])
            found = self._read[name] = reader.read()
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._module.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._module.functions)

    def __len__(self) -> int:
        return len(self._module.functions)


@functools.lru_cache(4096)
def _words(head: str) -> tuple[str, tuple[str, ...]]:
    """Return the opcode and the modifiers: the parts between dots; ``::`` separates none."""
    opcode, *modifiers = (part for part in head.replace("::", "\0").split(".") if part)
    return opcode, tuple(word.replace("\0", "::") for word in modifiers)


def parse(text: str) -> Module:
    """Read a translation unit; its functions, when they are first asked for.

    Parameters
    ----------
    text : str
        PTX.

    Returns
    -------
    Module

    Raises
    ------
    CompileError
        If a bracket has no end.
    """
    found = split(text)
    strings = found.text.partition(".debug_str")[2]
    module = Module(_Functions(found), files=found.files, strings=strings)
    for statement in found.declarations:
        words = _WORD.findall(statement.partition("=")[0])
        if words[:1] == ["alias"]:
            alias, _, meant = statement.partition(".alias")[2].partition(",")
            found.aliases[alias.strip()] = meant.strip()
            continue
        if "func" in words or "entry" in words or not words or words[0] not in _SPACES:
            continue  # a declaration without a body, or a directive that computes nothing
        try:
            declared = variable(statement)
        except UnsupportedInstructionError as error:
            module.unread[name_of(statement)] = str(error)
        else:
            module.variables[declared.name] = declared
    return module
