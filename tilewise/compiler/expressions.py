"""The whole numbers of C++'s constant expressions, with macros replaced.

Sources: ISO C++20 7.6 (expressions), 15.2 (conditions), 15.6 (macros).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from tilewise.compiler.type_names import is_integer, size_of

_TOKEN = re.compile(r"\d[\w'.]*|[A-Za-z_$][\w$]*|<<|>>|<=|>=|==|!=|&&|\|\||\S")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_NUMBER = re.compile(r"(0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]*")
_MOST_TOKENS = 1000  # of an expression whose macros are replaced
_DEEPEST = 50  # levels of nested macros, and of nested expressions
_MOST = 1 << 31  # whatever an int can't hold depends on its type
_PRECEDENCE = {
    "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "==": 6, "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1,
}  # fmt: skip
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "*": operator.mul, "+": operator.add, "-": operator.sub, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&": operator.and_,
    "^": operator.xor, "|": operator.or_, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def value_of(
    expression: str,
    macros: Mapping[str, str],
    is_defined: Callable[[str], bool | None] | None = None,
) -> int | None:
    """Return the whole number of an expression; None if it is not certain.

    It is not certain either where the types of C++ would count: beyond the range of ``int``, and
    for negative numbers beside unsigned ones.

    Parameters
    ----------
    expression : str
        Numbers, macros, ``sizeof`` of a type, casts to integers, and C++'s operators.
    macros : mapping of str to str
        The bodies of the macros; of one with parameters, by its name and a bracket, the parameters
        and the body: ``{"TWICE(": "x) 2 * (x)"}``.
    is_defined : callable, optional
        For the condition of an ``#if``: whether a macro is defined, None if that is not known. A
        name that is no macro is 0 there; in other expressions it has no value.

    Examples
    --------
    >>> value_of("N > 8 ? N + 1 : 0x10", {"N": "2 * 6"})
    13
    >>> value_of("TWICE(N + 1)", {"N": "2", "TWICE(": "x) 2 * (x)"})
    6
    """
    try:
        return _Parser(replaced(expression, macros), is_defined).whole()
    except ValueError:
        return None


def replaced(text: str, macros: Mapping[str, str]) -> list[str]:
    """Return the tokens of a text with macros replaced, except operands of ``defined``.

    Raises
    ------
    ValueError
        If there are too many tokens, or macros to replace.
    """
    return _replaced(_TOKEN.findall(text), macros, frozenset(), [_MOST_TOKENS])


def names_in(expression: str, macros: Mapping[str, Sequence[str | None]]) -> set[str]:
    """Return the keys of macros that an expression names, itself or by the bodies of others."""
    found: set[str] = set()
    waiting = [expression]
    while waiting:
        for name in _NAME.findall(waiting.pop()):
            for key in (name, f"{name}("):
                if key in macros and key not in found:
                    found.add(key)
                    waiting += [body for body in macros[key] if body is not None]
    return found


def _replaced(
    tokens: Sequence[str], macros: Mapping[str, str], expanding: frozenset[str], budget: list[int]
) -> list[str]:
    if len(expanding) > _DEEPEST:
        raise ValueError("macros are too deep")
    out: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        budget[0] -= 1
        if budget[0] < 0:
            raise ValueError("the expression is too long")
        is_asked = out[-1:] == ["defined"] or out[-2:] == ["defined", "("]
        if token in expanding or is_asked:
            out.append(token)
        elif tokens[at : at + 1] == ["("] and f"{token}(" in macros:
            arguments, end = arguments_of(tokens, at)
            if end is None:
                raise ValueError("a bracket is not closed")
            at = end
            arguments = [_replaced(each, macros, expanding, budget) for each in arguments]
            body = _filled(macros[f"{token}("], arguments)
            out += _replaced(body, macros, expanding | {token}, budget)
        elif token in macros:
            body = _TOKEN.findall(macros[token])
            out += _replaced(body, macros, expanding | {token}, budget)
        else:
            out.append(token)
    return out


def arguments_of(tokens: Sequence[str], at: int) -> tuple[list[list[str]], int | None]:
    """Return the arguments of a macro, whose bracket opens at ``at``, and the place after them.

    The place is None if the bracket is not closed.
    """
    found: list[list[str]] = [[]]
    depth = 1
    for place in range(at + 1, len(tokens)):
        token = tokens[place]
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return found, place + 1
        if token == "," and depth == 1:
            found.append([])
        else:
            found[-1].append(token)
    return found, None


def _filled(macro: str, arguments: list[list[str]]) -> list[str]:
    """Return the body of a macro with arguments in place of its parameters."""
    names, _, body = macro.partition(")")
    parameters = [each.strip() for each in names.split(",")]
    if len(parameters) != len(arguments) or "..." in names or "#" in body:
        raise ValueError("a macro that is not replaced here")
    given = dict(zip(parameters, arguments, strict=True))
    return [each for token in _TOKEN.findall(body) for each in given.get(token, [token])]


class _Parser:
    """Computes an expression from its tokens; raises ValueError if they are not one."""

    def __init__(
        self, tokens: Sequence[str], is_defined: Callable[[str], bool | None] | None
    ) -> None:
        self._tokens, self._is_defined = tokens, is_defined
        self._at = self._depth = 0
        # Whether an operand is unsigned, or may be.
        self._is_unsigned = any(
            token in ("sizeof", "unsigned", "size_t")
            or (token[0].isdigit() and "u" in token.lower())
            for token in tokens
        )

    def whole(self) -> int | None:
        value = self._expression(0)
        if self._next() != "":
            raise ValueError("more than one expression")
        return value

    def _next(self) -> str:
        """Return the next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._next()
        if not token or (expected and token != expected):
            raise ValueError(f"no {expected or 'operand'}")
        self._at += 1
        return token

    def _expression(self, lowest: int) -> int | None:
        """Return the value up to an operator whose precedence is below ``lowest``."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("expressions are too deep")
        value = self._operand()
        while (sign := self._next()) in _PRECEDENCE and _PRECEDENCE[sign] >= lowest:
            self._at += 1
            value = self._checked(_computed(sign, value, self._expression(_PRECEDENCE[sign] + 1)))
        if lowest == 0 and self._next() == "?":
            self._at += 1
            first = self._expression(0)
            self._take(":")
            second = self._expression(0)
            if value is None:
                value = first if first == second else None
            else:
                value = first if value else second
        self._depth -= 1
        return value

    def _operand(self) -> int | None:
        token = self._take()
        if token == "(":
            if is_integer(words := self._words()) or words == ["size_t"]:
                self._at += len(words)
                self._take(")")
                return self._cast(" ".join(words), self._expression(max(_PRECEDENCE.values()) + 1))
            value = self._expression(0)
            self._take(")")
            return value
        if token in ("-", "+", "!", "~"):
            value = self._expression(max(_PRECEDENCE.values()) + 1)
            if value is None:
                return None
            return self._checked({"-": -value, "+": value, "!": int(not value), "~": ~value}[token])
        if token == "sizeof":
            self._take("(")
            words = self._words()
            self._at += len(words)
            is_pointer = self._next() == "*"
            self._at += is_pointer
            self._take(")")
            return size_of(" ".join(words) + "*" * is_pointer)
        if number := _NUMBER.fullmatch(token.replace("'", "")):
            digits = number[1]
            return self._checked(int(digits, 8 if re.fullmatch(r"0\d+", digits) else 0))
        if token in ("true", "false"):
            return int(token == "true")
        if not _NAME.fullmatch(token):
            raise ValueError("no operand")
        return self._of_name(token)

    def _words(self) -> list[str]:
        """Return the names that come next."""
        words: list[str] = []
        while _NAME.fullmatch(self._peek(len(words))):
            words.append(self._peek(len(words)))
        return words

    def _peek(self, ahead: int) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _checked(self, value: int | None) -> int | None:
        """Return a value that is the same whatever the types of the operands, else None."""
        if value is None or (value < 0 and self._is_unsigned):
            return None
        return value if abs(value) < _MOST else None

    def _cast(self, type: str, value: int | None) -> int | None:
        """Return a value that the type holds, else None."""
        size = 8 if type == "size_t" else size_of(type)
        is_held = value is not None and size is not None and 0 <= value < 1 << (8 * size - 1)
        return value if is_held else None

    def _of_name(self, name: str) -> int | None:
        """Return the value of an operator ``defined``, or of an identifier that is no macro."""
        if self._is_defined is None:
            return None
        if name == "defined":
            in_brackets = self._next() == "("
            self._at += in_brackets
            known = self._is_defined(self._take())
            if in_brackets:
                self._take(")")
            return None if known is None else int(known)
        if self._next() == "(":
            raise ValueError("a macro with arguments")
        return 0 if self._is_defined(name) is False else None


def _computed(sign: str, left: int | None, right: int | None) -> int | None:
    """Return the value of a binary operator; None if it is not known, or not defined."""
    if sign == "&&" and 0 in (left, right):
        return 0
    if sign == "||" and any((left, right)):
        return 1
    if left is None or right is None:
        return None
    if sign in ("&&", "||"):
        return int(sign == "&&")
    if sign in ("<<", ">>") and not 0 <= right < 32:
        return None
    if sign in ("/", "%"):
        if right == 0:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    return int(_OPERATIONS[sign](left, right))
