"""The soak: it finds a result that differs now and then, and says where."""

from __future__ import annotations

from typing import Any

import pytest

from tilewise.bench.suites import COLUMNS, Shape

torch: Any = pytest.importorskip("torch")


def test_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for ``matmul`` on the host, which is wrong once."""
    from tilewise.bench import products
    from tilewise.bench.soak import Soak

    calls: list[Any] = []

    def wrong_once(a: Any, b: Any, out: Any) -> None:
        torch.matmul(a, b, out=out)
        calls.append(out)
        if len(calls) == 37:
            out[3:5, 7] += 1

    monkeypatch.setattr(products, "matmul", wrong_once)
    other = products.operands(Shape(3, 4, 5), "float64", torch.Generator())
    soak = Soak(Shape(30, 40, 50), "float64", other, torch.empty(9))
    assert soak.run(0.05) <= 1
    words = "1 of 66; the last: 2 elements, at 3 to 4, 7 to 7, by 1 at most"
    assert soak.differing == [words]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [Shape(2047, 2049, 2051, COLUMNS), Shape(1001, 1001, 1001), Shape(2048, 2048, 2048)]
)
@pytest.mark.usefixtures("gpu")
def test_launch_after_launch_has_the_same_bits(shape: Shape, dtype: str) -> None:
    """The first of them in float64 had not, while copies overtook the reads of a stage."""
    from tilewise.bench.products import operands
    from tilewise.bench.soak import Soak

    generator = torch.Generator("cuda").manual_seed(1)
    other = operands(Shape(300, 500, 700), dtype, generator)
    flush = torch.empty(1 << 27, dtype=torch.uint8, device="cuda")
    soak = Soak(shape, dtype, other, flush)
    assert soak.run(0.2) <= 1
    assert soak.differing == []
    assert soak.launches > 0


def test_nothing_differs() -> None:
    from tilewise.bench.products import differences

    x = torch.ones(2, 3)
    assert differences(x, x.clone()) == ""
    assert differences(x * torch.nan, x) == "6 elements, at 0 to 1, 0 to 2, by nan at most"
