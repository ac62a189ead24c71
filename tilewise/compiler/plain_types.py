"""The types of a kernel's parameters, if its declaration uses only built-in types.

``const float* x`` means the same in every source, unless a macro of its text replaces one of its
words; ``const real* x`` does where ``real`` is a macro of the options alone. Where all parameters
are declared so, the source need not be compiled once more to find their types
(:mod:`tilewise.compiler.signatures`). That takes some 15 ms, in a process of its own ten times as
long, and a second or two with CUDA's larger headers.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import cache

from tilewise.compiler import shipped
from tilewise.compiler.extract import matching, own_texts, wanted
from tilewise.compiler.includes import Gathered
from tilewise.compiler.job import Job
from tilewise.compiler.options import defined, left_defined, macros
from tilewise.compiler.source.kernels import KernelDeclaration
from tilewise.compiler.source.part import Files, read
from tilewise.compiler.type_names import is_integer, usual
from tilewise.errors import ParserMissingError

_NO_INTEGERS = ("void", "bool", "float", "double")
_QUALIFIERS = frozenset(("const", "volatile", "__restrict__", "__restrict"))
_LARGE = 1 << 15
"""The characters up to which a source is parsed for its types, unless it includes CUDA's
headers.
"""
_LARGE_SHIPPED = 1 << 13
"""The same for a source that comes with tilewise: NVRTC reads its headers in little time."""
_TYPE = re.compile(r"(?:\w+ ?)+|\*")
_WORD = re.compile(r"\w+")
# The macros that a text defines or undefines; second, those that it defines only as a default.
_DEFINED = re.compile(
    r"(?:define|undef)(?:\s|/\*(?:[^*]|\*(?!/))*\*/)+(\w+)|"
    r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n[ \t]*#[ \t]*define[ \t]+\2\b",
    re.MULTILINE,
)


def plain_types(job: Job, gathered: Gathered) -> tuple[str, ...] | None:
    """Return the types as :func:`tilewise.compiler.signatures.told` does, one a parameter.

    None where a type is not built in, where several declarations may be the kernel's, where a
    macro of a text, a condition or a template may decide the types, or where the source is too
    large to be parsed for it.
    """
    if not gathered.is_whole:  # headers that NVRTC finds itself may define anything
        return None
    texts = own_texts(job, gathered)
    most = _LARGE_SHIPPED if job.is_shipped else _LARGE
    if gathered.toolkit is None and sum(map(len, texts.values())) > most:
        return None
    try:
        files = read(texts)
    except ParserMissingError:
        return None
    asked = wanted(job.request.name)
    kernels = matching(files, asked)
    if len(kernels) != 1 or asked.arguments or not _is_plain(kernels[0], files):
        return None
    parameters = kernels[0].parameters
    given = macros([f"-D{each}" for each in left_defined(job.options)])
    types = [_WORD.sub(lambda word: given.get(word[0], word[0]), each.type) for each in parameters]
    spelled, written = _words(types), _words(each.type for each in parameters)
    others = _words(each.text for each in parameters) - written | {kernels[0].base}
    others.update(each.name for each in parameters)
    # Macros of the options are replaced once, and in types only; nothing else may name them.
    if not (spelled | others).isdisjoint(_names(defined(job.options))):
        return None
    if not (spelled | others | written).isdisjoint(_macros(job, gathered, given)):
        return None
    found = [_type(each) for each in types]
    return tuple(each for each in found if each) if all(found) else None


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text)}


def _is_plain(kernel: KernelDeclaration, files: Files) -> bool:
    """Return whether it is a definition, no template, and has no directive before its body."""
    declaration, text = kernel.declaration, files.texts[kernel.file]
    tokens = text.between(declaration.start, declaration.end)
    body = next((token.start for token in tokens if token.text == b"{"), declaration.end)
    return (
        kernel.has_body and not kernel.template and not kernel.is_special
        and declaration.expanded is None
        and not any(declaration.start <= each.start < body for each in text.directives)
    )  # fmt: skip


def _type(declared: str) -> str:
    """Return a type in the compiler's own spelling; empty if it is not built in."""
    parts = [part.strip() for part in _TYPE.findall(declared)]
    if "".join(declared.split()) != "".join("".join(parts).split()):
        return ""
    words = [word for part in parts if part != "*" for word in part.split()]
    words = [word for word in words if word not in _QUALIFIERS]
    if not is_integer(words) and " ".join(words) not in _NO_INTEGERS:
        return ""
    return usual(words) + "*" * parts.count("*")


def _names(texts: Iterable[str]) -> list[str]:
    """Return the names of macros: ``NAME`` of ``NAME=VALUE`` and of ``NAME(A)=VALUE``."""
    return [re.split(r"\W", text, maxsplit=1)[0] for text in texts]


def _macros(job: Job, gathered: Gathered, given: Container[str]) -> Iterable[str]:
    """Yield the macros that the source and its headers define or undefine in any branch.

    The branch of ``#ifndef`` is left out for a macro that the options define.
    """
    texts = [job.request.source, *gathered.texts.values(), *gathered.headers.values()]
    if job.is_shipped:
        texts += _shipped_headers()
    for text in texts:
        for word, default in _DEFINED.findall(re.sub(r"\\\r?\n", "", text)):
            if default not in given:
                yield word or default


@cache
def _shipped_headers() -> list[str]:
    """Return the texts of all headers that come with tilewise."""
    return [path.read_text(encoding="utf-8") for path in shipped.FOLDER.rglob("*.cuh")]
