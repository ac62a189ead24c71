"""``tilewise::matmul`` in PyTorch's dispatcher: graphs, fakes, autocast, errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matmul_reference import assert_tensors_right
from reference import thorough

import tilewise
from tilewise.arrays.dispatched import Route, route

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("of_a", "of_b", "dtype", "scalars"),
    [
        ((3, 4), (4, 5), "float32", {}),
        ((2, 3, 4), (4, 5), "bfloat16", {}),
        ((4,), (2, 4, 5), "float64", {"alpha": 2.0}),
        ((3, 4), (4, 5), "float32", {"alpha": 2.0, "beta": 0.5}),
    ],
)
def test_pytorchs_own_check(
    torch: Any, tw: Any, of_a: Any, of_b: Any, dtype: str, scalars: dict[str, float]
) -> None:
    kind = getattr(torch, dtype)
    a, b = (torch.randn(shape).to(kind).requires_grad_() for shape in (of_a, of_b))
    c = (torch.randn(3, 5).to(kind).requires_grad_(),) if "beta" in scalars else ()
    found = torch.library.opcheck(torch.ops.tilewise.matmul.default, (a, b, *c), scalars)
    assert set(found.values()) == {"SUCCESS"}


def backends() -> list[Any]:
    return ["aot_eager", pytest.param("inductor", marks=thorough)]


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("name", ["tilewise.torch", "tilewise"])
def test_in_one_graph(torch: Any, tw: Any, backend: str, name: str) -> None:
    matmul = tw.matmul if name == "tilewise.torch" else tilewise.matmul

    def loss(x: Any, w: Any, c: Any) -> Any:
        hidden = matmul(x, w, transpose_b=True).relu()
        return (matmul(hidden, w, c, alpha=2, beta=0.5, out_dtype="float32") ** 2).sum()

    x, w, c = torch.randn(6, 4), torch.randn(4, 4), torch.randn(6, 4)
    kept = [each.clone().requires_grad_() for each in (x, w, c)]
    plain = [each.clone().requires_grad_() for each in (x, w, c)]
    try:
        found = torch.compile(loss, fullgraph=True, backend=backend)(*kept)
    except Exception as error:
        if backend == "inductor" and "compiler" in str(error).lower():
            pytest.skip(f"inductor has no C++ compiler here: {str(error)[:100]}")
        raise
    found.backward()
    loss(*plain).backward()
    torch.testing.assert_close(found, loss(*plain))
    for ours, eager in zip(kept, plain, strict=True):
        torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.usefixtures("torch")
def test_the_first_call_may_be_in_a_graph() -> None:
    """In a new process, where nobody imported ``tilewise.torch`` before."""
    program = (
        "import torch, tilewise\n"
        "f = torch.compile(lambda a: tilewise.matmul(a, a), fullgraph=True, backend='aot_eager')\n"
        "assert torch.equal(f(torch.eye(3)), torch.eye(3))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_sizes_may_change_without_a_new_graph(torch: Any) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    product = torch.compile(tilewise.matmul, fullgraph=True, backend=counter, dynamic=True)
    w = torch.randn(4, 5)
    for rows in (3, 7, 12):
        x = torch.randn(2, rows, 4)
        torch.testing.assert_close(product(x, w), x @ w)
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", ["out", "device"])
def test_what_ends_a_graph(torch: Any, tw: Any, name: str) -> None:
    def product(x: Any, option: Any) -> Any:
        return 2 * tilewise.matmul(x.relu(), x, **{name: option})

    x = torch.randn(4, 4)
    option = torch.empty(4, 4) if name == "out" else "emulator"
    found = torch.compile(product, backend="eager")(x, option)
    assert_tensors_right(found / 2, x.relu(), x)
    if name == "out":
        assert torch.equal(2 * option, found)
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(product, backend="eager", fullgraph=True)(x, option)


def test_a_graph_has_no_value_of_the_tensors(torch: Any, tw: Any) -> None:
    """Made of tensors without elements: whatever read one of them would raise."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x: Any, w: Any) -> Any:
        w = w.detach().requires_grad_()
        (of_w,) = torch.autograd.grad(tilewise.matmul(x, w, transpose_b=True).sum(), w)
        return of_w

    with FakeTensorMode():
        there = torch.empty(8, 6, 4, device="cuda", dtype=torch.bfloat16)
        product = tilewise.matmul(there, there.mT)
        assert (product.shape, product.dtype) == ((8, 6, 6), torch.bfloat16)
        assert product.device.type == "cuda"
        assert product.is_contiguous()
    x, w = torch.randn(8, 6, 4), torch.randn(5, 4)
    graph = make_fx(step, tracing_mode="fake")(x, w)
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert called.count("tilewise.matmul.default") == 2
    assert not [name for name in called if "item" in name or "_local_scalar" in name]
    assert not [name for name in called if "clone" in name or "_to_copy" in name]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast(torch: Any, tw: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, w, bias = torch.randn(6, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
    with torch.autocast("cpu", kind):
        found = tilewise.matmul(x, w, transpose_b=True)
        assert found.dtype == torch.matmul(x, w.mT).dtype == kind
        assert tw.linear(x, w, bias).dtype == torch.nn.functional.linear(x, w, bias).dtype == kind
        assert tw.linear(x.to(kind), w, bias).dtype == kind
        assert tilewise.matmul(x, w, out_dtype="float32", transpose_b=True).dtype == torch.float32
        double = tilewise.matmul(x.double(), w.double(), transpose_b=True)
        assert double.dtype == torch.matmul(x.double(), w.double().mT).dtype == torch.float64
        with torch.autocast("cpu", enabled=False):
            assert tilewise.matmul(x, w, transpose_b=True).dtype == torch.float32
    found.sum().backward()
    assert w.grad.dtype == torch.float32
    assert_tensors_right(found.detach(), x.to(kind), w.detach().to(kind).mT)


def test_autocast_in_a_graph_and_on_a_gpu(torch: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def product(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return tilewise.matmul(x, w)

    x = torch.randn(4, 4)
    found = torch.compile(product, fullgraph=True, backend="aot_eager")(x, x)
    assert torch.equal(found, product(x, x))
    # Where there is no GPU, torch.autocast("cuda") does nothing; this is what it does with one.
    torch.set_autocast_enabled("cuda", True)
    try:
        with FakeTensorMode():
            there = torch.empty(4, 4, device="cuda")
            dtype = tilewise.matmul(there, there).dtype
            assert dtype == torch.get_autocast_dtype("cuda") == torch.float16
    finally:
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize("of_x", [(6, 4), (2, 6, 4), (4,)])
def test_operations_are_counted_as_pytorchs(torch: Any, tw: Any, of_x: tuple[int, ...]) -> None:
    counts = []
    for function in (tilewise.matmul, torch.matmul):
        x, w = torch.randn(of_x, requires_grad=True), torch.randn(4, 5, requires_grad=True)
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            function(x, w).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == 3 * 2 * 4 * 5 * x.numel() // 4
    assert counts[0] == counts[1]


def test_what_lies_between_autograd_and_the_kernels(torch: Any, tw: Any) -> None:
    """A lazy negation, functional tensors, a subclass: they see the operator, with a gradient too.

    ``torch.ops.tilewise.matmul`` calls the kernels at once only where nothing else would.
    """
    operator = torch.ops.tilewise.matmul
    x, leaf = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    called: list[str] = []

    class Logging(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            called.append(str(function))
            return function(*args, **(kwargs or {}))

    for w in (leaf.detach(), leaf):
        torch.testing.assert_close(operator(torch._neg_view(x), w), -x @ w)
        torch._enable_functionalization(reapply_views=True)
        try:
            found = operator(torch._to_functional_tensor(x), torch._to_functional_tensor(w))
            assert torch._is_functional_tensor(found)
            plain = torch._from_functional_tensor(found)
        finally:
            torch._disable_functionalization()
        torch.testing.assert_close(plain.detach(), (x @ w).detach())
        called.clear()
        with Logging():
            operator(x, w)
        assert called == ["tilewise.matmul.default"]
        assert operator(x, w).requires_grad is w.requires_grad


def test_routes(torch: Any, tw: Any) -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    x, leaf = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    assert route(x, x) is route(x.numpy(), x.numpy()) is Route.DIRECT
    assert route(x, leaf) is route(x, x, leaf) is Route.GRADIENT
    assert route(x.as_subclass(Own), x) is Route.OPERATOR
    with torch.no_grad():
        assert route(x, leaf) is Route.DIRECT
    with torch.autocast("cpu"):
        assert route(x, x) is Route.OPERATOR
    with torch.utils.flop_counter.FlopCounterMode(display=False):
        assert route(x, x) is Route.OPERATOR
    assert type(tilewise.matmul(x.as_subclass(Own), x)) is Own


def test_what_is_wrong_is_refused_as_elsewhere(torch: Any, tw: Any) -> None:
    """By the operator, by what stands for it in graphs, and with gradients."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def calls(*shapes: tuple[int, ...], **kinds: Any) -> Iterator[Callable[[], Any]]:
        for requires_grad in (False, True):
            made = [torch.zeros(shape, requires_grad=requires_grad) for shape in shapes]
            for function in (tw.matmul, tilewise.matmul, torch.ops.tilewise.matmul):
                yield partial(function, *made, **kinds)

        def fake() -> Any:
            with FakeTensorMode():
                return tw.matmul(*(torch.zeros(shape) for shape in shapes), **kinds)

        yield fake

    for words, shapes, options in (
        ("as many columns as B has rows", ((3, 4), (5, 6)), {}),
        ("do not broadcast", ((2, 3, 4), (3, 4, 5)), {}),
        ("multiply numbers by", ((), (3,)), {}),
        ("no C to multiply", ((3, 4), (4, 5)), {"beta": 1.0}),
        ("c has shape", ((3, 4), (4, 5), (5,)), {"beta": 1.0}),
    ):
        for call in calls(*shapes, **options):
            with pytest.raises(ValueError, match=words):
                call()
    x = torch.zeros(3, 3)
    for bad in (x.double(), x.int(), x.to(torch.complex64)):
        for leaf in (x, x.clone().requires_grad_()):
            with pytest.raises(TypeError, match="dtype"):
                tilewise.matmul(leaf, bad)
            with pytest.raises(TypeError, match="dtype"):
                torch.ops.tilewise.matmul(leaf, bad)
    with pytest.raises(TypeError, match=r"^b is a numpy\.ndarray, not a torch\.Tensor"):
        tw.matmul(x, x.numpy())
    with pytest.raises(TypeError, match="a is torch's and b is numpy's"):
        tilewise.matmul(x.clone().requires_grad_(), x.numpy())
    with pytest.raises(TypeError, match="sparse"):
        tilewise.matmul(x.to_sparse().requires_grad_(), x)
    with FakeTensorMode(), pytest.raises(ValueError, match="one place, not a on cpu, b on cuda"):
        torch.ops.tilewise.matmul(torch.zeros(3, 3), torch.zeros(3, 3, device="cuda"))
    cases: list[tuple[str, Any, str]] = [
        ("alpha", True, "alpha is True; it must be a number"),
        ("beta", torch.ones(()), r"beta is tensor\(1.\); it must be a number"),
        ("alpha", "2", "alpha is '2'; it must be a number"),
        ("out_dtype", "S1", "out_dtype is 'S1', which PyTorch has not"),
        ("out_dtype", "int8", "the result of bfloat16 arrays can't be int8"),
    ]
    with torch.autocast("cpu"):
        with pytest.raises(ValueError, match="neither device nor"):
            tilewise.matmul(x, x, device="emulator")
        for name, value, words in cases:
            with pytest.raises(TypeError, match=words):
                tilewise.matmul(x, x, **{name: value})


@thorough
@pytest.mark.usefixtures("torch")
def test_it_is_imported_without_pytorchs_compiler() -> None:
    """Which takes as long to import as the rest of PyTorch."""
    program = "import sys, tilewise.torch\nassert 'torch._dynamo' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_tilewise_is_imported_without_torch() -> None:
    program = (
        "import sys, tilewise, numpy\n"
        "tilewise.matmul(numpy.eye(3), numpy.eye(3))\n"
        "assert 'torch' not in sys.modules and 'tilewise.torch' not in sys.modules\n"
        "sys.modules['torch'] = None\n"
        "import importlib.util\n"
        "importlib.util.find_spec = lambda name: None\n"
        "try:\n    tilewise.torch\n"
        "except ImportError as error:\n    assert 'pip install torch' in str(error), error\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_out_that_holds_no_elements_is_refused(torch: Any, tw: Any) -> None:
    """A subclass whose elements are those of other tensors, as quantized and distributed ones."""

    class Outer(torch.Tensor):  # type: ignore[misc]
        @staticmethod
        def __new__(cls, *shape: int) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, *_: Any) -> Any:
            raise AssertionError("it was called")

    x = torch.ones(3, 3)
    with pytest.raises(TypeError, match="out is a Outer, which holds no elements of its own"):
        tw.matmul(x, x, out=Outer(3, 3))
    with pytest.raises(TypeError, match="out is a Outer, which holds no elements of its own"):
        tw.grouped_matmul(x, x[None], torch.tensor([3]), out=Outer(3, 3))


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("options", [{}, {"epilogue": tilewise.relu}])
def test_a_text_does_not_transpose(torch: Any, tw: Any, options: Any, compiles: bool) -> None:
    """Any text is true in Python, BLAS's N too."""
    x = torch.ones(3, 3, requires_grad=True)

    def product(x: Any) -> Any:
        return tw.matmul(x, x, transpose_a="N", **options)

    compiled = torch.compile(product, backend="eager") if compiles else product
    with pytest.raises(Exception, match="transpose_a is 'N'; it takes True or False"):
        compiled(x)
