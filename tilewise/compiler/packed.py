"""Kernels that were compiled beforehand, in one file: for where there is no NVRTC, as in a browser.

The file has what the emulator takes of each: the PTX, what ptxas says of it, and the memory
instructions of its machine code, by which accesses are counted. The machine code itself is left
out. Only kernels that come with tilewise can be in it, and only the very same tilewise reads it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from tilewise.compiler import (
    Compiled,
    Parameter,
    Request,
    Variable,
    cache,
    compile_request,
    machine_code,
    remember,
    shipped,
)
from tilewise.compiler.options import left_defined, of_macros
from tilewise.counted import Resources
from tilewise.errors import CompileError

_FOLDER = f"{shipped.FOLDER}{os.sep}"
_PLACE = "<kernels>/"
"""What the PTX calls the kernels' folder in the file: it is another one on another machine."""


def pack(requests: Iterable[Request]) -> bytes:
    """Compile kernels that come with tilewise, and put them into one file.

    Parameters
    ----------
    requests : iterable of Request
        Such as ``rung.kernel(tile=16).request()``, with no ``include``, ``limits`` or ``trusted``.

    Returns
    -------
    bytes
        What :func:`unpack` takes.

    Raises
    ------
    ValueError
        If a kernel is not one that comes with tilewise.
    CompileError
        If the machine code of one can't be read: it would be counted in another way.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    heads: list[dict[str, Any]] = []
    texts: dict[str, bytes] = {}
    for request in requests:
        path = "" if request.path is None else str(request.path)
        is_plain = not (request.include or request.limits or request.trusted)
        if not is_plain or not path.startswith(_FOLDER) or not shipped.has(path, request.source):
            raise ValueError(f"{request.name} is no kernel that comes with tilewise, as it comes")
        compiled = compile_request(request)
        read = machine_code.disassemble(compiled)
        if read.instructions is None:
            raise CompileError(f"the machine code of {request.name} is not known: {read.reason}")
        texts[str(len(heads))] = zlib.compress(compiled.ptx.replace(_FOLDER, _PLACE).encode(), 9)
        heads.append({
            "path": shipped.relative(path), "name": request.name, "arch": request.arch,
            "defines": request.defines, "options": list(request.options), "lines": request.lines,
            "makes_code": request.machine_code, "symbol": compiled.symbol,
            "resources": asdict(compiled.resources),
            "parameters": [astuple(each) for each in compiled.parameters],
            "variables": [asdict(each) for each in compiled.variables],
            "remarks": list(compiled.remarks),
            "instructions": [astuple(each) for each in read.instructions],
        })  # fmt: skip
    head = zlib.compress(json.dumps(heads).encode(), 9)
    return cache.pack({"kernels": shipped.digest(), "head": head, **texts})


def unpack(data: bytes) -> int:
    """Have this process remember the kernels of a file, as if it had compiled them.

    Parameters
    ----------
    data : bytes
        The bytes that :func:`pack` returned.

    Returns
    -------
    int
        How many kernels there are.

    Raises
    ------
    ValueError
        If the file is not whole, or is of other kernels than those that are here.
    """
    packed = cache.unpack(data)
    if packed is None:
        raise ValueError("the file of compiled kernels is not whole")
    if packed["kernels"] != shipped.digest():
        raise ValueError("the file of compiled kernels is of another version of tilewise")
    heads = json.loads(zlib.decompress(packed["head"]))
    for number, head in enumerate(heads):
        path = shipped.FOLDER / Path(head["path"])
        source = shipped.text(path) or ""
        request = Request(
            source, head["name"], head["defines"], head["arch"], path, tuple(head["options"]),
            lines=head["lines"], machine_code=head["makes_code"],
        )  # fmt: skip
        ptx = zlib.decompress(packed[str(number)]).decode().replace(_PLACE, _FOLDER)
        compiled = Compiled(
            request.name, head["symbol"], request.arch, source, str(path), ptx, b"",
            Resources(**head["resources"]),
            tuple(Parameter(*each) for each in head["parameters"]),
            tuple(replace(Variable(**each), shape=tuple(each["shape"]))
                  for each in head["variables"]),
            remarks=tuple(head["remarks"]),
            macros=tuple(left_defined((*of_macros(head["defines"] or {}), *request.options))),
        )  # fmt: skip
        remember(request, compiled)
        machine_code.remember(
            compiled, (machine_code.MemoryInstruction(*row) for row in head["instructions"])
        )
    return len(heads)
