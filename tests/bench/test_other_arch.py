"""benchmarks/other_arch.py: what it checks on a GPU, checked on the emulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reference import is_thorough
from scripts import script

from tilewise.bench.record import product_of
from tilewise.devices.emulated import emulator
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt.family import Simt
from tilewise.gemm.plan import best

SCRIPT = script("other_arch.py")
CHIP = Chip("few", 4, 80)


def test_every_kernel_with_tensor_cores_is_checked() -> None:
    checked = {case.plan.steps[0].kernel for case in SCRIPT["of_tiles"](CHIP, "float64")}
    there = {x for x in Simt().kernels(CHIP, "float64") if x.name == "gemm_dmma"}
    assert {repr(x) for x in checked} == {repr(x) for x in there}
    assert len(there) == 45
    assert not list(SCRIPT["of_tiles"](CHIP, "float32"))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_products_are_right_on_the_emulator(dtype: str) -> None:
    cases = list(SCRIPT["planned"](CHIP, dtype, 6 if is_thorough() else 2, seed=3, largest=90))
    assert [x.wrong(emulator("sm_80"), "sm_80") for x in cases] == [""] * len(cases)


def test_what_is_wrong_is_said() -> None:
    """A result that is not that of these matrices, and elements beyond D that were written."""
    case = next(SCRIPT["planned"](CHIP, "float64", 1, seed=3, largest=90))
    assert case.wrong(emulator("sm_80"), "sm_80") == ""
    other = replace(case, views={**case.views, "a": case.views["a"] + 1})
    assert other.wrong(emulator("sm_80"), "sm_80").startswith(case.name)
    left_out = {**case.views, "d": case.views["d"][:, :-1], "a": case.views["a"][:, :-1]}
    beyond = replace(case, views=left_out)
    assert beyond.wrong(emulator("sm_80"), "sm_80").endswith("it wrote beyond D")
    assert np.isfinite(case.flat["d"]).all()


def test_what_is_timed() -> None:
    """Squares and random products; and ways by other tiles beside the one that is planned."""
    shapes = SCRIPT["shapes_of"]("300,500", "NN,TN", 3)
    assert [(x.size, x.layout) for x in shapes[:4]] == [
        ("300x300x300", "NN"), ("300x300x300", "TN"), ("500x500x500", "NN"), ("500x500x500", "TN"),
    ]  # fmt: skip
    assert [x.m % 8 == 0 for x in shapes[4:6]] == [True, True]
    assert len(shapes) == 7
    chip = replace(CHIP, multiprocessors=108)
    for shape in shapes:
        product = product_of(shape, "float64")
        first, *others = SCRIPT["ways_of"](product, chip, 6)
        planned = best(product, chip)
        assert (first.choice, first.seconds) == (planned.choice, planned.seconds)
        assert len({str(x.choice) for x in (first, *others)}) == 1 + len(others) > 2
        assert all(x.seconds < 2 * first.seconds for x in others)
        assert len({x.choice.get("tiles") for x in others}) > 1
    (alone,) = SCRIPT["ways_of"](product, chip, 0)
    assert alone.choice == first.choice


def test_how_it_is_told() -> None:
    way = {"family": "simt", "words": "these tiles", "seconds": 2e-3, "expected": 1e-3}
    row = {
        "name": "9x9x9", "layout": "NT", "error_share": 0.5, "flops": 2e9, "torch": 1e-3,
        "ours": 4e-3, "ways": [way],
    }  # fmt: skip
    words = (
        "9x9x9 NT: 1.00 TFLOP/s by sm_80's code, 0.500 of PyTorch's speed, 2.000 of this GPU's "
        "own; 2000.0 µs where 1000.0 were expected, simt these tiles"
    )
    assert SCRIPT["told"](row, "sm_80") == words
    other = {**way, "seconds": 1e-3}
    assert SCRIPT["told"]({**row, "ways": [way, other]}, "sm_80").startswith(f"{words}; regret 2.0")
    assert "NT: WRONG by" in SCRIPT["told"]({**row, "error_share": 2}, "sm_80")
