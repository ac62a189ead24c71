"""Functions that are traced again only where they may compute something else."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.epilogue import remembered as module
from tilewise.epilogue import trace
from tilewise.epilogue.remembered import remembered
from tilewise.errors import TraceError

SCALE = 2.0
OTHER: Any = tw
LIST = [1.0]


def helper(x: Any) -> Any:
    return x * SCALE


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions that were traced."""
    found: list[Any] = []

    def noted(function: Any, *args: Any, **options: Any) -> Any:
        found.append(function)
        return trace(function, *args, **options)

    monkeypatch.setattr(module, "trace", noted)
    monkeypatch.setattr(module, "_known", {})
    return found


def again(function: Any) -> Any:
    """Another function of the same code, as a lambda is each time that its line is run."""
    return FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip


ONCE: list[Callable[..., Any]] = [
    lambda acc: acc + 1,
    lambda acc, x, y: tw.gelu(acc + x) * y,
    lambda acc, x: tw.where(acc > x, tw.silu(acc), -0.5) if SCALE else x,
    lambda acc, *, x: (np.tanh(acc) / math.pi, abs(acc) - x),
    lambda acc, x: acc * SCALE,
    lambda acc: acc * math.sqrt(2),
]


def number() -> Any:
    scale = 3.0
    return lambda acc: acc * scale


def with_default(acc: Any, x: Any, scale: Any = 2.0) -> Any:
    return acc * scale + x


def importing(acc: Any) -> Any:
    import math

    return acc * math.pi


def writing(acc: Any) -> Any:
    global SCALE
    SCALE = 2.0
    return acc


EACH_TIME: list[Callable[..., Any]] = [
    number(),
    lambda acc: acc * LIST[0],
    lambda acc: helper(acc),
    lambda acc: acc * len("abc"),
    lambda acc: acc * (lambda: SCALE)(),
    lambda acc: acc * sum(x + 1 for x in (1, 2)),
    lambda acc: acc * tw.gelu.__code__.co_argcount,
    lambda acc: np.where(acc > 0, acc, 0),
    lambda acc: acc * float("2"),
    lambda acc: acc * (2).real,
    lambda acc: acc * math.__name__.count("a"),
    importing,
    writing,
]


def operands(function: Any) -> tuple[str, ...]:
    code = function.__code__
    return tuple(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


@pytest.mark.parametrize("function", ONCE)
def test_one_look_is_enough(function: Any, traces: list[Any]) -> None:
    names = operands(function)
    found = [remembered(again(function), names) for _ in range(3)]
    assert len(traces) == 1
    assert all(x is trace(function, names) for x in found)


@pytest.mark.parametrize("function", EACH_TIME)
def test_what_may_differ_is_looked_at_each_time(function: Any, traces: list[Any]) -> None:
    found = [remembered(again(function), operands(function)) for _ in range(3)]
    assert len(traces) == 3
    assert all(x is trace(function, operands(function)) for x in found)


def test_what_was_read_has_changed(traces: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A global, an attribute of a module, a module, a builtin function, or one that hides it."""
    function = lambda acc: OTHER.gelu(abs(acc)) * SCALE  # noqa: E731

    def look() -> str:
        return str(remembered(again(function), ()))

    def changed(there: Any, name: str, value: Any, shown: str) -> None:
        """It is seen while it is so, and so is its end."""
        assert look() == look() == "gelu(abs(acc)) * 2"
        with monkeypatch.context() as context:
            context.setattr(there, name, value, raising=False)
            assert look() == look() == shown
        assert look() == "gelu(abs(acc)) * 2"

    here = __import__(__name__)
    changed(here, "SCALE", 3.0, "gelu(abs(acc)) * 3")
    changed(here, "SCALE", 2, "gelu(abs(acc)) * 2")
    changed(tw, "gelu", tw.silu, "silu(abs(acc)) * 2")
    changed(here, "abs", tw.exp, "gelu(exp(acc)) * 2")
    changed(builtins, "abs", tw.tanh, "gelu(tanh(acc)) * 2")
    look()
    traces.clear()
    look()
    assert not traces
    changed(here, "OTHER", type("Own", (), {"gelu": staticmethod(tw.relu)}), "relu(abs(acc)) * 2")


def test_functions_of_one_code_may_differ(traces: list[Any]) -> None:
    """By globals, defaults, a closure, what they wrap, the names and pairs that are asked for."""
    function: Any = lambda acc, x: acc * SCALE + x  # noqa: E731
    remembered(function, ("x",))
    other = FunctionType(function.__code__, {"SCALE": 5.0})
    assert str(remembered(other, ("x",))) == "acc * 5 + x"
    assert str(remembered(function, ("x",))) == "acc * 2 + x"
    given = FunctionType(function.__code__, globals(), "given", (7.0,))
    assert str(remembered(given, ())) == "acc * 2 + 7"
    with pytest.raises(TraceError, match="give x="):
        remembered(function, ())
    with pytest.raises(TraceError, match="not 'y'"):
        remembered(function, ("x", "y"))
    assert remembered(function, (), pairs=True).takes_pairs
    with pytest.raises(TraceError, match="not 'x'"):
        remembered(function, ("x",), pairs=True)
    wrapping = again(function)
    wrapping.__wrapped__ = lambda acc, x, y: acc
    with pytest.raises(TraceError, match="give y="):
        remembered(wrapping, ("x",))
    # With defaults, whichever names are given.
    assert str(remembered(with_default, ("x",))) == "acc * 2 + x"
    assert str(remembered(with_default, ("x", "scale"))) == "acc * scale + x"


def test_a_refusal_is_not_remembered(traces: list[Any]) -> None:
    function = lambda acc: 1 if acc > 0 else acc  # noqa: E731
    for _ in range(2):
        with pytest.raises(TraceError, match="if"):
            remembered(again(function), ())
    assert len(traces) == 2


def test_what_is_known_is_bounded(traces: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    for i in range(10):
        function = eval(f"lambda acc: acc + {i}")
        assert str(remembered(function, ())) == f"acc + {i}"
        assert len(module._known) <= 3


def test_an_epilogue_is_its_own_trace(traces: list[Any]) -> None:
    epilogue = tw.Epilogue(lambda acc, x: acc + x)
    assert remembered(epilogue, ("x",)) is epilogue.traced
