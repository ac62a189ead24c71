"""Check a launch's arguments against the kernel's parameters, alike for all devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices import elements
from tilewise.devices.extents import extent
from tilewise.masked import is_masked
from tilewise.places import Encode, TensorMap
from tilewise.pointer import Pointer
from tilewise.shown import named_type, plural, shortened
from tilewise.tensor_map import MappedArray

if TYPE_CHECKING:
    from tilewise.compiler import Parameter

# The kinds of DLPack devices whose memory is the host's (dlpack.h, DLDeviceType).
_DLPACK_CPU = 1

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64  # CUDA driver API, CUtensorMap

_INTEGER_TYPES = frozenset(f"{kind}{bits}" for kind in "usb" for bits in (8, 16, 32, 64)) - {"b8"}
_FLOAT_TYPES: dict[str, Callable[[Any], np.generic]] = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


@dataclass(frozen=True)
class ScalarArgument:
    """A number, or a struct, by value.

    Attributes
    ----------
    parameter : Parameter
    data : bytes
        Little-endian, exactly ``parameter.size`` long.
    """

    parameter: Parameter
    data: bytes


@dataclass(frozen=True)
class ArrayArgument:
    """An array for a pointer, or for a tensor map.

    Attributes
    ----------
    parameter : Parameter
    value : numpy.ndarray or object
        A NumPy array, checked to be row-contiguous (:func:`tilewise.devices.extents.extent`), or an
        array on some device, which that device resolves.
    map : TensorMap or None
        The tensor map, if the parameter is a tensor map of the array, or the address of one; None
        if it is the array's address.
    offset : int
        The bytes from the array's first element to the one that a :class:`tilewise.Pointer` points
        to.
    """

    parameter: Parameter
    value: Any
    map: TensorMap | None = None
    offset: int = 0

    def data(self, address: int, encode: Encode, keep: Callable[[bytes], int]) -> bytes:
        """Return the parameter's bytes.

        Parameters
        ----------
        address : int
            The address of the array on the device.
        encode : callable
            A function that returns the bytes of a tensor map.
        keep : callable
            A function that copies a tensor map to the device's memory for the duration of the
            launch, and returns its address.

        Raises
        ------
        ValueError
            If the device does not take such a tensor map at that address.
        """
        if self.map is None:
            return (address + self.offset).to_bytes(8, "little")
        encoded = encode(self.map, address)
        if _is_struct(self.parameter):
            return encoded
        return keep(encoded).to_bytes(8, "little")


def bind(
    symbol: str, parameters: Sequence[Parameter], args: Sequence[Any]
) -> tuple[ScalarArgument | ArrayArgument, ...]:
    """Return an argument for each parameter, checked, and converted if it is a number.

    PTX does not say whether an integer is signed, whether 64 bits are a pointer, nor what it points
    to; the source does (:attr:`tilewise.compiler.Parameter.declared`). If even the source does not
    say it, an integer may be anything that fits either reading, and a 64-bit parameter takes an
    integer (a number or an address), ``None`` (the null pointer) or an array of any dtype.

    Parameters
    ----------
    symbol : str
        The kernel's name, for messages.
    parameters : sequence of Parameter
    args : sequence
        Python and NumPy numbers; NumPy arrays; arrays on a device (``__cuda_array_interface__``,
        DLPack, or tilewise's own); for a struct, any object with the buffer protocol and exactly
        its size; for a tensor map or a pointer to one, :class:`tilewise.MappedArray`; and
        :class:`tilewise.Pointer`.

    Raises
    ------
    TypeError
        If there are more or fewer arguments than parameters, or one is of another kind, or an
        array's dtype is not what the pointer points to (:mod:`tilewise.devices.elements`), or a
        NumPy array is masked.
    ValueError
        If a number does not fit its parameter, or a NumPy array is not row-contiguous.
    """
    if len(args) != len(parameters):
        wanted = "; ".join(type_in_words(parameter) for parameter in parameters) or "none"
        raise TypeError(
            f"{symbol} takes {plural(len(parameters), 'argument')}, not {len(args)}; "
            f"in order: {wanted}"
        )
    out = []
    for parameter, value in zip(parameters, args, strict=True):
        try:
            out.append(_bind_one(parameter, value))
        except (TypeError, ValueError) as error:
            kind = ValueError if isinstance(error, ValueError) else TypeError
            known = parameter.declared.lstrip("*") or parameter.type
            raise kind(f"{symbol}, argument {len(out)} ({known}): {error}") from None
    return tuple(out)


def holds_address(parameter: Parameter) -> bool:
    """Return whether the parameter can hold an address, as an integer of 64 bits."""
    return parameter.size == 8 and parameter.type in _INTEGER_TYPES


def takes_address(parameter: Parameter) -> bool:
    """Return whether an array may be passed: to a pointer, or an unsigned integer of its size."""
    is_number = parameter.declared in elements.SIGNED
    return holds_address(parameter) and not is_number


def type_in_words(parameter: Parameter) -> str:
    """Return what a parameter takes, in words, for messages."""
    bits = 8 * parameter.size
    if _is_struct(parameter):
        kind = "a struct"
        if (parameter.size, parameter.align) == (TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT):
            kind = "a tensor map (tilewise.tensor_map(array, box=...)) or another struct"
        return f"{kind} of {plural(parameter.size, 'byte')}"
    if parameter.type in _FLOAT_TYPES:
        return f"a {bits}-bit float"
    if bits == 64 and parameter.declared not in elements.SIGNED:
        return "an array or a 64-bit integer"
    return f"{'an' if bits == 8 else 'a'} {bits}-bit integer"


def _is_struct(parameter: Parameter) -> bool:
    """Return whether it is a struct, which alone NVRTC declares as an array of ``.b8``."""
    return parameter.type == "b8"


def _bind_one(parameter: Parameter, value: Any) -> ScalarArgument | ArrayArgument:
    if isinstance(value, MappedArray):
        return _bind_map(parameter, value)
    if isinstance(value, Pointer):
        bound = _bind_one(parameter, value.array)
        if not isinstance(bound, ArrayArgument):
            raise TypeError(f"takes {type_in_words(parameter)}, not a pointer")
        return replace(bound, offset=value.offset)
    if _is_struct(parameter):
        return ScalarArgument(parameter, _struct(parameter, value))
    if parameter.type in _FLOAT_TYPES:
        return ScalarArgument(parameter, _float(parameter, value))
    if parameter.type not in _INTEGER_TYPES:
        raise TypeError(f"a parameter of PTX type {parameter.type} is not supported")
    may_be_array = takes_address(parameter)
    if value is None and may_be_array:
        return ScalarArgument(parameter, bytes(8))
    if isinstance(value, np.generic) and _is_half(value) and parameter.size == 2:
        return ScalarArgument(parameter, value.tobytes())
    if parameter.type[0] == "b" and isinstance(value, (float, np.floating)):
        # PTX does not say what the bits are.
        bits = replace(parameter, type=f"f{8 * parameter.size}")
        if bits.type in _FLOAT_TYPES:
            return ScalarArgument(parameter, _float(bits, value))
    if isinstance(value, (int, np.integer, np.bool_)):
        return ScalarArgument(parameter, _integer(parameter, int(value)))
    if not may_be_array:
        raise TypeError(f"takes {type_in_words(parameter)}, not {described(value)}")
    _check_array(parameter, value)
    wanted = elements.refused(parameter.declared, getattr(value, "dtype", None))
    if wanted:
        raise TypeError(
            f"takes an array of {wanted}, not {described(value)}; convert it, or where "
            f"its bytes are to be read as {wanted}, pass its .view({wanted})"
        )
    return ArrayArgument(parameter, value)


def _bind_map(parameter: Parameter, value: MappedArray) -> ArrayArgument:
    """Return the argument for a tensor map by value, or for a pointer to one."""
    is_map = _is_struct(parameter) and parameter.size == TENSOR_MAP_BYTES
    is_pointer = (
        parameter.size == 8
        and parameter.type in _INTEGER_TYPES
        and not elements.is_known(parameter.declared)
    )
    if not is_map and not is_pointer:
        takes = parameter.declared.lstrip("*") or type_in_words(parameter)
        raise TypeError(
            f"takes {takes}, not a tensor map, which is for a CUtensorMap by value or a pointer to "
            "one"
        )
    _check_array(parameter, value.array)
    return ArrayArgument(parameter, value.array, value.map)


def _check_array(parameter: Parameter, value: Any) -> None:
    """Raise an error for an array that a kernel can't be given."""
    if not isinstance(value, np.ndarray):
        _check_device_array(parameter, value)
        return
    if is_masked(value):
        raise TypeError(
            f"{described(value)} has a mask, which a kernel knows nothing of; pass "
            "x.filled(0), or x.data for all that it holds"
        )
    extent(value)


def _integer(parameter: Parameter, value: int) -> bytes:
    bits = 8 * parameter.size
    low, high = elements.bounds(parameter.declared, bits)
    if not low <= value <= high:
        kind = parameter.declared.strip("*") or f"{bits} bits"
        raise ValueError(f"{shortened(value)} does not fit {kind}; it takes {low} to {high}")
    return (value & (1 << bits) - 1).to_bytes(parameter.size, "little")


def _float(parameter: Parameter, value: Any) -> bytes:
    is_real = isinstance(value, (int, float, np.integer, np.floating, np.bool_)) or (
        isinstance(value, np.generic) and _is_half(value)
    )
    if not is_real:
        raise TypeError(f"takes {type_in_words(parameter)}, not {described(value)}")
    try:
        exact = float(value)
        with np.errstate(over="ignore"):
            number = _FLOAT_TYPES[parameter.type](exact)
    except OverflowError:
        exact, number = 0.0, np.float64(np.inf)
    if np.isinf(number) and not np.isinf(exact):
        raise ValueError(f"{shortened(value)} is beyond the range of {type_in_words(parameter)}")
    # A float32 NaN keeps its payload only if it does not pass through Python's float.
    if isinstance(value, np.generic) and value.dtype == number.dtype:
        return value.tobytes()
    return number.tobytes()


def _is_half(value: np.generic) -> bool:
    """Return whether it is a 16-bit float: NumPy's, or bfloat16 as ml_dtypes registers it."""
    return value.dtype == np.float16 or value.dtype.name == "bfloat16"


def _struct(parameter: Parameter, value: Any) -> bytes:
    if isinstance(value, np.generic):
        data = value.tobytes()
    else:
        try:
            data = memoryview(value).tobytes()
        except TypeError:
            raise TypeError(
                f"takes {type_in_words(parameter)} (bytes, a NumPy record, a ctypes "
                f"structure), not {described(value)}"
            ) from None
    if len(data) != parameter.size:
        raise TypeError(f"takes {type_in_words(parameter)}, not one of {plural(len(data), 'byte')}")
    return data


def _check_device_array(parameter: Parameter, value: Any) -> None:
    ours = all(hasattr(value, name) for name in ("shape", "dtype", "to_numpy"))
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) == _DLPACK_CPU:
            raise TypeError(
                f"{described(value)} lies on the host, where only NumPy arrays are "
                "copied from; pass it as one (numpy.from_dlpack(x) shares its memory), or put it "
                "on the GPU"
            )
    # The attribute is read from the type, because PyTorch's raises if a tensor requires a gradient.
    elif not ours and not hasattr(type(value), "__cuda_array_interface__"):
        raise TypeError(f"takes {type_in_words(parameter)}, not {described(value)}")


def described(value: Any) -> str:
    """Return an argument in words, for a message."""
    kind = named_type(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        what = "an array on a device" if kind.startswith("a tilewise.") else kind
        return f"{what} of shape {tuple(value.shape)} and dtype {value.dtype}"
    return f"{value!r} ({kind.partition(' ')[2]})" if isinstance(value, (float, str)) else kind
