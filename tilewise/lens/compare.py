"""Compare the emulator's counters with the hardware's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.devices.occupancy import multiprocessor
from tilewise.lens.metrics import LIMITS, METRICS, SHARED_CONFIG, Hardware, given_registers, taken
from tilewise.lens.profile import Profile


@dataclass(frozen=True)
class Row:
    """A counter of the emulator, and the same one of the hardware.

    Attributes
    ----------
    name : str
        The name in :class:`tilewise.launch.Counters`, or ``"registers"``.
    metric : str
        Nsight Compute's name for it; several names, joined by ``" + "``, if it is their sum.
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


def compare(counters: Mapping[str, int], hardware: Hardware) -> tuple[Row, ...]:
    """Return the counters that both the emulator and the hardware have, side by side.

    Parameters
    ----------
    counters : mapping of str to int
        The counters of the same case, as :meth:`tilewise.launch.Counters.to_dict` returns them;
        ``"registers"`` may be among them.
    hardware : Hardware
    """
    theirs = dict(hardware.counters)
    if hardware.registers is not None:
        theirs["registers"] = hardware.registers
    return tuple(
        Row(
            name,
            " + ".join(taken(name, hardware.metrics)).replace("+ -", "- "),
            counters[name],
            theirs[name],
            counters[name] == theirs[name],
        )
        for name in METRICS
        if name in counters and name in theirs
    )


def against(found: Profile, hardware: Hardware) -> tuple[Row, ...]:
    """Compare a profile with what Nsight Compute counted in the same launch.

    The rows are the counters, the registers, and the blocks of a multiprocessor that each limit of
    occupancy allows.
    """
    resources, counters = found.report.resources, found.counters.to_dict()
    if not resources.missing:
        counters["registers"] = given_registers(resources.registers)
    held, place = found.occupancy, multiprocessor(found.arch)
    by_shared = held.by_shared
    if SHARED_CONFIG in hardware.metrics:  # with the shared memory of that launch
        by_shared = hardware.metrics[SHARED_CONFIG] // place.shared_of_a_block(held.shared)
    ours = {
        "blocks": held.by_blocks, "warps": held.by_warps, "registers": held.by_registers,
        "shared": by_shared,
    }  # fmt: skip
    limits = [
        Row(f"occupancy_limit_{name}", LIMITS[name], mine, hardware.limits[name],
            mine == hardware.limits[name])
        for name, mine in ours.items()
        if mine is not None and name in hardware.limits
    ]  # fmt: skip
    return (*compare(counters, hardware), *limits)
