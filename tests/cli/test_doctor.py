"""``tilewise doctor``: says what is there, and what a missing thing is missing for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewise.cli import doctor
from tilewise.cli.main import main
from tilewise.compiler import cache as compiler_cache
from tilewise.compiler import machine_code as sass
from tilewise.compiler import nvrtc, toolkit
from tilewise.compiler.ptx import assembler
from tilewise.errors import DeviceUnavailableError
from tilewise.kernel import Kernel


def items() -> dict[str, doctor.Item]:
    return {item.name: item for item in doctor.diagnose().items}


def test_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    found = {item["name"]: item for item in document["items"]}
    assert found["numpy"]["detail"] == np.__version__
    assert found["emulator"]["state"] == "ok"
    major, minor = nvrtc.version()
    assert found["NVRTC"]["detail"].startswith(f"{major}.{minor}, ")
    assert "sm_90" in found["NVRTC"]["detail"]


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "tilewise works here." in out
    assert max(map(len, out.splitlines())) <= 80


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise DeviceUnavailableError("NVRTC can't be loaded. pip install this")

    monkeypatch.setattr(nvrtc, "version", broken)
    assert main(["doctor"]) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "MISSING NVRTC" in out
    assert "pip install this" in out
    assert "does not work here" in out


def test_a_self_test_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such luck\nsecond line")

    monkeypatch.setattr(Kernel, "launch", launch)
    found = items()["emulator"]
    assert found.state == "missing"
    assert found.detail == "the self-test failed: RuntimeError: no such luck"


def test_without_an_assembler_kernels_of_ptx_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    found = doctor.diagnose()
    item = next(item for item in found.items if item.name == "assembler")
    assert (item.state, found.ok) == ("absent", True)
    assert 'pip install "tilewise[ptx]"' in item.detail


def test_without_nvdisasm_the_emulator_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "find_nvdisasm", lambda: None)
    found = doctor.diagnose()
    item = next(item for item in found.items if item.name == "nvdisasm")
    assert item.state == "absent"
    assert "pip install nvidia-cuda-nvdisasm" in item.detail
    assert found.ok


def test_cudas_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    place = toolkit.Toolkit(Path("/some/include"), "CUDA_HOME", (13, 4), ())
    monkeypatch.setattr(toolkit, "find", lambda: place)
    found = items()["CUDA headers"]
    assert (found.state, found.detail) == ("ok", "13.4, of CUDA_HOME, at /some/include")
    monkeypatch.setattr(toolkit, "find", lambda: replace(place, lacks=("nvidia-cuda-crt",)))
    found = items()["CUDA headers"]
    assert found.state == "absent"
    assert "without nvidia-cuda-crt" in found.detail
    monkeypatch.setattr(toolkit, "find", lambda: None)
    found = items()["CUDA headers"]
    assert found.state == "absent"
    assert 'pip install "tilewise[headers]"' in found.detail
    assert doctor.diagnose().ok


def test_without_a_gpu_it_says_what_for() -> None:
    # In a process of its own, because a driver that was once initialised keeps its GPUs.
    code = (
        "from tilewise.cli import doctor; [print(i.name, i.state, i.detail) for i in doctor._gpu()]"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "absent" in found.stdout
    assert "the emulator needs none" in found.stdout


@pytest.mark.parametrize(("version", "state"), [(12080, "absent"), (13000, "ok"), (14000, "ok")])
def test_a_driver_older_than_the_compiler(
    monkeypatch: pytest.MonkeyPatch, version: int, state: str
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    driver = SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=0), CUdevice_attribute=None,
        cuInit=lambda _: (0,), cuDriverGetVersion=lambda: (0, version),
        cuDeviceGetCount=lambda: (0, 0),
    )  # fmt: skip
    monkeypatch.setattr("cuda.bindings.driver", driver)
    monkeypatch.setattr(doctor, "_compiled_for", lambda: 13)
    found = next(item for item in doctor._gpu() if item.name == "driver")
    assert found.state == state
    assert f"for CUDA {version // 1000}.{version % 1000 // 10}" in found.detail
    assert ("kernels need one for CUDA 13" in found.detail) == (state == "absent")


@pytest.mark.parametrize("there", [True, False])
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "cache"
    if there:
        folder.mkdir()
        (folder / "entry").write_bytes(bytes(3 << 20))
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(folder))
    found = items()["cache folder"]
    assert found.state == "ok"
    assert (f"{folder}, 1 file, 3.0 MiB" in found.detail) == there


def test_no_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(compiler_cache, "directory", lambda: tmp_path / "file")
    found = doctor._cache()
    assert found.state == "absent"
    assert "not writable" in found.detail
    monkeypatch.setattr(compiler_cache, "directory", lambda: None)
    assert "TILEWISE_CACHE_DIR" in doctor._cache().detail


def test_optional_packages_say_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version_of", lambda package: None)
    for item in doctor._optional():
        assert item.state == "absent"
        assert doctor.OPTIONAL[item.name] in item.detail
