"""The products that are timed: their sizes, and how each matrix lies in memory."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

ALIGNMENT = 16  # bytes: what the widest loads, and the bulk copies of a GPU, ask for
MOST_SETS = 64


@dataclass(frozen=True)
class View:
    """A matrix, or a batch of them, as a view of a flat piece of memory.

    Attributes
    ----------
    shape, strides : tuple of int
        Strides in elements.
    offset : int
        Elements ahead of the first one.
    elements : int
        The number of elements of the memory, gaps and offset included.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    elements: int


@dataclass(frozen=True)
class Storage:
    """The layout of a matrix in memory.

    Attributes
    ----------
    by_columns : bool
        Whether columns are contiguous, as in a transposed view, or rows.
    padding : int
        Elements from the end of one row (or column) to the start of the next.
    offset : int
        Elements ahead of the first one; the memory itself is aligned.
    is_shared : bool
        Whether all batches have this one matrix.
    """

    by_columns: bool = False
    padding: int = 0
    offset: int = 0
    is_shared: bool = False

    def view(self, batch: int, rows: int, columns: int) -> View:
        """Return the view of the elements; two-dimensional for one matrix or a shared one."""
        lines, length = (columns, rows) if self.by_columns else (rows, columns)
        pitch = length + self.padding
        strides = (1, pitch) if self.by_columns else (pitch, 1)
        if batch == 1 or self.is_shared:
            return View((rows, columns), strides, self.offset, self.offset + lines * pitch)
        step = lines * pitch
        return View(
            (batch, rows, columns), (step, *strides), self.offset, self.offset + batch * step
        )


ROWS = Storage()
COLUMNS = Storage(by_columns=True)


@dataclass(frozen=True)
class Shape:
    """One product D = A B, or a batch of them.

    Attributes
    ----------
    m, n, k : int
        D is m x n, A is m x k, B is k x n.
    a, b, d : Storage
    batch : int
    is_wide : bool
        Whether D is float32, not of A's and B's dtype.
    """

    m: int
    n: int
    k: int
    a: Storage = ROWS
    b: Storage = ROWS
    d: Storage = field(default=ROWS, kw_only=True)
    batch: int = field(default=1, kw_only=True)
    is_wide: bool = field(default=False, kw_only=True)

    @property
    def size(self) -> str:
        """The size m x n x k: ``"4096x4096x4096"``, or for a batch ``"64*512x512x128"``."""
        one = f"{self.m}x{self.n}x{self.k}"
        return one if self.batch == 1 else f"{self.batch}*{one}"

    @property
    def layout(self) -> str:
        """A's letter and B's, as BLAS has them for row-major matrices: T is stored transposed."""
        return "".join("T" if x.by_columns else "N" for x in (self.a, self.b))

    @property
    def note(self) -> str:
        """The other particulars of the shape, ``""`` if it has none."""
        words = ["float32 D"] if self.is_wide else []
        for name, x in (("A", self.a), ("B", self.b), ("D", self.d)):
            if x.is_shared:
                words.append(f"one {name}")
            if x.padding:
                words.append(f"{name} pad {x.padding}")
            if x.offset:
                words.append(f"{name} from {x.offset}")
        return ", ".join(words)

    @property
    def name(self) -> str:
        """The size and the particulars."""
        return f"{self.size} {self.note}".rstrip()

    @property
    def flops(self) -> int:
        """The number of floating-point operations; a multiply-add is two."""
        return 2 * self.batch * self.m * self.n * self.k

    def views(self) -> tuple[View, View, View]:
        """A, B and D."""
        return (
            self.a.view(self.batch, self.m, self.k),
            self.b.view(self.batch, self.k, self.n),
            self.d.view(self.batch, self.m, self.n),
        )


def is_off(address: int, shape: Sequence[int], strides: Sequence[int], item: int) -> bool:
    """Return whether a matrix is off 16 bytes: its address, or a stride from line to line.

    Parameters
    ----------
    address : int
        The address of the first element, in bytes.
    shape, strides : sequence of int
        Strides in elements. Of a dimension of one element the stride means nothing.
    item : int
        The bytes of an element.
    """
    steps = [
        stride for extent, stride in zip(shape, strides, strict=True) if extent > 1 and stride != 1
    ]
    return any(x % ALIGNMENT for x in (address, *(step * item for step in steps)))


def sets_to_rotate(nbytes: int, l2_bytes: int) -> int:
    """Return the number of sets of operands, ``nbytes`` each, that are used in turn.

    The sets together take twice the L2 cache, so that no input is still there from the time before;
    they are at most 64.
    """
    return max(1, min(MOST_SETS, math.ceil(2 * l2_bytes / nbytes)))


SQUARES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# Weights of language models, rows by columns, and the tokens that are multiplied by them.
WEIGHTS = (
    (6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (57344, 8192), (8192, 28672),
)  # fmt: skip
TOKENS = (1, 16, 64, 128, 512, 2048, 8192)

# Neither sizes nor addresses that fit: what slices, vocabularies and data sets bring along.
_OFF_16_BYTES = (
    Shape(127, 129, 131),
    Shape(511, 511, 511, COLUMNS, COLUMNS),
    Shape(777, 333, 555),
    Shape(1001, 1001, 1001),
    Shape(2047, 2049, 2051, COLUMNS, ROWS),
    Shape(3001, 3001, 3001),
    Shape(4095, 4097, 4099),
    Shape(4095, 4097, 4099, ROWS, COLUMNS),
    Shape(4096, 4096, 4096, Storage(padding=1, offset=1), ROWS),  # x[:, 1:]
    Shape(4096, 4096, 4096, ROWS, Storage(padding=8, offset=1)),  # y[:, 1:-7]
    Shape(1, 4096, 4095, ROWS, COLUMNS),
    Shape(17, 8191, 4097, ROWS, COLUMNS),
    Shape(8191, 63, 8193),
    Shape(257, 257, 65537),
    Shape(65537, 17, 1023, COLUMNS, ROWS),
    Shape(255, 257, 129, batch=32),
)
# Deep, thin and wide ones; sizes of whole 16 bytes, but of no whole tile; each layout; batches.
_AT_16_BYTES = (
    Shape(256, 256, 65536),
    Shape(64, 64, 262144, ROWS, COLUMNS),
    Shape(8192, 64, 8192),
    Shape(65536, 16, 1024),
    Shape(8192, 8192, 16, ROWS, COLUMNS),
    Shape(16, 32768, 2048),
    Shape(1, 8192, 8192),
    Shape(1000, 1000, 1000, COLUMNS, ROWS),
    Shape(3000, 5000, 1000),
    Shape(4104, 4104, 4104),
    Shape(4160, 4160, 4160, ROWS, COLUMNS),
    Shape(2048, 2048, 2048, COLUMNS, COLUMNS),
    Shape(4096, 4096, 4096, COLUMNS, ROWS),
    Shape(4096, 4096, 4096, Storage(padding=64), Storage(padding=8)),
    Shape(2048, 2048, 2048, is_wide=True),
    Shape(512, 512, 128, batch=64),
    Shape(512, 128, 512, Storage(is_shared=True), ROWS, batch=64),
)

# A few rows or columns, and a matrix that is read once, its lines along k or across; dot products.
_ACROSS = ((1024, 1024), (4095, 4096), (8192, 8192), (768, 50257))
_WIDE = ((512, 512), (1024, 1024), (4096, 4095), (8192, 8192), (50257, 768), (65536, 64))
_DEEP = ((1, 1, 10_000_000), (4, 4, 1_000_000), (1, 16, 100_000), (1, 64, 262144), (8, 512, 65536))
_THIN = (
    *(Shape(m, n, k, ROWS, COLUMNS) for n, k in _WIDE for m in (1, 2, 4, 8)),
    *(Shape(m, n, k, ROWS, COLUMNS) for m, n, k in _DEEP),
    *(Shape(m, n, k) for n, k in _ACROSS for m in (1, 2, 8)),
    Shape(4096, 1, 4096),
    Shape(4096, 1, 4096, COLUMNS),
    Shape(50257, 3, 768),
    Shape(512, 1, 2048, batch=32),
)

RANDOM_SIZES = 64, 12288  # the least and the largest size that are drawn


@dataclass(frozen=True)
class Random:
    """Products drawn at random. Judge a planner by seeds that its models were not fitted to.

    Attributes
    ----------
    count : int
        The number of products, at least 1.
    seed : int
        The same seed draws the same products.
    multiple : int
        The number that divides all sizes.

    Raises
    ------
    ValueError
        If one of them is not as it must be.
    """

    count: int
    seed: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}; it takes at least one product")
        if not 1 <= self.multiple <= RANDOM_SIZES[0]:
            raise ValueError(f"multiple is {self.multiple}; it takes 1 to {RANDOM_SIZES[0]}")

    @property
    def name(self) -> str:
        """The name for records."""
        of = "any sizes" if self.multiple == 1 else f"multiples of {self.multiple}"
        return f"random, {of}, seed {self.seed}"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the products: each size log-uniform, A and B by rows or by columns."""
        drawn = random.Random(self.seed)
        low, high = (math.log(size) for size in RANDOM_SIZES)
        least = -(-RANDOM_SIZES[0] // self.multiple)
        most = RANDOM_SIZES[1] // self.multiple

        def size() -> int:
            count = round(math.exp(drawn.uniform(low, high)) / self.multiple)
            return min(max(count, least), most) * self.multiple

        found = []
        for _ in range(self.count):
            m, n, k = size(), size(), size()
            found.append(Shape(m, n, k, *(drawn.choice((ROWS, COLUMNS)) for _ in range(2))))
        return tuple(found)


SUITES: dict[str, tuple[Shape, ...]] = {
    "square": tuple(Shape(n, n, n) for n in sorted((*SQUARES, 1000, 3000, 5000))),
    "llm": tuple(Shape(m, n, k, ROWS, COLUMNS) for n, k in WEIGHTS for m in TOKENS),
    "odd": (*_OFF_16_BYTES, *_AT_16_BYTES),
    "thin": _THIN,
}
REAL_SUITES = ("square", "odd", "thin")  # the suites that float32 and float64 are measured by
