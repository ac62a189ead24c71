"""Call the command line in tests, with kernels of a user's own and matrices in files."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from signatures import SOURCE as SIGNATURES

from tilewise.cli.main import main
from tilewise.devices import Device

SIGNATURE = """(int m, int n, int k, real alpha, const real* a, int lda,
    const real* b, int ldb, real beta, real* c, int ldc)"""
PLACE = """
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;"""
SOURCE = f"""
extern "C" __global__ void forgets_last{SIGNATURE} {{{PLACE}
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int p = 0; p < k - 1; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum;
}}
extern "C" __global__ void no_guard{SIGNATURE} {{{PLACE}
    c[row * ldc + col] = 0;
}}
extern "C" __global__ void talks{SIGNATURE} {{{PLACE}
    if (row >= m || col >= n) return;
    if (row == 0 && col == 0) printf("k is %d\\n", k);
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum;
}}
extern "C" __global__ void asserts{SIGNATURE} {{
    assert(k < 0);
}}
"""


def save(folder: Path, **matrices: Any) -> None:
    """Write matrices to ``NAME.npy`` in a folder."""
    for name, matrix in matrices.items():
        np.save(folder / f"{name}.npy", matrix)


def matrix(rows: int, columns: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return random normal numbers, the same ones for the same size."""
    return np.random.default_rng(rows * columns).standard_normal((rows, columns)).astype(dtype)


NO_DEVICE = ("doctor", "kernels", "occupancy", "profile", "roofline", "watch")  # no --device


class Outcome:
    """The exit code and the output of a command line, which is run when this is made."""

    def __init__(self, capsys: pytest.CaptureFixture[str], device: str, words: list[str]) -> None:
        self.code = main(words if words[0] in NO_DEVICE else [*words, "--device", device])
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err

    @property
    def json(self) -> Any:
        """The output as JSON, in which NaN and infinities are errors."""
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


Tilewise = Callable[..., Outcome]


def hears_ctrl_c() -> None:
    """Let a process hear Ctrl-C before its program begins; a shell's background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def as_if_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there is a GPU, for commands that refuse everything without one."""
    monkeypatch.setattr("tilewise.cli.main.require_gpu", lambda: None)


def present(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Pretend that of the optional packages these are installed, and no others."""
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name in packages else None
    )


@pytest.fixture
def tilewise(
    capsys: pytest.CaptureFixture[str],
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Tilewise:
    """Return a function that calls the command line on the device under test, 80 columns wide.

    The test runs in a folder of its own.
    """
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return lambda *words: Outcome(capsys, device.name, [str(word) for word in words])


@pytest.fixture
def k_cu(tmp_path: Path) -> None:
    """Write the kernels of :mod:`signatures` to ``k.cu``, in the folder of ``tilewise``."""
    (tmp_path / "k.cu").write_text(SIGNATURES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file with the kernels of :data:`SOURCE`."""
    path = tmp_path / "own.cu"
    path.write_text(SOURCE)
    return path


RunWatch = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunWatch:
    """Return a function that runs ``tilewise watch`` in an empty folder: exit code, out, err."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        code = main(["watch", *map(str, words)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
