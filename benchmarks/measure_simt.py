"""Time again the ways that the float32 and float64 model is fitted to, beside PyTorch.

    python benchmarks/measure_simt.py RECORD.json [--dtype float32]

``results/simt_h200.json`` has products of the suites and random ones, and for each some ways to
compute it: tiles, copies of A and B, and parts of k. After a change of the kernels, this script
times the same ways of the same products again, on the GPU at hand and in turn with PyTorch, and
writes the record with the new times in µs; benchmarks/fit_simt.py fits the model to it. Products
that were timed in the steady state under the power limit keep their times, because the rounds here
are short bursts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from choices import TORCH, measure
from command_line import parser_of
from fit_simt import RECORD, shape_of
from timed_products import kernels_of_plans

from tilewise.bench.record import find_gpu, product_of
from tilewise.compiler.ahead import compile_ahead
from tilewise.gemm.families.simt.offers import all_in_one
from tilewise.gemm.family import Offer
from tilewise.gemm.plan import chip_of
from tilewise.gemm.product import REAL
from tilewise.provenance import provenance, write_whole

COPIES = (None, "packed", "transposed")
STEADY = "steady"  # the suite of products in the steady state

Row = list[Any]
"""Suite, product, the vendor's time, the best way's, the planned way's, the ways; microseconds."""


def key_of(offer: Offer) -> tuple[str, str, int]:
    """Return an offer's tiles, how it copies A and B before, and its parts of k."""
    copies = "".join(str(COPIES.index(offer.choice.get(name))) for name in "AB")
    return offer.choice["tiles"], copies, offer.choice["parts"]


def ways_of(row: Row, tiles: list[str], offers: Iterable[Offer]) -> dict[str, Offer]:
    """Return the ways of a row that the planner still knows, by the record's words for them."""
    known = {key_of(offer): offer for offer in offers}
    found = {}
    for way in row[5].split("; "):
        number, copies, parts, _ = way.split()
        key = tiles[int(number)], copies, int(parts)
        if key in known:
            found[f"{number} {copies} {parts}"] = known[key]
    return found


def again(row: Row, ways: dict[str, Offer], measured: dict[str, Any]) -> Row:
    """Return the row with the measured times, in µs."""
    times = {words: way["us"] for words, way in zip(ways, measured["ways"], strict=True)}
    text = "; ".join(
        f"{words} {times[words]:.5g}" for words in sorted(times, key=times.__getitem__)
    )
    return [*row[:2], measured[TORCH], min(times.values()), times[next(iter(ways))], text]


def text_of(record: dict[str, Any]) -> str:
    """Return the record as JSON, a row to a line."""
    text = json.dumps({**record, **provenance()}, separators=(",", ":"))
    return text.replace('],["', '],\n["')


def main() -> None:
    """Measure, and write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--dtype", choices=list(REAL), nargs="+", default=list(REAL))
    options = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    torch.set_float32_matmul_precision("highest")  # no TF32
    gpu = find_gpu()
    chip = chip_of(gpu)
    assert chip is not None
    for dtype in options.dtype:
        tiles, rows = record[dtype]["tiles"], record[dtype]["rows"]
        ways = {}
        for row in rows:
            offers = list(all_in_one(product_of(shape_of(row[1]), dtype), chip))
            found = ways_of(row, tiles, offers) if row[0] != STEADY else {}
            # The one that the planner takes of them goes first.
            ways[row[1]] = dict(sorted(found.items(), key=lambda x: x[1].rank))
        plans = [way.make() for each in ways.values() for way in each.values()]
        compile_ahead(kernels_of_plans(plans), gpu.arch, lines=False)
        with torch.cuda.stream(torch.cuda.Stream()):
            for index, row in enumerate(rows):
                if found := ways[row[1]]:
                    times = measure(shape_of(row[1]), dtype, gpu, list(found.values()))
                    rows[index] = again(row, found, times)
                    ratio = rows[index][2] / rows[index][4]
                    print(f"{row[1]} {dtype}: {ratio:.3f} of PyTorch's speed", flush=True)
                    write_whole(options.record, text_of(record).encode())


if __name__ == "__main__":
    main()
