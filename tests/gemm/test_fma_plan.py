"""Products of float32 and float64 in pieces: where that is planned, and that it is right."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference import examples
from test_fma import cases, names, product, run

from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.gemm import pieces as cuts
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.family import Simt
from tilewise.gemm.families.simt.offers import in_one
from tilewise.gemm.families.simt.readings import readings
from tilewise.gemm.families.simt.tiles import EVERY, TensorTiles
from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Product

pytestmark = pytest.mark.usefixtures("no_machine_code")

Arrays = dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]


@examples(30, quick=2)
@given(case=cases(), data=st.data())
def test_pieces_are_right(
    device: Device, case: tuple[Product, Arrays], data: st.DataObject
) -> None:
    """Wherever the matrices lie, and wherever they are cut; C too, of which each has its part."""
    asked, arrays = case
    rows, columns = (data.draw(st.integers(0, extent - 1)) for extent in (asked.m, asked.n))
    chip = Chip("few", 4)
    pieces = []
    for piece in cuts.cut(asked, rows, columns):
        offer = in_one(piece.product, chip)
        assert offer is not None
        pieces.append((piece, offer.make()))
    assert len(pieces) == 1 + (rows > 0) + (columns > 0)
    run(asked, arrays, cuts.joined(pieces, "", ""), device)


def test_pieces_are_copied_by_tensor_maps_of_their_own() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 70, 50, 40
    arrays = {}
    for name, shape in {"a": (m, k), "b": (k, n), "d": (m, n)}.items():
        flat = rng.standard_normal(shape[0] * shape[1])
        arrays[name] = flat, flat.reshape(1, *shape)
    asked = product(m, n, k, "float64")
    tiles = next(x for x in EVERY["float64"] if isinstance(x, TensorTiles) and x.block_m == 32)
    pieces = []
    for piece in cuts.cut(asked, 6, 18):
        (reading, *_) = readings(piece.product)
        assert reading.fits(tiles)
        choice = fma.Choice(0.0, reading, tiles, 2)
        pieces.append((piece, fma.plan(choice, Chip("few", 4), False)))
    plan = cuts.joined(pieces, "", "")
    assert plan.workspace == max(each.workspace for _, each in pieces)
    run(asked, arrays, plan, Emulator())


@pytest.mark.parametrize(
    ("asked", "kernels", "words"),
    [
        (product(2049, 2049, 2049, "float64"), "thin_real_mn_major", "; the last row by the thin"),
        (product(4104, 4104, 4104, "float64"), "gemm_dmma", " columns by the kernel by tensor"),
        (product(4104, 4104, 4104), "gemm_simt", "; the last 8 columns by the kernel"),
        (product(257, 257, 65537), "thin_real_k_major", "; the last row by the thin"),
    ],
)
def test_what_few_lines_would_take_whole_tiles_for_is_apart(
    asked: Product, kernels: str, words: str
) -> None:
    found = plan_on(asked, H200)
    whole = in_one(asked, H200)
    assert whole is not None
    assert len(found.steps) > len(whole.make().steps)
    assert kernels in names(found)[1:]
    assert words in found.chosen
    assert found.why.startswith("in pieces it should take")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(8192, 8192, 8192), (1536, 2112, 512), (100, 100, 100)])
def test_what_gains_nothing_is_in_one(m: int, n: int, k: int, dtype: str) -> None:
    asked = product(m, n, k, dtype)
    whole = in_one(asked, H200)
    assert whole is not None
    assert plan_on(asked, H200).chosen == whole.make().chosen


EXTENTS = st.integers(1, 5000)


# Its copies are so large that they have a margin of their own.
@example(m=2618, n=4093, k=5000, dtype="float64")
@given(m=EXTENTS, n=EXTENTS, k=EXTENTS, dtype=st.sampled_from(["float32", "float64"]))
def test_the_best_is_the_first_offer(m: int, n: int, k: int, dtype: str) -> None:
    asked = product(m, n, k, dtype)
    found = Simt().best(asked, H200)
    assert found is not None
    first, *others = islice(Simt().offers(asked, H200), 20)
    assert first.choice == found.choice
    in_one = others if "pieces" in first.choice else [first, *others]
    ranks = [each.rank for each in in_one]
    assert ranks == sorted(ranks)
    assert found.rank <= ranks[0]


@pytest.mark.parametrize("n", [100, 1000, 2049])
def test_an_offer_is_found_by_its_choices(n: int) -> None:
    asked = product(n, n, n)
    for each in islice(Simt().offers(asked, H200), 6):
        found = Simt().offer(asked, H200, json.loads(json.dumps(each.choice)))
        assert found is not None
        assert found.make().chosen == each.make().chosen
    assert Simt().offer(asked, H200, {"tiles": "7x7", "parts": 1}) is None
    assert Simt().best(asked, None) is None
    assert Simt().objection(asked, None)
