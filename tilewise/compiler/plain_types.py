"""The types of a kernel's parameters, if its declaration uses only built-in types.

``const float* x`` means the same in every source, unless a macro replaces one of its words. Where
all parameters are declared so, the source need not be compiled once more to find their types
(:mod:`tilewise.compiler.signatures`). That takes some 15 ms, in a process of its own ten times as
long, and a second or two with CUDA's larger headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewise.compiler.extract import matching, own_texts, wanted
from tilewise.compiler.includes import Gathered
from tilewise.compiler.job import Job
from tilewise.compiler.options import defined
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
_TYPE = re.compile(r"(?:\w+ ?)+|\*")


def plain_types(job: Job, gathered: Gathered) -> tuple[str, ...] | None:
    """Return the types as :func:`tilewise.compiler.signatures.told` does, one a parameter.

    None where a type is not built in, where several declarations may be the kernel's, where a
    macro, a condition or a template may decide the types, or where the source is too large to be
    parsed for it.
    """
    # Headers that NVRTC finds itself, such as those that come with tilewise, may define anything.
    if job.is_shipped or not gathered.is_whole:
        return None
    texts = own_texts(job, gathered)
    if gathered.toolkit is None and sum(map(len, texts.values())) > _LARGE:
        return None
    try:
        files = read(texts)
    except ParserMissingError:
        return None
    asked = wanted(job.request.name)
    kernels = matching(files, asked)
    if len(kernels) != 1 or asked.arguments or not _is_plain(kernels[0], files):
        return None
    found = [_type(each.type) for each in kernels[0].parameters]
    words = {word for each in kernels[0].parameters for word in re.findall(r"\w+", each.text)}
    words.add(kernels[0].base)
    if not words.isdisjoint(_macros(job, gathered)):
        return None
    return tuple(each for each in found if each) if all(found) else None


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


def _macros(job: Job, gathered: Gathered) -> Iterable[str]:
    """Yield the macros that the source, its headers and the options define in any branch."""
    for text in (job.request.source, *gathered.texts.values(), *gathered.headers.values()):
        yield from re.findall(r"define\s+(\w+)", text.replace("\\\n", " "))
    for macro in defined(job.options):
        yield re.split(r"\W", macro, maxsplit=1)[0]
