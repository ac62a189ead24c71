"""Choose the Hopper kernels that the planner may choose from; no GPU is needed.

    python benchmarks/choose_kernels.py RECORD [RECORD ...] [--layouts TN TT] [--kept 0.5] [--write]
    python benchmarks/choose_kernels.py RECORD [RECORD ...] --layouts NT --add 12 [--write]
    python benchmarks/choose_kernels.py RECORD [RECORD ...] --layouts NN NT --widen 80 [--write]

The records are those of ``benchmarks/choices.py``. A tiling that was timed on few products can't be
judged, and is left out. For each layout, tilings (with A and B swapped or not, which takes another
kernel) are taken one by one, each time the one that lowers the loss most.

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
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from command_line import parser_of
from fit_hopper import ways_of

from tilewise.bench.suites import Random
from tilewise.explanation import LAYOUTS, of_shape
from tilewise.gemm.chip import H200
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.costs import COSTS
from tilewise.gemm.families.hopper.cover import fits
from tilewise.gemm.families.hopper.model import seconds
from tilewise.gemm.families.hopper.table import Table
from tilewise.gemm.families.hopper.tiling import Problem, Tiling
from tilewise.gemm.families.hopper.tilings import FILE, chosen

MODELS = 0.4  # of the NN and NT products have weights as models have them
FEW = 0.5  # of those have few rows, as requests that are answered together have
# Rows and columns of language models' weights: of half of the products with few rows.
WIDTHS = (
    1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    18944, 20480, 28672, 57344,
)  # fmt: skip
FEW_ROWS = 16, 256
FEWEST = 2  # tilings that are timed of a record's product
TIMES = 4  # products of the records that a tiling is timed on
DRAWN = 1.0  # what the random products' loss counts beside that of the records' products
TAIL, MOST = 3.0, 1.0  # how much a loss's square counts beside it; the most that one counts
COUNTS = {"NN": 108, "NT": 128, "TN": 92, "TT": 92}  # ways that are chosen
ALWAYS = Tiling(64, 64)  # it can compute every aligned product
CAUTION = 1.03  # the factor on the model's time of a way that was not timed
DISTRUST = 1.08  # that of one that may be added to the present ones, whose own is then 1
# NEAR: only times within this factor of their product's fastest count for a way's bias.
# DOUBTED: so many times without a bias are added to them, so that few times give a small bias.
# DROPPED: a way is spare if the mean loss grows by at most this without it.
NEAR, DOUBTED, DROPPED = 1.4, 6, 1e-5
UNIFORM = 1200  # random products that ways are added for
WEIGHT = 4.0  # what products with language models' weights count beside others of the records

Array = npt.NDArray[Any]
Row = Mapping[str, Any]


class Ways:
    """The ways to compute the products of one layout.

    Parameters
    ----------
    layout : str
    tilings : iterable of Tiling
        Those that the kernel has no objection to are taken.
    """

    def __init__(self, layout: str, tilings: Iterable[Tiling]) -> None:
        self.layout = layout
        large = hopper.problem(of_shape(1 << 20, 1 << 20, 1 << 20, "bfloat16", layout))
        self.tilings = [
            each
            for each in tilings
            if not each.objection(large.swapped if each.swapped else large)
            and fits(each, H200.multiprocessors)
        ]
        self.places = {each: place for place, each in enumerate(self.tilings)}
        views = [int(each.swapped) for each in self.tilings]
        self._table = Table(self.tilings, views, H200.multiprocessors)

    def expected(self, problem: Problem) -> Array:
        """Return the seconds that each should take."""
        return seconds(self._table, [problem, problem.swapped], COSTS)

    def problem(self, row: Row) -> Problem:
        """Return the problem of a record's product."""
        return hopper.problem(of_shape(row["m"], row["n"], row["k"], "bfloat16", self.layout))

    def timed(self, row: Row) -> dict[int, float]:
        """Return the measured seconds of a record's product, by the places of the ways.

        Of those that are worth comparing.
        """
        model = self.expected(self.problem(row))
        return {
            self.places[way]: 1e-6 * time
            for way, time in ways_of(row["ways"])
            if way in self.places and model[self.places[way]] < math.inf
        }

    def measured(self, row: Row, caution: Array) -> tuple[Array, Array, float] | None:
        """Return each one's seconds by the model, and as measured, of a record's product.

        And what that counts. None if too few of them were timed.
        """
        model, found = self.expected(self.problem(row)), self.timed(row)
        if len(found) < FEWEST:
            return None
        places, times = (np.array(x) for x in zip(*found.items(), strict=True))
        # The others have the model's times, corrected by how far it is off for this product.
        seen = model * (np.median(times / model[places]) * caution)
        seen[places] = times
        return model, seen, WEIGHT if row["n"] in WIDTHS and row["k"] in WIDTHS else 1.0


def timed(rows: Iterable[Row]) -> list[Tiling]:
    """Return the tilings that were timed on enough products, swapped and not."""
    of_rows = [{sizes_of(way) for way, _ in ways_of(row["ways"])} for row in rows]
    count = Counter(sizes for each in of_rows for sizes in each)
    return [
        Tiling(*sizes[:6], is_swapped, ping_pong=sizes[6])
        for sizes, times in sorted(count.items())
        if times >= TIMES or sizes == sizes_of(ALWAYS)
        for is_swapped in (False, True)
    ]


def sizes_of(way: Tiling) -> tuple[int, int, int, int, int, bool, bool]:
    """Return what a tiling is, swapped or not."""
    return (
        way.block_m, way.block_n, way.cluster_m, way.cluster_n, way.split, way.stream_k,
        way.ping_pong,
    )  # fmt: skip


def products(layout: str, count: int, seed: int) -> list[Problem]:
    """Return random products."""
    drawn = random.Random(f"{layout} {seed}")

    def between(low: int, high: int) -> float:
        return math.exp(drawn.uniform(math.log(low), math.log(high)))

    found = []
    for _ in range(count):
        if layout in ("NN", "NT") and drawn.random() < MODELS:
            is_few = drawn.random() < FEW
            m = round(between(*(FEW_ROWS if is_few else (1, 8192))))
            if is_few and drawn.random() < 0.5:
                n, k = (drawn.choice(WIDTHS) for _ in range(2))
            else:
                n, k = (round(between(1024, 32768) / 512) * 512 for _ in range(2))
        else:
            m, n, k = (max(8, round(between(64, 12288) / 8) * 8) for _ in range(3))
        found.append(hopper.problem(of_shape(m, n, k, "bfloat16", layout)))
    return found


def uniform(layout: str, count: int, seed: int) -> list[Problem]:
    """Return the random products of :class:`tilewise.bench.suites.Random`, all of one layout."""
    shapes = Random(count, seed, 8).shapes()
    return [hopper.problem(of_shape(x.m, x.n, x.k, "bfloat16", layout)) for x in shapes]


def thin(layout: str, count: int, seed: int) -> list[Problem]:
    """Return the products of :func:`uniform`, with a 64th of the rows or of the columns in turn."""
    found = []
    for index, x in enumerate(Random(count, seed, 8).shapes()):
        few = max(8, (x.m, x.n)[index % 2] // 512 * 8)
        m, n = (few, x.n) if index % 2 == 0 else (x.m, few)
        found.append(hopper.problem(of_shape(m, n, x.k, "bfloat16", layout)))
    return found


def biases(ways: Ways, rows: Iterable[Row]) -> Array:
    """Return how far the model is off for each way: the mean logarithm of measured by expected.

    It is counted from the mean of the product's ways, and drawn towards 0 where few were timed.
    """
    total, count = np.zeros((2, len(ways.tilings)))
    for row in rows:
        found = ways.timed(row)
        if len(found) < FEWEST:
            continue
        model = ways.expected(ways.problem(row))
        places, times = (np.array(x) for x in zip(*found.items(), strict=True))
        near = times < NEAR * times.min()
        off = np.log(times / model[places])
        total[places[near]] += off[near] - off[near].mean()
        count[places[near]] += 1
    result: Array = total / (count + DOUBTED)
    return result


def widen(times: Array, start: Sequence[int], count: int) -> list[int]:
    """Return the places of the present ways, and of ``count`` more by which products are faster.

    Parameters
    ----------
    times : array, (products, ways)
        The logarithms of the expected seconds.
    start : sequence of int
        The places of the present ways.
    count : int
    """
    taken, best = list(start), times.min(1)
    now = times[:, taken].min(1)
    for _ in range(min(count, times.shape[1] - len(taken))):
        then = np.minimum(now[:, np.newaxis], times)
        taken.append(int(_loss(then - best[:, np.newaxis]).mean(0).argmin()))
        now = np.minimum(now, times[:, taken[-1]])
    return taken


def without_spare(every: Sequence[Array], taken: Sequence[int], always: int) -> list[int]:
    """Return the places of ways without those that could be left out at nearly no loss.

    Parameters
    ----------
    every : sequence of array, (products, ways)
        The logarithms of the expected seconds of samples of products, which count alike.
    taken : sequence of int
    always : int
        The place of a way that stays.
    """
    left = list(taken)
    while True:
        cost = np.zeros(len(left))
        for times in every:
            mine, rows = times[:, left], np.arange(len(times))
            order = np.argpartition(mine, 1, axis=1)[:, :2]
            two = np.take_along_axis(mine, order, 1)
            first = order[rows, two.argmin(1)]
            lost = _loss(np.sort(two, 1) - times.min(1, keepdims=True))
            cost += np.bincount(first, lost[:, 1] - lost[:, 0], len(left)) / len(times)
        cost[left.index(always)] = math.inf
        if cost.min() > DROPPED:
            return left
        left.pop(int(cost.argmin()))


def _loss(lost: Array) -> Array:
    """Return the loss of logarithms of slowdowns, of which large ones count more."""
    found = np.minimum(lost, MOST)
    result: Array = found + TAIL * found**2
    return result


class Products:
    """What a choice of ways loses, of the products of one layout.

    Parameters
    ----------
    model, times : array
        Seconds of each of the records' products by each way, by the model, and as measured.
    weight : array
        What each counts.
    drawn : array
        Those of the random products by the model.
    share : float
        What the random products count beside those of the records.
    """

    def __init__(
        self, model: Array, times: Array, weight: Array, drawn: Array, share: float
    ) -> None:
        self.model, self.weight, self.share = model, weight / weight.sum(), share
        self.times = np.log(times / times.min(1, keepdims=True))
        self.of_times, self.drawn = (
            _loss(np.log(x / x.min(1, keepdims=True))) for x in (times, drawn)
        )

    def loss(self, ways: Sequence[int]) -> float:
        """Return the loss."""
        recorded = float(self.of_times[self._chosen(ways)] @ self.weight)
        return recorded + self.share * float(self.drawn[:, ways].min(1).mean())

    def slowdown(self, ways: Sequence[int]) -> float:
        """Return the mean logarithm of the records' products' slowdown."""
        return float(self.times[self._chosen(ways)] @ self.weight)

    def _chosen(self, ways: Sequence[int]) -> tuple[Array, Array]:
        model = self.model[:, ways]
        return np.arange(len(model)), np.array(ways)[model.argmin(1)]


def choose(found: Products, start: Sequence[int], count: int) -> list[int]:
    """Return the places of the ways that should be chosen from, some of which are taken already."""
    taken, others = list(start), set(range(found.drawn.shape[1])) - {*start}
    while len(taken) < count and others:
        best = min(sorted(others), key=lambda x: found.loss([*taken, x]))
        taken.append(best)
        others.remove(best)
    return taken


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
    parser.add_argument("--kept", type=float, default=0.0, help="share of the records' products")
    parser.add_argument("--products", type=int, default=800, help="drawn for each layout")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args(arguments)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in options.records]
    rows = [row for record in records for row in record["rows"]]
    tilings, drawn = timed(rows), np.random.default_rng(options.seed)
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
        caution = np.where(is_present, 1.0, DISTRUST) if options.add else CAUTION + 0.0 * is_present
        recorded = [
            row for row in rows if row["layout"] == layout and len(ways.timed(row)) >= FEWEST
        ]
        seen = [ways.measured(row, caution) for row in recorded]
        model, times, weight = (np.array(x) for x in zip(*filter(None, seen), strict=True))
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
        FILE.write_text(text(result), encoding="utf-8")


def text(result: Mapping[str, Sequence[tuple[int, ...]]]) -> str:
    """Return the file: a line a way."""
    lines = {
        layout: ",\n".join(f'      "{" ".join(map(str, row))}"' for row in rows)
        for layout, rows in result.items()
    }
    parts = ",\n".join(f'    "{layout}": [\n{rows}\n    ]' for layout, rows in lines.items())
    head = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": (
            "python benchmarks/choose_kernels.py benchmarks/results/hopper_h200.json; "
            "for NN and NT then --widen 80"
        ),
        "columns": "block_m block_n cluster_m cluster_n split stream_k ping_pong swapped",
    }
    begin = "".join(f'  "{name}": {json.dumps(value)},\n' for name, value in head.items())
    return f'{{\n{begin}  "tilings": {{\n{parts}\n  }}\n}}\n'


if __name__ == "__main__":
    main()
