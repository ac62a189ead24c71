"""Measure part by part within a time limit, and write the record after each part.

It is what epilogues.py, invariant.py and models.py share: their options, and a run's record.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from command_line import add_json, add_timing, check_timing, parser_of

from tilewise.bench.stand import TINY, Budget, Stand, shapes, told
from tilewise.bench.suites import COLUMNS, ROWS, TOKENS, WEIGHTS, Shape
from tilewise.errors import TilewiseError
from tilewise.precision import HALVES
from tilewise.provenance import write

Row = dict[str, Any]


class ProductRun:
    """A run of a benchmark: what it has measured, and the record of it.

    Parameters
    ----------
    options : argparse.Namespace
        The options; ``limit`` is in seconds, and ``json`` the record's file or None.
    at : Stand
        The device, and the method of timing.

    Attributes
    ----------
    budget : Budget
        The time that is left, and the number of parts that were not measured when it was up.
    failures : list of str
        For each part that raised an error, its name and the error's message.
    """

    def __init__(self, options: argparse.Namespace, at: Stand) -> None:
        self.options, self.at, self.budget = options, at, Budget(options.limit)
        self.failures: list[str] = []

    def record(self) -> Row:
        """Return what was measured until now, without its provenance."""
        raise NotImplementedError

    def keep(self) -> None:
        """Write the record to the file of ``--json``, if one was named."""
        if self.options.json:
            write(self.options.json, self.record())

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure a part: an error, ours or a rival's, is noted, and the run continues."""
        try:
            yield
        except (TilewiseError, RuntimeError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.failures.append(f"{name}: {first}")
            say(self.failures[-1])

    def print_summaries(self) -> None:
        """Print the summaries of the record, and how much was not measured."""
        for each in self.record()["summaries"]:
            print(f"{each['what']}: {told(each)}")
        if self.budget.left:
            print(f"the time was up: {self.budget.left} were not measured")


def product_options(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of a benchmark of a language model's products."""
    found = parser_of(docstring)
    found.add_argument(
        "--products", type=_weights, default=list(WEIGHTS), metavar="NxK,NxK",
        help="n and k of the weights, by default those of the suite llm",
    )  # fmt: skip
    found.add_argument(
        "--rows", type=_rows, default=list(TOKENS), metavar="M,M",
        help="m, by default those of the suite llm",
    )  # fmt: skip
    found.add_argument("--dtype", choices=HALVES, default="bfloat16")
    add_run_options(found, rounds=5, seconds=0.02)
    return found


def add_run_options(found: argparse.ArgumentParser, *, rounds: int, seconds: float) -> None:
    """Add the options that say how long is measured, and where the record goes."""
    add_timing(found, rounds=rounds, seconds=seconds)
    found.add_argument(
        "--limit", type=float, default=math.inf, metavar="SECONDS",
        help="begin no part after so many seconds",
    )  # fmt: skip
    found.add_argument("--tiny", action="store_true", help="try it on a CPU, in seconds")
    add_json(found)


def checked(found: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; end the process if a time or a count is out of range."""
    options = found.parse_args(arguments)
    check_timing(found, options)
    if not options.limit > 0:
        found.error("--limit must be above 0")
    return options


def products_of(options: argparse.Namespace) -> list[Shape]:
    """Return the products that the options name."""
    if options.tiny:
        return [Shape(m, n, k, ROWS, COLUMNS) for m, n, k in TINY]
    return shapes(options.products, options.rows)


def ratios_of(row: Mapping[str, Any]) -> str:
    """Return a row's ratios in words, or which of its results are wrong."""
    if row["wrong"]:
        return f"WRONG: {', '.join(row['wrong'])} ({row['error_share']})"
    return ", ".join(f"{name} {ratio:.3f}" for name, ratio in row["ratios"].items())


def say(text: str) -> None:
    """Print a run's progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def _weights(text: str) -> list[tuple[int, int]]:
    found = []
    for word in text.split(","):
        n, x, k = word.partition("x")
        if not (x and n.isdecimal() and k.isdecimal() and int(n) and int(k)):
            raise argparse.ArgumentTypeError(f"{word!r} is not a weight, as 4096x14336 is")
        found.append((int(n), int(k)))
    return found


def _rows(text: str) -> list[int]:
    words = text.split(",")
    for word in words:
        if not (word.isdecimal() and int(word)):
            raise argparse.ArgumentTypeError(f"{word!r} is not a number of rows")
    return [int(word) for word in words]
