"""Products with an epilogue in PyTorch's dispatcher: graphs, fakes, autocast, the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aot_graphs import recording
from reference import thorough

import tilewise
from tilewise.epilogue import Epilogue, trace
from tilewise.epilogue.written import written

BIASED = Epilogue(lambda acc, bias: tilewise.gelu(acc + bias))


def gated(gate: Any, up: Any) -> Any:
    return tilewise.silu(gate) * up


def by_lambda(x: Any, w: Any, bias: Any) -> Any:
    slope = 0.1
    return tilewise.matmul(
        x, w, transpose_b=True,
        epilogue=lambda acc, bias, by: tilewise.leaky_relu(acc + bias, slope) * by, bias=bias, by=2,
    )  # fmt: skip


def by_object(x: Any, w: Any, bias: Any) -> Any:
    return tilewise.matmul(x, w, transpose_b=True, epilogue=BIASED, bias=bias)


def of_several(x: Any, w: Any, bias: Any) -> Any:
    y, before = tilewise.matmul(
        x, w, transpose_b=True, epilogue=lambda acc, bias: (tilewise.silu(acc + bias), acc + bias),
        bias=bias,
    )  # fmt: skip
    return y + 0.5 * before


def of_pairs(x: Any, w: Any, bias: Any) -> Any:
    return tilewise.matmul(x, (w, w + 1), transpose_b=True, epilogue=gated) + bias


def of_halves(x: Any, w: Any, bias: Any) -> Any:
    b = w.repeat(2, 1)
    return tilewise.matmul(x, b, transpose_b=True, epilogue=gated, pairs="halves") + bias


def with_c(x: Any, w: Any, bias: Any) -> Any:
    c = bias.expand(6, 5).contiguous()
    return tilewise.matmul(
        x, w, c, transpose_b=True, alpha=0.5, beta=2, epilogue=lambda acc: tilewise.tanh(acc)
    )


EVERY = [by_lambda, by_object, of_several, of_pairs, of_halves, with_c]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=thorough)])
@pytest.mark.parametrize("function", EVERY)
def test_in_one_graph(torch: Any, tw: Any, function: Callable[..., Any], backend: str) -> None:
    """Forward and backward, without a break, as in eager mode."""
    given = torch.randn(6, 4), torch.randn(5, 4), torch.randn(5)
    kept = [x.clone().requires_grad_() for x in given]
    plain = [x.clone().requires_grad_() for x in given]
    found = torch.compile(function, fullgraph=True, backend=backend)(*kept)
    found.square().sum().backward()
    wanted = function(*plain)
    wanted.square().sum().backward()
    torch.testing.assert_close(found, wanted)
    for ours, eager in zip(kept, plain, strict=True):
        torch.testing.assert_close(ours.grad, eager.grad)
    with torch.no_grad():
        inference = torch.compile(function, fullgraph=True, backend=backend)(*given)
    torch.testing.assert_close(inference, wanted.detach())


def test_what_the_graph_calls(torch: Any, tw: Any) -> None:
    """One product forward, which stores one matrix besides, and two backward."""
    backend, graphs = recording()
    leaves = [torch.randn(*x, requires_grad=True) for x in ((6, 4), (5, 4), (5,))]
    torch.compile(by_object, fullgraph=True, backend=backend)(*leaves).sum().backward()
    forward, backward = graphs
    assert forward.count("tilewise.fused_matmul.default") == 1
    assert not any("gelu" in x or "erf" in x for x in forward)
    assert backward.count("tilewise.matmul.default") == 2
    assert any("erf" in x for x in backward)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("compiles", [False, True])
def test_as_many_operands_as_there_may_be(torch: Any, tw: Any, pairs: bool, compiles: bool) -> None:
    """What training stores would be a ninth array: then PyTorch's functions compute."""
    kinds = {f"x{i}": torch.randn(5, requires_grad=True) for i in range(8)}

    def whole(
        acc: Any, x0: Any, x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, x6: Any, x7: Any
    ) -> Any:
        return tilewise.silu(acc + x0) * (x1 + x2 * x3 + x4 * x5 + x6 * x7)

    def of_two(
        gate: Any, up: Any, x0: Any, x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, x6: Any, x7: Any
    ) -> Any:
        return whole(gate, x0, x1, x2, x3, x4, x5, x6, x7) * up

    def function(x: Any, w: Any) -> Any:
        return tilewise.matmul(
            x, (w, w + 1) if pairs else w, epilogue=of_two if pairs else whole, alpha=0.5, **kinds
        )

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    call = torch.compile(function, fullgraph=True, backend="aot_eager") if compiles else function
    y = call(x, w)
    leaves = [x, w, *kinds.values()]
    found = torch.autograd.grad(y.sum(), leaves)
    s = [v.detach().requires_grad_() for v in leaves]
    acc, rest = 0.5 * s[0] @ s[1], s[2:]
    wanted = torch.nn.functional.silu(acc + rest[0])
    wanted = wanted * (rest[1] + rest[2] * rest[3] + rest[4] * rest[5] + rest[6] * rest[7])
    wanted = wanted * (0.5 * s[0] @ (s[1] + 1)) if pairs else wanted
    torch.testing.assert_close(y, wanted)
    for ours, theirs in zip(found, torch.autograd.grad(wanted.sum(), s), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_number_may_change(torch: Any, tw: Any) -> None:
    def function(x: Any, by: float) -> Any:
        return tilewise.matmul(x, x, epilogue=lambda acc, by: acc * by, by=by)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 4)
    for by in (1.5, 2.5, -3.5):
        torch.testing.assert_close(compiled(x, by), x @ x * by)


def test_sizes_may_change_without_a_new_graph(torch: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(by_object, fullgraph=True, backend=counter, dynamic=True)
    w, bias = torch.randn(5, 4, requires_grad=True), torch.randn(5, requires_grad=True)
    for rows in (3, 7, 12):
        x = torch.randn(2, rows, 4, requires_grad=True)
        found = compiled(x, w, bias)
        found.sum().backward()
        torch.testing.assert_close(found, torch.nn.functional.gelu(x @ w.mT + bias))
    assert counter.frame_count == 1


@pytest.mark.parametrize("how", ["graph", "eager"])
def test_autocast(torch: Any, tw: Any, how: str) -> None:
    def function(x: Any, w: Any, bias: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return by_object(x, w, bias)

    x, w, bias = torch.randn(6, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
    call = function
    if how == "graph":
        call = torch.compile(function, fullgraph=True, backend="aot_eager")
    found = call(x, w, bias)
    found.sum().backward()
    assert found.dtype == torch.bfloat16
    assert w.grad.dtype == torch.float32
    wanted = by_object(x.bfloat16(), w.detach().bfloat16(), bias)
    assert torch.equal(found, wanted)
    double = call(x.double(), w.double(), bias.double())
    assert double.dtype == torch.float64


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("wanted", [[], [0], [0, 1]])
def test_pytorchs_own_check(torch: Any, tw: Any, dtype: str, wanted: list[int]) -> None:
    kind = getattr(torch, dtype)
    a, b, bias = (torch.randn(x).to(kind) for x in ((2, 3, 4), (4, 5), (5,)))
    if wanted:
        a.requires_grad_()
        b.requires_grad_()
    bias.requires_grad_(1 in wanted)
    text = written(trace(lambda acc, bias, by: tilewise.gelu(acc + bias) * by, ("bias", "by")))
    found = torch.library.opcheck(
        torch.ops.tilewise.fused_matmul.default, (a, [b], None, [bias], text),
        {"wanted": wanted, "places": [1], "numbers": [2.0]},
    )  # fmt: skip
    assert set(found.values()) == {"SUCCESS"}


def test_pytorchs_own_check_of_pairs(torch: Any, tw: Any) -> None:
    text = written(trace(gated, (), pairs=True))
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 6, requires_grad=True)
    for of_b, pairs in (([b, b.detach().clone()], "apart"), ([b], "halves"), ([b], "interleaved")):
        found = torch.library.opcheck(
            torch.ops.tilewise.fused_matmul.default, (a, of_b, None, [], text),
            {"wanted": [0, 1], "places": [], "numbers": [], "pairs": pairs},
        )  # fmt: skip
        assert set(found.values()) == {"SUCCESS"}


def test_operations_are_counted(torch: Any, tw: Any) -> None:
    leaves = [torch.randn(*x, requires_grad=True) for x in ((6, 4), (5, 4), (5,))]
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        by_object(*leaves).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 6 * 5 * 4


def test_what_is_wrong(torch: Any, tw: Any) -> None:
    """What can't be traced ends the compilation with its own words; shapes and places too."""
    a, b = torch.randn(3, 4), torch.randn(4, 5)

    def conditional(a: Any, b: Any) -> Any:
        return tilewise.matmul(a, b, epilogue=lambda acc: acc if acc > 0 else -acc)

    with pytest.raises(Exception, match="ask whether a value is true"):
        torch.compile(conditional, fullgraph=True, backend="eager")(a, b)

    def wrong(a: Any, b: Any) -> Any:
        return tilewise.matmul(a, b, epilogue=lambda acc, x: acc + x, x=a)

    with pytest.raises(Exception, match="does not broadcast to the result"):
        torch.compile(wrong, fullgraph=True, backend="eager")(a, b)
    text = written(trace(lambda acc: acc * acc, ()))
    call = torch.ops.tilewise.fused_matmul
    none: dict[str, Any] = {"places": [], "numbers": []}
    with pytest.raises(ValueError, match=r"derivatives \[0\] are needed"):
        call(a.requires_grad_(), [b], None, [], text, wanted=[], **none)
    with pytest.raises(ValueError, match="is not the text of an epilogue"):
        call(a.detach(), [b], None, [], "gelu", wanted=[], **none)
