"""Gradients with rows that are not 16-byte aligned, which two products read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import thorough

from tilewise.devices import Device
from tilewise.gemm.chip import H200
from tilewise.gemm.steps import execute

pytest.importorskip("torch", reason="gradients are PyTorch's")

from tilewise.torch import aligned, gradient


@given(st.data())
def test_the_copy_is_exact(emulator: Device, data: st.DataObject) -> None:
    rows, n = data.draw(st.integers(1, 9)), data.draw(st.integers(2, 300))
    pitch = aligned.pitch_of(n)
    assert (pitch % 64, pitch - pitch % 64 - n < 64) == (0, True)
    rng = np.random.default_rng(rows)
    skipped = data.draw(st.integers(0, 7))
    flat = rng.integers(0, 2**16, skipped + rows * n).astype(np.uint16)
    source, copy = emulator.array(flat), emulator.array(np.zeros(rows * pitch, np.uint16))
    address = source.pointer + 2 * skipped
    plan = aligned._plan(rows, n, address % 16)
    execute(plan, emulator, 0, (address, 0, 0, copy.pointer, 0))
    found = copy.to_numpy().reshape(rows, pitch)
    np.testing.assert_array_equal(found[:, :n], flat[skipped:].reshape(rows, n))


@pytest.mark.parametrize("shape", [(1, 5), (6, 1003), (2, 3, 63)])
def test_padded(torch: Any, shape: tuple[int, ...]) -> None:
    """The same values and shape, a single storage, and a gradient."""
    g = torch.randn(shape).requires_grad_()
    found = aligned.padded(g)
    pitch = aligned.pitch_of(shape[-1])
    assert (found.stride(-1), found.stride(-2)) == (1, pitch)
    assert torch.equal(found, g)
    assert found.flatten(0, -2).data_ptr() == found.data_ptr()
    of = torch.randn(shape)
    found.backward(of)
    assert torch.equal(g.grad, of)


@pytest.mark.parametrize("bias", [False, True])
def test_a_graph_with_padded_gradients(
    torch: Any, tw: Any, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled backward pass copies once for both products, and the bits are the same."""
    layer = tw.Linear(12, 19, bias=bias).bfloat16()
    x, of = torch.randn(2, 3, 12).bfloat16().requires_grad_(), torch.randn(2, 3, 19).bfloat16()
    layer(x).backward(of)
    wanted = [y.grad.clone() for y in (x, *layer.parameters())]
    x.grad = None
    layer.zero_grad()
    monkeypatch.setattr(gradient, "aligned", lambda g, k: aligned.padded(g))
    graphs: list[str] = []

    def shown(graph: Any, inputs: Any) -> Any:
        graphs.append(graph.code)
        return graph

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        bw_compiler=lambda graph, inputs: make_boxed_func(shown(graph, inputs).forward),
    )
    torch.compile(layer, backend=backend)(x).backward(of)
    (code,) = graphs
    assert code.count("aten.copy.default") == 1
    assert code.count("tilewise.linear_backward") == 1
    for found, want in zip((x, *layer.parameters()), wanted, strict=True):
        assert torch.equal(found.grad, want)


@thorough
def test_inductor_stores_the_gradient_with_aligned_rows(
    torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel copies it: the one that computes it stores it as the two products read it."""
    if not shutil.which("g++"):
        pytest.skip("needs a C++ compiler, for Inductor's kernels on a CPU")
    layer = tw.Linear(12, 19, bias=False).bfloat16()
    x, words = torch.randn(2, 3, 12).bfloat16().requires_grad_(), torch.tensor([0, 18, 3, 7, 7, 1])
    monkeypatch.setattr(gradient, "aligned", lambda g, k: aligned.padded(g))

    def loss(x: Any) -> Any:
        return torch.nn.functional.cross_entropy(layer(x).flatten(0, 1).float(), words)

    from torch._inductor.utils import run_and_get_code

    def run() -> None:
        torch.compile(loss, fullgraph=True)(x).backward()

    with torch._inductor.utils.fresh_cache():
        _, (_, code) = run_and_get_code(run)
    pitch = aligned.pitch_of(19)
    assert code.count(f"empty_strided_cpu((2, 3, 19), ({3 * pitch}, {pitch}, 1)") == 1
    assert code.count("torch.ops.tilewise.linear_backward.default(") == 1
    assert code.count("empty_strided_cpu((6, 19)") == code.count("empty_strided_cpu((19, 6)") == 0


def test_where_a_copy_is_worth_it() -> None:
    """With many columns; not where the kernel realigns a few tiles itself, or on other GPUs."""
    assert aligned._is_worth(4096, 50257, 768, "bfloat16", H200)
    assert aligned._is_worth(4096, 5003, 4096, "float16", H200)
    assert not aligned._is_worth(3, 50257, 64, "bfloat16", H200)
    assert not aligned._is_worth(64, 19, 16, "bfloat16", H200)
    assert not aligned._is_worth(1 << 20, 1, 1 << 12, "bfloat16", H200)
    assert not aligned._is_worth(4096, 50257, 768, "bfloat16", None)
    assert not aligned._is_worth(4096, 50257, 768, "bfloat16", replace(H200, capability=80))


def test_what_is_left_as_it_is(torch: Any) -> None:
    """Rows that are aligned, other dtypes, vectors, and tensors that lie elsewhere."""
    for g in (
        torch.randn(4, 16).half(), torch.randn(4, 19), torch.randn(19).half(),
        torch.randn(4, 19).half(), torch.empty(0, 19).half(),
        torch.empty(4096, 50257, dtype=torch.bfloat16, device="meta"),
    ):  # fmt: skip
        assert aligned.aligned(g, 768) is g


def test_lazily_negated_gradients_are_left_to_pytorch(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their memory holds the opposite (torch.Tensor.is_neg)."""
    from tilewise.torch import column_sums as module

    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    asked: list[Any] = []

    def why_on_gpu(*of: Any) -> str:
        asked.append(of)
        return "it is no GPU"

    monkeypatch.setattr("tilewise.torch.column_sums.own_product.why_on_gpu", why_on_gpu)
    x = torch.arange(12.0).reshape(4, 3).bfloat16()
    with torch.no_grad():
        assert module._rows(x, x.dtype) is None
        assert len(asked) == 1
        assert module._rows(torch._neg_view(x), x.dtype) is None
        assert len(asked) == 1
        assert torch.equal(module.column_sums(torch._neg_view(x), x.dtype), -x.sum(0))


def test_sums_add_no_guards(torch: Any) -> None:
    """While PyTorch traces dynamic shapes, a gradient on a GPU is not asked for its shape."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental import symbolic_shapes as symbolic

    from tilewise.torch.column_sums import column_sums

    shapes = symbolic.ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)
    dynamic = symbolic.StatelessSymbolicContext([symbolic.DimDynamic.DYNAMIC] * 2)
    known = mode.from_tensor(torch.empty(5, 3), symbolic_context=dynamic)
    with mode, torch.no_grad():
        x = torch.empty(known.shape, device="cuda")
        rest = x.narrow(0, 2, x.shape[0] - 2)  # which may have no rows
        before = len(shapes.guards)
        assert column_sums(rest, torch.float32).shape == x.shape[1:]
        guards = [str(each.expr) for each in shapes.guards[before:]]
    assert not guards


def test_sums_of_columns(torch: Any) -> None:
    """By PyTorch where no kernel is: of any number of dimensions, rounded once."""
    from tilewise.torch.column_sums import column_sums

    for shape in ((5, 3), (2, 300, 7), (1, 4), (0, 4)):
        x = torch.randn(shape).bfloat16()
        exact = x.double().flatten(0, -2).sum(0)
        assert torch.equal(column_sums(x, torch.bfloat16), exact.bfloat16())
        assert torch.allclose(column_sums(x, torch.float32).double(), exact, rtol=1e-5, atol=1e-5)
    x = torch.randn(5, 3).double().requires_grad_()
    column_sums(x, torch.float64).sum().backward()
    assert torch.equal(x.grad, torch.ones(5, 3).double())
