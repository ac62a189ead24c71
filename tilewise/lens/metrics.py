"""What the hardware counts, by Nsight Compute's names: each counter's metrics, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """Bank conflicts, as the banks see them."""
    return f"l1tex__data_bank_conflicts_{_LSU}_shared_op_{op}.sum"


def _conflicts_of_instructions(op: str) -> str:
    """Bank conflicts, as the instructions make them."""
    return f"smsp__sass_l1tex_data_bank_conflicts_{_LSU}_shared_op_{op}.sum"


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
        f"shared_{kind}_requests": _either(
            f"smsp__sass_inst_executed_op_shared_{op}.sum",
            f"smsp__inst_executed_op_shared_{op}.sum",
        )
        for kind, op in (("load", "ld"), ("store", "st"))
    },
    # What the banks see of loads has ldmatrix in it, and of stores stmatrix; what the instructions
    # make has not. But of loads, it does not have what two lanes share.
    "shared_load_wavefronts": (
        (_of_banks("ld"), f"-{_of_instructions('ldsm')}"),
        *_either(_of_banks("ld"), _of_instructions("ld")),
    ),
    "shared_store_wavefronts": _either(_of_instructions("st"), _of_banks("st")),
    "shared_load_bank_conflicts": (
        (_conflicts("ld"), f"-{_conflicts_of_instructions('ldsm')}"),
        (_conflicts("ld"),),
    ),
    # The banks also wait for what comes in from L2, at times: such wavefronts are no
    # instruction's, and no bank conflicts of the kernel's.
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
"""By what limits the blocks that a multiprocessor holds."""
SHARED_CONFIG = "launch__shared_mem_config_size"
"""Bytes of shared memory that the driver set aside on a multiprocessor for a launch."""
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
"""Counters that the emulator counts as the hardware does, to the last one. Not every GPU has
metrics of each; a counter must have been measured where the emulator counts anything."""

NEAR = ("cp_async_wavefronts", "cp_async_bank_conflicts", "bulk_load_sectors")
"""Counters that the emulator counts as the hardware does but for known cases. The lanes of a
``cp.async`` that read and write at random places make other wavefronts, by up to a tenth; and the
metric of ``bulk_load_sectors`` counts a multicast's sectors once for each block that they reach,
the emulator once for all."""

AS_PTX = (
    "divergent_branches", "fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "warp_instructions",
)  # fmt: skip
"""Counters that may differ without a fault: instructions as the PTX has them, which ptxas joins,
parts and leaves out."""

_ABSENT = ("", "n/a", "nan", "inf")


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


def given_registers(registers: int) -> int:
    """What ``launch__registers_per_thread`` says of a kernel that needs so many: at least 16."""
    return max(16, registers)


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


def taken(name: str, metrics: Mapping[str, int]) -> tuple[str, ...]:
    """The metrics whose sum is the counter; none where the GPU has not all of any alternative."""
    there = (
        each for each in METRICS[name] if all(metric.lstrip("-") in metrics for metric in each)
    )
    return next(there, ())


def _are_arrivals(metrics: Mapping[str, int]) -> bool:
    """Whether all that loads waited for in the banks came in from L2, by ``cp.async``.

    Then they are as many as the wavefronts that the banks have and the instructions don't: the
    instructions' own conflicts are wavefronts of theirs. Conflicts of as many as lanes share by
    chance would be taken for such; beside the emulator's count they show.
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
    """What one launch's row of the table says.

    Parameters
    ----------
    kernel : str
        The name that the case has for it.
    launch : mapping of str to str
        What Nsight Compute printed, by the names of columns.
    gpu : str
    version : str
        Of Nsight Compute.
    more : sequence of str
        Metrics that were asked for beside those of the counters.
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
