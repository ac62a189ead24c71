"""Epilogues of tensors that require a gradient, under autocast, and in graphs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.errors import TraceError


def fused(acc: Any, bias: Any, residual: Any) -> Any:
    before = acc + bias
    return tilewise.gelu(before) + residual, before


def test_gradients(torch: Any, tw: Any) -> None:
    """Of A, B, C and the operands; and theirs."""

    def leaf(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    a, b, c, bias, residual = leaf(2, 3, 4), leaf(4, 5), leaf(2, 3, 5), leaf(5), leaf(3, 1)

    def function(a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Any:
        return tilewise.matmul(
            a, b, c, alpha=0.5, beta=2, epilogue=fused, bias=bias, residual=residual
        )

    assert torch.autograd.gradcheck(function, (a, b, c, bias, residual))
    assert torch.autograd.gradgradcheck(function, (a, b, c, bias, residual))
    y, before = function(a, b, c, bias, residual)
    sums = 0.5 * a @ b + 2 * c + bias
    torch.testing.assert_close(before, sums)
    torch.testing.assert_close(y, torch.nn.functional.gelu(sums) + residual)


@pytest.mark.parametrize("how", ["apart", "halves", "interleaved"])
def test_gradients_of_pairs(torch: Any, tw: Any, how: str) -> None:
    """Of A, of both matrices B, and of an operand."""

    def leaf(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    a, w1, w3, bias = leaf(2, 3, 4), leaf(5, 4), leaf(5, 4), leaf(5)

    def function(a: Any, w1: Any, w3: Any, bias: Any) -> Any:
        b: Any = w1, w3
        if how != "apart":
            b = torch.cat(b) if how == "halves" else torch.stack(b, 1).flatten(0, 1)
        return tilewise.matmul(
            a, b, transpose_b=True, alpha=0.5, pairs=None if how == "apart" else how,
            epilogue=lambda gate, up, bias: tilewise.silu(gate) * up + bias, bias=bias,
        )  # fmt: skip

    assert torch.autograd.gradcheck(function, (a, w1, w3, bias))
    gate, up = (0.5 * a @ x.T for x in (w1, w3))
    wanted = torch.nn.functional.silu(gate) * up + bias
    torch.testing.assert_close(function(a, w1, w3, bias), wanted)
    with torch.no_grad():
        torch.testing.assert_close(function(a, w1, w3, bias), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert function(*(x.float() for x in (a, w1, w3, bias))).dtype == torch.bfloat16
    for given, words in (((w1,), "a tuple of 1"), ((w1, w3[:3]), "has shape|b.1.")):
        with pytest.raises((TypeError, ValueError), match=words):
            tilewise.matmul(a, given, transpose_b=True, epilogue=lambda gate, up: gate * up)


def test_gradients_are_pytorchs_where_functions_bend_or_saturate(torch: Any, tw: Any) -> None:
    given = torch.tensor([[-1000.0, -100.0, 0.0, 100.0, 1000.0]]).T
    functions = torch.nn.functional
    for ours, theirs in (
        (tilewise.sigmoid, torch.sigmoid), (tilewise.silu, functions.silu),
        (tilewise.relu, functions.relu), (tilewise.gelu, functions.gelu),
        (tilewise.softplus, functions.softplus),
    ):  # fmt: skip
        x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
        tilewise.matmul(x, torch.ones(1, 1), epilogue=lambda acc, f=ours: f(acc)).sum().backward()
        theirs(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def test_a_number_of_numpys_hides_no_gradient(torch: Any, tw: Any) -> None:
    x = torch.ones(2, 2)
    scale = torch.ones(2, requires_grad=True)
    y = tilewise.matmul(
        x, x, epilogue=lambda acc, s, scale: acc * s * scale, s=np.float32(2), scale=scale
    )
    assert y.requires_grad


def test_an_operand_alone_requires_one(torch: Any, tw: Any) -> None:
    x, bias = torch.ones(2, 3), torch.zeros(2, requires_grad=True)
    y = tilewise.matmul(x, torch.ones(3, 2), epilogue=lambda acc, bias: acc * bias, bias=bias)
    y.sum().backward()
    torch.testing.assert_close(bias.grad, torch.full((2,), 6.0))
    with torch.no_grad():
        y = tilewise.matmul(x, torch.ones(3, 2), epilogue=lambda acc, bias: acc + bias, bias=bias)
    assert not y.requires_grad


def test_sums_are_rounded_once(torch: Any, tw: Any) -> None:
    a = torch.full((2, 64), 100.0).half().requires_grad_()
    y = tilewise.matmul(a, a, transpose_b=True, epilogue=lambda acc: acc / 1000)
    assert y.dtype == torch.float16
    assert (y == 640).all()
    y.sum().backward()
    assert a.grad.dtype == torch.float16


def test_autocast(torch: Any, tw: Any) -> None:
    a, b, bias = torch.randn(4, 8), torch.randn(8, 3), torch.randn(3)
    with torch.autocast("cpu", torch.bfloat16):
        y = tilewise.matmul(a, b, epilogue=lambda acc, bias: tilewise.silu(acc + bias), bias=bias)
    assert y.dtype == torch.bfloat16
    wanted = torch.nn.functional.silu(a.bfloat16().float() @ b.bfloat16().float() + bias)
    torch.testing.assert_close(y, wanted.bfloat16(), rtol=0.01, atol=0.01)


def test_a_graph_goes_on_behind_it(torch: Any, tw: Any) -> None:
    def function(a: Any, b: Any, bias: Any) -> Any:
        x = a * 2
        y = tilewise.matmul(x, b, epilogue=lambda acc, bias: tilewise.relu(acc + bias), bias=bias)
        return y + 1

    a, b, bias = torch.randn(4, 8), torch.randn(8, 3), torch.randn(3)
    found = torch.compile(function, backend="eager")(a, b, bias)
    torch.testing.assert_close(found, torch.relu(2 * a @ b + bias) + 1)


def test_what_is_wrong_is_said(torch: Any, tw: Any) -> None:
    a = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(ValueError, match="invariant=True is for products that autograd does not"):
        tilewise.matmul(a, a, invariant=True)
    with pytest.raises(ValueError, match="autograd can't record"):
        tilewise.matmul(a, a, out=torch.empty(2, 2), epilogue=lambda acc: acc)
    with pytest.raises(ValueError, match=r"x has shape \(3,\)"):
        tilewise.matmul(a, a, epilogue=lambda acc, x: acc + x, x=torch.ones(3))
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        tilewise.matmul(a, a, x=torch.ones(3))
    with pytest.raises(TypeError, match="c has dtype float64"):
        tilewise.matmul(a, a, a.detach().double(), beta=1, epilogue=lambda acc: acc)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match="can't be float16"):
        tilewise.matmul(a, a, epilogue=lambda acc: acc, out_dtype=torch.float16)
    with pytest.raises(TypeError, match="x is a str"):
        tilewise.matmul(a, a, epilogue=lambda acc, x: acc + x, x="1")
    with pytest.raises(tilewise.TraceError, match="returns None"):
        tilewise.matmul(a, a, epilogue=lambda acc: None)


def test_functions_of_pytorch_are_no_part_of_an_epilogue(torch: Any, tw: Any) -> None:
    """The error names them, what to use, and the caller's line; tensors are operands."""
    a, functional = torch.ones(2, 2), torch.nn.functional
    given: list[tuple[Any, str, str]] = [
        (functional.silu, "silu", "tilewise.silu can"),
        (lambda acc: functional.gelu(acc, approximate="tanh"), "gelu", "tilewise.gelu can"),
        (lambda acc: torch.sigmoid(acc), "sigmoid", "tilewise.sigmoid can"),
        (lambda acc: torch.where(acc > 0, acc, 0), "where", "tilewise.where can"),
        (lambda acc: torch.clamp(acc, 0), "clamp", "tilewise.clip can"),
        (lambda acc: torch.sin(acc), "sin", "tilewise has functions for epilogues"),
    ]
    for function, name, hint in given:
        words = rf"{re.escape(__file__)}:\d+: torch\.{name} can't be traced; {re.escape(hint)}"
        with pytest.raises(TraceError, match=words):
            tw.matmul(a, a, epilogue=function)
    for function in (lambda acc: torch.maximum(acc, a), lambda acc: a * acc):
        with pytest.raises(TraceError, match=r"a torch\.Tensor can't be part of an epilogue"):
            tw.matmul(a, a, epilogue=function)
