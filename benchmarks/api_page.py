"""Write docs/api.md, the reference of tilewise's public names, from their docstrings.

    python benchmarks/api_page.py

``tests/test_readme.py`` asserts that the page is what this writes, and
``tests/test_front_doors.py`` runs the examples.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from command_line import takes_no_options
from pages import DOCS

import tilewise
from tilewise.lens.beside import Beside
from tilewise.lens.paged import Paged
from tilewise.lens.profile import Profile
from tilewise.lens.watch import Watch

PAGE = DOCS / "api.md"
PAGES: Mapping[Path, Sequence[Path]] = {PAGE: ()}
WIDTH = 100

HEAD = """\
# The Python API

<!-- Written by benchmarks/api_page.py out of the docstrings: edit those. -->
<!-- fmt: off -->

Every public name, with what it takes and raises. `help(tilewise.matmul)` has the same and more.
Guides show how they are used: [launching kernels](launching.md), [multiplying arrays](matmul.md),
kernels of [Triton and Numba](python.md), models in [PyTorch](pytorch.md),
[notebooks](notebooks.md). The command line has [a page of its own](command-line.md).
"""
GROUPS: Mapping[str, Sequence[str]] = {
    "Kernels": ("Kernel", "LaunchReport", "Finding", "Counters", "Resources", "Launch", "Limits",
                "Variables", "pointer", "Pointer", "tensor_map", "MappedArray", "list_kernels",
                "ListedKernel"),
    "Products": ("matmul", "grouped_matmul", "multiply_files", "FileProduct", "explain",
                 "Explanation", "tune", "Tuned", "warm", "Warmed", "free_staging", "set_invariant"),
    "Epilogues": ("Epilogue", "clip", "erf", "exp", "gelu", "leaky_relu", "log", "log1p", "maximum",
                  "minimum", "relu", "rsqrt", "sigmoid", "silu", "softplus", "sqrt", "tanh",
                  "where"),
    "Seeing": ("profile", "watch"),
    "Devices": ("get_device", "emulator", "Device"),
    "The ladder": ("RUNGS", "rung", "Rung", "Gemm"),
    "Errors": ("TilewiseError", "CompileError", "TraceError", "ParserMissingError",
               "LaunchError", "LimitError",
               "KernelAssertError", "CheckError", "MemoryAccessError", "UninitializedReadError",
               "RaceError", "BarrierError", "VariableError", "DeviceUnavailableError",
               "UnsupportedInstructionError"),
}  # fmt: skip
"""The names of ``tilewise.__all__``, each in one group."""
NO_DOCSTRING = {
    "RUNGS": "The rungs of the ladder, a tuple of `tilewise.Rung`, from the first to the fastest.",
    "__version__": "The version, a string.",
}
BESIDE: dict[str, tuple[type, ...]] = {"profile": (Profile,), "watch": (Watch, Beside)}
"""Classes without a public name that public functions return."""
MODULES = ("notebook", "triton", "numba", "torch")
METHODS = {"Kernel": ("launch", "profile", "watch", "compile", "from_ptx", "variables")}
"""Methods that get entries of their own."""
CONSTRUCTED = ("Kernel", "Limits", "Launch")
"""Classes that a caller constructs; functions return all others."""


def page(modules: Sequence[str] = MODULES) -> str:
    """Return the page, with the modules that are named; ``torch`` needs PyTorch."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            found = getattr(tilewise, name)
            if name in NO_DOCSTRING:
                parts.append(f"### `tilewise.{name}`\n\n{NO_DOCSTRING[name]}\n")
                continue
            parts.append(_entry(f"tilewise.{name}", found, name in CONSTRUCTED))
            methods = ((x, inspect.getattr_static(found, x)) for x in METHODS.get(name, ()))
            parts += (_entry(f"{name}.{x}", method) for x, method in methods)
            for other in BESIDE.get(name, ()):
                parts.append(_entry(f"{other.__module__}.{other.__name__}", other, False))
    for name in modules:
        module = getattr(tilewise, name)
        parts.append(f"## tilewise.{name}\n\n{_sentence(module)}\n")
        parts += (_entry(f"tilewise.{name}.{x}", getattr(module, x)) for x in module.__all__)
    parts.append(f"`tilewise.__version__`: {NO_DOCSTRING['__version__']}\n")
    return "\n".join(parts)


def _entry(name: str, found: Any, is_constructed: bool = True) -> str:
    """Return the entry of a function or a class."""
    is_property = isinstance(found, property)
    found = found.fget if is_property else getattr(found, "__func__", found)
    sections = _sections(inspect.getdoc(found) or "")
    lines = [f"### `{name}`", ""]
    if is_constructed and not is_property:
        lines += ["```python", _call(name, found), "```", ""]
    lines += [*_wrapped(_markdown(_paragraph(sections[""]))), ""]
    for title in ("Parameters", "Attributes", "Returns", "Yields", "Raises"):
        if title in sections:
            lines += [f"*{title}*", "", *_items(sections[title]), ""]
    if is_dataclass(found) and "Attributes" not in sections:
        named = ", ".join(f"`{each.name}`" for each in fields(found))
        lines += ["*Attributes*", "", *_wrapped(named), ""]
    if inspect.isclass(found):
        members = list(_members(found))
        if members:
            lines += ["*Methods and properties*", "", *members, ""]
    if "Examples" in sections:
        shown = [line.replace("  # doctest: +SKIP", "") for line in sections["Examples"]]
        lines += ["```pycon", *shown, "```", ""]
    return "\n".join(lines)


def _sections(docstring: str) -> dict[str, list[str]]:
    """Return a numpydoc docstring's sections by title; the first one's title is empty."""
    found: dict[str, list[str]] = {"": []}
    lines = docstring.splitlines()
    title = ""
    for at, line in enumerate(lines):
        under = lines[at + 1] if at + 1 < len(lines) else ""
        if line and re.fullmatch(r"-{3,}", under) and len(under) == len(line):
            title = line
            found[title] = []
        elif not (re.fullmatch(r"-{3,}", line) and at and lines[at - 1] == title):
            found[title].append(line)
    return {each: _stripped(body) for each, body in found.items()}


def _stripped(lines: Sequence[str]) -> list[str]:
    return "\n".join(lines).strip("\n").splitlines()


def _paragraph(lines: Sequence[str]) -> str:
    """Return the first paragraph in one line."""
    return " ".join(" ".join(lines if "" not in lines else lines[: list(lines).index("")]).split())


def _sentence(found: Any) -> str:
    """Return the first sentence of a docstring."""
    text = _paragraph((inspect.getdoc(found) or "").splitlines())
    return _markdown(re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0])


def _markdown(text: str) -> str:
    """Return a docstring's text with its markup as Markdown."""
    text = re.sub(r":attr:`(\w+)`", r"the attribute `\1`", text)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"``([^`]*)``", r"`\1`", text)


def _items(lines: Sequence[str]) -> Iterator[str]:
    """Yield a section's entries: a name, a type, and the indented text below them."""
    entries: list[tuple[str, list[str]]] = []
    for line in lines:
        if line and not line.startswith(" "):
            entries.append((line, []))
        elif entries:
            entries[-1][1].append(line)
    for head, body in entries:
        name, _, kind = head.partition(" : ")
        told = f"`{name}`" + (f" : {_markdown(kind)}" if kind else "")
        said = _markdown(" ".join(" ".join(body).split()))
        yield from _wrapped(f"- {told}{'. ' if said else ''}{said}", "  ")


def _members(found: type) -> Iterator[str]:
    """Yield the public methods and properties of a class, each with its first sentence.

    Those of base classes are left out, except for those of ``Paged``.
    """
    own = dict(vars(found))
    if issubclass(found, Paged):
        own = {**vars(Paged), **own}
    for name, member in own.items():
        if name.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)  # of a class method
        function = getattr(function, "func", function)  # of a cached property
        if not inspect.isfunction(function) or not function.__doc__:
            continue
        is_called = inspect.isroutine(member) or isinstance(member, classmethod | staticmethod)
        listed = [x for x in inspect.signature(function).parameters if x not in ("self", "cls")]
        called = f"({', '.join(listed)})" if is_called else ""
        yield from _wrapped(f"- `{name}{called}`: {_sentence(function)}", "  ")


def _call(name: str, found: Any) -> str:
    """Return the signature, in one line or in one line for each parameter."""
    parameters = [_parameter(each) for each in _signature(found)]
    last: Any = None
    out: list[str] = []
    for each, text in zip(_signature(found), parameters, strict=True):
        if each.kind is each.KEYWORD_ONLY and last not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            out.append("*")
        out.append(text)
        last = each.kind
    returned = "" if inspect.isclass(found) else _returned(found)
    line = f"{name}({', '.join(out)}){returned}"
    if len(line) <= WIDTH:
        return line
    body = "".join(f"    {each},\n" for each in out)
    return f"{name}(\n{body}){returned}"


def _signature(found: Any) -> list[inspect.Parameter]:
    """Return the parameters, without those that are taken only to be refused."""
    every = inspect.signature(found).parameters.values()
    return [
        each for each in every if each.annotation != "Never" and each.name not in ("self", "cls")
    ]


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" * ((each.kind is each.VAR_POSITIONAL) + 2 * (each.kind is each.VAR_KEYWORD))
    named = each.annotation  # of classes of other libraries, types and not their names
    named = named.__name__ if isinstance(named, type) and named is not each.empty else named
    kind = "" if named is each.empty else f": {named}"
    if each.default is each.empty:
        return f"{stars}{each.name}{kind}"
    value = "..." if callable(each.default) or is_dataclass(each.default) else repr(each.default)
    return f"{each.name}{kind} = {value}"


def _returned(found: Any) -> str:
    kind = inspect.signature(found).return_annotation
    return "" if kind is inspect.Signature.empty else f" -> {kind}"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
