"""Fit the model of grouped products with groups of k to measured times; no GPU is needed.

    python benchmarks/fit_grouped.py [RECORD.json]

The record is what ``benchmarks/grouped.py --form gradient --variants`` writes, by default
``results/tiles_grouped_h200.json``. For each product it prints the time of the tiles that the model
would choose as a multiple of the fastest tiles': with tilewise's constants, with fitted ones, and
with constants that were fitted to the other products. The fit uses only tiles within 35% of the
fastest, and compares times within a product, because only the order of the tiles matters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from command_line import parser_of
from grouped import product_of

from tilewise.bench.grouped import Case
from tilewise.gemm.chip import H200
from tilewise.gemm.grouped import model
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.grouped.tiles import Tiles

RECORD = Path(__file__).parent / "results" / "tiles_grouped_h200.json"
NEAR = 1.35
BOUNDS = {
    "tensor": (0.3, 1.2), "port": (0.2, 1.2), "write": (0.2, 1.5), "write_line": (0.0, 300.0),
    "ping_pong": (0.5, 20.0), "tile": (0.0, 5.0), "rows": (5.0, 200.0), "columns": (5.0, 200.0),
}  # fmt: skip


class Timed(NamedTuple):
    """A product, and the seconds that it took with each choice of tiles."""

    product: Grouped
    seconds: dict[Tiles, float]

    def modelled(self, tiles: Tiles, costs: model.Costs) -> float:
        """Return the seconds that the model expects of tiles."""
        seen = self.product.transposed if tiles.swapped else self.product
        return model.seconds(seen, tiles, H200, costs)

    def loss(self, costs: model.Costs) -> float:
        """Return the time of the tiles that the model chooses, by that of the fastest."""
        chosen = min(self.seconds, key=lambda x: self.modelled(x, costs))
        return self.seconds[chosen] / min(self.seconds.values())


def read(path: Path) -> list[Timed]:
    """Return the products of a record."""
    named = {str(tiles): tiles for tiles in model.candidates()}
    found = []
    for row in json.loads(path.read_text())["rows"]:
        # The model knows the number of groups and their rows together.
        sizes = (row["rows"], *(0,) * (row["groups"] - 1))
        case = Case(row["name"], row["load"], row["form"], sizes, row["n"], row["k"])
        times = {named[name]: seconds for name, seconds in row["variants"].items()}
        found.append(Timed(product_of(case, row["major"], "bfloat16"), times))
    return found


def fitted(products: Sequence[Timed]) -> model.Costs:
    """Return the constants by least squares of logarithms, each product's mean error apart."""
    from scipy.optimize import least_squares  # optional, and only the fit needs it

    def costs_of(values: Sequence[float]) -> model.Costs:
        return model.OF_K._replace(**dict(zip(BOUNDS, map(float, values), strict=True)))

    def residuals(values: Sequence[float]) -> Any:
        costs, found = costs_of(values), []
        for each in products:
            most = NEAR * min(each.seconds.values())
            off = [
                np.log(each.modelled(tiles, costs) / seconds)
                for tiles, seconds in each.seconds.items()
                if seconds <= most
            ]
            level = float(np.mean(off))
            found += [3 * (x - level) for x in off] + [level]
        return found

    lowest, highest = zip(*BOUNDS.values(), strict=True)
    start = [getattr(model.OF_K, name) for name in BOUNDS]
    return costs_of(least_squares(residuals, start, bounds=(lowest, highest)).x)


def main() -> None:
    """Fit, and print the constants and what the model's choices lose."""
    parser = parser_of(__doc__)
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    products = read(parser.parse_args().record)
    best = fitted(products)
    print({name: round(getattr(best, name), 3) for name in BOUNDS})
    for at, each in enumerate(products):
        others = fitted(products[:at] + products[at + 1 :])
        p = each.product
        print(
            f"{p.groups} groups, {p.m} x {p.n}, k {p.total}: "
            f"now {each.loss(model.OF_K):.3f}, fitted {each.loss(best):.3f}, "
            f"fitted to the others {each.loss(others):.3f} of the fastest's time"
        )


if __name__ == "__main__":
    main()
