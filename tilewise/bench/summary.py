"""Summarise the rows of a suite in few figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the n-th root of the product of n positive values.

    Raises
    ------
    ValueError
        If there are none, or one is not positive.
    """
    logarithms = []
    for value in values:
        if not value > 0:
            raise ValueError(f"{value} has no place in a geometric mean; values must be positive")
        logarithms.append(math.log(value))
    if not logarithms:
        raise ValueError("there are no values to take a mean of")
    return math.exp(math.fsum(logarithms) / len(logarithms))


def group_of(suite: str, is_off: bool) -> str:
    """Return the group that a product counts in: its suite; of ``odd`` there are two."""
    if suite != "odd":
        return suite
    return "odd, off 16 bytes" if is_off else "odd, the rest"


def summaries(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the geometric mean and the worst ratio of each group, in the order of the rows.

    Parameters
    ----------
    rows : sequence of mapping
        With ``group``, ``name``, ``layout`` and, where it was timed, ``ratio``: the rival's time
        by ours.

    Returns
    -------
    list of dict
        ``group``, ``products``, ``mean``, ``worst``, ``below_95`` (how many are), and the ``name``
        and ``layout`` of the worst.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if "ratio" in row:
            groups.setdefault(row["group"], []).append(row)
    found = []
    for group, members in groups.items():
        worst = min(members, key=lambda row: float(row["ratio"]))
        found.append(
            {
                "group": group,
                "products": len(members),
                "mean": geometric_mean(row["ratio"] for row in members),
                "worst": worst["ratio"],
                "below_95": sum(row["ratio"] < 0.95 for row in members),
                "name": worst["name"],
                "layout": worst["layout"],
            }
        )
    return found
