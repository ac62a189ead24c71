"""Choose the Hopper kernels that the planner may choose from; no GPU is needed.

    python benchmarks/choose_kernels.py RECORD [RECORD ...] [--layouts TN TT] [--kept 0.5] [--write]
    python benchmarks/choose_kernels.py RECORD [RECORD ...] --layouts NT --add 12 [--write]
    python benchmarks/choose_kernels.py RECORD [RECORD ...] --layouts NN NT --widen 80 [--write]

The records are those of ``benchmarks/choices.py``, as ``benchmarks/results/hopper_h200.json``. A
tiling that was timed on few products can't be judged, and is left out. For each layout, tilings
(with A and B swapped or not, which takes another kernel) are taken one by one, each time the one
that lowers the loss most.

The loss of the records' products is the time of the tiling that the model chooses, not of the best
one: so a tiling that the model would choose for products on which it is slow raises the loss. The
time is the measured one, or if that tiling was not timed the model's, corrected for the product.
Random products, some with the weights of language models, are timed by the model alone. Large
losses count more than in proportion.

With --add, the present ways stay, and so many more are taken, judged by the records alone; a way
that was not timed is assumed to be slow. (The more ways there are, the more of them the model
expects to be faster than they are.) With --widen, the present ways stay too, and so many more are
taken that make random products faster by the model, corrected by how far it is off for each way in
the records. Then the ways without which no products are slower are left out, by the plain model,
since that is what the planner chooses by. With --write, the file
is written that :mod:`tilewise.gemm.families.hopper.tilings` reads. The loss is printed before and
after, with --kept also that of products that had no part in the choice.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from command_line import parser_of
from tiling_ways import (
    ALWAYS,
    FEWEST,
    Array,
    Row,
    Ways,
    biases,
    products,
    sizes_of,
    thin,
    tilings_timed,
    uniform,
)
from way_choice import Products, choose, widen, without_spare

from tilewise.explanation import LAYOUTS
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.families.hopper.tilings import FILE, chosen

DRAWN = 1.0  # what the random products' loss counts beside that of the records' products
COUNTS = {"NN": 108, "NT": 128, "TN": 92, "TT": 92}  # ways that are chosen
CAUTION = 1.03  # the factor on the model's time of a way that was not timed
DISTRUST = 1.08  # the same with --add, where the present ways have no such factor
UNIFORM = 1200  # random products that ways are added for


def widened(
    ways: Ways,
    before: Sequence[int],
    count: int,
    rows: Sequence[Row],
    drawn: Array,
    others: Sequence[Array],
) -> list[int]:
    """Return the places of the present ways and more for random products, without spare ones.

    Parameters
    ----------
    ways : Ways
    before : sequence of int
    count : int
        The ways to add.
    rows : sequence of Row
        The records' products.
    drawn : array
        The expected seconds of the random products that ways are added for.
    others : sequence of array
        Those of other random products, which no way that is left out may make much slower.
    """
    taken = widen(np.log(drawn) + biases(ways, rows), before, count)
    recorded = np.array([ways.expected(ways.problem(row)) for row in rows])
    every = [np.log(x) for x in (drawn, *others, recorded)]
    return without_spare(every, taken, ways.places[ALWAYS])


def as_row(way: Tiling) -> tuple[int, ...]:
    """Return a way as the file has it."""
    return (*map(int, sizes_of(way)), int(way.swapped))


def main(arguments: Sequence[str] | None = None) -> None:
    """Choose, and print."""
    parser = parser_of(__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--add", type=int, default=0, help="ways to add to the present ones; 0: choose anew"
    )
    how.add_argument(
        "--widen",
        type=int,
        default=0,
        help="ways to add by the model, before spare ones are left out",
    )
    parser.add_argument(
        "--kept",
        type=float,
        default=0.0,
        help="share of the records' products that are held out, and only evaluated",
    )
    parser.add_argument("--products", type=int, default=800, help="drawn for each layout")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args(arguments)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in options.records]
    rows = [row for record in records for row in record["rows"]]
    tilings, drawn = tilings_timed(rows), np.random.default_rng(options.seed)
    share = 0.0 if options.add else DRAWN
    result = {layout: list(chosen(layout)) for layout in LAYOUTS}
    for layout in options.layouts:
        ways = Ways(layout, tilings)
        random_ones = np.array(
            [ways.expected(x) for x in products(layout, options.products, options.seed)]
        )
        present = set(chosen(layout))
        is_present = np.array([as_row(way) in present for way in ways.tilings])
        before = [int(x) for x in np.flatnonzero(is_present)]
        caution = np.full(len(ways.tilings), CAUTION)
        if options.add:
            caution = np.where(is_present, 1.0, DISTRUST)
        recorded = [
            row for row in rows if row["layout"] == layout and len(ways.timed(row)) >= FEWEST
        ]
        seen = [ways.measured(row, caution) for row in recorded]
        model, times, weight = (np.array(x) for x in zip(*seen, strict=True))
        kept = drawn.random(len(model)) < options.kept
        found = Products(model[~kept], times[~kept], weight[~kept], random_ones, share)
        if options.widen:
            of_layout = [row for row, is_kept in zip(recorded, kept, strict=True) if not is_kept]
            of_uniform, of_thin = (
                np.array([ways.expected(x) for x in draw(layout, UNIFORM, options.seed)])
                for draw in (uniform, thin)
            )
            others = [of_thin, random_ones]
            taken = widened(ways, before, options.widen, of_layout, of_uniform, others)
        elif options.add:
            taken = choose(found, before, len(before) + options.add)
        else:
            taken = choose(found, [ways.places[ALWAYS]], COUNTS[layout])
        result[layout] = sorted(as_row(ways.tilings[x]) for x in taken)
        shown = {"products": found}
        if kept.any():
            shown["kept apart"] = Products(
                model[kept], times[kept], weight[kept], random_ones, share
            )
        told = ", ".join(
            f"{len(x.model)} {name} {x.slowdown(before):.4f}, {x.slowdown(taken):.4f}"
            for name, x in shown.items()
        )
        print(f"{layout}: {len(before)} of {len(ways.tilings)} ways, now {len(taken)}; {told}")
    if options.write:
        given = sys.argv[1:] if arguments is None else arguments
        made = json.loads(FILE.read_bytes())["made"]
        now = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "benchmarks/choose_kernels.py", *given]),
        }
        FILE.write_text(text(result, made | dict.fromkeys(options.layouts, now)), encoding="utf-8")


def text(result: Mapping[str, Sequence[tuple[int, ...]]], made: Mapping[str, Any]) -> str:
    """Return the file: a line a way.

    Parameters
    ----------
    result : mapping of str to sequence of tuple
        The rows of :func:`as_row`, by layout.
    made : mapping of str to mapping
        The date and the command of each layout's choice.
    """
    lines = {
        layout: ",\n".join(f'      "{" ".join(map(str, row))}"' for row in rows)
        for layout, rows in result.items()
    }
    parts = ",\n".join(f'    "{layout}": [\n{rows}\n    ]' for layout, rows in lines.items())
    how = ",\n".join(f'    "{layout}": {json.dumps(each)}' for layout, each in made.items())
    columns = "block_m block_n cluster_m cluster_n split stream_k ping_pong swapped"
    return (
        f'{{\n  "made": {{\n{how}\n  }},\n  "columns": "{columns}",\n'
        f'  "tilings": {{\n{parts}\n  }}\n}}\n'
    )


if __name__ == "__main__":
    main()
