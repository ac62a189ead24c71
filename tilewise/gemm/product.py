"""The product that a device is asked for: D = f(alpha A B + beta C) over matrices in its memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewise.gemm.epilogue import Epilogue
from tilewise.places import ITEM_SIZES, Place

DTYPES = ("float16", "bfloat16", "float32", "float64")
REAL = {"float32": "float", "float64": "double"}  # the type that kernels call ``real``
# The 16-bit types have 8 and 11 significant bits, so that their products are exact in float32.
ACCUMULATORS = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
ALIGNMENT = 16  # bytes: a larger alignment helps no kernel
# The indices of the arrays that a plan's places refer to, in the order of ``steps.execute``.
A, B, C, D, WORKSPACE = range(5)
FIRST_FUSED = 5
"""The index of the first of an epilogue's arrays (Epilogue.arrays); the others follow it."""


class Operand(NamedTuple):
    """The layout of one matrix, or of a batch of them, in a device's memory.

    Attributes
    ----------
    row_stride, column_stride : int
        The elements from one row, and from one column, to the next; at least 0.
    batch_stride : int
        The elements from one matrix of the batch to the next; 0 if all share one matrix.
    offset : int
        The bytes from the last multiple of :data:`ALIGNMENT` to the first element.
    """

    row_stride: int
    column_stride: int
    batch_stride: int = 0
    offset: int = 0

    @property
    def transposed(self) -> Operand:
        """The same memory with rows and columns exchanged."""
        return Operand(self.column_stride, self.row_stride, self.batch_stride, self.offset)


class Pairing(NamedTuple):
    """The second matrix U of a product of pairs, whose D is a function of A B and A U.

    Attributes
    ----------
    operand : Operand
        The layout of U.
    apart : int or None
        The bytes from B's first element to U's, if one array holds both; None if U is an array of
        its own.
    whole : Operand or None
        The layout of the array that holds both, k x 2n; None if there is none.
    """

    operand: Operand
    apart: int | None = None
    whole: Operand | None = None


ORDERS = ("halves", "interleaved")
"""The orders of B's and U's columns in one array: all of B's before all of U's, or alternating."""


def paired(whole: Operand, order: str, n: int, dtype: str) -> tuple[Operand, Pairing]:
    """Return B and U, which one array of k x 2n holds.

    Parameters
    ----------
    whole : Operand
        The layout of the array.
    order : str
        One of :data:`ORDERS`.
    n : int
    dtype : str
    """
    step = whole.column_stride
    apart = (n if order == "halves" else 1) * step * ITEM_SIZES[dtype]
    b = whole if order == "halves" else whole._replace(column_stride=2 * step)
    return b, Pairing(b._replace(offset=offset(b.offset + apart)), apart, whole)


def offset(address: int) -> int:
    """Return the bytes from the last multiple of :data:`ALIGNMENT` to an address."""
    return address % ALIGNMENT


class Product(NamedTuple):
    """D = f(alpha A B + beta C), for each matrix of a batch, in any layout.

    A product of pairs is D = f(alpha A B, alpha A U), without C.

    It is a named tuple, because that is made and hashed in a fraction of a data class's time, and a
    product is looked up several times on the way to its plan.

    Attributes
    ----------
    m, n, k : int
        C and D are m x n, A is m x k, B is k x n. Each may be 0.
    batch : int
        The number of products in the batch; may be 0.
    dtype : str
        The dtype of A and B, one of :data:`DTYPES`.
    out_dtype : str
        The dtype of C and D: that of A and B, or ``"float32"``.
    alpha, beta : float
        The factors, rounded to the accumulator's dtype. If ``alpha`` is 0, A and B are not read; if
        ``beta`` is 0, C is not.
    a, b, d : Operand
    c : Operand or None
        The layout of C, which may be that of D; None only if ``beta`` is 0.
    epilogue : Epilogue or None
        The function f, which becomes part of the kernels' epilogue; None for no function.
    parts : int
        The number of parts that k is divided into, always in the same way, so that an element's
        bits depend on its row of A, on B and on nothing else; 0 for the fastest division.
    pairing : Pairing or None
        The matrix U of a product of pairs; f is then a function of pairs, and not None.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    out_dtype: str
    alpha: float
    beta: float
    a: Operand
    b: Operand
    c: Operand | None
    d: Operand
    epilogue: Epilogue | None = None
    parts: int = 0
    pairing: Pairing | None = None

    @property
    def is_empty(self) -> bool:
        """Whether D has no elements."""
        return not (self.m and self.n and self.batch)

    @property
    def flops(self) -> float:
        """The multiplications and additions of A B, and of A U."""
        return 2.0 * self.batch * self.m * self.n * self.k * (1 if self.pairing is None else 2)

    @property
    def order(self) -> str:
        """The order of the pairs in one array, one of :data:`ORDERS`; else empty."""
        if self.pairing is None or self.pairing.whole is None:
            return ""
        return ORDERS[self.pairing.whole != self.b]

    def up_at(self, b: Place) -> Place:
        """Return the place of U, if B lies at ``b``: in the same array, or in the last array."""
        assert self.pairing is not None
        assert self.epilogue is not None
        if self.pairing.apart is not None:
            return Place(b.array, b.offset + self.pairing.apart)
        return Place(FIRST_FUSED + len(self.epilogue.arrays))

    @property
    def transposed(self) -> Product:
        """The same memory seen as D' = f(alpha B' A' + beta C'), with ' for transposed.

        Raises
        ------
        ValueError
            If it is a product of pairs, which are columns.
        """
        if self.pairing is not None:
            raise ValueError("pairs are columns of B, and the transposed product has them as rows")
        c = None if self.c is None else self.c.transposed
        epilogue = None if self.epilogue is None else self.epilogue.transposed
        return Product(
            self.n, self.m, self.k, self.batch, self.dtype, self.out_dtype, self.alpha, self.beta,
            self.b.transposed, self.a.transposed, c, self.d.transposed, epilogue,
            self.parts,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the product as plain data for JSON."""
        plain = {
            name: value._asdict() if isinstance(value, Operand) else value
            for name, value in self._asdict().items()
            if name not in ("epilogue", "parts", "pairing")
        }
        # The keys are left out where they say nothing, so that choices kept before they existed are
        # found.
        if self.epilogue is not None:
            plain["epilogue"] = str(self.epilogue.function)
        if self.parts:
            plain["parts"] = self.parts
        if self.pairing is not None:
            plain["pairs"] = {"apart": self.pairing.apart, **self.pairing.operand._asdict()}
        return plain
