"""Small readers of what NVRTC gives: the kernels of a module, their parameters and figures."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from tilewise.counted import Resources
from tilewise.errors import CompileError

_ENTRY = re.compile(r"^(?:\.visible |\.weak )*\.entry ([\w$.]+)\s*(?:\(([^)]*)\))?", re.MULTILINE)
_PARAM = re.compile(r"\.param((?:\s+\.\w+(?:\s+\d+)?)+)\s+([\w$]+)(?:\[(\d+)\])?")
_GLOBAL = re.compile(
    r"(template\s*<[^;{}]{,999}>\s*)?(?:extern\s*\"C\"\s*)?(?:static\s+|inline\s+)*\b__global__\b"
    r"(?:\s|void\b|static\b|inline\b|__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)"
    r"|__maxnreg__\s*\([^)]*\))*([A-Za-z_]\w*)\s*\("
)
_BUILTIN = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned", "l": "long",
    "m": "unsigned long", "x": "long long", "y": "unsigned long long", "f": "float",
    "d": "double",
}  # fmt: skip


def entries(ptx: str) -> tuple[str, ...]:
    """The symbols of every kernel in a PTX module."""
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


def with_file_name(ptx: str, file: str) -> str:
    """``ptx`` with its source called just ``file``; NVRTC puts the working directory before it."""
    declared = _declared(ptx, file)
    if declared is None:
        return ptx
    return f'{ptx[: declared.start(2)]}"{_quoted(file)}"{ptx[declared.end(2) :]}'


def source_line(ptx: str, ptx_line: int, file: str) -> int:
    """The line of ``file`` that line ``ptx_line`` of the PTX comes from; 0 if none is known."""
    declared = _declared(ptx, file)
    for line in reversed(ptx.splitlines()[:ptx_line]):
        if found := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line):
            return int(found[2]) if declared and found[1] == declared[1] else 0
    return 0


def _declared(ptx: str, file: str) -> re.Match[str] | None:
    """Where NVRTC gives the source its number, which need not be 1, and its name."""
    # NVRTC writes bytes beyond ASCII as octal numbers.
    whole = _quoted(str(Path(file).absolute())).encode()
    name = re.escape("".join(chr(byte) if byte < 128 else f"\\{byte:03o}" for byte in whole))
    return re.search(rf'^\s*\.file\s+(\d+)\s+("{name}")', ptx, re.MULTILINE)


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def kernels(source: str, ptx: str) -> list[str]:
    """The kernels that are there, for a reader: demangled, templates as ``name<...>``."""
    names = [demangle(symbol) for symbol in entries(ptx)]
    for template, name in _GLOBAL.findall(_without_comments(source)):
        if template and not any(re.match(rf"(\w+::)*{name}<", there) for there in names):
            names.append(f"{name}<...>")
    return sorted(dict.fromkeys(names))


def is_instance(name: str, source: str) -> bool:
    """Whether ``name`` asks for an instance of a template of kernels in ``source``."""
    asked = re.match(r"\s*(?:::)?\s*(?:\w+\s*::\s*)*(\w+)\s*<", name)
    templates = {found for is_template, found in _GLOBAL.findall(_without_comments(source))
                 if is_template}  # fmt: skip
    return asked is not None and asked[1] in templates


def _without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?(?:\*/|\Z)", " ", source, flags=re.DOTALL)


def demangle(symbol: str) -> str:
    """A function's C++ name, arguments left out; ``symbol`` where it is beyond these few rules.

    Itanium C++ ABI, 5.1: nested names, and template arguments that are built-in types or
    integers.
    """
    match = re.fullmatch(r"_Z(N?)[rVKL]*(.*)", symbol)
    if not match:
        return symbol
    rest, parts = match[2], []
    while (size := re.match(r"\d+", rest := rest.removeprefix("L"))) is not None:
        length, rest = int(size[0]), rest[size.end() :]
        name, rest = rest[:length], rest[length:]
        parts.append("(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name)
        if rest.startswith("I"):
            arguments, rest = _template_arguments(rest[1:])
            if arguments is None:
                return symbol
            parts[-1] += f"<{', '.join(arguments)}>"
        if not match[1]:
            break
    if match[1] and not rest.startswith("E"):
        return symbol  # an operator, or a constructor
    return "::".join(parts) or symbol


def _template_arguments(rest: str) -> tuple[list[str] | None, str]:
    arguments: list[str] = []
    while rest and not rest.startswith("E"):
        if literal := re.match(r"L([a-z])(n?)(\d+)E", rest):
            kind, minus, digits = literal.groups()
            value = ("false", "true")[digits == "1"] if kind == "b" else digits
            arguments.append(("-" if minus else "") + value)
            rest = rest[literal.end() :]
        elif rest[0] in _BUILTIN:
            arguments.append(_BUILTIN[rest[0]])
            rest = rest[1:]
        elif named := re.match(r"\d+", rest):
            end = named.end() + int(named[0])
            arguments.append(rest[named.end() : end])
            rest = rest[end:]
        else:
            return None, rest
    return arguments, rest[1:]


def resources(log: str, cubin: bytes, symbol: str) -> Resources:
    """What ptxas says of one kernel, from the log of ``--ptxas-options=-v``.

    Newer versions of ptxas leave constant memory out of the log, so it is the size of the
    kernel's constant banks in the cubin.

    Raises
    ------
    CompileError
        If the log does not speak of the kernel.
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
    """The sections of a 64-bit little-endian ELF file: name to size in bytes.

    System V ABI, "Sections".
    """
    start = struct.unpack_from("<Q", cubin, 40)[0]
    width, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + at * width) for at in range(count)]
    names = heads[names_at][4]
    out = {}
    for head in heads:
        begin = names + head[0]
        out[cubin[begin : cubin.index(b"\0", begin)].decode()] = head[5]
    return out
