"""Write benchmarks/README.md: the commands, and where each record comes from and is shown.

    python benchmarks/readme.py

The commands are described by the first line of their docstrings. A record's row has its command,
machine and date as the record has them; its readers are the pages that are drawn from it or link to
it, the tests and scripts that name it, and the commands of other records that read it.
``tests/bench/test_records.py`` asserts that the page is what this writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import agreement
import climb
import host_page
import mma_page
import model_page
import performance
import projects_page
import roofline
from command_line import takes_no_options
from pages import DOCS, RESULTS, ROOT, read

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
GROUPS: Mapping[str, Sequence[str]] = {
    "Time on a GPU": (
        "choices", "epilogues", "first_call", "grouped", "host_cost", "host_products", "invariant",
        "measure_simt", "mma_products", "models", "operator_cost", "other_arch",
        "tensor_core_rungs",
    ),
    "Count and check on a GPU": (
        "counters", "metric_candidates", "project_counters", "sanitize", "soak",
    ),
    "Count and check without a GPU": ("lessons", "projects"),
    "Fit the planner to measured times, without a GPU": (
        "choose_kernels", "fit_general", "fit_grouped", "fit_hopper", "fit_mma", "fit_simt",
    ),
    "Keep records, and write pages from them": (
        "keep", "agreement", "api_page", "climb", "host_page", "mma_page", "model_page",
        "performance", "projects_page", "readme", "roofline",
    ),
    "What these commands import": (
        "climb_steps", "command_line", "cutlass_sm80", "gauss_newton", "padded_products", "pages",
        "product_runs", "tiling_ways", "timed_products", "triton_configs", "triton_matmul",
        "triton_sm80", "way_choice",
    ),
}  # fmt: skip
"""The scripts and modules of this folder, by what they do."""
PAGES_BY_SCRIPT: Mapping[str, Mapping[Path, Sequence[Path]]] = {
    "agreement": agreement.PAGES, "climb": climb.PAGES, "host_page": host_page.PAGES,
    "mma_page": mma_page.PAGES, "model_page": model_page.PAGES, "performance": performance.PAGES,
    "projects_page": projects_page.PAGES, "roofline": roofline.PAGES,
}  # fmt: skip
"""For each script that draws pages, the files that it writes, each with the records read."""

HEAD = """\
# Benchmarks

<!-- Written by benchmarks/readme.py: edit that, or the docstrings. -->

The commands here measure tilewise beside its rivals, fit the planner's models to what was measured,
and write pages of `docs/` from the records in `results/`. Run them from the repository's root, as
`python benchmarks/NAME.py --help`. `tilewise bench` and `tilewise climb` write records too.

A new figure takes three steps: measure with `--json FILE`, keep the record with
`python benchmarks/keep.py FILE`, and run the script that writes the page. Then run
`python benchmarks/readme.py`.
"""
HEAD_OF_RECORDS = """
## Records

*{count} records, {megabytes:.2f} MB.* The command is the one in the record; if it names another
file, the file was renamed afterwards. The time is the first of these that the record has:

- the duration of the whole command (`elapsed_seconds`; records since 2026-11-27 have it);
- "limit": the time limit of the command, which begins nothing new after it;
- "rounds": the time of all contenders' rounds with their warm-up, without the compilation and the
  checks before them;
- otherwise it is unknown.

"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n\n| script | |\n| --- | --- |\n")
        parts += (f"| [{name}]({name}.py) | {sentence(HERE / f'{name}.py')} |\n" for name in names)
    parts.append(
        "\n`projects/` has a module for each public project, with the launches and expected "
        "results of its\nkernels. `cutlass_sm80.py`, `sanitize.py` and `climb.py` read "
        "`cutlass_sm80.cu`, `sanitize_planted.cu`\nand `climb_page.md`.\n"
    )
    records = sorted(RESULTS.glob("*.json"))
    size = 1e-6 * sum(path.stat().st_size for path in records)
    parts.append(HEAD_OF_RECORDS.format(count=len(records), megabytes=size))
    parts.append(
        "| record | read by | measured on | time | command |\n| --- | --- | --- | --- | --- |\n"
    )
    for path in records:
        record = read(path)
        commands = "<br>".join(f"`{each}`" for each in commands_of(record))
        where = f"{machine_of(record)}, {record['date'][:10]}"
        readers = ", ".join(readers_of(path))
        parts.append(
            f"| [{path.stem}](results/{path.name}) | {readers} | {where} | {time_of(record)} | "
            f"{commands} |\n"
        )
    return "".join(parts)


def sentence(path: Path) -> str:
    """Return the first line of a script's docstring."""
    found = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return found.split("\n")[0].replace("``", "`")


def commands_of(record: Mapping[str, Any]) -> list[str]:
    """Return the commands that made a record, the last one last."""
    earlier = (each.partition(": ")[2] for each in record.get("earlier_commands", ()))
    return [*earlier, record["command"]]


def machine_of(record: Mapping[str, Any]) -> str:
    """Return the name of a record's GPU, or of its processor if no GPU was used."""
    machine = record["machine"]
    if machine.get("gpu"):
        return str(machine["gpu"]).partition(",")[0].removeprefix("NVIDIA ")
    return f"{machine['processor']}, {machine['cores']} cores, no GPU"


def time_of(record: Mapping[str, Any]) -> str:
    """Return how long a record's command took, as far as the record says."""
    if (seconds := record.get("elapsed_seconds")) is not None:
        return f"{seconds:,.0f} s"
    limits = [re.search(r"--(?:limit|budget) (\d+)", each) for each in commands_of(record)]
    if all(limits):
        return f"limit {sum(int(each[1]) for each in limits if each)} s"
    if method := record.get("method"):
        each = method["rounds"] * (method["seconds_a_round"] + method["warm_up_seconds"])
        timed = sum(map(_figures, _rows(record)))
        return f"rounds {each * timed:,.0f} s"
    return "unknown"


def _rows(record: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the times of each row of a record, which may be nested."""
    for value in record.values():
        if isinstance(value, list):
            yield from (
                row["seconds"] for row in value if isinstance(row, dict) and "seconds" in row
            )


def _figures(seconds: Any) -> int:
    """Return the number of times in a row, whose dictionaries may be nested."""
    return sum(map(_figures, seconds.values())) if isinstance(seconds, dict) else 1


def readers_of(path: Path) -> list[str]:
    """Return links to the pages, tests and scripts that use a record; empty if none does."""
    drawn = [
        file
        for pages in PAGES_BY_SCRIPT.values()
        for file, records in pages.items()
        if path in records
    ]
    found = [file for file, names in json_names_by_file().items() if path.name in names]
    # These do not count as readers: the scripts that draw the pages, and the one that measured.
    others = [HERE / f"{name}.py" for name in (*PAGES_BY_SCRIPT, "readme")]
    others += [ROOT / x for x in re.findall(r"benchmarks/\w+\.py", commands_of(read(path))[-1])]
    links = [
        f"[{_short(x)}](../{x.relative_to(ROOT)})"
        for x in dict.fromkeys((*drawn, *found))
        if x not in others
    ]
    is_input = re.compile(rf"(?<!--json ){re.escape(path.name)}\b")
    makes = [
        other.stem
        for other, commands in commands_by_record().items()
        if other != path and any(map(is_input.search, commands))
    ]
    return [*links, *(f"the command of {name}" for name in makes)]


@cache
def commands_by_record() -> dict[Path, list[str]]:
    """Return the commands that made each record."""
    return {path: commands_of(read(path)) for path in sorted(RESULTS.glob("*.json"))}


def _short(file: Path) -> str:
    return file.name if file.suffix != ".md" else file.stem


@cache
def json_names_by_file() -> dict[Path, set[str]]:
    """Return the names of the JSON files that each page links to, or that each script contains."""
    files = [*DOCS.glob("*.md"), *(ROOT / "tests").rglob("*.py"), *HERE.glob("*.py")]
    return {
        file: set(re.findall(
            r"results/(\w+\.json)" if file.suffix == ".md" else r"\w+\.json",
            file.read_text(encoding="utf-8"),
        ))
        for file in sorted(files)
    }  # fmt: skip


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
