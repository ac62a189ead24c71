"""Move data with ``ld``, ``st``, ``mov`` and ``cvta``, and order memory (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Data, Generic, Global, Rows, Shared, Space
from tilewise.devices.emulator.checks.flags import is_fence
from tilewise.devices.emulator.memory.storage import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Operand, Symbol, Vector
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Value

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_SPACES = ("global", "shared", "local", "const", "param", "shared::cta", "shared::cluster",
           "param::entry", "param::func")  # fmt: skip
_ORDERS = ("weak", "volatile", "relaxed", "acquire", "release", "mmio")
_SCOPES = ("cta", "cluster", "gpu", "sys")
_CACHING = (
    ("ca", "cg", "cs", "lu", "cv", "wb", "wt"),
    ("nc",),
    tuple(f"L1::{p}" for p in ("evict_normal", "evict_unchanged", "evict_first", "evict_last",
                               "no_allocate")),
    tuple(f"L2::{p}" for p in ("evict_normal", "evict_first", "evict_last")),
    ("L2::cache_hint",),
    ("L2::64B", "L2::128B", "L2::256B"),
)  # fmt: skip
_TYPES = tuple(t for t in DTYPES if t not in ("pred", "f16x2", "bf16x2", "bf16"))


@cache
def _said(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, str, int]:
    """Return the space that modifiers of a load or store name, the element type and the count."""
    words = Words(opcode, modifiers)
    named = words.one_of(_SPACES, "generic")
    words.one_of(_ORDERS)
    words.one_of(_SCOPES)
    for group in _CACHING:
        words.one_of(group)
    count = int(words.one_of(("v2", "v4", "v8"), "v1")[1:])
    type_ = words.type(*_TYPES)
    words.done(DTYPES[type_].itemsize * count <= 16 and count <= 4)
    return named, type_, count


def space_of(machine: Machine, op: Op, address: Address, is_store: bool) -> tuple[Space, str, int]:
    """Return the space, the element type and the count of a load or store."""
    named, type_, count = _said(op.instruction.opcode, op.instruction.modifiers)
    space, is_cluster = named.partition("::")[0], named == "shared::cluster"
    dtype = DTYPES[type_]
    op.width, op.element = dtype.itemsize * count, dtype.itemsize
    kind = "store" if is_store else "load"
    op.space = f"{space if space != 'generic' else 'global'}_{kind}"
    function = machine.program.function_of(op.index)
    if space == "param" and isinstance(address.base, Symbol):
        is_formal = any(address.base.name == p.name for p in machine.program.kernel.parameters)
        if not (is_formal and function == machine.program.kernel.name):
            name = address.base.name
            op.space = "param"
            return (
                Rows(machine, op, lambda lanes: address.offset,
                     lambda: machine.parameter_storage(function, name), dtype, count),
                type_, count,
            )  # fmt: skip
    where = Where(machine, op, address)
    if space in ("global", "const", "param"):
        if space != "global":
            op.space = space
        return Global(machine, op, where, dtype, count, space == "global"), type_, count
    if is_cluster:
        # It may be another block's, on another multiprocessor: no access of its own that counts.
        op.space = f"cluster_{kind}"
        return Shared(machine, op, where, dtype, count, None, is_cluster), type_, count
    if space == "shared":
        counted = machine.counted_as(op, op.width)
        return Shared(machine, op, where, dtype, count, counted), type_, count
    if space == "local":
        return Rows(machine, op, where, lambda: machine.local, dtype, count), type_, count
    return Generic(machine, op, where, dtype, count), type_, count


def _load(machine: Machine, op: Op) -> None:
    target, address = op.instruction.operands[:2]
    if not isinstance(address, Address):
        raise op.unsupported("operands")
    space, type_, count = space_of(machine, op, address, False)
    if count == 1:
        write = machine.registers.writer(op, target, type_)
        constant = _constant_parameter(machine, op, address, type_)
        if op.instruction.is_strong:
            where = Where(machine, op, address)
            op.run = lambda lanes: write(lanes, _poll(machine, op, where, space, lanes))
        elif constant is not None:
            op.run = lambda lanes: write(lanes, constant)
        else:
            op.run = lambda lanes: write(lanes, space.load(lanes))
        return
    if not isinstance(target, Vector) or len(target.elements) != count:
        raise op.unsupported("operands")
    writers = [machine.registers.writer(op, element, type_) for element in target.elements]

    def run(lanes: Lanes) -> None:
        values = space.load(lanes)
        for i, write in enumerate(writers):
            column = values[..., i]
            write(lanes, column.copy() if column.ndim else column[()])

    op.run = run


def _poll(machine: Machine, op: Op, where: Where, space: Space, lanes: Lanes) -> Data:
    """A load that a loop may wait by."""
    machine.spinning.polled(op, lanes, where)
    return space.load(lanes)


def _constant_parameter(machine: Machine, op: Op, address: Address, type_: str) -> Value | None:
    """Return a kernel parameter that is read at a fixed place: known before the launch."""
    if op.space != "param" or not isinstance(address.base, Symbol):
        return None
    offset = machine.program.parameter_offsets.get(address.base.name)
    if offset is None or machine.program.function_of(op.index) != machine.program.kernel.name:
        return None
    dtype = DTYPES[type_]
    return np.frombuffer(machine.setup.parameters, dtype, 1, offset + address.offset)[0]


def _store(machine: Machine, op: Op) -> None:
    address, source = op.instruction.operands[:2]
    if not isinstance(address, Address):
        raise op.unsupported("operands")
    space, type_, count = space_of(machine, op, address, True)
    op.access = space
    if count == 1:
        read = machine.registers.reader(op, source, type_, picked=True)
        op.run = lambda lanes: space.store(lanes, read(lanes))
        return
    if not isinstance(source, Vector) or len(source.elements) != count:
        raise op.unsupported("operands")
    readers = [
        machine.registers.reader(op, element, type_, picked=True) for element in source.elements
    ]
    dtype = DTYPES[type_]

    def run(lanes: Lanes) -> None:
        values = np.empty((lanes.count, count), dtype)
        for i, read in enumerate(readers):
            values[:, i] = read(lanes)
        space.store(lanes, values)

    op.run = run


def _move(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    type_ = words.type(*_TYPES, "pred")
    words.done()
    target, source = op.instruction.operands
    if isinstance(source, Vector):
        _pack(machine, op, type_, target, source)
    elif isinstance(target, Vector):
        _unpack(machine, op, type_, target, source)
    else:
        read, write = (
            machine.registers.reader(op, source, type_),
            machine.registers.writer(op, target, type_),
        )
        op.run = lambda lanes: write(lanes, read(lanes))


def _piece(type_: str, count: int) -> str:
    return f"b{8 * DTYPES[type_].itemsize // count}"


def _pack(machine: Machine, op: Op, type_: str, target: Operand, source: Vector) -> None:
    piece = _piece(type_, len(source.elements))
    readers = [machine.registers.reader(op, element, piece) for element in source.elements]
    write, whole = machine.registers.writer(op, target, type_), DTYPES[type_]
    narrow = DTYPES[piece]

    def run(lanes: Lanes) -> None:
        parts = [read(lanes) for read in readers]
        shape = np.broadcast_shapes(*(part.shape for part in parts))
        packed = np.empty((*shape, len(parts)), narrow)
        for i, part in enumerate(parts):
            packed[..., i] = part
        write(lanes, packed.view(whole)[..., 0][()])

    op.run = run


def _unpack(machine: Machine, op: Op, type_: str, target: Vector, source: Operand) -> None:
    piece = _piece(type_, len(target.elements))
    writers = [machine.registers.writer(op, element, piece) for element in target.elements]
    read, narrow, count = machine.registers.reader(op, source, type_), DTYPES[piece], len(writers)

    def run(lanes: Lanes) -> None:
        value = np.ascontiguousarray(read(lanes))
        parts = value.reshape(-1).view(narrow).reshape(-1, count)
        for i, write in enumerate(writers):
            write(lanes, parts[:, i].copy() if read(lanes).ndim else parts[0, i])

    op.run = run


_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}


def _convert_address(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_to = words.flag("to")
    space = words.one_of(_SPACES).partition("::")[0]
    type_ = words.type("u32", "u64")
    words.done(space in _WINDOWS)
    target, source = op.instruction.operands
    window = _WINDOWS[space]
    read, write = (
        machine.registers.reader(op, source, type_),
        machine.registers.writer(op, target, type_),
    )
    if not window:
        op.run = lambda lanes: write(lanes, read(lanes))
        return
    shift = DTYPES[type_].type((-window if is_to else window) & (1 << 64) - 1)
    op.run = lambda lanes: write(lanes, read(lanes) + shift)


def _is_in_space(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    space = words.one_of(_SPACES).partition("::")[0]
    words.done(space in _WINDOWS)
    target, source = op.instruction.operands
    write = machine.registers.writer(op, target, "pred")
    read = machine.registers.reader(op, source, "u64")

    def inside(value: Value) -> Any:
        page = value // np.uint64(WINDOW_BYTES)
        windows = [np.uint64(w // WINDOW_BYTES) for w in (SHARED_WINDOW, LOCAL_WINDOW)]
        if space == "shared":
            return page == windows[0]
        if space == "local":
            return page == windows[1]
        if space == "global":
            return (page != windows[0]) & (page != windows[1])
        return page != page

    op.run = lambda lanes: write(lanes, inside(read(lanes)))


def _ordering(machine: Machine, op: Op) -> None:
    """Build fences, prefetches and sleeps, which change no value: lanes run in program order."""
    checks = machine.race_checks if is_fence(op.instruction) else ()

    def run(lanes: Lanes) -> None:
        for check in checks:
            check.memory_fence(lanes)

    op.run = run


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "mov": _move,
    "cvta": _convert_address,
    "isspacep": _is_in_space,
    **dict.fromkeys(
        ("membar", "fence", "prefetch", "prefetchu", "applypriority", "discard", "nanosleep",
         "createpolicy", "pmevent"),
        _ordering,
    ),
}  # fmt: skip
