"""Pad the matrices of a product by hand, so that a kernel for aligned matrices can take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewise.bench.products import Operands
from tilewise.bench.suites import Shape, Storage, View

VECTOR = 8  # elements of the widest copy, of 16 bytes

Call = Callable[[Operands], None]
"""Enqueues a product of its operands on PyTorch's current stream, and does not wait."""


def is_aligned(shape: Shape) -> bool:
    """Return whether no matrix needs padding: its lines begin and end at multiples of 16 bytes."""
    return padded(shape) == shape


def padded(shape: Shape) -> Shape:
    """Return the product of padded matrices, whose lines begin at multiples of 16 bytes.

    A matrix that is aligned already, and has the padded sizes, is used as it is.
    """

    def up(size: int) -> int:
        return -(-size // VECTOR) * VECTOR

    a, b = shape.a, shape.b
    # Of the sizes, those are padded that a matrix is contiguous along.
    m = up(shape.m) if a.by_columns else shape.m
    k = up(shape.k) if not a.by_columns or b.by_columns else shape.k
    n = up(shape.n)
    wanted = Shape(m, n, k, a, b)

    def stays(x: Storage, now: View, then: View) -> bool:
        pitch = now.strides[1 if x.by_columns else 0]
        return now.shape == then.shape and not (pitch % VECTOR or x.offset % VECTOR)

    new = [
        x if stays(x, *views) else Storage(by_columns=x.by_columns)
        for x, *views in zip(
            (a, b, shape.d), shape.views(), (*wanted.views()[:2], Shape(m, n, k).views()[2]),
            strict=True,
        )
    ]  # fmt: skip
    return Shape(m, n, k, new[0], new[1], d=new[2])


def padding(shape: Shape, inner: Shape, product: Call, *, keeps: bool) -> Call:
    """Return a product that pads its matrices first, and copies its result back.

    Parameters
    ----------
    shape : Shape
    inner : Shape
        That of the padded matrices.
    product : callable
        Computes the latter.
    keeps : bool
        Whether matrices of zeros are kept, and the elements copied into them; or new ones made by
        ``torch.nn.functional.pad`` each time.
    """
    names = [x for x in "ab" if _must_move(shape, inner, x)]
    moves_d = _must_move(shape, inner, "d")
    extents = {"a": (inner.m, inner.k), "b": (inner.k, inner.n)}
    kept: dict[str, Any] = {}

    def into(name: str, x: Any) -> Any:
        rows, columns = extents[name]
        # F.pad makes rows contiguous.
        is_turned = getattr(inner, name).by_columns
        lines = x.T if is_turned else x
        wide = (columns, rows) if is_turned else (rows, columns)
        if keeps:
            if name not in kept:
                kept[name] = torch.zeros(wide, dtype=x.dtype, device=x.device)
            found = kept[name]
            found[: lines.shape[0], : lines.shape[1]].copy_(lines)
        elif lines.shape == wide:
            found = lines.contiguous()
        else:
            more = (0, wide[1] - lines.shape[1], 0, wide[0] - lines.shape[0])
            found = torch.nn.functional.pad(lines, more)
        return found.T if is_turned else found

    def call(x: Operands) -> None:
        a, b = (into(of, y) if of in names else y for of, y in (("a", x.a), ("b", x.b)))
        d = x.d
        if moves_d:
            d = torch.empty((inner.m, inner.n), dtype=d.dtype, device=d.device)
        product(Operands(a, b, d))
        if moves_d:
            x.d.copy_(d[: shape.m, : shape.n])

    return call


def _must_move(shape: Shape, inner: Shape, name: str) -> bool:
    """Return whether a matrix has to be copied: its padded form lies otherwise."""
    place = "abd".index(name)
    return shape.views()[place] != inner.views()[place]
