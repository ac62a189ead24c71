"""Compute expressions of host code that depend only on constants, macros and plain variables.

Nothing is executed. A variable has a value if it is initialized and never assigned to again; that a
call may change it by reference is ignored. The value of a ``dim3`` is three numbers.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.compiler.source import macros as preprocessor
from tilewise.compiler.source.declarations import declarator_of, unwrapped
from tilewise.compiler.source.instances import split_list
from tilewise.compiler.source.part import Files
from tilewise.compiler.source.scopes import visible
from tilewise.compiler.source.tree import Text, nodes, parsed
from tilewise.compiler.type_names import size_of

Number = int | float
Dim = tuple[int, int, int]
Value = Number | Dim | None

_DEEPEST = 12  # how deep variables and functions may depend on one another
_MOST = 1 << 62
_DIMS = ("dim3", "uint3")
_NUMBER = re.compile(
    r"(?P<whole>0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]*|(?P<float>[^xX]*?)[fFlL]?"
)
_FLOATS = ("float", "double")
_WHOLE = re.compile(r"(?:const |static |constexpr )*(?:(?:unsigned|signed|long|short|int|char|auto|"
                    r"(?:std::)?size_t|u?int\d+_t|uint|bool) ?)+")  # fmt: skip
_OPERATIONS: dict[str, Callable[[Any, Any], Number]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt,
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "&&": lambda a, b: bool(a) and bool(b), "||": lambda a, b: bool(a) or bool(b),
    "<<": lambda a, b: a << (b if 0 <= b < 63 else None), ">>": lambda a, b: a >> b,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "ceil": lambda x: float(math.ceil(x)), "floor": lambda x: float(math.floor(x)),
    "min": min, "max": max, "sqrt": math.sqrt,
}  # fmt: skip
_FUNCTIONS |= {f"{name}f": found for name, found in _FUNCTIONS.items()}


@dataclass(frozen=True)
class Place:
    """The place of an expression: a node, and its text."""

    node: Any
    text: Text


class Values:
    """The values of expressions in some files' host code."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._changed: dict[tuple[int, int, int], set[str]] = {}

    def of(
        self, expression: str, place: Place, given: Mapping[str, Value], depth: int = 0
    ) -> Value:
        """Return the value of an expression; None if it is not known.

        Parameters
        ----------
        expression : str
        place : Place
            The place of the expression.
        given : mapping of str to Value
            The values of names, which take precedence.
        """
        if depth > _DEEPEST:
            return None
        macros = {name: body for name, body in self._files.macros.items() if name not in given}
        if not macros.keys().isdisjoint(preprocessor.tokens_of(expression)):
            expression = preprocessor.expanded(expression, macros)
        text = parsed(f"auto value = ({expression});")
        declared = next(iter(text.root.named_children), None)
        found = None if declared is None else declared.child_by_field_name("declarator")
        if found is None or found.type != "init_declarator" or text.root.has_error:
            return None
        found = found.child_by_field_name("value")
        try:
            value = _Expression(self, text, place, given, depth).value(found)
        except (ArithmeticError, TypeError, ValueError, RecursionError):
            return None
        if isinstance(value, tuple) or value is None:
            return value
        return value if math.isfinite(value) and abs(value) < _MOST else None

    def extents(self, expression: str, place: Place, given: Mapping[str, Value]) -> Dim | None:
        """Return the value of an expression for a grid or block; extents may be less than 1."""
        value = self.of(expression, place, given)
        return _dim([value]) if isinstance(value, int | float) else value

    def named(self, word: str, place: Place, given: Mapping[str, Value], depth: int) -> Value:
        """Return the value of a name."""
        for declaration in visible(place.node, ("declaration", "parameter_declaration")):
            for declarator in declaration.children_by_field_name("declarator"):
                name = declarator_of(declarator)
                if name is not None and place.text.spelled(name) == word:
                    found = Place(declaration, place.text)
                    return self._declared(word, declarator, found, given, depth)
        for each in self._files.by_name.get(word, ()):
            text = self._files.texts[each.file]
            if each.kind == "variable" and text is not place.text and each.node is not None:
                inner = unwrapped(each.node)
                for declarator in inner.children_by_field_name("declarator"):
                    name = declarator_of(declarator)
                    if name is not None and text.spelled(name) == word:
                        return self._declared(word, declarator, Place(inner, text), given, depth)
        return None

    def _declared(
        self, word: str, declarator: Any, place: Place, given: Mapping[str, Value], depth: int
    ) -> Value:
        """Return the value that a variable is declared with; None if it is changed later."""
        node, text = place.node, place.text
        if node.type != "declaration" or word in self._changes(node.parent, text):
            return None
        kind = text.spelled(node.child_by_field_name("type"))
        inner = declarator.child_by_field_name("declarator")
        value = declarator.child_by_field_name("value")
        if declarator.type == "function_declarator":  # as which dim3 block(X, Y) is parsed
            value = declarator.child_by_field_name("parameters")
        elif declarator.type != "init_declarator" or inner.type != "identifier":
            return (1, 1, 1) if kind in _DIMS and declarator.type == "identifier" else None
        said = text.spelled(value)
        if value.type in ("argument_list", "parameter_list", "initializer_list"):
            each = [self.of(one, place, given, depth + 1) for one in split_list(said[1:-1])]
            if kind in _DIMS:
                return _dim(each)
            found = each[0] if len(each) == 1 else None
        else:
            found = self.of(said, place, given, depth + 1)
        if isinstance(found, int | float) and kind in _DIMS:
            return _dim([found])
        return _as(kind, found)

    def _changes(self, scope: Any, text: Text) -> set[str]:
        """Return the variables of a scope that are changed in it, or whose address is taken."""
        key = (id(text), scope.start_byte, scope.end_byte)
        if key not in self._changed:
            self._changed[key] = set(_changed(scope, text))
        return self._changed[key]

    def called(self, name: str, values: Sequence[Value], depth: int) -> Value:
        """Return the value of a call, of a function whose body is one ``return``."""
        for each in self._files.by_name.get(name, ()):
            if each.kind != "function" or each.node is None or depth > _DEEPEST:
                continue
            function, text = unwrapped(each.node), self._files.texts[each.file]
            body = function.child_by_field_name("body")
            parts = [] if body is None else [c for c in body.named_children if c.type != "comment"]
            if len(parts) != 1 or parts[0].type != "return_statement" or each.expanded is not None:
                continue
            names = [
                text.spelled(declarator_of(one.child_by_field_name("declarator")))
                for one in nodes(function.child_by_field_name("declarator"))
                if one.type == "parameter_declaration" and one.child_by_field_name("declarator")
            ]
            if len(names) == len(values):
                said = text.spelled(parts[0]).removeprefix("return").rstrip(";")
                given = dict(zip(names, values, strict=True))
                return self.of(said, Place(parts[0], text), given, depth + 1)
        return None


@dataclass(frozen=True)
class _Expression:
    """An expression that is parsed by itself; its names are looked up at ``place``."""

    values: Values
    text: Text
    place: Place
    given: Mapping[str, Value]
    depth: int

    def value(self, node: Any) -> Value:
        found: Callable[[Any], Value] | None = getattr(self, f"_{node.type}", None)
        return None if found is None else found(node)

    def _field(self, node: Any, name: str) -> Value:
        return self.value(node.child_by_field_name(name))

    def _number_literal(self, node: Any) -> Value:
        match = _NUMBER.fullmatch(self.text.spelled(node).replace("'", ""))
        if match is None:
            return None
        if match["whole"] is None:
            return float(match["float"])
        digits = match["whole"]
        is_octal = re.fullmatch(r"0\d+", digits) is not None
        return int(digits, 8) if is_octal else int(digits, 0)

    def _true(self, _node: Any) -> Value:
        return 1

    def _false(self, _node: Any) -> Value:
        return 0

    def _parenthesized_expression(self, node: Any) -> Value:
        return self.value(node.named_children[0])

    def _binary_expression(self, node: Any) -> Value:
        left, right = self._field(node, "left"), self._field(node, "right")
        sign = self.text.spelled(node.child_by_field_name("operator"))
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return None
        if sign in "/%":
            if sign == "/" and not (isinstance(left, int) and isinstance(right, int)):
                return left / right
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if sign == "/" else left - right * quotient
        found = _OPERATIONS[sign](left, right) if sign in _OPERATIONS else None
        return int(found) if isinstance(found, bool) else found

    def _unary_expression(self, node: Any) -> Value:
        value = self._field(node, "argument")
        if not isinstance(value, int | float):
            return None
        sign = self.text.spelled(node.child_by_field_name("operator"))
        return {"-": -value, "+": value, "!": int(not value)}.get(sign)

    def _conditional_expression(self, node: Any) -> Value:
        condition = self._field(node, "condition")
        if condition is None:
            return None
        return self._field(node, "consequence" if condition else "alternative")

    def _cast_expression(self, node: Any) -> Value:
        kind = self.text.spelled(node.child_by_field_name("type"))
        return _as(kind, self._field(node, "value"))

    def _sizeof_expression(self, node: Any) -> Value:
        kind = node.child_by_field_name("type") or node.named_children[0]
        return size_of(self.text.spelled(kind).strip("() "))

    def _field_expression(self, node: Any) -> Value:
        value = self._field(node, "argument")
        axis = "xyz".find(self.text.spelled(node.child_by_field_name("field")))
        return value[axis] if isinstance(value, tuple) and axis >= 0 else None

    def _call_expression(self, node: Any) -> Value:
        name = self.text.spelled(node.child_by_field_name("function"))
        listed = node.child_by_field_name("arguments")
        values = [self.value(c) for c in listed.named_children if c.type != "comment"]
        if name in _DIMS:
            return _dim(values)
        cast = re.fullmatch(r"static_cast<(.+)>", name)
        if cast is not None or _WHOLE.fullmatch(name) or name in _FLOATS:
            return _as(cast[1] if cast is not None else name, *values)
        short = name.rpartition("::")[2]
        own = self.values.called(re.sub(r"<.*>", "", short), values, self.depth + 1)
        if own is None and short in _FUNCTIONS and None not in values:
            return _FUNCTIONS[short](*values)
        return own

    def _identifier(self, node: Any) -> Value:
        word = self.text.spelled(node)
        if word in self.given:
            return self.given[word]
        return self.values.named(word, self.place, self.given, self.depth + 1)

    def _initializer_list(self, node: Any) -> Value:
        return _dim([self.value(c) for c in node.named_children if c.type != "comment"])

    def _compound_literal_expression(self, node: Any) -> Value:  # dim3{16, 16}
        kind = self.text.spelled(node.child_by_field_name("type"))
        return self._field(node, "value") if kind in _DIMS else None


def _dim(values: Sequence[Value]) -> Dim | None:
    """Return three extents from one to three numbers."""
    found = [int(value) for value in values if isinstance(value, int | float)]
    if len(found) < len(values) or len(found) > 3:
        first = values[0] if values else None
        return first if len(values) == 1 and isinstance(first, tuple) else None
    x, y, z = (*found, 1, 1, 1)[:3]
    return x, y, z


def _as(kind: str, value: Value) -> Value:
    """Return a number converted to a type."""
    if not isinstance(value, int | float):
        return value
    if kind in _FLOATS:
        return float(value)
    is_whole = _WHOLE.fullmatch(kind) and (kind != "auto")
    return int(value) if is_whole else value


def _changed(scope: Any, text: Text) -> Iterator[str]:
    """Yield the variables that are assigned to, in whole or in part, or whose address is taken."""
    for node in nodes(scope):
        if node.type == "assignment_expression":
            changed = node.child_by_field_name("left")
        elif node.type in ("update_expression", "pointer_expression"):
            changed = node.child_by_field_name("argument")
        else:
            continue
        while changed is not None and changed.type in ("field_expression", "subscript_expression"):
            changed = changed.child_by_field_name("argument")
        if changed is not None:
            yield text.spelled(changed)
