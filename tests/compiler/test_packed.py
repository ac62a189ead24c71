"""Kernels in a file: another process has of them what it would have compiled."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import some

import tilewise
from tilewise import compiler
from tilewise.compiler import cache, machine_code, nvrtc, packed, shipped
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import RunResult, run

RUNGS = some([("tiled", 8), ("tiled_conflicts", 16), ("tuned", 16), ("ldmatrix", 32)], 2)


def product(name: str, tile: int) -> RunResult:
    a, b, c = random_problem(33, 20, 17, tilewise.rung(name).dtypes[0], 0)
    return run(name, a, b, c, alpha=2.0, beta=0.5, tile=tile, device="emulator")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither NVRTC nor nvdisasm, nothing in the cache, nothing remembered."""

    def missing(*_: Any) -> None:
        raise tilewise.DeviceUnavailableError("there is no NVRTC")

    monkeypatch.setattr(nvrtc, "_nvrtc", missing)
    nvrtc.architectures.cache_clear()
    monkeypatch.setattr(machine_code, "find_nvdisasm", lambda: None)
    monkeypatch.setattr(cache, "load", lambda _: None)
    monkeypatch.setattr(machine_code, "_given", {})
    compiler.forget()
    machine_code.disassemble.cache_clear()
    yield
    compiler.forget()
    machine_code.disassemble.cache_clear()


@pytest.fixture(scope="module")
def data() -> bytes:
    return packed.pack(tilewise.rung(name).kernel(tile=tile).request() for name, tile in RUNGS)


@pytest.fixture(scope="module")
def ordinary() -> dict[str, RunResult]:
    found = {name: product(name, tile) for name, tile in RUNGS}
    for each in found.values():  # which is found out when somebody asks
        assert each.report is not None
        assert each.report.counted_as == "machine code"
    return found


def test_they_count_as_what_was_compiled_here(
    data: bytes, ordinary: dict[str, RunResult], no_compiler: None
) -> None:
    with pytest.raises(tilewise.DeviceUnavailableError):
        product("tiled", 8)
    assert packed.unpack(data) == len(RUNGS)
    for name, tile in RUNGS:
        found, expected = product(name, tile), ordinary[name]
        assert found.correct
        assert np.array_equal(found.result, expected.result)
        assert found.report is not None
        assert expected.report is not None
        assert found.report.counters == expected.report.counters
        assert found.report.resources == expected.report.resources
        assert found.report.counted_as == expected.report.counted_as == "machine code"
        assert found.report.notes == expected.report.notes


@pytest.fixture(scope="module")
def watched() -> str:
    return tilewise.watch("tiled", 16, 16, 16, tile=8).page


def test_the_player_of_one_is_the_same(data: bytes, watched: str, no_compiler: None) -> None:
    packed.unpack(data)
    assert tilewise.watch("tiled", 16, 16, 16, tile=8).page == watched


def test_another_tile_is_not_in_it(data: bytes, no_compiler: None) -> None:
    packed.unpack(data)
    with pytest.raises(tilewise.DeviceUnavailableError):
        product("tiled", 16)


def test_it_does_not_say_where_it_was_made(data: bytes, no_compiler: None) -> None:
    whole = cache.unpack(data)
    assert whole is not None
    texts = [zlib.decompress(each) for each in whole.values() if isinstance(each, bytes)]
    assert len(texts) == len(RUNGS) + 1
    assert not any(str(shipped.FOLDER.parent).encode() in text for text in texts)
    packed.unpack(data)
    compiled = tilewise.rung("tiled").kernel(tile=8).compile()
    assert compiled.file == str(tilewise.rung("tiled").path)
    assert compiled.file in compiled.ptx


def test_a_file_of_other_kernels_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "digest", lambda: "another")
    with pytest.raises(ValueError, match="another version of tilewise"):
        packed.unpack(data)


def test_half_a_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not whole"):
        packed.unpack(data[: len(data) // 2])


def test_only_kernels_that_come_with_tilewise_are_packed(tmp_path: Path) -> None:
    path = tilewise.rung("tiled").path
    own = tilewise.Kernel('extern "C" __global__ void f() {}', "f")
    (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    copied = tilewise.Kernel(tmp_path / path.name, "tiled")
    limited = tilewise.rung("tiled").kernel(tile=8).request()._replace(limits=tilewise.Limits())
    for request in (own.request(), copied.request(), limited):
        with pytest.raises(ValueError, match="is no kernel that comes with tilewise"):
            packed.pack([request])


def test_what_would_count_otherwise_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    none = machine_code.Disassembly(None, "nvdisasm is not installed")
    monkeypatch.setattr(machine_code, "disassemble", lambda _: none)
    with pytest.raises(tilewise.CompileError, match="nvdisasm is not installed"):
        packed.pack([tilewise.rung("tiled").kernel(tile=8).request()])
