"""Note which warps or warpgroups run an instruction on matrices, and with which elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.ptx.syntax import Vector
from tilewise.devices.emulator.recording.events import NOWHERE, Event
from tilewise.devices.emulator.recording.kinds import ROWS
from tilewise.devices.emulator.recording.operands import address_of, generic
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Groups, Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_ROW = 16  # bytes that an address of ``ldmatrix`` or ``stmatrix`` stands for


class Matrices:
    """Note which lanes run an instruction together, for an event.

    Parameters
    ----------
    machine : Machine
        The machine whose meetings are wrapped.

    Attributes
    ----------
    met : tuple or None
        The lanes that ran the instruction that runs now, and what was known before; None as long
        as nobody did.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.met: tuple[Lanes, Any] | None = None
        # The accesses that an instruction made, if it makes several.
        self._accesses: list[tuple[Lanes, Any, int, Any, tuple[int, int, int]]] = []
        self._before = {op.index: self._before_of(op) for op in machine.ops if op.held is not None}
        self._held: dict[int, tuple[Held, ...]] = {}
        self._watch()
        for op in machine.ops:
            if op.instruction.opcode == "wmma":
                op.accessed = partial(self._accessed, op)

    def _accessed(self, op: Op, lanes: Lanes, address: Any, width: int, values: Any) -> None:
        counts = op.requests, op.sectors, op.conflicts
        self._accesses.append((lanes, np.array(address, np.int64), width, values, counts))

    def _before_of(self, op: Op) -> Callable[[Lanes], Any]:
        """Return a function that notes facts of lanes before they run a matrix instruction."""
        if op.pieces is not None:
            return op.pieces
        if op.instruction.opcode not in ROWS:
            return lambda lanes: None
        address = address_of(self.machine, op, 0)
        vectors = [x for x in op.instruction.operands if isinstance(x, Vector)]
        giving = 8 * (len(vectors[0].elements) if vectors else 1)

        def rows(lanes: Lanes) -> npt.NDArray[np.int64]:
            assert address is not None
            place, _ = generic(address(lanes))
            gives = lanes.pick(lanes.geometry.lane_id) < giving
            return np.where(gives, lanes.in_own_block(place), NOWHERE)

        return rows

    def _watch(self) -> None:
        """Note which lanes run an instruction that they run together, before they do."""
        meetings, warpgroups = self.machine.meetings, self.machine.warpgroups
        arrive, arrive_of_group = meetings.arrive, warpgroups.arrive

        def noted(op: Op, lanes: Lanes) -> None:
            before = self._before.get(op.index)
            self._accesses.clear()
            self.met = lanes, None if before is None else before(lanes)

        def arrived(key: Any, op: Op, meet: Any, lanes: Lanes, mask: Any) -> Groups:
            def met(together: Lanes, masks: Any) -> None:
                noted(op, together)
                meet(together, masks)

            return arrive(key, op, met, lanes, mask)

        def arrived_of_group(op: Op, meet: Any, lanes: Lanes) -> Groups:
            def met(together: Lanes) -> None:
                noted(op, together)
                meet(together)

            return arrive_of_group(op, met, lanes)

        meetings.arrive = arrived  # type: ignore[method-assign]
        warpgroups.arrive = arrived_of_group  # type: ignore[method-assign]

    def events(self, op: Op, event: Event, row: int) -> list[Event]:
        """Return the events of the lanes that ran an instruction on matrices together.

        Parameters
        ----------
        op : Op
        event : Event
            The event of the lanes that came to it last.
        row : int
            The row of their block.
        """
        if self.met is None:  # they wait for others of their warp
            return [replace(event, kind="other", space="", address=None)]
        if op.index not in self._held and op.held is not None:
            self._held[op.index] = op.held()
        lanes, before = self.met
        numbers = lanes.numbers - row * self.machine.geometry.threads
        event = replace(event, threads=numbers, held=self._held[op.index])
        if op.pieces is not None:
            return [replace(event, pieces=before)]
        if self._accesses:
            return list(self._each_access(op, event, row))
        if op.instruction.opcode not in ROWS:
            return [event]
        values = None
        if event.kind == "store":
            first = row * self.machine.shared.pitch
            outside = (before < 0) | (before + _ROW > self.machine.shared.size)
            at = np.where(outside, 0, before)[:, None] + np.arange(_ROW) + first
            values = self.machine.shared.data[at].view(np.uint16)
        return [replace(event, address=before, width=_ROW, values=values, is_by_rows=True)]

    def _each_access(self, op: Op, event: Event, row: int) -> Iterator[Event]:
        """Yield the accesses that lanes made by one instruction."""
        whole = event.requests, event.sectors, event.conflicts
        last = op.requests - whole[0], op.sectors - whole[1], op.conflicts - whole[2]
        is_shared = bool({"shared", "shared::cta"} & set(op.instruction.modifiers))
        for lanes, address, width, values, counts in self._accesses:
            place, space = (address, "shared") if is_shared else generic(address)
            if space == "shared":
                place = lanes.in_own_block(place)
            made = [now - then for now, then in zip(counts, last, strict=True)]
            last = counts
            yield replace(
                event, threads=lanes.numbers - row * self.machine.geometry.threads, space=space,
                address=place, width=width, values=values, requests=made[0], sectors=made[1],
                conflicts=made[2], is_by_rows=op.space == "ldmatrix",
            )  # fmt: skip
