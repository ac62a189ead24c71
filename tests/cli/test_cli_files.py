"""``tilewise multiply``: exit codes, what is printed, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import matrix, save

from tilewise.cli.main import main
from tilewise.files.execute import OnHost

WORDS = ["multiply", "A.npy", "B.npy", "-o", "C.npy", "--device", "host"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(tmp_path, A=matrix(70, 50), B=matrix(50, 60))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--memory", "8kB", "--check"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("C.npy: written, m = 70, n = 60, k = 50, float32\n")
    assert "right in a sample, against float64" in out
    assert "any order moves" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--json", "--check", "--memory", "8kB"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert found["correct"] is found["check"]["correct"] is True
    assert found["bytes_read"] + found["bytes_written"] == found["bytes_moved"]


def test_a_wrong_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Any, a: Any, b: Any, sums: Any, is_first: bool) -> None:
        sums[...] = 7

    monkeypatch.setattr(OnHost, "__call__", wrong)
    assert main([*WORDS, "--check"]) == 1
    out = capsys.readouterr().out
    assert "C.npy: not written" in out
    assert "WRONG in a sample" in out
    assert not Path("C.npy").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--memory", "4XB"], "memory is '4XB'; it takes a size as 4GB, 1.5GiB or 512MiB"),
        (["--memory", "3"], "memory is 3 bytes; one element of each matrix takes 16"),
        (["--device", "tpu"], "--device is 'tpu'; it takes one of auto, gpu, host"),
        (["-o", "none/C.npy"], "can't write none/C.npy: there is no folder none"),
        (["-o", "A.npy"], "the output A.npy is A itself; name another file"),
    ],
)
def test_bad_arguments(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *words]) == 2
    assert told in capsys.readouterr().err
    assert sorted(x.name for x in Path().iterdir()) == ["A.npy", "B.npy"]


def test_an_output_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("C.npy").write_text("mine")
    assert main(WORDS) == 2
    assert "C.npy is there already; --force replaces it" in capsys.readouterr().err
    assert main([*WORDS, "--force"]) == 0
    assert np.load("C.npy").shape == (70, 60)


def test_pickles_are_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("A.npy", np.array([[print]], dtype=object), allow_pickle=True)
    assert main([*WORDS, "--json"]) == 2
    out, err = capsys.readouterr()
    assert "holds Python objects, which are never read" in err
    assert json.loads(out)["kind"] == "TypeError"


@pytest.mark.skipif(sys.platform != "linux", reason="it reads Linux's count of a process's memory")
def test_memory_is_kept_within_the_budget() -> None:
    """The most that the process holds grows by little more than the budget."""
    program = (
        "import resource, sys\nimport numpy as np\nimport tilewise\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10\n"
        "x = np.ones((600, 600), np.float32); x @ x; before = peak()\n"
        "tilewise.multiply_files('A.npy', 'B.npy', 'C.npy', memory='24MB', device='host')\n"
        "print(peak() - before)\n"
    )
    save(Path(), A=matrix(3000, 2500), B=matrix(2500, 3000))
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert int(found.stdout) < 32e6
