"""Small readers of NVRTC's output: the kernels of a module, their parameters and figures."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from tilewise.compiler.compiled import Variable
from tilewise.compiler.mangled import demangle
from tilewise.counted import Resources
from tilewise.errors import CompileError

_ENTRY = re.compile(r"^(?:\.visible |\.weak )*\.entry ([\w$.]+)\s*(?:\(([^)]*)\))?", re.MULTILINE)
_PARAM = re.compile(r"\.param((?:\s+\.\w+(?:\s+\d+)?)+)\s+([\w$]+)(?:\[(\d+)\])?")
_GLOBAL = re.compile(
    r"(template\s*<[^;{}]{,999}>\s*)?(?:extern\s*\"C\"\s*)?(?:static\s+|inline\s+)*\b__global__\b"
    r"(?:\s|void\b|static\b|inline\b|__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)"
    r"|__maxnreg__\s*\([^)]*\))*([A-Za-z_]\w*)\s*\("
)
_VARIABLE = re.compile(
    r"^(?:\.(?:visible|weak|common)\s+)*\.(global|const)((?:\s+\.\w{1,9}(?:\s+\d{1,9})?)+)\s+([\w$]+)"
    r"((?:\[\d{1,18}\])*)(?=\s*[;=])",
    re.MULTILINE,
)


def entries(ptx: str) -> tuple[str, ...]:
    """Return the symbols of every kernel in a PTX module."""
    return tuple(match[1] for match in _ENTRY.finditer(ptx))


def parameters(ptx: str, symbol: str) -> list[tuple[str, str, int, int]]:
    """Name, type, size and alignment (bytes) of each parameter of one kernel.

    Raises
    ------
    KeyError
        If the module has no such kernel.
    """
    for match in _ENTRY.finditer(ptx):
        if match[1] == symbol:
            return [_parameter(*found) for found in _PARAM.findall(match[2] or "")]
    raise KeyError(symbol)


def _parameter(attributes: str, name: str, count: str) -> tuple[str, str, int, int]:
    # ``.u64 .ptr .align 1 p``: what follows .ptr is about what it points at.
    own = attributes.split(".ptr")[0]
    kind = next(t for t in re.findall(r"\.(\w+)", own) if re.fullmatch(r"[busf]\d+", t))
    width = int(kind[1:]) // 8
    align = re.search(r"\.align\s+(\d+)", own)
    return name, kind, width * int(count or 1), int(align[1]) if align else width


def variables(ptx: str) -> tuple[Variable, ...]:
    """Return the module's ``__constant__`` and ``__device__`` variables, without strings."""
    found = []
    for space, text, symbol, extents in _VARIABLE.findall(ptx):
        name = demangle(symbol)
        kinds = re.findall(r"\.[busf](\d+)\b", text)
        if not kinds:
            continue  # a texture, a surface or a sampler
        size = math.prod((int(kinds[-1]) // 8, *map(int, re.findall(r"\d+", extents))))
        if not symbol.startswith(("$", "__unnamed_", ".")) and not name.endswith("__func__"):
            space = {"const": "constant", "global": "device"}[space]
            found.append(Variable(name, symbol, space, size))
    return tuple(found)


def with_file_name(ptx: str, file: str) -> str:
    """Return ``ptx`` with its source called just ``file``, without NVRTC's working directory."""
    declared = _declared(ptx, file)
    if declared is None:
        return ptx
    return f'{ptx[: declared.start(2)]}"{_quoted(file)}"{ptx[declared.end(2) :]}'


def source_line(ptx: str, ptx_line: int, file: str) -> int:
    """Return the line of ``file`` that line ``ptx_line`` of the PTX is from; 0 if unknown."""
    declared = _declared(ptx, file)
    for line in reversed(ptx.splitlines()[:ptx_line]):
        if found := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line):
            return int(found[2]) if declared and found[1] == declared[1] else 0
    return 0


def _declared(ptx: str, file: str) -> re.Match[str] | None:
    """Return where NVRTC gives the source its number, which need not be 1, and its name."""
    # NVRTC writes bytes beyond ASCII as octal numbers.
    whole = _quoted(str(Path(file).absolute())).encode()
    name = re.escape("".join(chr(byte) if byte < 128 else f"\\{byte:03o}" for byte in whole))
    return re.search(rf'^\s*\.file\s+(\d+)\s+("{name}")', ptx, re.MULTILINE)


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def kernels(source: str, ptx: str) -> list[str]:
    """Return the kernels that are there, for a reader: demangled, templates as ``name<...>``."""
    names = [demangle(symbol) for symbol in entries(ptx)]
    for template, name in _GLOBAL.findall(_without_comments(source)):
        if template and not any(re.match(rf"(\w+::)*{name}<", there) for there in names):
            names.append(f"{name}<...>")
    return sorted(dict.fromkeys(names))


def template_of(source: str, name: str) -> str:
    """Return the parameters of a template of kernels, as ``"<int N>"``; empty if there is none."""
    for template, found in _GLOBAL.findall(_without_comments(source)):
        if found == name and template:
            return " ".join(template.split()).removeprefix("template").strip()
    return ""


def kernel_around(source: str, line: int) -> str:
    """Return the kernel whose definition contains a line, from 1; empty if there is none."""
    plain = re.sub(
        r"//[^\n]*|/\*.*?(?:\*/|\Z)",
        lambda comment: re.sub(r"[^\n]", " ", comment[0]),
        source,
        flags=re.DOTALL,
    )
    for found in _GLOBAL.finditer(plain):
        begin = plain.find("{", found.end())
        if begin < 0 or ";" in plain[found.end() : begin]:
            continue  # it is only declared
        depth, end = 0, begin
        for brace in re.finditer(r"[{}]", plain[begin:]):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                end = begin + brace.end()
                break
        else:
            end = len(plain)
        if plain.count("\n", 0, found.start()) < line <= plain.count("\n", 0, end) + 1:
            return found[2]
    return ""


def is_instance(name: str, source: str) -> bool:
    """Return whether ``name`` asks for an instance of a template of kernels in ``source``."""
    asked = re.match(r"\s*(?:::)?\s*(?:\w+\s*::\s*)*(\w+)\s*<", name)
    templates = {found for is_template, found in _GLOBAL.findall(_without_comments(source))
                 if is_template}  # fmt: skip
    return asked is not None and asked[1] in templates


def _without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?(?:\*/|\Z)", " ", source, flags=re.DOTALL)


def resources(log: str, cubin: bytes, symbol: str) -> Resources:
    """Return ptxas's figures of one kernel, from the log of ``--ptxas-options=-v``.

    Newer versions of ptxas leave constant memory out of the log, so it is the size of the
    kernel's constant banks in the cubin.

    Raises
    ------
    CompileError
        If the log does not mention the kernel.
    """
    parts = re.split(r"Compiling entry function '([^']+)'[^\n]*", log)
    part = dict(zip(parts[1::2], parts[2::2], strict=True)).get(symbol)
    if part is None:
        raise CompileError(f"ptxas gave no figures for {symbol}; its log: {log.strip() or 'empty'}")

    def figures(pattern: str) -> list[int]:
        return [int(figure) for figure in re.findall(pattern, part)]

    def first(*patterns: str) -> int:
        return next((f[0] for f in map(figures, patterns) if f), 0)

    return Resources(
        registers=first(r"Used (\d+) registers"),
        shared_bytes=first(r"(\d+) bytes smem"),
        spill_bytes=sum(figures(r"(\d+) bytes spill (?:stores|loads)")),
        stack_bytes=first(r"(\d+) bytes cumulative stack size", r"(\d+) bytes stack frame"),
        barriers=first(r"(?:used )?(\d+) barriers"),
        constant_bytes=sum(
            size
            for name, size in sections(cubin).items()
            if re.fullmatch(rf"\.nv\.constant\d+\.{re.escape(symbol)}", name)
        ),
    )


def sections(cubin: bytes) -> dict[str, int]:
    """Return the sections of a 64-bit little-endian ELF file: name to size in bytes.

    System V ABI, "Sections".
    """
    return {name: size for name, _, size in _parts(cubin)}


def _parts(cubin: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each section."""
    start = struct.unpack_from("<Q", cubin, 40)[0]
    width, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + at * width) for at in range(count)]
    names = heads[names_at][4]
    for head in heads:
        begin = names + head[0]
        yield cubin[begin : cubin.index(b"\0", begin)].decode(), head[4], head[5]


_REGISTER_COUNT = b"\x04\x2f\x08\x00"
"""An entry of ``.nv.info``: of a value of 8 bytes, which is a symbol's number and its registers."""


def registers(cubin: bytes, symbol: str) -> int:
    """Return the registers of a thread of one kernel, from the machine code's own ``.nv.info``.

    The machine code leaves out entries that are 0. Entries of other kinds are skipped.
    """
    parts = {name: (begin, size) for name, begin, size in _parts(cubin)}
    if not {".nv.info", ".symtab", ".strtab"} <= parts.keys():
        return 0
    begin, size = parts[".nv.info"]
    at, end = begin, begin + size
    while at + 4 <= end:
        if cubin[at : at + 4] == _REGISTER_COUNT:
            number, count = struct.unpack_from("<II", cubin, at + 4)
            name = (
                parts[".strtab"][0]
                + struct.unpack_from("<I", cubin, parts[".symtab"][0] + 24 * number)[0]
            )
            if cubin[name : cubin.index(b"\0", name)].decode() == symbol:
                return int(count)
        # Format 4 has a size in 2 bytes, and that many more; the others have 2 bytes in all.
        at += 4 + (struct.unpack_from("<H", cubin, at + 2)[0] if cubin[at] == 4 else 0)
    return 0
