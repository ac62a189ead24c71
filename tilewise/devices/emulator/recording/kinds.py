"""Classify an instruction for a viewer: what it does, where, and which threads it waits for."""

from __future__ import annotations

from tilewise.devices.emulator.ptx.syntax import Immediate
from tilewise.devices.emulator.recording.events import Sync
from tilewise.devices.emulator.threads.op import Op

BARRIERS = ("bar", "barrier")
ROWS = ("ldmatrix", "stmatrix")
"""The instructions that move rows of matrices, whose addresses lanes give for one another."""
_FLOATS = ("f32", "f64")
_ARITHMETIC = ("add", "sub", "mul", "fma", "mad", "div", "max", "min")
_MBARRIER = {
    "init": "init", "inval": "inval", "expect_tx": "expect", "complete_tx": "complete",
    "arrive": "arrive", "arrive_drop": "arrive", "test_wait": "wait", "try_wait": "wait",
}  # fmt: skip


def kind_of(op: Op) -> tuple[str, str]:
    """Return an instruction's kind for a viewer, and the memory space that it accesses."""
    opcode, modifiers = op.instruction.opcode, op.instruction.modifiers
    memory, _, what = op.space.partition("_")
    if opcode in ROWS:
        return "load" if opcode == "ldmatrix" else "store", "shared"
    if opcode == "wmma" and {"load", "store"} & set(modifiers):
        return "store" if "store" in modifiers else "load", ""
    if what in ("load", "store", "atomic") and memory in ("global", "shared", "local"):
        return what, memory
    if opcode in ("mma", "wgmma", "wmma") and op.held is not None:
        return "matrix", ""
    if is_bulk(op):
        return "copy", ""
    if sync_of(op) is not None:
        return "sync", ""
    if opcode in BARRIERS:
        return "barrier", ""
    if opcode in ("bra", "brx"):
        return "branch", ""
    if opcode in ("ret", "exit"):
        return "end", ""
    if opcode in _ARITHMETIC and modifiers and modifiers[-1] in _FLOATS:
        return "compute", ""
    return "other", ""


def is_bulk(op: Op) -> bool:
    """Return whether an instruction begins a bulk copy, which may reach shared memory."""
    return op.space.startswith("bulk") or (
        op.instruction.opcode == "cp"
        and "bulk" in op.instruction.modifiers
        and any("mbarrier::complete_tx" in x for x in op.instruction.modifiers)
    )


def sync_of(op: Op) -> Sync | None:
    """Return what an instruction waits for or signals; None for others and for block barriers."""
    opcode, modifiers = op.instruction.opcode, op.instruction.modifiers
    if opcode == "mbarrier":
        action = _MBARRIER.get(modifiers[0])
        if action is None:
            return None
        return Sync("mbarrier", action, is_expecting="expect_tx" in modifiers[1:])
    if opcode in BARRIERS and "cluster" in modifiers:
        return Sync("cluster", "arrive" if "arrive" in modifiers else "wait")
    if opcode == "cp" and "mbarrier" in modifiers:
        return Sync("mbarrier", "arrive", is_of_copies=True)
    engine = {"cp": "bulk" if "bulk" in modifiers else "cp.async", "wgmma": "wgmma"}.get(opcode)
    if engine is None:
        return None
    if "commit_group" in modifiers:
        return Sync(engine, "commit")
    if "wait_all" in modifiers:
        return Sync(engine, "wait", allowed=0)
    if "wait_group" in modifiers:
        (number,) = op.instruction.operands
        allowed = int(number.value) if isinstance(number, Immediate) else 0
        return Sync(engine, "wait", allowed=allowed)
    return None


def scope_of(op: Op) -> tuple[str, int | None]:
    """Return the scope of a barrier, and the number of its threads if the barrier says it."""
    modifiers, operands = op.instruction.modifiers, op.instruction.operands
    if "warp" in modifiers:
        return "warp", None
    # A reduction has its result before the barrier's number, and what it reduces behind.
    rest = operands[2:-1] if "red" in modifiers else operands[1:]
    if not rest:
        return "block", None
    count = rest[0]
    waits = isinstance(count, Immediate) and "arrive" not in modifiers
    return "part", int(count.value) if waits and isinstance(count, Immediate) else None
