"""The emulator's printf against the C library's own, and against known lines."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import sys
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from tilewise.devices.emulator.instructions.printf import count_arguments, format_printf
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel

STRINGS = {0x10: b"one", 0x20: b"", 0x30: b"a longer string"}


def text(fmt: str, *arguments: tuple[str, object]) -> str:
    buffer = bytearray()
    for code, value in arguments:
        size = struct.calcsize(code)
        buffer += bytes(-len(buffer) % size) + struct.pack("<" + code, value)
    return format_printf(fmt.encode(), bytes(buffer), STRINGS.__getitem__)


@pytest.mark.parametrize(
    ("fmt", "arguments", "expected"),
    [
        ("plain 100%%\n", [], "plain 100%\n"),
        ("%d %i %u", [("i", -5), ("i", 7), ("I", 2**32 - 1)], "-5 7 4294967295"),
        ("%x %X %#x %o %#o", [("I", 255)] * 5, "ff FF 0xff 377 0377"),
        ("%d %lld %d", [("i", 1), ("q", -(2**60)), ("i", 2)], f"1 {-(2**60)} 2"),
        ("%hd %hhd %hu", [("i", 70000), ("i", 300), ("i", -1)], "4464 44 65535"),
        ("%5d|%-5d|%05d|%+d|% d|%.4d", [("i", 42)] * 6, "   42|42   |00042|+42| 42|0042"),
        ("%08.3d|%.0d|%+05d", [("i", 7), ("i", 0), ("i", 7)], "     007||+0007"),
        (
            "%f %.2f %e %g %G",
            [("d", 1234.5678)] * 5,
            "1234.567800 1234.57 1.234568e+03 1234.57 1234.57",
        ),
        ("%c%c", [("i", 65), ("i", 66 + 256)], "AB"),
        ("[%s] [%5s] [%-5s] [%.1s]", [("Q", 0x10)] * 4, "[one] [  one] [one  ] [o]"),
        ("%s|%s", [("Q", 0x20), ("Q", 0)], "|(null)"),
        ("%p %p", [("Q", 0x7F00), ("Q", 0)], "0x7f00 (nil)"),
        ("%*d|%-*d|", [("i", 4), ("i", 1), ("i", 3), ("i", 2)], "   1|2  |"),
        ("%.*f %zd %d", [("i", 4)], "%.*f %zd 4"),
        ("%*d|", [("i", -4), ("i", 1)], "1   |"),
        (
            "%a %.1a %A",
            [("d", 1.5), ("d", 1.96875), ("d", 0.1)],
            "0x1.8p+0 0x2.0p+0 0X1.999999999999AP-4",
        ),
        (
            "%05f %-6fx %F",
            [("d", float("inf")), ("d", float("nan")), ("d", -float("inf"))],
            "  inf nan   x -INF",
        ),
        ("%+.1f %+.1f", [("d", -0.0), ("d", 0.0)], "-0.0 +0.0"),
        ("50%, %k", [], "50%, %k"),
    ],
)
def test_known_lines(fmt: str, arguments: list[tuple[str, object]], expected: str) -> None:
    assert text(fmt, *arguments) == expected


def test_too_few_arguments_is_an_error() -> None:
    with pytest.raises(ValueError, match="8 bytes of arguments at offset 8"):
        text("%d %lld", ("i", 1))


def test_bytes_that_are_not_text_do_not_stop_the_output() -> None:
    assert format_printf(b"caf\xc3\xa9 \xff", b"", STRINGS.__getitem__) == "café �"


def test_count_arguments() -> None:
    assert count_arguments(b"none 100%%\n") == 0
    assert count_arguments(b"%d %s %*.3f") == 4


def test_a_format_that_asks_for_more_than_it_is_given_is_a_finding() -> None:
    source = """extern "C" __global__ void k(const char* format) {
        if (threadIdx.x > 0)
            printf(format);
    }"""
    kernel, letters = Kernel(source, "k"), np.frombuffer(b"value %d\n\0", np.int8)
    told = (
        r"<source>:3: out of bounds: thread \(1, 0, 0\) of block \(0, 0, 0\) calls printf with a "
        "format that asks for 4 bytes of arguments at offset 0; the buffer has 0"
    )
    with pytest.raises(MemoryAccessError, match=told):
        kernel.launch(1, 2, (letters,), device="emulator")
    report = kernel.launch(1, 2, (letters,), device="emulator", checks="collect")
    assert len(report.findings) == 1
    assert report.output == ""


integers = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@lru_cache
def c_library() -> ctypes.CDLL:
    if not sys.platform.startswith("linux"):
        pytest.skip("compares with glibc")
    return ctypes.CDLL(ctypes.util.find_library("c"))


def reference(fmt: str, value: object) -> str:
    buffer = ctypes.create_string_buffer(2000)
    c_library().snprintf(buffer, ctypes.c_size_t(2000), fmt.encode(), value)
    return buffer.value.decode()


specs = st.tuples(
    st.text("-+ #0", max_size=3),
    st.one_of(st.just(""), st.integers(1, 20).map(str)),
    st.one_of(st.just(""), st.just("."), st.integers(0, 18).map(lambda p: f".{p}")),
)


@examples(300)
@given(specs, st.sampled_from("diouxX"), integers)
def test_integers_as_glibc(spec: tuple[str, str, str], kind: str, value: int) -> None:
    fmt = "%" + "".join(spec) + "ll" + kind
    assert text(fmt, ("q", value)) == reference(fmt, ctypes.c_longlong(value))


@examples(300)
@given(specs, st.sampled_from("feEgGaA"), st.floats(width=64))
def test_doubles_as_glibc(spec: tuple[str, str, str], kind: str, value: float) -> None:
    fmt = "%" + "".join(spec) + kind
    assert text(fmt, ("d", value)) == reference(fmt, ctypes.c_double(value))
