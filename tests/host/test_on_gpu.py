"""Products of arrays in the host's memory, on a GPU."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count, starmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matmul_reference import assert_right
from reference import examples
from waiting import assert_soon

import tilewise
from tilewise.devices.gpu import Gpu
from tilewise.host import product as host_product
from tilewise.host.channel import GpuChannel
from tilewise.host.matrices import packed

Array = np.ndarray[Any, Any]


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture
def taken(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What products allocate on the GPU."""
    sizes: list[int] = []
    allocate = GpuChannel.allocate

    def noting(self: GpuChannel, size: int) -> int:
        sizes.append(size)
        return allocate(self, size)

    monkeypatch.setattr(GpuChannel, "allocate", noting)
    return sizes


HELD = {
    "cuMemAlloc": "cuMemFree",
    "cuMemHostRegister": "cuMemHostUnregister",
    "cuStreamCreate": "cuStreamDestroy",
    "cuEventCreate": "cuEventDestroy",
}


@pytest.fixture
def held(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What this process holds of the driver; other processes use the same GPU meanwhile."""
    driver = gpu.context.driver
    found: Counter[str] = Counter()
    lock = threading.Lock()

    def watch(function: str, what: str, by: int) -> None:
        call = getattr(driver, function)

        def counted(*args: Any) -> Any:
            results: list[Any] = []
            try:
                results.extend(starmap(call, [args]))  # one step, after which Ctrl-C may be raised
            finally:
                if results and results[0][0] == driver.CUresult.CUDA_SUCCESS:
                    with lock:
                        found[what] += by
            return results[0]

        monkeypatch.setattr(driver, function, counted)

    tilewise.free_staging()
    for taken, freed in HELD.items():
        watch(taken, taken, 1)
        watch(freed, taken, -1)
    return found


def assert_nothing(held: Counter[str]) -> None:
    gc.collect()  # the error's traceback refers to events
    assert set(held) == set(HELD)
    assert not any(held.values())


@examples(60)
@given(data=st.data())
def test_any_product_in_any_memory(gpu: Gpu, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float16", "float32", "float64"]))
    m, n, k = (data.draw(st.sampled_from([1, 7, 64, 200, 513, 1000])) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (), (3,), (2, 2)]))
    a, b = drawn(*batch, m, k, dtype=dtype, seed=1), drawn(*batch, k, n, dtype=dtype, seed=2)
    if data.draw(st.booleans()):
        a = a.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if data.draw(st.booleans()):
        b = b[..., ::-1, :].copy()[..., ::-1, :]
    if data.draw(st.booleans()):
        b = b[..., :, ::2]
    room = data.draw(st.integers(100_000, 20_000_000))
    found = tilewise.matmul(a, b, max_gpu_memory=room)
    assert_right(found, a, b, dtype)


@pytest.mark.parametrize("room", ["3MB", "12MB", "60MB"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_within_a_budget(gpu: Gpu, taken: list[int], room: str, dtype: str) -> None:
    a, b, c = drawn(2100, 1500, dtype=dtype), drawn(1500, 1900, dtype=dtype), drawn(2100, 1900)
    out = c.astype(dtype)
    tilewise.matmul(a, b, out, alpha=0.5, beta=2, out=out, max_gpu_memory=room)
    assert_right(out, a, b, dtype, c=c.astype(dtype), alpha=0.5, beta=2)
    assert 0 < max(taken) <= tilewise.sizes.parse(room)


def test_too_little_memory(gpu: Gpu) -> None:
    a = drawn(100, 100)
    with pytest.raises(ValueError, match=r"may take 1,000 bytes .*; the least that it takes is"):
        tilewise.matmul(a, a, max_gpu_memory=1000)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_bits_are_those_of_one_product(gpu: Gpu, dtype: str) -> None:
    """Whatever it is cut into, while k is not divided."""
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(4096, 4096).to(getattr(torch, dtype)) for _ in range(2))
    whole = tilewise.matmul(a.cuda(), b.cuda()).cpu()
    plans = []
    for room in (None, "70MB", "120MB"):
        found = tilewise.matmul(a, b, max_gpu_memory=room)
        plans.append(room)
        assert torch.equal(found, whole), plans


def test_pinned_memory_and_one_matrix_given_twice(gpu: Gpu) -> None:
    torch = pytest.importorskip("torch")
    a, out = torch.randn(3000, 3000).pin_memory(), torch.empty(3000, 3000).pin_memory()
    for b in (a, a.T):
        for c in (out, torch.empty(3000, 3000)):
            tilewise.matmul(a, b, out=c)
            assert_right(c.numpy(), a.numpy(), b.numpy(), "float32")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [16, 64, 100, 256, 700, 1024, 1200])
def test_small_products_again_and_again(gpu: Gpu, size: int, dtype: str) -> None:
    """The second one of a kind is not planned again, and has the same bits."""
    kept: list[Array] = []
    for seed in (1, 2, 1, 3):
        a, b = drawn(size, size + 8, dtype=dtype, seed=seed), drawn(size + 8, size, dtype=dtype)
        kept.append(tilewise.matmul(a, b))
        assert_right(kept[-1], a, b, dtype)
        assert_right(tilewise.matmul(a, a, transpose_a=True), a.T, a, dtype)
    assert np.array_equal(kept[0], kept[2])
    assert not np.array_equal(kept[0], kept[3])


def test_batches_at_once(gpu: Gpu) -> None:
    a, b = drawn(300, 40, 48), drawn(300, 48, 24, seed=1)
    for x, y in ((a, b), (a, b[7]), (a[3], b)):
        for _ in range(3):
            assert_right(tilewise.matmul(x, y), x, y, "float32")


def test_between_the_rows_of_out_nothing_is_written(gpu: Gpu) -> None:
    torch = pytest.importorskip("torch")
    a, b = drawn(2000, 700), drawn(700, 1501)
    for is_pinned in (False, True):
        whole = torch.full((2000, 1600), 7.0)
        whole = whole.pin_memory() if is_pinned else whole
        tilewise.matmul(a, b, out=whole.numpy()[:, :1501])
        assert_right(whole.numpy()[:, :1501], a, b, "float32")
        assert bool((whole[:, 1501:] == 7).all())


def test_mapped_files(gpu: Gpu, tmp_path: Path) -> None:
    a, b = drawn(2000, 900), drawn(900, 1100)
    np.save(tmp_path / "a.npy", a)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    out = np.lib.format.open_memmap(tmp_path / "c.npy", "w+", np.float32, (2000, 1100))
    tilewise.matmul(mapped, b, out=out, max_gpu_memory="5MB")
    out.flush()
    assert_right(np.load(tmp_path / "c.npy"), a, b, "float32")


def test_two_threads_at_once(gpu: Gpu) -> None:
    a, b = drawn(1500, 2500), drawn(2500, 2000)

    def run(i: int) -> Array:
        found: Array = tilewise.matmul(a, b, max_gpu_memory=[None, "20MB", "9MB"][i % 3])
        return found

    with ThreadPoolExecutor(5) as threads:
        for found in threads.map(run, range(15)):
            assert_right(found, a, b, "float32")


def test_two_processes_at_once(gpu: Gpu) -> None:
    code = (
        "import numpy as np, tilewise\n"
        "a = np.random.default_rng(0).standard_normal((3000, 3000), np.float32)\n"
        "for _ in range(5): c = tilewise.matmul(a, a)\n"
        "print(np.abs(c[:9].astype(float) - a[:9].astype(float) @ a).max() < 1e-2)\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for each in both:
        assert each.communicate(timeout=120)[0] == "True\n"


def test_an_error_leaves_nothing_behind(gpu: Gpu, held: Counter[str]) -> None:
    a = drawn(3000, 3000)
    tilewise.matmul(a, a.copy())
    assert min(held[name] for name in HELD) > 0
    tilewise.free_staging()
    assert_nothing(held)
    threads = copying_threads()
    calls = count()

    def fail(*args: Any) -> Any:
        if next(calls) == 4:  # when some parts are on their way
            raise OSError("made up")
        return packed(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilewise.host.copying.packed", fail)
        with pytest.raises(OSError, match="made up"):
            tilewise.matmul(a, a.copy())
    assert held["cuMemHostRegister"] == held["cuMemAlloc"] == 0
    tilewise.free_staging()
    assert_nothing(held)
    assert_soon(lambda: copying_threads() == threads)
    assert_right(tilewise.matmul(a, a.copy()), a, a, "float32")


def copying_threads() -> list[str]:
    """Return the names of the threads that copy; others may compile what the next call asks for."""
    names = (thread.name for thread in threading.enumerate())
    ours = ("tilewise copies", "tilewise loads", "tilewise stores")
    return [name for name in names if name in ours]


def again_and_again(a: Array, b: Array, out: Array) -> None:
    for _ in range(100):
        tilewise.matmul(a, b, out=out, max_gpu_memory="100MB")


def test_ctrl_c_leaves_nothing_behind(gpu: Gpu, held: Counter[str]) -> None:
    """In the middle of a product; the process goes on, and computes the next one."""
    a, b = drawn(9000, 9000), drawn(9000, 9000, seed=1)
    tilewise.matmul(a, b, max_gpu_memory="100MB")
    assert min(held[name] for name in HELD) > 0
    tilewise.free_staging()
    threads = copying_threads()
    out = np.zeros_like(a)
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        again_and_again(a, b, out)
    assert time.monotonic() - began < 5
    timer.join()
    tilewise.free_staging()
    assert_nothing(held)
    assert_soon(lambda: copying_threads() == threads)
    small = a[:300]
    assert_right(tilewise.matmul(small, b), small, b, "float32")


def test_free_staging(gpu: Gpu) -> None:
    a = drawn(3000, 3000)
    tilewise.matmul(a, a.copy())
    assert 0 < tilewise.free_staging() <= 512 << 20
    assert tilewise.free_staging() == 0


def test_memory_that_another_process_takes(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is planned anew for what is left."""
    a = drawn(3000, 3000)
    host_product.forget()
    rooms: list[int] = []
    planned, allocate = host_product.planned, GpuChannel.allocate

    def noting(*args: Any) -> Any:
        rooms.append(args[-1])
        return planned(*args)

    def refuse(self: GpuChannel, size: int) -> int:
        if len(rooms) < 2:
            raise MemoryError("made up")
        return allocate(self, size)

    monkeypatch.setattr(host_product, "planned", noting)
    monkeypatch.setattr(GpuChannel, "allocate", refuse)
    assert_right(tilewise.matmul(a, a), a, a, "float32")
    assert len(rooms) == 2


def test_explain_says_how_they_travel(gpu: Gpu) -> None:
    a = drawn(3000, 3000)
    said = " ".join(str(tilewise.explain(a, a.copy())).split())
    assert "72 MB there and 36 MB back; resident on the GPU" in said
    said = " ".join(str(tilewise.explain(a, a.copy(), max_gpu_memory="30MB")).split())
    assert "times the fewest bytes that so much memory allows; " in said
