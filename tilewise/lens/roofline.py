"""The roofline: the least time that a launch can take on a GPU, and which of its ceilings sets it.

A launch is so many operations and so many bytes through each memory; a GPU does each of them at
a rate that it can't pass. The longest of these times is the least that the launch can take, were
everything else hidden behind it (Williams, Waterman and Patterson, *Roofline: An Insightful Visual
Performance Model for Multicore Architectures*, CACM 52(4), 2009).
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
TENSOR_CORES = "tensor cores"  # a limit of those launches alone that have products for them
RATES = ("dram", "l2", "shared", "issue", "float32", "float64")


@dataclass(frozen=True, repr=False)
class Ceilings(Shown):
    """What a GPU can do at most.

    Attributes
    ----------
    name : str
        As the driver has it.
    arch : str
        As ``"sm_90"``.
    dram : float
        Bytes a second that are read from the GPU's memory, and written to it, together.
    l2 : float or None
        Bytes a second between the L2 cache and the multiprocessors; None where nobody says.
    shared : float
        Bytes a second of the shared memory of all multiprocessors together.
    issue : float
        Warp instructions a second.
    float32, float64 : float
        Operations a second without tensor cores; a fused multiply-add is two.
    tensor_cores : mapping of str to float
        By type, operations a second of the tensor cores on matrices without zeros to skip; those of
        ``"float16"`` and ``"bfloat16"`` are summed in float32. Types that they have no products of,
        or of which nobody says, are not there.
    source : str
        ``"measured"``, the date and the command; or ``"datasheet"``, which one it is, and what was
        derived.
    multiprocessors : int or None
        How many there are; None where it is not known.
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
        """Operations a second of ``dtype`` without tensor cores."""
        return {"float32": self.float32, "float64": self.float64}[dtype]

    def roof(self, dtype: str) -> tuple[str, float | None]:
        """The unit that products of ``dtype`` are computed by, and its operations a second.

        Returns
        -------
        (str, float or None)
            ``"tensor cores"`` of 16 bits, ``"arithmetic"`` of the others; None where the rate is
            not known.
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
    """What a launch has to do.

    Attributes
    ----------
    flops : int
        Floating-point operations; a fused multiply-add is two.
    dtype : str
        Theirs: ``"float32"`` or ``"float64"``.
    dram_bytes : int
        Each sector of global memory that the launch touches, once, and those that it reads and
        writes twice.
    l2_bytes : int
        What passes between the multiprocessors and L2 if no block's L1 forgets anything: the
        distinct sectors that each block loads, and all that it stores.
    shared_wavefronts : int
        Turns of a multiprocessor's shared memory, 128 bytes each; those in which ``wgmma`` reads
        its operands among them. What bulk copies write there is not.
    warp_instructions : int
        At least: those that reach memory, add or multiply floats, and wait at barriers. What
        computes addresses, the machine code may have more or less of than the PTX.
    blocks : int or None
        Of the launch; None where it is not known.
    other_flops : int
        Those of ``flops`` that have no ceiling here: in half precision without tensor cores,
        divisions and their like.
    tensor_cores : mapping of str to int
        Those of ``flops`` that tensor cores do, by the type of the factors.
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
        """Operations a byte of DRAM; infinite where there is no byte."""
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
    """The time that one ceiling asks for.

    Attributes
    ----------
    name : str
        One of :data:`LIMITS`, or :data:`TENSOR_CORES`.
    seconds : float
    share : float
        Of the longest.
    """

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, repr=False)
class Roofline(Shown):
    """How long a launch takes at least.

    Attributes
    ----------
    work : Work
    ceilings : Ceilings
    limits : tuple of Limit
        In the order of :data:`LIMITS`, and last that of tensor cores, where they do something.
    left_out : tuple of str
        Names of the limits whose ceiling is not known; the bound holds without them.
    """

    work: Work
    ceilings: Ceilings
    limits: tuple[Limit, ...]
    left_out: tuple[str, ...]

    @property
    def binding(self) -> str:
        """The name of the longest limit; of equals, the first."""
        return max(self.limits, key=lambda limit: limit.seconds).name

    @property
    def best_seconds(self) -> float:
        """The least time."""
        return max(limit.seconds for limit in self.limits)

    @property
    def intensity(self) -> float:
        """Operations a byte of DRAM; infinite where there is no byte."""
        return self.work.intensity

    @property
    def busy(self) -> int | None:
        """The multiprocessors that can have a block at once; None where that is not known."""
        return _busy(self.work, self.ceilings)

    @property
    def best_flops(self) -> float:
        """Operations a second in the least time; 0 for no work."""
        return self.work.flops / self.best_seconds if self.best_seconds else 0.0

    def share(self, measured_seconds: float) -> float:
        """How much of a measured time the least time is: 1 is as fast as can be.

        Raises
        ------
        ValueError
            If the time is not positive.
        """
        if not 0 < measured_seconds < math.inf:
            raise ValueError(f"a time of {measured_seconds!r} s is none; it must be positive")
        return self.best_seconds / measured_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; None for an infinite intensity, which JSON lacks."""
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
    """The type whose roof a launch is under: of tensor cores', where they do the most.

    Parameters
    ----------
    work : mapping
        As :meth:`Work.to_dict` gives it.
    """
    most: dict[str, int] = dict(work.get("tensor_cores") or {})
    added = work["flops"] - work["other_flops"] - sum(most.values())
    kind = max(most, key=lambda each: most[each], default="")
    return kind if kind and most[kind] > added else str(work["dtype"])


def bound(work: Work, ceilings: Ceilings) -> Roofline:
    """The least time that ``work`` takes on a GPU with these ceilings.

    Shared memory, schedulers, arithmetic and tensor cores are each multiprocessor's own: a launch
    of fewer blocks than there are multiprocessors has only those of the multiprocessors with a
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
    """The seconds that all of them take; None where the rate of one of the types is not known."""
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


# The GPUs that are known


@cache
def known() -> tuple[Ceilings, ...]:
    """All that ``ceilings.json`` has; a GPU that was measured is there twice."""
    text = resources.files("tilewise.lens").joinpath("ceilings.json").read_text(encoding="utf-8")
    return tuple(Ceilings(**entry) for entry in json.loads(text))


def find(name: str) -> Ceilings:
    """The ceilings of a GPU: as measured, or where they were not, as its datasheet has them.

    Parameters
    ----------
    name : str
        Its name, or whole words of it that no other has, with or without spaces between them;
        upper and lower case alike.

    Raises
    ------
    ValueError
        If there is none, or more than one; the message lists those there are.

    Examples
    --------
    >>> find("a100").name
    'NVIDIA A100-SXM4-80GB'
    """
    return _preferred(names.find(name, _names()))


def for_gpu(description: str) -> Ceilings:
    """The ceilings of the GPU that describes itself so.

    Parameters
    ----------
    description : str
        A device's: its name, a comma, and more.

    Raises
    ------
    ValueError
        If it is not known. Another GPU's would not be its own, however alike the names.
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
    """The ceilings of the GPU of that very name by its datasheet; None where there are none."""
    for entry in known():
        if names.words(entry.name) == names.words(name) and not entry.is_measured:
            return entry
    return None


def _names() -> list[str]:
    return list(dict.fromkeys(entry.name for entry in known()))


def _preferred(name: str) -> Ceilings:
    entries = [entry for entry in known() if entry.name == name]
    return next((entry for entry in entries if entry.is_measured), entries[0])
