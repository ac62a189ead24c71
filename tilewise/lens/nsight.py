"""What the hardware counts, by Nsight Compute: the same kernels and arguments on a GPU.

``ncu`` watches a process of its own (:mod:`tilewise.lens.nsight_child`), which launches each case
once; all cases go through one ``ncu``, for its start takes seconds.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
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
from tilewise.lens.nsight_child import OUTCOME, Case, save

__all__ = [
    "AS_PTX",
    "EXACT",
    "LIMITS",
    "METRICS",
    "Case",
    "Hardware",
    "ProfilerError",
    "Row",
    "compare",
    "given_registers",
    "measure",
    "require",
]

_LSU = "pipe_lsu_mem"


def _either(*names: str) -> tuple[tuple[str, ...], ...]:
    """Metrics that say the same; the first that the GPU has is taken."""
    return tuple((name,) for name in names)


def _of_banks(op: str) -> str:
    """Wavefronts, as the banks see them."""
    return f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"


def _of_instructions(op: str) -> str:
    """Wavefronts, as the instructions make them."""
    return f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"


def _conflicts(op: str) -> str:
    return f"l1tex__data_bank_conflicts_{_LSU}_shared_op_{op}.sum"


# By counter: alternatives, of which the first is taken whose metrics the GPU all has; a count is
# their sum, those with a minus taken off. (Nsight Compute, Profiling Guide, "Metrics Reference";
# which a GPU has, and what each counts, `ncu --query-metrics --chip gh100` lists.)
METRICS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **{
        f"global_{kind}_{what}": _either(f"l1tex__t_{what}_{_LSU}_global_op_{op}.sum")
        for kind, op in (("load", "ld"), ("store", "st"))
        for what in ("requests", "sectors")
    },
    **{
        # An atomic whose old value nobody reads is a reduction.
        f"global_atomic_{what}": (
            tuple(f"l1tex__t_{what}_{_LSU}_global_op_{op}.sum" for op in ("atom", "red")),
        )
        for what in ("requests", "sectors")
    },
    **{
        f"shared_{kind}_{what}": alternatives
        for kind, op in (("load", "ld"), ("store", "st"))
        for what, alternatives in (
            (
                "requests",
                _either(
                    f"smsp__sass_inst_executed_op_shared_{op}.sum",
                    f"smsp__inst_executed_op_shared_{op}.sum",
                ),
            ),
            (
                "wavefronts",
                # Those of a store's instructions; those of a load's don't have what two lanes
                # share.
                _either(*((_of_instructions(op), _of_banks(op))[:: 1 if op == "st" else -1])),
            ),
            (
                "bank_conflicts",
                # The banks also wait for what comes in from L2, at times: such wavefronts are no
                # instruction's, and no bank conflicts of the kernel's.
                (
                    *([(_conflicts(op), f"-{_of_banks(op)}", _of_instructions(op))] * (op == "st")),
                    (_conflicts(op),),
                ),
            ),
        )
    },
    "shared_atomic_requests": _either("smsp__inst_executed_op_shared_atom.sum"),
    "divergent_branches": _either("smsp__sass_branch_targets_threads_divergent.sum"),
    **{
        name: _either(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum")
        for name in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma")
    },
    "warp_instructions": _either("smsp__inst_executed.sum"),
    "registers": _either("launch__registers_per_thread"),
}
LIMITS = {
    "blocks": "launch__occupancy_limit_blocks",
    "registers": "launch__occupancy_limit_registers",
    "shared": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
}
"""By what limits the blocks that a multiprocessor holds."""
SHARED_CONFIG = "launch__shared_mem_config_size"
"""Bytes of shared memory that the driver set aside on a multiprocessor for a launch."""
_ASKED = (
    *dict.fromkeys(
        metric.lstrip("-") for each in METRICS.values() for one in each for metric in one
    ),
    *LIMITS.values(),
    SHARED_CONFIG,
)

EXACT = tuple(
    f"{memory}_{kind}_{what}"
    for memory, counts in (
        ("global", ("requests", "sectors")),
        ("shared", ("requests", "wavefronts", "bank_conflicts")),
    )
    for kind in ("load", "store")
    for what in counts
)
"""Counters that the emulator counts as the hardware does, to the last one."""

AS_PTX = (
    "divergent_branches", "fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "warp_instructions",
)  # fmt: skip
"""Counters that may differ without a fault: instructions as the PTX has them, which ptxas joins,
parts and leaves out."""

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
_ABSENT = ("", "n/a", "nan", "inf")


class ProfilerError(DeviceUnavailableError):
    """Nsight Compute is not there, or can't count here; the message says what would help."""


@dataclass(frozen=True)
class Hardware:
    """What the hardware counted in one launch.

    Attributes
    ----------
    kernel : str
        The kernel's name as the case has it.
    counters : mapping of str to int
        By the names of :class:`tilewise.launch.Counters`, those that this GPU counts. Whole-launch
        totals.
    registers : int or None
        32-bit registers a thread.
    limits : mapping of str to int
        Blocks that a multiprocessor can hold, as each of its ``blocks`` (it holds no more of
        whatever kind), ``registers``, ``shared`` memory and ``warps`` allows.
    gpu : str
        For people.
    ncu : str
        The version of Nsight Compute.
    metrics : mapping of str to int
        Every metric that was asked for and that this GPU has, by Nsight Compute's own names.
    """

    kernel: str
    counters: Mapping[str, int]
    registers: int | None
    limits: Mapping[str, int]
    gpu: str
    ncu: str
    metrics: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without ``metrics``."""
        return {
            "kernel": self.kernel,
            "counters": dict(self.counters),
            "registers": self.registers,
            "limits": dict(self.limits),
            "gpu": self.gpu,
            "ncu": self.ncu,
        }


@dataclass(frozen=True)
class Row:
    """One counter, the emulator's beside the hardware's.

    Attributes
    ----------
    name : str
        As :class:`tilewise.launch.Counters` has it, or ``"registers"``.
    metric : str
        Nsight Compute's name of it; several, with ``" + "`` between, where it is their sum.
    emulator, hardware : int
    equal : bool
    """

    name: str
    metric: str
    emulator: int
    hardware: int
    equal: bool

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def require() -> None:
    """Raise what :func:`measure` would where Nsight Compute or the GPU is not there.

    Raises
    ------
    ProfilerError
        If ncu is not on the PATH.
    DeviceUnavailableError
        If there is no GPU.
    """
    _program()
    get_device("gpu")


def measure(cases: Sequence[Case]) -> list[Hardware]:
    """Launch each case once on the GPU under Nsight Compute, and read the hardware's counters.

    The caller's arrays stay as they are.

    Parameters
    ----------
    cases : sequence of Case

    Returns
    -------
    list of Hardware
        One a case, in order.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        If a case is none: nothing was launched then.
    ProfilerError
        If Nsight Compute is not there, may not read this GPU's counters, or fails.
    DeviceUnavailableError
        If there is no GPU.
    CompileError, LaunchError, MemoryError
        As :meth:`tilewise.Kernel.launch`.
    """
    if not cases:
        return []
    with TemporaryDirectory(prefix="tilewise-") as name:
        folder = Path(name)
        save(folder, cases)
        program = _program()
        version = _version(program)
        asked, unknown = list(_ASKED), {""}
        while unknown:  # it may refuse the rest too where it does not know one
            printed = _run(program, asked, folder)
            unknown = _unknown(printed, asked)
            asked = [metric for metric in asked if metric not in unknown]
        outcome = _outcome(folder, printed)
    launches = parse(printed)
    found = [launch["Kernel Name"] for launch in launches]
    if found != outcome["symbols"]:
        raise ProfilerError(
            f"Nsight Compute {version} has counted {_listed(found)}, and what was launched is "
            f"{_listed(outcome['symbols'])}{_complaints(printed)}"
        )
    return [
        _hardware(case.name, launch, outcome["gpu"], version)
        for case, launch in zip(cases, launches, strict=True)
    ]


def compare(counters: Mapping[str, int], hardware: Hardware) -> tuple[Row, ...]:
    """The emulator's counters beside the hardware's, those that both have.

    Parameters
    ----------
    counters : mapping of str to int
        Of the same case, as :meth:`tilewise.launch.Counters.to_dict` gives them;
        ``"registers"`` may be among them.
    hardware : Hardware
    """
    theirs = dict(hardware.counters)
    if hardware.registers is not None:
        theirs["registers"] = hardware.registers
    return tuple(
        Row(
            name,
            " + ".join(_taken(name, hardware.metrics)).replace("+ -", "- "),
            counters[name],
            theirs[name],
            counters[name] == theirs[name],
        )
        for name in METRICS
        if name in counters and name in theirs
    )


def given_registers(registers: int) -> int:
    """What ``launch__registers_per_thread`` says of a kernel that needs so many: at least 16."""
    return max(16, registers)


def parse(printed: str) -> list[dict[str, str]]:
    """The launches in what ``ncu --csv --page raw`` printed, in order, by the names of columns.

    Around the table stand Nsight Compute's messages and what the program itself printed. Its
    second row has units, and no launch.
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


def number(text: str) -> int | None:
    """A metric's value; None where the GPU has none, or it is no whole number.

    Thousands may have commas between them, and a value of which something is to be said a
    ``(!)`` before it.
    """
    plain = text.replace("(!)", "").replace(",", "").strip()
    if plain.lower() in _ABSENT:
        return None
    try:
        return int(plain)
    except ValueError:
        value = float(plain)
    return int(value) if value.is_integer() else None


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


def _run(program: str, metrics: Sequence[str], folder: Path) -> str:
    """What ncu and the process under it print."""
    (folder / OUTCOME).unlink(missing_ok=True)
    # The process imports this tilewise, wherever it was found.
    paths = [str(Path(tilewise.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return _call(
        [
            program, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
            "--print-kernel-base", "mangled", "--metrics", ",".join(metrics),
            sys.executable, "-m", "tilewise.lens.nsight_child", str(folder),
        ],
        PYTHONPATH=os.pathsep.join(filter(None, paths)),
        LC_ALL="C.UTF-8",  # else the numbers may be written as the user's language has them
    )  # fmt: skip


def _call(command: Sequence[str], **environment: str) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **environment},
            check=False,
        )
    except OSError as error:
        raise ProfilerError(f"{command[0]} can't be started: {error}. {_WITHOUT}") from error
    return done.stdout


def _unknown(printed: str, metrics: Sequence[str]) -> set[str]:
    """Those of the metrics that Nsight Compute says it can't find."""
    said = [line.replace("\\", "") for line in printed.splitlines() if "to find metric" in line]
    return {metric for metric in metrics for line in said if _names(line, metric)}


def _names(line: str, metric: str) -> bool:
    """Whether the line names the metric, with or without ``.sum``, and not a longer one."""
    stem = re.escape(metric.removesuffix(".sum"))
    return re.search(rf"(?<!\w){stem}(?!\w)", line) is not None


def _outcome(folder: Path, printed: str) -> dict[str, Any]:
    """What the process under Nsight Compute wrote; its error is raised."""
    if _PERMISSION in printed:
        raise ProfilerError(
            "the GPU's counters may be read by administrators only, which is how NVIDIA's driver "
            f"comes ({_PERMISSION}): https://developer.nvidia.com/{_PERMISSION} says how to allow "
            "it to all. Launches on this GPU work without that, and the emulator counts by itself; "
            "only --hardware needs it"
        )
    file = folder / OUTCOME
    if not file.exists():
        own = [line for line in printed.splitlines() if line.strip() and not _TOLD.match(line)]
        last = "\n".join(own[-_LAST_LINES:]) or "it printed nothing"
        raise ProfilerError(
            f"the process that launches the kernels under Nsight Compute ended before it was "
            f"done{_complaints(printed)}. What it printed last:\n{last}"
        )
    outcome: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if "error" not in outcome:
        return outcome
    kind = _RAISED.get(outcome["error"], LaunchError)
    raise kind(outcome["message"] + _complaints(printed))


def _complaints(printed: str) -> str:
    """Nsight Compute's own errors, to be put behind a message."""
    mark = "==ERROR=="
    said = [line.removeprefix(mark).strip() for line in printed.splitlines() if mark in line]
    # That the process failed is no news.
    said = [words for words in said if "application returned an error code" not in words]
    return f"; Nsight Compute says: {' / '.join(said)}" if said else ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LAST_LINES]) + (", …" if len(names) > _LAST_LINES else "")
    return f"{len(names)} launches ({shown})" if names else "no launch"


def _taken(name: str, metrics: Mapping[str, int]) -> tuple[str, ...]:
    """The metrics whose sum is the counter; none where the GPU has not all of any alternative."""
    there = (
        each for each in METRICS[name] if all(metric.lstrip("-") in metrics for metric in each)
    )
    return next(there, ())


def _hardware(kernel: str, launch: Mapping[str, str], gpu: str, version: str) -> Hardware:
    values = {metric: number(launch.get(metric, "")) for metric in _ASKED}
    metrics = {metric: value for metric, value in values.items() if value is not None}
    taken = {name: _taken(name, metrics) for name in METRICS}
    counters = {
        name: sum(-metrics[m[1:]] if m[0] == "-" else metrics[m] for m in these)
        for name, these in taken.items()
        if these
    }
    registers = counters.pop("registers", None)
    limits = {name: metrics[metric] for name, metric in LIMITS.items() if metric in metrics}
    return Hardware(kernel, counters, registers, limits, gpu, version, metrics)
