"""Draw docs/roofline.png: each rung beside the ceilings of the GPU that the climb was measured on.

    python benchmarks/roofline.py [--processes N] [--json FILE] [--plot FILE]
    python benchmarks/roofline.py --draw

It is `tilewise roofline -m 4096 -n 4096 -k 4096` of every rung that has tiles, float32 and
bfloat16, with the times in seconds of the record that docs/climb.md is drawn from. The emulator
counts each rung's operations and bytes, with no GPU; it runs every block of the rungs for Hopper,
which takes minutes. With --draw nothing is counted: the figure is drawn from the present record.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from command_line import parser_of
from pages import DOCS, RESULTS, read

from tilewise.bench.climb import MAIN_SIZE, Point, climbed
from tilewise.cli.commands.roofline import draw
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.profiling import profile
from tilewise.lens.roofline import bound, for_gpu
from tilewise.provenance import write

PLOT = DOCS / "roofline.png"
CLIMB, RECORD = RESULTS / "climb_h200.json", RESULTS / "roofline_h200.json"
PAGES = {PLOT: (CLIMB, RECORD)}


def row_of(point: Point, description: str) -> dict[str, Any]:
    """Return a rung's operations and bytes, its least time on a GPU, and its measured time."""
    n, tile = point.n, point.row["tile"]
    found = profile(point.kernel, n, n, n, dtype=point.dtype, tile=tile, arch="sm_90a")
    roof = bound(found.work, for_gpu(description))
    return {
        "kernel": found.kernel, "file": Path(found.file).name, "dtype": point.dtype, "tile": tile,
        **roof.to_dict(), "seconds": point.row["seconds"],
        "share": roof.share(point.row["seconds"]), "correct": found.correct,
        "checked": found.check is not None,
    }  # fmt: skip


def document_of(climb: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record, in the form that ``tilewise roofline --json`` prints."""
    dtypes = {row["dtype"] for row in rows}
    return {
        "m": MAIN_SIZE, "n": MAIN_SIZE, "k": MAIN_SIZE,
        "dtype": dtypes.pop() if len(dtypes) == 1 else None, "arch": "sm_90a",
        "times_from": {key: climb[key] for key in ("date", "command")},
        "gpu": climb["machine"]["gpu"],
        "ceilings": for_gpu(climb["machine"]["gpu"]).to_dict(), "measured": True,
        "correct": all(row["correct"] for row in rows), "notes": [], "kernels": rows,
    }  # fmt: skip


def main() -> None:
    """Count the rungs' work unless only to draw, write the record, and draw the figure."""
    parser = parser_of(__doc__)
    parser.add_argument("--processes", type=int, default=4, metavar="N")
    parser.add_argument("--json", type=Path, default=RECORD, metavar="FILE")
    parser.add_argument("--plot", type=Path, default=PLOT, metavar="FILE")
    parser.add_argument("--draw", action="store_true", help="draw the record that is there")
    options = parser.parse_args()
    if options.draw:
        record = read(options.json)
        draw(record, for_gpu(record["gpu"]), options.plot)
        return
    climb = read(CLIMB)
    tiled = {rung.name for rung in RUNGS if rung.tiles}
    points = [each for each in climbed(climb) if each.kernel in tiled and each.n == MAIN_SIZE]
    description = climb["machine"]["gpu"]
    with ProcessPoolExecutor(options.processes) as pool:
        # The last ones take longest.
        found = [pool.submit(row_of, point, description) for point in reversed(points)]
        rows = [future.result() for future in reversed(found)]
    document = document_of(climb, rows)
    write(options.json, document)
    draw(read(options.json), for_gpu(description), options.plot)
    for row in rows:
        print(f"{row['kernel']:18s} {row['seconds'] * 1e3:8.2f} ms  share {row['share']:.3f}")


if __name__ == "__main__":
    main()
