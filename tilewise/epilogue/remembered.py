"""Remember traced functions, if tracing them again could give nothing else."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Container
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from tilewise.epilogue import functions
from tilewise.epilogue.traced import Epilogue, Traced, trace

KEPT = 1024
_PURE = frozenset(
    {
        abs,
        *filter(callable, vars(math).values()),
        *(getattr(functions, x) for x in functions.__all__),
    }
)
"""The functions whose results depend on their arguments alone."""
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
# inspect's CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR: calling such a function does not run
# its code.
_GENERATORS = 0x20 | 0x80 | 0x200
_MISSING = object()


class Known(NamedTuple):
    """The code of a function, and what it computes.

    Attributes
    ----------
    code : CodeType
        The code, kept alive so that no other object gets its ``id``.
    traced : Traced or None
        What the code computes; None if the function has to be traced each time.
    names : tuple of (str, object)
        The globals that the code reads, and their values.
    attributes : tuple of (dict, str, object)
        The attributes of modules that the code reads: the module's dictionary, the name, the value.
    """

    code: CodeType
    traced: Traced | None
    names: tuple[tuple[str, object], ...] = ()
    attributes: tuple[tuple[dict[str, Any], str, object], ...] = ()


_known: dict[tuple[int, tuple[str, ...], bool], Known] = {}


def remembered(
    function: Callable[..., Any] | Epilogue,
    names: tuple[str, ...],
    taken: Container[str] = (),
    *,
    pairs: bool = False,
) -> Traced:
    """Trace a function as :func:`tilewise.epilogue.trace` does, anew only if the result may differ.

    The result is the same for the same code if the function reads only its arguments, constants,
    and globals that are unchanged: numbers, functions of :mod:`tilewise.epilogue.functions` and of
    :mod:`math`, and NumPy's universal functions, by themselves or as attributes of modules. A
    function that has a closure or defaults, or that reads anything else, is traced each time.

    Parameters
    ----------
    function, names, taken, pairs
        The arguments of :func:`tilewise.epilogue.trace`.

    Raises
    ------
    TraceError
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__:
        return trace(function, names, taken, pairs=pairs)
    code = function.__code__
    key = id(code), names, pairs
    known = _known.get(key)
    if known is None:
        traced = trace(function, names, taken, pairs=pairs)
        if len(_known) >= KEPT:
            _known.clear()
        _known[key] = _looked_at(function, traced)
        return traced
    if known.traced is None or function.__dict__:
        return trace(function, names, taken, pairs=pairs)
    there = function.__globals__
    for name, value in known.names:
        if there.get(name, _MISSING) is not value:
            return _anew(key, function, taken)
    for module, name, value in known.attributes:
        if module.get(name, _MISSING) is not value:
            return _anew(key, function, taken)
    return known.traced


def _anew(
    key: tuple[int, tuple[str, ...], bool], function: FunctionType, taken: Container[str]
) -> Traced:
    """Trace a function anew, and forget the previous result for its code."""
    _, names, pairs = key
    _known.pop(key, None)
    return trace(function, names, taken, pairs=pairs)


def _looked_at(function: FunctionType, traced: Traced) -> Known:
    """Return what to remember about a function that was traced."""
    import dis  # imported here, because importing it takes milliseconds and few calls need it

    code = function.__code__
    unknown = Known(code, None)
    if (
        code.co_freevars
        or code.co_flags & _GENERATORS
        or function.__dict__
        or function.__globals__.get("__builtins__", builtins) not in (builtins, vars(builtins))
        or any(isinstance(x, CodeType) for x in code.co_consts)
    ):
        return unknown
    names: dict[str, object] = {}
    attributes: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opcode not in dis.hasname:
            continue
        if each.opname == "LOAD_GLOBAL":
            names[each.argval] = function.__globals__.get(each.argval, _MISSING)
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(each.argval)
        else:
            return unknown
    modules = [vars(x) for x in names.values() if isinstance(x, ModuleType)]
    read = [(x, name, x[name]) for name in attributes for x in modules if name in x]
    if attributes - {name for _, name, _ in read}:  # it reads another object's attribute
        return unknown
    read += [
        (vars(builtins), name, getattr(builtins, name, None))
        for name, value in names.items()
        if value is _MISSING
    ]
    values = [x for x in names.values() if x is not _MISSING and not isinstance(x, ModuleType)]
    if not all(map(_is_constant, (*values, *(value for *_, value in read)))):
        return unknown
    return Known(code, traced, tuple(names.items()), tuple(read))


def _is_constant(x: object) -> bool:
    """Return whether a value that is read is a number, or a function of its arguments alone."""
    if type(x) in (int, float, bool) or isinstance(x, np.ufunc):
        return True
    return isinstance(x, _FUNCTIONS) and x in _PURE
