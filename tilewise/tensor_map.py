"""Make tensor maps of arrays, for kernels that copy boxes of them by TMA, and check their rules.

The rules are those of ``cuTensorMapEncodeTiled`` (CUDA driver API, "Tensor Map Object Management"),
for which the driver returns the same error code for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from tilewise.places import Place, TensorMap
from tilewise.shown import plural

ITEM_SIZES = {
    "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float32_ftz": 4, "tfloat32": 4, "tfloat32_ftz": 4,
}  # fmt: skip
"""The bytes of an element, by the dtypes that a tensor map may have."""

SWIZZLES = {
    "none": 0, "32B": 32, "64B": 64, "128B": 128,
    "128B_ATOM_32B": 128, "128B_ATOM_32B_FLIP_8B": 128, "128B_ATOM_64B": 128,
}  # fmt: skip
"""The most bytes of the contiguous side of a box, by its swizzle; 0 for any number."""

PROMOTIONS = (0, 64, 128, 256)
FILLS = ("zeros", "nan")
PIECE = 16  # bytes: the unit of a bulk copy
MOST_DIMENSIONS, MOST_BOX, MOST_STEP = 5, 256, 8
_LARGEST_EXTENT, _LARGEST_STRIDE = 2**32, 2**40

_SAME_BITS = {"int8": "uint8", "bool": "uint8", "int16": "uint16"}
"""The dtypes with the same bits, for NumPy's dtypes that tensor maps lack."""


@dataclass(frozen=True)
class MappedArray:
    """An array, and the tensor map of it that a kernel is given.

    It is an argument of :meth:`tilewise.Kernel.launch` for a parameter that is a ``CUtensorMap`` by
    value, or a pointer to one. :func:`tensor_map` makes it.

    Attributes
    ----------
    array : array
        A NumPy array, or an array on the device.
    map : TensorMap
        The tensor map of its elements; its place is not used.
    """

    array: Any
    map: TensorMap

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.map.extents[::-1]

    @property
    def dtype(self) -> str:
        """The dtype that the map gives the elements."""
        return self.map.dtype


def tensor_map(
    array: Any,
    box: int | Sequence[int],
    *,
    swizzle: str = "none",
    dtype: str | None = None,
    element_strides: int | Sequence[int] = (),
    promotion: int = 128,
    fill: str = "zeros",
    interleave: str = "none",
) -> MappedArray:
    """Return the tensor map of an array, for a kernel that copies boxes of it by TMA.

    Parameters
    ----------
    array : array
        An array of one to five dimensions, the last of them contiguous, with strides of the others
        that are multiples of 16 bytes: a NumPy array or strided view, or an array on the device.
    box : int or sequence of int
        The elements along each dimension that one copy covers, 1 to 256, in the array's order. PTX
        and the driver count the dimensions the other way round: a copy's first coordinate is the
        index along the array's last axis.
    swizzle : str
        The swizzle of the box's 16-byte pieces in shared memory: ``"none"``, ``"32B"``, ``"64B"``
        or ``"128B"``; or ``"128B_ATOM_32B"``, ``"128B_ATOM_32B_FLIP_8B"`` or ``"128B_ATOM_64B"``,
        for compute capability 10.0.
    dtype : str, optional
        The dtype that the map gives the elements, of the same size as the array's: for example
        ``"bfloat16"`` for an array of ``uint16``. By default it is the array's own.
    element_strides : int or sequence of int, optional
        The step between copied elements along each dimension, 1 to 8, in the array's order. The
        last one has to be 1.
    promotion : int
        The least bytes that the L2 cache fetches at once: 0, 64, 128 or 256.
    fill : str
        The value that a load gives outside the array: ``"zeros"``, or ``"nan"`` for elements that
        are floating-point numbers.
    interleave : str
        ``"none"``; tilewise has no interleaved layouts.

    Returns
    -------
    MappedArray
        The argument for ``args`` of :meth:`tilewise.Kernel.launch`.

    Raises
    ------
    TypeError
        If ``array`` is not an array, or ``box`` or ``element_strides`` has a value that is not an
        integer.
    ValueError
        If ``cuTensorMapEncodeTiled`` would refuse the map; the message says which rule it breaks.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> a = np.zeros((512, 256), np.float16)
    >>> tilewise.tensor_map(a, box=(128, 64), swizzle="128B").map.box
    (64, 128)
    """
    shape, strides, name, size = _layout(array)
    wanted = name if dtype is None else dtype
    if wanted not in ITEM_SIZES:
        hint = "; pass dtype=, or a view of another dtype" if dtype is None else ""
        raise ValueError(
            f"a tensor map has no elements of {wanted}; it takes {', '.join(ITEM_SIZES)}{hint}"
        )
    if ITEM_SIZES[wanted] != size:
        raise ValueError(
            f"dtype {wanted} has {plural(ITEM_SIZES[wanted], 'byte')}, the array's elements, of "
            f"{name}, have {size}; pass array.view(...) of a dtype of that size"
        )
    if not 1 <= len(shape) <= MOST_DIMENSIONS:
        raise ValueError(
            f"the array has {plural(len(shape), 'dimension')}; a tensor map has 1 to "
            f"{MOST_DIMENSIONS}"
        )
    if 0 in shape:
        raise ValueError(f"the array of shape {shape} has no elements; a tensor map needs some")
    if shape[-1] > 1 and strides[-1] != size:
        raise ValueError(
            f"the array's last axis steps by {plural(strides[-1], 'byte')}, not by its element's "
            f"{size}: the contiguous axis has to be the last; pass array.T, or "
            "numpy.ascontiguousarray(array)"
        )
    if interleave != "none":
        raise ValueError(
            f"interleave is {interleave!r}; tilewise has no interleaved layouts, only 'none'"
        )
    steps = _integers(element_strides, "element_strides")
    # The stride of an axis with one element is never used, but has to be valid.
    apart = [s if n > 1 else PIECE for n, s in zip(shape[:-1], strides[:-1], strict=True)]
    found = TensorMap(
        Place(0), wanted, shape[::-1], tuple(apart[::-1]), _integers(box, "box")[::-1], promotion,
        swizzle, steps[::-1] if set(steps) - {1} else (), fill,
    )  # fmt: skip
    if steps and len(steps) != len(shape):
        raise ValueError(
            f"element_strides has {plural(len(steps), 'number')} for "
            f"{plural(len(shape), 'dimension')}"
        )
    check(found)
    return MappedArray(array, found)


def fits(x: TensorMap, address: int) -> bool:
    """Return whether a map's extents and strides, and its address, keep to the rules.

    These three differ from array to array. The rules for the rest of a map, which the maps of one
    kernel share, are left to :func:`check`, which takes several times as long. ``TensorMaps``
    checks the rest once for each kind.

    Parameters
    ----------
    x : TensorMap
    address : int
        The address of its first element.
    """
    rank = len(x.box)
    if len(x.extents) != rank or len(x.strides) != rank - 1 or address % PIECE:
        return False
    if not (min(x.extents) > 0 and max(x.extents) <= _LARGEST_EXTENT):
        return False
    for stride in x.strides:  # noqa: SIM110 - all() takes longer
        if stride % PIECE or not 0 <= stride < _LARGEST_STRIDE:
            return False
    return True


def check(x: TensorMap, address: int = 0) -> None:
    """Raise ValueError if the driver would refuse a map, saying why.

    Parameters
    ----------
    x : TensorMap
    address : int
        The address of its first element.
    """
    for is_right, rule in _rules(x, address):
        if not is_right:
            at = f" at {address:#x}" if address else ""
            raise ValueError(f"there is no tensor map{at} of {_described(x)}: it takes {rule}")


def _described(x: TensorMap) -> str:
    words = f"{x.extents} {x.dtype}, strides {x.strides} bytes, box {x.box}, swizzle {x.swizzle!r}"
    if x.element_strides:
        words += f", element strides {x.element_strides}"
    return f"{words} (the contiguous dimension first)"


def _rules(x: TensorMap, address: int) -> Iterator[tuple[bool, str]]:
    """Yield whether a map keeps to each rule, and the rule."""
    rank = len(x.extents)
    yield x.dtype in ITEM_SIZES, f"a dtype of {', '.join(ITEM_SIZES)}"
    yield 1 <= rank <= MOST_DIMENSIONS, f"1 to {MOST_DIMENSIONS} dimensions"
    yield len(x.box) == rank, f"a box of as many dimensions as the array's {rank}"
    yield len(x.strides) == rank - 1, f"{rank - 1} strides"
    item = ITEM_SIZES[x.dtype]
    width = x.box[0] * item
    most = SWIZZLES.get(x.swizzle)
    steps = x.element_strides or (1,) * rank
    yield (
        all(1 <= n <= MOST_BOX for n in x.box),
        f"a box of 1 to {MOST_BOX} elements along each dimension",
    )
    yield (
        width % PIECE == 0,
        f"a box whose contiguous side is a multiple of {PIECE} bytes, not {width}",
    )
    yield x.promotion in PROMOTIONS, f"a promotion of {', '.join(map(str, PROMOTIONS))} bytes"
    yield (
        all(1 <= n <= _LARGEST_EXTENT for n in x.extents),
        "extents of 1 to 2**32 elements",
    )
    yield (
        all(s % PIECE == 0 and 0 <= s < _LARGEST_STRIDE for s in x.strides),
        f"strides that are multiples of {PIECE} bytes, from 0 to below 2**40",
    )
    yield most is not None, f"a swizzle of {', '.join(SWIZZLES)}"
    yield (
        not most or width <= most,
        f"with swizzle {x.swizzle!r}, a box whose contiguous side is at most {most} bytes, not "
        f"{width}",
    )
    yield (
        len(steps) == rank and all(1 <= n <= MOST_STEP for n in steps),
        f"element strides of 1 to {MOST_STEP}, one a dimension",
    )
    yield steps[0] == 1, "an element stride of 1 along the contiguous dimension"
    yield x.fill in FILLS, f"a fill of {', '.join(FILLS)}"
    yield x.fill != "nan" or "float" in x.dtype, "a fill of zeros, for elements that are no floats"
    yield address % PIECE == 0, f"an address that is a multiple of {PIECE} bytes"


def _layout(array: Any) -> tuple[tuple[int, ...], tuple[int, ...], str, int]:
    """Return an array's shape, strides in bytes, dtype's name, and bytes of an element."""
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"a tensor map is made of an array, not of a {type(array).__name__}")
    shape = tuple(int(n) for n in array.shape)
    name = str(array.dtype).rpartition(".")[2]  # PyTorch's is "torch.float16"
    name = "uint8" if name.startswith("float8") else _SAME_BITS.get(name, name)
    size = getattr(array.dtype, "itemsize", 0) or ITEM_SIZES.get(name, 0)
    if callable(getattr(array, "stride", None)):  # PyTorch counts in elements
        strides = tuple(int(n) * size for n in array.stride())
    elif getattr(array, "strides", None) is not None:
        strides = tuple(int(n) for n in array.strides)
    else:
        raise TypeError(f"a {type(array).__name__} does not say its strides; pass NumPy's array")
    if any(n > 1 and s < 0 for n, s in zip(shape, strides, strict=True)):
        raise ValueError(f"the array's strides are {strides} bytes; a tensor map has none below 0")
    return shape, strides, name, int(size)


def _integers(value: int | Sequence[int], what: str) -> tuple[int, ...]:
    """Return an integer, or a sequence of integers, as a tuple."""
    given = tuple(value) if isinstance(value, Iterable) else (value,)
    for each in given:
        if isinstance(each, bool) or not hasattr(each, "__index__"):
            raise TypeError(f"{what} is {value!r}; {each!r} is no integer")
    return tuple(index(each) for each in given)
