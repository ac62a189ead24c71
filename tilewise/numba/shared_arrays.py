"""Name the shared arrays of Numba's kernels as their source does: Numba only numbers them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

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

    @property
    def place(self) -> tuple[str, str, int]:
        """The place in the source, which several arrays may have."""
        return self.function, self.file, self.line


class Noted(NamedTuple):
    """An array, its number among those of its place as they were made, and how many there are."""

    array: _Array
    number: int
    total: int

    def name(self) -> str:
        """Return the name of the variable that it is assigned to; empty if that is not certain."""
        try:
            tree = ast.parse(sources.text(self.array.file))
        except (SyntaxError, ValueError):
            return ""
        found = [
            (value.lineno, value.col_offset, name, _is_shared(value))
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for name, value in _assigned(target, node.value)
            if value.lineno <= self.array.line <= (value.end_lineno or 0)
        ]
        if len({name for _, _, name, _ in found}) == 1:
            return found[0][2]
        names = [name for _, _, name, is_shared in sorted(found) if is_shared]
        return names[self.number] if len(names) == self.total else ""


def _assigned(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that an assignment gives to an expression, with that expression."""
    if isinstance(target, ast.Name) and value is not None:
        yield target.id, value
    both = ast.Tuple | ast.List
    if isinstance(target, both) and isinstance(value, both) and len(target.elts) == len(value.elts):
        for pair in zip(target.elts, value.elts, strict=True):
            yield from _assigned(*pair)


def _is_shared(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("shared.array")


_arrays: WeakKeyDictionary[Any, dict[str, _Array]] = WeakKeyDictionary()
"""The arrays by their symbols, of which none is used twice, for each module of Numba's code.

The code of a function that kernels call is kept by Numba, and is compiled once for all of them.
"""


@contextmanager
def noting_arrays() -> Iterator[dict[str, Noted]]:
    """Note the arrays that Numba makes as it compiles.

    The yielded dictionary has at the end all arrays by their symbols, also of functions that were
    compiled before.
    """
    module, found = numba("numba.cuda.cudaimpl"), dict[str, Noted]()
    make = getattr(module, "_generic_array", None)
    if make is None:
        yield found
        return
    module._generic_array = _noting(make)
    try:
        yield found
    finally:
        module._generic_array = make
    for arrays in _arrays.values():
        places = [array.place for array in arrays.values()]
        for index, (symbol, array) in enumerate(arrays.items()):
            number = places[:index].count(array.place)
            found[symbol] = Noted(array, number, places.count(array.place))


def _noting(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(context: Any, builder: Any, *args: Any, **given: Any) -> Any:
        found = make(context, builder, *args, **given)
        # Where another version of Numba does not say all this, arrays keep their numbers.
        with suppress(AttributeError, KeyError, TypeError):
            if given["addrspace"] == _SHARED:
                arrays = _arrays.setdefault(builder.module, {})
                arrays[given["symbol_name"]] = _array(context, builder, given)
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


def renamed(ptx: str, arrays: Mapping[str, Noted]) -> tuple[str, dict[str, Shape]]:
    """Return PTX whose shared arrays have the names of the source, and their shapes by symbol.

    A symbol is mangled as in CUDA C++, so that it names the function too: ``inner`` of Numba's
    ``outer.<locals>.inner``. Arrays whose names PTX does not take keep their numbers.
    """
    names: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    for symbol in dict.fromkeys(_SYMBOL.findall(ptx)):
        known = arrays.get(symbol)
        if known is None:
            continue
        name, function = known.name(), known.array.function.rpartition(".")[2]
        if _IN_PTX.fullmatch(name) and _IN_PTX.fullmatch(function):
            plain = f"_ZZ{len(function)}{function}E{len(name)}{name}"
            others = (f"{plain}_{number}" for number in count())
            names[symbol] = plain if plain not in shapes else next(
                each for each in others if each not in shapes
            )  # fmt: skip
        shapes[names.get(symbol, symbol)] = known.array.shape
    return _SYMBOL.sub(lambda found: names.get(found[0], found[0]), ptx), shapes
