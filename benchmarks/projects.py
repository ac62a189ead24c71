"""Kernels of public projects, their files as they are, on the emulator: are they right?

    python benchmarks/projects.py FOLDER [--json FILE] [--only WORDS] [--project NAME]

FOLDER has a checkout of each project that is to be tried, called as the project is:
SGEMM_CUDA, xGeMM, fast.cu, cuda-samples, triton. Those that are not there are left out, and named.
Of each kernel the table says whether its result is right, what the checks found, what its counts
follow (machine code or PTX), and the seconds from the file to the report, its compilation included
(the cache of kernels is not used). Exits with 1 where a kernel is wrong, or fails.

What is launched, and what should come of it, stands in benchmarks/projects/, one module a project.
Nothing of the projects' own code is here.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from projects.case import Case, Outcome

from tilewise.errors import TilewiseError
from tilewise.provenance import write

PROJECTS = {
    "SGEMM_CUDA": "sgemm_cuda",
    "cuda-samples": "cuda_samples",
}  # the folder's name and the module's


def cases(folder: Path, project: str | None, words: str) -> Iterator[tuple[str, Case]]:
    """Yield what is there to be tried, with its project's name."""
    for name, module in PROJECTS.items():
        if project in (None, name) and (folder / name).is_dir():
            for case in import_module(f"projects.{module}").CASES:
                if words in f"{case.file}:{case.kernel}":
                    yield name, case


def tried(folder: Path, case: Case) -> Outcome:
    """Run a case on the emulator."""
    begin = time.perf_counter()
    try:
        report, wrong = case.run(folder, np.random.default_rng(0))
    except (TilewiseError, OSError, ValueError, TypeError, NotImplementedError) as error:
        seconds = time.perf_counter() - begin
        return Outcome(False, (), "", seconds, f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - begin
    found = tuple(f"{x.kind}: {x}" for x in report.findings)
    return Outcome(not wrong, found, report.counted_as, seconds, wrong)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Draw the outcomes, a row a kernel."""
    found = Table("project", "kernel", "right", "findings", "counted as", "seconds", box=None)
    for row in rows:
        found.add_row(
            row["project"], f"{row['file']}:{row['kernel']}", "yes" if row["right"] else "NO",
            str(len(row["findings"])), row["counted_as"], f"{row['seconds']:.2f}",
        )  # fmt: skip
    return found


def main() -> None:
    """Try the kernels, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes")
    parser.add_argument("--only", default="", metavar="WORDS", help="kernels with this in the name")
    parser.add_argument("--project", choices=PROJECTS, help="of this project alone")
    options = parser.parse_args()
    missing = [name for name in PROJECTS if not (options.folder / name).is_dir()]
    if missing:
        print(f"not in {options.folder}: {', '.join(missing)}", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWISE_CACHE_DIR"] = cache
        for name, case in cases(options.folder, options.project, options.only):
            outcome = tried(options.folder / name, case)
            rows.append(
                {"project": name, "file": case.file, "kernel": case.kernel, "note": case.note}
                | asdict(outcome)
            )
            if outcome.error:
                print(f"{case.file}:{case.kernel}: {outcome.error}", file=sys.stderr)
    Console().print(table(rows))
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} right")
    if options.json:
        write(options.json, {"right": right, "rows": rows})
    sys.exit(0 if rows and right == len(rows) else 1)


if __name__ == "__main__":
    main()
