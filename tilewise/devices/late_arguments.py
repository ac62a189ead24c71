"""Bind the arguments of a launch that is prepared once and gets its addresses when enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.devices.arguments import (
    TENSOR_MAP_ALIGNMENT,
    TENSOR_MAP_BYTES,
    ArrayArgument,
    bind,
    holds_address,
    type_in_words,
)
from tilewise.places import Packed, Place, TensorMap

if TYPE_CHECKING:
    from tilewise.compiler import Parameter

Places = tuple[tuple[int, Place], ...]
"""The addresses in a value that are known later, each with its offset there in bytes."""


def bind_later(
    symbol: str, parameters: Sequence[Parameter], args: Sequence[Any]
) -> list[tuple[bytes, Places]]:
    """Bind the arguments of a launch whose addresses are known later.

    Parameters
    ----------
    symbol : str
        The kernel's name, for the messages.
    parameters : sequence of Parameter
    args : sequence
        What :func:`tilewise.devices.arguments.bind` takes, except arrays; and
        :class:`tilewise.places.Place`, ``Packed`` and ``TensorMap``, whose bytes are 0 until then.

    Returns
    -------
    list of (bytes, places)
        One a parameter: its value, and the addresses in it, each with its offset there.

    Raises
    ------
    TypeError, ValueError
        As :func:`tilewise.devices.arguments.bind`; or if an argument is an array, if a place is
        given for a parameter that is no address, or if one in a structure lies beyond its end or
        not at a multiple of 8 bytes (64 for a tensor map).
    """
    usual = _bind_usual(parameters, args)
    if usual is not None:
        return usual
    later = [_with_places(arg) for arg in args]
    bound = bind(symbol, parameters, [value for value, _ in later])
    out = []
    for index, (argument, (_, places)) in enumerate(zip(bound, later, strict=True)):
        where = f"{symbol}, argument {index} ({argument.parameter.type})"
        if isinstance(argument, ArrayArgument):
            raise TypeError(f"{where}: a launch that is not waited for takes addresses, no arrays")
        if isinstance(args[index], Place) and not holds_address(argument.parameter):
            raise TypeError(f"{where}: takes {type_in_words(argument.parameter)}, not an address")
        for offset, _ in places:
            if not _fits_address(offset, argument.parameter.size):
                raise ValueError(
                    f"{where}: an address can't stand at byte {offset:,} of "
                    f"{len(argument.data):,}; it takes a multiple of 8, and 8 bytes"
                )
        maps = args[index].maps if isinstance(args[index], Packed) else ()
        for offset, _ in maps:
            if not _fits_map(offset, argument.parameter.size):
                raise ValueError(
                    f"{where}: a tensor map can't stand at byte {offset:,} of "
                    f"{len(argument.data):,}; it takes a multiple of "
                    f"{TENSOR_MAP_ALIGNMENT}, and {TENSOR_MAP_BYTES} bytes"
                )
        out.append((argument.data, places))
    return out


_NULL, _NO_MAP = bytes(8), bytes(TENSOR_MAP_BYTES)
_BOUNDS = {
    f"{kind}{bits}": (-(1 << (bits - 1)), (1 << bits) - 1)
    for kind in "us"
    for bits in (8, 16, 32, 64)
}


def _bind_usual(
    parameters: Sequence[Parameter], args: Sequence[Any]
) -> list[tuple[bytes, Places]] | None:
    """Bind integers, places, structures and tensor maps that fit, which takes less time.

    Return None if an argument is something else or does not fit: then :func:`bind_later` says why.
    """
    if len(args) != len(parameters):
        return None
    out: list[tuple[bytes, Places]] = []
    for parameter, value in zip(parameters, args, strict=True):
        kind, size = type(value), parameter.size
        if kind is int:
            low, high = _BOUNDS.get(parameter.type, (0, -1))
            if not low <= value <= high:
                return None
            out.append(((value & high).to_bytes(size, "little"), ()))
        elif kind is TensorMap:
            if parameter.type != "b8" or size != TENSOR_MAP_BYTES:
                return None
            out.append((_NO_MAP, ((0, value.place),)))
        elif kind is Place:
            if not holds_address(parameter):
                return None
            out.append((_NULL, ((0, value),)))
        elif kind is Packed:
            data, places, maps = value
            if parameter.type != "b8" or type(data) is not bytes or len(data) != size:
                return None
            for offset, _ in places:
                if not _fits_address(offset, size):
                    return None
            for offset, x in maps:
                if not _fits_map(offset, size):
                    return None
                places = (*places, (offset, x.place))
            out.append((data, places))
        else:
            return None
    return out


def _fits_address(offset: int, size: int) -> bool:
    return offset % 8 == 0 and 0 <= offset <= size - 8


def _fits_map(offset: int, size: int) -> bool:
    return offset % TENSOR_MAP_ALIGNMENT == 0 and 0 <= offset <= size - TENSOR_MAP_BYTES


def _with_places(value: Any) -> tuple[Any, Places]:
    """Return the value to pass to :func:`bind` in place of ``value``, and the addresses in it."""
    if isinstance(value, Place):
        return 0, ((0, value),)
    if isinstance(value, Packed):
        return value.data, (*value.places, *((offset, x.place) for offset, x in value.maps))
    if isinstance(value, TensorMap):
        return bytes(TENSOR_MAP_BYTES), ((0, value.place),)
    return value, ()
