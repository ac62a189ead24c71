"""Hold the dependence of each lane's register, as groups of lanes may write it separately."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.sampling.affine import ZERO, Dependence, both
from tilewise.devices.emulator.threads.lanes import Lanes

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_Mask = npt.NDArray[np.bool_]


class Held:
    """The dependences of registers.

    Warps that wait for one another go through a loop separately: one is at the next tile while
    another stores the last one. So the lanes of a register are told apart if they differ, and only
    then.

    Parameters
    ----------
    machine : Machine

    Attributes
    ----------
    lanes : Lanes or None
        The lanes that run.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.lanes: Lanes | None = None
        self._same: dict[int, Dependence] = {}
        self._apart: dict[int, list[tuple[Dependence, _Mask]]] = {}

    def clear(self) -> None:
        """Forget all dependences: nobody has written a register."""
        self._same.clear()
        self._apart.clear()

    def __contains__(self, slot: int) -> bool:
        return slot in self._same or slot in self._apart

    def get(self, slot: int) -> Dependence:
        """Return the dependence of a register of those lanes that run."""
        found = self._same.get(slot)
        if found is not None:
            return found
        parts = self._apart.get(slot)
        if parts is None:
            return ZERO
        if self.lanes is not None and not self.lanes.whole:
            numbers = self.lanes.numbers
            parts = [part for part in parts if part[1][numbers].any()]
        if not parts:
            return ZERO
        dependence = parts[0][0]
        for other, _ in parts[1:]:
            dependence = both(dependence, other)
        return dependence

    def put(self, slot: int, dependence: Dependence, lanes: Lanes, is_partial: bool) -> None:
        """Set the dependence that lanes write; ``is_partial`` if perhaps not all lanes do."""
        if lanes.whole and not is_partial:
            self._apart.pop(slot, None)
            self._same[slot] = dependence
            return
        old = self._same.get(slot)
        if slot not in self._apart and old in (None, dependence):
            self._same[slot] = dependence
            return
        mask = np.zeros(self.machine.geometry.count, np.bool_)
        mask[lanes.numbers] = True
        parts = self._apart.get(slot) or [(old or ZERO, np.ones_like(mask))]
        found: dict[Dependence, _Mask] = {}

        def add(each: Dependence, its: _Mask) -> None:
            if its.any():
                found[each] = found[each] | its if each in found else its

        for each, its in parts:
            add(each, its & ~mask)
            if is_partial:
                add(both(each, dependence), its & mask)
        if not is_partial:
            add(dependence, mask)
        self._same.pop(slot, None)
        self._apart.pop(slot, None)
        if len(found) == 1:
            self._same[slot] = next(iter(found))
        else:
            self._apart[slot] = list(found.items())
