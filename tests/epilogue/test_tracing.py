"""Tracing a function: what it computes, once, and clear errors for what no kernel can."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.epilogue import Epilogue, trace
from tilewise.epilogue.symbols import Symbols

SLOPE = 0.1
FOUR: Any = np.zeros(4)
KEPT: Any = Symbols().make("acc")


def test_equal_computations_are_one_object() -> None:
    one = trace(lambda acc, bias: tw.gelu(acc + bias), ("bias",))
    two = trace(lambda total, bias: tw.gelu(total + bias), ("bias",))
    assert one is two
    other = trace(lambda acc, bias: tw.gelu(acc + bias, "tanh"), ("bias",))
    assert one is not other
    assert trace(lambda acc, b: tw.gelu(acc + b), ("b",)).statements == one.statements


def test_what_is_used_twice_is_computed_once() -> None:
    traced = trace(lambda acc, b: (tw.relu(acc + b) * (acc + b), acc + b), ("b",))
    assert [x for x in traced.statements if "acc" in x] == ["const real t0 = acc + x0;"]
    assert traced.values[1] == "t0"
    assert traced.is_tuple


def test_what_is_not_used_is_left_out() -> None:
    def function(acc: Any, bias: Any) -> Any:
        tw.exp(bias)
        return acc

    traced = trace(function, ("bias",))
    assert (traced.statements, traced.values) == ((), ("acc",))


def test_operands_are_in_the_functions_order() -> None:
    assert trace(lambda acc, b, a: acc + a - b, ("a", "b")).operands == ("b", "a")


def test_closures_globals_and_defaults_are_constants() -> None:
    scale = np.float32(3)
    traced = trace(lambda acc, by=2: acc * scale * by + SLOPE, ())
    assert str(traced) == "acc * 3 * 2 + 0.1"
    assert trace(lambda acc, by=2: acc * by, ("by",)).operands == ("by",)
    assert str(trace(functools.partial(lambda s, acc: acc * s, 4), ())) == "acc * 4"


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda acc: -acc * 2 - (acc - 1), "-acc * 2 - (acc - 1)"),
        (lambda acc: tw.gelu(acc, "tanh") / 3, "gelu(acc, tanh) / 3"),
        (lambda acc: tw.where(~(acc < 2) & (acc > 0), 1, 0), "where(~(acc < 2) & 0 < acc, 1, 0)"),
        (lambda acc: (acc, abs(acc)), "(acc, abs(acc))"),
        (lambda acc: 1 / (2 - acc), "1 / (2 - acc)"),
        (lambda acc: -3 * acc, "-3 * acc"),
        (lambda acc: np.tanh(acc) + np.maximum(acc, 0.5), "tanh(acc) + maximum(acc, 0.5)"),
        (lambda acc: np.float64(2) * acc, "2 * acc"),
        (lambda acc: acc * math.inf, "acc * inf"),
        (lambda acc: np.where(acc > 0, acc**2.0, 0), "where(0 < acc, acc * acc, 0)"),
        (lambda acc: np.clip(np.square(acc), 0, 1), "minimum(maximum(acc * acc, 0), 1)"),
        (lambda acc: np.clip(acc, None, 1), "minimum(acc, 1)"),
        (lambda acc: np.clip(acc, -1, None), "maximum(acc, -1)"),
        (lambda acc: np.clip(acc, a_min=0, a_max=1), "minimum(maximum(acc, 0), 1)"),
        (lambda acc: np.clip(acc, None, a_max=acc * 2, out=None), "minimum(acc, acc * 2)"),
        (lambda acc: np.clip(5, 7, acc), "minimum(7, acc)"),
        (lambda acc: np.clip(acc, None, None), "acc"),
    ],
)  # fmt: skip
def test_it_is_shown_as_it_was_written(function: Any, shown: str) -> None:
    assert str(trace(function, ())) == shown


def test_it_is_traced_once_where_that_is_asked() -> None:
    calls = []

    def function(acc: Any, bias: Any) -> Any:
        calls.append(1)
        return acc + bias

    reused = Epilogue(function)
    for _ in range(3):
        assert trace(reused, ("bias",)).operands == ("bias",)
    assert calls == [1]
    assert reused.cuda == "const real t0 = acc + x0;\nreturn t0;"
    with pytest.raises(tw.TraceError, match="takes 'bias'; give bias="):
        trace(reused, ())
    assert reused(2, bias=3) == 5
    assert str(Epilogue(reused)) == "acc + bias"
    assert str(Epilogue(lambda acc, by=3.0: acc * by)) == "acc * 3"


@pytest.mark.parametrize(
    ("function", "names", "message"),
    [
        (lambda acc: acc if acc > 0 else 0, (), r"test_tracing.py:\d+: `if`, .* tilewise.where"),
        (lambda acc: max(acc, 0), (), "minimum and maximum choose"),
        (lambda acc: math.tanh(acc), (), "tilewise.exp, tanh"),
        (lambda acc: int(acc), (), "no number yet"),
        (lambda acc: complex(acc), (), "no number yet"),
        (lambda acc: np.sin(acc), (), "numpy.sin can't be traced"),
        (lambda acc: np.round(acc), (), "numpy.round can't be traced"),
        (lambda acc: np.add.reduce(acc), (), "numpy.add.reduce can't be traced; numpy.add of"),
        (lambda acc: np.tanh(acc, out=FOUR), (),
            r"test_tracing.py:\d+: numpy.tanh can't be traced with out=; numpy.tanh without that"),
        (lambda acc: np.add(acc, 1, where=acc > 0, dtype=np.float32), (),
            "numpy.add can't be traced with where=, dtype=; numpy.add without that can"),
        (lambda acc: np.sin(acc, out=FOUR), (), "numpy.sin can't be traced; tilewise has"),
        (lambda acc: np.square(acc, where=True), (), "square can't be traced with where=;"),
        (lambda acc: np.clip(acc, 0, 1, FOUR), (), "numpy.clip can't be traced with out=;"),
        (lambda acc: np.clip(acc, 0, 1, dtype=np.float32), (), "clip can't be traced with dtype="),
        (lambda acc: np.clip(acc, 0), (), r"numpy.clip has one bound; numpy.clip\(x, low, None\)"),
        (lambda acc: np.where(acc > 0), (), "numpy.where of one argument can't be traced"),
        (lambda acc: np.asarray(acc), (), "no array of the accumulators"),
        (lambda acc: acc > 0, (), "returns a condition"),
        (lambda acc: acc + (acc > 0), (), "a condition is used as a number"),
        (lambda acc: tw.where(acc, 1, 0), (), "'where' takes a condition"),
        (lambda acc: ~acc, (), "'not' takes a condition"),
        (lambda acc: None, (), "returns None"),
        (lambda acc: (), (), "returns no result"),
        (lambda acc: [acc], (), r"returns a list; an epilogue returns"),
        (lambda acc: True, (), "returns a bool"),
        (lambda acc: KEPT, (), "returns a value of another call's epilogue"),
        (lambda acc: 2**acc, (), r"test_tracing.py:\d+: a power of a number"),
        (lambda acc: acc // 2, (), r"test_tracing.py:\d+: //, %"),
        (lambda acc: round(acc), (), "divmod, round and pow with a modulus can't be traced"),
        (lambda acc, x, /: acc + x, ("x",), "takes x without a name"),
        (lambda acc: acc + "x", (), "a str can't be part"),
        (lambda acc: acc + 1j, (), "a complex can't be part"),
        (lambda acc: acc * True, (), "a bool can't be part"),
        (lambda acc: acc + 10**400, (), "larger than any float"),
        (lambda acc: acc + np.ones(3), (), "a numpy.ndarray can't be part"),
        (lambda acc: acc[0], (), "has no elements"),
        (lambda acc: sum(acc), (), "has no elements"),
        (lambda acc: acc.__setitem__(0, 1), (), r"test_tracing.py:\d+: .* has no elements"),
        (lambda acc: acc.__delitem__(0), (), r"test_tracing.py:\d+: .* has no elements"),
        (lambda acc: 1.0 if 2 in acc else acc, (), r"test_tracing.py:\d+: .* has no elements"),
        (lambda acc: acc(2), (), r"test_tracing.py:\d+: .* is no function"),
        (lambda acc: pow(acc, 2, 3), (), r"test_tracing.py:\d+: .* pow with a modulus can't"),
        (lambda acc: float(f"{acc:.2f}"), (), r"test_tracing.py:\d+: .* no number yet"),
        (lambda acc: len(acc), (), "has no elements"),
        (lambda acc: acc.float(), (), "has no 'float'"),
        (lambda acc: acc**-1, (), r"\*\* -1.0 can't be traced"),
        (lambda acc: acc**0.3, (), "exponents are"),
        (lambda acc: acc**acc, (), "a power whose exponent is not a constant"),
        (lambda acc, x: acc**x, ("x",), r"exponent is not a constant .*; exponents are 0.5"),
        (lambda acc: acc << 1, (), r"test_tracing.py:\d+: //, %, \^, @, <<"),
        (lambda acc: 2 >> acc, (), "divmod, round and pow with a modulus can't be traced"),
        (lambda acc, bias: acc, (), "takes 'bias'; give bias="),
        (lambda acc, bias: acc, ("bias", "x"), "takes bias, and not 'x'"),
        (lambda acc: acc, ("x",), "takes no operand, and not 'x'"),
        (lambda: 1, (), "has no parameter"),
        (lambda *all: 1, (), r"takes \*all"),
        (lambda acc, **all: 1, (), r"takes \*\*all"),
    ],
)  # fmt: skip
def test_what_no_kernel_can_is_a_clear_error(
    function: Any, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(tw.TraceError, match=message) as caught:
        trace(function, names)
    assert isinstance(caught.value, TypeError)


def test_a_value_of_another_call_is_an_error() -> None:
    kept: list[Any] = []

    def keeps(acc: Any) -> Any:
        kept.append(acc)
        return acc

    trace(keeps, ())
    with pytest.raises(tw.TraceError, match="another call's epilogue"):
        trace(lambda acc: acc + kept[0], ())


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="epilogue is 3; it takes a function"):
        trace(3, ())  # type: ignore[arg-type]


def test_a_long_chain() -> None:
    def function(acc: Any) -> Any:
        for _ in range(5000):
            acc = acc + 1
        return acc

    assert len(trace(function, ()).statements) == 5000


def test_the_functions_take_numbers_and_arrays() -> None:
    x = np.linspace(-3, 3, 7)
    assert tw.relu(-2.0) == 0
    np.testing.assert_allclose(tw.gelu(x), [0.5 * v * (1 + math.erf(v / 2**0.5)) for v in x])
    np.testing.assert_allclose(tw.softplus(x), np.log1p(np.exp(x)))
    np.testing.assert_allclose(tw.silu(x), x * tw.sigmoid(x))
    np.testing.assert_array_equal(tw.where(x > 0, x, 0), tw.relu(x))
    assert tw.erf(np.float32(0.5)).dtype == np.float32
    with pytest.raises(ValueError, match="approximate is 'no'"):
        tw.gelu(x, "no")


def test_words_are_those_of_the_function_itself() -> None:
    """Whatever computes the same in other words, and was traced before."""
    other = trace(lambda acc, bias: (acc + bias) * tw.sigmoid(acc + bias), ("bias",))
    own = trace(lambda acc, bias: tw.silu(acc + bias), ("bias",))
    assert str(own) == "silu(acc + bias)"
    assert str(other) == "(acc + bias) * sigmoid(acc + bias)"
    assert (own.statements, own.values) == (other.statements, other.values)
    assert trace(lambda acc, bias: tw.silu(acc + bias), ("bias",)) is own
