"""The products of MLPs and of epilogues in training by tilewise's own kernels, on the emulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise.arrays import dispatched

pytest.importorskip("torch", reason="MLPs are PyTorch's")

from tilewise.bench import model_checks
from tilewise.torch.activations import ACTIVATIONS


@pytest.fixture
def on_emulator(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the emulator answer for tensors on the host."""
    (own,) = dispatched._answers

    def answer(*args: Any, **options: Any) -> Any:
        if len(args) > 9:
            args = (*args[:9], "emulator", *args[10:])
        else:
            options["device"] = "emulator"
        return own(*args, **options)

    monkeypatch.setattr(dispatched, "_answers", [answer])


@given(st.data())
def test_products_are_right(torch: Any, tw: Any, on_emulator: None, data: st.DataObject) -> None:
    """Of odd sizes, any dtype and any activation: forward, and backward with its derivative."""
    dtype = data.draw(st.sampled_from(["float16", "bfloat16", "float32"]))
    how = data.draw(st.sampled_from(sorted(ACTIVATIONS)))
    gated, biased = data.draw(st.booleans()), data.draw(st.booleans())
    m, k, hidden, n = (data.draw(st.integers(1, 9)) for _ in range(4))
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))

    def new(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).to(kind).requires_grad_()

    x, down, last = new(m, k), new(n, hidden), new(n) if biased else None
    weights = tuple(new(hidden, k) for _ in range(1 + gated))
    biases = tuple(new(hidden) for _ in weights)
    one = not gated
    bias = (biases[0] if one else biases) if biased else None

    def run() -> None:
        y = tw.mlp(
            x, weights[0] if one else weights, down, activation=how, bias=bias, down_bias=last
        )
        y.backward(torch.randn(y.shape, generator=generator).to(kind))

    shares = model_checks.fused_shares(run)
    assert len(shares) == 2 + biased
    assert max(shares.values()) <= 1, shares


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_epilogue_in_training(torch: Any, tw: Any, pairs: bool, dtype: str) -> None:
    """Computed where the caller says, forward and backward; the gradients are PyTorch's."""
    kind = getattr(torch, dtype)
    shapes = (5, 9), (7, 9), (7, 9), (7,), (5, 1)
    a, b, up, bias, scale = (torch.randn(x).to(kind).requires_grad_() for x in shapes)

    def function(acc: Any, bias: Any, scale: Any) -> Any:
        before = acc + bias
        return tilewise.silu(before) * scale, before

    def gated(gate: Any, up: Any, bias: Any, scale: Any) -> Any:
        hidden, before = function(gate, bias, scale)
        return hidden * up, before

    def product(device: str, a: Any, b: Any, up: Any, bias: Any, scale: Any) -> Any:
        return tilewise.matmul(
            a, (b, up) if pairs else b, transpose_b=True, device=device, bias=bias, scale=scale,
            epilogue=gated if pairs else function,
        )  # fmt: skip

    found: list[Any] = []
    shares = model_checks.fused_shares(
        lambda: found.extend(product("emulator", a, b, up, bias, scale))
    )
    assert len(shares) == 1
    assert max(shares.values()) <= 1
    leaves = [a, b, *([up] if pairs else []), bias, scale]
    wide = [x.detach().double().requires_grad_() for x in (a, b, up, bias, scale)]
    exact = product("auto", *wide)
    grads = torch.autograd.grad(sum(x.float().sum() for x in found), leaves)
    of_wide = [x for x in wide if pairs or x is not wide[2]]
    others = torch.autograd.grad(sum(x.sum() for x in exact), of_wide)
    unit = {"bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    for ours, theirs in zip(grads, others, strict=True):
        off = (ours.double() - theirs).norm() / theirs.norm()
        assert off <= 16 * unit  # a few roundings, the norm of each at most a unit
