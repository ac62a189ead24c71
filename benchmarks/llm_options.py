"""What the benchmarks of products in a language model share: their options, and their products."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewise.bench.stand import TINY, shapes
from tilewise.bench.suites import COLUMNS, ROWS, TOKENS, WEIGHTS, Shape
from tilewise.errors import TilewiseError
from tilewise.precision import HALVES


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that they share."""
    found = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    found.add_argument(
        "--products", type=_weights, default=list(WEIGHTS), metavar="NxK,NxK",
        help="weights, by default those of the suite llm",
    )  # fmt: skip
    found.add_argument(
        "--rows", type=_rows, default=list(TOKENS), metavar="M,M",
        help="by default those of the suite llm",
    )  # fmt: skip
    found.add_argument("--dtype", choices=HALVES, default="bfloat16")
    timing_options(found, rounds=5, seconds=0.02)
    return found


def timing_options(found: argparse.ArgumentParser, *, rounds: int, seconds: float) -> None:
    """Add what says how long is measured, and where the record goes."""
    found.add_argument("--rounds", type=int, default=rounds)
    found.add_argument(
        "--seconds", type=float, default=seconds, help="of a contender and round, at least"
    )
    found.add_argument(
        "--limit", type=float, default=math.inf, metavar="SECONDS", help="begin nothing after them"
    )
    found.add_argument("--tiny", action="store_true", help="try it on a CPU, in seconds")
    found.add_argument("--json", type=Path, metavar="FILE", help="write what was found")


def checked(found: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ends the process where a time or a count is none."""
    options = found.parse_args(arguments)
    if options.rounds < 1 or not 0 < options.seconds < math.inf or not options.limit > 0:
        found.error("--rounds must be at least 1; --seconds and --limit must be above 0")
    return options


def products_of(options: argparse.Namespace) -> list[Shape]:
    """What is asked for."""
    if options.tiny:
        return [Shape(m, n, k, ROWS, COLUMNS) for m, n, k in TINY]
    return shapes(options.products, options.rows)


@contextmanager
def going_on(name: str, failures: list[str]) -> Iterator[None]:
    """Note what failed, ours or a rival's, and go on."""
    try:
        yield
    except (TilewiseError, RuntimeError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        failures.append(f"{name}: {first}")
        say(failures[-1])


def ratios_of(row: Mapping[str, Any]) -> str:
    """A row's ratios for people, or what is wrong with its results."""
    if row["wrong"]:
        return f"WRONG: {', '.join(row['wrong'])} ({row['error_share']})"
    return ", ".join(f"{name} {ratio:.3f}" for name, ratio in row["ratios"].items())


def say(text: str) -> None:
    """Tell how far it is, on standard error."""
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
