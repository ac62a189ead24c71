"""Write docs/performance.md, its figure, and the pages of float32 and float64 from their records.

    tilewise bench --suite SUITE --dtype DTYPE --json bench_DTYPE_SUITE_h200.json
    tilewise bench --random COUNT --seed S --multiple M --dtype DTYPE --json random_DTYPE_h200.json
    python benchmarks/first_call.py --json first_call_h200.json
    python benchmarks/keep.py bench_*_h200.json random_*.json first_call_h200.json
    python benchmarks/performance.py

The suites are square, llm and odd of bfloat16, and square, odd and thin of float32 and float64. The
rungs in the figure are those of benchmarks/results/climb_h200.json, by ``tilewise climb``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from command_line import takes_no_options
from pages import DOCS, RESULTS, gpu_of, paragraph, read, table

from tilewise.bench import plot
from tilewise.bench.suites import REAL_SUITES
from tilewise.bench.summary import geometric_mean
from tilewise.provenance import write_whole

SLOWER = 0.95  # a ratio below it is counted
CLIMB = RESULTS / "climb_h200.json"
PAGE = DOCS / "performance.md"
FIGURE = PAGE.with_suffix(".png")
SUITES_OF = {"bfloat16": ("square", "llm", "odd"), "float32": REAL_SUITES, "float64": REAL_SUITES}
# The records of each page, one after another.
PARTS = {
    (PAGE if dtype == "bfloat16" else DOCS / f"performance-{dtype}.md"): [
        RESULTS / f"bench_{dtype}_{suite}_h200.json" for suite in suites
    ]
    for dtype, suites in SUITES_OF.items()
}
RANDOM = tuple(
    RESULTS / f"random_{kind}_{gpu}.json"
    for gpu in ("h200", "h100")
    for kind in ("bfloat16_8", "bfloat16", "float32", "float64")
)
FIRST_CALLS = tuple(RESULTS / f"first_call_{gpu}.json" for gpu in ("h200", "h100"))
CACHES = {
    "empty": "empty before",
    "cached": "has the kernels",
    "others": "has those of as many other products",
}
"""What a pass of first calls finds in the cache of compiled kernels, by its name in the record."""
PAGES = {
    path: (*records, *RANDOM, *FIRST_CALLS, CLIMB) if path == PAGE else tuple(records)
    for path, records in PARTS.items()
}


def page(*records: Mapping[str, Any]) -> str:
    """Return a page of one record, or of several that were measured one after another."""
    rows = [row for record in records for row in record["rows"]]
    summaries = [found for record in records for found in record["summaries"]]
    record = {**records[0], "rows": rows, "commands": [each["command"] for each in records]}
    parts = [_opening(record), _summary(summaries, record)]
    if record["dtype"] == "bfloat16":
        parts.append(f"![TFLOP/s over size]({FIGURE.name})\n")
        parts.append(_random([read(path) for path in RANDOM]))
        parts.append(_first_calls([read(path) for path in FIRST_CALLS]))
    parts.append(_method(record))
    for group in dict.fromkeys(row["group"] for row in record["rows"]):
        of_group = [row for row in record["rows"] if row["group"] == group]
        parts.append(f"## {group}\n\n{_rows(of_group)}")
    return "\n".join(parts)


def _opening(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    wrong = [f"{row['name']} {row['layout']}" for row in record["rows"] if not row["correct"]]
    verdict = f"Wrong: {', '.join(wrong)}." if wrong else "Every product was checked and right."
    what = f"The time of `tilewise.matmul` beside `torch.matmul`'s in {record['dtype']}, measured"
    return f"# Performance in {record['dtype']}\n\n" + paragraph(
        f"{what} {record['date'][:10]} on {machine['gpu']}. {verdict}"
    )


def _made(record: Mapping[str, Any]) -> str:
    """Return the commands that measured, the driver, and the versions of all packages."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        "".join(f"    {command}\n\n" for command in record["commands"])
        + paragraph(
            "What these commands wrote is kept, and `python benchmarks/performance.py` draws this "
            f"page from it. Driver {record['machine']['driver']}. Versions: {versions}."
        )
        + "\n"
    )


def _summary(summaries: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    lines = [
        [
            found["group"], str(found["products"]), f"{found['mean']:.3f}",
            f"{found['worst']:.3f}", f"{found['name']} {found['layout']}",
        ]
        for found in summaries
    ]  # fmt: skip
    if record["dtype"] in ("float32", "float64"):
        ratios = [
            row["ratio"]
            for row in record["rows"]
            if "ratio" in row and row["suite"] in ("square", "odd")
        ]
        lines.append(["square and odd", str(len(ratios)), f"{geometric_mean(ratios):.3f}", "", ""])
    return (
        "A ratio is PyTorch's time by ours: above 1, ours is faster. Means are geometric.\n\n"
        + table(["suite", "products", "mean ratio", "worst", "at"], lines, "lrrrl")
    )


def _random(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the section on random products."""
    lines = []
    for record in records:
        (found,) = record["summaries"]
        ratios = [row["ratio"] for row in record["rows"]]
        lines.append([
            gpu_of(record), record["dtype"], found["group"],
            str(found["products"]), f"{found['mean']:.3f}", f"{found['worst']:.3f}",
            f"{found['name']} {found['layout']}", str(sum(ratio < SLOWER for ratio in ratios)),
        ])  # fmt: skip
    heading = [
        "GPU", "dtype", "drawn", "products", "mean ratio", "worst", "at", f"ratios below {SLOWER}",
    ]  # fmt: skip
    return (
        "## Random products\n\n"
        + paragraph(
            "Sizes drawn log-uniformly from 64 to 12288, any layout. Neither the kernels nor the "
            "planner's constants were fitted to these products. Another "
            "seed draws other products: `tilewise bench --random 50 --seed 1 --multiple 8`."
        )
        + "\n"
        + table(heading, lines, "lllrrrlr")
    )


def _first_calls(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the section on the first calls of new shapes."""
    lines = []
    for record in records:
        for run in record["runs"].values():
            for mode, cache in CACHES.items():
                both = [run["modes"][mode][name] for name in ("ours", "torch")]
                lines.append([
                    gpu_of(record), record["date"][:10], f"{run['dtype']}, {run['what']}", cache,
                    *(f"{found['total']:.3f}" for found in both),
                    *(f"{found[key] * 1e3:.2f}" for key in ("median", "longest") for found in both),
                ])  # fmt: skip
    heading = [
        "GPU", "measured", "products", "our cache of kernels", "all, s", "torch, s", "median, ms",
        "torch, ms", "longest, ms", "torch, ms",
    ]  # fmt: skip
    counts = {len(run["sizes"]["first"]) for record in records for run in record["runs"].values()}
    return (
        "## The first call of a shape\n\n"
        + paragraph(
            f"The host's time of {' or '.join(map(str, sorted(counts)))} products whose shapes all "
            "differ, one after another, so that each call plans anew. Where the cache of compiled "
            "kernels is empty, calls wait for the compiler too, which [`tilewise "
            "warm`](matmul.md#have-no-call-wait-for-the-compiler) avoids. Hosts differ, so PyTorch "
            "was timed on the same machine in the same minute. `python benchmarks/first_call.py "
            "--seed 2` draws other products."
        )
        + "\n"
        + table(heading, lines, "llllrrrrrr")
    )


def _method(record: Mapping[str, Any]) -> str:
    method, ceilings = record["method"], record["ceilings"]
    peak = ceilings["tflops"]
    unit = {
        "float32": "multiply-adds between registers",
        "float64": "tensor cores between registers",
    }.get(record["dtype"], "tensor cores fed from shared memory alone")
    compute = f"{unit}, {peak:.0f} TFLOP/s; " if peak else ""
    exact = "float64" if record["dtype"] != "float64" else "one of more precision"
    how = (
        f"Random normal data, in as many sets of operands as take twice the L2 cache "
        f"({method['l2_bytes'] / 2**20:.0f} MiB), at most {method['most_operand_sets']}, used in "
        f"turn. Each product is first checked against {exact}, by a bound that follows from its "
        "roundings, and what was timed must have the same bits. Ours and PyTorch's are timed in "
        f"turn, {method['rounds']} rounds, each for {method['seconds_a_round']:g} s after "
        f"{method['warm_up_seconds']:g} s of warm-up, so that the power limit rules; a figure is "
        "the median of the rounds. Where a launch of either takes less than "
        f"{method['graph_below_seconds'] * 1e6:.0f} µs, both are replayed in CUDA graphs of at "
        f"least {method['graph_launches']}."
    )
    share = (
        "The share is that of the nearer ceiling, named by c (compute) or m (memory), both "
        f"measured in the same run: {compute}a copy within the device's memory, "
        f"{ceilings['gigabytes']:,.0f} GB/s, read and written."
    )
    words = (
        "Sizes are m x n x k, of a batch with their number ahead. In the layout, T is a matrix "
        "that is stored transposed; a pad is what lies between its lines, in elements."
    )
    paragraphs = "\n".join(paragraph(text) for text in (how, share, words))
    return f"## How it was measured\n\n{_made(record)}{paragraphs}"


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    heading = [
        "m x n x k", "layout", "ours, µs", "torch, µs", "ours, TFLOP/s", "torch, TFLOP/s",
        "ratio", "share",
    ]  # fmt: skip
    return table(heading, [_cells(row) for row in rows], "llrrrrrr")


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [row["name"].replace("*", "\\*"), row["layout"]]
    if "ratio" not in row:
        return [*cells, "wrong", "", "", "", "", ""]
    share = "" if row["share"] is None else f"{row['share']:.2f} {row['limit'][0]}"
    cells += [f"{row['seconds'][name] * 1e6:,.1f}" for name in ("ours", "torch")]
    cells += [f"{row['tflops'][name]:.1f}" for name in ("ours", "torch")]
    return [*cells, f"{row['ratio']:.3f}", share]


def main() -> None:
    """Draw the figure, and write the pages."""
    takes_no_options(__doc__)
    plot.draw(read(PARTS[PAGE][0]), FIGURE, read(CLIMB))
    for path, records in PARTS.items():
        write_whole(path, page(*map(read, records)).encode())


if __name__ == "__main__":
    main()
