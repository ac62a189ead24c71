"""Grouped products of tensors: gradients, graphs, autocast."""

from __future__ import annotations

from typing import Any

import pytest
from matmul_reference import assert_tensors_right

import tilewise

ENDS = (2, 2, 7, 8)
PARTS = (slice(0, 2), slice(2, 2), slice(2, 7), slice(7, 8))


@pytest.fixture
def offsets(torch: Any) -> Any:
    return torch.tensor(ENDS, dtype=torch.int32)


def new(torch: Any, *shape: int, needs: bool = True) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=needs)


def test_gradients_of_rows_in_groups(torch: Any, offsets: Any) -> None:
    x, w = new(torch, 8, 3), new(torch, 4, 3, 5)
    check = torch.autograd.gradcheck
    assert check(lambda x, w: tilewise.grouped_matmul(x, w, offsets), (x, w))
    assert check(lambda x, w: tilewise.grouped_matmul(x, w.mT, offsets), (x, new(torch, 4, 5, 3)))
    assert torch.autograd.gradgradcheck(lambda x, w: tilewise.grouped_matmul(x, w, offsets), (x, w))


def test_gradients_of_k_in_groups(torch: Any, offsets: Any) -> None:
    inputs = new(torch, 8, 3), new(torch, 8, 5)
    call = lambda x, y: tilewise.grouped_matmul(x.mT, y, offsets)  # noqa: E731
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_gradients_of_an_epilogue(torch: Any, offsets: Any) -> None:
    bias, scale = new(torch, 4, 1, 5), new(torch, 8, 1)

    def call(x: Any, w: Any, bias: Any, scale: Any) -> Any:
        return tilewise.grouped_matmul(
            x, w, offsets, bias=bias, scale=scale,
            epilogue=lambda acc, bias, scale: (tilewise.silu(acc + bias) * scale, acc),
        )  # fmt: skip

    inputs = new(torch, 8, 3), new(torch, 4, 3, 5), bias, scale
    assert torch.autograd.gradcheck(call, inputs)
    with torch.no_grad():  # the same values where nothing is recorded
        fused = call(*inputs)
    for found, right in zip(call(*inputs), fused, strict=True):
        torch.testing.assert_close(found.detach(), right)


def test_a_gradient_lies_as_the_weights_do(torch: Any, offsets: Any) -> None:
    stored = torch.randn(4, 5, 3, requires_grad=True)
    tilewise.grouped_matmul(torch.randn(8, 3), stored.mT, offsets).sum().backward()
    assert stored.grad.stride() == stored.stride()


def test_operator_and_graphs(torch: Any, tw: Any, offsets: Any) -> None:
    x, w = new(torch, 8, 3), new(torch, 4, 3, 5)
    found = torch.library.opcheck(torch.ops.tilewise.grouped_matmul.default, (x, w, offsets))
    assert set(found.values()) == {"SUCCESS"}
    compiled = torch.compile(
        lambda x, w: tilewise.grouped_matmul(x, w, offsets) * 2, fullgraph=True, backend="aot_eager"
    )
    compiled(x, w).sum().backward()
    of_x, of_w = x.grad, w.grad
    x.grad = w.grad = None
    (tilewise.grouped_matmul(x, w, offsets) * 2).sum().backward()
    torch.testing.assert_close(x.grad, of_x)
    torch.testing.assert_close(w.grad, of_w)


def test_autocast_multiplies_in_its_dtype(torch: Any, offsets: Any) -> None:
    x, w = torch.randn(8, 3), torch.randn(4, 3, 5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        got = tilewise.grouped_matmul(x, w, offsets)
    assert got.dtype == torch.bfloat16
    for i, part in enumerate(PARTS):
        assert_tensors_right(got[part].detach(), x[part].bfloat16(), w[i].detach().bfloat16())
    got.sum().backward()
    assert w.grad.dtype == torch.float32


def test_what_is_wrong_is_said(torch: Any, tw: Any, offsets: Any) -> None:
    x, w = new(torch, 8, 3), new(torch, 4, 3, 5)
    with pytest.raises(ValueError, match="written to out"):
        tilewise.grouped_matmul(x, w, offsets, out=torch.empty(8, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="leave out device"):
        tilewise.grouped_matmul(x, w, offsets, device="emulator")
    with pytest.raises(ValueError, match="it must end at 8"):
        tilewise.grouped_matmul(x, w, offsets - 1, check_offsets=True)
    with pytest.raises(TypeError, match=r"w is an int, not a torch\.Tensor"):
        tw.grouped_matmul(x, 3, offsets)
    with pytest.raises(ValueError, match="w has 2 matrices and offsets 4 ends"):
        tilewise.grouped_matmul(x, w[:2], offsets)


def test_a_training_step_on_the_gpu(gpu: object, torch: Any) -> None:
    ends = torch.tensor([100, 100, 260, 300], dtype=torch.int32, device="cuda")
    x = torch.randn(300, 128, device="cuda").bfloat16().requires_grad_()
    w = torch.randn(4, 256, 128, device="cuda").bfloat16().requires_grad_()
    y = tilewise.grouped_matmul(x, w.mT, ends)
    g = torch.randn_like(y)
    y.backward(g)
    begin = 0
    for i, end in enumerate(ends.tolist()):
        part = slice(begin, end)
        assert_tensors_right(y[part].detach(), x[part].detach(), w[i].detach().mT)
        assert_tensors_right(x.grad[part], g[part], w[i].detach())
        assert_tensors_right(w.grad[i], g[part].mT, x[part].detach())
        begin = end
