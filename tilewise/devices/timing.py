"""Time on a GPU, by events in the stream."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

from tilewise.devices.cuda import Context

# Below this, what a launch costs the host would be measured too; a graph of launches has no gaps.
SHORT_SECONDS = 50e-6
_GRAPH_LAUNCHES = 200
_MOST_FLUSHES = 100

Enqueue = Callable[[Any], None]
"""A function that enqueues work into the stream it is given, and does not wait."""


class Timer:
    """Time work enqueued in a context's stream, one at a time, while the context is current."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stream = context.stream
        with context.current():
            self._start, self._end = (context.call("cuEventCreate", 0) for _ in range(2))

    def seconds(self, enqueue: Enqueue, times: int = 1) -> float:
        """Wait for the work, ``times`` over, and return the seconds that it takes.

        Raises
        ------
        LaunchError
            If it fails.
        """
        stream = self._stream.handle
        self._context.call("cuEventRecord", self._start, stream)
        for _ in range(times):
            enqueue(stream)
        self._context.call("cuEventRecord", self._end, stream)
        self._context.call("cuStreamSynchronize", stream)
        milliseconds = self._context.call("cuEventElapsedTime", self._start, self._end)
        return float(milliseconds) * 1e-3

    def median(self, enqueue: Enqueue, rounds: int, minimum_seconds: float) -> float:
        """Return the median over ``rounds`` of the seconds that the work takes once.

        A round is as many times, one after another, as take ``minimum_seconds``; work under
        50 µs is replayed inside a CUDA graph.
        """
        self.seconds(enqueue)
        estimate = min(self.seconds(enqueue) for _ in range(3))
        times = _times(minimum_seconds, estimate)
        at_once = 1
        if estimate < SHORT_SECONDS:
            enqueue = self._graph(enqueue)
            at_once = _GRAPH_LAUNCHES
            # Again, for most of the estimate may have been the gap.
            self.seconds(enqueue)
            times = _times(minimum_seconds, self.seconds(enqueue))
        self.seconds(enqueue, times)
        return statistics.median(self.seconds(enqueue, times) for _ in range(rounds)) / (
            times * at_once
        )

    def median_flushed(self, enqueue: Enqueue, rounds: int, minimum_seconds: float) -> float:
        """Return the same, each time by itself and after the L2 cache was overwritten."""
        # Twice the cache, so that nothing of the operands stays.
        waste = self._context.allocate(2 * max(self._context.attribute("L2_CACHE_SIZE"), 1 << 20))

        def once() -> float:
            self._context.call("cuMemsetD8Async", waste.address, 0, waste.size, self._stream.handle)
            return self.seconds(enqueue)

        once()
        times = min(_times(minimum_seconds, once()), _MOST_FLUSHES)
        return statistics.median(once() for _ in range(rounds * times))

    def _graph(self, enqueue: Enqueue) -> Enqueue:
        """Return a CUDA graph of the work, many times over."""
        builder = self._context.device.create_graph_builder()
        builder.begin_building()
        inside = builder.__cuda_stream__()[1]
        for _ in range(_GRAPH_LAUNCHES):
            enqueue(inside)
        graph = builder.end_building().complete()
        return lambda _: graph.launch(self._stream)


def _times(minimum_seconds: float, once: float) -> int:
    return max(1, math.ceil(minimum_seconds / max(once, 1e-7)))
