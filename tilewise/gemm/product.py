"""What is asked of a device: D = f(alpha A B + beta C) over matrices in its memory, batched."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewise.gemm.epilogue import Epilogue
from tilewise.places import ITEM_SIZES, Place

DTYPES = ("float16", "bfloat16", "float32", "float64")
REAL = {"float32": "float", "float64": "double"}  # what kernels call ``real``
# The 16-bit types have 8 and 11 significant bits, so that their products are exact in float32.
ACCUMULATORS = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
ALIGNMENT = 16  # bytes: more than that helps no kernel
# The arrays that a plan's places are in, in the order that ``steps.execute`` takes.
A, B, C, D, WORKSPACE = range(5)
FIRST_FUSED = 5
"""The first of an epilogue's arrays (Epilogue.arrays); the others follow it."""


class Operand(NamedTuple):
    """How one matrix, or a batch of them, lies in a device's memory.

    Attributes
    ----------
    row_stride, column_stride : int
        Elements from one row, and from one column, to the next; at least 0.
    batch_stride : int
        Elements from one matrix of the batch to the next; 0 where all are the same one.
    offset : int
        Bytes from the last multiple of :data:`ALIGNMENT` to the first element.
    """

    row_stride: int
    column_stride: int
    batch_stride: int = 0
    offset: int = 0

    @property
    def transposed(self) -> Operand:
        """The same memory, rows for columns."""
        return Operand(self.column_stride, self.row_stride, self.batch_stride, self.offset)


class Pairing(NamedTuple):
    """The second matrix B of a product of pairs, whose D is a function of A B and A U.

    Attributes
    ----------
    operand : Operand
        U.
    apart : int or None
        Bytes from B's first element to U's, where one array holds both; None where U is an array
        of its own.
    whole : Operand or None
        That array, k x 2n; None where there is none.
    """

    operand: Operand
    apart: int | None = None
    whole: Operand | None = None


ORDERS = ("halves", "interleaved")
"""How the columns of B and U lie in one array: first all of B's and then U's, or in turn."""


def paired(whole: Operand, order: str, n: int, dtype: str) -> tuple[Operand, Pairing]:
    """Return B and U of one array of k x 2n.

    Parameters
    ----------
    whole : Operand
        The array.
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
    """Bytes from the last multiple of :data:`ALIGNMENT` to an address."""
    return address % ALIGNMENT


class Product(NamedTuple):
    """D = f(alpha A B + beta C), for each matrix of a batch, wherever they lie.

    Of pairs it is D = f(alpha A B, alpha A U), and there is no C.

    A named tuple, which is made and hashed in a fraction of a data class's time: a product is
    looked up several times on the way to its plan.

    Attributes
    ----------
    m, n, k : int
        C and D are m x n, A is m x k, B is k x n. Each may be 0.
    batch : int
        How many; may be 0.
    dtype : str
        Of A and B, one of :data:`DTYPES`.
    out_dtype : str
        Of C and D: the same, or ``"float32"``.
    alpha, beta : float
        Rounded to the accumulator's dtype. With ``alpha`` 0, A and B are not read; with ``beta``
        0, C is not.
    a, b, d : Operand
    c : Operand or None
        May be D; None only where ``beta`` is 0.
    epilogue : Epilogue or None
        f, the function that becomes part of the kernels' epilogue; None for none.
    parts : int
        The parts that k is divided into, always in one way, so that an element's bits depend on
        its row of A, on B and on nothing else; 0 where k is divided as is fastest.
    pairing : Pairing or None
        U, where f, which is there then, is a function of pairs.
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
    def order(self) -> str:
        """One of :data:`ORDERS`, of pairs in one array; elsewhere empty."""
        if self.pairing is None or self.pairing.whole is None:
            return ""
        return ORDERS[self.pairing.whole != self.b]

    def up_at(self, b: Place) -> Place:
        """Where U lies, of a product of pairs with B at ``b``: there, or the last of the arrays."""
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
        """Plain data for JSON."""
        plain = {
            name: value._asdict() if isinstance(value, Operand) else value
            for name, value in self._asdict().items()
            if name not in ("epilogue", "parts", "pairing")
        }
        # What is kept of products without these is found as before.
        if self.epilogue is not None:
            plain["epilogue"] = str(self.epilogue.function)
        if self.parts:
            plain["parts"] = self.parts
        if self.pairing is not None:
            plain["pairs"] = {"apart": self.pairing.apart, **self.pairing.operand._asdict()}
        return plain
