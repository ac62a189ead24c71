"""Write records to benchmarks/results in the form that is kept, without what nothing reads.

    python benchmarks/keep.py FILE.json ...

The commands write more than is kept: the times of single rounds, how each matrix lies in memory. In
the kept form a row is a line, and a figure has eight digits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import parser_of
from pages import RESULTS

from tilewise.provenance import write_whole

# Keys of rows that no page and no test reads.
LEFT_OUT = frozenset(
    {
        "seconds_of_rounds", "launches_a_round", "in_graph", "in_turn", "sets", "storage", "batch",
        "out_dtype", "error_share", "stack_bytes", "barriers", "constant_bytes", "other_metrics",
        "limits", "tried",
    }
)  # fmt: skip
# In rows of these lists, ``batch`` is a size of the problem, of sequences or products, and is kept.
OF_BATCHES = frozenset({"decoding", "batches"})
DIGITS = 8


def kept(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record without the keys that are left out of its rows, figures rounded."""
    return {
        key: [row_kept(row, key) if isinstance(row, dict) else row for row in value]
        if isinstance(value, list)
        else value
        for key, value in record.items()
    }


def row_kept(row: dict[str, Any], of: str = "") -> dict[str, Any]:
    """Return a row in the kept form; the emulator's counts only if they are not the hardware's."""
    left_out = LEFT_OUT - {"batch"} if of in OF_BATCHES else LEFT_OUT
    found = {name: short(x) for name, x in row.items() if name not in left_out}
    if "emulator" in row and "hardware" in row:
        there = row["hardware"]
        found["emulator"] = {name: x for name, x in row["emulator"].items() if x != there[name]}
    return found


def short(value: Any) -> Any:
    """Return ``value`` with its floats rounded, also those in dictionaries."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: short(x) for key, x in value.items()}
    return value


def lines(record: dict[str, Any]) -> str:
    """Return a record as JSON, each row of a list in a line."""
    parts = []
    for key, value in record.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in value)
            text = "[\n" + ",\n".join(rows) + "\n]"
        parts.append(f"{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write each record that is named on the command line to benchmarks/results."""
    parser = parser_of(__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="FILE.json")
    for path in parser.parse_args().records:
        text = lines(kept(json.loads(path.read_text())))
        write_whole(RESULTS / path.name, text.encode())
        print(f"{path.name}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
