"""What the system says of this machine's memory."""

from __future__ import annotations

import os

import pytest

from tilewise import host_memory

needs_sysconf = pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the system has no sysconf")


@needs_sysconf
def test_what_is_free_is_a_part_of_what_there_is() -> None:
    free, there = host_memory.available(), host_memory.installed()
    assert there is not None
    assert free is None or 0 < free <= there


@needs_sysconf
@pytest.mark.parametrize(("said", "wanted"), [(256, 256 * 256), (-1, None)])
def test_a_system_may_not_say(
    monkeypatch: pytest.MonkeyPatch, said: int, wanted: int | None
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: said)
    assert host_memory.installed() == wanted


def test_a_system_without_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sysconf", raising=False)
    assert host_memory.installed() is None
