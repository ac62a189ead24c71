"""The products of MLPs and of epilogues in training by tilewise's own kernels, on the emulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise.arrays import dispatched

pytest.importorskip("torch", reason="MLPs are PyTorch's")

from reference import THOROUGH, examples
from within import DERIVATIVES, Within, exactly, of

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


@examples(THOROUGH, quick=4)
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

    others = [torch.randn(5, 7).to(kind) for _ in range(2)]  # the gradients of the results
    found: list[Any] = []
    shares = model_checks.fused_shares(
        lambda: found.extend(product("emulator", a, b, up, bias, scale))
    )
    assert len(shares) == 1
    assert max(shares.values()) <= 1
    leaves = [a, b, *([up] if pairs else []), bias, scale]
    wide = [x.detach().double().requires_grad_() for x in (a, b, up, bias, scale)]
    exact = product("auto", *wide)
    grads = torch.autograd.grad(found, leaves, others)
    of_wide = [x for x in wide if pairs or x is not wide[2]]
    of_exact = torch.autograd.grad(exact, of_wide, [x.double() for x in others])
    bounds = _bounds(pairs, *map(exactly, (a, b, up, bias, scale, *others)))
    for within, ours, theirs in zip(bounds, (*found, *grads), (*exact, *of_exact), strict=True):
        assert within.holds(ours)
        assert within.holds(theirs)


def _bounds(
    pairs: bool, a: Within, b: Within, up: Within, bias: Within, scale: Within, of_y: Within,
    of_before: Within,
) -> list[Within]:  # fmt: skip
    """Where the results lie, and the gradients of A, B, U, the bias and the scale."""
    gate, others = a @ b.mT, (a @ up.mT).rounded
    if pairs:
        y, before, hidden = of(
            lambda acc, up, bias, scale: (
                tilewise.silu(acc + bias) * scale * up, acc + bias,
                tilewise.silu(acc + bias) * scale,
            ),
            gate, up=others, bias=bias, scale=scale,
        )  # fmt: skip
    else:
        y, before = of(
            lambda acc, bias, scale: (tilewise.silu(acc + bias) * scale, acc + bias),
            gate, bias=bias, scale=scale,
        )  # fmt: skip
    before = before.rounded
    first = (of_y * others).rounded if pairs else of_y
    of_gate, of_scale = of(
        lambda acc, first, scale, second: (
            first * scale * DERIVATIVES["silu"](acc) + second, first * tilewise.silu(acc),
        ),
        before, first=first, scale=scale, second=of_before,
    )  # fmt: skip
    of_gate, of_scale = of_gate.rounded, of_scale.rounded
    of_a, of_b = of_gate @ b, (of_gate.mT @ a).rounded
    of_up = []
    if pairs:
        back = (of_y * hidden.rounded).rounded
        of_a, of_up = of_a.rounded + back @ up, [(back.mT @ a).rounded]
    of_bias = of_gate.total(0).flat()
    return [y.rounded, before, of_a.rounded, of_b, *of_up, of_bias, of_scale.total(1)]
