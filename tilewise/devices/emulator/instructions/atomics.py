"""Run ``atom`` and ``red``: lanes change one place in turn (PTX ISA 9.7.13.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Generic, Global, Shared
from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.checks import log
from tilewise.devices.emulator.memory.storage import elements
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Operand, Register, Vector, registers_of
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Data = npt.NDArray[Any]
Update = Callable[..., Data]
"""A function that takes the old value and the operands, and returns the new value."""


def _increment(old: Data, limit: Data) -> Data:
    return np.where(old >= limit, 0, old + old.dtype.type(1)).astype(old.dtype)


def _decrement(old: Data, limit: Data) -> Data:
    return np.asarray(np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)))


_UPDATES: dict[str, Update] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "cas": lambda old, compare, new: np.asarray(np.where(old == compare, new, old)),
    "inc": _increment,
    "dec": _decrement,
}
_FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")


def _update(name: str, type_: str, is_global: bool) -> Update:
    """Return the function that an operation applies to a place in global or in shared memory.

    Sums of float32 in global memory flush subnormal operands and results to zero; sums in shared
    memory do not (CUDA C++ Programming Guide, "Floating-Point Standard"; PTX ISA, atom).
    """
    if name in _UPDATES:
        return _UPDATES[name]
    if name == "add" and type_ == "f32" and is_global:
        return resolve("add", ("rn", "ftz", "f32")).function
    if type_ in _FLOATS:
        return resolve(name, ("rn", type_) if name == "add" else (type_,)).function
    return {"add": np.add, "min": np.minimum, "max": np.maximum}[name]


def _atomic(machine: Machine, op: Op) -> None:
    is_reduction = op.instruction.opcode == "red"
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.flag("async")
    words.one_of(("relaxed", "acquire", "release", "acq_rel"))
    words.one_of(("cta", "cluster", "gpu", "sys"))
    named = words.one_of(("global", "shared", "shared::cta", "shared::cluster"), "generic")
    space = named.partition("::")[0]
    name = words.one_of((*_UPDATES, "add", "min", "max"))
    words.flag("noftz")
    words.one_of(("L2::cache_hint",))
    count = int(words.one_of(("v2", "v4", "v8"))[1:] or 1)
    type_ = words.type(
        "b16", "u32", "s32", "b32", "u64", "s64", "b64", *_FLOATS,
    )  # fmt: skip
    words.done(bool(name) and "async" not in op.instruction.modifiers)
    operands = list(op.instruction.operands)
    if count > 1:
        words.done(space == "global" and name in ("add", "min", "max") and type_ in _FLOATS)
        op.run = _vectors(
            machine, op, operands, type_, _update(name, type_, True), count, is_reduction
        )
        return
    target = None if is_reduction else operands.pop(0)
    write = None if target is None else machine.registers.writer(op, target, type_)
    address = operands.pop(0)
    if not isinstance(address, Address):
        raise op.unsupported("operands")
    readers = [machine.registers.reader(op, operand, type_, picked=True) for operand in operands]
    dtype = DTYPES[type_]
    op.width = op.element = dtype.itemsize
    op.space = f"{space if space != 'generic' else 'global'}_atomic"
    if type_ in _FLOATS and name == "add":
        op.flops_a_lane = 2 if type_.endswith("x2") else 1
    where = Where(machine, op, address)
    if named == "shared::cluster":
        op.space = "cluster_atomic"
    change = _changer(
        machine, op, named, where, dtype, _update(name, type_, True), _update(name, type_, False),
        is_store=name == "exch", wants_old=name != "exch" or not _is_unread(machine, op, target),
    )  # fmt: skip

    def run(lanes: Lanes) -> None:
        machine.spinning.polled(op, lanes, where)
        values = [np.broadcast_to(read(lanes), lanes.count) for read in readers]
        old = change(lanes, values)
        if write is not None:
            write(lanes, old)

    op.run = run


def _is_unread(machine: Machine, op: Op, target: Operand | None) -> bool:
    """Return whether no other instruction of the function uses a destination's register."""
    program = machine.program
    if not isinstance(target, Register):
        return True
    function = program.function_of(op.index)
    return not any(
        target in [r for operand in other.operands for r in registers_of(operand)]
        or (other.predicate is not None and other.predicate[0] == target)
        for at, other in enumerate(program.instructions)
        if at != op.index and program.function_of(at) == function
    )


def _vectors(
    machine: Machine,
    op: Op,
    operands: list[Any],
    type_: str,
    update: Update,
    count: int,
    is_reduction: bool,
) -> Callable[[Lanes], None]:
    """Return a function that updates vectors in global memory, each element atomically."""
    target = None if is_reduction else operands.pop(0)
    address, source = operands
    if not isinstance(address, Address) or not isinstance(source, Vector):
        raise op.unsupported("operands")
    writers = []
    if isinstance(target, Vector):
        writers = [machine.registers.writer(op, element, type_) for element in target.elements]
    readers = [
        machine.registers.reader(op, element, type_, picked=True) for element in source.elements
    ]
    dtype = DTYPES[type_]
    op.element, op.width, op.space = dtype.itemsize, dtype.itemsize * count, "global_atomic"
    if op.instruction.modifiers.count("add"):
        op.flops_a_lane = count * (2 if type_.endswith("x2") else 1)
    where = Where(machine, op, address)
    access = Global(machine, op, where, dtype, count).access

    def run(lanes: Lanes) -> None:
        values = [np.broadcast_to(read(lanes), lanes.count) for read in readers]
        old = np.zeros((count, lanes.count), dtype)
        place = where(lanes)
        if machine.global_races is not None:
            machine.global_races.changed(op, place, lanes, access.width)
        access.reach(place, lanes, False)
        for part in access.reach(place, lanes, True, counts=False):
            part.allocation.is_written = True
            chosen = np.arange(lanes.count) if part.chosen is None else part.chosen
            gather = np.broadcast_to(part.gather, len(chosen)) * count
            view = part.view(part.allocation.data, dtype, 1)
            for i, value in enumerate(values):
                old[i, chosen] = _in_turn(view, gather + i, update, [value[chosen]])
        for write, found in zip(writers, old, strict=False):
            write(lanes, found)

    return run


def _changer(
    machine: Machine,
    op: Op,
    space: str,
    where: Where,
    dtype: np.dtype[Any],
    update_global: Update,
    update_shared: Update,
    is_store: bool,
    wants_old: bool,
) -> Callable[[Lanes, list[Data]], Data]:
    def in_global(place: Global, address: Any, lanes: Lanes, values: list[Data]) -> Data:
        old = np.zeros(lanes.count, dtype)
        if machine.global_races is not None:
            machine.global_races.changed(op, address, lanes, dtype.itemsize)
        place.access.reach(address, lanes, False)
        for part in place.access.reach(address, lanes, True, counts=False):
            part.allocation.is_written = True
            chosen = np.arange(lanes.count) if part.chosen is None else part.chosen
            gather = np.broadcast_to(part.gather, len(chosen))
            view = part.view(part.allocation.data, dtype, 1)
            mine = [value[chosen] for value in values]
            old[chosen] = _in_turn(view, gather, update_global, mine)
        return old

    def in_shared(place: Shared, address: Any, lanes: Lanes, values: list[Data]) -> Data:
        pattern = (
            place.reach(lanes)
            if address is None
            else place.access.reach(address, lambda: address, lanes)
        )
        if machine.is_checking:
            if wants_old or not is_store:
                place.access.check_written(pattern)
            if is_store:
                place.access.mark_written(pattern)
            machine.races.note(pattern, log.ATOMIC, op)
        view = elements(machine.shared.data, dtype, 1)
        if pattern.chosen is None:
            return _in_turn(view, pattern.gather, update_shared, values)
        old = np.zeros(lanes.count, dtype)
        mine = [value[pattern.chosen] for value in values]
        old[pattern.chosen] = _in_turn(view, pattern.gather, update_shared, mine)
        return old

    if space == "global":
        everywhere = Global(machine, op, where, dtype, 1)
        return lambda lanes, values: in_global(everywhere, where(lanes), lanes, values)
    if space != "generic":
        is_cluster = space == "shared::cluster"
        counted = None if is_cluster else (dtype.itemsize, 0)
        shared = Shared(machine, op, where, dtype, 1, counted, is_cluster)
        return lambda lanes, values: in_shared(shared, None, lanes, values)
    generic = Generic(machine, op, where, dtype, 1)

    def anywhere(lanes: Lanes, values: list[Data]) -> Data:
        old = np.zeros(lanes.count, dtype)
        for place, address, some, which in generic.split(where(lanes), lanes):
            mine = values if which is None else [value[which] for value in values]
            if isinstance(place, Shared):
                found = in_shared(place, address, some, mine)
            elif isinstance(place, Global):
                found = in_global(place, address, some, mine)
            else:
                raise op.unsupported("atomics on local memory")
            if which is None:
                return found
            old[which] = found
        return old

    return anywhere


def _in_turn(view: Data, gather: Index, update: Update, values: list[Data]) -> Data:
    """Apply the update lane by lane in ascending order; returns what each lane found.

    Lanes at different places don't see each other, so each round takes the first lane left
    at every place.
    """
    order = np.argsort(gather, kind="stable")
    places = gather[order]
    is_first = np.ones(len(places), np.bool_)
    np.not_equal(places[1:], places[:-1], out=is_first[1:])
    run_start = np.maximum.accumulate(np.where(is_first, np.arange(len(places)), 0))
    turn = np.arange(len(places)) - run_start
    old = np.empty(len(gather), view.dtype)
    by_turn = order[np.argsort(turn, kind="stable")]
    ends = np.cumsum(np.bincount(turn))
    start = 0
    for end in ends:
        lanes = by_turn[start:end]
        found = view[gather[lanes]]
        old[lanes] = found
        view[gather[lanes]] = update(found, *(value[lanes] for value in values))
        start = end
    return old


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {"atom": _atomic, "red": _atomic}
