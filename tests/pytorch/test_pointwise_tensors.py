"""Functions of tensors, element by element: by PyTorch's functions, and what a kernel is asked."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import tilewise
from tilewise.epilogue import trace
from tilewise.gemm.epilogue import Strided

pytest.importorskip("torch", reason="the tensors are PyTorch's")

from tilewise.torch import pointwise as module
from tilewise.torch.pointwise import asked_of, pointwise


def function(acc: Any, x: Any, y: Any) -> Any:
    return acc, tilewise.silu(acc) * x + y, 2.0


def test_by_pytorchs_functions(torch: Any, tw: Any) -> None:
    """In float32, whatever the dtypes; the sum itself is only cast."""
    acc, x = torch.randn(3, 4).bfloat16(), torch.randn(4)
    kinds = [torch.float32, torch.bfloat16, torch.float16]
    found = pointwise(trace(function, ("x", "y")), acc, [x, 0.5], kinds)
    assert [each.dtype for each in found] == kinds
    assert torch.equal(found[0], acc.float())
    wanted = torch.nn.functional.silu(acc.float()) * x + 0.5
    assert torch.equal(found[1], wanted.bfloat16())
    assert torch.equal(found[2], torch.full((3, 4), 2.0).half())
    assert pointwise(trace(function, ("x", "y")), acc, [x, 0.5], [torch.bfloat16] * 3)[0] is acc


SHAPES = [(), (1,), (5,), (4, 1), (4, 5), (1, 5), (3, 1, 1), (3, 4, 5), (2, 3, 4, 5), (2, 1, 4, 5)]


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5), (1, 1, 5)])
def test_where_operands_lie(torch: Any, tw: Any, shape: tuple[int, ...], by_columns: bool) -> None:
    """A kernel finds each element of an operand where it is, of any shape and strides."""
    acc, traced = torch.randn(shape), trace(function, ("x", "y"))
    results = [torch.empty(shape) for _ in range(3)]
    fitting = [of for of in SHAPES if _broadcasts(torch, of, shape)]
    assert len(fitting) >= 3
    for of, other in product(fitting, repeat=2):
        operands = []
        for each in (of, other):
            x = torch.randn(*each[:-1], 2 * each[-1])[..., ::2] if each else torch.randn(())
            operands.append(x.mT.contiguous().mT if len(each) > 1 and by_columns else x)
        asked, arrays = asked_of(traced, acc, operands, results)
        whole = (asked.batch, asked.m, asked.n)
        assert asked.batch * asked.m * asked.n == acc.numel()
        lying = [x for x in asked.epilogue.inputs if isinstance(x, Strided)]
        for x, array, how in zip(operands, arrays, lying, strict=True):
            strides = how.batch_stride, how.row_stride, how.column_stride
            found = torch.as_strided(array, whole, strides, array.storage_offset())
            assert torch.equal(found.reshape(shape), x.expand(shape))
        assert [x[1:4] for x in asked.epilogue.results] == [(asked.n, 1, asked.m * asked.n)] * 2


def _broadcasts(torch: Any, x: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return bool(torch.broadcast_shapes(x, shape) == shape)
    except RuntimeError:
        return False


def test_lazily_negated_tensors_are_left_to_pytorch(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their memory holds the negated values (torch.Tensor.is_neg)."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(
        "tilewise.torch.pointwise.own_product.why_on_gpu", lambda _dtype, _ordinal: ""
    )
    x = torch.arange(6.0).reshape(2, 3)
    with torch.no_grad():
        assert module._is_for_kernels(x, [x, 2.0], 1)
        assert not module._is_for_kernels(torch._neg_view(x), [x, 2.0], 1)
        assert not module._is_for_kernels(x, [torch._neg_view(x), 2.0], 1)
