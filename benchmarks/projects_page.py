"""Write docs/projects.md, which kernels of public projects the emulator runs, from their records.

    python benchmarks/projects_page.py

The records are benchmarks/results/projects.json and project_counters_h200.json, as
``benchmarks/projects.py``, ``benchmarks/project_counters.py`` and ``keep.py`` write them.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from command_line import takes_no_options
from pages import DOCS, RESULTS, gpu_of, read
from projects.unlike import unlike

from tilewise.lens.metrics import EXACT

RECORD = RESULTS / "projects.json"
HARDWARE = RESULTS / "project_counters_h200.json"
PAGE = DOCS / "projects.md"
PAGES = {PAGE: (RECORD, HARDWARE)}

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

Does the [emulator](emulator.md) run kernels that were written for a GPU, and not for tilewise? It
runs the kernels below from the projects' own files, unmodified, at sizes that take seconds. Each
result is compared with one of NumPy in float64, within a bound on what rounding can change;
integers and copies must be equal. Each launch is checked for accesses out of bounds, reads of
memory that nobody wrote, races and missed barriers.

"""
TAIL = """
## Run it yourself

```sh
git clone https://github.com/{first}   # and the others, into one folder
python benchmarks/projects.py FOLDER
```

tries the projects that are in the folder, and names the others. The launches of each file, with the
expected results, are in `benchmarks/projects/`, a module for each project: to try your own kernels,
write another. `python benchmarks/project_counters.py FOLDER` also runs them on a GPU, under Nsight
Compute, and compares the counters.
"""


def page(record: Mapping[str, Any], hardware: Mapping[str, Any]) -> str:
    """Return the page: how many are right, a table of each project, and what is wrong.

    Parameters
    ----------
    record, hardware : mapping
        The kernels' results on the emulator, and their counters by Nsight Compute.
    """
    measured: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for each in hardware["rows"]:
        measured.setdefault(_place(each), []).append(each)
    rows = []
    for row in record["rows"]:
        there = measured.get(_place(row), [])
        rows.append({**row, "hardware": there.pop(0) if there else {}})
    found = HEAD + _summary(record) + "\n\n" + _hardware(rows, hardware) + "\n"
    for project in record["projects"]:
        found += "\n" + _project(project, [r for r in rows if r["project"] == project["project"]])
    first, _ = ABOUT[record["projects"][0]["project"]]
    return found + TAIL.format(first=first)


def _place(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["project"], row["file"], row["kernel"]


def _hardware(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """Say for how many kernels the emulator's counters equal the hardware's."""
    counted = [each for row in rows if "equal" in (each := row["hardware"])]
    equal = sum(each["equal"] for each in counted)
    gpu = gpu_of(record)
    return textwrap.fill(
        f"{len(counted)} of them were counted on an {gpu} too, under Nsight Compute "
        f"{record['ncu']} ({record['date'][:10]}), with the same arguments: in {equal}, the "
        "requests and sectors of global memory and the requests, wavefronts and bank conflicts of "
        "shared memory are equal, to the last one. The notes below each table say why the others "
        "differ.",
        100,
    )


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
        "counters follow: accesses to shared memory and atomics as the machine code has them, or, "
        "where that can't be confirmed for a line, as the PTX has that line.",
        100,
    )


def _project(project: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    name = project["project"]
    where, what = ABOUT[name]
    of = project["of"][:12] if "." not in project["of"] else f"version {project['of']}"
    lines = [
        f"## {name}", "",
        *textwrap.wrap(f"[{where}](https://github.com/{where}), {of}. {what}", 100), "",
        "| file | kernel | on | right | findings | counted as | beside the GPU | seconds |",
        "| --- | --- | --- | --- | ---: | --- | --- | ---: |",
    ]  # fmt: skip
    for row in rows:
        right = "yes" if row["right"] else "no: its own fault" if row["fault"] else "no"
        lines.append(
            f"| `{row['file']}` | `{row['kernel']}` | {row['arch']} | {right} | "
            f"{len(row['findings'])} | {row['counted_as']} | {_beside(row['hardware'])} | "
            f"{row['seconds']:.1f} |"
        )
    said = list(dict.fromkeys(note for row in rows for note in _notes(row)))
    return "\n".join([*lines, *([""] if said else []), *said]) + "\n"


def _beside(hardware: Mapping[str, Any]) -> str:
    if not hardware:
        return ""
    if "equal" not in hardware:
        return "not counted"
    return "equal" if hardware["equal"] else "differs"


def _why(row: Mapping[str, Any]) -> list[str]:
    """Return why a row's counts follow the PTX, or differ from the hardware's; empty if neither."""
    hardware = row["hardware"]
    said = list(row.get("counted_why", ())) or [hardware.get("because", "")]
    if not hardware.get("equal", True):
        said.append(unlike(row["project"], row["kernel"]))
        names = [name.replace("_", " ") for name in hardware["differs"] if name in EXACT]
        said.append(f"the GPU's counts of {', '.join(names)} differ")
    return [each for each in said if each]


def _notes(row: Mapping[str, Any]) -> list[str]:
    """Return the note on a row that has a wrong result, a finding or a differing count."""
    said = [_sentence(row["fault"])] if row["fault"] else [f"`{x}`" for x in row["findings"][:1]]
    if not row["right"] and not row["fault"]:
        said.append(_short(row["error"]))
    if wrong := row["hardware"].get("wrong_on_gpu"):
        said.append(_sentence(f"on the GPU: {wrong.removeprefix('; ')}"))
    said += map(_sentence, _why(row))
    return [f"- `{row['kernel']}`: {' '.join(said)}"] if said else []


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _short(error: str) -> str:
    """Return the first line of an error."""
    return f"`{error.splitlines()[0]}`"


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(read(RECORD), read(HARDWARE)), encoding="utf-8")


if __name__ == "__main__":
    main()
