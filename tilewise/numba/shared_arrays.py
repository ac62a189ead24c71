"""Name the shared arrays of Numba's kernels as their source does: Numba only numbers them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tilewise.compiler.compiled import Shape
from tilewise.numba.packages import numba
from tilewise.python_kernels import sources

_SYMBOL = re.compile(r"\b_cudapy_smem_\d+\b")
_IN_PTX = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # a name that a symbol of PTX can have
_SHARED = 3  # NVVM's address space


@dataclass(frozen=True)
class _Array:
    """An array that Numba made: its function, its place in the source, and its shape."""

    function: str
    file: str
    line: int
    shape: Shape

    def name(self) -> str:
        """Return the name of the variable that it is assigned to; empty if that is not certain."""
        try:
            tree = ast.parse(sources.text(self.file))
        except (SyntaxError, ValueError):
            return ""
        names = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and node.lineno <= self.line <= (node.end_lineno or 0)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        return names.pop() if len(names) == 1 else ""


_arrays: dict[str, _Array] = {}
"""The arrays by their symbols, of which none is used twice."""


@contextmanager
def noted() -> Iterator[None]:
    """Note the arrays that Numba makes as it compiles."""
    module = numba("numba.cuda.cudaimpl")
    make = getattr(module, "_generic_array", None)
    if make is None:
        yield
        return
    module._generic_array = _noting(make)
    try:
        yield
    finally:
        module._generic_array = make


def _noting(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(context: Any, builder: Any, *args: Any, **given: Any) -> Any:
        found = make(context, builder, *args, **given)
        # Where another version of Numba does not say all this, arrays keep their numbers.
        with suppress(AttributeError, KeyError, TypeError):
            if given["addrspace"] == _SHARED:
                _arrays[given["symbol_name"]] = _array(context, builder, given)
        return found

    return made


def _array(context: Any, builder: Any, given: Mapping[str, Any]) -> _Array:
    place = dict(builder.debug_metadata.operands)
    function = dict(place["scope"].operands)
    file = dict(function["file"].operands)
    name = str(file["filename"])
    # A cell of a notebook, as "<ipython-input-3>", is in no folder.
    path = name if name.startswith("<") else str(Path(file["directory"]) / name)
    dtype = given["dtype"]
    element = int(context.get_abi_sizeof(context.get_data_type(dtype)))
    return _Array(
        str(function["name"]), path, int(place["line"]),
        Shape(element, tuple(given["shape"]), 0 if hasattr(dtype, "fields") else 1),
    )  # fmt: skip


def renamed(ptx: str) -> tuple[str, dict[str, Shape]]:
    """Return PTX whose shared arrays have the names of the source, and their shapes by symbol.

    A symbol is mangled as in CUDA C++, so that it names the function too: ``inner`` of Numba's
    ``outer.<locals>.inner``. Arrays whose names PTX does not take keep their numbers.
    """
    names: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    for symbol in dict.fromkeys(_SYMBOL.findall(ptx)):
        array = _arrays.get(symbol)
        if array is None:
            continue
        name, function = array.name(), array.function.rpartition(".")[2]
        if _IN_PTX.fullmatch(name) and _IN_PTX.fullmatch(function):
            plain = f"_ZZ{len(function)}{function}E{len(name)}{name}"
            others = (f"{plain}_{number}" for number in count())
            names[symbol] = plain if plain not in shapes else next(
                each for each in others if each not in shapes
            )  # fmt: skip
        shapes[names.get(symbol, symbol)] = array.shape
    return _SYMBOL.sub(lambda found: names.get(found[0], found[0]), ptx), shapes
