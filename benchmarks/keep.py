"""Writes records to benchmarks/results in the form that is kept: what the docs are drawn from.

    python benchmarks/keep.py FILE.json ...

``tilewise bench``, ``tilewise climb``, ``counters.py`` and ``mma_products.py`` write more than
that: the times of single rounds, how each matrix lies in memory. Here a row is a line, and a figure
has eight digits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tilewise.provenance import write_whole

RESULTS = Path(__file__).parent / "results"
# Of the rows of one list or another, what no page and no test reads.
LEFT_OUT = frozenset(
    {
        "seconds_of_rounds", "launches_a_round", "in_graph", "in_turn", "sets", "storage", "batch",
        "out_dtype", "error_share", "stack_bytes", "barriers", "constant_bytes", "other_metrics",
        "limits", "tried",
    }
)  # fmt: skip
# Of these rows, ``batch`` is the number of sequences, and is kept.
OF_BATCHES = "decoding"
DIGITS = 8


def kept(record: dict[str, Any]) -> dict[str, Any]:
    """The record without what is left out of its rows, figures rounded."""
    return {
        key: [row_kept(row, key) if isinstance(row, dict) else row for row in value]
        if isinstance(value, list)
        else value
        for key, value in record.items()
    }


def row_kept(row: dict[str, Any], of: str = "") -> dict[str, Any]:
    """A row without what is left out; of the emulator's counts, those the hardware differs in."""
    left_out = LEFT_OUT - {"batch"} if of == OF_BATCHES else LEFT_OUT
    found = {name: short(x) for name, x in row.items() if name not in left_out}
    if "emulator" in row and "hardware" in row:
        there = row["hardware"]
        found["emulator"] = {name: x for name, x in row["emulator"].items() if x != there[name]}
    return found


def short(value: Any) -> Any:
    """``value`` with its floats rounded, also those inside it."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: short(x) for key, x in value.items()}
    return value


def lines(record: dict[str, Any]) -> str:
    """JSON, a row of a list to a line."""
    parts = []
    for key, value in record.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in value)
            text = "[\n" + ",\n".join(rows) + "\n]"
        parts.append(f"{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    for word in sys.argv[1:]:
        path = Path(word)
        text = lines(kept(json.loads(path.read_text())))
        write_whole(RESULTS / path.name, text.encode())
        print(f"{path.name}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
