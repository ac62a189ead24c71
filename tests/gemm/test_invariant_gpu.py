"""A row's bits do not depend on the batch: on a GPU, for the weights of the suite llm and two more.

The loop is tried out on the emulator, and by products of which one is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import tilewise
from tilewise.bench.suites import COLUMNS, ROWS, WEIGHTS, Shape
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.gemm.invariant import fixed
from tilewise.gemm.plan import chip_of, kernels_of

torch = pytest.importorskip("torch", reason="rows are compared on the GPU, by PyTorch")

from tilewise.bench.products import error_share  # noqa: E402
from tilewise.bench.record import product_of  # noqa: E402

MOST = 8192  # rows
EACH, DRAWN = 300, 200  # of m, those from 1 on that are all tried, and those drawn beyond
STORED = (ROWS, COLUMNS)
Product = Callable[[Any, Any], Any]


def sizes_of(most: int, each: int, drawn: int) -> list[int]:
    """m: all of the small ones, and random larger ones; with the largest."""
    found = random.Random(0)
    return [*range(1, each + 1), *(found.randint(each + 1, most) for _ in range(drawn)), most]


def first_of(m: int, most: int, turn: int) -> int:
    """The first of m rows: the first of all, the last that there is room for, or any."""
    last = most - m
    return (0, last, random.Random(m).randint(0, last))[turn % 3]


def differing(
    x: Any, w: Any, wanted: Any, sizes: Sequence[int], product: Product
) -> Iterator[tuple[str, int, int]]:
    """The layout, m and first row of each product of rows of x whose bits are not the wanted ones.

    Parameters
    ----------
    x, w : torch.Tensor, (rows, k) and (k, n), by rows
    wanted : torch.Tensor, (rows, n)
    sizes : sequence of int
        m of the products.
    product : callable
    """
    turned, columns = x.T.contiguous().T, w.T.contiguous().T
    for a, b, name in (
        (x, w, "NN"),
        (x, columns, "NT"),
        (turned, w, "TN"),
        (turned, columns, "TT"),
    ):
        for turn, m in enumerate(sizes):
            first = first_of(m, len(x), turn)
            rows = a[first : first + m]
            if name[0] == "T" and turn % 2:  # by columns that lie closer
                rows = rows.T.contiguous().T
            if not torch.equal(product(rows, b), wanted[first : first + m]):
                yield name, m, first


@pytest.mark.parametrize(("n", "k"), [*WEIGHTS, (1000, 5000), (64, 8192)])
def test_rows_have_the_same_bits_in_any_batch(device: Device, n: int, k: int) -> None:
    """Each m to 300 and 200 beyond, at any place, in all four layouts: the bits of one product."""
    if not isinstance(device, Gpu):
        pytest.skip("needs a GPU: pytest --device gpu")
    sizes, chip = sizes_of(MOST, EACH, DRAWN), chip_of(device)
    asked = (
        fixed(product_of(Shape(m, n, k, a, b), "bfloat16"), chip)
        for m in sizes for a in STORED for b in STORED
    )  # fmt: skip
    compile_ahead(list(kernels_of(chip, asked)), device.arch, lines=False)
    generator = torch.Generator("cuda").manual_seed(0)
    x, w = (
        torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(generator=generator)
        for shape in ((MOST, k), (k, n))
    )

    def product(rows: Any, weight: Any) -> Any:
        return tilewise.matmul(rows, weight, invariant=True)

    wanted = product(x, w)
    assert error_share(x, w, wanted) <= 1
    found = list(differing(x, w, wanted, sizes, product))
    assert not found, f"{len(found)} of {4 * len(sizes)} differ: {found[:8]}"


def test_the_loop_on_the_emulator() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(9, 40).bfloat16(), torch.randn(40, 24).bfloat16()

    def product(rows: Any, weight: Any) -> Any:
        return tilewise.matmul(rows, weight, invariant=True, device="emulator")

    wanted = product(x, w)
    assert error_share(x, w, wanted) <= 1
    assert list(differing(x, w, wanted, sizes_of(9, 3, 1), product)) == []


def test_one_row_of_one_product_is_found() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(40, 8), torch.randn(8, 6)
    wanted = (x.double() @ w.double()).float()
    seen: list[tuple[int, tuple[int, ...], int]] = []

    def product(rows: Any, weight: Any) -> Any:
        seen.append((len(rows), rows.stride(), rows.storage_offset()))
        result = (rows.double() @ weight.double()).float()
        if len(rows) == 7 and rows.stride(0) == 1 and weight.stride(1) == 1:
            result[6, 5] = torch.nextafter(result[6, 5], torch.tensor(99.0))
        return result

    sizes = sizes_of(40, 10, 5)
    assert len(sizes) == 16
    assert sizes[:10] == list(range(1, 11))
    assert sizes[-1] == 40
    found = list(differing(x, w, wanted, sizes, product))
    assert [each[:2] for each in found] == [("TN", 7)]
    assert len(seen) == 4 * 16
    assert len({m for m, _, _ in seen}) >= 11
    firsts = {offset // 8 for m, strides, offset in seen if strides == (8, 1)}
    assert len(firsts) > 8
    assert {strides for _, strides, _ in seen} > {(8, 1), (1, 40), (1, 6)}
