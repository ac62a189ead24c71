"""A channel with no GPU: streams do what they are given later, in any order that events allow."""

from __future__ import annotations

import ctypes
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tilewise.devices.prepared import Prepared
from tilewise.gemm.product import Operand, Product
from tilewise.host.channel import Buffer, Channel, Kind, Shape, Stream
from tilewise.host.copiers import Copiers
from tilewise.host.copying import Helpers
from tilewise.host.launcher import Operation, product_of
from tilewise.host.plan import Compute, HostPlan, HostProblem

REAL = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


class FakeEvent:
    def __init__(self) -> None:
        self.has_come = False


class FakeChannel:
    """The GPU's memory is an array of bytes, filled with NaN.

    Whenever somebody waits for an event, streams are chosen at random, and each does the next thing
    it was given if that waits for nothing, until the event has come. So a step that does not wait
    for what it needs is caught, sooner or later.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._streams: dict[Stream, deque[Callable[[], bool]]] = {}
        self._buffers: dict[tuple[Kind, int], Buffer] = {}
        self._lock = threading.RLock()
        self.memory = np.zeros(0, np.uint8)
        self.allocated = 0
        self.pinned: set[int] = set()

    def allocate(self, size: int) -> int:
        self.memory = np.full(size + 256, 0xFF, np.uint8)
        self.allocated = size
        return 256

    def release(self) -> None:
        self.drain()

    def drain(self) -> None:
        with self._lock:
            while any(self._streams.values()):
                self._do_one()

    def stream(self, kind: Kind, index: int) -> Stream:
        with self._lock:
            self._streams.setdefault((kind, index), deque())
        return kind, index

    def buffer(self, kind: Kind, index: int, size: int) -> Buffer:
        with self._lock:
            key = kind, index
            if key not in self._buffers:
                self._buffers[key] = Buffer(np.full(size, 0xFF, np.uint8))
            return self._buffers[key]

    def is_pinned(self, buffer: Buffer) -> bool:
        return buffer.memory.ctypes.data in self.pinned

    def pin(self, buffer: Buffer) -> None:
        self.pinned.add(buffer.memory.ctypes.data)

    def give(self, stream: Stream, work: Callable[[], bool]) -> None:
        with self._lock:
            self._streams[stream].append(work)

    def record(self, stream: Stream) -> FakeEvent:
        event = FakeEvent()

        def come() -> bool:
            event.has_come = True
            return True

        self.give(stream, come)
        return event

    def wait(self, stream: Stream, event: FakeEvent) -> None:
        self.give(stream, lambda: event.has_come)

    def settle(self, stream: Stream) -> None:
        with self._lock:
            while self._streams[stream]:
                self._do_one()

    def finish(self, event: FakeEvent) -> None:
        with self._lock:
            while not event.has_come:
                self._do_one()

    def _do_one(self) -> None:
        busy = [x for x in self._streams if self._streams[x]]
        self._random.shuffle(busy)
        for stream in busy:
            if self._streams[stream][0]():
                self._streams[stream].popleft()
                return
        raise AssertionError("no stream can go on: each waits for another")

    def lines(self, address: int, pitch: int, shape: Shape) -> Any:
        lines, width = shape
        assert address >= 256
        assert address + (lines - 1) * pitch + width <= 256 + self.allocated
        return np.lib.stride_tricks.as_strided(
            self.memory[address:], (lines, width), (pitch, 1), writeable=True
        )

    @staticmethod
    def _host(address: int, pitch: int, shape: Shape) -> Any:
        lines, width = shape
        flat = (ctypes.c_uint8 * ((lines - 1) * pitch + width)).from_address(address)
        return np.lib.stride_tricks.as_strided(
            np.frombuffer(memoryview(flat).cast("B"), np.uint8), shape, (pitch, 1), writeable=True
        )

    def copy_in(
        self, stream: Stream, address: int, pitch: int, host: int, host_pitch: int, shape: Shape
    ) -> None:
        def work() -> bool:
            self.lines(address, pitch, shape)[...] = self._host(host, host_pitch, shape)
            return True

        self.give(stream, work)

    def copy_out(
        self, stream: Stream, address: int, pitch: int, host: int, host_pitch: int, shape: Shape
    ) -> None:
        def work() -> bool:
            self._host(host, host_pitch, shape)[...] = self.lines(address, pitch, shape)
            return True

        self.give(stream, work)

    def launch(
        self, launches: Sequence[Prepared], stream: Stream, addresses: Sequence[int]
    ) -> None:
        raise AssertionError("the fake launcher gives its work itself")


class FakeLauncher:
    """Computes products in the fake channel's memory by NumPy.

    Each scribbles over its workspace, and is wrong if another one did so meanwhile.
    """

    def __init__(
        self, channel: FakeChannel, problem: HostProblem, operation: Operation, plan: HostPlan
    ) -> None:
        self._channel, self._problem, self._operation = channel, problem, operation
        self.plan, self.workspace = plan, 256
        self.products: list[Product] = []

    def launch(
        self, step: Compute, channel: Channel, stream: Stream, base: int, workspace: int
    ) -> None:
        product = product_of(step, self._problem, self._operation, self.plan.sums_apart)
        self.products.append(product)
        assert base + step.d.offset + 256 <= self._channel.memory.size
        assert workspace + 256 <= self._channel.memory.size
        a, b, d = (base + x.offset for x in (step.a, step.b, step.d))
        mark = len(self.products)
        scratch = self._channel.memory[workspace : workspace + 256].view(np.int64)

        def begin() -> bool:
            scratch[...] = mark
            return True

        def compute() -> bool:
            assert (scratch == mark).all()
            x = self._matrix(a, product.a, (product.batch, product.m, product.k), product.dtype)
            y = self._matrix(b, product.b, (product.batch, product.k, product.n), product.dtype)
            z = self._matrix(d, product.d, (product.batch, product.m, product.n), product.out_dtype)
            wide = np.float64 if product.dtype == "float64" else np.float32
            with np.errstate(all="ignore"):
                found = product.alpha * (x.astype(wide) @ y.astype(wide))
                if product.beta:
                    found = found + product.beta * z.astype(wide)
                z[...] = found
            return True

        def rounds() -> bool:
            assert step.result is not None
            sums = self._matrix(d, product.d, (1, product.m, product.n), product.out_dtype)
            pitch = step.result.pitch // self._problem.d.item
            layout = Operand(pitch, 1) if self._problem.d.by_rows else Operand(1, pitch)
            at = base + step.result.offset
            result = self._matrix(at, layout, (1, product.m, product.n), self._operation.out_dtype)
            with np.errstate(all="ignore"):
                if self._problem.reads_c:
                    sums = sums + np.float32(self._operation.beta) * result.astype(np.float32)
                result[...] = sums
            return True

        self._channel.give(stream, begin)
        self._channel.give(stream, compute)
        if step.result is not None:
            self._channel.give(stream, rounds)

    def _matrix(self, address: int, x: Operand, shape: tuple[int, int, int], dtype: str) -> Any:
        item = np.dtype(REAL[dtype]).itemsize
        assert address % 16 == x.offset
        flat = self._channel.memory[address:]
        usable = flat[: flat.size // item * item].view(REAL[dtype])
        strides = x.batch_stride * item, x.row_stride * item, x.column_stride * item
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + item
        assert min(shape) == 0 or reach <= 256 + self._channel.allocated - address
        return np.lib.stride_tricks.as_strided(usable, shape, strides, writeable=True)


def helpers(copiers: Copiers) -> Helpers:
    return Helpers(copiers, nullcontext)
