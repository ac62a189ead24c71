"""Say in PTX how static shared memory is aligned once it is placed.

nvJitLink makes code that may be linked with more, and does not know where a block's shared memory
lies: it joins no accesses of a variable whose declaration does not promise that they are aligned.
ptxas, NVRTC and the driver place it first, from address 0 on, in the order of the declarations.
What they know by that is written into the declarations here.
"""

from __future__ import annotations

import math
import re

from tilewise.compiler.ptx.text import Split

WIDEST = 16  # bytes of the widest access
_SHARED = re.compile(
    r"(?<=[\s;{}])\.shared\s*(?P<align>\.align\s+(?P<bytes>\d+))?\s*(?:\.v(?P<vector>[248])\s*)?"
    r"\.(?P<type>\w+)\s+[\w$%]+\s*(?P<extents>(?:\[\s*\d+\s*\]\s*)*);"
)
_EXTERN = re.compile(r"\.extern\s*$")


def with_alignment(module: Split, text: str) -> str:
    """Return a text, of which ``module`` was cut, with static shared memory's true alignment."""
    plain = module.text
    ends = sorted((body.start, body.end) for body in module.functions.values())
    offsets: dict[int, int] = {}  # of each function, by its beginning
    parts: list[str] = []
    done = 0
    for found in _SHARED.finditer(plain):
        if _EXTERN.search(plain, max(0, found.start() - 40), found.start()):
            continue
        bits = re.sub(r"\D", "", found["type"].partition("x")[0])
        if not bits:
            continue
        width = int(bits) // 8 * int(found["vector"] or 1)
        size = width * math.prod(map(int, re.findall(r"\d+", found["extents"])))
        align = int(found["bytes"] or width)
        scope = next((start for start, end in ends if start <= found.start() < end), 0)
        at = -(-offsets.get(scope, 0) // max(align, 1)) * align
        offsets[scope] = at + size
        # No access is wider than the variable.
        most = min(WIDEST, 1 << max(size, 1).bit_length() - 1)
        known = most if at % most == 0 else at & -at
        if known <= align:
            continue
        place = found.end("align") if found["align"] else found.start() + len(".shared")
        start = found.start("align") if found["align"] else place
        parts += (text[done:start], f" .align {known}")
        done = place
    return "".join((*parts, text[done:]))
