"""The operators of layers in graphs, and of their gradients: values, checks, repeated launches.

With the fake GPU, values are small whole numbers, so that every sum is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from aot_graphs import recording
from computing_gpu import FRONT_DOOR, ComputingGpu, computing_gpu  # noqa: F401

from tilewise.arrays import repeat
from tilewise.epilogue.derivative import trained
from tilewise.epilogue.written import read, written

pytest.importorskip("torch", reason="the operators are PyTorch's")

from tilewise.torch.activations import epilogue_of


def whole(torch: Any, *shape: int, dtype: str = "float32", by_columns: bool = False) -> Any:
    """Small whole numbers."""
    found = torch.randint(-2, 3, shape).to(getattr(torch, dtype))
    return found.mT.contiguous().mT if by_columns else found


def relu_backward(torch: Any, gated: bool = False) -> str:
    """The text by which the gradient of hidden values becomes that of the sums."""
    return written(trained(epilogue_of("relu", 1 + gated, False), (0, 1)[: 1 + gated])
                   .backward((0,)).function)  # fmt: skip


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
@pytest.mark.parametrize("by_columns", [False, True])
def test_pytorchs_own_check(
    torch: Any, tw: Any, leading: tuple[int, ...], has_bias: bool, by_columns: bool
) -> None:
    for dtype, needs in (("float32", True), ("bfloat16", False), ("float64", True)):
        x, w = whole(torch, *leading, 4, dtype=dtype), whole(torch, 5, 4, dtype=dtype)
        w = w.mT.contiguous().mT if by_columns else w
        bias, g = whole(torch, 5, dtype=dtype), whole(torch, *leading, 5, dtype=dtype)
        for each in (x, w, bias, g):
            each.requires_grad_(needs)
        operators = torch.ops.tilewise
        for operator, given in (
            (operators.linear, (x, w, bias if has_bias else None)),
            (operators.linear_backward, (g, x, w)),
        ):
            found = torch.library.opcheck(operator.default, given)
            assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("by_columns", [False, True])
def test_pytorchs_own_check_of_an_mlps_gradients(
    torch: Any, tw: Any, gated: bool, by_columns: bool
) -> None:
    text = relu_backward(torch, gated)
    for dtype in ("float32", "bfloat16"):
        x, g = whole(torch, 2, 3, 4, dtype=dtype), whole(torch, 2, 3, 5, dtype=dtype)
        kinds: dict[str, Any] = {"dtype": dtype, "by_columns": by_columns}
        weights = [whole(torch, 6, 4, **kinds) for _ in range(1 + gated)]
        hidden, down = whole(torch, 2, 3, 6, dtype=dtype), whole(torch, 5, 6, **kinds)
        operands = [whole(torch, 2, 3, 6, dtype=dtype) for _ in read(text).operands]
        found = torch.library.opcheck(
            torch.ops.tilewise.mlp_backward.default,
            (g, x, weights, down, hidden, operands, text),
        )  # fmt: skip
        assert set(found.values()) == {"SUCCESS"}


def gradients(torch: Any, function: Callable[..., Any], leaves: Any) -> list[Any]:
    for each in leaves:
        each.grad = None
    result = function(*leaves)
    result.backward(torch.ones_like(result))
    return [result.detach(), *(each.grad for each in leaves)]


@pytest.mark.parametrize("needed", [(0, 1, 2), (0, 1), (1, 2), (0,), (2,)])
def test_the_graphs_of_a_layer(torch: Any, tw: Any, needed: tuple[int, ...]) -> None:
    """One operator a pass, if both gradients are needed; the sums are left to the backend."""
    leaves = [whole(torch, *shape) for shape in ((2, 3, 4), (5, 4), (5,))]
    for i in needed:
        leaves[i].requires_grad_()
    backend, graphs = recording()
    compiled = torch.compile(tw.linear, fullgraph=True, backend=backend)
    result = compiled(*leaves)
    result.sum().backward()
    found = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    wanted = torch.nn.functional.linear(*leaves)
    wanted.sum().backward()
    assert torch.equal(result, wanted)
    for leaf, grad in zip(leaves, found, strict=True):
        assert leaf.grad is None if grad is None else torch.equal(grad, leaf.grad)
    forward, backward = ([x for x in graph if "tilewise" in x] for graph in graphs)
    assert forward == ["tilewise.linear.default"]
    one = {(0,): ["tilewise.matmul.default"], (1, 2): ["tilewise.matmul.default"], (2,): []}
    assert backward == one.get(needed, ["tilewise.linear_backward.default"])
    assert sum("sum" in x for x in graphs[1]) == (2 in needed)


@pytest.mark.parametrize("function", ["linear", "mlp"])
def test_sizes_may_change_without_a_new_graph(torch: Any, tw: Any, function: str) -> None:
    backend, graphs = recording()
    w, down = (torch.randn(*x, requires_grad=True) for x in ((6, 4), (5, 6)))

    def layer(x: Any) -> Any:
        return tw.linear(x, w) if function == "linear" else tw.mlp(x, w, down, activation="silu")

    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=True)
    for rows in (3, 7, 5):
        leaves = [torch.randn(2, rows, 4, requires_grad=True), w, down][: 2 + (function == "mlp")]
        for found, wanted in zip(
            gradients(torch, lambda x, *_: compiled(x), leaves),
            gradients(torch, lambda x, *_: layer(x), leaves),
            strict=True,
        ):
            torch.testing.assert_close(found, wanted)
    assert len(graphs) == 2


def test_autocast_in_a_graph(torch: Any, tw: Any) -> None:
    """X and the weight are cast, the bias is not; gradients have the dtypes of the leaves."""
    leaves = [torch.randn(*x, requires_grad=True) for x in ((3, 4), (5, 4), (5,))]

    def layer(*given: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return tw.linear(*given)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, wanted = gradients(torch, compiled, leaves), gradients(torch, layer, leaves)
    assert found[0].dtype == torch.bfloat16
    for ours, eager in zip(found, wanted, strict=True):
        assert ours.dtype == eager.dtype
        assert torch.equal(ours, eager)


def test_second_derivatives(torch: Any, tw: Any) -> None:
    """Autograd records the products of gradients, for the operator of the gradients too."""
    leaves = [
        torch.randn(*x, dtype=torch.float64, requires_grad=True) for x in ((3, 4), (5, 4), (5,))
    ]
    assert torch.autograd.gradgradcheck(torch.ops.tilewise.linear, leaves)
    g = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.ops.tilewise.linear_backward, (g, *leaves[:2]))


def test_operations_are_counted(torch: Any, tw: Any) -> None:
    x, w, g = (torch.randn(*x, requires_grad=True) for x in ((6, 4), (5, 4), (6, 5)))
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        torch.ops.tilewise.linear(x, w, None).backward(g)
    assert counter.get_total_flops() == 3 * 2 * 6 * 5 * 4


def test_what_is_wrong(torch: Any, tw: Any) -> None:
    x, w, operators = torch.ones(3, 4), torch.ones(5, 4), torch.ops.tilewise
    for _ in range(3):
        for place in ("cpu", "meta"):
            a, b = x.to(place), w.to(place)
            with pytest.raises(ValueError, match=r"bias has shape \(4,\)"):
                operators.linear(a, b, a[0])
            with pytest.raises(ValueError, match=r"has 3 features .* takes 4"):
                operators.linear(a[:, :3], b, None)
            with pytest.raises(ValueError, match="a linear layer's is"):
                operators.linear(a, b[None], None)
            with pytest.raises(ValueError, match="g has shape"):
                operators.linear_backward(a, a, b)
            with pytest.raises(ValueError, match="hidden has shape"):
                operators.mlp_backward(
                    a.new_ones(3, 6), a, [b], b.new_ones(6, 5), a, [], relu_backward(torch)
                )
    leaf = x.clone().requires_grad_()
    hidden, text = torch.ones(3, 5), relu_backward(torch)
    operands = [hidden for _ in read(text).operands]
    with pytest.raises(NotImplementedError, match="has no gradient"):
        operators.mlp_backward(
            torch.ones(3, 6), leaf, [w], torch.ones(6, 5), hidden, operands, text
        )


class Case:
    """A call of layers of one of a few kinds, with values of its own."""

    def __init__(self, torch: Any, rng: np.random.Generator) -> None:
        dtype = "float32" if rng.random() < 0.8 else "float64"
        k, h, n = (int(x) for x in rng.integers(3, 5, 3))
        turned = bool(rng.random() < 0.2)
        self.gated, lead = bool(rng.random() < 0.5), (2,) * int(rng.integers(3))
        self.x = whole(torch, *lead, k, dtype=dtype)
        self.weights = [whole(torch, h, k, dtype=dtype, by_columns=turned)
                        for _ in range(1 + self.gated)]  # fmt: skip
        self.biases = [whole(torch, h, dtype=dtype) for _ in self.weights]
        self.down, self.last = whole(torch, n, h, dtype=dtype), whole(torch, n, dtype=dtype)
        if rng.random() < 0.2:  # at an odd address
            at = self.x.new_empty(self.x.numel() + 1)[1:].view(self.x.shape)
            self.x = at.copy_(self.x)

    def leaves(self) -> list[Any]:
        every = [self.x, *self.weights, *self.biases, self.down, self.last]
        return [each.detach().requires_grad_() for each in every]

    def ours(self, torch: Any, *leaves: Any) -> Any:
        """By the operators alone, as a graph calls them."""
        x, *rest = leaves
        count = len(self.weights)
        weights, biases, (down, last) = rest[:count], rest[count:-2], rest[-2:]
        operators, text = torch.ops.tilewise, written(epilogue_of("relu", count, True))
        found = operators.mlp(x, weights, biases, down, last, text, [*range(count)], True)[0]
        return found, operators.linear(x, weights[0], biases[0])

    def theirs(self, torch: Any, *leaves: Any) -> Any:
        x, *rest = leaves
        count, linear = len(self.weights), torch.nn.functional.linear
        weights, biases, (down, last) = rest[:count], rest[count:-2], rest[-2:]
        sums = [linear(x, w, b) for w, b in zip(weights, biases, strict=True)]
        hidden = torch.relu(sums[0])
        if self.gated:
            hidden = hidden * sums[1]
        return linear(hidden, down, last), sums[0]


def test_calls_of_many_kinds(
    torch: Any,
    tw: Any,
    computing_gpu: ComputingGpu,  # noqa: F811
) -> None:
    """Whatever was called before, a call's results and gradients are PyTorch's.

    The operators of the gradients are called as in a graph: not by autograd.
    """
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    cases = [Case(torch, rng) for _ in range(12)]
    for turn in range(60):
        case = cases[int(rng.integers(len(cases)))]
        for each in (case.x, *case.weights, *case.biases, case.down, case.last):
            each.copy_(torch.randint(-2, 3, each.shape))
        if turn % 20 == 19:
            repeat.forget()
        for _ in range(int(rng.integers(1, 4))):
            leaves = case.leaves()
            found, wanted = case.ours(torch, *leaves), case.theirs(torch, *leaves)
            for ours, theirs in zip(found, wanted, strict=True):
                assert torch.equal(ours, theirs)
            g = [whole(torch, *each.shape).to(each.dtype) for each in wanted]
            with torch.no_grad():
                x, weights = leaves[0].detach(), [w.detach() for w in case.weights]
                of_x, of_w = torch.ops.tilewise.linear_backward(g[1], x, weights[0])
            leaf_of_w = leaves[1]
            for ours, theirs in zip(
                (of_x, of_w), torch.autograd.grad(wanted[1], (leaves[0], leaf_of_w), g[1],
                                                  retain_graph=True), strict=True
            ):  # fmt: skip
                assert torch.equal(ours, theirs)
                assert ours.stride() == (of_x if ours is of_x else weights[0]).stride()
            ways = [
                torch.autograd.grad(each[0], leaves, g[0], retain_graph=True)
                for each in (found, wanted)
            ]
            for ours, theirs in zip(*ways, strict=True):
                assert torch.equal(ours, theirs)
            assert_mlp_backward(torch, case, leaves, g[0], ways[1])


def assert_mlp_backward(torch: Any, case: Case, leaves: Any, g: Any, wanted: Any) -> None:
    """The operator's gradients are those that autograd found."""
    count = len(case.weights)
    function = epilogue_of("relu", count, True)
    made = trained(function, tuple(range(count)))
    x, *rest = (each.detach() for each in leaves)
    weights, biases, (down, last) = rest[:count], rest[count:-2], rest[-2:]
    with torch.no_grad():
        _, *kept = torch.ops.tilewise.mlp(
            x, weights, biases, down, last, written(function), [*range(count)], True
        )
        backward, names = made.backward((0,))
        of_x, of_down, *others = torch.ops.tilewise.mlp_backward(
            g, x, weights, down, kept[0], [kept[i] for _, i in names], written(backward)
        )
    found = [of_x, *others[:count], of_down]
    for ours, theirs in zip(found, (*wanted[: 1 + count], wanted[-2]), strict=True):
        assert torch.equal(ours, theirs)
    for sums, theirs in zip(others[count:], wanted[1 + count : 1 + 2 * count], strict=True):
        assert torch.equal(sums.reshape(-1, sums.shape[-1]).sum(0), theirs)


def test_a_call_like_an_earlier_one_is_not_planned(
    torch: Any,
    tw: Any,
    computing_gpu: ComputingGpu,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers of the same shapes share the cached call, whatever their weights."""
    function = epilogue_of("relu", 1, True)
    texts = written(function), relu_backward(torch)
    operators = torch.ops.tilewise

    def call() -> list[Any]:
        x, w, bias = whole(torch, 2, 4), whole(torch, 8, 4), whole(torch, 8)
        down, g = whole(torch, 4, 8), whole(torch, 2, 4)
        result = operators.linear(x, w, bias)
        of_x, of_w = operators.linear_backward(result, x, w)
        y, hidden, *_ = operators.mlp(x, [w], [bias], down, None, texts[0], [0], True)
        wanted_hidden = torch.relu(x @ w.mT + bias)
        others: list[Any] = operators.mlp_backward(g, x, [w], down, hidden, [hidden], texts[1])
        of_sums = (g @ down) * (wanted_hidden > 0)
        wanted = [
            x @ w.mT + bias, result @ w, result.mT @ x, wanted_hidden @ down.mT, of_sums @ w,
            g.mT @ wanted_hidden, of_sums.mT @ x, of_sums,
        ]  # fmt: skip
        for ours, theirs in zip((result, of_x, of_w, y, *others), wanted, strict=True):
            assert torch.equal(ours, theirs)
        return others

    call()
    call()

    def planned(*_: Any) -> Any:
        raise AssertionError("a call is planned")

    monkeypatch.setattr(FRONT_DOOR, "plan_product", planned)
    monkeypatch.setattr("tilewise.torch.call_cache.look", planned)
    monkeypatch.setattr(repeat, "look", planned)
    for _ in range(3):
        call()


@pytest.mark.usefixtures("computing_gpu")
def test_a_bias_of_another_dtype_is_refused_after_the_operator_took_it(torch: Any, tw: Any) -> None:
    """In a graph under autocast a bias may have another dtype; outside of both it may not."""
    x, w = whole(torch, 3, 4, dtype="bfloat16"), whole(torch, 5, 4, dtype="bfloat16")
    bias = whole(torch, 5)
    for _ in range(3):
        torch.ops.tilewise.linear(x, w, bias)
    with pytest.raises(TypeError, match="bias"):
        tw.linear(x, w, bias)
