"""Format a kernel's ``printf``: a format and a packed argument buffer become text.

NVRTC lowers ``printf`` to ``vprintf(format, buffer)``. The buffer holds the arguments one after
another, each at its natural alignment, after C's default promotions: an integer of 32 bits or less
takes four bytes, ``long long``, ``double`` and pointers take eight, ``float`` has become
``double``. The text is the one that the C library formats (glibc's, if C leaves a choice).

Source: CUDA C++ Programming Guide, "Formatted Output"; ISO C17 7.21.6.1.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewise.shown import plural

_SPEC = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\d*))?"
    rb"(?P<size>hh|h|ll|l)?(?P<type>[diouxXcsfFeEgGaAp%])"
)
_INTEGER_BYTES = {b"hh": 1, b"h": 2, b"l": ctypes.sizeof(ctypes.c_long), b"ll": 8}
_INTEGER_BYTES[b""] = 4


def format_printf(
    fmt: bytes,
    arguments: bytes,
    read_string: Callable[[int], bytes],
    most: int | None = None,
) -> str:
    """Return the text that ``printf`` writes.

    Parameters
    ----------
    fmt : bytes
        The format, without its closing zero.
    arguments : bytes
        The packed arguments; may be longer than the format needs.
    read_string : callable of int to bytes
        The bytes of the string at a generic address, without its closing zero, for ``%s``.
    most : int, optional
        Bytes that it may be long.

    Returns
    -------
    str
        Bytes that are not UTF-8 become U+FFFD.

    Raises
    ------
    ValueError
        If the format asks for more arguments than the buffer holds.
    OverflowError
        If the text is longer than ``most``; it is not made then.

    Notes
    -----
    What is not a conversion is written as it stands. To a GPU's ``printf`` that includes some of
    C's: the precision ``.*`` and the sizes ``j``, ``z`` and ``t`` (seen on an H200, driver 580).
    """
    reader = _Arguments(arguments)
    out = bytearray()
    for piece in _pieces(fmt):
        if isinstance(piece, bytes):
            out += piece
        else:
            spec = _Spec.read(piece, reader)
            if most is not None and max(spec.width, spec.precision or 0) > most - len(out):
                raise OverflowError(f"printf's text is longer than {most:,} bytes")
            out += _convert(spec, reader, read_string)
        if most is not None and len(out) > most:
            raise OverflowError(f"printf's text is longer than {most:,} bytes")
    return out.decode("utf-8", "replace")


def argument_places(fmt: bytes) -> list[tuple[int, int]]:
    """Return the first byte and the end of each packed argument that ``fmt`` takes."""
    reader = _Arguments(bytes(16 * (len(fmt) + 1)))
    for piece in _pieces(fmt):
        if not isinstance(piece, bytes):
            _convert(_Spec.read(piece, reader), reader, lambda address: b"")
    return reader.taken


def count_arguments(fmt: bytes) -> int:
    """Return the number of arguments that ``fmt`` takes, as the device's ``printf`` does.

    Source: CUDA C++ Programming Guide, "Formatted Output".
    """
    return sum(
        (piece["width"] == b"*") + 1 for piece in _pieces(fmt) if not isinstance(piece, bytes)
    )


def _pieces(fmt: bytes) -> Iterator[bytes | re.Match[bytes]]:
    """Yield the format's plain runs and its conversions, in order."""
    position = 0
    for match in _SPEC.finditer(fmt):
        if match.start() > position:
            yield fmt[position : match.start()]
        position = match.end()
        if match["type"] == b"%":
            yield b"%"
        else:
            yield match
    if position < len(fmt):
        yield fmt[position:]


class _Arguments:
    """Read the packed buffer from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.taken: list[tuple[int, int]] = []

    def _take(self, size: int) -> bytes:
        start = -(-self._position // size) * size
        self._position = start + size
        if self._position > len(self._data):
            raise ValueError(
                f"calls printf with a format that asks for {plural(size, 'byte')} of arguments at "
                f"offset {start:,}; the buffer has {len(self._data):,}"
            )
        self.taken.append((start, self._position))
        return self._data[start : self._position]

    def integer(self, size: int, signed: bool) -> int:
        # Narrow integers were promoted to int: four bytes are there, fewer count.
        raw = self._take(max(size, 4))
        return int.from_bytes(raw[:size], "little", signed=signed)

    def double(self) -> float:
        (value,) = struct.unpack("<d", self._take(8))
        return float(value)


@dataclass(frozen=True)
class _Spec:
    """One conversion, its ``*`` replaced by the number given."""

    flags: str
    width: int
    precision: int | None
    size: int
    type: str

    @classmethod
    def read(cls, match: re.Match[bytes], arguments: _Arguments) -> _Spec:
        flags = match["flags"].decode()
        width = (
            int(match["width"] or b"0")
            if match["width"] != b"*"
            else arguments.integer(4, signed=True)
        )
        if width < 0:  # C17 7.21.6.1 (5): a negative * is the flag - and a positive width
            flags, width = flags + "-", -width
        precision = match["precision"]
        return cls(
            flags,
            width,
            None if precision is None else int(precision or b"0"),
            _INTEGER_BYTES[match["size"] or b""],
            match["type"].decode(),
        )

    def pad(self, text: bytes, zeros_after: int | None = None) -> bytes:
        """Return ``text`` padded to the field; zeros go after ``zeros_after``, None for nowhere."""
        missing = self.width - len(text)
        if missing <= 0:
            return text
        if "-" in self.flags:
            return text + b" " * missing
        if "0" in self.flags and zeros_after is not None:
            return text[:zeros_after] + b"0" * missing + text[zeros_after:]
        return b" " * missing + text

    def sign(self, negative: bool) -> str:
        if negative:
            return "-"
        return "+" if "+" in self.flags else " " if " " in self.flags else ""


def _convert(spec: _Spec, arguments: _Arguments, read_string: Callable[[int], bytes]) -> bytes:
    if spec.type in "diouxX":
        return _integer(spec, arguments.integer(spec.size, signed=spec.type in "di"))
    if spec.type == "c":
        return spec.pad(bytes([arguments.integer(1, signed=False)]))
    if spec.type == "s":
        address = arguments.integer(8, signed=False)
        text = read_string(address) if address else b"(null)"
        return spec.pad(text[: spec.precision])
    if spec.type == "p":
        address = arguments.integer(8, signed=False)
        return spec.pad(f"{address:#x}".encode() if address else b"(nil)")
    return _floating(spec, arguments.double())


def _integer(spec: _Spec, value: int) -> bytes:
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(spec.type, "d"))
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0") if value or spec.precision else ""
    prefix = spec.sign(value < 0) if spec.type in "di" else ""
    if "#" in spec.flags:
        if spec.type == "o" and not digits.startswith("0"):
            digits = "0" + digits
        elif spec.type in "xX" and value:
            prefix = "0" + spec.type
    # A precision takes the flag 0 away from integers.
    return spec.pad((prefix + digits).encode(), len(prefix) if spec.precision is None else None)


def _floating(spec: _Spec, value: float) -> bytes:
    upper = spec.type.isupper()
    negative = struct.pack("<d", value)[7] >= 0x80
    prefix = spec.sign(negative)
    magnitude = abs(value)
    if magnitude != magnitude or magnitude == float("inf"):
        text = prefix + ("inf" if magnitude == magnitude else "nan")
        return spec.pad((text.upper() if upper else text).encode())
    if spec.type in "aA":
        prefix += "0x"
        digits = _hexadecimal(magnitude, spec.precision, "#" in spec.flags)
    else:
        alternate = "#" if "#" in spec.flags else ""
        precision = 6 if spec.precision is None else spec.precision
        digits = f"%{alternate}.{precision}{spec.type}" % magnitude
    text = prefix + digits
    return spec.pad((text.upper() if upper else text).encode(), len(prefix))


def _hexadecimal(magnitude: float, precision: int | None, point: bool) -> str:
    """Return a number as ``%a`` writes it, without sign and ``0x``."""
    bits = int.from_bytes(struct.pack("<d", magnitude), "little")
    exponent, fraction = bits >> 52, bits & (1 << 52) - 1
    significand = fraction | (1 << 52 if exponent else 0)
    power = max(exponent, 1) - 1023 if bits else 0
    if precision is None:
        digits = f"{fraction:013x}".rstrip("0")
    else:
        drop = 4 * max(13 - precision, 0)
        kept, rest = significand >> drop, significand & (1 << drop) - 1
        if drop and (rest > 1 << drop - 1 or (rest == 1 << drop - 1 and kept & 1)):
            kept += 1
        significand = kept << drop
        digits = f"{significand & (1 << 52) - 1:013x}".ljust(precision, "0")[:precision]
    dot = "." if digits or point else ""
    return f"{significand >> 52}{dot}{digits}p{power:+d}"
