"""benchmarks/grouped.py and the products it times: what needs no GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scripts import script

torch = pytest.importorskip("torch", reason="the script times PyTorch's product")
SCRIPT = script("grouped.py")
Case = SCRIPT["Case"]
FORWARD, GRADIENT = SCRIPT["FORWARD"], SCRIPT["GRADIENT"]


def test_what_is_asked_for() -> None:
    whole = SCRIPT["asked"](SCRIPT["parsed"]([]))
    assert len(whole) == 30
    assert {case.load for case, _ in whole} == {"even", "routed", "skewed"}
    assert {len(case.sizes) for case, _ in whole} == {8, 16, 64, 128, 256}
    words = "--quick --form forward gradient --random 3 --major nk kn --only drawn"
    some = SCRIPT["asked"](SCRIPT["parsed"](words.split()))
    assert [(case.form, major) for case, major in some] == [
        *(("forward", major) for _ in range(3) for major in ("nk", "kn")),
        *(("gradient", "nk") for _ in range(3)),
    ]
    quick = SCRIPT["asked"](SCRIPT["parsed"](["--quick"]))
    assert set(quick) < set(whole)
    assert {case.load for case, _ in quick} == {"even", "routed", "skewed"}
    with pytest.raises(SystemExit):
        SCRIPT["parsed"](["--seconds", "-1"])


@pytest.mark.parametrize("load", ["even", "routed", "skewed"])
def test_all_rows_are_in_groups(load: str) -> None:
    from tilewise.bench.grouped import loads

    for rows in (0, 1, 100, 1001):
        sizes = loads(16, rows, load, np.random.default_rng(rows))
        assert len(sizes) == 16
        assert sum(sizes) == rows
        assert load != "even" or max(sizes) - min(sizes) <= 1


def arrays(case: Any, major: str = "nk") -> Any:
    return SCRIPT["operands"](case, "bfloat16", major, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("form", ["forward", "gradient"])
@pytest.mark.parametrize("major", ["nk", "kn"])
def test_product_is_the_one_of_the_arrays(form: str, major: str) -> None:
    case = Case("", "even", form, (3, 0, 5), 8, 16)
    x = arrays(case, major)
    product = SCRIPT["product_of"](case, major, "bfloat16")
    assert x.x.stride() == (product.a.row_stride, product.a.column_stride)
    assert x.w.stride()[-2:] == (product.b.row_stride, product.b.column_stride)
    assert x.d.stride()[-2:] == (product.d.row_stride, product.d.column_stride)
    assert (product.m, product.k) == tuple(x.x.shape)
    assert product.n == x.w.shape[-1] == x.d.shape[-1]
    if form == "forward":
        assert x.w.stride(0) == product.b.batch_stride
    else:
        assert x.d.stride(0) == product.d.batch_stride


@pytest.mark.parametrize("form", ["forward", "gradient"])
def test_what_is_wrong_is_found(form: str) -> None:
    case = Case("", "even", form, (3, 0, 5, 1), 8, 16)
    share = SCRIPT["largest_error_share"]
    x = arrays(case)
    x.ours()
    assert share(case, x, x.d, 8) <= 1
    for at in ((0, 0), (3, 0), (8, 7)) if form == "forward" else ((0, 0, 0), (1, 3, 3), (3, 5, 5)):
        wrong = x.d.clone()
        wrong[at] = 2 * wrong[at] + 1
        assert share(case, x, wrong, 8) > 1
        wrong[at] = math.nan
        assert share(case, x, wrong, 1) == math.inf


def test_groups_that_are_looked_at() -> None:
    from tilewise.bench.grouped import _spread

    sizes = [1] * 50 + [9] + [1] * 49
    filled = list(range(100))
    for most in (2, 3, 4, 24):
        found = _spread(filled, sizes, most)
        assert len(found) <= most
        assert {0, 50} <= set(found)
    assert _spread(filled, sizes, 200) == filled


def test_summaries_and_words() -> None:
    row = {
        "name": "a", "load": "even", "form": FORWARD, "major": "nk", "chosen": "tiles",
        "seconds": {"tilewise": 1e-3, "torch": 2e-3}, "tflops": {"tilewise": 500.0, "torch": 250.0},
        "ratios": {"torch": 2.0}, "bandwidth": 1.0, "wrong": [],
        "variants": {"x": 0.5e-3, "tiles": 1e-3},
    }  # fmt: skip
    failed = {"name": "b", "load": "even", "form": FORWARD, "major": "nk", "failed": "why"}
    found = SCRIPT["summaries"]([row, {**row, "name": "c", "ratios": {"torch": 0.5}}, failed])
    assert found[0]["geometric_mean"] == pytest.approx(1.0)
    assert found[0]["worst"] == 0.5
    assert found[0]["worst_product"] == "c, even, nk"
    assert found[1]["worst"] == 0.5  # of the best tiles' speed
    assert "FAILED: why" in SCRIPT["told"](failed)
    assert "takes 2.000 of the best" in SCRIPT["told"](row)
