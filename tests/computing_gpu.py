"""Provide a fake GPU, whose launches compute products by NumPy at the addresses they get.

With it, tensors on the host take the same path as tensors on a GPU, so that any machine can test
the code that decides where kernels read and write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fake_gpu import FakeGpu

from tilewise.arrays import own_product, repeat
from tilewise.arrays.libraries import library_of
from tilewise.gemm import beside
from tilewise.gemm.epilogue import Strided
from tilewise.gemm.product import ACCUMULATORS, FIRST_FUSED, A, B, C, D, Operand, Product
from tilewise.matmul import matmul
from tilewise.places import ITEM_SIZES, Place

FRONT_DOOR: Any = sys.modules[matmul.__module__]


class ComputingGpu(FakeGpu):
    """A fake GPU whose memory is that of this process.

    Attributes
    ----------
    streams : list of int
        On which products were launched, in order.
    switches : int
        How often the calling thread's context was made this GPU's.
    """

    ordinal = 0

    def __init__(self) -> None:
        super().__init__()
        self.context: Any = self
        self.device = SimpleNamespace(name="NVIDIA H200")
        self.streams: list[int] = []
        self.is_ready, self.switches = True, 0

    def attribute(self, name: str) -> int:
        """Return the value of an H200 for an attribute that a plan reads."""
        rates = {"CLOCK_RATE": 1_980_000, "MEMORY_CLOCK_RATE": 3_201_000}
        return rates.get(name, 6144)

    def check_process(self) -> None:
        """Do nothing: this process can use the GPU."""

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this GPU's context the current one."""
        assert not self.is_ready
        self.is_ready = True
        self.switches += 1
        try:
            yield
        finally:
            self.is_ready = False

    def enqueue(self, prepared: Any, stream: int, addresses: Sequence[int] = ()) -> None:
        """Compute at once."""
        prepared.enqueue(stream, addresses)

    def computes(self, product: Product, plan: Any, gpu: Any) -> tuple[Any, ...]:
        """Return one launch of the whole product, as :func:`tilewise.gemm.beside.launches` does."""
        assert gpu is self
        return (Computed(self, product, plan.workspace),)


class Computed:
    """A product that is computed, element by element in the order of the sums, where it lies."""

    def __init__(self, gpu: ComputingGpu, product: Product, workspace: int) -> None:
        self.gpu, self.product, self.workspace = gpu, product, workspace

    def enqueue(self, stream: int, addresses: Sequence[int]) -> None:
        """Compute it with arrays that begin at ``addresses``."""
        product = self.product
        assert self.gpu.is_ready
        assert (addresses[4] != 0) == (self.workspace > 0)
        self.gpu.streams.append(stream)
        kind = ACCUMULATORS[product.dtype]

        def matrix(at: int, x: Operand, rows: int, columns: int, dtype: str) -> Any:
            assert at % 16 == x.offset
            strides = x.batch_stride, x.row_stride, x.column_stride
            return _there(at, (product.batch, rows, columns), strides, dtype)

        def of_result(at: int, x: Operand | Strided, dtype: str) -> Any:
            strides = x.batch_stride, x.row_stride, x.column_stride
            return _there(at, (product.batch, product.m, product.n), strides, dtype)

        a = wide(matrix(addresses[A], product.a, product.m, product.k, product.dtype), kind)

        def sums(at: int, x: Operand) -> Any:
            b = wide(matrix(at, x, product.k, product.n, product.dtype), kind)
            return np.asarray(product.alpha, kind) * (a @ b)

        acc: Any = sums(addresses[B], product.b)
        if product.beta:
            assert product.c is not None
            c = of_result(addresses[C], product.c, product.out_dtype)
            acc = acc + np.asarray(product.beta, kind) * wide(c, kind)
        targets = [(of_result(addresses[D], product.d, product.out_dtype), product.out_dtype)]
        values: Sequence[Any] = (acc,)
        epilogue = product.epilogue
        if epilogue is not None:
            if product.pairing is not None:
                acc = acc, sums(product.up_at(Place(B)).address(addresses), product.pairing.operand)
            at = iter(addresses[FIRST_FUSED:])
            operands = [
                wide(of_result(next(at), x, x.dtype), kind) if isinstance(x, Strided) else x
                for x in epilogue.inputs
            ]
            values = epilogue.function.evaluate(acc, operands)
            targets += [(of_result(next(at), x, x.dtype), x.dtype) for x in epilogue.results]
        for (target, dtype), value in zip(targets, values, strict=True):
            target[...] = _narrow(np.broadcast_to(value, target.shape), dtype)


def _there(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
) -> npt.NDArray[Any]:
    """Return a view of this process's memory; bfloat16 is viewed as uint16."""
    if not all(shape):
        return np.empty(shape, np.uint16 if dtype == "bfloat16" else dtype)
    kind = np.dtype(np.uint16 if dtype == "bfloat16" else dtype)
    return array_at(address, shape, tuple(ITEM_SIZES[dtype] * x for x in strides), kind)


def array_at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return an array in this process's memory; ``strides`` are in bytes."""
    interface = {
        "data": (address, False), "shape": shape, "strides": strides, "typestr": kind.str,
        "version": 3,
    }  # fmt: skip
    return np.asarray(type("Interface", (), {"__array_interface__": interface})())


def wide(x: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return an array in another dtype; uint16 stands for bfloat16."""
    if x.dtype == np.uint16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(dtype)


def _narrow(x: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    if dtype != "bfloat16":
        return x.astype(dtype)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@pytest.fixture
def computing_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputingGpu]:
    """Yield a fake GPU on which PyTorch's host tensors seem to lie; earlier calls are forgotten."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    library = library_of(torch.zeros(1))
    gpu = ComputingGpu()
    monkeypatch.setattr(type(library), "ordinal", lambda _self, _x: 0)
    monkeypatch.setattr(library, "stream", lambda _ordinal: 7)
    monkeypatch.setattr(FRONT_DOOR, "gpu_of", lambda _ordinal: gpu)
    monkeypatch.setattr(own_product, "why_on_gpu", lambda _dtype, _ordinal: "")
    monkeypatch.setattr(beside, "launches", gpu.computes)
    monkeypatch.setattr(repeat, "_records", {})
    repeat.forget()
    yield gpu
    repeat.forget()
