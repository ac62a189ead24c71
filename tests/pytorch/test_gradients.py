"""Gradients of products, held against finite differences and against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
from matmul_reference import assert_tensors_right

import tilewise
from tilewise.arrays import dispatched

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
]


def leaf(torch: Any, shape: tuple[int, ...], dtype: str = "float64") -> Any:
    return torch.randn(shape, dtype=torch.float64).to(getattr(torch, dtype)).requires_grad_()


@pytest.mark.parametrize(("of_a", "of_b"), SHAPES)
def test_against_finite_differences(
    torch: Any, tw: Any, of_a: tuple[int, ...], of_b: tuple[int, ...]
) -> None:
    a, b = leaf(torch, of_a), leaf(torch, of_b)
    for function in (tw.matmul, torch.ops.tilewise.matmul):
        assert torch.autograd.gradcheck(function, (a, b))
        assert torch.autograd.gradgradcheck(function, (a, b))


@pytest.mark.parametrize("by_columns", [(False, False), (True, False), (False, True), (True, True)])
def test_layouts_scalars_and_c(torch: Any, by_columns: tuple[bool, bool]) -> None:
    transpose_a, transpose_b = by_columns
    a = leaf(torch, (2, 4, 3) if transpose_a else (2, 3, 4))
    b = leaf(torch, (5, 4) if transpose_b else (4, 5))
    c = leaf(torch, (2, 3, 5))

    def product(a: Any, b: Any, c: Any) -> Any:
        return tilewise.matmul(
            a, b, c, alpha=-2, beta=3, transpose_a=transpose_a, transpose_b=transpose_b
        )

    assert torch.autograd.gradcheck(product, (a, b, c), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, (a, b, c))


def test_what_is_not_read_has_zero_gradients(torch: Any) -> None:
    a, b, c = (leaf(torch, (3, 3)) for _ in range(3))
    with torch.no_grad():
        c.fill_(torch.nan)
    tilewise.matmul(a, b, c).sum().backward()
    assert torch.equal(c.grad, torch.zeros_like(c))
    assert not a.grad.isnan().any()
    a.grad = b.grad = None
    with torch.no_grad():
        a.fill_(torch.nan)
    tilewise.matmul(a, b, b.detach(), alpha=0, beta=1).sum().backward()
    assert torch.equal(a.grad, torch.zeros_like(a))
    assert torch.equal(b.grad, torch.zeros_like(b))


def test_only_what_is_asked_for_is_computed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    (own,) = dispatched._answers

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return own(*args, **options)

    monkeypatch.setattr(dispatched, "_answers", [counted])
    a, b = leaf(torch, (3, 4)), leaf(torch, (4, 5))
    for inputs, products in (((a, b.detach()), 2), ((a.detach(), b), 2), ((a, b), 3)):
        calls.clear()
        tilewise.matmul(*inputs).sum().backward()
        assert len(calls) == products


def test_inputs_of_the_gradients_are_views(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No operand is copied, whichever the layouts, and gradients lie as their operands do."""
    (own,) = dispatched._answers
    kept: set[int] = set()
    calls = []

    def looked_at(x: Any, y: Any, *args: Any, **options: Any) -> Any:
        calls.append((x, y))
        assert {x.untyped_storage().data_ptr(), y.untyped_storage().data_ptr()} <= kept
        return own(x, y, *args, **options)

    monkeypatch.setattr(dispatched, "_answers", [looked_at])
    x, w = leaf(torch, (2, 6, 4), "bfloat16"), leaf(torch, (5, 4), "bfloat16")
    of_d = torch.randn(2, 6, 5).bfloat16()
    kept |= {each.untyped_storage().data_ptr() for each in (x, w, of_d)}
    tilewise.matmul(x, w, transpose_b=True).backward(of_d)
    assert len(calls) == 3
    assert x.grad.stride() == x.stride()
    assert w.grad.stride() == w.stride()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_as_right_as_products(torch: Any, dtype: str, shared: bool) -> None:
    """Over what an operand is broadcast to, they are sums of one long product."""
    a = leaf(torch, (40, 70) if shared else (3, 40, 70), dtype)
    b = leaf(torch, (3, 70, 50) if shared else (70, 50), dtype)
    result = tilewise.matmul(a, b, alpha=0.5)
    of_d = torch.randn(result.shape).to(a.dtype)
    result.backward(of_d)
    if shared:
        long_g, long_b = of_d.transpose(0, 1).flatten(1), b.detach().transpose(0, 1).flatten(1)
        assert_tensors_right(a.grad, long_g, long_b.mT, 0.5)
        assert_tensors_right(b.grad, a.detach().mT, of_d, 0.5)
    else:
        assert_tensors_right(a.grad, of_d, b.detach().mT, 0.5)
        assert_tensors_right(b.grad, a.detach().flatten(0, 1).mT, of_d.flatten(0, 1), 0.5)
    assert result.dtype == a.grad.dtype == b.grad.dtype == a.dtype


def test_a_float32_result_of_16_bits(torch: Any) -> None:
    a, b = leaf(torch, (8, 8), "bfloat16"), leaf(torch, (8, 8), "bfloat16")
    result = tilewise.matmul(a, b, out_dtype=torch.float32)
    of_d = torch.randn(8, 8)
    result.backward(of_d)
    assert result.dtype == torch.float32
    assert a.grad.dtype == torch.bfloat16
    assert_tensors_right(a.grad, of_d.bfloat16(), b.detach().mT)


def test_on_the_emulator(torch: Any, emulator: Any) -> None:
    """The gradients are computed where the product is."""
    a, b = leaf(torch, (5, 6), "float32"), leaf(torch, (6, 7), "float32")
    result = tilewise.matmul(a, b, device="emulator")
    of_d = torch.randn(5, 7)
    result.backward(of_d)
    assert_tensors_right(result.detach(), a.detach(), b.detach())
    assert_tensors_right(a.grad, of_d, b.detach().mT)
    assert_tensors_right(b.grad, a.detach().mT, of_d)


def test_out_with_a_gradient_is_refused(torch: Any) -> None:
    a, out = leaf(torch, (3, 3)), torch.empty(3, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^a requires a gradient.*leave out out=.*no_grad"):
        tilewise.matmul(a, a.detach(), out=out)
    with pytest.raises(ValueError, match=r"^out requires a gradient"):
        tilewise.matmul(a.detach(), a.detach(), out=out.clone().requires_grad_())
    with torch.no_grad():
        assert tilewise.matmul(a, a, out=out) is out
    assert not out.requires_grad
    with torch.inference_mode():
        assert not tilewise.matmul(a, a).requires_grad


def test_transformations(torch: Any) -> None:
    a, b = torch.randn(2, 3, 4).double(), torch.randn(4, 5).double()
    c = torch.randn(2, 3, 5).double()

    def loss(b: Any) -> Any:
        return (tilewise.matmul(a, b, c, alpha=2, beta=3) ** 2).sum()

    expected = torch.func.grad(lambda b: ((2 * a @ b + 3 * c) ** 2).sum())(b)
    torch.testing.assert_close(torch.func.grad(loss)(b), expected)
    each = torch.func.vmap(lambda a: tilewise.matmul(a, b))(a)
    torch.testing.assert_close(each, a @ b)
    half = torch.func.vmap(lambda a: tilewise.matmul(a, b.half()))(a.half())
    assert half.dtype == torch.float16
    with pytest.raises(ValueError, match="columns as B has rows"):
        torch.func.vmap(lambda a: tilewise.matmul(a, b.mT))(a)


def test_modules_train_as_with_torch(torch: Any) -> None:
    w = leaf(torch, (4, 4))
    other = w.detach().clone().requires_grad_()
    x, y = torch.randn(8, 4).double(), torch.randn(8, 4).double()
    for parameter, product in ((w, tilewise.matmul), (other, torch.matmul)):
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            ((product(x, parameter).relu() - y) ** 2).mean().backward()
            optimizer.step()
    torch.testing.assert_close(w, other)
    assert math.isfinite(float(w.detach().sum()))
