"""The roofline: the least time of a launch on a GPU, and the ceiling that sets it.

A launch does a number of operations, and moves a number of bytes through each memory; a GPU has a
highest rate for each of them. The longest of these times is the least that the launch can take, if
everything else is hidden behind it (Williams, Waterman and Patterson, *Roofline: An Insightful
Visual Performance Model for Multicore Architectures*, CACM 52(4), 2009).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from tilewise.devices import names
from tilewise.precision import HALVES
from tilewise.shown import Part, Shown, Table, duration

DTYPES = ("float32", "float64")
WAVEFRONT_BYTES = 128
LIMITS = ("DRAM", "L2", "shared memory", "issue", "arithmetic")
TENSOR_CORES = "tensor cores"  # a limit only of launches that use them
RATES = ("dram", "l2", "shared", "issue", "float32", "float64")


@dataclass(frozen=True, repr=False)
class Ceilings(Shown):
    """The highest rates of a GPU.

    Attributes
    ----------
    name : str
        The name that the driver reports.
    arch : str
        The architecture, as in ``"sm_90"``.
    dram : float
        The bytes a second that are read from the GPU's memory and written to it, together.
    l2 : float or None
        The bytes a second between the L2 cache and the multiprocessors; None if it is not known.
    shared : float
        The bytes a second of the shared memory of all multiprocessors together.
    issue : float
        The warp instructions a second.
    float32, float64 : float
        The operations a second without tensor cores; a fused multiply-add is two.
    tensor_cores : mapping of str to float
        By type, the operations a second of the tensor cores on matrices without structured zeros;
        products of ``"float16"`` and ``"bfloat16"`` are summed in float32. Types that the tensor
        cores don't multiply, or whose rate is not known, are missing.
    source : str
        ``"measured"``, the date and the command; or ``"datasheet"``, its name, and what was
        derived.
    multiprocessors : int or None
        The number of multiprocessors; None if it is not known.
    """

    name: str
    arch: str
    dram: float
    l2: float | None
    shared: float
    issue: float
    float32: float
    float64: float
    source: str
    multiprocessors: int | None = None
    tensor_cores: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.multiprocessors is not None and self.multiprocessors < 1:
            raise ValueError(
                f"{self.name}: multiprocessors is {self.multiprocessors}; it must be at least 1"
            )
        rates = {rate: getattr(self, rate) for rate in RATES}
        if rates["l2"] is None:
            del rates["l2"]
        rates |= {f"{dtype} of tensor cores": rate for dtype, rate in self.tensor_cores.items()}
        for name, value in rates.items():
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"{self.name}: {name} is {value!r}; it must be a positive number")

    @property
    def is_measured(self) -> bool:
        return self.source.startswith("measured")

    def flops(self, dtype: str) -> float:
        """Return the operations a second of ``dtype`` without tensor cores."""
        return {"float32": self.float32, "float64": self.float64}[dtype]

    def roof(self, dtype: str) -> tuple[str, float | None]:
        """Return the unit that computes products of ``dtype``, and its operations a second.

        Returns
        -------
        (str, float or None)
            ``"tensor cores"`` for 16 bits, ``"arithmetic"`` for the others; None if the rate is not
            known.
        """
        if dtype in HALVES:
            return TENSOR_CORES, self.tensor_cores.get(dtype)
        return "arithmetic", self.flops(dtype)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _summary(self) -> str:
        return (
            f"{self.name}, {self.dram * 1e-9:,.0f} GB/s of DRAM, {self.float32 * 1e-12:.3g} "
            f"TFLOP/s in float32, {'measured' if self.is_measured else 'by its datasheet'}"
        )


@dataclass(frozen=True, repr=False)
class Work(Shown):
    """The work of a launch.

    Attributes
    ----------
    flops : int
        The floating-point operations; a fused multiply-add is two.
    dtype : str
        The dtype of the operations: ``"float32"`` or ``"float64"``.
    dram_bytes : int
        The bytes of the sectors of global memory that the launch accesses, each counted once, or
        twice if it is read and written.
    l2_bytes : int
        The bytes between the multiprocessors and L2, if no block's L1 cache evicts anything: the
        distinct sectors that each block loads, and everything that it stores.
    shared_wavefronts : int
        The wavefronts of a multiprocessor's shared memory, 128 bytes each, including those in which
        ``wgmma`` reads its operands. The writes of bulk copies are not counted.
    warp_instructions : int
        The least number of warp instructions: those that access memory, add or multiply floats, and
        wait at barriers. Of those that compute addresses, the machine code may have more or fewer
        than the PTX.
    blocks : int or None
        The blocks of the launch; None if the number is not known.
    other_flops : int
        The operations among ``flops`` that have no ceiling here: those in half precision without
        tensor cores, divisions and the like.
    tensor_cores : mapping of str to int
        The operations among ``flops`` that tensor cores do, by the type of the factors.
    """

    flops: int
    dtype: str
    dram_bytes: int
    l2_bytes: int
    shared_wavefronts: int
    warp_instructions: int
    blocks: int | None = None
    other_flops: int = 0
    tensor_cores: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; it takes one of {', '.join(DTYPES)}")
        counts = {each.name: getattr(self, each.name) for each in fields(self)}
        counts |= {f"tensor_cores of {kind}": of for kind, of in self.tensor_cores.items()}
        for name, value in counts.items():
            if name not in ("dtype", "tensor_cores") and value is not None and value < 0:
                raise ValueError(f"{name} is {value}; it must be at least 0")

    @property
    def intensity(self) -> float:
        """The operations for each byte of DRAM; infinite if there are no bytes."""
        return _ratio(self.flops, self.dram_bytes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _summary(self) -> str:
        return (
            f"{self.flops:,} operations in {self.dtype}, {self.dram_bytes:,} bytes of DRAM, "
            f"{self.l2_bytes:,} of L2"
        )


@dataclass(frozen=True)
class Limit:
    """The time that one ceiling requires.

    Attributes
    ----------
    name : str
        The name of the limit, one of :data:`LIMITS`, or :data:`TENSOR_CORES`.
    seconds : float
    share : float
        The share of the longest time.
    """

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, repr=False)
class Roofline(Shown):
    """The least time of a launch.

    Attributes
    ----------
    work : Work
    ceilings : Ceilings
    limits : tuple of Limit
        The limits in the order of :data:`LIMITS`, and last that of tensor cores, if the launch uses
        them.
    left_out : tuple of str
        The names of the limits whose ceiling is not known; the bound holds without them.
    """

    work: Work
    ceilings: Ceilings
    limits: tuple[Limit, ...]
    left_out: tuple[str, ...]

    @property
    def binding(self) -> str:
        """The name of the longest limit; the first one of equals."""
        return max(self.limits, key=lambda limit: limit.seconds).name

    @property
    def best_seconds(self) -> float:
        """The least time, in seconds."""
        return max(limit.seconds for limit in self.limits)

    @property
    def intensity(self) -> float:
        """The operations for each byte of DRAM; infinite if there are no bytes."""
        return self.work.intensity

    @property
    def busy(self) -> int | None:
        """The number of multiprocessors that can have a block at once; None if it is not known."""
        return _busy(self.work, self.ceilings)

    @property
    def best_flops(self) -> float:
        """The operations a second in the least time; 0 for no work."""
        return self.work.flops / self.best_seconds if self.best_seconds else 0.0

    def share(self, measured_seconds: float) -> float:
        """Return the least time as a share of a measured time; 1 is as fast as possible.

        Raises
        ------
        ValueError
            If the time is not positive.
        """
        if not 0 < measured_seconds < math.inf:
            raise ValueError(f"a time of {measured_seconds!r} s is none; it must be positive")
        return self.best_seconds / measured_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; None for an infinite intensity, which JSON lacks."""
        return {
            "work": self.work.to_dict(),
            "on": self.ceilings.name,
            "limits": [asdict(limit) for limit in self.limits],
            "left_out": list(self.left_out),
            "binding": self.binding,
            "best_seconds": self.best_seconds,
            "best_flops": self.best_flops,
            "busy_multiprocessors": self.busy,
            "intensity": self.intensity if math.isfinite(self.intensity) else None,
        }

    def _summary(self) -> str:
        by = f"bound by {self.binding}" if self.best_seconds else "nothing to do"
        return f"at least {duration(self.best_seconds)} on {self.ceilings.name}, {by}"

    def _parts(self) -> list[Part]:
        rows = [(x.name, duration(x.seconds), f"{x.share:.0%}") for x in self.limits]
        return [
            self._summary(),
            Table(rows, ("ceiling", "least time", "of the longest")),
            *(f"{name} is left out: its ceiling is not known" for name in self.left_out),
        ]


def roof_of(work: Mapping[str, Any]) -> str:
    """Return the type whose roof a launch is under: the tensor cores', if they do the most.

    Parameters
    ----------
    work : mapping
        The work, as :meth:`Work.to_dict` returns it.
    """
    most: dict[str, int] = dict(work.get("tensor_cores") or {})
    added = work["flops"] - work["other_flops"] - sum(most.values())
    kind = max(most, key=lambda each: most[each], default="")
    return kind if kind and most[kind] > added else str(work["dtype"])


def bound(work: Work, ceilings: Ceilings) -> Roofline:
    """Return the least time that ``work`` takes on a GPU with these ceilings.

    Each multiprocessor has its own shared memory, schedulers, arithmetic and tensor cores. So a
    launch with fewer blocks than multiprocessors has only those of the multiprocessors with a
    block.
    """
    busy = _busy(work, ceilings)
    own = 1.0 if busy is None or not ceilings.multiprocessors else busy / ceilings.multiprocessors
    own = own or 1.0  # without a block there is no work
    added = work.flops - work.other_flops - sum(work.tensor_cores.values())
    asked: dict[str, float | None] = {
        "DRAM": work.dram_bytes / ceilings.dram,
        "L2": None if ceilings.l2 is None else work.l2_bytes / ceilings.l2,
        "shared memory": work.shared_wavefronts * WAVEFRONT_BYTES / (own * ceilings.shared),
        "issue": work.warp_instructions / (own * ceilings.issue),
        "arithmetic": added / (own * ceilings.flops(work.dtype)),
    }
    if any(work.tensor_cores.values()):
        whole = _by_tensor_cores(work, ceilings)
        asked[TENSOR_CORES] = None if whole is None else whole / own
    seconds = {name: each for name, each in asked.items() if each is not None}
    longest = max(seconds.values())
    limits = tuple(
        Limit(name, each, each / longest if longest else 0.0) for name, each in seconds.items()
    )
    return Roofline(work, ceilings, limits, tuple(name for name in asked if name not in seconds))


def _by_tensor_cores(work: Work, ceilings: Ceilings) -> float | None:
    """Return the seconds of all tensor-core work; None if a rate is not known."""
    total = 0.0
    for kind, amount in work.tensor_cores.items():
        rate = ceilings.tensor_cores.get(kind)
        if rate is None:
            return None
        total += amount / rate
    return total


def _busy(work: Work, ceilings: Ceilings) -> int | None:
    if work.blocks is None or ceilings.multiprocessors is None:
        return None
    return min(work.blocks, ceilings.multiprocessors)


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.inf


# The known GPUs


@cache
def known() -> tuple[Ceilings, ...]:
    """Return all entries of ``ceilings.json``; a GPU that was measured has two."""
    text = resources.files("tilewise.lens").joinpath("ceilings.json").read_text(encoding="utf-8")
    return tuple(Ceilings(**entry) for entry in json.loads(text))


def find(name: str) -> Ceilings:
    """Return the ceilings of a GPU: the measured ones, or else those of its data sheet.

    Parameters
    ----------
    name : str
        The GPU's name, or whole words of it that no other has, with or without spaces between them,
        in upper or lower case.

    Raises
    ------
    ValueError
        If there is no such GPU, or more than one; the message lists them.

    Examples
    --------
    >>> find("a100").name
    'NVIDIA A100-SXM4-80GB'
    """
    return _preferred(names.find(name, _names()))


def for_gpu(description: str) -> Ceilings:
    """Return the ceilings of the GPU with this description.

    Parameters
    ----------
    description : str
        A device's description: its name, a comma, and more.

    Raises
    ------
    ValueError
        If it is not known. The ceilings of another GPU would be wrong, however similar the name.
    """
    name = description.partition(",")[0]
    for entry in known():
        if names.words(entry.name) == names.words(name):
            return _preferred(entry.name)
    raise ValueError(
        f"the ceilings of {name} are not known; `tilewise ceilings --json F` measures them, and "
        f"--on takes those of another: {', '.join(_names())}"
    )


def datasheet(name: str) -> Ceilings | None:
    """Return the ceilings of the GPU with exactly that name by its data sheet; None if none."""
    for entry in known():
        if names.words(entry.name) == names.words(name) and not entry.is_measured:
            return entry
    return None


def _names() -> list[str]:
    return list(dict.fromkeys(entry.name for entry in known()))


def _preferred(name: str) -> Ceilings:
    entries = [entry for entry in known() if entry.name == name]
    return next((entry for entry in entries if entry.is_measured), entries[0])
