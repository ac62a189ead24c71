"""Derivatives of traced functions: PyTorch's, of what the forward pass stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tilewise.epilogue import trace
from tilewise.epilogue.derivative import Trained, trained
from tilewise.epilogue.written import read, written

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": tw.gelu,
    "gelu by tanh": lambda x: tw.gelu(x, "tanh"),
    "silu": tw.silu,
    "relu": tw.relu,
    "leaky_relu": lambda x: tw.leaky_relu(x, 0.1),
    "softplus": tw.softplus,
    "sigmoid": tw.sigmoid,
    "tanh": tw.tanh,
    "erf": tw.erf,
    "abs": abs,
    "exp": tw.exp,
    "clip": lambda x: tw.clip(x, -1, 2),
    "cube": lambda x: x**3 - x**5,
    "squared relu": lambda x: tw.relu(x) ** 2,
    "chosen": lambda x: tw.where((x > -1) & (x <= 1), x * x, 0.5 - x),
    "log": lambda x: tw.log(abs(x) + 0.5),
    "log1p": lambda x: tw.log1p(x * x),
    "roots": lambda x: tw.sqrt(x * x + 1) - tw.rsqrt(x * x + 1),
    "quotient": lambda x: (1 - x) / (x * x + 0.5),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / (1 + y * y),
    "minimum": tw.minimum,
    "maximum": tw.maximum,
    "where": lambda x, y: tw.where(x <= y, x * 2, y),
}
POINTS = [-1000.0, -90.0, -6.0, -2.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 5.5, 90.0, 1000.0]


def gradients(torch: Any, made: Trained, values: list[Any], of: tuple[int, ...]) -> list[Any]:
    """By the function's own derivative, of what its forward pass returns; PyTorch only evaluates.

    ``values`` are those of the sums and the operands. The gradients of results ``of`` are 1, 2, ...
    """
    sums = len(made.function.sums)
    acc = tuple(values[:sums]) if sums == 2 else values[0]
    results = made.forward.evaluate(acc, values[sums:])
    found = made.backward(of)
    seeds = {i: torch.full_like(values[0], 1.0 + at) for at, i in enumerate(of)}
    kinds: dict[str, Any] = {"gradient": seeds, "result": results, "operand": values[sums:]}
    given = [kinds[kind][i] for kind, i in found.operands]
    each = found.function.evaluate(seeds[of[0]], given)
    return [x.expand(values[0].shape) for x in each]


def by_autograd(torch: Any, made: Trained, values: list[Any], of: tuple[int, ...]) -> list[Any]:
    """The same by PyTorch, which differentiates the function's operations one by one."""
    leaves = [x.clone().requires_grad_() for x in values]
    sums = len(made.function.sums)
    acc = tuple(leaves[:sums]) if sums == 2 else leaves[0]
    results = made.forward.evaluate(acc, leaves[sums:])
    total = sum((results[i] * (1.0 + at)).sum() for at, i in enumerate(of))
    if not getattr(total, "requires_grad", False):
        return [torch.zeros_like(values[0]) for _ in made.wanted]
    wanted = [leaves[i] for i in made.wanted]
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return [torch.zeros_like(values[0]) if x is None else x for x in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_one_argument(torch: Any, name: str) -> None:
    """Where it bends, where it saturates, and far from 0."""
    made = trained(trace(lambda acc: FUNCTIONS[name](acc), ()), (0,))
    x = torch.tensor([*POINTS, *np.linspace(-4, 4, 41)], dtype=torch.float64)
    (found,) = gradients(torch, made, [x], (0,))
    (wanted,) = by_autograd(torch, made, [x], (0,))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("name", "at"),
    [("gelu", (0.0, 1.0)), ("relu", (0.0, 1.0)), ("sigmoid", (0.0, 0.0)), ("tanh", (0.0, 0.0)),
     ("softplus", (0.0, 1.0)), ("leaky_relu", (0.1, 1.0)), ("clip", (0.0, 0.0)),
     ("erf", (0.0, 0.0))],
)  # fmt: skip
def test_at_infinity(torch: Any, name: str, at: tuple[float, float]) -> None:
    made = trained(trace(lambda acc: FUNCTIONS[name](acc), ()), (0,))
    x = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
    (found,) = gradients(torch, made, [x], (0,))
    assert found.tolist() == list(at)


def test_as_pytorchs_own_functions_have_it(torch: Any) -> None:
    """Where a function bends and where it saturates; in float32, as kernels compute it."""
    functions = torch.nn.functional
    x = torch.tensor([*POINTS, *np.linspace(-4, 4, 41)], dtype=torch.float32)
    for ours, theirs in (
        (tw.sigmoid, torch.sigmoid), (tw.silu, functions.silu), (tw.relu, functions.relu),
        (tw.gelu, functions.gelu), (tw.softplus, functions.softplus), (tw.tanh, torch.tanh),
        (lambda acc: tw.gelu(acc, "tanh"), lambda x: functions.gelu(x, approximate="tanh")),
        (lambda acc: tw.leaky_relu(acc, 0.1), lambda x: functions.leaky_relu(x, 0.1)),
        (abs, torch.abs),
    ):  # fmt: skip
        made = trained(trace(lambda acc, f=ours: f(acc), ()), (0,))
        (found,) = gradients(torch, made, [x], (0,))
        leaf = x.clone().requires_grad_()
        theirs(leaf).sum().backward()
        torch.testing.assert_close(found, leaf.grad)


@st.composite
def expressions(draw: st.DrawFn, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function of some values, by up to 8 operations, each of any values before it."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from([*FUNCTIONS, *BINARY]), st.integers(0, 99), st.integers(0, 99)
            ),
            min_size=1, max_size=8,
        )
    )  # fmt: skip
    returned = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))

    def function(*args: Any, **operands: Any) -> Any:
        values = [*args, *(operands[x] for x in names), 0.75]
        for name, i, j in steps:
            x, y = values[i % len(values)], values[-1 - j % len(values)]
            new = FUNCTIONS[name](x) if name in FUNCTIONS else BINARY[name](x, y)
            values.append(float(new) if isinstance(new, np.generic | np.ndarray) else new)
        return tuple(values[-1 - i % len(values)] for i in returned)

    return function


@given(st.data())
def test_random_functions(torch: Any, data: st.DataObject) -> None:
    """Of any results, for any arguments, by what is stored alone; and once more as text."""
    pairs = data.draw(st.booleans())
    function = data.draw(expressions(("b",)))
    if pairs:
        traced = trace(lambda gate, up, b: function(gate, up, b=b), ("b",), pairs=True)
    else:
        traced = trace(lambda acc, b: function(acc, b=b), ("b",))
    assert read(written(traced)) is traced
    arguments = len(traced.sums) + 1
    wanted = data.draw(st.lists(st.integers(0, arguments - 1), min_size=1, unique=True))
    made = trained(traced, tuple(sorted(wanted)))
    assert made.forward.results[: len(traced.results)]
    count = len(made.forward.results)
    of = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    points = st.lists(
        st.sampled_from([-2.0, -1.0, -0.3, 0.0, 0.75, 1.0, 1.6]), min_size=4, max_size=4
    )
    values = [torch.tensor(data.draw(points), dtype=torch.float64) for _ in range(arguments)]
    found = gradients(torch, made, values, tuple(of))
    expected = by_autograd(torch, made, values, tuple(of))
    for ours, theirs in zip(found, expected, strict=True):
        is_finite = theirs.isfinite() & (theirs.abs() < 1e9)
        torch.testing.assert_close(ours[is_finite], theirs[is_finite])


def stored(function: Callable[..., Any], names: tuple[str, ...] = (), **options: Any) -> Any:
    traced = trace(function, names, **options)
    wanted = tuple(range(len(traced.sums) + len(names)))
    made = trained(traced, wanted)
    return str(made.forward), made.stored


def test_what_is_stored() -> None:
    """As little as derivatives need: a result where that is enough, else one value for a sum."""
    for function in (tw.relu, tw.sigmoid, tw.tanh, tw.leaky_relu, tw.exp):
        forward, kept = stored(lambda acc, b, f=function: f(acc + b), ("b",))
        assert kept == (0,)
        assert forward.count("acc") >= 1
    assert stored(lambda acc, b: tw.gelu(acc + b), ("b",)) == ("(gelu(acc + b), acc + b)", (1,))
    assert stored(lambda acc, b: (tw.gelu(acc + b), acc + b), ("b",))[1] == (1,)
    forward, kept = stored(lambda acc, b: (tw.gelu(acc + b), acc), ("b",))
    assert (forward, kept) == ("(gelu(acc + b), acc)", (1,))  # a result, and not what takes memory
    assert stored(lambda acc, b, r: acc + b + r, ("b", "r"))[1] == ()
    assert stored(lambda acc: 3.0)[1] == ()
    assert stored(lambda gate, up: tw.silu(gate) * up, pairs=True)[1] == (1, 2)
    traced = trace(lambda acc, scale: acc * scale, ("scale",))
    assert trained(traced, (0,)).stored == ()  # the scale has no gradient
    assert trained(traced, (0, 1)).stored == (1,)


def test_long_chains(torch: Any) -> None:
    """Longer than Python's stack, and of as many factors as no number counts."""

    def chained(acc: Any) -> Any:
        for i in range(3000):
            acc = acc * (1 + 1e-5 * (i % 3)) if i % 2 else acc * 1.0001 + 1e-4
        return acc

    def squared(acc: Any) -> Any:
        for _ in range(60):
            acc = acc * acc
        return acc

    x = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for function in (chained, squared):
        made = trained(trace(function, ()), (0,))
        (found,) = gradients(torch, made, [x], (0,))
        (wanted,) = by_autograd(torch, made, [x], (0,))
        torch.testing.assert_close(found, wanted)
        assert read(written(made.function)) is made.function


def test_text_of_none() -> None:
    unknown = '[["acc"],[],[["add",0,1]],[0],0,[]]'
    words = '[["acc"],[],[["acc"]],[0],0,[[1,"relu",0]]]'
    for text in ("", "[]", unknown, words, "{"):
        with pytest.raises(ValueError, match="is not the text of an epilogue"):
            read(text)


def test_words_survive_as_text() -> None:
    """Those of functions with arguments, too, and of functions of functions."""
    traced = trace(lambda acc, b: tw.gelu(tw.clip(acc + b, -1, 0.1), "tanh") + tw.relu(b), ("b",))
    assert str(traced) == "gelu(clip(acc + b, -1, 0.1), tanh) + relu(b)"
    assert read(written(traced)) is traced
    read.cache_clear()
    text = written(traced)
    del traced
    written.cache_clear()
    assert str(read(text)) == "gelu(clip(acc + b, -1, 0.1), tanh) + relu(b)"


def test_numbers_survive_as_text() -> None:
    def function(acc: Any) -> Any:
        return acc * 1e300 * 0.1 - np.inf, tw.maximum(acc, np.nan), acc / -0.0

    traced = trace(function, ())
    assert read(written(traced)) is traced
