"""Several gradients at once (``is_grads_batched=True``) are those that are computed one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from computing_gpu import computing_gpu  # noqa: F401

import tilewise

SHAPES = [(3, 4), (4,), (2, 3, 4)]


def leaf(torch: Any, *shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def functions(torch: Any, tw: Any) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """Return functions of X by name, and the other tensors that each takes."""
    w, w2, down = leaf(torch, 5, 4), leaf(torch, 5, 4), leaf(torch, 6, 5)
    bias, last = leaf(torch, 5), leaf(torch, 6)
    column_major = torch.randn(4, 5).double().mT.requires_grad_()
    return {
        "matmul": (lambda x, w: tw.matmul(x, w, transpose_b=True, alpha=2), [w]),
        "batch": (tw.matmul, [leaf(torch, 2, 4, 5)]),
        "operator": (torch.ops.tilewise.matmul, [leaf(torch, 4, 5)]),
        "linear": (tw.linear, [w, bias]),
        "column-major": (tw.linear, [column_major, bias]),
        "mlp": (
            lambda x, w, down, bias, last: tw.mlp(
                x, w, down, activation="gelu", bias=bias, down_bias=last
            ),
            [w, down, bias, last],
        ),
        "gated": (
            lambda x, w, w2, down: tw.mlp(x, (w, w2), down, activation="silu"), [w, w2, down],
        ),
        "epilogue": (
            lambda x, w, y: tw.matmul(
                x, w, transpose_b=True, epilogue=lambda acc, y: tilewise.gelu(acc) * y, y=y
            ),
            [w, bias],
        ),
        "pairs": (
            lambda x, b: tw.matmul(
                x, b, epilogue=lambda gate, up: tilewise.silu(gate) * up, pairs="interleaved"
            ),
            [leaf(torch, 4, 6)],
        ),
    }  # fmt: skip


NAMES = [
    "matmul", "batch", "operator", "linear", "column-major", "mlp", "gated", "epilogue", "pairs",
]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batched_gradients(torch: Any, tw: Any, name: str, shape: tuple[int, ...]) -> None:
    """Their derivatives are right too, and PyTorch does not warn that it computes one at a time."""
    function, others = functions(torch, tw)[name]
    given = [leaf(torch, *shape), *others]
    y = function(*given)
    every = torch.randn(7, *y.shape, dtype=torch.float64)
    options = {"create_graph": True, "retain_graph": True}
    found = torch.autograd.grad(y, given, every, is_grads_batched=True, **options)
    each = [torch.autograd.grad(y, given, g, **options) for g in every]
    wanted = [torch.stack(parts) for parts in zip(*each, strict=True)]
    assert len(found) == len(wanted) == len(given)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    of = [sum((part**2).sum() for part in parts) for parts in (found, wanted)]
    seconds = [
        torch.autograd.grad(total, given, retain_graph=True, materialize_grads=True) for total in of
    ]
    for ours, theirs in zip(*seconds, strict=True):
        torch.testing.assert_close(ours, theirs)


def scaled(torch: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """Return 2 Y and 3 Z; a missing gradient of one is zeros, not batched."""

    class Scaled(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, y: Any, z: Any) -> tuple[Any, Any]:
            return y * 2, z * 3

        @staticmethod
        def backward(ctx: Any, of_y: Any, of_z: Any) -> tuple[Any, Any]:
            return of_y * 2, of_z * 3

    found: tuple[Any, Any] = Scaled.apply(y, z)
    return found


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", ["results", "pairs", "mlp", "gated", "linear"])
def test_one_of_two_gradients_is_batched(torch: Any, tw: Any, name: str, which: int) -> None:
    x, w, down = leaf(torch, 3, 4), leaf(torch, 6, 4), leaf(torch, 5, 6)

    def both(x: Any, w: Any, down: Any) -> Any:
        if name == "results":
            return tw.matmul(
                x, w, transpose_b=True, epilogue=lambda acc: (tilewise.gelu(acc), acc * acc)
            )
        if name == "pairs":
            return tw.matmul(
                x, w.mT, epilogue=lambda gate, up: (gate * gate, up * up), pairs="halves"
            )
        if name == "linear":
            y = tw.linear(x, w)
        else:
            y = tw.mlp(x, w if name == "mlp" else (w, w * 2), down, activation="gelu")
        return y, torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

    given = [x, w, down]
    y = scaled(torch, *both(*given))[which]
    every = torch.randn(7, *y.shape, dtype=torch.float64)
    options = {"retain_graph": True, "allow_unused": True}
    found = torch.autograd.grad(y, given, every, is_grads_batched=True, **options)
    assert found[1] is not None
    for i, g in enumerate(every):
        for ours, theirs in zip(found, torch.autograd.grad(y, given, g, **options), strict=True):
            assert (ours is None) is (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours[i], theirs)


def test_batched_gradients_of_grouped_products(torch: Any, tw: Any) -> None:
    x, w = leaf(torch, 3, 4), leaf(torch, 2, 4, 5)
    y = tw.grouped_matmul(x, w, torch.tensor([1, 3], dtype=torch.int32))
    every = torch.randn(7, *y.shape, dtype=torch.float64)
    found = torch.autograd.grad(y, (x, w), every, is_grads_batched=True, retain_graph=True)
    for i, g in enumerate(every):
        for ours, theirs in zip(
            found, torch.autograd.grad(y, (x, w), g, retain_graph=True), strict=True
        ):
            torch.testing.assert_close(ours[i], theirs)


@pytest.mark.usefixtures("computing_gpu")
@pytest.mark.parametrize("name", ["linear", "mlp", "gated"])
def test_batched_gradients_between_cached_calls(torch: Any, tw: Any, name: str) -> None:
    """A layer whose launches are cached takes gradients that have no address."""
    function, others = functions(torch, tw)[name]
    for turn in range(6):
        given = [leaf(torch, 3, 4), *others]
        y = function(*given)
        every = torch.randn(2, *y.shape, dtype=torch.float64)
        each = [torch.autograd.grad(y, given, g, retain_graph=True) for g in every]
        if turn % 2:
            found = torch.autograd.grad(y, given, every, is_grads_batched=True)
            for ours, theirs in zip(found, zip(*each, strict=True), strict=True):
                torch.testing.assert_close(ours, torch.stack(theirs))


def test_vectorized_jacobians_and_hessians(torch: Any, tw: Any) -> None:
    w, x = torch.randn(5, 4).double(), torch.randn(3, 4).double()
    of = torch.autograd.functional
    for is_vectorized in (False, True):
        found = of.jacobian(lambda w: tw.linear(x, w), w, vectorize=is_vectorized)
        torch.testing.assert_close(found, of.jacobian(lambda w: x @ w.mT, w))
        found = of.hessian(lambda w: (tw.linear(x, w) ** 3).sum(), w, vectorize=is_vectorized)
        torch.testing.assert_close(found, of.hessian(lambda w: ((x @ w.mT) ** 3).sum(), w))
    found = of.jacobian(lambda w: tw.linear(x, w), w, vectorize=True, strategy="forward-mode")
    torch.testing.assert_close(found, of.jacobian(lambda w: x @ w.mT, w))
