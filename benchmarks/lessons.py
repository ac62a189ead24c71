"""Count on the emulator what each rung's lesson says, and print it; no GPU is needed.

python benchmarks/lessons.py [--json tilewise/ladder/lessons.json]
"""

from __future__ import annotations

from command_line import add_json, parser_of

from tilewise.lens.lesson_counts import document
from tilewise.provenance import write


def main() -> None:
    """Count, print a row a rung, and write the file that the lessons are read from."""
    parser = parser_of(__doc__)
    add_json(parser)
    options = parser.parse_args()
    found = document()
    for name, row in found["rungs"].items():
        beside = "" if row["against"] is None else found["rungs"][row["against"]]["counters"]
        was = f"{beside[row['counter']]:,} -> " if beside else ""
        print(f"{name:18s} {row['counter']}: {was}{row['counters'][row['counter']]:,}")
    if options.json:
        write(options.json, found)


if __name__ == "__main__":
    main()
