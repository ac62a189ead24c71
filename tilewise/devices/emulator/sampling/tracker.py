"""Follow how each register depends on ``blockIdx``, while one block runs.

Before an instruction runs, a rule (:mod:`~tilewise.devices.emulator.sampling.follow`) gives the
affine dependence of its result from those of its operands
(:mod:`~tilewise.devices.emulator.sampling.affine`). Comparisons and addresses put conditions on the
blocks that do the same (:class:`~tilewise.devices.emulator.sampling.regions.Region`). Where a
loaded value decides a branch or an address, no other block is known to do the same, and ``varies``
says where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewise.devices.emulator.ptx.syntax import (
    Negated,
    Operand,
    Register,
    Special,
    Vector,
)
from tilewise.devices.emulator.sampling.affine import (
    LOADED,
    RANGES,
    UNKNOWN,
    ZERO,
    Affine,
    Dependence,
    combined,
    extremes,
)
from tilewise.devices.emulator.sampling.held import Held
from tilewise.devices.emulator.sampling.regions import Region
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Value
from tilewise.places import Dim3

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_AXES = ("ctaid.x", "ctaid.y", "ctaid.z")
_CLUSTERS = ("clusterid.x", "clusterid.y", "clusterid.z")
_ALIKE = (
    "tid.", "ntid.", "nctaid.", "laneid", "warpid", "nwarpid", "gridid", "lanemask_", "WARP_SZ",
    "cluster_", "nclusterid", "is_explicit_cluster", "dynamic_smem_size", "total_smem_size",
    "aggr_smem_size", "nsmid",
)  # fmt: skip
_TIMERS = ("clock", "globaltimer", "smid")


class Tracker:
    """The dependences of all registers of a machine, and the region that follows from them.

    Parameters
    ----------
    machine : Machine
    grid : (int, int, int)
        The grid of clusters: the blocks of one run together, and an index is a cluster's here.
        Without clusters every block is one.
    cluster : (int, int, int)
        The blocks of a cluster along each axis.

    Attributes
    ----------
    region : Region
        The clusters that do the same as the one that runs.
    varies : str
        Why no block is known to do the same as another; empty where they are known.
    affine : Affine
        The dependence of the last access's address.
    carry : Dependence
        The dependence of the carry flag, combined of all carries so far.
    settles : bool
        Set by a rule: the result's value in other blocks is not known, but in each lane it is
        negative, zero or positive there as it is here.
    """

    def __init__(self, machine: Machine, grid: Dim3, cluster: Dim3) -> None:
        self.machine, self.grid, self.cluster = machine, grid, cluster
        self.dependences = Held(machine)
        self.region = Region((0, 0, 0), grid)
        self.varies = ""
        self.affine: Affine = ZERO
        self.carry: Dependence = ZERO
        self.settles = False
        self._settled: set[int] = set()

    def start(self, region: Region) -> None:
        """Start a block."""
        self.region, self.carry = region, ZERO
        self.dependences.clear()
        self._settled.clear()

    def put(self, slot: int, dependence: Dependence, lanes: Lanes, is_partial: bool) -> None:
        settles = self.settles
        if not lanes.whole or is_partial:
            settles &= slot not in self.dependences or slot in self._settled
        self.dependences.put(slot, dependence, lanes, is_partial)
        if settles:
            self._settled.add(slot)
        else:
            self._settled.discard(slot)

    def decide(self, op: Op, dependence: Dependence) -> None:
        """Require that a value does not move, because the threads' path depends on it."""
        if isinstance(dependence, str):
            self.lose(op, "what was loaded decides it")
        else:
            self.region.limit(dependence, 0, 0)

    def lose(self, op: Op, why: str) -> None:
        """Note that from here on, no other block is known to do the same."""
        if not self.varies:
            self.varies = f"{op.file}:{op.line}: {why}"

    # Operands

    def slot(self, op: Op, register: Register) -> int:
        return self.machine.registers.slot(self.machine.program.function_of(op.index), register)

    def dependence_of(self, op: Op, operand: Operand | None) -> Callable[[], Dependence]:
        """Return the function that looks up an operand's dependence."""
        if isinstance(operand, Negated):
            operand = operand.register
        if isinstance(operand, Register):
            slot, dependences = self.slot(op, operand), self.dependences
            return lambda: dependences.get(slot)
        if isinstance(operand, Special):
            dependence = self._special(operand.name)
            return lambda: dependence
        if isinstance(operand, Vector):
            parts = [self.dependence_of(op, element) for element in operand.elements]
            return lambda: combined([part() for part in parts])
        return lambda: ZERO

    def _special(self, name: str) -> Dependence:
        for axes, steps in ((_AXES, self.cluster), (_CLUSTERS, (1, 1, 1))):
            if name in axes:
                axis = axes.index(name)
                x, y, z = (steps[a] * (a == axis and self.grid[a] > 1) for a in range(3))
                return x, y, z
        if name.startswith(_TIMERS):
            return LOADED
        return ZERO if name.startswith(_ALIKE) else UNKNOWN

    def is_settled(self, op: Op, operand: Operand) -> Callable[[], bool]:
        """Return whether a register was written so that it ``settles``."""
        slot = self.slot(op, operand) if isinstance(operand, Register) else -1
        return lambda: slot in self._settled

    def reach(self, op: Op, dependence: Dependence, modulus: int) -> None:
        """Require that an access at an address with this dependence moves by a multiple."""
        if isinstance(dependence, str):
            self.lose(op, "what was loaded is in an address")
            dependence = UNKNOWN
        self.affine = self.region.pin(dependence)
        self.region.divide(self.affine, modulus)

    def keep_inside(
        self, dependence: Dependence, low: int, high: int, least: int, most: int
    ) -> None:
        """Require that ``low`` to ``high`` stay in ``least`` to ``most`` in all blocks."""
        if isinstance(dependence, str) or dependence == ZERO:
            return
        if low < least or high > most:
            dependence = UNKNOWN
        self.region.limit(dependence, least - low, most - high)

    def stay_in_range(self, dependence: Dependence, values: Value, type_: str) -> None:
        """Require that the values, as integers of a type, don't wrap around in any block."""
        self.keep_inside(dependence, *extremes(values), *RANGES[type_])
