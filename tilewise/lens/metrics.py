"""The metrics of Nsight Compute for each counter, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LSU = "pipe_lsu_mem"


def _either(*names: str) -> tuple[tuple[str, ...], ...]:
    """Return metrics that mean the same; the first one that the GPU has is used."""
    return tuple((name,) for name in names)


def _of_banks(op: str) -> str:
    """Return the metric of wavefronts that counts at the banks."""
    return f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"


def _of_instructions(op: str) -> str:
    """Return the metric of wavefronts that counts for instructions."""
    return f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"


def _conflicts(op: str) -> str:
    """Return the metric of bank conflicts that counts at the banks."""
    return f"l1tex__data_bank_conflicts_{_LSU}_shared_op_{op}.sum"


def _conflicts_of_instructions(op: str) -> str:
    """Return the metric of bank conflicts that counts for instructions."""
    return f"smsp__sass_l1tex_data_bank_conflicts_{_LSU}_shared_op_{op}.sum"


# By counter, the alternatives, of which the first one is used whose metrics the GPU has; a count is
# their sum, where a minus subtracts. (Nsight Compute, Profiling Guide, "Metrics Reference"; `ncu
# --query-metrics --chip gh100` lists the metrics of a GPU, and what each counts.)
METRICS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **{
        f"global_{kind}_{what}": _either(f"l1tex__t_{what}_{_LSU}_global_op_{op}.sum")
        for kind, op in (("load", "ld"), ("store", "st"))
        for what in ("requests", "sectors")
    },
    **{
        # An atomic whose old value is not read is a reduction.
        f"global_atomic_{what}": (
            tuple(f"l1tex__t_{what}_{_LSU}_global_op_{op}.sum" for op in ("atom", "red")),
        )
        for what in ("requests", "sectors")
    },
    **{
        f"shared_{kind}_requests": _either(
            f"smsp__sass_inst_executed_op_shared_{op}.sum",
            f"smsp__inst_executed_op_shared_{op}.sum",
        )
        for kind, op in (("load", "ld"), ("store", "st"))
    },
    # The banks' metric of loads includes ldmatrix, and that of stores stmatrix; the instructions'
    # metrics don't. But for loads, the instructions' metric lacks what two lanes share.
    "shared_load_wavefronts": (
        (_of_banks("ld"), f"-{_of_instructions('ldsm')}"),
        *_either(_of_banks("ld"), _of_instructions("ld")),
    ),
    "shared_store_wavefronts": _either(_of_instructions("st"), _of_banks("st")),
    "shared_load_bank_conflicts": (
        (_conflicts("ld"), f"-{_conflicts_of_instructions('ldsm')}"),
        (_conflicts("ld"),),
    ),
    # At times the banks also wait for data that arrive from L2. Such wavefronts belong to no
    # instruction, and are not bank conflicts of the kernel.
    "shared_store_bank_conflicts": (
        (
            _conflicts("st"), f"-{_of_banks('st')}", _of_instructions("st"),
            _of_instructions("stsm"), f"-{_conflicts_of_instructions('stsm')}",
        ),
        (_conflicts("st"), f"-{_of_banks('st')}", _of_instructions("st")),
        (_conflicts("st"),),
    ),
    **{
        f"{name}_{what}": alternatives
        for name, op, executed in (
            ("ldmatrix", "ldsm", "ldsm"), ("stmatrix", "stsm", "shared_stsm"),
            ("cp_async", "ldgsts", "ldgsts"),
        )
        for what, alternatives in (
            (
                "requests",
                _either(
                    f"smsp__inst_executed_op_{executed}.sum",
                    f"smsp__sass_inst_executed_op_{executed}.sum",
                ),
            ),
            ("wavefronts", _either(_of_instructions(op))),
            ("bank_conflicts", _either(_conflicts_of_instructions(op))),
        )
    },
    "wgmma_requests": _either("smsp__sass_inst_executed_op_shared_gmma.sum"),
    "wgmma_bytes": _either("smsp__sass_data_bytes_mem_shared_op_gmma.sum"),
    **{
        name: _either(metric)
        for kind, op, way in (
            ("load", "ld", "xbar2l1tex_read"), ("store", "st", "l1tex2xbar_write"),
            ("reduction", "red", "l1tex2xbar_write"),
        )
        for name, metric in (
            (f"bulk_{kind}_requests", f"smsp__sass_inst_executed_op_tma_{op}.sum"),
            (f"bulk_{kind}_sectors", f"l1tex__m_{way}_sectors_mem_global_op_tma_{op}.sum"),
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
}  # fmt: skip
LIMITS = {
    "blocks": "launch__occupancy_limit_blocks",
    "registers": "launch__occupancy_limit_registers",
    "shared": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
}
"""The metrics of the limits on the blocks of a multiprocessor."""
SHARED_CONFIG = "launch__shared_mem_config_size"
"""The bytes of shared memory that the driver sets aside on a multiprocessor for a launch."""
ASKED = (
    *dict.fromkeys(
        metric.lstrip("-") for each in METRICS.values() for one in each for metric in one
    ),
    *LIMITS.values(),
    SHARED_CONFIG,
)

EXACT = (
    *(
        f"{memory}_{kind}_{what}"
        for memory, counts in (
            ("global", ("requests", "sectors")),
            ("shared", ("requests", "wavefronts", "bank_conflicts")),
        )
        for kind in ("load", "store")
        for what in counts
    ),
    "shared_atomic_requests",
    *(f"ldmatrix_{what}" for what in ("requests", "wavefronts", "bank_conflicts")),
    *(f"stmatrix_{what}" for what in ("wavefronts", "bank_conflicts")),
    "cp_async_requests",
    "wgmma_requests", "wgmma_bytes",
    *(
        f"bulk_{kind}_{what}"
        for kind in ("load", "store", "reduction")
        for what in ("requests", "sectors")
        if (kind, what) != ("load", "sectors")
    ),
)  # fmt: skip
"""The counters that the emulator counts exactly as the hardware does. Not every GPU has metrics for
each; a counter must have been measured if the emulator counts anything.
"""

NEAR = ("cp_async_wavefronts", "cp_async_bank_conflicts", "bulk_load_sectors")
"""The counters that the emulator counts as the hardware does, with known exceptions. If the lanes
of a ``cp.async`` read and write at random places, the wavefronts differ by up to a tenth. The
metric of ``bulk_load_sectors`` counts a multicast's sectors once for each block that they reach;
the emulator counts them once.
"""

AS_PTX = (
    "divergent_branches", "fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "warp_instructions",
)  # fmt: skip
"""The counters that may differ without a fault: the emulator counts the PTX's instructions, which
ptxas joins, splits and leaves out.
"""

_ABSENT = ("", "n/a", "nan", "inf")


@dataclass(frozen=True)
class Hardware:
    """The hardware's counters of one launch.

    Attributes
    ----------
    kernel : str
        The kernel's name in the case.
    counters : mapping of str to int
        The counters of :class:`tilewise.launch.Counters` that this GPU counts, as totals of the
        launch.
    registers : int or None
        The 32-bit registers of a thread.
    limits : mapping of str to int
        The blocks that a multiprocessor can hold by each of its limits: ``blocks`` (the most of any
        kind), ``registers``, ``shared`` memory and ``warps``.
    gpu : str
        The GPU in words.
    ncu : str
        The version of Nsight Compute.
    metrics : mapping of str to int
        Every requested metric that this GPU has, by Nsight Compute's own names.
    """

    kernel: str
    counters: Mapping[str, int]
    registers: int | None
    limits: Mapping[str, int]
    gpu: str
    ncu: str
    metrics: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without ``metrics``."""
        return {
            "kernel": self.kernel,
            "counters": dict(self.counters),
            "registers": self.registers,
            "limits": dict(self.limits),
            "gpu": self.gpu,
            "ncu": self.ncu,
        }


def given_registers(registers: int) -> int:
    """Return the value of ``launch__registers_per_thread``, which is at least 16."""
    return max(16, registers)


def number(text: str) -> int | None:
    """Return a metric's value; None if the GPU has none, or it is not a whole number.

    Thousands may be separated by commas, and ``(!)`` precedes a value with a remark.
    """
    plain = text.replace("(!)", "").replace(",", "").strip()
    if plain.lower() in _ABSENT:
        return None
    try:
        return int(plain)
    except ValueError:
        value = float(plain)
    return int(value) if value.is_integer() else None


def taken(name: str, metrics: Mapping[str, int]) -> tuple[str, ...]:
    """Return the metrics whose sum is the counter; none if the GPU has no alternative complete."""
    there = (
        each for each in METRICS[name] if all(metric.lstrip("-") in metrics for metric in each)
    )
    return next(there, ())


def _are_arrivals(metrics: Mapping[str, int]) -> bool:
    """Return whether all waits of loads at the banks were for ``cp.async`` data from L2.

    The waits are then as many as the wavefronts that the banks have and the instructions don't,
    since the instructions' own conflicts are among their wavefronts. If lanes happen to share as
    many, conflicts are mistaken for waits; a comparison with the emulator's count shows that.
    """
    of_banks, of_instructions, of_matrices, conflicts, conflicts_of_matrices = (
        metrics.get(metric, 0)
        for metric in (
            _of_banks("ld"), _of_instructions("ld"), _of_instructions("ldsm"), _conflicts("ld"),
            _conflicts_of_instructions("ldsm"),
        )
    )  # fmt: skip
    conflicts -= conflicts_of_matrices
    return conflicts > 0 and of_banks - of_matrices - of_instructions == conflicts


def hardware(
    kernel: str, launch: Mapping[str, str], gpu: str, version: str, more: Sequence[str] = ()
) -> Hardware:
    """Return the counters in the table's row of one launch.

    Parameters
    ----------
    kernel : str
        The kernel's name in the case.
    launch : mapping of str to str
        The values that Nsight Compute printed, by the names of columns.
    gpu : str
    version : str
        The version of Nsight Compute.
    more : sequence of str
        Metrics that were requested besides those of the counters.
    """
    values = {metric: number(launch.get(metric, "")) for metric in (*ASKED, *more)}
    metrics = {metric: value for metric, value in values.items() if value is not None}
    summed = {name: taken(name, metrics) for name in METRICS}
    counters = {
        name: sum(-metrics[m[1:]] if m[0] == "-" else metrics[m] for m in these)
        for name, these in summed.items()
        if these
    }
    if _are_arrivals(metrics):
        counters["shared_load_wavefronts"] -= counters["shared_load_bank_conflicts"]
        counters["shared_load_bank_conflicts"] = 0
    registers = counters.pop("registers", None)
    limits = {name: metrics[metric] for name, metric in LIMITS.items() if metric in metrics}
    return Hardware(kernel, counters, registers, limits, gpu, version, metrics)
