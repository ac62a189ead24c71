"""Pickle epilogues as the text of what was traced.

Equal traced functions are one object, so unpickling returns that object; an epilogue's key holds
only in its own process, so it gets a new one.
"""

from __future__ import annotations

import copyreg
from functools import partial
from typing import Any

import numpy as np

from tilewise.epilogue.symbols import Symbol
from tilewise.epilogue.traced import Epilogue, Traced
from tilewise.epilogue.written import read, written

_OWN = ("traced", "function", "key")
"""The attributes of an epilogue that are made anew of the text when it is read."""


def _reduced(epilogue: Epilogue) -> tuple[Any, ...]:
    """Return what a pickle holds: the text, the class, and what a derived class added."""
    kind, state = type(epilogue), epilogue.__getstate__()
    if kind.__getstate__ is object.__getstate__:  # a dict, or also one of slots
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        attributes = {name: x for name, x in attributes.items() if name not in _OWN}
        state = (attributes, slots) if slots else attributes
    return _epilogue, (written(epilogue.traced), kind), state or None


def _epilogue(text: str, kind: type[Epilogue] = Epilogue) -> Epilogue:
    from inspect import Parameter, Signature  # takes milliseconds to import

    traced = read(text)
    function: Any = partial(_called, traced)
    names = (*traced.sums, *traced.operands)
    function.__signature__ = Signature(
        [Parameter(x, Parameter.POSITIONAL_OR_KEYWORD) for x in names]
    )
    return kind._of(traced, function)


def _called(traced: Traced, *values: Any, **operands: Any) -> Any:
    """Compute what was traced of arrays, numbers or symbols, as the function did."""
    names = (*traced.sums, *traced.operands)
    given = {**dict(zip(names, values, strict=False)), **operands}
    if len(values) + len(operands) != len(names) or given.keys() != set(names):
        raise TypeError(f"{traced!r} takes {', '.join(names)}")
    every = [
        x if isinstance(x, Symbol) or hasattr(x, "dtype") else np.float64(x)
        for x in map(given.get, names)
    ]
    count = len(traced.sums)
    acc = every[:count] if traced.takes_pairs else every[0]
    found = traced.evaluate(acc, every[count:])
    return found if traced.is_tuple else found[0]


copyreg.pickle(Traced, lambda traced: (read, (written(traced),)))
copyreg.pickle(Epilogue, _reduced)
