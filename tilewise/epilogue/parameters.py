"""The parameters of a caller's function: the accumulators first, then the operands."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from types import FunctionType
from typing import Any

from tilewise.epilogue.foreign import OURS, why_not
from tilewise.errors import TraceError
from tilewise.shown import plural

VARIADIC = 0x0C  # bits of a code's flags: *args, **kwargs (inspect.CO_VARARGS, CO_VARKEYWORDS)


def named(function: Callable[..., Any]) -> str:
    """Return a function's name and place for messages."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def parameters_of(
    function: Callable[..., Any], first: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the parameters after the first ones, and of those with defaults."""
    if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__  # inspect would take as long as all of the tracing
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        is_plain = not code.co_flags & VARIADIC and code.co_posonlyargcount <= first
        count = len(function.__defaults__ or ())
        if is_plain and code.co_argcount - count >= first:
            positional = names[code.co_argcount - count : code.co_argcount] if count else ()
            return names[first:], (*positional, *(function.__kwdefaults__ or ()))
    elif not callable(function):
        raise TypeError(f"epilogue is {function!r}; it takes a function")
    if why := why_not(function):
        raise TraceError(why)
    import inspect  # takes milliseconds to import, and few functions need it

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        name = getattr(function, "__name__", type(function).__name__)
        raise TraceError(
            f"{name} does not say what it takes; give a function of the accumulator, as "
            f"epilogue=lambda acc: tilewise.{OURS.get(name, 'relu')}(acc)"
        ) from None
    taken = [x for x in parameters[:first] if x.kind is not x.KEYWORD_ONLY]
    if len(taken) < first:
        if first == 1:
            raise TraceError(f"{named(function)} has no parameter; its first is the accumulator")
        raise TraceError(
            f"{named(function)} has {plural(len(parameters), 'parameter')}; of pairs, its first "
            "two are the products, as lambda gate, up: tilewise.silu(gate) * up"
        )
    for x in parameters:
        if x.kind in (x.VAR_POSITIONAL, x.VAR_KEYWORD):
            raise TraceError(f"{named(function)} takes {x}; name the operands one by one")
        if x.kind is x.POSITIONAL_ONLY and x not in taken:
            raise TraceError(f"{named(function)} takes {x.name} without a name; operands have one")
    optional = tuple(x.name for x in parameters[first:] if x.default is not x.empty)
    return tuple(x.name for x in parameters[first:]), optional


def check_names(
    function: str,
    parameters: Sequence[str],
    optional: Sequence[str],
    names: Sequence[str],
    taken: Container[str],
) -> None:
    """Raise TraceError if the given operands are not those that a function takes."""
    missing = [x for x in parameters if x not in names and x not in optional]
    if missing and missing[0] in taken:
        raise TraceError(
            f"{function} takes {missing[0]!r}, which is an argument of the product itself; "
            "call the operand otherwise"
        )
    if missing:
        raise TraceError(f"{function} takes {missing[0]!r}; give {missing[0]}=...")
    unknown = [x for x in names if x not in parameters]
    if unknown:
        takes = ", ".join(parameters) or "no operand"
        raise TraceError(f"{function} takes {takes}, and not {unknown[0]!r}")
