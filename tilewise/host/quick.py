"""Repeat small products of NumPy's arrays without planning them again.

What such a product costs is the host's work: checks, plans and layouts take longer than its copies
and its kernel. So what they found is kept for calls with the same shapes, dtypes and options.
:meth:`Quick.run` does what :func:`tilewise.host.at_once.execute` does without making steps and
pieces, because even making them takes long compared with the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewise.arrays.call import Call
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.host.at_once import MOST_BY_DRIVER, TINY, TINY_RESULT, buffer_size
from tilewise.host.channel import Kind, released
from tilewise.host.launcher import GpuLauncher
from tilewise.host.matrices import Array
from tilewise.host.plan import Compute, CopyIn, CopyOut
from tilewise.host.staging import staging

RECORDS = 4096

Key = tuple[Any, ...]
_NUMBERS = (int, float)


class Quick(NamedTuple):
    """A product of two contiguous arrays on a GPU, and what it takes to compute it again.

    Attributes
    ----------
    gpu : Gpu
    shape, dtype
        The shape and the dtype of the result.
    offsets : tuple of int
        The offsets in bytes of A, B and D in the channel's allocation.
    memory, workspace : int
        The bytes of A, B and D together, and those of the workspace behind them.
    launches : sequence of Prepared
    """

    gpu: Gpu
    shape: tuple[int, ...]
    dtype: Any
    offsets: tuple[int, int, int]
    memory: int
    workspace: int
    launches: tuple[Prepared, ...]

    def run(self, a: Any, b: Any) -> Array:
        """Return the product of two arrays of this one's shapes and dtype.

        Raises
        ------
        MemoryError
            If the GPU's memory is short, or memory can't be pinned.
        LaunchError
            If a kernel failed.
        DeviceUnavailableError
            If this process was forked from one that used the GPU already.
        """
        gpu, memory = self.gpu, self.memory
        result = np.empty(self.shape, self.dtype)
        at_a, at_b, at_d = self.offsets
        with staging().channel(gpu) as channel, released(channel):
            base = channel.allocate(memory + self.workspace)
            buffer = channel.buffer(Kind.INWARD, 0, buffer_size(memory))
            channel.pin(buffer)
            stream, space = channel.stream(Kind.COMPUTE, 0), buffer.memory
            host = space.ctypes.data
            for at, x in ((at_a, a), (at_b, b)):
                if x.nbytes <= TINY:
                    np.copyto(space[at : at + x.nbytes].view(x.dtype).reshape(x.shape), x)
            if a.nbytes <= TINY and b.nbytes <= TINY:
                size = at_b + b.nbytes
                channel.copy_in(stream, base, 0, host, 0, (1, size))
            else:
                for at, x in ((at_a, a), (at_b, b)):
                    there = host + at if x.nbytes <= TINY else x.ctypes.data
                    channel.copy_in(stream, base + at, 0, there, 0, (1, x.nbytes))
            d = base + at_d
            addresses = base + at_a, base + at_b, d, d, base + memory
            channel.launch(self.launches, stream, addresses)
            size = result.nbytes
            is_tiny = size <= TINY_RESULT
            there = host + at_d if is_tiny else result.ctypes.data
            channel.copy_out(stream, d, 0, there, 0, (1, size))
            channel.settle(stream)
            if is_tiny:
                of_d = space[at_d : at_d + size].view(self.dtype)
                np.copyto(result, of_d.reshape(self.shape))
        return result


_records: dict[Key, Quick] = {}


def key_of(a: Any, b: Any, alpha: Any, beta: Any, *options: object) -> Key | None:
    """Return everything that decides how two arrays are multiplied; None if they are others."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    if max(a.nbytes, b.nbytes) > MOST_BY_DRIVER:
        return None
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        return None
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS:
        return None
    key = (a.shape, a.dtype, b.shape, b.dtype, alpha, beta, *options)
    try:
        hash(key)
    except TypeError:  # an option that the checks will refuse
        return None
    return key


def find(key: Key) -> Quick | None:
    """Return what is known of an earlier call with this key."""
    return _records.get(key)


def repeated(key: Key, a: Any, b: Any) -> Array | None:
    """Return the product of two arrays as an earlier call with this key computed it.

    Return None if there was none, or if memory is short: then the call has to be planned again,
    with the memory that is left.

    Raises
    ------
    LaunchError, DeviceUnavailableError
        As :meth:`Quick.run`.
    """
    found = find(key)
    if found is None:
        return None
    try:
        return found.run(a, b)
    except MemoryError:
        _records.pop(key, None)
        return None


def remember(key: Key, call: Call, gpu: Gpu, launcher: GpuLauncher) -> None:
    """Keep what was found out about a call with this key, if it can be repeated."""
    problem, plan = launcher.problem, launcher.plan
    if plan.bytes_out > MOST_BY_DRIVER or problem.shared or not call.shape:
        return
    steps = list(plan.steps())
    loads = {step.matrix: step for step in steps if isinstance(step, CopyIn)}
    products = [step for step in steps if isinstance(step, Compute)]
    if len(products) != 1 or len(steps) != 4 or set(loads) != {"A", "B"}:
        return
    (product,) = products
    (store,) = (step for step in steps if isinstance(step, CopyOut))
    regions = loads["A"].to, loads["B"].to, store.source
    layouts = problem.a, problem.b, problem.d
    sizes = call.a.nbytes, call.b.nbytes, plan.bytes_out
    shapes = (problem.m, problem.k), (problem.k, problem.n), (problem.m, problem.n)
    for layout, size, shape in zip(layouts, sizes, shapes, strict=True):
        # On the GPU the bytes have to lie as they do on the host.
        if not size or layout.size(*shape) * problem.batch != size:
            return
    if len(_records) >= RECORDS:
        _records.clear()
    _records[key] = Quick(
        gpu, call.shape, np.dtype(call.out_dtype), tuple(region.offset for region in regions),  # type: ignore[arg-type]
        plan.memory, launcher.workspace, launcher.launches_of(product),
    )  # fmt: skip


def forget() -> None:
    """Drop everything that is known of earlier calls."""
    _records.clear()
