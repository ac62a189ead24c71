"""Tensor maps that a kernel makes itself: ``tensormap.replace`` and what makes it known to bulk
copies (PTX ISA 9.7.9.28 and 9.7.13.16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Global, Shared
from tilewise.devices.emulator.copies.tensor_maps import BYTES, FIELDS, field
from tilewise.devices.emulator.instructions import data
from tilewise.devices.emulator.matrices.warps import of_warps
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Immediate
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_WORD = np.dtype("u4")


def _replace(machine: Machine, op: Op) -> None:
    """Build ``tensormap.replace`` of one field of a map, which is a store into it."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("replace") and words.flag("tile") and words.flag("b1024")
    name = words.one_of(tuple(FIELDS))
    space = words.one_of(("shared::cta", "global"))
    words.type("b32", "b64")
    words.done(is_whole and bool(name))
    address, *rest = op.instruction.operands
    first, step, kind = FIELDS[name]
    dimension = rest.pop(0) if step else Immediate(0)
    if not isinstance(address, Address) or not isinstance(dimension, Immediate) or len(rest) != 1:
        raise op.unsupported("operands")
    (value,) = rest
    if isinstance(value, Immediate):
        known = field(name, int(value.value))
        if known is None:
            raise op.unsupported(f"{name} {value.value}")
        value = Immediate(known)
    elif (kind == "b8" and not step) or name == "rank":
        raise op.unsupported("operands")
    at = address.offset + first + step * int(dimension.value)
    modifiers = tuple(filter(None, (space, kind)))
    op.instruction = replace(
        op.instruction, opcode="st", modifiers=modifiers,
        operands=(replace(address, offset=at), value),
    )  # fmt: skip
    data.BUILDERS["st"](machine, op)


def _publish(machine: Machine, op: Op) -> None:
    """Build ``tensormap.cp_fenceproxy``: a warp copies a map from shared to global memory."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"):
        words.check(words.flag(word))
    words.flag("cp_fenceproxy")
    words.one_of(("cta", "cluster", "gpu", "sys"))
    words.done()
    target, source, size = op.instruction.operands
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise op.unsupported("operands")
    if not isinstance(size, Immediate) or size.value != BYTES:
        raise op.unsupported("operands")
    op.width = op.element = _WORD.itemsize
    op.space = "global_store"
    to = Global(machine, op, Where(machine, op, target), _WORD, 1, counts=False)
    of = Shared(machine, op, Where(machine, op, source), _WORD, 1, None)

    def run(lanes: Lanes) -> None:
        word = lanes.pick(lanes.geometry.lane_id).astype(np.int64) * _WORD.itemsize
        values = of.load_at(np.asarray(of.where(lanes), np.int64) + word, lanes)
        to.store_at(np.asarray(to.where(lanes), np.uint64) + word.astype(np.uint64), lanes, values)

    of_warps(machine, op, run)


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "tensormap.replace": _replace,
    "tensormap.cp_fenceproxy": _publish,
}
