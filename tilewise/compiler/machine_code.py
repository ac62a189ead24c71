"""The memory instructions of the machine code, read with ``nvdisasm``.

ptxas may join accesses, leave some out and repeat others, so what the hardware will do shows in
the machine code only. ``nvdisasm`` (PyPI: nvidia-cuda-nvdisasm) reads it and needs no GPU.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from tilewise.compiler import Compiled, cache, elections

INSTALL_HINT = "pip install nvidia-cuda-nvdisasm"
_PACKAGE = "nvidia-cuda-nvdisasm"
_SECONDS = 120.0
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([\w$.]+),")
_LINE = re.compile(r'^\s*//## File ".*", line (\d+)')
_LABEL = re.compile(r"^\.?[\w$]+.*:\s*$")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*)")
# Loads and stores of shared, global, local and generic memory, atomics, ldmatrix, cp.async.
_SHARED = ("LDS", "STS", "LDSM", "STSM", "ATOMS")
_OTHER = ("LDG", "STG", "LDL", "STL", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS")
_MEMORY = frozenset((*_SHARED, *_OTHER))
ATOMICS = ("ATOM", "ATOMG", "RED", "REDG")
"""The opcodes of atomics on global and on generic addresses."""
_FLOAT = re.compile(r"B?F(?:16|32|64)")
_OPERATIONS = frozenset(("ADD", "MIN", "MAX", "AND", "OR", "XOR", "INC", "DEC", "EXCH", "CAS"))
_WIDTHS = {
    "128": 128, "64": 64, "32": 32, "U16": 16, "S16": 16, "16": 16, "U8": 8, "S8": 8, "8": 8,
}  # fmt: skip


@dataclass(frozen=True)
class MemoryInstruction:
    """A load, store or atomic of the machine code.

    Attributes
    ----------
    line : int
        The source line (the innermost for inlined functions, in any file); 0 if none is known.
    opcode : str
        The opcode up to the first dot, such as ``"LDS"``.
    width : int
        The bits of a thread's access.
    predicate : str
        The guard, such as ``"@!P0"``; empty for none.
    operation : str
        The operation of an atomic on a global or generic address, such as ``"ADD"`` or
        ``"ADD.F32"``; empty for other instructions.
    lanes : str
        The lanes of a warp that execute such an atomic: a constant of
        :mod:`tilewise.compiler.elections`.
    """

    line: int
    opcode: str
    width: int
    predicate: str
    operation: str = ""
    lanes: str = elections.EACH


@dataclass(frozen=True)
class Disassembly:
    """The memory instructions of one kernel, in the machine code's order.

    Attributes
    ----------
    instructions : tuple of MemoryInstruction or None
        The instructions; None if the machine code could not be read.
    reason : str
        Why it could not be read; empty if it was.
    """

    instructions: tuple[MemoryInstruction, ...] | None
    reason: str = ""

    def counts(self, *opcodes: str) -> Counter[tuple[int, str, int]]:
        """Return the number of instructions for each (line, opcode, width in bits).

        Parameters
        ----------
        *opcodes : str
            The opcodes to count, such as ``"LDS"``; by default all.
        """
        return Counter(
            (i.line, i.opcode, i.width)
            for i in self.instructions or ()
            if not opcodes or i.opcode in opcodes
        )


_given: dict[Compiled, Disassembly] = {}


@lru_cache(maxsize=1)
def find_nvdisasm() -> Path | None:
    """Return ``nvdisasm`` of the PyPI package, else of the ``PATH``; None if there is none."""
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.stem == "nvdisasm" and file.suffix in ("", ".exe"):
            located = Path(str(file.locate()))
            if located.is_file():
                return located
    found = shutil.which("nvdisasm")
    return Path(found) if found else None


def remember(compiled: Compiled, instructions: Iterable[MemoryInstruction]) -> None:
    """Have :func:`disassemble` give these of a kernel, which has no machine code with it."""
    _given[compiled] = Disassembly(tuple(instructions))


@lru_cache(maxsize=256)
def disassemble(compiled: Compiled) -> Disassembly:
    """Read the memory instructions of a compiled kernel.

    Never raises for want of ``nvdisasm``: the result says why there are no instructions.
    """
    if (given := _given.get(compiled)) is not None:
        return given
    key = cache.key(("sass 2", compiled.symbol, sha256(compiled.cubin).hexdigest()))
    entry = cache.load(key)
    if entry is not None:
        return Disassembly(tuple(MemoryInstruction(*row) for row in entry["instructions"]))
    text, reason = _text(compiled.cubin)
    if reason:
        return Disassembly(None, reason)
    if f".text.{compiled.symbol}:" not in text:
        return Disassembly(None, f"nvdisasm shows no code for {compiled.symbol}")
    found = tuple(parse(text, compiled.symbol))
    cache.store(key, {"instructions": [astuple(each) for each in found]})
    return Disassembly(found)


@lru_cache(maxsize=2)
def _text(cubin: bytes) -> tuple[str, str]:
    """Return the text of a whole module, or why there is none."""
    program = find_nvdisasm()
    if program is None:
        return "", f"nvdisasm is not installed ({INSTALL_HINT})"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        # Text, because nvdisasm's JSON has no lines. -ndf: no analysis of branch targets.
        command = [str(program), "-c", "-g", "-ndf", str(file)]
        try:
            result = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return "", f"nvdisasm could not be run ({error})"
    if result.returncode != 0:
        return "", f"nvdisasm failed: {result.stderr.decode(errors='replace').strip()}"
    return result.stdout.decode(errors="replace"), ""


def parse(text: str, symbol: str) -> list[MemoryInstruction]:
    """Return the memory instructions of one kernel in the text of ``nvdisasm -c -g``.

    A called function that was not inlined is in its caller's section, and is read with it.
    """
    found: list[MemoryInstruction] = []
    inside, line, election = False, 0, elections.Elections()
    for row in text.splitlines():
        if section := _SECTION.match(row):
            inside, line, election = section[1] == symbol, 0, elections.Elections()
        elif not inside:
            continue
        elif place := _LINE.match(row):
            line = int(place[1])
        elif instruction := _INSTRUCTION.match(row):
            guard, name = instruction[1] or "", instruction[2]
            opcode, *modifiers = name.split(".")
            if opcode in ATOMICS:
                found.append(_atomic(line, name, guard, election))
            elif opcode in _MEMORY:
                widths = [_WIDTHS[each] for each in modifiers if each in _WIDTHS]
                found.append(MemoryInstruction(line, opcode, (widths or [32])[-1], guard))
            election.step(line, guard, name, [each.strip() for each in instruction[3].split(",")])
        elif _LABEL.match(row):
            election.label()
    atomics = [at for at, each in enumerate(found) if each.opcode in ATOMICS]
    said = [(found[at].line, (found[at].operation, found[at].width), found[at].lanes)
            for at in atomics]  # fmt: skip
    for at, lanes in zip(atomics, election.settled(said), strict=True):
        found[at] = replace(found[at], lanes=lanes)
    return found


def _atomic(line: int, name: str, guard: str, election: elections.Elections) -> MemoryInstruction:
    opcode, *modifiers = name.split(".")
    at = next((i for i, each in enumerate(modifiers) if each in _OPERATIONS), None)
    operation = "" if at is None else modifiers[at]
    kind = next((each for each in modifiers if _FLOAT.match(each)), "")
    width = 64 if any(each.endswith("64") for each in modifiers) else 32
    return MemoryInstruction(
        line, opcode, width, guard, f"{operation}.{kind}" if kind else operation,
        election.lanes(guard),
    )  # fmt: skip
