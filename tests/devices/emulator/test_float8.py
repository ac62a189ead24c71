"""Conversions from and to floats of eight bits, in pairs: all halves, and floats between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Array, Launcher

ml_dtypes = pytest.importorskip("ml_dtypes", reason="says what eight bits round to: ml_dtypes")

KINDS = {"e4m3x2": (ml_dtypes.float8_e4m3fn, 448), "e5m2x2": (ml_dtypes.float8_e5m2, 57344)}
CASES = [(type_, relu) for type_ in KINDS for relu in ("", ".relu")]
NAN = 0x7F  # PTX's


def expected(values: Array, type_: str, relu: str) -> Array:
    """Bits: to the nearest, past the largest that one, NaN one pattern."""
    kind, largest = KINDS[type_]
    with np.errstate(invalid="ignore"):
        bits = np.clip(values, -largest, largest).astype(kind).view(np.uint8)
    if relu:
        bits = np.where(np.signbit(values), 0, bits)
    return np.where(np.isnan(values), NAN, bits).astype(np.uint8)


def halves() -> Array:
    """All of them, each beside its neighbour and beside others."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return np.concatenate([x, np.random.default_rng(1).permutation(x)])


def run(launch: Launcher, name: str, x: Array, out: Array, type_: str, relu: str) -> None:
    defines: dict[str, Any] = {"TYPE": type_, "RELU": relu}
    launch("float8", name, -(-len(out) // 256), 256, len(out), x, out, defines=defines)


@pytest.mark.parametrize(("type_", "relu"), CASES)
def test_from_float(launch: Launcher, type_: str, relu: str) -> None:
    x = halves().astype(np.float32)
    # Halves stand on the middle between two eighths; the floats beside them do not.
    with np.errstate(invalid="ignore"):
        beside = [np.nextafter(x, np.float32(to)) for to in (np.inf, 0)]
    x = np.concatenate([x, *beside])
    out = np.zeros(len(x) // 2, np.uint16)
    run(launch, "from_float", x, out, type_, relu)
    np.testing.assert_array_equal(out.view(np.uint8), expected(x, type_, relu))


@pytest.mark.parametrize(("type_", "relu"), CASES)
def test_from_halves(launch: Launcher, type_: str, relu: str) -> None:
    x = halves()
    out = np.zeros(len(x) // 2, np.uint16)
    run(launch, "from_halves", x.view(np.uint32), out, type_, relu)
    np.testing.assert_array_equal(out.view(np.uint8), expected(x, type_, relu))


@pytest.mark.parametrize(("type_", "relu"), CASES)
def test_to_halves(launch: Launcher, type_: str, relu: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    out = np.zeros(len(x), np.uint32)
    run(launch, "to_halves", x, out, type_, relu)
    wide = x.view(np.uint8).view(KINDS[type_][0]).astype(np.float16)
    wanted = np.where(np.signbit(wide), np.float16(0), wide) if relu else wide
    bits = np.where(np.isnan(wide), np.uint16(0x7FFF), wanted.view(np.uint16))
    np.testing.assert_array_equal(out.view(np.uint16), bits)
