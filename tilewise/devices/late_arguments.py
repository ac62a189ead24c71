"""Bind the arguments of a launch that is prepared once and gets its addresses when enqueued."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Words(NamedTuple):
    """The arguments of a launch as words of 8 bytes.

    Attributes
    ----------
    data : bytes
        Each value in turn, which starts at a whole word.
    first : sequence of int
        The word at which each value begins.
    places : list of (int, Place)
        The addresses that are known later, each with its word; those of tensor maps too.
    maps : list of (int, TensorMap)
        The tensor maps, each with its first word.
    """

    data: bytes
    first: Sequence[int]
    places: list[tuple[int, Place]]
    maps: list[tuple[int, TensorMap]]


def bind_words(symbol: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> Words:
    """Bind the arguments of a launch as :func:`bind_later` does, and return them as words.

    Parameters
    ----------
    symbol, parameters, args
        The arguments of :func:`bind_later`.

    Raises
    ------
    TypeError, ValueError
        As :func:`bind_later`.
    """
    usual = _usual_words(parameters, args)
    if usual is not None:
        return usual
    padded, first, words = [], [], 0
    places: list[tuple[int, Place]] = []
    maps: list[tuple[int, TensorMap]] = []
    for value, (data, found) in zip(args, bind_later(symbol, parameters, args), strict=True):
        first.append(words)
        places += ((words + offset // 8, place) for offset, place in found)
        of_value = value.maps if isinstance(value, Packed) else ()
        if isinstance(value, TensorMap):
            of_value = ((0, value),)
        maps += ((words + offset // 8, x) for offset, x in of_value)
        length = -(-len(data) // 8)
        padded.append(data.ljust(8 * length, b"\0"))
        words += length
    return Words(b"".join(padded), first, places, maps)


FORMS = 4096  # the forms that are kept
_NO_MAP = bytes(TENSOR_MAP_BYTES)
_CHARACTERS = {
    "u8": "B", "s8": "b", "u16": "H", "s16": "h", "u32": "I", "s32": "i", "u64": "Q", "s64": "q",
}  # fmt: skip
"""The characters of ``struct`` for integers, by their PTX types."""


class _Form(NamedTuple):
    """The way in which arguments of some types become words, for the parameters of a kernel.

    Attributes
    ----------
    pack : callable
        The function of a ``struct.Struct`` that returns the words.
    first : tuple of int
        As in :class:`Words`.
    others : tuple of (int, type, int, int)
        The arguments that are no integers: the index of each, its type, the word at which it
        begins, and the bytes of its parameter.
    """

    pack: Callable[..., bytes]
    first: tuple[int, ...]
    others: tuple[tuple[int, type, int, int], ...]


_forms: dict[tuple[int, tuple[type, ...]], tuple[Sequence[Parameter], _Form | None]] = {}
"""The forms by the parameters' identity, which nothing else has while they are kept here too."""


def _form_of(parameters: Sequence[Parameter], kinds: tuple[type, ...]) -> _Form | None:
    """Return the form for arguments of these types; None if not all are of the usual ones."""
    key = id(parameters), kinds
    found = _forms.get(key)
    if found is None:
        found = parameters, _new_form(parameters, kinds)
        if len(_forms) >= FORMS:
            _forms.clear()
        _forms[key] = found
    return found[1]


def _new_form(parameters: Sequence[Parameter], kinds: tuple[type, ...]) -> _Form | None:
    if len(parameters) != len(kinds):
        return None
    format, first, words = "<", [], 0
    others: list[tuple[int, type, int, int]] = []
    for index, (parameter, kind) in enumerate(zip(parameters, kinds, strict=True)):
        size = parameter.size
        character = ""
        if kind is int:
            character = _CHARACTERS.get(parameter.type, "")
        elif kind is Place and holds_address(parameter):
            character = "Q"
        elif parameter.type == "b8" and (
            kind in (Packed, bytes) or (kind is TensorMap and size == TENSOR_MAP_BYTES)
        ):
            character = f"{size}s"
        if not character:
            return None
        if kind is not int:
            others.append((index, kind, words, size))
        first.append(words)
        format += f"{character}{-size % 8}x"
        words += -(-size // 8)
    return _Form(struct.Struct(format).pack, tuple(first), tuple(others))


def _usual_words(parameters: Sequence[Parameter], args: Sequence[Any]) -> Words | None:
    """Bind integers, places, structures and tensor maps that fit, which are most arguments.

    Return None if an argument is something else or does not fit: :func:`bind_later` then says why.
    This path is the faster one: ``bind_later`` alone checks and converts argument by argument, and
    the first call of each new shape would wait for that.
    """
    form = _form_of(parameters, tuple(map(type, args)))
    if form is None:
        return None
    values = [*args]
    places: list[tuple[int, Place]] = []
    maps: list[tuple[int, TensorMap]] = []
    for index, kind, word, size in form.others:
        value = values[index]
        if kind is Packed:
            data, at, held = value
            if type(data) is not bytes or len(data) != size:
                return None
            values[index] = data
            for offset, place in at:
                if not _fits_address(offset, size):
                    return None
                places.append((word + offset // 8, place))
            for offset, x in held:
                if not _fits_map(offset, size):
                    return None
                places.append((word + offset // 8, x.place))
                maps.append((word + offset // 8, x))
        elif kind is TensorMap:
            values[index] = _NO_MAP
            places.append((word, value.place))
            maps.append((word, value))
        elif kind is Place:
            values[index] = 0
            places.append((word, value))
        elif len(value) != size:
            return None
    try:
        return Words(form.pack(*values), form.first, places, maps)
    except struct.error:  # an integer that does not fit
        return None


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
