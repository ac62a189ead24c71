"""Write a traced function as text, from which another process reads the same function."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tilewise.epilogue.symbols import Symbol, Symbols
from tilewise.epilogue.traced import PAIR, SUM, Traced, interned, shown

KEPT = 1024  # the number of functions that are kept


@lru_cache(maxsize=KEPT)
def written(function: Traced) -> str:
    """Return a function as text for :func:`read`; equal functions have equal texts."""
    index = {id(symbol): i for i, symbol in enumerate(function.needed)}

    def argument(x: Any) -> int | str:
        # Numbers are written as strings, because JSON has no infinity.
        return index[id(x)] if isinstance(x, Symbol) else str(x if isinstance(x, str) else repr(x))

    operations = [[x.operation, *map(argument, x.arguments)] for x in function.needed]
    results = [argument(x) for x in function.results]
    words = [
        [i, x.shown[0], *(index[id(y)] if isinstance(y, Symbol) else shown(y) for y in x.shown[1])]
        for i, x in enumerate(function.needed)
        if x.shown is not None
    ]
    parts = [function.sums, function.operands, operations, results, int(function.is_tuple), words]
    return json.dumps(parts, separators=(",", ":"))


@lru_cache(maxsize=KEPT)
def read(text: str) -> Traced:
    """Return the function of a text that :func:`written` returned.

    Raises
    ------
    ValueError
        If the text does not describe a function.
    """
    try:
        sums, operands, operations, results, is_tuple, words = json.loads(text)
        symbols = Symbols()
        made: list[Symbol] = []

        def value(x: int | str) -> Any:
            return float(x) if isinstance(x, str) else made[x]

        for operation, *arguments in operations:
            given = arguments if operation == "operand" else map(value, arguments)
            made.append(symbols.make(operation, *given))
        found = tuple(map(value, results))
        for i, name, *arguments in words:
            made[i].shown = (name, tuple(x if isinstance(x, str) else made[x] for x in arguments))
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{text!r} is not the text of an epilogue") from error
    return interned(PAIR if len(sums) == len(PAIR) else SUM, tuple(operands), found, bool(is_tuple))
