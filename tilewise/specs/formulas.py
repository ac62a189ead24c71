"""Expressions of arrays, with NumPy's meaning, and with a bound on what rounding may change."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.specs.arrays import Array, check_fits
from tilewise.specs.bounds import ULPS, Bounded, Precision, chosen
from tilewise.specs.expressions import CONSTANTS, literal, parsed

_OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.MatMult: operator.matmul, ast.Pow: operator.pow, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Bounded]] = {
    **{name: (lambda x, name=name: x.function(name)) for name in ULPS},
    **{name: (lambda x, name=name: x.rounded(name)) for name in ("floor", "ceil", "rint")},
    "abs": abs, "where": chosen, "sum": Bounded.sum, "mean": Bounded.mean, "cumsum": Bounded.cumsum,
    "max": lambda x, axis=None, keepdims=False: x.extreme("max", axis, keepdims),
    "min": lambda x, axis=None, keepdims=False: x.extreme("min", axis, keepdims),
    "maximum": lambda x, y: x.apart(y, "maximum"), "minimum": lambda x, y: x.apart(y, "minimum"),
    "transpose": lambda x: x.T, "reshape": lambda x, *shape: x.reshape(*shape),
}  # fmt: skip
"""The functions of expressions, with NumPy's meaning; ``reshape(x, m, n)``."""
_PLAIN = ("axis", "keepdims")  # arguments that are Python's own numbers


def evaluate(text: str, values: Mapping[str, Any], precision: Precision, what: str) -> Bounded:
    """Return the values of an expression of arrays and numbers, with their errors' bounds.

    Parameters
    ----------
    text : str
        Python's notation with NumPy's meaning: ``+ - * / // % ** @ & | ^ ~ << >>``, comparisons,
        indices and slices, ``.T``, and :data:`FUNCTIONS`. Python's parser reads it, and nothing
        else in it is executed.
    values : mapping
    precision : Precision
        The precision of the computation.
    what : str
        The name of the argument for messages.

    Raises
    ------
    ValueError
    """
    try:
        tree = parsed(text, values)
        with np.errstate(all="ignore"):
            return _Reader(values, precision).read(tree)
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"{what}: {error}") from None


@dataclass(frozen=True)
class Unset:
    """An array that nothing wrote before the launch, which an expression can't use."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Reader:
    """The values of an expression's parts."""

    def __init__(self, values: Mapping[str, Any], precision: Precision) -> None:
        self.values, self.precision = values, precision

    def read(self, node: ast.expr) -> Bounded:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return self._literal(literal(node.value))
        if isinstance(node, ast.Name):
            if node.id not in self.values and node.id in CONSTANTS:
                return self._literal(float(CONSTANTS[node.id]))
            if node.id not in self.values:
                raise ValueError(f"{node.id} is no argument; there are {', '.join(self.values)}")
            if isinstance(self.values[node.id], Unset):
                raise ValueError(f"{node.id} is empty before the launch")
            return Bounded(_exact(self.values[node.id], node.id), None, self.precision)
        if isinstance(node, ast.BinOp):
            return self._checked(
                _OPERATORS[type(node.op)](self.read(node.left), self.read(node.right))
            )
        if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
            return self._checked(_SIGNS[type(node.op)](self.read(node.operand)))
        if (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and type(node.ops[0]) in _COMPARISONS
        ):
            other = self.read(node.comparators[0])
            return self.read(node.left).compared(other, _COMPARISONS[type(node.ops[0])])
        if isinstance(node, ast.Attribute) and node.attr == "T":
            return self.read(node.value).T
        if isinstance(node, ast.Subscript):
            return self.read(node.value)[self._index(node.slice)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._called(node.func.id, node)
        raise ValueError(f"{ast.unparse(node)!r} is nothing that it takes")

    def _called(self, name: str, node: ast.Call) -> Bounded:
        if name not in FUNCTIONS:
            raise ValueError(f"there is no function {name}; there are {', '.join(FUNCTIONS)}")
        known = {each.arg: self._plain(each.value) for each in node.keywords if each.arg in _PLAIN}
        if len(known) != len(node.keywords):
            raise ValueError(f"{name} takes axis and keepdims by name, and nothing else")
        if not node.args:
            raise ValueError(f"{name} is given nothing")
        first, *rest = node.args
        is_of_arrays = name in ("where", "maximum", "minimum")
        others = [self.read(x) if is_of_arrays else self._plain(x) for x in rest]
        return self._checked(FUNCTIONS[name](self.read(first), *others, **known))

    def _literal(self, value: float) -> Bounded:
        """Return a number; one that the precision lacks may be rounded, or not."""
        if not isinstance(value, float):
            return Bounded(value, None, self.precision)
        dtype = self.precision.dtype
        if dtype.kind not in "fV" or not math.isfinite(value):
            return Bounded(value, None, self.precision)
        check_fits(value, dtype)
        return Bounded(value, abs(float(dtype.type(value)) - value), self.precision)

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(each) for each in node.elts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if each is None else self._plain(each) for each in ends))
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        found = self.read(node)
        return int(found.value) if found.value.ndim == 0 else found.value  # gathered by an array

    def _plain(self, node: ast.expr) -> Any:
        """Return a Python integer, as a size or an axis."""
        found = self.read(node)
        if found.value.ndim or not found.is_whole:
            raise ValueError(f"{ast.unparse(node)!r} is no integer")
        return found.value.item()

    def _checked(self, found: Any) -> Bounded:
        if not isinstance(found, Bounded):
            raise ValueError("it has an operation that it does not take")
        return found


def _exact(value: Any, name: str) -> Array:
    """Return an argument with all its digits: float64, or int64."""
    array = np.asarray(value)
    if array.dtype.kind == "c" or (array.dtype.kind == "V" and array.dtype.name != "bfloat16"):
        raise ValueError(f"{name} is {array.dtype}, which an expression can't have")
    if array.dtype.kind in "biu":
        is_large = array.dtype == np.uint64 and bool((array > np.iinfo(np.int64).max).any())
        return array if is_large else array.astype(np.int64)
    return array.astype(np.float64)
