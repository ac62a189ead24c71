"""Functions of tensors, element by element: by PyTorch's functions, and what a kernel is asked."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise.epilogue import trace
from tilewise.gemm.epilogue import Strided
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


@given(st.data())
def test_where_operands_lie(torch: Any, tw: Any, data: st.DataObject) -> None:
    """A kernel finds each element of an operand where it is, of any shape and strides."""
    shape = data.draw(st.sampled_from([(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5), (1, 1, 5)]))
    acc = torch.randn(shape)
    operands = []
    for _ in range(2):
        of = data.draw(st.sampled_from(SHAPES))
        try:
            if torch.broadcast_shapes(of, shape) != shape:
                raise RuntimeError
        except RuntimeError:
            of = ()
        x = torch.randn(*of[:-1], 2 * of[-1])[..., ::2] if of else torch.randn(())
        if len(of) > 1 and data.draw(st.booleans()):
            x = x.mT.contiguous().mT
        operands.append(x)
    results = [torch.empty(shape) for _ in range(3)]
    asked, arrays = asked_of(trace(function, ("x", "y")), acc, operands, results)
    whole = (asked.batch, asked.m, asked.n)
    assert asked.batch * asked.m * asked.n == acc.numel()
    lying = [x for x in asked.epilogue.inputs if isinstance(x, Strided)]
    for x, array, how in zip(operands, arrays, lying, strict=True):
        strides = how.batch_stride, how.row_stride, how.column_stride
        found = torch.as_strided(array, whole, strides, array.storage_offset())
        assert torch.equal(found.reshape(shape), x.expand(shape))
    assert [x[1:] for x in asked.epilogue.results] == [(asked.n, 1, asked.m * asked.n)] * 2
