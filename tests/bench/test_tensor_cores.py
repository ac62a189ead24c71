"""benchmarks/tensor_cores.py: what it checks without a GPU, on the emulator."""

from __future__ import annotations

import pytest
from scripts import script

from tilewise.devices import Device

pytest.importorskip("torch", reason="the script times PyTorch's matmul")
SCRIPT = script("tensor_cores.py")


def test_every_16_bit_rung_is_checked_at_odd_shapes() -> None:
    products = list(SCRIPT["odd_products"](SCRIPT["RUNGS_16"]))
    assert {product[0] for product in products} >= {"tensor_core", "multistage", "persistent"}
    assert {product[5:] for product in products} == set(SCRIPT["SCALARS"])
    aligned = {
        product[2].strides[0] % 16 == product[3].strides[0] % 16 == 0 for product in products
    }
    assert aligned == {True, False}


def test_what_is_wrong_is_told(emulator: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    values = SCRIPT["check_odd"].__globals__
    monkeypatch.setitem(values, "ODD", ((65, 31, 40),))
    assert set(SCRIPT["check_odd"](["warpgroup", "persistent"], emulator)) == {""}

    class Wrong:
        check, correct = "twice as much", False

    monkeypatch.setitem(values, "run", lambda *_, **__: Wrong())
    found = list(SCRIPT["check_odd"](["warpgroup"], emulator))
    assert found[0] == (
        "warpgroup 65 x 31 x 40 float16, pitches (0, 0, 0) wider, alpha 1, beta 0: twice as much"
    )
    assert all(found)


@pytest.mark.parametrize("text", ["", "a", "a=b", "=b.so:f", "a=:f", "a=b.so:"])
def test_libraries_that_are_none(text: str) -> None:
    with pytest.raises(Exception, match=r"is not NAME=FILE\.so:FUNCTION"):
        SCRIPT["library"](text)


def test_a_row_in_words() -> None:
    row = {"kernel": "persistent", "n": 8192, "tflops": 700.0, "correct": True}
    assert SCRIPT["told"](row, 875e12, 700.0) == (
        "persistent      8,192   700.0 TFLOP/s   79.5% of 880,  80.0% of the ceiling,  "
        "1.000 of PyTorch's"
    )
    skipped = {"kernel": "x", "n": 64, "skipped": "too slow"}
    assert SCRIPT["told"](skipped, None, None).endswith("  too slow")
