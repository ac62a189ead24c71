"""Gradients, linear layers and graphs where tilewise's own kernels multiply."""

from __future__ import annotations

from typing import Any

import pytest
from matmul_reference import assert_tensors_right

import tilewise

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


def test_arrays_in_two_places(torch: Any, tw: Any) -> None:
    x, w = torch.randn(3, 3, device="cuda", requires_grad=True), torch.randn(3, 3)
    for function in (tilewise.matmul, torch.ops.tilewise.matmul):
        with pytest.raises(ValueError, match="one place"):
            function(x, w)
    with pytest.raises(ValueError, match="x is on cuda:0 and bias on cpu"):
        tw.linear(x, w.cuda(), torch.randn(3))
