"""D by rows of any pitch, at any address, on the emulator: right, and nothing beside it changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference import examples, thorough

from tilewise.devices.emulator import Emulator
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.product import Operand, Product, offset
from tilewise.gemm.steps import execute

pytestmark = pytest.mark.usefixtures("no_machine_code")

K = 8
MARGIN = 16  # elements, of whole 16 bytes
PATTERN = 0x7E5A  # a NaN, which no product of whole numbers is
# Of parts of 64, 32 and 16 columns: one, or several; rows of one or two wgmmas; the last without
# registers to spare.
TILINGS = [
    pytest.param(Tiling(64, 256), marks=thorough),
    Tiling(64, 96),
    pytest.param(Tiling(64, 80), marks=thorough),
    Tiling(128, 64, 1, 2),  # tiles past the end, too
    pytest.param(Tiling(256, 128), marks=thorough),
    pytest.param(Tiling(256, 192), marks=thorough),
]


def check(tiling: Tiling, m: int, n: int, gap: int, off: int) -> None:
    """With D ``off`` elements behind a multiple of 16 bytes, its rows ``gap`` elements apart."""
    device, pitch = Emulator(), n + gap
    pitch += pitch % 8 == n % 8 == off == 0  # else bulk copies could store it
    random = np.random.default_rng(m + 1000 * n)
    lines = -(-m // 8) * 8
    a, b = (random.integers(-9, 10, shape) for shape in ((K, lines), (n, K)))
    of_a, of_b = (device.array(x.astype(np.float16)) for x in (a, b))
    first = MARGIN + off
    before = np.full(first + m * pitch + MARGIN, PATTERN, np.uint16)
    of_d = device.array(before)
    d = of_d.pointer + 2 * first
    product = Product(
        m, n, K, 1, "float16", "float16", 1.0, 0.0, Operand(1, lines, 0, offset(of_a.pointer)),
        Operand(1, K, 0, offset(of_b.pointer)), None, Operand(pitch, 1, 0, offset(d)),
    )  # fmt: skip
    plan = hopper.plan(product, 2, tiling)
    execute(plan, device, 0, (of_a.pointer, of_b.pointer, 0, d, 0))

    expected = before.copy()
    rows = expected[first : first + m * pitch].reshape(m, pitch)
    rows[:, :n] = (b @ a).T[:m].astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(of_d.to_numpy(), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@examples(2)
@given(
    m=st.integers(1, 80),
    n=st.one_of(st.integers(1, 8), st.integers(9, 270)),
    gap=st.integers(0, 9),
    off=st.integers(0, 7),
)
@example(m=17, n=7, gap=0, off=5)
@example(m=33, n=67, gap=0, off=3)  # tails that begin in the part before
def test_any_pitch_and_address(tiling: Tiling, m: int, n: int, gap: int, off: int) -> None:
    check(tiling, m, n, gap, off)
