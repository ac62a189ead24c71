"""The names that a source gives a kernel's parameters, which neither PTX nor machine code keeps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from tilewise.compiler.compiled import Compiled, Parameter
from tilewise.compiler.extract import matching, wanted
from tilewise.compiler.mangled import demangle
from tilewise.compiler.source.instances import split_list
from tilewise.compiler.source.kernels import KernelDeclaration, alike
from tilewise.compiler.source.part import read
from tilewise.errors import ParserMissingError
from tilewise.shown import plural

_LEFT_OUT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_SPECIALIZATION = re.compile(r"\btemplate\s*<\s*>")
_OPENING, _CLOSING = "(<[{", ")>]}"
_LONGEST = 10_000  # characters of a list of parameters
_NO_NAMES = frozenset(
    ("int", "unsigned", "signed", "long", "short", "char", "float", "double", "bool", "const",
     "volatile", "__restrict__", "__restrict")
)  # fmt: skip


def parameter_names(compiled: Compiled) -> list[str]:
    """Read the names of a kernel's parameters in its source.

    Returns
    -------
    list of str
        One a parameter, ``"argument 2"`` for one that has none; empty where the source does not say
        it plainly, as where a macro makes the list. Of PTX that says of no source, those of the
        PTX.
    """
    if any(parameter.label for parameter in compiled.parameters):
        return [parameter.label for parameter in compiled.parameters]
    parts = declarations(compiled)
    if not parts and compiled.is_ptx:
        return [parameter.name for parameter in compiled.parameters]
    return [_name(part) or f"argument {index}" for index, part in enumerate(parts)]


def declarations(compiled: Compiled) -> list[str]:
    """Read how a kernel's parameters are written in its source, as ``"const float* x"``.

    Returns
    -------
    list of str
        One a parameter; empty where the source does not say it plainly.
    """
    if compiled.source_doubt or (compiled.is_ptx and ".entry" in compiled.source):
        return []  # the source may be another one, or there is none but the PTX
    found = lists(compiled.source, compiled.name)
    same = [each for each in found if len(each[1]) == len(compiled.parameters)]
    is_one_of_several = len({tuple(parts) for is_kernel, parts in same if is_kernel}) > 1
    if is_one_of_several or (same and _SPECIALIZATION.search(compiled.source)):
        kernels = [
            each
            for each in _declared_kernels(compiled.source, compiled.name)
            if len(each.parameters) == len(compiled.parameters)
        ]
        special = (each for each in kernels if _is_specialized(each, kernels, compiled))
        chosen = next(special, kernels[0] if kernels else None)
        if chosen is not None:
            return [parameter.text for parameter in chosen.parameters]
    # A function of the same name, or a call, may have as many: the kernel's own declaration first.
    return min(same, key=lambda each: not each[0])[1] if same else []


@lru_cache(maxsize=64)
def _declared_kernels(source: str, name: str) -> list[KernelDeclaration]:
    """Return the declarations of each kernel that ``name`` can mean, as a parser reads them.

    Only a parser tells apart overloads, specializations, and kernels of the same name in several
    namespaces. Templates come before their specializations, and definitions before declarations.
    The list is empty if the parser is not installed.
    """
    try:
        kernels = matching(read({"": source}), wanted(name))
    except ParserMissingError:
        return []
    kernels.sort(key=lambda each: (each.is_special, not each.has_body))
    return kernels


def _is_specialized(
    kernel: KernelDeclaration, kernels: Sequence[KernelDeclaration], compiled: Compiled
) -> bool:
    """Return whether a kernel is the explicit specialization that was compiled."""
    if not kernel.is_special or not kernel.has_body:  # without a body, it may be an instantiation
        return False
    if not kernel.arguments:  # the template arguments follow from the parameters
        declared = (re.sub(r"\bconst\b", "", each.type) for each in kernel.parameters)
        told = [each.declared for each in compiled.parameters]
        return [alike(each) for each in declared] == [alike(each) for each in told]
    given = _arguments(kernel.arguments)
    defaults = [
        [alike(parameter.default) for parameter in each.template[len(given) :]]
        for each in kernels
        if each.template
    ]
    asked = (wanted(compiled.name).arguments, wanted(demangle(compiled.symbol)).arguments)
    return any(_arguments(each) == [*given, *more] for each in asked for more in ([], *defaults))


def _arguments(listed: str) -> list[str]:
    """Return the template arguments between brackets, in one spelling for equal ones."""
    return [alike(each) for each in split_list(listed.strip()[1:-1])]


def lists(source: str, name: str) -> list[tuple[bool, list[str]]]:
    """Find the lists in parentheses that follow a kernel's name in a source.

    Returns
    -------
    list of (bool, list of str)
        For each list, whether ``__global__`` precedes the name, and its parts between commas.
    """
    # A comment, or what looks like one, ends where the text does: no text is looked at twice.
    plain = _LEFT_OUT.sub(" ", source)
    base = re.split(r"[<(]", name)[0].split("::")[-1].strip()
    found = []
    for begin in re.finditer(rf"\b{re.escape(base)}\s*\(", plain):
        parts = _parts(plain[begin.end() : begin.end() + _LONGEST])
        if parts is not None:
            start = max(plain.rfind(end, 0, begin.start()) for end in ";{}") + 1
            found.append(("__global__" in plain[start : begin.start()], parts))
    return found


def signature(compiled: Compiled) -> str:
    """Return a kernel's parameters as its source declares them, as ``"twice(int n, float* x)"``."""
    parts = declarations(compiled) or [_declared(x) for x in compiled.parameters]
    name = compiled.name
    # The name of an overload ends with its parameters' types.
    if name.endswith(")") and not name.startswith("("):
        asked = wanted(name)
        name = asked.path + asked.arguments
    return f"{name}({', '.join(parts)})"


def _parts(text: str) -> list[str] | None:
    """Return the parts between commas up to the closing parenthesis; None if there is none."""
    deep, begin, parts = 0, 0, []
    for place, letter in enumerate(text):
        if deep == 0 and letter in ",)":
            parts.append(" ".join(text[begin:place].split()))
            begin = place + 1
            if letter == ")":
                return [] if parts == [""] else parts
        elif letter in _OPENING:
            deep += 1
        elif letter in _CLOSING and deep:
            deep -= 1
    return None


def _name(declared: str) -> str:
    """Return the last word of a parameter, if its type precedes it."""
    inner = re.search(r"\(\s*[*&]\s*(?:const\s+|__restrict__\s+)*(\w+)", declared)
    if inner:  # a reference to an array, such as float (&x)[4]
        return inner[1]
    words = re.findall(r"[A-Za-z_]\w*", re.split(r"[\[=]", declared)[0])
    return words[-1] if len(words) > 1 and words[-1] not in _NO_NAMES else ""


def _declared(parameter: Parameter) -> str:
    """Return a parameter's type: the source's, or where that is not known the PTX's."""
    if parameter.declared:
        return parameter.declared.lstrip("*") or "a pointer"
    return plural(parameter.size, "byte") if parameter.type == "b8" else f".{parameter.type}"
