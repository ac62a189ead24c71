"""What is kept from product to product, and who waits for whom."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tilewise.host import staging
from tilewise.host.copiers import Copiers


class FakeGpu:
    class context:
        current = nullcontext


class FakeGpuChannel:
    def __init__(self, gpu: Any) -> None:
        self.gpu, self.pinned, self.is_open = gpu, 1000, True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(staging, "GpuChannel", FakeGpuChannel)
    return staging._Staging()


def test_a_channel_is_used_again(kept: Any) -> None:
    gpu = FakeGpu()
    with kept.channel(gpu) as first:
        pass
    with kept.channel(gpu) as second, kept.channel(gpu) as third:
        assert second is first
        assert third is not first
    assert kept.free() == 2000
    assert not first.is_open
    assert kept.free() == 0


def test_one_that_fails_is_closed(kept: Any) -> None:
    gpu = FakeGpu()
    with pytest.raises(OSError, match="made up"), kept.channel(gpu) as failed:
        raise OSError("made up")
    assert not failed.is_open
    with pytest.raises(ValueError, match="too small"), kept.channel(gpu) as asked:
        raise ValueError("too small")
    assert asked.is_open
    assert kept.free() == 1000


def test_what_is_freed_during_a_product(kept: Any) -> None:
    gpu = FakeGpu()
    with kept.channel(gpu) as busy:
        assert kept.free() == 0
        assert busy.is_open
    assert kept.free() == 1000


def test_a_third_product_waits(kept: Any) -> None:
    gpus = FakeGpu(), FakeGpu()
    done: list[int] = []

    def third(gpu: Any) -> None:
        with kept.channel(gpu):
            done.append(1)

    with kept.channel(gpus[0]), kept.channel(gpus[0]), kept.channel(gpus[1]):
        with kept.channel(gpus[1]):
            threads = [threading.Thread(target=third, args=(gpu,), daemon=True) for gpu in gpus]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            assert not done
        threads[1].join(5)
        assert len(done) == 1
    threads[0].join(5)
    assert len(done) == 2


def test_copies_and_their_errors() -> None:
    copiers = Copiers(3)
    source = np.arange(3_000_000).reshape(3, 1000, 1000)
    for view in (source, source[:, ::2], source[:1, :1], source.swapaxes(0, 2)):
        to = np.zeros(view.shape, view.dtype)
        copiers.copy(to, view).wait()
        assert np.array_equal(to, view)
    locked = np.zeros(10)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        copiers.copy(locked, np.ones(10)).wait()
    copiers.copy(np.zeros(10), np.ones(10)).cancel()
    before = threading.active_count()
    copiers.close()
    assert threading.active_count() == before - 3
