"""The epilogue of a call: the caller's function, its operands, and its further results."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewise.arrays.libraries import Array, Library, library_of
from tilewise.epilogue import Traced
from tilewise.epilogue.remembered import remembered
from tilewise.gemm.fused import MOST
from tilewise.gemm.product import ORDERS
from tilewise.places import ITEM_SIZES
from tilewise.roundoff import scalar
from tilewise.shown import plural

TAKEN = frozenset(
    {
        "a", "b", "c", "alpha", "beta", "transpose_a", "transpose_b", "out", "out_dtype", "device",
        "max_gpu_memory", "epilogue", "pairs", "invariant",
    }
)  # fmt: skip
"""The names of the arguments of :func:`tilewise.matmul`, which no operand can have."""


class Fusion(NamedTuple):
    """A function of a call's product, element by element, that passed its checks.

    Attributes
    ----------
    function : Traced
    operands : tuple of array or float
        The operands in the function's order. Arrays broadcast to the result's shape; numbers are
        rounded to the dtype of the sums.
    outs : tuple of array or None
        The arrays that the results besides the first are stored to; None for a new array.
    """

    function: Traced
    operands: tuple[Array | float, ...]
    outs: tuple[Array | None, ...]

    @property
    def arrays(self) -> list[tuple[str, Array]]:
        """The operands that are arrays, with their names."""
        pairs = zip(self.function.operands, self.operands, strict=True)
        return [(name, x) for name, x in pairs if not isinstance(x, float)]

    def evaluated(self, library: Library, acc: Any, sums: str) -> tuple[Array, ...]:
        """Return the results in the dtype of the sums, computed by the arrays' own library.

        ``acc`` is an array of sums, or for a function of pairs a tuple of two arrays.
        """
        operands = [x if isinstance(x, float) else library.cast(x, sums) for x in self.operands]
        with np.errstate(all="ignore"):
            return self.function.evaluate(acc, operands)


class Asked(NamedTuple):
    """A function that was traced, and the operands that the caller gave, in the function's order.

    ``pairs`` is the layout of the columns of B for a function of pairs: one of
    :data:`tilewise.gemm.product.ORDERS`, or :data:`APART` for two arrays; else None.
    """

    function: Traced
    operands: tuple[Any, ...]
    pairs: str | None = None


class _Distinct(float):
    """A number that is equal to itself alone."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


NEGATIVE_ZERO = _Distinct(-0.0)
"""An operand of -0.0. It is equal to no other number, so its plan is not taken for that of 0.0."""

APART = "apart"
"""The layout of a product of pairs whose two matrices B are two arrays."""


def asked(
    epilogue: Callable[..., Any] | None,
    operands: Mapping[str, Any],
    b: Any = None,
    pairs: str | None = None,
    taken: Container[str] = TAKEN,
    caller: str = "matmul",
) -> Asked | None:
    """Trace a call's epilogue; return None if there is none.

    Parameters
    ----------
    epilogue, operands, b, pairs
        The arguments of :func:`tilewise.matmul`.
    taken : container of str
        The names that no operand can have, because they are arguments of the called function.
    caller : str
        The name of the called function.

    Raises
    ------
    TypeError
        If there are operands and no epilogue, or B is a tuple of anything but two matrices.
    ValueError
        If there are pairs and no epilogue, or B and ``pairs`` don't agree.
    TraceError
    """
    if type(b) is tuple:
        if len(b) != 2:
            raise TypeError(f"b is a tuple of {len(b)}; of pairs it is two matrices, (gate, up)")
        if b[0] is None or b[1] is None:
            raise TypeError(
                f"b[{int(b[0] is not None)}] is None; of pairs it is two matrices, (gate, up)"
            )
        if pairs is not None:
            raise ValueError(
                f"pairs is {pairs!r} and b two matrices; pairs says how the columns of one lie"
            )
        pairs = APART
    elif isinstance(b, list) and epilogue is not None:
        raise TypeError("b is a list; of pairs, two matrices are a tuple, (gate, up)")
    elif pairs is not None and pairs not in ORDERS:
        raise ValueError(f"pairs is {pairs!r}; it takes one of {', '.join(map(repr, ORDERS))}")
    if pairs is not None and epilogue is None:
        raise ValueError(
            "of pairs, an epilogue says what becomes of them, as "
            "epilogue=lambda gate, up: tilewise.silu(gate) * up"
        )
    if epilogue is None:
        if operands:
            raise TypeError(
                f"{caller}() got an unexpected keyword argument {next(iter(operands))!r}; operands "
                "are for an epilogue"
            )
        return None
    names = tuple(operands)
    function = remembered(epilogue, names, taken, pairs=pairs is not None)
    if function.operands == names:
        return Asked(function, tuple(operands.values()), pairs)
    return Asked(function, tuple([operands[name] for name in function.operands]), pairs)


def fusion(
    library: Library, asked: Asked | None, outs: Sequence[Array] | None, sums: str
) -> Fusion | None:
    """Check an epilogue's operands, except for their shapes; return None if there is no epilogue.

    Parameters
    ----------
    library : Library
        The library of the call's arrays.
    asked : Asked or None
    outs : sequence of array or None
        The arrays that the caller gave for all results; None for new arrays.
    sums : str
        The dtype of the sums.

    Raises
    ------
    TypeError, ValueError
    """
    results = 1 if asked is None else len(asked.function.results)
    if outs is not None and len(outs) != results:
        of = "without an epilogue there is" if asked is None else "the epilogue has"
        raise ValueError(f"out has {plural(len(outs), 'array')}; {of} {results}")
    if asked is None:
        return None
    names = asked.function.operands
    found = tuple(
        _operand(library, name, x, sums) for name, x in zip(names, asked.operands, strict=True)
    )
    numbers = sum(isinstance(x, float) for x in found)
    arrays = len(found) - numbers + results - 1
    if max(numbers, arrays) > MOST:
        raise ValueError(
            f"the epilogue has {plural(arrays, 'array')}, results besides the first included, "
            f"and {plural(numbers, 'number')}; it may have {MOST} of either"
        )
    return Fusion(
        asked.function, found, (None,) * (results - 1) if outs is None else tuple(outs[1:])
    )


def _operand(library: Library, name: str, x: Any, sums: str) -> Array | float:
    if isinstance(x, np.generic) and x.dtype.name in ITEM_SIZES:  # also a scalar of ml_dtypes
        x = float(x)
    if isinstance(x, float) and not math.isfinite(x):
        return math.nan if math.isnan(x) else x  # one NaN object, so that the plan is found again
    if isinstance(x, int | float | np.number):
        value = scalar(x, sums, name)  # type: ignore[arg-type]
        return value if value or math.copysign(1, value) > 0 else NEGATIVE_ZERO
    found = library_of(x)
    if found is None:
        raise TypeError(
            f"{name} is a {type(x).__qualname__}; an epilogue's operands are "
            "numbers, or arrays of the library of a and b"
        )
    if found is not library:
        raise TypeError(
            f"a is {library.name}'s and {name} is {found.name}'s; pass arrays of one library"
        )
    dtype = library.dtype_of(x)
    if dtype not in ITEM_SIZES:
        raise TypeError(f"{name} has dtype {dtype}; {', '.join(ITEM_SIZES)} are supported")
    return x


def check_shape(name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Raise ValueError if an operand does not broadcast to the result's shape."""
    try:
        is_right = np.broadcast_shapes(tuple(x.shape), shape) == shape
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}, which does not broadcast to the result's {shape}"
        )
