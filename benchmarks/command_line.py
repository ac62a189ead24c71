"""Read the command lines of the scripts in benchmarks/, by the options that they share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def parser_of(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser that describes a script by the first line of its docstring."""
    return argparse.ArgumentParser(description=(docstring or "").splitlines()[0])


def takes_no_options(docstring: str | None) -> None:
    """Parse the command line of a script without options; ``--help`` ends the process."""
    parser_of(docstring).parse_args()


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, the file that the record is written to."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to this file")


def add_timing(parser: argparse.ArgumentParser, *, rounds: int, seconds: float) -> None:
    """Add ``--rounds`` and ``--seconds``, how often and how long each contender is timed.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    rounds : int
        The default number of rounds; a figure is their median.
    seconds : float
        The default duration of a round of one contender, in seconds.
    """
    parser.add_argument("--rounds", type=int, default=rounds, help=f"by default {rounds}")
    parser.add_argument(
        "--seconds", type=float, default=seconds,
        help=f"the least duration of a round of one contender, by default {seconds:g} s",
    )  # fmt: skip


def add_fit(parser: argparse.ArgumentParser, *, folds: int) -> None:
    """Add the arguments of a fit: the records, ``--check`` and ``--folds``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    folds : int
        The default number of parts of the cross-validation.
    """
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD")
    parser.add_argument("--check", action="store_true", help="fit nothing; print the model's error")
    parser.add_argument(
        "--folds",
        type=int,
        default=folds,
        help=f"parts of the cross-validation: {folds}",
    )


def check_timing(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the process with a message if ``--rounds`` or ``--seconds`` is out of range."""
    if options.rounds < 1 or not 0 < options.seconds < math.inf:
        parser.error("--rounds must be at least 1, and --seconds must be above 0")


def separated_by_commas(
    kind: Callable[[str], Any], known: Sequence[Any] = ()
) -> Callable[[str], list[Any]]:
    """Return the type of an option whose values are separated by commas.

    Parameters
    ----------
    kind : callable
        Converts a word to a value. If it is ``int``, values must be at least 1.
    known : sequence, optional
        The values that the option takes; by default any.
    """

    def read(text: str) -> list[Any]:
        found = [kind(word) for word in text.split(",")]
        for each in found:
            if (known and each not in known) or (kind is int and each < 1):
                raise argparse.ArgumentTypeError(f"{each!r} is not a value of this option")
        return found

    return read
