"""Gradients, linear layers and graphs where tilewise's own kernels multiply."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from matmul_reference import assert_tensors_right
from within import DERIVATIVES, Within, exactly, of

import tilewise

pytest.importorskip("torch", reason="tensors are PyTorch's")

from tilewise.torch.activations import ACTIVATIONS

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("sizes", [(64, 128, 96), (33, 257, 101), (1, 512, 300)])
def test_linear(torch: Any, tw: Any, dtype: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    kind = getattr(torch, dtype)

    def new(*shape: int) -> Any:
        return torch.randn(shape, device="cuda").to(kind)

    x, w, bias = (new(*shape).requires_grad_() for shape in ((2, m, k), (n, k), (n,)))
    of_d = new(2, m, n)
    for _ in range(2):  # the second calls are like ones before them
        found = tw.linear(x, w, bias)
        x.grad = w.grad = bias.grad = None
        found.backward(of_d)
        rows, of_rows = x.detach().flatten(0, 1), of_d.flatten(0, 1)
        c = bias.detach().expand(found.shape)
        assert_tensors_right(found.detach(), x.detach(), w.detach().mT, 1, 1, c)
        assert_tensors_right(x.grad, of_d, w.detach())
        assert_tensors_right(w.grad, of_rows.mT, rows)
        assert w.grad.stride() == w.stride()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "shape", [(1, 64), (4096, 768), (2, 2048, 2304), (1000, 77), (333, 50257), (8, 8)]
)
def test_sums_of_columns(torch: Any, tw: Any, dtype: str, shape: tuple[int, ...]) -> None:
    from tilewise.roundoff import unit_roundoff
    from tilewise.torch.column_sums import column_sums

    x = torch.randn(shape, device="cuda").to(getattr(torch, dtype))
    with torch.no_grad():
        found = column_sums(x, x.dtype).double()
        negated = column_sums(torch._neg_view(x), x.dtype).double()
    rows = x.double().flatten(0, -2)
    exact, u = rows.sum(0), len(rows) * unit_roundoff("float32")
    bound = u / (1 - u) * rows.abs().sum(0)
    bound += unit_roundoff(dtype) * (exact.abs() + bound)
    assert ((found - exact).abs() <= bound).all()
    assert ((negated + exact).abs() <= bound).all()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_of_rows_that_are_not_aligned(torch: Any, tw: Any, is_compiled: bool) -> None:
    """One copy for both products, which are right."""
    from tilewise.torch.aligned import aligned

    x, w, of_d = (
        torch.randn(shape, device="cuda").bfloat16()
        for shape in ((2, 2048, 1024), (5003, 1024), (2, 2048, 5003))
    )
    with torch.no_grad():
        copy = aligned(of_d, 1024)
    assert copy.stride(-2) % 64 == 0
    assert torch.equal(copy, of_d)
    with torch.no_grad():
        assert torch.equal(aligned(torch._neg_view(of_d), 1024), -of_d)
    layer = torch.compile(tw.linear) if is_compiled else tw.linear
    x.requires_grad_()
    w.requires_grad_()
    layer(x, w).backward(of_d)
    assert_tensors_right(x.grad, of_d, w.detach())
    assert_tensors_right(w.grad, of_d.flatten(0, 1).mT, x.detach().flatten(0, 1))


def test_graphs_replay_forward_and_backward(torch: Any, tw: Any) -> None:
    layer = tw.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(32, 64, device="cuda").bfloat16()
    made = torch.cuda.make_graphed_callables(layer, (x.clone(),))
    for _ in range(3):
        x = torch.randn(32, 64, device="cuda").bfloat16()
        w, bias = (each.detach() for each in layer.parameters())
        layer.zero_grad()
        found = made(x)
        found.sum().backward()
        assert_tensors_right(found.detach(), x, w.mT, 1, 1, bias.expand(32, 64))
        assert_tensors_right(layer.weight.grad, torch.ones_like(found).mT, x)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(torch: Any, mode: str) -> None:
    w = torch.randn(64, 64, device="cuda").bfloat16().requires_grad_()
    compiled = torch.compile(
        lambda x: tilewise.matmul(x, w, transpose_b=True), fullgraph=True, mode=mode
    )
    for _ in range(4):
        x = torch.randn(32, 64, device="cuda").bfloat16()
        w.grad = None
        found = compiled(x).clone()
        found.sum().backward()
        assert_tensors_right(found.detach(), x, w.detach().mT)
        assert_tensors_right(w.grad, torch.ones_like(found).mT, x)


def test_autocast(torch: Any, tw: Any) -> None:
    layer = tw.Linear(64, 32, device="cuda")
    x = torch.randn(16, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        found = layer(x)
    found.sum().backward()
    w, bias = layer.weight.detach().bfloat16(), layer.bias.detach()  # which is not rounded
    assert found.dtype == torch.bfloat16
    assert layer.weight.grad.dtype == torch.float32
    assert_tensors_right(found.detach(), x.bfloat16(), w.mT, 1, 1, bias.expand(16, 32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("sizes", [(256, 192, 320, 128), (33, 101, 257, 75), (1, 512, 300, 512)])
@pytest.mark.parametrize("how", ["gelu", "gelu_tanh", "silu", "relu"])
def test_mlp(torch: Any, tw: Any, dtype: str, gated: bool, sizes: Any, how: str) -> None:
    """Each product with an activation or a derivative in it is right, by its own inputs."""
    from tilewise.bench import model_checks

    m, k, hidden, n = sizes
    kind = getattr(torch, dtype)

    def new(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(shape, device="cuda") * scale).to(kind).requires_grad_()

    x, down, last = new(m, k), new(n, hidden, scale=hidden**-0.5), new(n)
    weights = tuple(new(hidden, k, scale=k**-0.5) for _ in range(1 + gated))
    biases = tuple(new(hidden) for _ in weights)
    one = not gated
    of_y = torch.randn(m, n, device="cuda").to(kind)
    leaves = [x, *weights, *biases, down, last]

    def run(weights: Any = weights, biases: Any = biases) -> Any:
        y = tw.mlp(
            x, weights[0] if one else weights, down, activation=how,
            bias=biases[0] if one else biases, down_bias=last,
        )  # fmt: skip
        return y, torch.autograd.grad(y, leaves, of_y)

    shares = model_checks.fused_shares(run)
    assert len(shares) == 3
    assert max(shares.values()) <= 1, shares
    # And the whole as float64 has it, as far as the dtype goes. The last calls repeat launches.
    y, grads = [run() for _ in range(4)][-1]
    wide = [v.detach().double().requires_grad_() for v in leaves]
    functions = torch.nn.functional
    each = [
        functions.linear(wide[0], wide[1 + i], wide[1 + len(weights) + i])
        for i in range(len(weights))
    ]
    if how == "gelu_tanh":
        act = functions.gelu(each[0], approximate="tanh")
    else:
        act = getattr(functions, how)(each[0])
    exact = functions.linear(act * each[1] if gated else act, wide[-2], wide[-1])
    others = torch.autograd.grad(exact, wide, of_y.double())
    bounds = _of_mlp(how, x, weights, biases, down, last, of_y)
    for within, ours, theirs in zip(bounds, (y, *grads), (exact, *others), strict=True):
        assert within.holds(ours)
        assert within.holds(theirs)


def _of_mlp(
    how: str, x: Any, weights: Any, biases: Any, down: Any, last: Any, of_y: Any
) -> list[Within]:
    """Where an MLP's result lies, and its gradients, each product rounded as it is stored."""
    act, slope = ACTIVATIONS[how], DERIVATIVES[how]
    rows, w_down, back = exactly(x), exactly(down), exactly(of_y)
    w = [exactly(each) for each in weights]
    before = [
        of(lambda acc, bias: acc + bias, rows @ each.mT, bias=exactly(bias))[0]
        for each, bias in zip(w, biases, strict=True)
    ]
    stored = [each.rounded for each in before]
    (hidden,) = of(lambda acc: act(acc), before[0])
    inner = back @ w_down
    if len(w) == 1:
        of_before = list(of(lambda acc, z: acc * slope(z), inner, z=stored[0]))
    else:
        hidden = hidden * before[1]
        of_before = list(of(
            lambda acc, z, up: (acc * up * slope(z), acc * act(z)), inner, z=stored[0], up=stored[1]
        ))  # fmt: skip
    hidden, of_before = hidden.rounded, [each.rounded for each in of_before]
    (y,) = of(lambda acc, bias: acc + bias, hidden @ w_down.mT, bias=exactly(last))
    of_x = of_before[0] @ w[0]
    for each, matrix in zip(of_before[1:], w[1:], strict=True):
        of_x = of_x.rounded + each @ matrix
    return [
        y.rounded, of_x.rounded, *((each.mT @ rows).rounded for each in of_before),
        *(each.total(0).flat() for each in of_before), (back.mT @ hidden).rounded,
        back.total(0).flat(),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["graphed", "compiled"])
def test_mlp_in_graphs(torch: Any, tw: Any, how: str) -> None:
    """Forward and backward replayed for other inputs; in a graph of torch.compile, too."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    model = model.to("cuda", torch.bfloat16)
    assert len(tw.replace_linears(model).fused) == 1
    other = copy.deepcopy(model)
    if how == "graphed":
        x = torch.randn(32, 64, device="cuda").bfloat16()
        call = torch.cuda.make_graphed_callables(other, (x,))
    else:
        call = torch.compile(other, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn(32, 64, device="cuda").bfloat16()
        found = []
        for each, function in ((model, model), (other, call)):
            each.zero_grad()
            y = function(x).clone()
            y.sum().backward()
            found.append([y.detach(), *(p.grad.clone() for p in each.parameters())])
        for wanted, replayed in zip(*found, strict=True):
            torch.testing.assert_close(replayed, wanted)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_epilogue_in_training(torch: Any, mode: str, dtype: str) -> None:
    """In eager mode and in a graph, with several results and operands of several shapes."""
    kind = getattr(torch, dtype)

    def layer(x: Any, w: Any, bias: Any, scale: Any, residual: Any) -> Any:
        y, before = tilewise.matmul(
            x, w, transpose_b=True, bias=bias, scale=scale, residual=residual,
            epilogue=lambda acc, bias, scale, residual: (
                tilewise.silu(acc + bias) * scale + residual, acc + bias,
            ),
        )  # fmt: skip
        return y + before

    shapes = (96, 64), (80, 64), (80,), (96, 1), (96, 80)
    leaves = [torch.randn(s, device="cuda").to(kind).requires_grad_() for s in shapes]
    wide = [v.detach().double().requires_grad_() for v in leaves]
    x, w, bias, scale, residual = wide
    before = x @ w.mT + bias
    exact = torch.nn.functional.silu(before) * scale + residual + before
    of_y = torch.randn(96, 80, device="cuda").to(kind)
    others = torch.autograd.grad(exact, wide, of_y.double())
    bounds = _of_layer(*map(exactly, (*leaves, of_y)))
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for call in (layer, compiled):
        for _ in range(3):
            found = call(*leaves).clone()
            grads = torch.autograd.grad(found, leaves, of_y)
            every = zip(bounds, (found, *grads), (exact, *others), strict=True)
            for within, ours, theirs in every:
                assert within.holds(ours)
                assert within.holds(theirs)


def _of_layer(
    x: Within, w: Within, bias: Within, scale: Within, residual: Within, of_y: Within
) -> list[Within]:
    """Where the layer's result lies, and its gradients, with what is stored rounded."""
    y, before = of(
        lambda acc, bias, scale, residual: (
            tilewise.silu(acc + bias) * scale + residual, acc + bias,
        ),
        x @ w.mT, bias=bias, scale=scale, residual=residual,
    )  # fmt: skip
    y, before = y.rounded, before.rounded
    of_acc, of_scale = of(
        lambda acc, g, scale: (g * scale * DERIVATIVES["silu"](acc) + g, g * tilewise.silu(acc)),
        before, g=of_y, scale=scale,
    )  # fmt: skip
    of_acc, of_scale = of_acc.rounded, of_scale.rounded
    return [
        (y + before).rounded, (of_acc @ w).rounded, (of_acc.mT @ x).rounded,
        of_acc.total(0).flat(), of_scale.total(1), of_y,
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(257,), (33, 1030), (3, 40, 256), (2, 3, 5, 7)])
def test_functions_of_elements(torch: Any, tw: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """By a kernel, in one launch: between the bounds that the roundings of its functions give."""
    from tilewise.epilogue import trace
    from tilewise.torch import pointwise

    def function(acc: Any, x: Any, y: Any) -> Any:
        return tilewise.silu(acc) * x + y, acc, tilewise.tanh(acc + x)

    kind = getattr(torch, dtype)
    acc = torch.randn(shape, device="cuda").to(kind)
    x, traced = torch.randn(shape[-1], device="cuda"), trace(function, ("x", "y"))
    kinds = [kind, torch.float32, torch.float64]
    with torch.no_grad():
        assert pointwise._is_for_kernels(acc, [x, 0.5], 2)
        found = pointwise.pointwise(traced, acc, [x, 0.5], kinds)
    assert [each.dtype for each in found] == kinds
    exact, computed = acc.double().cpu().numpy(), "float64" if dtype == "float64" else "float32"
    bounds = traced.enclose(exact, exact, [x.cpu().numpy(), 0.5], computed)
    for each, ends in zip(found, bounds, strict=True):
        # Rounding is monotonic: a rounded result lies between the rounded bounds.
        low, high = (torch.from_numpy(np.broadcast_to(end, shape).copy()) for end in ends)
        assert torch.all((low.to(each.dtype) <= each.cpu()) & (each.cpu() <= high.to(each.dtype)))


def test_arrays_in_two_places(torch: Any, tw: Any) -> None:
    x, w = torch.randn(3, 3, device="cuda", requires_grad=True), torch.randn(3, 3)
    for function in (tilewise.matmul, torch.ops.tilewise.matmul):
        with pytest.raises(ValueError, match="one place"):
            function(x, w)
    with pytest.raises(ValueError, match="x is on cuda:0 and bias on cpu"):
        tw.linear(x, w.cuda(), torch.randn(3))
