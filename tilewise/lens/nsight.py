"""Hardware counters by Nsight Compute, for the same kernels and arguments on a GPU.

``ncu`` watches a process of its own (:mod:`tilewise.lens.nsight_child`), which launches each case
once. One ``ncu`` runs all cases, because it takes seconds to start.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tilewise
from tilewise.devices import get_device
from tilewise.errors import (
    CompileError,
    DeviceUnavailableError,
    KernelAssertError,
    LaunchError,
)
from tilewise.lens.metrics import ASKED, Hardware, hardware
from tilewise.lens.nsight_child import OUTCOME, Case, save

__all__ = ["Case", "Hardware", "ProfilerError", "Watched", "measure", "require", "watch"]

_ERROR = "==ERROR=="
_PERMISSION = "ERR_NVGPUCTRPERM"
_WITHOUT = "Everything works without it but --hardware: the emulator counts by itself"
_TOLD = re.compile(r"==(?:PROF|WARNING|ERROR|LOG)==")
_LAST_LINES = 6
_RAISED: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        CompileError, DeviceUnavailableError, FileNotFoundError, KernelAssertError, LaunchError,
        MemoryError, TypeError, ValueError,
    )
}  # fmt: skip


class ProfilerError(DeviceUnavailableError):
    """Nsight Compute is missing, or can't count here; the message says what would help."""


def require() -> None:
    """Raise the errors of :func:`measure` if Nsight Compute or the GPU is missing.

    Raises
    ------
    ProfilerError
        If ncu is not on the PATH.
    DeviceUnavailableError
        If there is no GPU.
    """
    _program()
    get_device("gpu")


def measure(cases: Sequence[Case], more: Sequence[str] = ()) -> list[Hardware]:
    """Launch each case once on the GPU under Nsight Compute, and read the hardware's counters.

    The caller's arrays do not change.

    Parameters
    ----------
    cases : sequence of Case
    more : sequence of str
        Metrics besides those of the counters, for ``Hardware.metrics``.

    Returns
    -------
    list of Hardware
        The counters of each case, in order.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        If a case is invalid; then nothing was launched.
    ProfilerError
        If Nsight Compute is missing, may not read this GPU's counters, or fails.
    DeviceUnavailableError
        If there is no GPU.
    CompileError, LaunchError, MemoryError
        As in :meth:`tilewise.Kernel.launch`.
    """
    if not cases:
        return []
    with TemporaryDirectory(prefix="tilewise-") as name:
        folder = Path(name)
        save(folder, cases)
        seen = watch(["-m", "tilewise.lens.nsight_child", str(folder)], more=more)
        outcome = _outcome(folder, seen)
    found = [launch["Kernel Name"] for launch in seen.launches]
    if found != outcome["symbols"]:
        raise ProfilerError(
            f"Nsight Compute {seen.version} has counted {_listed(found)}, and what was launched is "
            f"{_listed(outcome['symbols'])}{seen.complaints}"
        )
    return [
        hardware(case.name, launch, outcome["gpu"], seen.version, more)
        for case, launch in zip(cases, seen.launches, strict=True)
    ]


@dataclass(frozen=True)
class Watched:
    """The counts of Nsight Compute in a process, and its output.

    Attributes
    ----------
    version : str
        The version of Nsight Compute.
    launches : list of dict
        The counts of each launch by the names of metrics, and its name, in order.
    printed : str
        Everything that Nsight Compute and the process printed.
    """

    version: str
    launches: list[dict[str, str]]
    printed: str

    @property
    def complaints(self) -> str:
        """Nsight Compute's own errors, to be appended to a message."""
        lines = self.printed.splitlines()
        said = [line.removeprefix(_ERROR).strip() for line in lines if _ERROR in line]
        # The failure of the process is known already.
        said = [words for words in said if "application returned an error code" not in words]
        return f"; Nsight Compute says: {' / '.join(said)}" if said else ""


def watch(python: Sequence[str], seconds: float | None = None, more: Sequence[str] = ()) -> Watched:
    """Run Python under Nsight Compute, and read what it counts of each launch.

    Parameters
    ----------
    python : sequence of str
        The interpreter's arguments. The interpreter imports the same tilewise as this process. It
        is run again if this version of Nsight Compute does not know one of the metrics.
    seconds : float, optional
        The seconds after which it is stopped, and its counts are lost.
    more : sequence of str
        Metrics that are requested besides those of the counters.

    Raises
    ------
    ProfilerError
        If Nsight Compute is missing, or may not read this GPU's counters.
    """
    program = _program()
    version = _version(program)
    asked, unknown = list(dict.fromkeys((*ASKED, *more))), {""}
    while unknown:  # it may refuse all of them if it does not know one
        printed = _run(program, asked, python, seconds)
        unknown = _unknown(printed, asked)
        asked = [metric for metric in asked if metric not in unknown]
    if _PERMISSION in printed:
        raise ProfilerError(
            "the GPU's counters may be read by administrators only, which is how NVIDIA's driver "
            f"comes ({_PERMISSION}): https://developer.nvidia.com/{_PERMISSION} says how to allow "
            "it to all. Launches on this GPU work without that, and the emulator counts by itself; "
            "only --hardware needs it"
        )
    return Watched(version, parse(printed), printed)


def parse(printed: str) -> list[dict[str, str]]:
    """Return the launches that ``ncu --csv --page raw`` printed, in order, by the columns' names.

    Messages of Nsight Compute, and the output of the program itself, surround the table. The
    table's second row has units instead of a launch.
    """
    lines = iter(printed.splitlines())
    header: list[str] = []
    for line in lines:
        if line.startswith('"ID",') and '"Kernel Name"' in line:
            header = next(csv.reader([line]))
            break
    rows = [next(csv.reader([line])) for line in lines if line.startswith('"')]
    launches = [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]
    return [launch for launch in launches if launch["ID"]]


def _program() -> str:
    program = shutil.which("ncu")
    if program is None:
        raise ProfilerError(
            "Nsight Compute's command line, ncu, is not on the PATH. It comes with the CUDA "
            "toolkit (/usr/local/cuda/bin), and by itself from "
            f"https://developer.nvidia.com/nsight-compute. {_WITHOUT}"
        )
    return program


def _version(program: str) -> str:
    done = _call([program, "--version"])
    found = re.search(r"^Version (\S+)", done, re.MULTILINE)
    return found[1] if found else done.strip()


def _run(program: str, metrics: Sequence[str], python: Sequence[str], seconds: float | None) -> str:
    """Return the output of ncu and of the process under it."""
    paths = [str(Path(tilewise.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return _call(
        [
            program, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
            "--print-kernel-base", "mangled", "--metrics", ",".join(metrics),
            sys.executable, *python,
        ],
        seconds,
        PYTHONPATH=os.pathsep.join(filter(None, paths)),
        LC_ALL="C.UTF-8",  # otherwise the numbers may be in the format of the user's language
    )  # fmt: skip


def _call(command: Sequence[str], seconds: float | None = None, **environment: str) -> str:
    """Return the output of a program and its child processes; stop them after ``seconds``."""
    try:
        begun = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **environment},
            start_new_session=seconds is not None,
        )
    except OSError as error:
        raise ProfilerError(f"{command[0]} can't be started: {error}. {_WITHOUT}") from error
    with begun:
        try:
            return begun.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(begun.pid, signal.SIGKILL)
            return begun.communicate()[0] + f"\n{_ERROR} stopped after {seconds:g} seconds\n"
        except BaseException:
            begun.kill()
            raise


def _unknown(printed: str, metrics: Sequence[str]) -> set[str]:
    """Return the metrics that Nsight Compute says it can't find."""
    said = [line.replace("\\", "") for line in printed.splitlines() if "to find metric" in line]
    return {metric for metric in metrics for line in said if _names(line, metric)}


def _names(line: str, metric: str) -> bool:
    """Return whether the line names the metric, with or without ``.sum``, but not a longer one."""
    stem = re.escape(metric.removesuffix(".sum"))
    return re.search(rf"(?<!\w){stem}(?!\w)", line) is not None


def _outcome(folder: Path, seen: Watched) -> dict[str, Any]:
    """Return what the process under Nsight Compute wrote; raise its error."""
    file = folder / OUTCOME
    if not file.exists():
        own = [line for line in seen.printed.splitlines() if line.strip() and not _TOLD.match(line)]
        last = "\n".join(own[-_LAST_LINES:]) or "it printed nothing"
        raise ProfilerError(
            f"the process that launches the kernels under Nsight Compute ended before it was "
            f"done{seen.complaints}. What it printed last:\n{last}"
        )
    outcome: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if "error" not in outcome:
        return outcome
    kind = _RAISED.get(outcome["error"], LaunchError)
    raise kind(outcome["message"] + seen.complaints)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LAST_LINES]) + (", …" if len(names) > _LAST_LINES else "")
    return f"{len(names)} launches ({shown})" if names else "no launch"
