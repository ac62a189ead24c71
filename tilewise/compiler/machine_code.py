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
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from tilewise.compiler import Compiled, cache

INSTALL_HINT = "pip install nvidia-cuda-nvdisasm"
_PACKAGE = "nvidia-cuda-nvdisasm"
_SECONDS = 120.0
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([\w$.]+),")
_LINE = re.compile(r'^\s*//## File ".*", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)")
# Loads and stores of shared, global, local and generic memory, atomics, ldmatrix, cp.async.
_SHARED = ("LDS", "STS", "LDSM", "STSM", "ATOMS")
_OTHER = ("LDG", "STG", "LDL", "STL", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS")
_MEMORY = frozenset((*_SHARED, *_OTHER))
_WIDTHS = {
    "128": 128, "64": 64, "32": 32, "U16": 16, "S16": 16, "16": 16, "U8": 8, "S8": 8, "8": 8,
}  # fmt: skip


@dataclass(frozen=True)
class MemoryInstruction:
    """One load, store or atomic of the machine code.

    Attributes
    ----------
    line : int
        Source line (the innermost, where functions were inlined, of whichever file has it); 0
        where none is known.
    opcode : str
        Without what follows the first dot, as ``"LDS"``.
    width : int
        Bits a thread.
    predicate : str
        The guard, as ``"@!P0"``; empty for none.
    """

    line: int
    opcode: str
    width: int
    predicate: str


@dataclass(frozen=True)
class Disassembly:
    """The memory instructions of one kernel, in the machine code's order.

    Attributes
    ----------
    instructions : tuple of MemoryInstruction or None
        None where the machine code could not be read.
    reason : str
        Why not; empty where it was read.
    """

    instructions: tuple[MemoryInstruction, ...] | None
    reason: str = ""

    def counts(self, *opcodes: str) -> Counter[tuple[int, str, int]]:
        """How many instructions there are of each (line, opcode, width in bits).

        Parameters
        ----------
        *opcodes : str
            Which to count, as ``"LDS"``; all of them if none is named.
        """
        return Counter(
            (i.line, i.opcode, i.width)
            for i in self.instructions or ()
            if not opcodes or i.opcode in opcodes
        )


@lru_cache(maxsize=1)
def find_nvdisasm() -> Path | None:
    """``nvdisasm`` of the PyPI package, else of the ``PATH``; None if there is none."""
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


@lru_cache(maxsize=256)
def disassemble(compiled: Compiled) -> Disassembly:
    """Read the memory instructions of a compiled kernel.

    Never raises for want of ``nvdisasm``: the result says why there are no instructions.
    """
    key = cache.key(("sass", compiled.symbol, sha256(compiled.cubin).hexdigest()))
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
    """The text of a whole module, or why there is none."""
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


def parse(text: str, symbol: str) -> Iterator[MemoryInstruction]:
    """The memory instructions of one kernel in the text of ``nvdisasm -c -g``.

    A called function that was not inlined stands in its caller's section, and is read with it.
    """
    inside, line = False, 0
    for row in text.splitlines():
        if section := _SECTION.match(row):
            inside, line = section[1] == symbol, 0
        elif not inside:
            continue
        elif place := _LINE.match(row):
            line = int(place[1])
        elif instruction := _INSTRUCTION.match(row):
            opcode, *modifiers = instruction[2].split(".")
            if opcode in _MEMORY:
                widths = [_WIDTHS[each] for each in modifiers if each in _WIDTHS]
                yield MemoryInstruction(line, opcode, (widths or [32])[-1], instruction[1] or "")
