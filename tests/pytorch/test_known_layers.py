"""Layers whose calls are known from earlier ones do what layers do that are called first.

On a GPU that is none, where calls are launched again as on one that is. All values are small whole
numbers, so that every sum is exact and PyTorch's results have to be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from computing_gpu import ComputingGpu, computing_gpu  # noqa: F401

import tilewise
from tilewise.arrays import repeat

FUNCTIONS = "linear", "mlp", "gated"


def known_module() -> Any:
    """What is tested; it needs PyTorch."""
    return import_module("tilewise.torch.known")


class Model:
    """Weights of layers by tilewise, and what PyTorch computes with them."""

    def __init__(
        self, torch: Any, tw: Any, rng: np.random.Generator, function: str, **place: Any
    ) -> None:
        self.place = place
        self.torch, self.tw, self.rng, self.function = torch, tw, rng, function
        self.n = int(rng.integers(1, 5))
        self.k = self.n if rng.random() < 0.5 else int(rng.integers(1, 5))
        shapes = {"linear": [(self.n, self.k)], "mlp": [(3, self.k), (self.n, 3)]}
        shapes["gated"] = [(3, self.k), (3, self.k), (self.n, 3)]
        self.weights = [self.leaf(*shape) for shape in shapes[function]]
        self.biases = [self.leaf(len(w)) for w in self.weights]
        if rng.random() < 0.3:
            self.weights[0].data = self.weights[0].data.mT.contiguous().mT

    def values(self, *shape: int) -> Any:
        values = self.rng.integers(-2, 3, shape).astype(np.float32)
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(**self.place)

    def leaf(self, *shape: int) -> Any:
        return self.torch.nn.Parameter(self.values(*shape))

    def turned(self, x: Any) -> Any:
        """The same values, at times in another layout or at an odd address."""
        way = self.rng.random()
        if way < 0.15 and x.ndim > 1:
            return x.mT.contiguous().mT
        if way < 0.25 and x.numel():
            whole = x.new_empty(x.numel() + 1)
            return whole[1:].view(x.shape).copy_(x)
        return x

    def ours(self, x: Any, has_bias: bool) -> Any:
        *first, last = self.weights
        *biases, last_bias = self.biases if has_bias else [None] * len(self.weights)
        if self.function == "linear":
            return self.tw.linear(x, last, last_bias)
        if self.function == "mlp":
            return self.tw.mlp(
                x, first[0], last, activation="relu", bias=biases[0], down_bias=last_bias
            )
        bias = tuple(biases) if has_bias else None
        return self.tw.mlp(x, tuple(first), last, activation="relu", bias=bias, down_bias=last_bias)

    def theirs(self, x: Any, has_bias: bool) -> Any:
        linear = self.torch.nn.functional.linear
        *first, last = self.weights
        *biases, last_bias = self.biases if has_bias else [None] * len(self.weights)
        hidden = [linear(x, w, b) for w, b in zip(first, biases, strict=True)]
        if hidden:
            x = self.torch.relu(hidden[0])
            x = x * hidden[1] if len(hidden) == 2 else x
        return linear(x, last, last_bias)

    def outcome(self, call: Callable[[Any, bool], Any], x: Any, has_bias: bool, g: Any) -> Any:
        """The result and the gradients that there are, and then those of ``x`` alone."""
        y = call(x, has_bias)
        found = [y.detach()]
        if y.requires_grad:
            used = [x, *self.weights, *(self.biases if has_bias else [])]
            leaves = [each for each in used if each.requires_grad]
            each = self.torch.autograd.grad(y, leaves, g, retain_graph=True)
            found += each
            found += self.torch.autograd.grad(y, leaves[:1], g)
        return found


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("has_guards", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("computing_gpu")
def test_any_calls(
    torch: Any, tw: Any, function: str, has_guards: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes from call to call: values, shapes, layouts, what needs a gradient."""
    known = known_module()
    if not has_guards:
        monkeypatch.setattr(known, "_has_guards", lambda: False)
    rng = np.random.default_rng(seed)
    of_tensors: list[bool] = []
    own = known.Known.addresses

    def addresses(self: Any, form: Any, tensors: Any) -> Any:
        found = own(self, form, tensors)
        of_tensors.append(found is not None)
        return found

    monkeypatch.setattr(known.Known, "addresses", addresses)
    for _ in range(4):
        model = Model(torch, tw, rng, function)
        shape: tuple[int, ...] = (2,)
        for _ in range(25):
            if rng.random() < 0.25:
                shape = tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
            if rng.random() < 0.1:
                every = [*model.weights, *model.biases]
                each = every[rng.integers(len(every))]
                each.requires_grad_(not each.requires_grad)
            if rng.random() < 0.1:
                w = model.weights[0]
                w.data = w.data.mT.contiguous().mT if w.is_contiguous() else w.data.contiguous()
            if rng.random() < 0.1:
                model.weights[-1].data = model.values(*model.weights[-1].shape)
            x = model.turned(model.values(*shape, model.k))
            x.requires_grad_(bool(rng.random() < 0.8))
            g = model.turned(model.values(*shape, model.n))
            has_bias = bool(rng.random() < 0.9)
            with torch.set_grad_enabled(bool(rng.random() < 0.9)):
                wanted = model.outcome(model.theirs, x, has_bias, g)
                found = model.outcome(model.ours, x, has_bias, g)
            for ours, theirs in zip(found, wanted, strict=True):
                assert ours.shape == theirs.shape
                assert torch.equal(ours, theirs)
    assert len(of_tensors) / 16 < sum(of_tensors) < len(of_tensors)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_is_looked_up_again(
    torch: Any,
    tw: Any,
    computing_gpu: ComputingGpu,  # noqa: F811
    function: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = known_module()
    model = Model(torch, tw, np.random.default_rng(0), function)
    looked: list[Any] = []

    def look(how: Any, tensors: Any) -> Any:
        if how[0] != "column sums":  # which PyTorch computes
            looked.append(how)
        return repeat.look(how, tensors)

    monkeypatch.setattr(known, "look", look)
    counts = []
    for _ in range(5):
        looked.clear()
        computing_gpu.streams.clear()
        x, g = model.values(2, 3, model.k).requires_grad_(), model.values(2, 3, model.n)
        wanted = model.outcome(model.theirs, x, True, g)
        found = model.outcome(model.ours, x, True, g)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        counts.append((len(looked), len(computing_gpu.streams)))
    products = counts[0][1]
    assert counts[0] == (products, products)
    assert (0, products) in counts[2:], counts


@pytest.mark.usefixtures("computing_gpu")
def test_second_derivatives_of_known_layers(torch: Any, tw: Any) -> None:
    for function in FUNCTIONS:
        model = Model(torch, tw, np.random.default_rng(1), function)
        for _ in range(4):
            x, g = model.values(3, model.k).requires_grad_(), model.values(3, model.n)
            found = []
            for call in (model.theirs, model.ours):
                (of_x,) = torch.autograd.grad(call(x, True), x, g, create_graph=True)
                found.append((of_x, *torch.autograd.grad(of_x.sum(), model.weights)))
            for theirs, ours in zip(*found, strict=True):
                assert torch.equal(theirs, ours)


@pytest.mark.usefixtures("computing_gpu")
def test_an_input_is_not_taken_for_a_weight(torch: Any, tw: Any) -> None:
    """Where both have one shape, and now the one needs a gradient, now the other."""
    x, w, g = (torch.arange(4.0).reshape(2, 2) + i for i in range(3))
    for of_x in (False, True) * 4 + (False,) * 3 + (True,) * 3:
        leaf = (x if of_x else w).clone().requires_grad_()
        y = tw.linear(leaf, w) if of_x else tw.linear(x, leaf)
        (found,) = torch.autograd.grad(y, leaf, g)
        assert torch.equal(found, g @ w if of_x else g.mT @ x)
    weight = w.clone()
    for of_x in (False,) * 4 + (True,) * 4:
        weight.requires_grad_(not of_x)
        leaf = x.clone().requires_grad_(of_x)
        (found,) = torch.autograd.grad(tw.linear(leaf, weight), leaf if of_x else weight, g)
        assert torch.equal(found, g @ w if of_x else g.mT @ x)


@pytest.mark.usefixtures("computing_gpu")
def test_what_a_known_layer_refuses(torch: Any, tw: Any) -> None:
    """What does not fit is refused as at the first call, and what has no derivative has none."""
    x, w = torch.randn(3, 2).requires_grad_(), torch.nn.Parameter(torch.randn(2, 2))
    for _ in range(3):
        tw.linear(x, w)
        tw.mlp(x, w, w, activation="relu")
    for wrong in (torch.randn(3, 4), x.double(), x.int()):
        with pytest.raises((TypeError, ValueError)):
            tw.linear(wrong, w)
        with pytest.raises((TypeError, ValueError)):
            tw.mlp(wrong, w, w, activation="relu")
    with pytest.raises(ValueError, match="activation is 'relo'"):
        tw.mlp(x, w, w, activation="relo")
    with pytest.raises(TypeError, match="None"):
        tw.linear(None, w)


@pytest.mark.usefixtures("computing_gpu")
def test_known_layers_are_invariant_where_asked(torch: Any, tw: Any) -> None:
    x, w = torch.randn(3, 2), torch.randn(2, 2)
    for _ in range(3):
        tw.linear(x, w)
    layers = tw.linear.__globals__["_layers"]
    plain = layers[id(w)].known
    assert plain is not None
    assert not plain.is_invariant
    tilewise.set_invariant(True)
    try:
        assert plain.addresses(None, (x, w)) is None
        for _ in range(3):
            tw.linear(x, w)
        assert layers[id(w)].known.is_invariant
    finally:
        tilewise.set_invariant(False)
    repeat.forget()
    assert not layers


def test_layers_are_few(torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_module()
    monkeypatch.setattr(known, "LAYERS", 3)
    layers = known.Layers()
    weights = [torch.zeros(1) for _ in range(7)]
    for each in weights:
        layers.of(each)
        assert len(layers) <= 3
    assert layers.of(weights[-1]) is layers.of(weights[-1])


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("function", "dtype"),
    [("linear", "float16"), ("mlp", "float16"), *((each, "float32") for each in FUNCTIONS)],
)
def test_known_layers_on_a_gpu(torch: Any, tw: Any, function: str, dtype: str) -> None:
    """Their results and gradients, those of biases too, are PyTorch's in float64, call by call."""
    rng = np.random.default_rng(5)
    for turn in range(3):
        model = Model(torch, tw, rng, function, device="cuda", dtype=getattr(torch, dtype))
        shape = (2, 3) if turn else (5,)
        for _ in range(6):
            x, g = model.values(*shape, model.k).requires_grad_(), model.values(*shape, model.n)
            x, g = model.turned(x.detach()).requires_grad_(), model.turned(g)
            found = model.outcome(model.ours, x, True, g)
            wide = Model(torch, tw, rng, function, device="cuda", dtype=torch.float64)
            wide.weights = [torch.nn.Parameter(w.detach().double()) for w in model.weights]
            wide.biases = [torch.nn.Parameter(b.detach().double()) for b in model.biases]
            wanted = wide.outcome(
                wide.theirs, x.detach().double().requires_grad_(), True, g.double()
            )
            assert len(found) == len(wanted)
            for ours, theirs in zip(found, wanted, strict=True):
                assert torch.equal(ours.double(), theirs)
