"""Run kernels of public projects on the emulator, and check their results; no GPU is needed.

    python benchmarks/projects.py FOLDER [--json FILE] [--only WORDS] [--project NAME]

FOLDER contains a checkout of each project that is to be run, by the project's name: SGEMM_CUDA,
xGeMM, fast.cu, cuda-samples, triton, numba-cuda. Projects that are missing are named and left out.
The projects' files are used unmodified. For each kernel the table says whether its result is right,
what the checks found, whether its counts follow machine code or PTX, and the seconds from the file
to the report, with its compilation (the caches of kernels are not used). The exit code is 1 if a
kernel is wrong or fails, unless that is known to be the project's own fault.

The launches and the expected results are in benchmarks/projects/, a module for each project. None
of the projects' own code is there.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from command_line import add_json, parser_of
from projects.case import Case, Outcome, Program
from projects.every import PROJECTS, add_choice, cases, origin, without_paths

from tilewise.provenance import write


def tried(folder: Path, case: Case | Program) -> Outcome:
    """Run a case on the emulator."""
    begin = time.perf_counter()
    try:
        reports, wrong = case.run(folder, np.random.default_rng(0))
    except Exception as error:  # of what a project's own code may raise, anything
        seconds = time.perf_counter() - begin
        return Outcome(False, (), "", seconds, f"{type(error).__name__}: {error}", case.fault)
    seconds = time.perf_counter() - begin
    found = tuple(f"{x.kind}: {x}" for report in reports for x in report.findings)
    counted_as = " and ".join(sorted({report.counted_as for report in reports}))
    why = tuple(dict.fromkeys(filter(None, (report.confirmation.doubt for report in reports))))
    return Outcome(not wrong, found, counted_as, seconds, wrong, case.fault, why)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Draw the outcomes, a row a kernel."""
    found = Table("project", "kernel", "on", "right", "findings", "counted as", "seconds", box=None)
    for row in rows:
        found.add_row(
            row["project"], f"{row['file']}:{row['kernel']}", row["arch"],
            "yes" if row["right"] else "NO", str(len(row["findings"])), row["counted_as"],
            f"{row['seconds']:.2f}",
        )  # fmt: skip
    return found


def main() -> None:
    """Run the kernels, print the table, and write the record."""
    parser = parser_of(__doc__)
    add_choice(parser)
    add_json(parser)
    options = parser.parse_args()
    missing = [name for name in PROJECTS if not (options.folder / name).is_dir()]
    if missing:
        print(f"not in {options.folder}: {', '.join(missing)}", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWISE_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = cache
        for name, case in cases(options.folder, options.project, options.only):
            outcome = tried(options.folder.resolve() / name, case)
            rows.append(
                {"project": name, "file": case.file, "kernel": case.kernel, "arch": case.arch}
                | asdict(outcome)
            )
            if outcome.error:
                fault = f" (the project's own fault: {case.fault})" if case.fault else ""
                print(f"{case.file}:{case.kernel}: {outcome.error}{fault}", file=sys.stderr)
    Console().print(table(rows))
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} right")
    if options.json:
        names = dict.fromkeys(row["project"] for row in rows)
        projects = [{"project": name, "of": origin(options.folder / name)} for name in names]
        record = {"right": right, "projects": projects, "rows": rows}
        write(options.json, without_paths(record, options.folder))
    sys.exit(0 if rows and all(row["right"] or row["fault"] for row in rows) else 1)


if __name__ == "__main__":
    main()
