"""Read special registers (PTX ISA 10)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.threads.lanes import WARP, Geometry, Lanes
from tilewise.devices.emulator.threads.op import Op, Reader, Value
from tilewise.places import Dim3

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_AXES = {"x": 0, "y": 1, "z": 2}


def _tid(axis: int) -> Callable[[Geometry], Value]:
    def values(geometry: Geometry) -> Value:
        bx, by, _ = geometry.block
        thread = geometry.thread_of
        if geometry.block[axis] == 1:
            return np.uint32(0)
        return ((thread % bx, thread // bx % by, thread // (bx * by))[axis]).astype(np.uint32)

    return values


def _ctaid(axis: int) -> Callable[[Geometry], Value]:
    def values(geometry: Geometry) -> Value:
        gx, gy, _ = geometry.grid
        if geometry.grid[axis] == 1:
            return np.uint32(0)
        block = geometry.blocks
        number = (block % gx, block // gx % gy, block // (gx * gy))[axis].astype(np.uint32)
        return number[0] if geometry.block_count == 1 else number[geometry.block_of]

    return values


def _clusterid(axis: int) -> Callable[[Geometry], Value]:
    block_number = _ctaid(axis)
    return lambda g: (block_number(g) // np.uint32(g.cluster[axis])).astype(np.uint32)


def _cluster_ctaid(axis: int) -> Callable[[Geometry], Value]:
    block_number = _ctaid(axis)
    return lambda g: (block_number(g) % np.uint32(g.cluster[axis])).astype(np.uint32)


def _mask(compare: Callable[[Any], Any]) -> Callable[[Geometry], Value]:
    def values(geometry: Geometry) -> Value:
        return compare(geometry.lane_id.astype(np.uint64)).astype(np.uint32)

    return values


_EXTENTS: dict[str, Callable[[Geometry], Dim3]] = {
    "ntid": lambda g: g.block,
    "nctaid": lambda g: g.grid,
    "cluster_nctaid": lambda g: g.cluster,
    "nclusterid": lambda g: g.clusters,
}
_WORKSPACE = {"envreg1": 32, "envreg2": 0}
"""The registers with the address of a cooperative launch's workspace, and how far it is shifted."""
_ONE = np.uint64(1)
_FULL = np.uint64(0xFFFFFFFF)
_TABLE: dict[str, Callable[[Geometry], Value]] = {
    **{f"tid.{axis}": _tid(i) for axis, i in _AXES.items()},
    **{f"ctaid.{axis}": _ctaid(i) for axis, i in _AXES.items()},
    "laneid": lambda g: g.lane_id,
    "warpid": lambda g: (g.thread_of // WARP).astype(np.uint32),
    "nwarpid": lambda g: np.uint32(g.warps_per_block),
    # A block a multiprocessor, the first four, in turn: as arbitrary as on a GPU.
    "smid": lambda g: (g.blocks[g.block_of] % 4).astype(np.uint32),
    "nsmid": lambda g: np.uint32(4),
    "gridid": lambda g: np.uint64(1),
    "lanemask_eq": _mask(lambda n: _ONE << n),
    "lanemask_lt": _mask(lambda n: (_ONE << n) - _ONE),
    "lanemask_le": _mask(lambda n: (_ONE << n) * np.uint64(2) - _ONE),
    "lanemask_ge": _mask(lambda n: _FULL & ~((_ONE << n) - _ONE)),
    "lanemask_gt": _mask(lambda n: _FULL & ~((_ONE << n) * np.uint64(2) - _ONE)),
    "WARP_SZ": lambda g: np.uint32(WARP),
    # Without clusters every block is a cluster of its own.
    **{f"clusterid.{a}": _clusterid(i) for a, i in _AXES.items()},
    **{f"cluster_ctaid.{a}": _cluster_ctaid(i) for a, i in _AXES.items()},
    "cluster_ctarank": lambda g: g.rank_of.astype(np.uint32),
    "cluster_nctarank": lambda g: np.uint32(g.cluster_size),
    # The driver sets them; they are 0 in a launch that is not part of a graph.
    **{f"envreg{number}": lambda g: np.uint32(0) for number in range(32)},
    "current_graph_exec": lambda g: np.uint64(0),
}


def special_reader(
    machine: Machine, op: Op, name: str, dtype: np.dtype[Any], picked: bool
) -> Reader:
    """Return the function that reads a special register as ``dtype``."""
    if name.startswith(("clock", "globaltimer")):
        return _timer(machine, name, dtype)
    if name in ("dynamic_smem_size", "total_smem_size", "aggr_smem_size"):
        size = machine.shared_bytes if name != "dynamic_smem_size" else machine.setup.dynamic_shared
        return lambda lanes: np.uint32(size).astype(dtype)
    if name.startswith("reserved_smem_offset_"):
        place = machine.program.reserved_shared[name.rpartition("_")[2]]
        return lambda lanes: np.uint32(place).astype(dtype)
    if name in _WORKSPACE:
        half = machine.setup.workspace >> _WORKSPACE[name] & 0xFFFFFFFF
        return lambda lanes: np.uint32(half).astype(dtype)
    if name == "is_explicit_cluster":
        is_explicit = dtype.type(machine.program.kernel.cluster is not None)
        return lambda lanes: is_explicit
    prefix, _, letter = name.partition(".")
    if prefix in _EXTENTS:
        extent, axis = _EXTENTS[prefix], _AXES[letter]
        return lambda lanes: dtype.type(extent(machine.geometry)[axis])
    if name not in _TABLE:
        raise op.unsupported(f"special register %{name}")
    compute = _TABLE[name]

    def read(lanes: Lanes) -> Value:
        value = compute(machine.geometry)
        if value.dtype != dtype:
            value = value.astype(dtype)
        if lanes.index is not None and (picked or not lanes.whole) and value.ndim:
            value = value[lanes.index]
        return value

    return read


def _timer(machine: Machine, name: str, dtype: np.dtype[Any]) -> Reader:
    """Return the reader of a clock (the batch's instructions) or of the host's timer."""

    def read(lanes: Lanes) -> Value:
        if name.startswith("globaltimer"):
            now = time.time_ns()
        else:
            now = sum(op.warps_run for op in machine.ops)
        if name.endswith("_hi"):
            now >>= 32
        return dtype.type(now & (1 << 8 * dtype.itemsize) - 1)

    return read
