"""A module of PTX: its kernels, by their symbols and their C++ names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tilewise.compiler.compiled import Parameter
from tilewise.compiler.mangled import demangle
from tilewise.compiler.ptx.lines import Numbered, as_they_were_written, with_own_lines
from tilewise.compiler.ptx.parameters import parameters
from tilewise.compiler.ptx.text import Split, split
from tilewise.errors import CompileError

NO_FILE = "<ptx>"
"""The name of PTX that comes from no file."""
_BOUND = re.compile(r"\.(reqntid|maxntid|minnctapersm|reqnctapercluster)\s+(\d+(?:\s*,\s*\d+)*)")


@dataclass(frozen=True)
class Module:
    """A module's text split into its functions, and with line numbers of its own."""

    split: Split
    numbered: Numbered


@lru_cache(maxsize=4)
def module_of(text: str, file: str = NO_FILE) -> Module:
    """Return a module's text split into its functions, and with line numbers of its own.

    Raises
    ------
    CompileError
        If it can't be read.
    """
    text = as_they_were_written(text)
    try:
        found = split(text)
    except CompileError as error:
        raise CompileError(f"{file}: {error}") from None
    return Module(found, with_own_lines(found, text, file))


def target(text: str, file: str = NO_FILE) -> str:
    """Return the architecture that PTX is for, by its ``.target``.

    Raises
    ------
    CompileError
        If it has no ``.target``, or can't be read.
    """
    found = module_of(text, file).split.target
    if not found:
        raise CompileError(f"{file} has no .target, as PTX begins with; is it PTX?")
    return found


@dataclass(frozen=True)
class Entry:
    """A kernel in PTX.

    Attributes
    ----------
    symbol : str
    name : str
        The C++ name, or the symbol if another kernel has the same name.
    line : int
        The line of ``.entry``, from 1.
    parameters : tuple of Parameter
    launch_bounds, cluster_dims : str
        For example ``"256, 2"`` and ``"2, 1, 1"``; empty if it has none.
    """

    symbol: str
    name: str
    line: int
    parameters: tuple[Parameter, ...]
    launch_bounds: str
    cluster_dims: str


def entries(text: str, file: str = NO_FILE) -> tuple[Entry, ...]:
    """Return the kernels of a PTX module, in its order.

    Raises
    ------
    CompileError
        If it, or a kernel's parameters, can't be read.
    """
    module = module_of(text, file).split
    names = [demangle(symbol) for symbol in module.kernels]
    found = []
    for symbol, name in zip(module.kernels, names, strict=True):
        body = module.functions[symbol]
        bounds = dict(_BOUND.findall(body.header))
        threads = bounds.get("reqntid") or bounds.get("maxntid") or ""
        # Bounds of one dimension are shown as one number, as in __launch_bounds__.
        threads = re.sub(r"(?:\s*,\s*1)+$", "", threads.strip())
        least = bounds.get("minnctapersm", "").strip()
        found.append(
            Entry(
                symbol, symbol if names.count(name) > 1 else name,
                _line(module, symbol),
                parameters_of(module, symbol, file),
                ", ".join(filter(None, (threads, least))),
                bounds.get("reqnctapercluster", "").strip(),
            )
        )  # fmt: skip
    return tuple(found)


def parameters_of(module: Split, symbol: str, file: str) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel of a module.

    Raises
    ------
    CompileError
        If one can't be read.
    """
    body = module.functions[symbol]
    try:
        return tuple(Parameter(*each) for each in parameters(body.parameters))
    except CompileError as error:
        raise CompileError(f"{file}:{_line(module, symbol)}: {symbol}: {error}") from None


def _line(module: Split, symbol: str) -> int:
    """Return the line of a kernel's ``.entry``, from 1."""
    body = module.functions[symbol]
    return module.line(body.start) - body.header[body.header.find(".entry") :].count("\n")


def kernel_name(text: str, name: str | None, file: str = NO_FILE) -> str:
    """Return the name that was asked for; without one, that of the module's only kernel.

    Raises
    ------
    CompileError
        If there is no such kernel.
    """
    symbol = symbol_of(text, name, file)
    return name or symbol


def symbol_of(text: str, name: str | None, file: str = NO_FILE) -> str:
    """Return the symbol of the kernel of a name; without a name, that of the only kernel.

    Raises
    ------
    CompileError
        If there is no such kernel.
    """
    return _symbol(module_of(text, file).split, name, file)


def _symbol(module: Split, name: str | None, file: str) -> str:
    """Return the symbol of the kernel that is asked for."""
    there = module.kernels
    if name is None:
        if len(there) == 1:
            return there[0]
        raise CompileError(f"{file} has {_listed(there)}; say which")
    if name in there:
        return name
    plain = [symbol for symbol in there if demangle(symbol) == name]
    if len(plain) == 1:
        return plain[0]
    if plain:
        raise CompileError(f"{file} has several kernels called {name}: {', '.join(plain)}")
    raise CompileError(f"{file} has no kernel called {name!r}; it has {_listed(there)}")


def _listed(there: tuple[str, ...]) -> str:
    if not there:
        return "no kernel (.entry)"
    shown = [demangle(symbol) for symbol in there[:20]]
    more = f" and {len(there) - 20} more" if len(there) > 20 else ""
    return f"{', '.join(shown)}{more}"
