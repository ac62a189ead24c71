"""What is kept from product to product, and who waits for whom."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any

import numpy as np
import pytest
from waiting import assert_soon

from tilewise.host import staging
from tilewise.host.copiers import OTHERS, Copiers, Copying, _Share, _Tasks


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


def test_what_is_to_be_copied_first() -> None:
    """Shares that are to be copied first overtake the others; threads end behind all of them."""
    tasks, to = _Tasks(), np.zeros(1)
    shares = [_Share(Copying(1), to, to) for _ in range(4)]
    for share, is_first in zip(shares, (False, True, False, True), strict=True):
        tasks.put(share, is_first)
    tasks.end(1)
    found = [tasks.get() for _ in range(5)]
    order = [next((i for i, each in enumerate(shares) if each is x), None) for x in found]
    assert order == [1, 3, 0, 2, None]


def test_others_are_not_held_up_by_what_is_to_be_copied_first() -> None:
    tasks, to = _Tasks(), np.zeros(1)
    tasks.put(_Share(Copying(1), to, to), False)
    later = Copying(1)
    tasks.put(_Share(later, to, to), False)
    for _ in range(4 * OTHERS):
        tasks.put(_Share(Copying(1), to, to), True)
    taken = [share.copying for share in (tasks.get() for _ in range(2 * OTHERS)) if share]
    assert len(taken) == 2 * OTHERS
    assert later in taken


def test_a_share_whose_putting_ctrl_c_interrupted_holds_nothing_up() -> None:
    """It is copied with the next ones, which wait for no more shares than there are."""
    copiers = Copiers(1)
    to, source = np.zeros(4), np.ones(4)
    copiers._tasks._first.append(_Share(Copying(1), to, source))
    for _ in range(3):
        progress = copiers.copy(np.zeros(4), source)
        assert progress._ended.wait(10)
    assert to.all()
    copiers.close()


def interrupted(call: Callable[..., Any], at: int, *, after: bool = False) -> Callable[..., Any]:
    """Return a function whose call number ``at`` is interrupted by Ctrl-C, before or after it."""
    calls = count()

    def called(*args: Any) -> Any:
        is_interrupted = next(calls) == at
        if is_interrupted and not after:
            raise KeyboardInterrupt
        found = call(*args)
        if is_interrupted:
            raise KeyboardInterrupt
        return found

    return called


def copying() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tilewise copies"]


@pytest.mark.parametrize("at", [0, 3, 15])
@pytest.mark.parametrize("after", [False, True])
def test_threads_end_if_their_pools_beginning_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    before = copying()
    with monkeypatch.context() as patch:
        patch.setattr(
            threading.Thread, "start", interrupted(threading.Thread.start, at, after=after)
        )
        with pytest.raises(KeyboardInterrupt) as error:
            Copiers(16)
        assert len(copying()) == len(before) + at + after
        del error
    gc.collect(1)  # the error's traceback referred to the pool; older generations need none
    assert_soon(lambda: copying() == before)


def test_threads_end_when_nothing_refers_to_their_pool() -> None:
    before = copying()
    copiers = Copiers(4)
    to = np.zeros(10)
    progress = copiers.copy(to, np.ones(10))
    del copiers
    progress.wait()
    assert to.all()
    assert_soon(lambda: copying() == before)


def test_what_is_lent_when_ctrl_c_comes_is_not_busy_for_ever(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, before = FakeGpu(), copying()
    kept.copiers()

    class Interrupting(dict[Any, Any]):
        def get(self, *_: Any) -> Any:
            raise KeyboardInterrupt

        setdefault = get

    with monkeypatch.context() as patch:
        patch.setattr(kept, "_idle", Interrupting())
        for _ in range(staging.MOST_CHANNELS):
            with pytest.raises(KeyboardInterrupt), kept.channel(gpu):
                pass
    with kept.channel(gpu), kept.channel(gpu):
        pass
    kept.free()
    assert copying() == before
