"""What becomes of layers in models: tensors without values, tracing, and errors that say it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import tilewise


def perceptron(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 4))


# Tensors on meta


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_on_meta_have_shapes_and_gradients(
    torch: Any, tw: Any, dtype: str, autocast: bool
) -> None:
    kind = getattr(torch, dtype)
    x = torch.randn(2, 3, 8, device="meta", dtype=kind, requires_grad=True)
    layer = tw.Linear(8, 6, device="meta", dtype=kind)
    model = perceptron(torch).to("meta", kind)
    assert tw.replace_linears(model).fused
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for module, columns in ((layer, 6), (model, 4)):
            for bias in (True, False):
                y = module(x) if bias else tw.linear(x, module.weight) if module is layer else None
                if y is None:
                    continue
                assert (y.shape, y.device.type, y.dtype) == ((2, 3, columns), "meta", kind)
                grads = torch.autograd.grad(y, [x, *module.parameters()], y, allow_unused=True)
                assert all(
                    g is None or g.shape == p.shape
                    for g, p in zip(grads, [x, *module.parameters()], strict=True)
                )
    with torch.no_grad():
        assert layer(x[:0]).shape == (0, 3, 6)


def test_products_on_meta(torch: Any, tw: Any) -> None:
    def new(*shape: int, dtype: Any = None) -> Any:
        return torch.empty(shape, device="meta", dtype=dtype)

    out = new(3, 5)
    assert tilewise.matmul(new(3, 4), new(4, 5), c=new(3, 5), beta=1, out=out) is out
    half = new(4, 3, dtype=torch.float16)
    found = tilewise.matmul(half, half, transpose_a=True, out_dtype="float32")
    assert (found.shape, found.dtype, found.device.type) == ((3, 3), torch.float32, "meta")
    assert tilewise.matmul(new(3, 0), new(0, 5)).shape == (3, 5)
    gated = tilewise.matmul(
        new(2, 3, 4), (new(4, 5), new(4, 5)), epilogue=lambda gate, up: (gate * up, up)
    )
    assert [x.shape for x in gated] == [(2, 3, 5)] * 2
    offsets = torch.tensor([1, 3], device="meta")
    x, w = new(3, 4).requires_grad_(), new(2, 4, 5).requires_grad_()
    grads = torch.autograd.grad(tw.grouped_matmul(x, w, offsets).sum(), [x, w])
    assert [g.shape for g in grads] == [(3, 4), (2, 4, 5)]
    y, z = tilewise.grouped_matmul(
        x.detach(), w.detach(), offsets, epilogue=lambda acc: (acc, tilewise.relu(acc))
    )
    assert y.shape == z.shape == (3, 5)
    for wrong, why in (
        ({"b": torch.ones(4, 5)}, "not a on meta, b on the host"),
        ({"device": "emulator"}, "the tensors are on meta and have no values; leave out device"),
        ({"b": new(5, 4)}, "A must have as many columns as B has rows"),
    ):
        with pytest.raises(ValueError, match=why):
            tilewise.matmul(**{"a": new(3, 4), "b": new(4, 5), **wrong})


def test_what_would_multiply_tensors_on_meta_is_explained(torch: Any) -> None:
    """So that a product that no memory here holds is planned, and compiled beforehand."""
    a, b = torch.empty(65536, 65536, device="meta", dtype=torch.bfloat16), None
    b = a.mT
    found = tilewise.explain(a, b, gpu="h200")
    assert found.chosen.startswith("the Hopper kernel")
    assert found.product.m == 65536
    assert "give gpu to see" in tilewise.explain(a, b).why
    offsets = torch.empty(4, device="meta", dtype=torch.int32)
    w = torch.empty(4, 65536, 8, device="meta", dtype=torch.bfloat16)
    assert tilewise.explain(a, w, offsets=offsets, gpu="h200").chosen.startswith("the grouped")
    assert "give gpu to see" in tilewise.explain(a, w, offsets=offsets).why


# Tracing


def test_fx_records_layers(torch: Any, tw: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.mlp, self.head = perceptron(torch), torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.mlp(x)) + 1

    model = Model()
    assert len(tw.replace_linears(model).replaced) == 3
    graph = torch.fx.symbolic_trace(model)
    calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert calls[:2] == [tw.mlp, tw.linear]
    x = torch.randn(5, 8)
    torch.testing.assert_close(graph(x), model(x))
    graph(x).sum().backward()
    torch.testing.assert_close(copy.deepcopy(graph)(x[:2]), model(x[:2]))


def test_jit_records_layers_and_not_their_results(torch: Any, tw: Any) -> None:
    model = perceptron(torch)
    tw.replace_linears(model)
    x = torch.randn(5, 8)
    for module in (model, tw.Linear(8, 3), tw.Linear(8, 3, bias=False)):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # shapes are constants of the trace
            traced = torch.jit.trace(module, x)
            assert "tilewise::" in str(traced.inlined_graph)  # not what the host's library does
            torch.testing.assert_close(traced(x[:3] * 2), module(x[:3] * 2))


# Errors


def test_where_is_a_function(torch: Any, tw: Any) -> None:
    with pytest.raises(TypeError, match="where is 'head'; it is a function of a module's name"):
        tw.replace_linears(perceptron(torch), "head")


def test_nested_tensors_are_named(torch: Any, tw: Any) -> None:
    w, parts = torch.randn(6, 8), [torch.randn(2, 8), torch.randn(3, 8)]
    for layout in (torch.strided, torch.jagged):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are a prototype
            x = torch.nested.nested_tensor(parts, layout=layout)
        with pytest.raises(TypeError, match="is a nested tensor; multiply its values"):
            tw.linear(x, w)
        with pytest.raises(TypeError, match="a is a nested tensor"):
            tw.matmul(x, w.mT)
        with pytest.raises(TypeError, match="x is a nested tensor"):
            tw.mlp(x, w, w.mT, activation="relu")


@pytest.mark.parametrize(
    "kinds", [("float32", "float32", "bfloat16"), ("bfloat16", "float32", "bfloat16")]
)
def test_out_under_autocast_says_that_nothing_is_cast(
    torch: Any, tw: Any, kinds: tuple[str, ...]
) -> None:
    a, b, out = (torch.ones(4, 4, dtype=getattr(torch, kind)) for kind in kinds)
    with torch.autocast("cpu", torch.bfloat16):
        for function in (tilewise.matmul, tw.matmul):
            with pytest.raises(
                TypeError, match="with out, autocast casts nothing, as with the out"
            ):
                function(a, b, out=out)
            single, wide = torch.ones(4, 4), torch.empty(4, 4)
            assert function(single, single, out=wide) is wide
            assert function(single.bfloat16(), single.bfloat16(), out=wide) is wide
            np.testing.assert_array_equal(wide.numpy(), 4 * np.ones((4, 4)))
