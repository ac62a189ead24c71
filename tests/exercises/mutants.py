"""Wrong variants of a kernel: each differs from it by one small change of its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|asm[^;]*;|#include[^\n]*|\b0x[0-9a-f]+\b', re.DOTALL
)
"""What is left as it is: comments, strings, PTX, masks of lanes."""
_TOKENS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("a bound", r"(?<![<\-=])<(?![<=])", ("<=",)),
    ("a bound", r"(?<!<)<=", ("<",)),
    ("a bound", r"(?<![>\-])>(?![>=])", (">=",)),
    ("a bound", r"(?<!>)>=", (">",)),
    ("a condition", r"&&", ("||",)),
    ("a sign", r"(?<=[\w\])] )\+(?= [\w(])", ("-",)),
    ("a sign", r"(?<=[\w\])] )-(?= [\w(])", ("+",)),
    ("a stride", r"(?<=[\w\])] )\*(?= [\w(])", ("+", "/")),
    ("a stride", r"(?<=[\w\])] )/(?= [\w(])", ("*", "%")),
    ("a stride", r"(?<=[\w\])] )%(?= [\w(])", ("/",)),
    ("a swizzle", r"(?<=[\w\])] )\^(?= [\w(])", ("|", "+")),
    ("an update", r"(?<=[\w\])] )\+=", ("=", "-=")),
    ("an index", r"\bthreadIdx\.x\b", ("threadIdx.y", "blockIdx.x")),
    ("an index", r"\bthreadIdx\.y\b", ("threadIdx.x",)),
    ("an index", r"\bblockIdx\.x\b", ("blockIdx.y", "threadIdx.x")),
    ("an index", r"\bblockIdx\.y\b", ("blockIdx.x",)),
    ("a size", r"\bblockDim\.x\b", ("gridDim.x",)),
    ("a size", r"\bgridDim\.x\b", ("blockDim.x",)),
    ("a barrier", r"__sync(?:threads|warp)\(\);", (";",)),
    ("a function", r"\bfmaxf\b", ("fminf",)),
    ("a function", r"\batomicAdd\b", ("atomicExch",)),
    ("a function", r"__shfl_down_sync", ("__shfl_up_sync",)),
)
_PAIRS = {"m": "n", "n": "m", "row": "col", "col": "row", "tx": "ty", "ty": "tx", "top": "left",
          "left": "top", "first": "second", "group": "pair", "pair": "group"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A variant.

    Attributes
    ----------
    kind : str
        What was changed, as ``"a bound"``.
    line : int
    change : str
        The text before and after.
    source : str
    """

    kind: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.kind}: {self.change}"


def mutants(source: str) -> Iterator[Mutant]:
    """All variants of a kernel, in a fixed order."""
    plain = _SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    for kind, pattern, others in _TOKENS:
        for found in re.finditer(pattern, plain):
            for other in others:
                yield _made(source, kind, found.start(), found.end(), other)
    for found in re.finditer(r"(?<![\w.])\d+(?![\w.])", plain):
        line = plain[plain.rfind("\n", 0, found.start()) + 1 : found.start()]
        # A larger array, of which no more is used, is no mistake.
        for by in (-1,) if "__shared__" in line else (1, -1):
            yield _made(
                source, "a number", found.start(), found.end(), str(int(found[0]) + by)
            )  # fmt: skip
    body = plain.find("{")
    for found in re.finditer(r"(?<![\w.])[a-z]\w*(?![\w(])", plain):
        name = _PAIRS.get(found[0])
        if name and found.start() > body and re.search(rf"\b{name}\b", plain):
            yield _made(source, "a name", found.start(), found.end(), name)
    for found in re.finditer(r"\bif \(", plain):
        end = _closing(plain, found.end() - 1)
        yield _made(source, "a guard", found.end(), end, "true")
    for found in re.finditer(r"\bfloat (\w+) = [^;]*;", plain):
        if found.start() > body:
            yield _made(
                source, "an initial value", found.start(), found.end(), f"float {found[1]} = 1;"
            )  # fmt: skip


def _made(source: str, kind: str, start: int, end: int, other: str) -> Mutant:
    line = source.count("\n", 0, start) + 1
    whole = source.splitlines()[line - 1].strip()
    changed = source[:start] + other + source[end:]
    new = changed.splitlines()[line - 1].strip()
    return Mutant(kind, line, f"{whole}  ->  {new}", changed)


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis that opens there is closed."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise AssertionError("a parenthesis is not closed")
