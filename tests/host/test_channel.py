"""A GPU's channel over a driver that only counts its calls."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from reference import ROOT

from tilewise.arrays.call import check
from tilewise.devices.cuda import Memory
from tilewise.errors import LaunchError
from tilewise.gemm.chip import H200
from tilewise.gemm.plan import plan_on
from tilewise.host import at_once, launcher, product, quick, staging
from tilewise.host.channel import BUFFER, GpuChannel
from tilewise.host.copying import BUFFERS


class FakeContext:
    lost, is_of_this_process = "", True

    def __init__(self) -> None:
        self.called: Counter[str] = Counter()
        self.fails_at = self.interrupted_at = ""
        self.driver = MagicMock()
        done = self.driver.CUresult.CUDA_SUCCESS
        self.driver.cuMemAlloc = lambda size: (done, self.call("cuMemAlloc", size))
        self.driver.cuPointerGetAttribute.return_value = (1, None)

    def call(self, function: str, *args: Any) -> Any:
        if function == self.fails_at and self.called[function]:
            raise LaunchError("made up")
        self.called[function] += 1
        if function == self.interrupted_at:  # Ctrl-C comes while the driver is at it
            raise KeyboardInterrupt
        return 1 << 30

    def current(self) -> Any:
        return nullcontext()

    def check_process(self) -> None: ...

    def allocate(self, size: int) -> Memory:
        return Memory(self, size)  # type: ignore[arg-type]


class FakeGpu:
    memory, arch, description = 140 << 30, "sm_90a", "made up"

    def __init__(self) -> None:
        self.context = FakeContext()

    def free_memory(self) -> int:
        return 100 << 30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    fake, prepared = FakeGpu(), MagicMock()
    for module in (product, launcher):
        monkeypatch.setattr(module, "chip_of", lambda _: H200)
    monkeypatch.setattr(launcher, "plan_product", lambda asked, _: plan_on(asked, H200))
    monkeypatch.setattr(launcher.beside, "launches", lambda *_: (prepared,))  # type: ignore[attr-defined]
    monkeypatch.setattr(launcher, "prepare", lambda *_: (prepared,))
    monkeypatch.setattr(staging, "_staging", staging._Staging())
    yield fake
    staging.free_staging()


def multiply(gpu: Any, a: Any, b: Any, room: int | None = None, out: Any = None) -> Any:
    call = check(a, b, None, 1, 0, False, False, out, None, "auto")
    return product.multiply(call, gpu, room)


def test_what_it_asks_of_the_driver(gpu: FakeGpu) -> None:
    called, driver = gpu.context.called, gpu.context.driver
    a, b = np.ones((3000, 3000), np.float32), np.ones((3000, 3000), np.float32)
    multiply(gpu, a, b)
    assert called["cuMemAlloc"] == 1
    assert called["cuMemHostRegister"] == 8
    # Another one finds memory, buffers and streams there.
    before = called.copy()
    multiply(gpu, a, b)
    made = ("cuMemAlloc", "cuMemHostRegister", "cuStreamCreate")
    assert [called[x] for x in made] == [before[x] for x in made]
    assert staging.free_staging() > 0
    assert driver.cuMemHostUnregister.call_count == called["cuMemHostRegister"]
    assert driver.cuMemFree.call_count == called["cuMemAlloc"]
    assert driver.cuStreamDestroy.call_count == called["cuStreamCreate"]


def test_small_ones_take_one_copy_each_way(gpu: FakeGpu) -> None:
    a = np.ones((64, 64), np.float32)
    called = gpu.context.called
    multiply(gpu, a, a.copy())
    assert (called["cuMemcpyHtoDAsync"], called["cuMemcpyDtoHAsync"]) == (1, 1)
    assert called["cuStreamSynchronize"] == called["cuMemHostRegister"] == 1
    multiply(gpu, a[:, :63], a[:63].copy())  # A's rows do not lie as on the GPU
    assert (called["cuMemcpyHtoDAsync"], called["cuMemcpyDtoHAsync"]) == (2, 2)
    assert called["cuMemHostRegister"] == called["cuMemAlloc"] == 1
    assert not called["cuEventRecord"]


def test_products_of_one_piece_need_one_stream(gpu: FakeGpu) -> None:
    called = gpu.context.called
    a = np.ones((64, 64), np.float32)
    multiply(gpu, a, a.copy())
    assert called["cuStreamCreate"] == 1
    assert not called["cuStreamWaitEvent"]
    # The pieces of one tile whose k is divided overlap all the same.
    a = np.ones((64, 1 << 16), np.float32)
    multiply(gpu, a, a.T.copy(), 10_000_000)
    assert called["cuStreamCreate"] > 2
    assert called["cuStreamWaitEvent"]


def test_pinned_memory_needs_no_buffers(gpu: FakeGpu) -> None:
    driver = gpu.context.driver
    kind = driver.CUmemorytype.CU_MEMORYTYPE_HOST = 1
    driver.cuPointerGetAttribute.return_value = (driver.CUresult.CUDA_SUCCESS, kind)
    a = np.ones((3000, 3000), np.float32)
    multiply(gpu, a, a.copy(), out=np.empty_like(a))
    assert not gpu.context.called["cuMemHostRegister"]


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync", "cuMemHostRegister", "cuEventRecord"])
def test_an_error_leaves_nothing_behind(gpu: FakeGpu, function: str) -> None:
    a = np.ones((3000, 3000), np.float32)
    gpu.context.fails_at = function
    with pytest.raises(LaunchError, match="made up"):
        multiply(gpu, a[:, :-1], a[1:, :2900].copy())
    called, driver = gpu.context.called, gpu.context.driver
    assert driver.cuMemHostUnregister.call_count == called["cuMemHostRegister"]
    assert driver.cuMemFree.call_count == called["cuMemAlloc"] == 1
    assert driver.cuStreamDestroy.call_count == called["cuStreamCreate"]
    gc.collect(1)  # the error's traceback refers to some; older generations need no collection
    assert driver.cuEventDestroy.call_count == called["cuEventCreate"]


def test_memory_that_was_being_pinned_at_ctrl_c_is_unpinned(gpu: FakeGpu) -> None:
    a = np.ones((3000, 3000), np.float32)
    gpu.context.interrupted_at = "cuMemHostRegister"
    with pytest.raises(KeyboardInterrupt):
        multiply(gpu, a, a.copy())
    assert gpu.context.called["cuMemHostRegister"] == 1
    assert gpu.context.driver.cuMemHostUnregister.call_count == 1


@pytest.mark.parametrize("size", [64, 1000, 1100])
def test_an_error_of_a_small_one_leaves_nothing_behind(gpu: FakeGpu, size: int) -> None:
    a = np.ones((size, size), np.float32)
    gpu.context.called["cuStreamSynchronize"] = 1
    gpu.context.fails_at = "cuStreamSynchronize"
    with pytest.raises(LaunchError, match="made up"):
        multiply(gpu, a, a.copy())
    called, driver = gpu.context.called, gpu.context.driver
    assert driver.cuMemHostUnregister.call_count == called["cuMemHostRegister"]
    assert driver.cuMemFree.call_count == called["cuMemAlloc"] == 1
    assert driver.cuStreamDestroy.call_count == called["cuStreamCreate"]


def test_a_budget_that_is_too_small(gpu: Any) -> None:
    a = np.ones((300, 300), np.float32)
    with pytest.raises(ValueError, match=r"may take 1,000 bytes .*; the least that it") as raised:
        multiply(gpu, a, a.copy(), 1000)
    least = int(str(raised.value).rpartition(" ")[2].replace(",", ""))
    call = check(a, a.copy(), None, 1, 0, False, False, None, None, "auto")
    assert "tiles of" in product.described(call, gpu, least)


def test_how_they_would_travel(gpu: Any) -> None:
    a = np.ones((3000, 3000), np.float32)
    call = check(a, a.copy(), None, 1, 0, False, False, None, None, "auto")
    assert product.described(call, gpu).startswith("72 MB there and 36 MB back; resident")
    assert "times the fewest bytes" in product.described(call, gpu, 30_000_000)
    assert not gpu.context.called["cuMemAlloc"]
    found = product.journey(call, gpu, 30_000_000)
    assert found is not None
    assert found.plan.memory < found.room == 30_000_000


def test_how_one_travels_whose_result_no_stride_describes(gpu: Any) -> None:
    a = np.ones((2, 3, 40, 40), np.float32)
    out = np.zeros((3, 2, 40, 40), np.float32).swapaxes(0, 1)
    call = check(a, a.copy(), None, 1, 0, False, False, out, None, "auto")
    assert "the result is copied once more on the host; a batch of 6" in product.described(
        call, gpu
    )
    call = check(a, a[..., :0].copy(), None, 1, 0, False, False, None, None, "auto")
    assert product.described(call, gpu) == "the result has no elements"


def test_a_small_product_is_repeated(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_records", {})
    a, b = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    prepared = launcher.beside.launches()[0]  # type: ignore[attr-defined]

    def keyed(a: Any, b: Any, alpha: Any = 1, **given: Any) -> Any:
        key = quick.key_of(a, b, alpha, 0, *given.values())
        call = check(a, b, None, alpha, 0, False, False, None, None, "auto")
        product.multiply(call, gpu, None, key)
        return None if key is None else quick.find(key)

    found = keyed(a, b)
    assert found.shape == (64, 64)
    before, launched = gpu.context.called.copy(), prepared.enqueue.call_count
    assert found.run(a, b).shape == (64, 64)
    called = gpu.context.called - before
    assert (called["cuMemcpyHtoDAsync"], called["cuMemcpyDtoHAsync"]) == (1, 1)
    assert prepared.enqueue.call_count == launched + 1
    # Larger ones are copied by the driver from where they lie.
    x = np.ones((256, 512), np.float32)
    found = keyed(x, np.ones((512, 256), np.float32))
    before = gpu.context.called.copy()
    found.run(x, x.reshape(512, 256))
    assert (gpu.context.called - before)["cuMemcpyHtoDAsync"] == 2
    # Not those whose bytes lie otherwise on the GPU, nor one matrix given twice, nor vectors.
    assert keyed(np.ones((64, 63), np.float32), np.ones((63, 64), np.float32)) is None
    assert keyed(a.T.copy()[:, ::-1], b) is None
    c = np.ones((32, 32), np.float32)
    assert keyed(c, c) is None
    assert keyed(np.ones(64, np.float32), np.ones(64, np.float32)) is None
    assert keyed(np.ones((2, 16, 16), np.float32), np.ones((16, 16), np.float32)) is not None
    assert keyed(np.ones((2, 24, 16), np.float32), np.ones((1, 16, 24), np.float32)) is not None
    assert keyed(np.ones((16, 8), np.float32), np.ones((2, 8, 16), np.float32)) is None
    assert quick.key_of(a, b, True, 0) is quick.key_of(a, b, 1, 0, []) is None
    assert quick.key_of(a, b.tolist(), 1, 0) is None


def test_a_batch_at_once_has_a_buffer_of_its_size(gpu: FakeGpu) -> None:
    a = np.ones((20, 256, 256), np.float32)  # with B and D 15 MiB
    multiply(gpu, a, a.copy())
    assert gpu.context.called["cuStreamSynchronize"] == 1
    assert staging.free_staging() == 16 << 20


def test_at_most_so_much_memory_is_pinned_as_the_page_says() -> None:
    """The first buffer of a channel may be that of a product that is computed at once."""
    first = max(at_once.buffer_size(at_once.MOST), BUFFER)
    others = sum(BUFFERS.values()) - 1
    most = staging.MOST_CHANNELS * (first + others * BUFFER) >> 20
    for text in (staging.free_staging.__doc__, (ROOT / "docs" / "host.md").read_text()):
        assert f"at most {most} MiB" in " ".join(str(text).split())


def test_a_small_product_is_planned_again_if_memory_is_short(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "_records", {})
    a, b = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    key = quick.key_of(a, b, 1, 0)
    assert key is not None
    assert quick.repeated(key, a, b) is None
    call = check(a, b, None, 1, 0, False, False, None, None, "auto")
    product.multiply(call, gpu, None, key)
    assert quick.repeated(key, a, b) is not None

    def full(self: GpuChannel, size: int) -> int:
        raise MemoryError("made up")

    with monkeypatch.context() as patch:
        patch.setattr(GpuChannel, "allocate", full)
        assert quick.repeated(key, a, b) is None
    assert quick.find(key) is None
    product.multiply(call, gpu, None, key)
    assert quick.repeated(key, a, b) is not None
