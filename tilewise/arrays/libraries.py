"""One interface to the arrays of NumPy, CuPy and PyTorch, none of which is imported before use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilewise.gemm.product import ALIGNMENT
from tilewise.masked import is_masked
from tilewise.places import ITEM_SIZES

Array = Any


class View(NamedTuple):
    """The place of an array's elements in memory.

    Attributes
    ----------
    pointer : int
        The address of the first element.
    shape : tuple of int
    strides : tuple of int
        The strides in elements, at least 0.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Library(Protocol):
    """A library of arrays.

    Attributes
    ----------
    name : str
    repeatable : tuple of type
        The types of arrays on a GPU that :meth:`signatures` describes completely.
    """

    name: str
    repeatable: tuple[type, ...]

    def check(self, x: Array, what: str) -> None:
        """Raise an error if the array ``what`` is of a kind that can't be multiplied."""
        ...

    def dtype_of(self, x: Array) -> str: ...

    def ordinal(self, x: Array) -> int | None:
        """Return the number of the GPU that the array lies on; None for the host."""
        ...

    def has_values(self, x: Array) -> bool:
        """Whether it has elements in a memory, and not only their shape and dtype."""
        ...

    def stream(self, ordinal: int, /) -> int:
        """Return the handle of the library's current stream."""
        ...

    def address(self, x: Array) -> int:
        """Return the address of the array's first element."""
        ...

    def view(self, x: Array) -> View | None:
        """Return the view; None for negative strides, strides of part elements, or misalignment."""
        ...

    def stand_in(self, x: Array) -> npt.NDArray[Any]:
        """Return a NumPy array at the same addresses, to compare them and not to read them."""
        ...

    def signatures(self, arrays: Sequence[Array]) -> tuple[Hashable, list[int]]:
        """Return what decides how arrays are used, except for their addresses, and the addresses.

        Raises
        ------
        Exception
            An error of any type, if an array's type is not in :attr:`repeatable`.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        """Return a new array in the same place as ``like``."""
        ...

    def maker(self, x: Array) -> Callable[[], Array]:
        """Return a function that makes new arrays on a GPU as :meth:`empty` made ``x``."""
        ...

    def contiguous(self, x: Array, shape: tuple[int, ...]) -> Array:
        """Return a C-contiguous copy, broadcast to ``shape``."""
        ...

    def cast(self, x: Array, dtype: str) -> Array: ...

    def current(self, x: Array) -> AbstractContextManager[object]:
        """Return a context in which the GPU that ``x`` lies on is the current one."""
        ...

    def sums_in_float32(self, x: Array) -> bool:
        """Return whether :meth:`product` of 16-bit arrays like ``x`` needs no casts to float32."""
        ...

    def product(self, a: Array, b: Array, sums: str) -> Array:
        """Return A B by the library, as :func:`numpy.matmul` has it, in the dtype of the sums."""
        ...

    def bits(self, x: Array) -> npt.NDArray[Any]:
        """Return an array on the host as NumPy's, in the same memory; 16-bit types are uint16."""
        ...


class _Arrays:
    """NumPy's arrays, and those of CuPy, which has the same interface."""

    def __init__(self, module: Any) -> None:
        self.name = str(module.__name__)
        self.repeatable: tuple[type, ...] = () if module is np else (module.ndarray,)
        self._module = module

    def check(self, x: Array, what: str) -> None:
        if is_masked(x):
            raise TypeError(f"{what} is a masked array; pass {what}.filled(0), or what it holds")
        if not x.dtype.isnative:
            raise TypeError(
                f"{what} has dtype {x.dtype}, not in this machine's byte order; pass "
                f"{what}.astype({what}.dtype.newbyteorder('='))"
            )
        if what == "out" and self._module is np and not x.flags.writeable:
            raise ValueError("out can't be written: it is read-only")

    def dtype_of(self, x: Array) -> str:
        return str(x.dtype.name)

    def ordinal(self, x: Array) -> int | None:
        return None if self._module is np else int(x.device.id)

    def has_values(self, x: Array) -> bool:
        return True

    def stream(self, ordinal: int) -> int:
        return int(self._module.cuda.get_current_stream(ordinal).ptr)

    def address(self, x: Array) -> int:
        return int(x.__array_interface__["data"][0] if self._module is np else x.data.ptr)

    def view(self, x: Array) -> View | None:
        size, pointer = x.itemsize, self.address(x)
        if pointer % size:
            return None
        strides = []
        for extent, stride in zip(x.shape, x.strides, strict=True):
            if extent > 1 and (stride < 0 or stride % size):
                return None
            strides.append(stride // size if extent > 1 else 0)
        return View(pointer, tuple(x.shape), tuple(strides))

    def stand_in(self, x: Array) -> npt.NDArray[Any]:
        if self._module is np:
            return np.asarray(x)
        return _stand_in(int(x.data.ptr), tuple(x.shape), tuple(x.strides), x.itemsize)

    def signatures(self, arrays: Sequence[Array]) -> tuple[Hashable, list[int]]:
        found, addresses = [], []
        for x in arrays:
            if type(x) not in self.repeatable:
                raise TypeError
            data = x.data
            address = data.ptr
            addresses.append(address)
            found.append((x.shape, x.strides, x.dtype, data.device_id, address % ALIGNMENT))
        return tuple(found), addresses

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        kind = like.dtype if like.dtype.name == dtype else np.dtype(dtype)
        if self._module is np:
            return np.empty(shape, kind)
        with self._module.cuda.Device(like.device.id):
            return self._module.empty(shape, kind)

    def maker(self, x: Array) -> Callable[[], Array]:
        make, shape, dtype = self._module.empty, x.shape, x.dtype
        ordinal, current = x.data.device_id, self._module.cuda.runtime.getDevice

        def again() -> Array:
            if current() == ordinal:
                return make(shape, dtype)
            with self._module.cuda.Device(ordinal):
                return make(shape, dtype)

        return again

    def contiguous(self, x: Array, shape: tuple[int, ...]) -> Array:
        copy = self.empty(shape, x.dtype.name, x)
        copy[...] = x
        return copy

    def cast(self, x: Array, dtype: str) -> Array:
        return x if x.dtype.name == dtype else x.astype(np.dtype(dtype))

    def current(self, x: Array) -> AbstractContextManager[object]:
        return nullcontext() if self._module is np else self._module.cuda.Device(x.device.id)

    def sums_in_float32(self, x: Array) -> bool:
        return False

    def product(self, a: Array, b: Array, sums: str) -> Array:
        return self.cast(a, sums) @ self.cast(b, sums)

    def bits(self, x: Array) -> npt.NDArray[Any]:
        plain = np.asarray(x)
        return plain.view(np.uint16) if plain.itemsize == 2 else plain


class _Torch:
    name = "torch"

    def __init__(self, module: Any) -> None:
        self._torch = module
        self.repeatable: tuple[type, ...] = (module.Tensor, module.nn.Parameter)
        # Since PyTorch 2.8, products of float16 on a GPU can have float32 results.
        self._has_out_dtype = hasattr(module.ops.aten.mm, "dtype")
        self._dtypes = {getattr(module, name): name for name in ITEM_SIZES}
        # Builds without CUDA have neither this function nor any stream. The public function takes 1
        # µs.
        raw = getattr(module._C, "_cuda_getCurrentRawStream", None)
        self.stream: Callable[[int], int] = raw or self._stream
        self.address: Callable[[Array], int] = module.Tensor.data_ptr
        # The graphs of inductor allocate by this function: on the current GPU, without the
        # dispatcher.
        guards = getattr(getattr(module._C, "_dynamo", None), "guards", None)
        self._empty_strided = getattr(guards, "_empty_strided_cuda", None)

    def check(self, x: Array, what: str) -> None:
        if x.is_nested:
            raise TypeError(
                f"{what} is a nested tensor; multiply its values, which are one dense tensor"
            )
        if x.layout != self._torch.strided or not (x.is_cuda or x.is_cpu or x.is_meta):
            raise TypeError(
                f"{what} is a {x.layout} tensor on {x.device}; dense ones on a CPU, a CUDA GPU or "
                "meta are supported"
            )
        if what == "out" and x.is_neg():
            raise TypeError("out is a lazily negated view (torch.Tensor.is_neg); pass another")
        if x.numel() and not (x.is_meta or x.data_ptr()):
            raise TypeError(f"{what} is a {type(x).__name__}, which holds no elements of its own")

    def dtype_of(self, x: Array) -> str:
        found = self._dtypes.get(x.dtype)
        return found or str(x.dtype).removeprefix("torch.")

    def ordinal(self, x: Array) -> int | None:
        return int(x.device.index) if x.is_cuda else None

    def has_values(self, x: Array) -> bool:
        return not x.is_meta

    def _stream(self, ordinal: int) -> int:
        return int(self._torch.cuda.current_stream(ordinal).cuda_stream)

    def view(self, x: Array) -> View | None:
        pointer = self.address(x)
        # A tensor may be lazily negated (torch.Tensor.is_neg): its memory then holds the opposite.
        if pointer % x.element_size() or x.is_neg():
            return None
        return View(pointer, tuple(x.shape), tuple(x.stride()))

    def stand_in(self, x: Array) -> npt.NDArray[Any]:
        size = x.element_size()
        strides = tuple(size * stride for stride in x.stride())
        return _stand_in(x.data_ptr(), tuple(x.shape), strides, size)

    def signatures(self, arrays: Sequence[Array]) -> tuple[Hashable, list[int]]:
        known, found, addresses = self.repeatable, [], []
        for x in arrays:
            if type(x) not in known:
                raise TypeError
            address = x.data_ptr()
            addresses.append(address)
            found.append((x.shape, x.stride(), x.dtype, x.device, x.is_neg(), address % ALIGNMENT))
        return tuple(found), addresses

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype), device=like.device)

    def maker(self, x: Array) -> Callable[[], Array]:
        shape, strides = tuple(x.shape), x.stride()
        if self._empty_strided is not None and x.is_cuda and self._torch.cuda.device_count() == 1:
            return partial(self._empty_strided, shape, strides, x.dtype)
        # This is faster than torch.empty, whose shape may be given in several ways.
        return partial(self._torch.empty_strided, shape, strides, dtype=x.dtype, device=x.device)

    def contiguous(self, x: Array, shape: tuple[int, ...]) -> Array:
        copy = self.empty(shape, self.dtype_of(x), x)
        copy.copy_(x)
        return copy

    def cast(self, x: Array, dtype: str) -> Array:
        return x.to(getattr(self._torch, dtype))

    def current(self, x: Array) -> AbstractContextManager[object]:
        return nullcontext()  # PyTorch's functions run where their tensors lie

    def sums_in_float32(self, x: Array) -> bool:
        # On GPUs before capability 8.0, tensor cores and cuBLAS take float16 but not bfloat16.
        is_half = x.dtype == self._torch.float16 and self.ordinal(x) is not None
        return is_half and self._has_out_dtype

    def product(self, a: Array, b: Array, sums: str) -> Array:
        if not self.sums_in_float32(a):
            return self.cast(a, sums) @ self.cast(b, sums)
        rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
        x, y = a if rows else a[None], b if columns else b[:, None]
        kind = self._torch.float32
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        if y.ndim == 2:  # one B for all: matrices A below one another
            found = self._torch.mm(x.flatten(0, -2), y, out_dtype=kind)
            return found.reshape((*batch, *rows, *columns))
        x, y = (each.expand(*batch, *each.shape[-2:]).flatten(0, -3) for each in (x, y))
        return self._torch.bmm(x, y, out_dtype=kind).reshape((*batch, *rows, *columns))

    def bits(self, x: Array) -> npt.NDArray[Any]:
        plain = x.detach()
        bits: npt.NDArray[Any] = (
            plain.view(self._torch.int16).numpy().view(np.uint16)
            if x.element_size() == 2
            else plain.numpy()
        )
        return bits


class _StandIn:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _stand_in(
    pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int
) -> npt.NDArray[Any]:
    if not all(shape):
        return np.empty(shape, f"V{size}")
    interface = {
        "data": (pointer, True),
        "shape": shape,
        "strides": strides,
        "typestr": f"|V{size}",
        "version": 3,
    }
    return np.asarray(_StandIn(interface))


_libraries: dict[str, Library] = {"numpy": _Arrays(np)}

repeatable: dict[type, Library] = {}
"""The libraries by the types of arrays seen so far that are :attr:`Library.repeatable`."""


def library_of(x: object) -> Library | None:
    """Return the library of an array; None if it belongs to no supported library."""
    library = repeatable.get(type(x))
    if library is not None:
        return library
    if isinstance(x, np.ndarray):
        return _libraries["numpy"]
    # A library that was never imported has made no array.
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(x, torch.Tensor):
        return _known("torch", _Torch, torch)
    if cupy is not None and isinstance(x, cupy.ndarray):
        return _known("cupy", _Arrays, cupy)
    return None


def _known(name: str, kind: Callable[[Any], Library], module: Any) -> Library:
    library = _libraries.get(name)
    if library is None:
        library = _libraries.setdefault(name, kind(module))
        repeatable.update(dict.fromkeys(library.repeatable, library))
    return library


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype, given as a string, a type, or NumPy's or PyTorch's dtype."""
    if isinstance(dtype, str) and dtype in ITEM_SIZES:
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        found: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        raise TypeError(f"out_dtype is {dtype!r}, which is no dtype") from None
    if not found.isnative:
        raise TypeError(f"out_dtype is {found.str!r}, not in this machine's byte order")
    return found.name
