"""Products in pieces: all but the last rows and columns of D, and those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewise.gemm.product import ALIGNMENT, ITEM_SIZES, A, B, C, D, Operand, Product
from tilewise.gemm.steps import Plan


@dataclass(frozen=True)
class Piece:
    """Rows and columns of a product's D, as a product of its own.

    Attributes
    ----------
    product : Product
    at : mapping of int to int
        Bytes from the first element of A, B, C and D to the piece's.
    """

    product: Product
    at: Mapping[int, int]


def _piece(product: Product, rows: range, columns: range) -> Piece:
    """Those rows and columns of D, of which there is at least one."""
    item = ITEM_SIZES[product.dtype]
    at: dict[int, int] = {}

    def moved(which: int, x: Operand, row: int, column: int) -> Operand:
        at[which] = (row * x.row_stride + column * x.column_stride) * item
        return replace(x, offset=(x.offset + at[which]) % ALIGNMENT)

    of_piece = replace(
        product,
        m=len(rows),
        n=len(columns),
        a=moved(A, product.a, rows.start, 0),
        b=moved(B, product.b, 0, columns.start),
        c=None if product.c is None else moved(C, product.c, rows.start, columns.start),
        d=moved(D, product.d, rows.start, columns.start),
    )
    return Piece(of_piece, at)


def cut(product: Product, rows: int, columns: int) -> list[Piece]:
    """The product without its last ``rows`` and ``columns``; those rows; the rest of those columns.

    Either may be 0, and there is no such piece then.
    """
    m, n = product.m - rows, product.n - columns
    pieces = [_piece(product, range(m), range(n))]
    if rows:
        pieces.append(_piece(product, range(m, product.m), range(product.n)))
    if columns:
        pieces.append(_piece(product, range(m), range(n, product.n)))
    return pieces


def joined(pieces: Sequence[tuple[Piece, Plan]], chosen: str, why: str) -> Plan:
    """The pieces' plans one after another; they share the workspace."""
    steps = [
        replace(step, launch=step.launch.moved(piece.at))
        for piece, plan in pieces
        for step in plan.steps
    ]
    return Plan(tuple(steps), max(plan.workspace for _, plan in pieces), chosen, why)
