"""Multilayer perceptrons: values, gradients, graphs, and the products that they come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aot_graphs import recording
from reference import thorough

import tilewise
from tilewise.arrays import dispatched

pytest.importorskip("torch", reason="MLPs are PyTorch's")

from tilewise.torch.activations import ACTIVATIONS


def layers(
    torch: Any, dtype: str = "float64", gated: bool = False, biased: bool = True, k: int = 5,
    hidden: int = 6, n: int = 4, lead: tuple[int, ...] = (2, 3),
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    """X, weights, biases, down and its bias."""
    kind = getattr(torch, dtype)

    def leaf(*shape: int) -> Any:
        return torch.randn(shape, dtype=torch.float64).to(kind).requires_grad_()

    count = 2 if gated else 1
    weights = tuple(leaf(hidden, k) for _ in range(count))
    biases = tuple(leaf(hidden) for _ in range(count)) if biased else ()
    return leaf(*lead, k), weights, biases, leaf(n, hidden), leaf(n) if biased else None


def call(mlp: Callable[..., Any], *of: Any) -> Any:
    """Of X, weights, biases, down, its bias and the activation."""
    x, weights, biases, down, last, how = of
    one = len(weights) == 1
    return mlp(
        x, weights[0] if one else weights, down, activation=how,
        bias=(biases[0] if one else biases) if biases else None, down_bias=last,
    )  # fmt: skip


def theirs(torch: Any, how: str) -> Callable[[Any], Any]:
    functions = torch.nn.functional
    found: Callable[[Any], Any] = {
        "gelu_tanh": lambda x: functions.gelu(x, approximate="tanh"), "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }.get(how) or getattr(functions, how)  # fmt: skip
    return found


def by_pytorch(
    torch: Any, x: Any, weights: Any, biases: Any, down: Any, last: Any, how: str
) -> Any:
    each = [
        torch.nn.functional.linear(x, w, biases[i] if biases else None)
        for i, w in enumerate(weights)
    ]
    hidden = theirs(torch, how)(each[0])
    if len(each) == 2:
        hidden = hidden * each[1]
    return torch.nn.functional.linear(hidden, down, last)


def leaves_of(given: Any) -> list[Any]:
    x, weights, biases, down, last = given
    return [x, *weights, *biases, down, *([] if last is None else [last])]


def again(given: Any, leaves: Any) -> Any:
    """The same structure with other tensors."""
    _, weights, biases, _, last = given
    rest = list(leaves)
    x = rest.pop(0)
    of_weights = tuple(rest.pop(0) for _ in weights)
    of_biases = tuple(rest.pop(0) for _ in biases)
    return x, of_weights, of_biases, rest.pop(0), None if last is None else rest.pop(0)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("how", ACTIVATIONS)
def test_as_pytorch_has_it(torch: Any, tw: Any, how: str, gated: bool, biased: bool) -> None:
    given = layers(torch, gated=gated, biased=biased)
    found, wanted = call(tw.mlp, *given, how), by_pytorch(torch, *given, how)
    torch.testing.assert_close(found, wanted)
    of = torch.randn_like(wanted)
    leaves = leaves_of(given)
    ours, others = (torch.autograd.grad(y, leaves, of) for y in (found, wanted))
    for x, y in zip(ours, others, strict=True):
        torch.testing.assert_close(x, y)
    with torch.no_grad():
        torch.testing.assert_close(call(tw.mlp, *given, how), wanted)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("how", ["gelu", "silu", "tanh", "softplus"])
@pytest.mark.parametrize("lead", [(3,), ()])
def test_against_finite_differences(
    torch: Any, tw: Any, how: str, gated: bool, lead: tuple[int, ...]
) -> None:
    """And gradients of gradients."""
    given = layers(torch, gated=gated, lead=lead)

    def function(*leaves: Any) -> Any:
        return call(tw.mlp, *again(given, leaves), how)

    leaves = tuple(leaves_of(given))
    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("gated", [False, True])
def test_only_what_is_asked_for(
    torch: Any, tw: Any, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any tensors alone the gradients are the same, by as few products as they need."""
    given = layers(torch, gated=gated)
    leaves = leaves_of(given)
    of = torch.randn(2, 3, 4, dtype=torch.float64)
    whole = torch.autograd.grad(call(tw.mlp, *given, "gelu"), leaves, of)
    (own,) = dispatched._answers
    count: list[Any] = []

    def counted(*args: Any, **options: Any) -> Any:
        count.append(options.get("asked"))
        return own(*args, **options)

    monkeypatch.setattr(dispatched, "_answers", [counted])
    weights = 1 + gated
    for at in range(len(leaves)):
        alone = [x.detach().requires_grad_(i == at) for i, x in enumerate(leaves)]
        count.clear()
        found = call(tw.mlp, *again(given, alone), "gelu")
        assert len(count) == 2
        found.backward(of)
        torch.testing.assert_close(alone[at].grad, whole[at])
        is_last, is_down = at == len(leaves) - 1, at == len(leaves) - 2
        is_bias = weights < at <= 2 * weights
        products = 0 if is_last else 1 if is_down or is_bias else 1 + (weights if at == 0 else 1)
        assert len(count) - 2 == products


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=thorough)])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("how", ["gelu", "relu", "function"])
def test_in_one_graph(torch: Any, tw: Any, backend: str, gated: bool, how: str) -> None:
    given = layers(torch, "float32", gated=gated)
    activation: Any = how
    if how == "function":
        activation = (
            (lambda gate, up: tilewise.tanh(gate) * up) if gated else lambda acc: acc * abs(acc)
        )
    leaves = [x.detach().requires_grad_() for x in leaves_of(given)]
    plain = [x.detach().requires_grad_() for x in leaves_of(given)]

    def function(*leaves: Any) -> Any:
        return call(tw.mlp, *again(given, leaves), activation)

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    found, wanted = compiled(*leaves), function(*plain)
    torch.testing.assert_close(found, wanted)
    of = torch.randn_like(wanted)
    found.backward(of)
    wanted.backward(of)
    for x, y in zip(leaves, plain, strict=True):
        torch.testing.assert_close(x.grad, y.grad)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*leaves), wanted)


def test_the_derivative_is_part_of_a_product(torch: Any, tw: Any) -> None:
    """In the backward graph, no function of elements is left besides the biases' sums."""
    backend, graphs = recording()
    given = layers(torch, "float32", gated=True)

    def function(*leaves: Any) -> Any:
        return call(tw.mlp, *again(given, leaves), "silu")

    torch.compile(function, fullgraph=True, backend=backend)(*leaves_of(given)).sum().backward()
    forward, backward = graphs
    assert forward.count("tilewise.mlp.default") == 1
    assert [x for x in backward if "tilewise" in x] == ["tilewise.mlp_backward.default"]
    assert not [x for x in backward if ("mul." in x and "matmul" not in x) or "sigmoid" in x]


@pytest.mark.parametrize("gated", [False, True])
def test_pytorchs_own_check(torch: Any, tw: Any, gated: bool) -> None:
    from tilewise.epilogue.written import written
    from tilewise.torch.activations import epilogue_of

    for dtype in ("float32", "bfloat16"):
        x, weights, biases, down, last = layers(torch, dtype, gated=gated)
        text = written(epilogue_of("gelu", len(weights), True))
        found = torch.library.opcheck(
            torch.ops.tilewise.mlp.default, (x, list(weights), list(biases), down, last, text),
            {"wanted": list(range(len(weights))), "stores": True},
        )  # fmt: skip
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("how", ["graph", "eager"])
def test_autocast(torch: Any, tw: Any, how: str) -> None:
    given = layers(torch, "float32")

    def function(*leaves: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return call(tw.mlp, *again(given, leaves), "gelu")

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    found = (compiled if how == "graph" else function)(*leaves_of(given))
    assert found.dtype == torch.bfloat16
    found.sum().backward()
    assert all(x.grad.dtype == torch.float32 for x in leaves_of(given))


def test_transformations(torch: Any, tw: Any) -> None:
    given = layers(torch)
    leaves = [x.detach() for x in leaves_of(given)]

    def function(x: Any) -> Any:
        return call(tw.mlp, *again(given, [x, *leaves[1:]]), "gelu").sum()

    leaf = leaves[0].clone().requires_grad_()
    function(leaf).backward()
    torch.testing.assert_close(torch.func.grad(function)(leaves[0]), leaf.grad)


def test_operations_are_counted(torch: Any, tw: Any) -> None:
    given = layers(torch, gated=True)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        call(tw.mlp, *given, "silu").sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 6 * (2 * 5 * 6 + 6 * 4)


def test_what_is_wrong(torch: Any, tw: Any) -> None:
    x, (w, up), (bias, _), down, last = layers(torch, gated=True)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((x, w, down), {"activation": "elu"}, ValueError, "activation is 'elu'; it takes 'gelu'"),
        ((x, (w, up), down), {"activation": "silu", "bias": bias}, ValueError, "biases: 1;"),
        ((x, (w, up[:3]), down), {"activation": "silu"}, ValueError, "of gate and up have shapes"),
        ((x, w, down[:, :3]), {"activation": "silu"}, ValueError, "weight.0. gives 6"),
        ((x[..., :3], w, down), {"activation": "silu"}, ValueError, r"3 features .* weight\[0\]"),
        ((x, w, down), {"activation": "silu", "bias": last}, ValueError, r"bias\[0\] has shape"),
        (
            (x, w, down),
            {"activation": "silu", "down_bias": bias},
            ValueError,
            "down_bias has shape",
        ),
        ((x, w[0], down), {"activation": "silu"}, ValueError, r"is \(out features, in features\)"),
        ((x.float(), w, down), {"activation": "silu"}, TypeError, "must be the same"),
        ((x.int(), w.int(), down.int()), {"activation": "silu"}, TypeError, "are supported"),
        ((x, w.detach().numpy(), down), {"activation": "silu"}, TypeError, r"not a torch\.Tensor"),
        ((x, w, down), {"activation": lambda acc: 1 if acc > 0 else 0}, TypeError, "is true"),
        ((x, None, down), {"activation": "silu"}, TypeError, "weight is None"),
        ((x, (w, None), down), {"activation": "silu"}, TypeError, "weight is None"),
        ((x, w, None), {"activation": "silu"}, TypeError, "down is None"),
        ((None, w, down), {"activation": "silu"}, TypeError, "x is None"),
        ((x, w, down), {"activation": 3}, TypeError, "a name or a function"),
    ]
    for given, options, kind, words in cases:
        with pytest.raises(kind, match=words):
            tw.mlp(*given, **options)
        with torch.no_grad(), pytest.raises(kind, match=words):
            tw.mlp(*given, **options)
