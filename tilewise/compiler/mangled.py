"""The names in the source that a compiler's mangled symbols stand for.

Source: Itanium C++ ABI, 5.1 (external names).
"""

from __future__ import annotations

import re

_MANGLED = re.compile(r"L[a-z]n?\d+E|[ST][0-9A-Z]*_|A\d+_|Dv\d+_|__?\d+_?|(?P<length>[1-9]\d*)|.")
"""A regular expression of a mangled symbol's parts: a part that has digits and is no name (template
arguments, substitutions, extents, discriminators), the length of a name, or one more letter.
"""
_BUILTIN = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned", "l": "long",
    "m": "unsigned long", "x": "long long", "y": "unsigned long long", "f": "float",
    "d": "double",
}  # fmt: skip


def demangle(symbol: str) -> str:
    """Return a function's C++ name without arguments; ``symbol`` if these few rules don't suffice.

    The rules are those of the Itanium C++ ABI, 5.1, for nested names, and template arguments that
    are built-in types or integers.
    """
    if symbol.startswith("_ZZ"):  # the variable of a function
        inside = re.search(r"E(\d+)(\w+?)(?:_\d+)?$", symbol)
        return inside[2][: int(inside[1])] if inside else symbol
    match = re.fullmatch(r"_Z(N?)[rVKL]*(.*)", symbol)
    if not match:
        return symbol
    rest, parts = match[2], []
    while (size := re.match(r"\d+", rest := rest.removeprefix("L"))) is not None:
        length, rest = int(size[0]), rest[size.end() :]
        name, rest = rest[:length], rest[length:]
        if not name.startswith("_INTERNAL_"):  # a namespace of NVRTC's own
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


def function_of(symbol: str) -> str:
    """Return the symbol of a variable's function: ``_Z1fILi4EEvv`` of ``_ZZ1fILi4EEvvE1t``.

    It is empty for a variable outside of functions.
    """
    name = plain_name(symbol)
    inside = re.match(rf"_Z(Z.+)E{len(name)}{re.escape(name)}(?:_\w+)?$", symbol)
    return f"_{inside[1]}" if inside else ""


def plain_name(symbol: str) -> str:
    """Return a variable's name as in the source: ``_ZZ5tiledE2sa`` is ``sa``.

    It is the last name of the Itanium C++ ABI's mangling; literal template arguments are no names.
    """
    symbol = symbol.partition("@")[0]
    name, at = symbol, 2
    while symbol.startswith("_Z") and at < len(symbol):
        token = _MANGLED.match(symbol, at)
        assert token is not None
        at = token.end()
        if token["length"]:
            start, at = at, at + int(token["length"])
            name = symbol[start:at]
    return name
