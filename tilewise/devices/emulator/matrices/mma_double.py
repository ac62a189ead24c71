"""Products of small matrices of double by a warp (PTX ISA 9.7.14.5, ``mma`` of ``.f64``).

An element is a chain of fused multiply-adds, in the order of k, as IEEE 754 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.double import fma_f64
from tilewise.devices.emulator.matrices.warps import of_warps, read_all, readers_of, writers_of
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.threads.lanes import WARP, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Values = npt.NDArray[Any]
SHAPES = ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
FMA = fma_f64("rn")


def _left(registers: Values, rows: int) -> Values:
    """A of each warp, from its registers: rows / 8 of them for each four of k.

    Register i of lane l is row 8 (i % (rows / 8)) + l / 4 and column 4 (i / (rows / 8)) + l % 4.
    """
    halves = rows // 8
    parts = registers.reshape(-1, halves, registers.shape[-1] // WARP, 8, 4)
    return parts.transpose(2, 1, 3, 0, 4).reshape(parts.shape[2], rows, -1)


def _right(registers: Values) -> Values:
    """B: register i of lane l is row 4 i + l % 4 and column l / 4."""
    parts = registers.reshape(len(registers), -1, 8, 4)
    return parts.transpose(1, 0, 3, 2).reshape(parts.shape[1], -1, 8)


def _sum(registers: Values, rows: int) -> Values:
    """C: register i of lane l is row 8 (i / 2) + l / 4 and column 2 (l % 4) + i % 2."""
    parts = registers.reshape(rows // 8, 2, -1, 8, 4)
    return parts.transpose(2, 0, 3, 4, 1).reshape(-1, rows, 8)


def _sum_registers(values: Values) -> Values:
    """The inverse of :func:`_sum`."""
    warps, rows, _ = values.shape
    parts = values.reshape(warps, rows // 8, 8, 4, 2).transpose(1, 4, 0, 2, 3)
    return np.ascontiguousarray(parts).reshape(rows // 4, -1)


def multiply(machine: Machine, op: Op) -> None:
    """``mma`` of ``.f64``."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned")
    shape = words.one_of(SHAPES)
    is_laid_out = words.flag("row") and words.flag("col")
    words.flag("rn")
    types = [words.type("f64") for _ in range(4)]
    words.done(is_whole and bool(shape) and is_laid_out and all(types))
    rows, depth = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    d, a, b, c = op.instruction.operands
    op.flops_a_lane = 2 * rows * 8 * depth // WARP
    write = writers_of(machine, op, d, "f64")
    read_a, read_b, read_c = (readers_of(machine, op, x, "f64") for x in (a, b, c))

    def run(lanes: Lanes) -> None:
        left, right = _left(read_all(read_a, lanes), rows), _right(read_all(read_b, lanes))
        found = _sum(read_all(read_c, lanes), rows)
        shape = found.shape
        for k in range(depth):
            factors = left[:, :, k, None], right[:, None, k, :]
            x, y = (np.broadcast_to(each, shape).ravel() for each in factors)
            found = FMA(x, y, found.ravel()).reshape(shape)
        for each, value in zip(write, _sum_registers(found), strict=True):
            each(lanes, value)

    of_warps(machine, op, run)
