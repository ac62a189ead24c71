"""Transformations of ``torch.func`` and forward-mode differentiation, in graphs and outside."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tilewise

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")


def functions(torch: Any, tw: Any) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Return functions of X, (3, 4), in pairs: by tilewise, and by PyTorch alone."""
    nn = torch.nn.functional
    w, w2, down = (torch.randn(shape).double() for shape in ((4, 5), (4, 5), (6, 5)))
    bias, last = torch.randn(5).double(), torch.randn(6).double()
    experts, offsets = torch.stack([w, w2]), torch.tensor([1, 3])
    columns = torch.tensor([1, 4])

    def of_columns(x: Any) -> Any:
        return torch.stack([x[:, :1] @ w[:1], x[:, 1:] @ w[1:]])

    return {
        "matmul": (
            lambda x: tw.matmul(x, w, x @ w, alpha=2, beta=3), lambda x: 5 * (x @ w),
        ),
        "linear": (lambda x: tw.linear(x, w.mT, bias), lambda x: x @ w + bias),
        "epilogue": (
            lambda x: tw.matmul(x, w, epilogue=lambda acc, y: tilewise.gelu(acc) * y, y=bias),
            lambda x: nn.gelu(x @ w) * bias,
        ),
        "pairs": (
            lambda x: tw.matmul(x, (w, w2), epilogue=lambda gate, up: tilewise.silu(gate) * up),
            lambda x: nn.silu(x @ w) * (x @ w2),
        ),
        "mlp": (
            lambda x: tw.mlp(
                x, (w.mT, w2.mT), down, activation="gelu", bias=(bias, bias), down_bias=last
            ),
            lambda x: (nn.gelu(x @ w + bias) * (x @ w2 + bias)) @ down.mT + last,
        ),
        "grouped": (
            lambda x: tw.grouped_matmul(x, experts, offsets),
            lambda x: torch.cat([x[:1] @ w, x[1:] @ w2]),
        ),
        "grouped with an epilogue": (
            lambda x: tw.grouped_matmul(
                x, experts, offsets, epilogue=lambda acc, y: tilewise.tanh(acc + y), y=bias
            ),
            lambda x: torch.tanh(torch.cat([x[:1] @ w, x[1:] @ w2]) + bias),
        ),
        "groups of columns": (lambda x: tw.grouped_matmul(x, w, columns), of_columns),
    }  # fmt: skip


NAMES = [
    "matmul", "linear", "epilogue", "pairs", "mlp", "grouped", "grouped with an epilogue",
    "groups of columns",
]  # fmt: skip
IN_A_GRAPH = [name for name in NAMES if name != "grouped with an epilogue"]  # it ends a graph
WAYS = ["vmap", "grad", "jacrev", "jacfwd", "hessian"]


def transformed(torch: Any, way: str, function: Callable[..., Any]) -> Callable[..., Any]:
    func = torch.func

    def of_sum(x: Any) -> Any:
        return function(x).square().sum()

    made: Callable[..., Any] = {
        "vmap": lambda: func.vmap(function, in_dims=1),
        "grad": lambda: func.grad(of_sum),
        "jacrev": lambda: func.jacrev(function),
        "jacfwd": lambda: func.jacfwd(function),
        "hessian": lambda: func.hessian(of_sum),
    }[way]()
    return made


def argument(torch: Any, way: str) -> Any:
    return torch.randn((3, 2, 4) if way == "vmap" else (3, 4), dtype=torch.float64)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_transformed(torch: Any, tw: Any, name: str, way: str) -> None:
    ours, theirs = functions(torch, tw)[name]
    x = argument(torch, way)
    found, wanted = (transformed(torch, way, each)(x) for each in (ours, theirs))
    torch.testing.assert_close(found, wanted)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", IN_A_GRAPH)
def test_transformed_in_a_graph(torch: Any, tw: Any, name: str, way: str) -> None:
    """A graph calls the operators within the transformation."""
    ours, theirs = functions(torch, tw)[name]
    x = argument(torch, way)
    compiled = torch.compile(transformed(torch, way, ours), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), transformed(torch, way, theirs)(x))


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_forward_mode(torch: Any, tw: Any, name: str, compiles: bool) -> None:
    """Dual tensors, without ``torch.func``; in a graph that is made of functions of them, too."""
    ahead = torch.autograd.forward_ad
    x, change = argument(torch, "jvp"), argument(torch, "jvp")
    ours, theirs = functions(torch, tw)[name]
    if compiles:
        ours = torch.compile(ours, backend="eager")
    found = []
    for function in (ours, theirs):
        with ahead.dual_level():
            found.append(ahead.unpack_dual(function(ahead.make_dual(x, change))).tangent)
    torch.testing.assert_close(*found)


def test_a_group_sees_no_other_rows(torch: Any, tw: Any) -> None:
    """A NaN in one group's rows or matrix stays there."""
    x, w = torch.ones(3, 2), torch.ones(2, 2, 4)
    x[0], w[0] = torch.nan, torch.inf
    y = torch.func.vmap(lambda x: tw.grouped_matmul(x, w, torch.tensor([1, 3])))(x[None])[0]
    assert y[0].isnan().all()
    torch.testing.assert_close(y[1:], torch.full((2, 4), 2.0))


def test_ends_that_decrease(torch: Any, tw: Any) -> None:
    """An end less than the one before it counts as that one, as in the kernels."""
    x, experts = torch.randn(4, 2), torch.randn(3, 2, 4)
    w, ends = torch.randn(4, 5), torch.tensor([3, 1, 4])

    def product(x: Any, w: Any) -> Any:
        return torch.func.vmap(lambda x: tw.grouped_matmul(x, w, ends))(x[None])[0]

    wanted = torch.cat([x[:3] @ experts[0], x[3:] @ experts[2]])
    torch.testing.assert_close(product(x, experts), wanted)
    of_columns = [x.mT[:, part] @ w[part] for part in (slice(3), slice(0), slice(3, 4))]
    torch.testing.assert_close(product(x.mT, w), torch.stack(of_columns))

    def biased(x: Any) -> Any:
        return tw.grouped_matmul(
            x, experts, ends, epilogue=lambda acc, bias: acc + bias, bias=biases
        )

    biases = torch.tensor([100.0, 200.0, 300.0]).reshape(3, 1, 1)
    wanted += torch.tensor([100.0, 100.0, 100.0, 300.0])[:, None]
    torch.testing.assert_close(torch.func.vmap(biased)(x[None])[0], wanted)


@pytest.mark.parametrize("of_rows", [False, True])
def test_groups_take_memory_one_after_another(
    torch: Any, tw: Any, of_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are not as many copies of X as groups at once."""
    x, count, where = torch.ones(2, 2), 16, torch.where
    w = torch.ones(count, 2, 2) if of_rows else x
    made: list[Any] = []
    alive: list[int] = []

    def noted(*given: Any) -> Any:
        found = where(*given)
        made.append(weakref.ref(found))
        alive.append(sum(each() is not None for each in made))
        return found

    monkeypatch.setattr(torch, "where", noted)
    torch.func.vmap(lambda x: tw.grouped_matmul(x, w, torch.full((count,), 2)))(x[None])
    assert len(made) == 2 * count
    assert max(alive) <= 4


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("gated", [False, True])
def test_backward_of_an_mlp_in_forward_mode(
    torch: Any, tw: Any, gated: bool, lead: tuple[int, ...]
) -> None:
    """Gradients of a graph that was recorded before, and where there is one, their tangent."""
    ahead, nn = torch.autograd.forward_ad, torch.nn.functional
    leaves = [torch.randn(shape).double() for shape in ((*lead, 4), (5, 4), (5, 4), (6, 5))]
    x, gate, up, down = (each.requires_grad_() for each in leaves)

    def ours(x: Any) -> Any:
        return tw.mlp(x, (gate, up) if gated else gate, down, activation="gelu")

    def theirs(x: Any) -> Any:
        return (nn.gelu(x @ gate.mT) * (x @ up.mT if gated else 1)) @ down.mT

    tensors = [x, gate, *([up] if gated else []), down]
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    y, wanted = compiled(x), theirs(x)
    g, change = torch.randn_like(y), torch.randn_like(y)
    with ahead.dual_level():
        for given in (g, ahead.make_dual(g, change)):
            found = [torch.autograd.grad(each, tensors, given, retain_graph=True)
                     for each in (y, wanted)]  # fmt: skip
            for own, other in zip(*found, strict=True):
                for each in zip(ahead.unpack_dual(own), ahead.unpack_dual(other), strict=True):
                    torch.testing.assert_close(*each)


def test_under_autocast_in_a_transformation(torch: Any, tw: Any) -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    offsets = torch.tensor([1, 3])
    tried: list[Callable[[Any], Any]] = [
        lambda x: tw.matmul(x, w),
        lambda x: tw.linear(x, w.mT),
        lambda x: tw.grouped_matmul(x, torch.stack([w, w]), offsets),
        lambda x: tw.matmul(x, w, epilogue=lambda acc: tilewise.relu(acc)),
    ]
    for function in tried:
        compiled = torch.compile(torch.func.vmap(function), backend="aot_eager")
        with torch.autocast("cpu", torch.bfloat16):
            kinds = {
                function(x).dtype, torch.func.vmap(function)(x[None]).dtype, compiled(x[None]).dtype
            }  # fmt: skip
        assert kinds == {torch.bfloat16}


@pytest.mark.parametrize("grouped", [False, True])
def test_out_is_refused(torch: Any, tw: Any, grouped: bool) -> None:
    """A transformation does not see that ``out`` is written, and a tangent would be lost."""
    x, w, out = torch.ones(3, 4), torch.ones(4, 5), torch.zeros(3, 5)

    def product(x: Any) -> Any:
        if grouped:
            return tw.grouped_matmul(x, w[None], torch.tensor([3]), out=out)
        return tw.matmul(x, w, out=out)

    with pytest.raises(ValueError, match="leave out out="):
        torch.func.vmap(product)(x[None])
    ahead = torch.autograd.forward_ad
    with ahead.dual_level(), pytest.raises(ValueError, match="leave out out="):
        product(ahead.make_dual(x, x))
    assert not out.any()
