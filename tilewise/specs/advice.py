"""What a kernel may be launched with: a command line that works."""

from __future__ import annotations

import re
import shlex

from tilewise.compiler import Compiled, Parameter
from tilewise.compiler.names import declarations
from tilewise.devices import arguments as rules
from tilewise.devices import elements
from tilewise.specs.arguments import names_of

_SIZE, _EDGE = 1024, 32  # of a kernel with one integer, and of one with more
_THREADS, _SQUARE = 256, 16


def options(compiled: Compiled) -> str:
    """Options of ``tilewise run`` with which the kernel can be launched, quoted for a shell.

    The sizes are small, and arrays have as many elements as the integers ask for where there is
    one, or their square where there are more: what the kernel makes of them is not known.
    """
    names = names_of(compiled)
    parts = declarations(compiled) or [""] * len(names)
    sizes = [
        name for name, x in zip(names, compiled.parameters, strict=True)
        if x.size >= 4 and x.declared in elements.INTEGERS and x.declared != "bool"
    ]  # fmt: skip
    most = _most_threads(compiled)
    size = _SIZE if len(sizes) < 2 else _EDGE
    elements_of = sizes[0] if len(sizes) == 1 and sizes[0].isidentifier() else str(_SIZE)
    if len(sizes) > 1 and "%tid.y" in compiled.ptx and most >= _SQUARE**2:
        shape = f"--grid {_EDGE // _SQUARE},{_EDGE // _SQUARE} --block {_SQUARE},{_SQUARE}"
    else:
        threads = min(_THREADS, most)
        shape = f"--grid {-(-_SIZE // threads)} --block {threads}"
    given = (
        f"{name}={_given(parameter, part, size, elements_of)}"
        for name, parameter, part in zip(names, compiled.parameters, parts, strict=True)
    )
    words = " ".join(map(shlex.quote, given))
    return f"{shape} --args {words}" if words else shape


def _given(parameter: Parameter, part: str, size: int, elements_of: str) -> str:
    """An argument that fits a parameter."""
    declared = parameter.declared
    if declared.endswith("*") or (not declared and rules.takes_address(parameter)):
        if declared.endswith("**"):
            return "null"
        of = "" if elements.meant(declared)[0] else ":float32"
        return f"{'random' if part.startswith('const ') else 'zeros'}:{elements_of}{of}"
    if parameter.type == "b8":
        kind, lanes = elements.lanes(declared)
        return ",".join(["1"] * lanes) if kind else f"hex:{'00' * parameter.size}"
    if declared in elements.INTEGERS and declared != "bool" and parameter.size >= 4:
        return str(size)
    return "2.5" if parameter.type.startswith("f") else "1"


def _most_threads(compiled: Compiled) -> int:
    """Threads a block that the kernel's launch bounds allow."""
    _, _, behind = compiled.ptx.partition(f".entry {compiled.symbol}")
    found = re.search(r"\.(?:maxntid|reqntid)\s+(\d+)", behind.partition("{")[0])
    return int(found[1]) if found else _THREADS
