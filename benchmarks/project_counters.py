"""Compare the counters of public projects' kernels under Nsight Compute with the emulator's.

    python benchmarks/project_counters.py FOLDER [--json FILE] [--only WORDS] [--project NAME]

FOLDER and the kernels are those of benchmarks/projects.py, without the kernels written in Python.
Each is launched once on the GPU, under Nsight Compute, and once on the emulator for that GPU's
architecture, with the same arguments. The table says whether both results are right, whether the
emulator's counts follow machine code or PTX, and which of the counters of
tilewise.lens.metrics.EXACT differ. The exit code is 1 if they differ and neither the emulator nor
benchmarks/projects/unlike.py says why, and 2 if this machine's counters can't be read.

Rows of other kernels stay in the FILE of --json, so that one project can be measured at a time.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from command_line import add_json, parser_of
from projects.case import Case
from projects.every import PROJECTS, add_choice, cases, without_paths
from projects.unlike import unlike

import tilewise
from tilewise.devices import get_device
from tilewise.errors import DeviceUnavailableError, LaunchError
from tilewise.lens.agreement import counts
from tilewise.lens.compare import compare
from tilewise.lens.metrics import EXACT, Hardware, hardware
from tilewise.lens.nsight import ProfilerError, watch
from tilewise.provenance import write

SAID = Console(stderr=True)
LAUNCHES = "launches.jsonl"
"""The file in which the process under Nsight Compute notes each launch, before and after it."""
SECONDS = 60
"""How long a process under Nsight Compute may run."""
MOST = 16
"""How many launches a process makes: its counts are lost if it has to be stopped."""
LONGEST = 20
"""Seconds that a launch on the GPU may take, with all its repetitions under Nsight Compute."""


def chosen(folder: Path, project: str | None, words: str) -> list[tuple[str, Case]]:
    """Return the kernels that are launched, each with its project's name."""
    return [
        (name, case) for name, case in cases(folder, project, words) if isinstance(case, Case)
    ]  # fmt: skip


def launch_on_the_gpu(
    folder: Path, project: str | None, words: str, first: int, most: int, into: Path
) -> None:
    """Launch at most ``most`` of the chosen kernels from number ``first`` on; note each in a file.

    It stops after a launch that fails, for the GPU then takes no more in this process. A launch
    that takes more than :data:`LONGEST` seconds ends the process.
    """
    gpu = get_device("gpu")
    with into.open("w", encoding="utf-8") as file:
        for index, (name, case) in enumerate(chosen(folder, project, words)[first:][:most], first):
            ended, error, wrong = False, "", ""
            print(json.dumps({"begun": index}), file=file, flush=True)
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            try:
                _, wrong = case.run(folder / name, np.random.default_rng(0), gpu)
            except Exception as raised:  # a project's own code may raise anything
                error, ended = f"{type(raised).__name__}: {raised}", isinstance(raised, LaunchError)
            faulthandler.cancel_dump_traceback_later()
            line = {"index": index, "gpu": gpu.description, "error": error, "wrong": wrong}
            print(json.dumps(line), file=file, flush=True)
            if ended:
                return


def measured(
    folder: Path, project: str | None, words: str
) -> Iterator[tuple[int, Hardware | None, str]]:
    """Launch the kernels on the GPU under Nsight Compute.

    Yields
    ------
    index : int
        The kernel's, among those that were chosen.
    counted : Hardware or None
        None where it was not counted.
    wrong : str
        What is wrong with the result, or why there is none; empty where it is right.
    """
    count, first, most = len(chosen(folder, project, words)), 0, MOST
    with tempfile.TemporaryDirectory() as name:
        into = Path(name) / LAUNCHES
        while first < count:
            into.unlink(missing_ok=True)
            seen = watch(
                [__file__, str(folder), "--only", words]
                + ["--launch", str(into), str(first), str(most)]
                + ([] if project is None else ["--project", project]),
                SECONDS,
            )
            said = into.read_text(encoding="utf-8").splitlines() if into.exists() else []
            if not said:
                raise ProfilerError(f"nothing was launched{seen.complaints}")
            told = [json.loads(line) for line in said]
            done = [line for line in told if line.get("error") == ""]
            if done and not seen.launches and "begun" in told[-1]:  # stopped in the last launch
                most = len(told) // 2
                continue
            rows, most = iter(seen.launches), MOST
            for line in told:
                if "begun" in line:
                    continue
                row = None if line["error"] else next(rows, None)
                if row is None:
                    yield line["index"], None, line["error"] or "Nsight Compute has not counted it"
                    continue
                kernel = chosen(folder, project, words)[line["index"]][1].kernel
                plain = re.sub(r"<.*", "", kernel, flags=re.DOTALL).rpartition(":")[2]
                if plain not in row["Kernel Name"]:
                    raise ProfilerError(f"counted {row['Kernel Name']} for {kernel}")
                found = hardware(kernel, row, line["gpu"], seen.version)
                yield line["index"], found, line["wrong"]
            if "begun" in told[-1]:  # the process ended during this launch
                yield told[-1]["begun"], None, f"its launch never ended{seen.complaints}"
            first = told[-1].get("begun", told[-1].get("index")) + 1


def emulated(
    folder: Path, project: str | None, words: str, index: int, arch: str
) -> dict[str, Any]:
    """Run one kernel on the emulator; return its counters, and whether they are confirmed."""
    name, case = chosen(folder, project, words)[index]
    try:
        reports, wrong = case.run(
            folder / name, np.random.default_rng(0), tilewise.emulator(arch)
        )  # fmt: skip
    except Exception as raised:  # a project's own code may raise anything
        return {"wrong": f"{type(raised).__name__}: {raised}"}
    (report,) = reports
    return {
        "wrong": wrong,
        "counts": counts(report),
        "counted_as": report.counted_as,
        "because": report.confirmation.doubt,
    }


def compared(found: Hardware, counted: Mapping[str, int]) -> dict[str, Any]:
    """Return whether the counters of ``EXACT`` are equal, and all counters that differ."""
    rows = compare(counted, found)
    differs = {row.name: [row.emulator, row.hardware] for row in rows if not row.equal}
    missing = {name for name in EXACT if counted.get(name)} - {row.name for row in rows}
    return {"equal": not missing and not set(EXACT) & set(differs), "differs": differs}


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make the table of the counters, with a row for each kernel."""
    drawn = Table("project", "kernel", "GPU", "emulator", "counted as", "counters", box=None)
    for row in rows:
        differs = [
            f"{name} {ours:,} for {theirs:,}"
            for name, (ours, theirs) in row.get("differs", {}).items()
            if name in EXACT
        ]
        drawn.add_row(
            row["project"], f"{row['file']}:{row['kernel']}",
            "WRONG" if row["wrong_on_gpu"] else "right",
            "WRONG" if row["wrong_on_emulator"] else "right", row.get("counted_as", ""),
            "; ".join(differs) or ("equal" if row.get("equal") else "not counted"),
        )  # fmt: skip
    return drawn


def main() -> None:
    """Launch the kernels on both devices, and write the record."""
    parser = parser_of(__doc__)
    add_choice(parser)
    add_json(parser)
    parser.add_argument("--launch", nargs=3, help=argparse.SUPPRESS)  # under Nsight Compute
    options = parser.parse_args()
    given = options.folder.resolve(), options.project, options.only
    if options.launch:
        into, first, most = options.launch
        launch_on_the_gpu(*given, int(first), int(most), Path(into))
        return
    every = chosen(*given)
    if not every:
        parser.error(f"there is no such kernel in {options.folder}")
    try:
        arch = get_device("gpu").arch
        with (
            tempfile.TemporaryDirectory() as cache,
            ProcessPoolExecutor(mp_context=get_context("spawn")) as pool,
        ):
            os.environ["TILEWISE_CACHE_DIR"] = cache
            counting = [pool.submit(emulated, *given, index, arch) for index in range(len(every))]
            # These processes compile all kernels, which the GPU's then find in the cache.
            counted = [
                each.result() for each in track(counting, "on the emulator", console=SAID)
            ]  # fmt: skip
            on_gpu = list(
                track(measured(*given), "on the GPU", total=len(every), console=SAID)
            )  # fmt: skip
    except DeviceUnavailableError as error:
        parser.error(str(error))
    rows = [row(every[index], found, wrong, counted[index]) for index, found, wrong in on_gpu]
    Console().print(table(rows))
    both = [each for each in rows if "equal" in each]
    print(f"{sum(each['equal'] for each in both)} of {len(both)} counted are equal")
    if options.json:
        version = next((found.ncu for _, found, _ in on_gpu if found), "")
        record = without_paths({"ncu": version, "rows": rows}, given[0])
        there = json.loads(options.json.read_text()) if options.json.exists() else {"rows": []}
        write(options.json, merged(there, record))
    sys.exit(0 if all(x["equal"] or x["because"] or unlike(x["project"], x["kernel"]) for x in both)
             else 1)  # fmt: skip


def merged(there: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new record with the old rows of kernels that it lacks."""

    def place(each: Mapping[str, Any]) -> tuple[str, ...]:
        return each["project"], each["file"], each["kernel"]

    new = {place(each) for each in found["rows"]}
    old = [each for each in there["rows"] if place(each) not in new]
    order = list(PROJECTS)
    rows = sorted([*old, *found["rows"]], key=lambda each: order.index(each["project"]))
    return {**found, "rows": rows}


def row(
    chosen_case: tuple[str, Case], found: Hardware | None, wrong: str, counted: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the record's row of a kernel."""
    name, case = chosen_case
    plain = {
        "project": name, "file": case.file, "kernel": case.kernel, "wrong_on_gpu": wrong,
        "wrong_on_emulator": counted["wrong"],
    }  # fmt: skip
    if found is None or "counts" not in counted:
        return plain
    return {
        **plain, "counted_as": counted["counted_as"], "because": counted["because"],
        **compared(found, counted["counts"]),
    }  # fmt: skip


if __name__ == "__main__":
    main()
