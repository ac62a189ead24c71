"""Epilogues in pickles and in copies, as those of a model that holds one."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.epilogue import Epilogue
from tilewise.epilogue.traced import registered


def again(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


SWIGLU = Epilogue(lambda gate, up, bias: (tw.silu(gate) * up + bias, gate), pairs=True)
SCALED = Epilogue(lambda acc, s: tw.gelu(acc) * s)


def test_what_was_traced_is_one_object() -> None:
    """Its identity is the key of kernels and of calls."""
    for each in (SWIGLU, SCALED):
        assert again(each).traced is again(each.traced) is each.traced
        assert copy.deepcopy(each) is copy.copy(each) is each
        assert copy.deepcopy(each.traced) is each.traced
        assert str(again(each)) == str(each)
        assert again(each).cuda == each.cuda


class Named(Epilogue):
    """One with attributes of its own, and a slot."""

    __slots__ = ("place",)

    def __init__(self, function: Any, name: str) -> None:
        super().__init__(function)
        self.name, self.place = name, 3

    def __call__(self, *values: Any, **operands: Any) -> Any:
        return super().__call__(*values, **operands) + 100


class Stated(Epilogue):
    """One that says itself what it keeps."""

    kept = 1

    def __getstate__(self) -> object:
        return [self.kept + 1]

    def __setstate__(self, state: list[int]) -> None:
        (self.kept,) = state


def test_derived_classes() -> None:
    given = Named(lambda acc, s: tw.gelu(acc) * s, "scaled")
    loaded = again(given)
    assert type(loaded) is Named
    assert loaded.traced is given.traced
    assert (loaded.name, loaded.place) == ("scaled", 3)
    assert loaded.key != given.key  # a key holds in one process
    assert registered[loaded.key] is loaded
    assert loaded(0.0, 2.0) == 100
    assert copy.deepcopy(given) is given
    assert again(Stated(lambda acc: acc * 2)).kept == 2


def test_explanations() -> None:
    x = np.ones((64, 64), np.float16)
    cases: list[tuple[Any, dict[str, Any]]] = [
        (x, {"gpu": "h200"}),
        (x.T, {"gpu": "rtx 4090"}),
        (x, {"device": "emulator"}),
        ((x, x), {"gpu": "h200", "epilogue": lambda gate, up: tw.silu(gate) * up}),
        (x, {"gpu": "h200", "pairs": "halves", "epilogue": lambda gate, up: gate * up}),
    ]
    for b, how in cases:
        found = tw.explain(x, b, **how)
        assert str(again(found)) == str(found)
        assert again(found).product == found.product


def test_products() -> None:
    rng = np.random.default_rng(0)
    a, b, up = (rng.standard_normal(shape) for shape in ((3, 4), (4, 5), (4, 5)))
    ours = tw.matmul(a, (b, up), epilogue=again(SWIGLU), bias=np.ones(5))
    theirs = tw.matmul(a, (b, up), epilogue=SWIGLU, bias=np.ones(5))
    np.testing.assert_array_equal(ours, theirs)
    found = tw.explain(a, (b, up), gpu="h200", epilogue=SWIGLU, bias=np.ones(5)).product
    assert again(found) == found


def test_it_is_called_as_the_function() -> None:
    x, loaded = np.linspace(-2, 2, 5), again(SCALED)
    np.testing.assert_allclose(loaded(x, s=2.0), SCALED(x, s=2.0), rtol=1e-15)
    assert loaded(1.0, 3) == pytest.approx(SCALED(1.0, 3))
    for found, wanted in zip(again(SWIGLU)(x, x, 1.0), SWIGLU(x, x, 1.0), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
    with pytest.raises(TypeError, match=r"<epilogue .*> takes acc, s"):
        loaded(x)
    assert Epilogue(loaded).traced is loaded.traced


def test_it_is_traced_as_the_function() -> None:
    """Within another function, and as a function of pairs."""
    for each in (SCALED, again(SCALED)):
        around = Epilogue(lambda acc, bias, f=each: f(acc + bias, 2.0))
        assert str(around) == str(Epilogue(lambda acc, bias: tw.gelu(acc + bias) * 2.0))
        pairs = Epilogue(each, pairs=True)
        assert str(pairs) == str(Epilogue(lambda gate, up: tw.gelu(gate) * up, pairs=True))


def test_in_a_graph_of_another_process(torch: Any, tmp_path: Path) -> None:
    """There the key of this process is that of another epilogue."""
    (tmp_path / "saved").write_bytes(pickle.dumps([SWIGLU, SCALED]))
    script = """
import pickle, sys, torch, tilewise
others = [tilewise.Epilogue(lambda acc, s: acc * s * 100) for _ in range(100)]
_, scaled = pickle.load(open(sys.argv[1], "rb"))
x = torch.ones(2, 2)
product = lambda x, s: tilewise.matmul(x, x, epilogue=scaled, s=s)
compiled = torch.compile(product, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(x, x), torch.nn.functional.gelu(x @ x) * x)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "saved")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_it_is_an_activation(torch: Any) -> None:
    from tilewise.torch import mlp

    activation = Epilogue(lambda acc: tw.silu(acc) * 2.0)
    x, up, down = (torch.randn(shape) for shape in ((3, 4), (5, 4), (2, 5)))
    assert torch.equal(
        mlp(x, up, down, activation=again(activation)), mlp(x, up, down, activation=activation)
    )
