"""Write docs/performance-model.md, what products in a model cost, from their records.

    python benchmarks/model_page.py

The records are ``benchmarks/results/KIND_GPU.json``, one of each kind and GPU: ``epilogues``,
``invariant``, ``grouped``, ``models`` and ``operator_cost``, as the scripts of these names write
them. A part of the page whose record is missing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from command_line import takes_no_options
from pages import DOCS, RESULTS, gpu_of, paragraph, read, table

from tilewise.gemm.chip import MEASURED_MEMORY

PAGE = DOCS / "performance-model.md"
Row = Mapping[str, Any]

HEAD = """\
# Products in a model: what they cost

<!-- Written by benchmarks/model_page.py from benchmarks/results. -->

This page has the time that an [epilogue](epilogues.md) adds to a product, the cost of
[the same bits in any batch](matmul.md#the-same-bits-in-any-batch), the speed of
[grouped products](grouped.md), and the time of a training step and of decoding
[in PyTorch](pytorch.md).

Every product of ours was checked against float64 before it was timed, and is right. The data are
random and normal. Contenders are timed in turn, round by round, and a figure is the median of the
rounds. Products use as many sets of operands in turn as take twice the L2 cache, and short
products are replayed in CUDA graphs. Means are geometric. Unless stated otherwise, a ratio is a
rival's time by ours: above 1, ours is faster.
"""


def records(folder: Path) -> dict[str, Row]:
    """Return the records in a folder by their kind, or if a kind has several by the file's stem.

    Raises
    ------
    ValueError
        If there are several of a kind and GPU, one is of tiny products, or a result was wrong.
    """
    found: dict[str, Row] = {}
    for kind in PARTS:
        paths = sorted(folder.glob(f"{kind}_*.json"))
        gpus = set()
        for path in paths:
            record = read(path)
            found[kind if len(paths) == 1 else path.stem] = record
            gpus.add(record["machine"]["gpu"])
            if record.get("tiny"):
                raise ValueError(f"{path.name} is of tiny products, on a CPU")
            rows = [*record.get("rows", ()), *record.get("beside", ())]
            wrong = [row["name"] for row in rows if row["wrong"]]
            wrong += [name for name, x in record.get("checks", {}).items() if x["wrong"]]
            if wrong:
                raise ValueError(f"{path.name} has wrong results: {', '.join(wrong)}")
        if len(gpus) < len(paths):
            names = ", ".join(x.name for x in paths)
            raise ValueError(f"there is more than one record of a GPU: {names}")
    return found


def page(given: Mapping[str, Row]) -> str:
    """Return the page of records, as :func:`records` returns them.

    Raises
    ------
    ValueError
        If there are none.
    """
    if not given:
        raise ValueError(f"there is no record to draw; there may be {', '.join(PARTS)}")
    parts = [HEAD]
    for kind, (title, draw) in PARTS.items():
        of_kind = [x for name, x in given.items() if name == kind or name.startswith(f"{kind}_")]
        if of_kind:
            parts.append(f"\n## {title}\n")
        for record in of_kind:
            gpu = gpu_of(record)
            heading = f"\n### {title} on an {gpu}\n" if len(of_kind) > 1 else ""
            parts += [f"{heading}\n", draw(record), "\n", _from(record)]
    return "".join(parts)


def _from(record: Row) -> str:
    """Return where a part's figures come from: date, machine, versions, commands."""
    versions = record["versions"]
    told = (
        f"{record['dtype']}, {record['date'][:10]}, on {record['machine']['gpu']}, PyTorch "
        f"{versions['torch']}, cuBLAS {versions.get('nvidia-cublas', 'of PyTorch')}, by"
    )
    if record.get("not_measured"):
        told = f"When the time was up, {record['not_measured']} were not measured. " + told
    if record.get("failures"):
        told = f"What failed: {'; '.join(record['failures'])}. " + told
    told = paragraph(told) + f"\n    {record['command']}\n"
    for earlier in record.get("earlier_commands", ()):
        date, command = earlier.split(": ", 1)
        told += f"\nSome of the rows are from a run on {date}, by\n\n    {command}\n"
    return told


def _summaries(found: Sequence[Row], *, is_one: bool = False) -> str:
    """Return a table of ratios beside their goals."""

    def value(row: Row, key: str, goal: str) -> str:
        words = "at most" if row["is_cost"] else "at least"
        return f"{row[key]:.3f}" + ("" if row[goal] is None else f" ({words} {row[goal]:g})")

    def verdict(row: Row) -> str:
        return "" if row["goal"] is None else "met" if row["is_met"] else "missed"

    if is_one:
        lines = [(x["what"], value(x, "mean", "goal"), verdict(x)) for x in found]
        return table(("", "ratio (goal)", ""), lines, "lrl")
    lines_of_many = [
        (
            x["what"], str(x["count"]), value(x, "mean", "goal"), value(x, "worst", "worst_goal"),
            x["worst_at"], verdict(x),
        )
        for x in found
    ]  # fmt: skip
    heading = ("", "of", "mean (goal)", "worst (goal)", "at", "")
    return table(heading, lines_of_many, "lrrrll")


def _epilogues(record: Row) -> str:
    names = [case["name"] for case in record["cases"]]
    cases = "; ".join(f"{x['name']}, `{x['epilogue']}`" for x in record["cases"])
    told = (
        f"The weights of language models, X by rows and W as a linear layer has it: {cases}. "
        "Beside the plain product of the same sizes the ratio is the time with the epilogue by "
        "the time without. `torch.compile` has the same expression, with "
        f'`mode="{record["mode"]}"`; of the products a sample was drawn for it.'
    )
    lines = [
        (
            row["name"], f"{1e6 * row['seconds']['plain']:,.1f}", f"{row['tflops']:.0f}",
            *(f"{row['ratios'][name]:.3f}" for name in names),
        )
        for row in record["rows"]
    ]  # fmt: skip
    parts = [paragraph(told), _summaries(record["summaries"])]
    parts.append(table(("", "plain, µs", "TFLOP/s", *names), lines, "lrr" + "r" * len(names)))
    if record["beside"]:
        beside = [
            (
                row["name"], row["case"], f"{1e6 * row['seconds']['tilewise']:,.1f}",
                *(f"{row['ratios'][name]:.3f}" for name in ("torch.compile", "torch")),
            )
            for row in record["beside"]
        ]  # fmt: skip
        parts.append(table(("", "", "ours, µs", "torch.compile", "torch"), beside, "llrrr"))
    return "\n".join(parts)


def _invariant(record: Row) -> str:
    names = ("default", "torch", "torch, k undivided")
    told = (
        "`invariant=True` beside our default and `torch.matmul`. Up to 128 rows also beside "
        "`torch.matmul` by cuBLASLt with split-k off. k is divided into so many parts, whatever m "
        "is."
    )
    lines = [
        (
            row["name"], str(row["parts"]), f"{1e6 * row['seconds']['invariant']:,.1f}",
            f"{row['tflops']:.0f}",
            *(f"{row['ratios'][x]:.3f}" if x in row["ratios"] else "" for x in names),
        )
        for row in record["rows"]
    ]  # fmt: skip
    rows = table(("", "parts", "µs", "TFLOP/s", *names), lines, "lrrrrrr")
    return "\n".join((paragraph(told), _summaries(record["summaries"]), rows))


def _models(record: Row) -> str:
    parts = []
    if training := record["training"]:
        sizes, checks = record["sizes"], record["checks"]["GPT-2"]
        told = (
            f"A step (forward, backward, AdamW) of GPT-2 small, {sizes['vocabulary']:,} words not "
            f"padded, {record['batch']} sequences of {record['context']:,}, "
            f"{'float32 weights under autocast' if record['autocast'] else 'all of it in 16 bits'}."
            " Padded is PyTorch with so many words that a row of logits is aligned. The loss is "
            "part of what is compiled. Two contenders are timed in turn, called one by one (eager) "
            f"and captured in CUDA graphs. {checks['products']} products of linear layers and "
            f"their gradients were checked: the largest error is {checks['error_share']:.2f} of "
            "its bound."
        )
        lines = [
            (
                way, row["rival"], f"{1e3 * seconds[row['rival']]:.2f}",
                row["ours"], f"{1e3 * seconds[row['ours']]:.2f}", f"{row['ratios'][way]:.3f}",
            )
            for row in training
            for way, seconds in row["seconds"].items()
        ]  # fmt: skip
        steps = [x for x in record["summaries"] if x["what"].startswith("training")]
        parts += ["### A training step\n", paragraph(told)]
        parts += [
            table(("", "rival", "ms", "ours", "ms", "ratio"), lines, "llrlrr"),
            _summaries(steps, is_one=True),
        ]
    if decoding := record["decoding"]:
        told = (
            "One position more of a block of a Llama-like model, behind "
            f"{record['context']:,} others. Called one by one, a step of few sequences may "
            "wait for the host; captured in CUDA graphs it does not. Microseconds, and PyTorch's "
            "time by ours."
        ) + _least_reading(record)
        ways = [x for x in ("eager", "captured") if all(x in row["ratios"] for row in decoding)]
        cells = [[str(row["batch"])] for row in decoding]
        for row, line in zip(decoding, cells, strict=True):
            for way in ways:
                line += [f"{1e6 * row['seconds'][way][x]:,.1f}" for x in ("torch", "tilewise")]
                line.append(f"{row['ratios'][way]:.3f}")
        heading = ["batch"]
        for way in ways:
            heading += [f"torch, {way}", f"tilewise, {way}", "ratio"]
        of_decoding = [x for x in record["summaries"] if x["what"].startswith("decoding")]
        parts += ["### Decoding\n", paragraph(told), table(heading, cells, "r" * len(heading))]
        parts.append(_summaries(of_decoding))
    if losses := record["losses"]:
        parts += ["### Losses\n", _losses(record, losses)]
    return "\n".join(parts)


def _least_reading(record: Row) -> str:
    """Return the least time to read a decoding step's weights; empty on an unknown GPU."""
    rate = MEASURED_MEMORY.get(gpu_of(record))
    if rate is None:
        return ""
    block = record["block"]
    width, kept = block["width"], block["width"] // block["heads"] * block["kept_heads"]
    read = 2 * (2 * width * width + 2 * width * kept + 3 * width * block["inner"])
    return (
        f" A step reads {1e-6 * read:,.0f} MB of weights, {1e6 * read / rate:.0f} µs at "
        f"{1e-12 * rate:.2f} TB/s, the rate of a copy within this GPU's memory. The rest is "
        "the keys and values, attention, and the functions between the products, which PyTorch "
        "computes for both."
    )


def _losses(record: Row, found: Row) -> str:
    is_within = "within" if found["is_within"] else "NOT within"
    told = (
        f"Of {found['steps'][-1]} steps on one batch of {record['batch']} sequences of "
        f"{record['losses_context']:,}, PyTorch's / ours. The logarithm of our losses' geometric "
        f"mean over the seeds is {found['distance']:.4f} from that of PyTorch's (root mean square "
        "over the steps). Of all divisions of the same curves into two groups of equal size, "
        f"{100 * found['share']:.0f}% have means that are at least as far apart, the furthest "
        f"{max(found['splits']):.4f}: {is_within} the spread of seeds (a permutation test: above "
        "5%)."
    )
    lines = [
        (
            str(step),
            *(
                f"{theirs[i]:.4f} / {ours[i]:.4f}"
                for theirs, ours in zip(found["torch"], found["tilewise"], strict=True)
            ),
        )
        for i, step in enumerate(found["steps"])
    ]
    heading = ("step", *(f"seed {seed}" for seed in found["seeds"]))
    return paragraph(told) + "\n" + table(heading, lines, "r" * len(heading))


def _operator(record: Row) -> str:
    told = (
        "What a call costs the host, of products too small to matter, with no wait for the GPU "
        "between calls: microseconds, the median of rounds."
    )
    lines = [(name, f"{value:.2f}") for name, value in record["microseconds"].items()]
    return paragraph(told) + "\n" + table(("", "µs"), lines, "lr")


def _grouped(record: Row) -> str:
    told = (
        "Layers of mixtures of experts, X in groups of rows with a weight each: tokens, each "
        "routed to the layer's number of experts, evenly or to some more than to others. "
        "`tilewise.grouped_matmul` beside `torch._grouped_mm` and, where the groups have 512 rows "
        "or more in the mean, beside `torch.matmul` of as many rows with one weight. The form is "
        "the forward pass or the weights' gradient; weights are (groups, n, k), nk, or "
        "(groups, k, n), kn."
    )
    sums = [
        (
            f"{row['form']}, by {row['rival']}", str(row["products"]),
            f"{row['geometric_mean']:.3f}", f"{row['worst']:.3f}", row["worst_product"],
        )
        for row in record["summaries"]
    ]  # fmt: skip
    lines = [
        (
            f"{row['form']}, {row['name']}, {row['load']}, {row['major']}", str(row["groups"]),
            f"{row['rows']:,}", f"{row['n']} x {row['k']}",
            f"{1e6 * row['seconds']['tilewise']:,.1f}",
            f"{row['tflops']['tilewise']:.0f}", f"{row['ratios']['torch']:.3f}",
            f"{x:.3f}" if (x := row["ratios"].get("torch dense")) else "",
        )
        for row in record["rows"]
    ]  # fmt: skip
    first = "form, layer, tokens, load, weights"
    heading = (first, "groups", "rows", "n x k", "µs", "TFLOP/s", "ratio", "dense")
    return "\n".join((
        paragraph(told),
        table(("ratio", "of", "mean", "worst", "at"), sums, "lrrrl"),
        table(heading, lines, "lrrrrrrr"),
    ))  # fmt: skip


PARTS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "epilogues": ("Epilogues", _epilogues),
    "invariant": ("The same bits in any batch", _invariant),
    "grouped": ("Grouped products", _grouped),
    "models": ("Models", _models),
    "operator_cost": ("The host", _operator),
}


PAGES = {PAGE: tuple(sorted(x for kind in PARTS for x in RESULTS.glob(f"{kind}_*.json")))}


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(records(RESULTS)), encoding="utf-8")


if __name__ == "__main__":
    main()
