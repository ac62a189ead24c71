"""The contenders that are measured: the rungs, matmul and the vendor's product; and operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from tilewise.bench.climb import OURS, VENDOR, Settings
from tilewise.bench.products import Operands, operands
from tilewise.bench.suites import Shape, sets_to_rotate
from tilewise.bench.timing import Work
from tilewise.devices.gpu import Gpu
from tilewise.explain import explain
from tilewise.ladder.geometry import Sizes
from tilewise.ladder.rungs import Rung
from tilewise.launch import Launch
from tilewise.places import Place

Call = Callable[[Operands], None]
"""A function that enqueues a product of its operands on PyTorch's current stream, and
does not wait.
"""


class Contenders:
    """The kernels that are measured in one dtype, and square matrices for them.

    Parameters
    ----------
    gpu : Gpu
        PyTorch's current device.
    dtype : str
    settings : Settings
    """

    def __init__(self, gpu: Gpu, dtype: str, settings: Settings) -> None:
        self.gpu, self.dtype, self.settings = gpu, dtype, settings
        self._sets: dict[int, list[Operands]] = {}

    def __iter__(self) -> Iterator[tuple[str, Rung | None]]:
        """Yield each kernel's name, and its rung or None."""
        for rung in self.settings.rungs(self.dtype):
            yield rung.name, rung
        if self.settings.has_ours:
            yield OURS, None
        yield VENDOR, None

    def forget(self) -> None:
        """Let go of all matrices."""
        self._sets.clear()

    def matrices(self, n: int) -> Operands:
        """Return new matrices, which are not kept."""
        return operands(Shape(n, n, n), self.dtype, torch.Generator(_device()).manual_seed(0))

    def operands(self, n: int) -> list[Operands]:
        """Return as many sets of matrices as exceed the L2 cache; the same ones each time."""
        if n not in self._sets:
            generator = torch.Generator(_device()).manual_seed(n)
            shape = Shape(n, n, n)
            first = operands(shape, self.dtype, generator)
            nbytes = 3 * first.a.numel() * first.a.element_size()
            count = sets_to_rotate(nbytes, self.gpu.l2_bytes)
            rest = [operands(shape, self.dtype, generator) for _ in range(count - 1)]
            self._sets[n] = [first, *rest]
        return self._sets[n]

    def inputs(self, n: int) -> tuple[Any, Any]:
        """Return A and B of the first set."""
        first = self.operands(n)[0]
        return first.a, first.b

    def call(self, name: str, rung: Rung | None, n: int) -> Call:
        """Return the function that enqueues a kernel's product of size ``n``."""
        if rung is None:
            return Operands.ours if name == OURS else Operands.torch
        tile = rung.tile_for(n, n, n, self.dtype)
        grid, block = rung.geometry(n, n, tile, self.dtype, self.gpu.multiprocessors)
        a, b, c = Place(0), Place(1), Place(2)
        trailing = rung.trailing(Sizes(n, n, n, n, n, n), tile, self.dtype)
        args = (n, n, n, 1.0, a, n, b, n, 0.0, c, n, *trailing)
        launch = Launch(grid, block, args, rung.shared(tile, self.dtype))
        prepared = self.gpu.prepare(rung.kernel(self.dtype, tile).compile(self.gpu.arch), launch)

        def call(x: Operands) -> None:
            self.gpu.enqueue(prepared, _stream(), [each.data_ptr() for each in (x.a, x.b, x.d)])

        return call

    def chosen(self, n: int) -> str:
        """Return the kernel by which matmul answers at size ``n``, in words."""
        first = self.operands(n)[0]
        return explain(first.a, first.b, out=first.d).chosen

    def works(self, call: Call, n: int) -> list[Work]:
        """Return the calls that are timed in turn, one a set of matrices."""
        return [partial(call, each) for each in self.operands(n)]


def digest(x: Any) -> int:
    """Return a number of all the bits of a tensor, in their order."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    bits = x.flatten().view(whole).long()
    odd = 2 * torch.arange(bits.numel(), device=x.device) + 1
    return int((bits * odd).sum())


def _device() -> str:
    return "cuda"


def _stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)
