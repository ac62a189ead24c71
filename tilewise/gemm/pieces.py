"""Products in pieces: one product without the last rows and columns of D, and products of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tilewise.gemm.product import ALIGNMENT, FIRST_FUSED, A, B, C, D, Operand, Product, offset
from tilewise.gemm.steps import Plan, Step
from tilewise.places import ITEM_SIZES, Place


class Piece(NamedTuple):
    """A range of rows and columns of D, as a product of its own.

    Attributes
    ----------
    product : Product
    at : mapping of int to int
        The bytes from the first element of A, B, C, D and the epilogue's arrays to the piece's
        first.
    """

    product: Product
    at: Mapping[int, int]


def _piece(product: Product, rows: range, columns: range) -> Piece:
    """Return the piece for these rows and columns of D, at least one of each."""
    item = ITEM_SIZES[product.dtype]
    at: dict[int, int] = {}

    def moved(which: int, x: Operand, row: int, column: int) -> Operand:
        at[which] = ahead = (row * x.row_stride + column * x.column_stride) * item
        if not ahead % ALIGNMENT:
            return x
        return Operand(x.row_stride, x.column_stride, x.batch_stride, offset(x.offset + ahead))

    top, left, x, epilogue = rows.start, columns.start, product, product.epilogue
    if epilogue is not None:
        arrays = []
        for i, each in enumerate(epilogue.arrays):
            elements = top * each.row_stride + left * each.column_stride
            at[FIRST_FUSED + i] = ahead = elements * ITEM_SIZES[each.dtype]
            arrays.append(each._replace(offset=offset(each.offset + ahead)))
        epilogue = epilogue.of_arrays(arrays)
    # Not dataclasses.replace, which takes as long as pricing a piece.
    of_piece = Product(
        len(rows), len(columns), x.k, x.batch, x.dtype, x.out_dtype, x.alpha, x.beta,
        moved(A, x.a, top, 0), moved(B, x.b, 0, left),
        None if x.c is None else moved(C, x.c, top, left), moved(D, x.d, top, left),
        epilogue,
    )  # fmt: skip
    return Piece(of_piece, at)


def cut(product: Product, rows: int, columns: int) -> Iterator[Piece]:
    """Yield the product without its last ``rows`` and ``columns``, then the pieces for those.

    A piece of no rows or no columns is left out.
    """
    m, n = product.m - rows, product.n - columns
    yield _piece(product, range(m), range(n))
    if rows:
        yield _piece(product, range(m, product.m), range(product.n))
    if columns:
        yield _piece(product, range(m), range(n, product.n))


def joined(pieces: Sequence[tuple[Piece, Plan]], chosen: str, why: str) -> Plan:
    """Return one plan of the pieces' plans, one after another; they share the workspace."""
    steps = [
        Step(step.kernel, step.launch.moved({x: Place(x, ahead) for x, ahead in piece.at.items()}))
        for piece, plan in pieces
        for step in plan.steps
    ]
    return Plan(tuple(steps), max(plan.workspace for _, plan in pieces), chosen, why)
