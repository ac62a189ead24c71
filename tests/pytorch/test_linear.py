"""Linear layers by tilewise, beside those of PyTorch."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from matmul_reference import assert_tensors_right
from reference import thorough

import tilewise
from tilewise.arrays import dispatched


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("leading", [(), (1,), (6,), (2, 3), (0,)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear(torch: Any, tw: Any, dtype: str, leading: tuple[int, ...], has_bias: bool) -> None:
    kind = getattr(torch, dtype)
    x, w = torch.randn(*leading, 40).to(kind), torch.randn(30, 40).to(kind)
    bias = torch.randn(30).to(kind) if has_bias else None
    found = tw.linear(x, w, bias)
    c = None if bias is None else bias.expand(found.shape)
    assert found.dtype == kind
    assert_tensors_right(found, x, w.mT, 1, int(has_bias), c)


def test_16_bit_results_are_rounded_once(torch: Any, tw: Any) -> None:
    """1 + 2⁻⁸ has nine bits and bfloat16 eight: rounded before the bias is added, it is 1."""
    x, w = torch.ones(2, 2).bfloat16(), torch.tensor([[1, 2.0**-8]]).bfloat16()
    found = tw.linear(x, w, torch.tensor([-1.0]).bfloat16())
    assert torch.equal(found, torch.full((2, 1), 2.0**-8).bfloat16())


def test_one_product_and_no_sum(torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias is part of the kernel, whether autograd records the layer or not."""
    (own,) = dispatched._answers
    seen: list[Any] = []

    def looked_at(*args: Any, asked: Any, **options: Any) -> Any:
        seen.append(asked.operands[0])
        return own(*args, asked=asked, **options)

    monkeypatch.setattr(dispatched, "_answers", [looked_at])
    w, bias = torch.randn(3, 4), torch.randn(3)
    for leaf in (None, w, bias):
        if leaf is not None:
            leaf.requires_grad_()
        for rows in ((2,), (1, 1)):
            found = tw.linear(torch.randn(*rows, 4), w, bias)
            assert found.requires_grad is (leaf is not None)
            assert seen.pop() is bias
            assert not seen


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_gradients(torch: Any, tw: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    shapes = (2, 3, 4), (5, 4), (5,)
    kept = [torch.randn(shape).to(kind).requires_grad_() for shape in shapes]
    if dtype == "float64":
        assert torch.autograd.gradcheck(tw.linear, tuple(kept))
        assert torch.autograd.gradgradcheck(tw.linear, tuple(kept))
        return
    x, w, bias = kept
    of_d = torch.randn(2, 3, 5).to(kind)
    tw.linear(x, w, bias).backward(of_d)
    assert_tensors_right(x.grad, of_d, w.detach())
    assert_tensors_right(w.grad, of_d.flatten(0, 1).mT, x.detach().flatten(0, 1))
    assert_tensors_right(bias.grad, torch.ones(6).to(kind), of_d.flatten(0, 1))


@pytest.mark.parametrize("of_x", [(4,), (0, 4), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("turned", ["none", "x", "w", "both"])
@pytest.mark.parametrize("leaves", ["x", "w", "b", "xw", "wb", "xwb"])
def test_gradients_beside_pytorchs(
    torch: Any, tw: Any, of_x: tuple[int, ...], turned: str, leaves: str
) -> None:
    """Of vectors, no rows, batches; of what lies by columns; of some of the tensors."""

    def layout(x: Any, name: str) -> Any:
        is_turned = turned in (name, "both") and x.ndim > 1
        return x.mT.contiguous().mT if is_turned else x

    made = [torch.randn(of_x), torch.randn(5, 4), torch.randn(5)]
    gradients, of_d = [], torch.randn(*of_x[:-1], 5).double()
    for function in (tw.linear, torch.nn.functional.linear):
        x, w, bias = (
            layout(each.double(), name).detach().requires_grad_(name in leaves)
            for each, name in zip(made, "xwb", strict=True)
        )
        found = function(x, w, bias)
        found.backward(of_d)
        gradients.append([found, x.grad, w.grad, bias.grad])
        if function is tw.linear and w.requires_grad:  # which autograd does not copy, then
            (of_w,) = torch.autograd.grad(tw.linear(x, w, bias), w, of_d)
            assert of_w.stride() == w.stride()
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs)


def test_what_is_wrong(torch: Any, tw: Any) -> None:
    x, w = torch.randn(2, 4), torch.randn(3, 4)
    for arguments, words in (
        ((x, w[0]), r"weight has shape \(4,\); a linear layer's is \(out features, in features\)"),
        ((x, w, torch.randn(4)), r"bias has shape \(4,\); by weight it should be \(3,\)"),
        ((x, w, torch.randn(1, 3)), "bias has shape"),
        (
            (x[:, :3], w),
            r"x with shape \(2, 3\) has 3 features in its last dimension; weight with shape "
            r"\(3, 4\), that is \(out features, in features\), takes 4",
        ),
        ((x[0, :3], w, torch.randn(3)), r"x with shape \(3,\) has 3 features"),
        ((x[0, 0], w), "x has no dimension; weight with shape .* takes 4 features"),
    ):
        with pytest.raises(ValueError, match=words):
            tw.linear(*arguments)
    for arguments in ((x.double(), w), (x, w, torch.randn(3).double()), (x.bfloat16(), w)):
        with pytest.raises(TypeError, match="dtype"):
            tw.linear(*arguments)
    with pytest.raises(TypeError, match=r"not a torch\.Tensor"):
        tw.linear(x.numpy(), w)
    bias = torch.randn(3)
    for arguments, name in (
        ((None, w, bias), "x"),
        ((x, None, bias), "weight"),
        ((x, None), "weight"),
    ):
        with pytest.raises(TypeError, match=rf"{name} is None, not a torch\.Tensor"):
            tw.linear(*arguments)


def model(torch: Any) -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 8, bias=False),
        torch.nn.Linear(8, 3),
    )  # fmt: skip


def test_state_and_arguments_are_those_of_pytorch(torch: Any, tw: Any) -> None:
    ours, theirs = tw.Linear(4, 3, dtype=torch.float64), torch.nn.Linear(4, 3).double()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 4).double()
    torch.testing.assert_close(ours(x), theirs(x))
    assert list(ours.state_dict()) == ["weight", "bias"]
    assert tw.Linear(4, 3, bias=False).bias is None
    assert isinstance(ours, torch.nn.Linear)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("backend", [None, "aot_eager", pytest.param("inductor", marks=thorough)])
def test_a_model_trains_as_with_pytorch(torch: Any, tw: Any, backend: str | None) -> None:
    theirs = model(torch).double()
    ours = model(torch).double()
    ours.load_state_dict(theirs.state_dict())
    assert len(tw.replace_linears(ours).replaced) == 3
    x, y = torch.randn(16, 4).double(), torch.randn(16, 3).double()
    losses = []
    for each in (theirs, ours):
        call = each
        if backend and each is ours:
            call = torch.compile(each, fullgraph=True, backend=backend)
        optimizer = torch.optim.AdamW(each.parameters(), lr=1e-2)
        for _ in range(4):
            optimizer.zero_grad()
            loss = ((call(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[:4], losses[4:])
    assert losses[3] < losses[0]


def test_what_is_replaced(torch: Any, tw: Any) -> None:
    nn = torch.nn

    own = type("Own", (nn.Linear,), {})
    shared = nn.Linear(4, 4)
    whole = nn.ModuleDict(
        {
            "plain": nn.Linear(4, 4), "shared": shared, "again": shared, "own": own(4, 4),
            "attention": nn.MultiheadAttention(4, 2), "norm": nn.LayerNorm(4),
            "hooked": nn.Linear(4, 4), "replaced": nn.Linear(4, 4), "int": nn.Linear(4, 4),
            "parametrized": nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            "prepared": nn.Linear(4, 4), "ours": tw.Linear(4, 4), "tied": nn.Linear(4, 4),
            "unasked": nn.Linear(4, 4),
        }
    )  # fmt: skip
    whole["tied"].weight = whole["plain"].weight
    whole["hooked"].register_forward_hook(lambda *_: None)
    whole["replaced"].forward = lambda x: x
    whole["int"].weight = nn.Parameter(torch.zeros(4, 4).to(torch.int8), requires_grad=False)
    whole["prepared"].qconfig = object()
    whole.add_module("quantised", torch.ao.nn.quantized.dynamic.Linear(4, 4))
    before = {name: id(each) for name, each in whole.named_modules(remove_duplicate=False)}
    parameters = [id(each) for each in whole.parameters()]
    found = tw.replace_linears(whole, lambda name, _: name != "unasked")
    assert found.replaced == ("plain", "shared", "tied")
    assert found.left == {
        "own": f"it is a {own.__module__}.{own.__qualname__}",
        "attention.out_proj": "it is a torch.nn.modules.linear.NonDynamicallyQuantizableLinear",
        "hooked": "it has hooks",
        "replaced": "its forward was replaced",
        "int": "its weight has dtype int8",
        "parametrized": "its parameters are parametrized",
        "prepared": "it is to be quantised (qconfig)",
        "quantised": "it is a torch.ao.nn.quantized.dynamic.modules.linear.Linear",
        "ours": "it is one of tilewise's already",
        "unasked": "not asked for",
    }
    assert {name: id(x) for name, x in whole.named_modules(remove_duplicate=False)} == before
    assert [id(each) for each in whole.parameters()] == parameters
    assert whole["tied"].weight is whole["plain"].weight
    assert whole["shared"] is whole["again"]
    assert type(whole["again"]) is tw.Linear
    told = str(found)
    assert told.startswith("3 of 13 linear layers replaced\n")
    assert "plain               replaced\n" in told
    assert "hooked              left: it has hooks\n" in told
    assert repr(found) == "<Replaced: 3 of 13 linear layers replaced>"
    assert set(found.to_dict()) == {"replaced", "left", "fused"}


def test_a_model_that_is_a_linear_layer(torch: Any, tw: Any) -> None:
    layer = torch.nn.Linear(4, 4)
    assert "the model itself  replaced" in str(tw.replace_linears(layer))
    assert type(layer) is tw.Linear
    assert str(tw.replace_linears(torch.nn.ReLU())) == "0 of 0 linear layers replaced"
    with pytest.raises(TypeError, match=r"model is a torch\.Tensor, not a torch\.nn\.Module"):
        tw.replace_linears(torch.ones(1))


def test_a_layer_under_autocast(torch: Any, tw: Any) -> None:
    layer, x = tw.Linear(40, 30), torch.randn(6, 40)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    w, bias = layer.weight.detach().bfloat16(), layer.bias.detach()  # which is not rounded
    assert found.dtype == torch.bfloat16
    assert_tensors_right(found.detach(), x.bfloat16(), w.mT, 1, 1, bias.expand(6, 30))
    found.sum().backward()
    assert {each.grad.dtype for each in layer.parameters()} == {torch.float32}
    assert tilewise.torch is tw


def test_plain_tensors_are_seen_through_at_once(
    torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their calls cost the host less: the question that costs more is asked of others."""
    module = sys.modules["tilewise.torch.linear"]
    asked: list[Any] = []

    def watched(*tensors: Any) -> Any:
        asked.append(tensors)
        return dispatched.route(*tensors)

    monkeypatch.setattr(module, "route", watched)
    x, w, bias = torch.randn(2, 4), torch.nn.Parameter(torch.randn(3, 4)), torch.randn(3)
    for is_recorded in (True, False):
        with torch.set_grad_enabled(is_recorded):
            for each in (None, bias, torch.nn.Parameter(bias)):
                found = tw.linear(x, w, each)
                assert found.requires_grad is is_recorded
                c = None if each is None else each.detach().expand(2, 3)
                assert_tensors_right(found.detach(), x, w.detach().mT, 1, int(c is not None), c)
    assert not tw.linear(x, w.detach(), bias).requires_grad
    assert tw.linear(x, w.detach(), bias.requires_grad_()).requires_grad
    assert asked == []

    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    with torch.autocast("cpu", torch.bfloat16):
        assert tw.linear(x, w).dtype == torch.bfloat16
    assert type(tw.linear(x.as_subclass(Own), w)) is Own
    assert len(asked) == 1
