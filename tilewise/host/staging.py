"""The resources that are kept from product to product: channels and copying threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.compiler.ahead import cores
from tilewise.devices.gpu import Gpu
from tilewise.host.channel import GpuChannel
from tilewise.host.copiers import Copiers
from tilewise.host.copying import Helpers

MOST_CHANNELS = 2
"""The most products that a GPU computes from the host's memory at once; others wait."""
MOST_COPIERS, SHARE_OF_CORES = 12, 3 / 4
"""The most threads that copy, and the most of them as a share of the cores.

The other cores are left to the threads that enqueue copies and kernels, which would have to wait
for one otherwise.
"""


class _Staging:
    """The channels of all GPUs, and the threads that copy for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: dict[Gpu, list[GpuChannel]] = {}
        self._busy: dict[Gpu, set[object]] = {}  # an object for each channel that is lent
        self._copiers: Copiers | None = None

    @contextmanager
    def channel(self, gpu: Gpu) -> Iterator[GpuChannel]:
        """Lend a channel, with the GPU's context current; a channel that fails is not kept."""
        loan, loans = object(), self._busy.setdefault(gpu, set())
        channel: GpuChannel | None = None
        is_kept = False
        try:
            with self._changed:
                while len(loans) >= MOST_CHANNELS:
                    self._changed.wait()
                loans.add(loan)
                if idle := self._idle.get(gpu):
                    channel = idle.pop()
            with gpu.context.current():
                try:
                    if channel is None:
                        channel = GpuChannel(gpu)
                    yield channel
                    is_kept = True
                except ValueError:  # an error of the arguments, so that nothing is under way
                    is_kept = True
                    raise
                finally:
                    if not is_kept and channel is not None:
                        channel.close()
        finally:
            with self._changed:
                loans.discard(loan)  # Ctrl-C may have come before it was added
                if is_kept and channel is not None:
                    self._idle.setdefault(gpu, []).append(channel)
                self._changed.notify_all()

    def copiers(self) -> Copiers:
        """Return the threads that copy for all channels."""
        with self._changed:
            if self._copiers is None:
                self._copiers = Copiers(min(MOST_COPIERS, max(1, int(SHARE_OF_CORES * cores()))))
            return self._copiers

    def free(self) -> int:
        """Free what no product uses; return the bytes of pinned memory that were freed."""
        with self._changed:
            channels = [channel for idle in self._idle.values() for channel in idle]
            self._idle.clear()
            is_busy = any(self._busy.values())
            copiers = None if is_busy else self._copiers
            if not is_busy:
                self._copiers = None
        if copiers is not None:
            copiers.close()
        freed = 0
        for channel in channels:
            freed += channel.pinned
            with channel.gpu.context.current():
                channel.close()
        return freed


def helpers_of(gpu: Gpu) -> Helpers:
    """Return the helpers of a product on a GPU."""
    return Helpers(_staging.copiers(), gpu.context.current)


_staging = _Staging()


def staging() -> _Staging:
    """Return the staging of this process."""
    return _staging


def free_staging() -> int:
    """Free the pinned memory that products of arrays in the host's memory have left for the next.

    That is at most 704 MiB for each GPU. The threads that copy end, too, and the GPU memory that is
    kept is freed, at most a 32nd of it. A product that is under way keeps its own memory. The next
    product takes some milliseconds longer.

    Returns
    -------
    int
        The bytes of pinned memory that were freed.

    Examples
    --------
    >>> import tilewise
    >>> tilewise.free_staging() >= 0
    True
    """
    return _staging.free()


def _begin_anew() -> None:
    """Forget the parent process's resources: a forked child does not have its threads."""
    global _staging
    _staging = _Staging()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
