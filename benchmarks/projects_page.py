"""Writes docs/projects.md, which kernels of public projects were run, from their record.

    python benchmarks/projects_page.py

The record is benchmarks/results/projects.json, as ``benchmarks/projects.py`` and ``keep.py`` wrote
it.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "projects.json"
PAGE = ROOT / "docs" / "projects.md"

# Where a project is, and what of it is run.
ABOUT = {
    "SGEMM_CUDA": ("siboehm/SGEMM_CUDA", "All of its kernels, a product of float32, step by step."),
    "xGeMM": ("tgautam03/xGeMM", "A product of float32, step by step."),
    "fast.cu": ("pranjalssh/fast.cu", "A product of bfloat16 on Hopper, step by step, and sums."),
    "cuda-samples": ("NVIDIA/cuda-samples", "NVIDIA's samples."),
    "triton": (
        "triton-lang/triton",
        "Triton's tutorials, each called by its own functions. Needs `pip install "
        "'tilewise[triton]' torch pytest tabulate`.",
    ),
    "numba-cuda": (
        "NVIDIA/numba-cuda",
        "The examples of its documentation, which are its own tests: each runs whole, with what it "
        "asserts, but for `test_random.py`, which draws 453 million numbers. Needs `pip install "
        "'tilewise[numba]' pytest filecheck cffi`.",
    ),
}
HEAD = """\
# Kernels of public projects

What do kernels do here that were written by others, for a GPU, and not for tilewise? These are run
on the [emulator](emulator.md), out of the projects' own files, unmodified, at sizes that take
seconds. Each result is compared with one of NumPy in float64, within what the roundings on the way
to it can make (of integers and copies: it must be equal), and each launch is checked for accesses
out of bounds, reads of memory that nobody wrote, races and missed barriers.

"""
TAIL = """
## Run it yourself

```sh
git clone https://github.com/{first}   # and the others, into one folder
python benchmarks/projects.py FOLDER
```

tries those that are in the folder, and names the others. What is launched of each file, and what
should come of it, stands in `benchmarks/projects/`, a module a project: to try kernels of yours,
write another.
"""


def page(record: Mapping[str, Any]) -> str:
    """Return the page: what came of it in all, a table a project, and what is not right."""
    rows: Sequence[Mapping[str, Any]] = record["rows"]
    found = HEAD + _summary(record) + "\n"
    for project in record["projects"]:
        found += "\n" + _project(project, [r for r in rows if r["project"] == project["project"]])
    first, _ = ABOUT[record["projects"][0]["project"]]
    return found + TAIL.format(first=first)


def _summary(record: Mapping[str, Any]) -> str:
    rows = record["rows"]
    right = sum(row["right"] for row in rows)
    theirs = sum(not row["right"] and bool(row["fault"]) for row in rows)
    parts = [f"{right} of {len(rows)} are right"]
    if theirs:
        parts.append(f"{theirs} are wrong by the project's own fault")
    if ours := len(rows) - right - theirs:
        parts.append(f"{ours} are not run rightly by tilewise")
    seconds = sum(row["seconds"] for row in rows)
    return textwrap.fill(
        f"{'; '.join(parts)}. {record['date'][:10]}, tilewise {record['versions']['tilewise']}, "
        f"{seconds:.0f} seconds in all, each kernel compiled anew. *Counted as* is what the "
        "counters follow: accesses to shared memory as the machine code has them, or, where that "
        "can't be confirmed, as the PTX has them.",
        100,
    )


def _project(project: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    name = project["project"]
    where, what = ABOUT[name]
    of = project["of"][:12] if "." not in project["of"] else f"version {project['of']}"
    lines = [
        f"## {name}", "",
        *textwrap.wrap(f"[{where}](https://github.com/{where}), {of}. {what}", 100), "",
        "| file | kernel | on | right | findings | counted as | seconds |",
        "| --- | --- | --- | --- | ---: | --- | ---: |",
    ]  # fmt: skip
    for row in rows:
        right = "yes" if row["right"] else "no: its own fault" if row["fault"] else "no"
        lines.append(
            f"| `{row['file']}` | `{row['kernel']}` | {row['arch']} | {right} | "
            f"{len(row['findings'])} | {_counted(row)} | {row['seconds']:.1f} |"
        )
    said = list(dict.fromkeys(note for row in rows for note in _notes(row)))
    return "\n".join([*lines, *([""] if said else []), *said]) + "\n"


def _counted(row: Mapping[str, Any]) -> str:
    """What the counters of a row follow, and where that is the PTX, why."""
    why = "; ".join(row.get("counted_why", ())).replace("|", "\\|")
    return f"{row['counted_as']}: {why}" if why else str(row["counted_as"])


def _notes(row: Mapping[str, Any]) -> list[str]:
    """What is to be said of a row where something is not as it should be."""
    head = f"- `{row['kernel']}`: "
    if row["fault"]:
        return [head + f"{row['fault']}."]
    found = [head + f"`{finding}`" for finding in row["findings"][:1]]
    return found if row["right"] else [*found, head + _short(row["error"])]


def _short(error: str) -> str:
    """The first line of an error."""
    return f"`{error.splitlines()[0]}`"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RECORD.read_text())), encoding="utf-8")
