"""``tilewise multiply``: exit codes, what is printed, JSON."""

from __future__ import annotations

import errno
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
from tilewise.files.npy import MatrixFile

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
        (["--memory", "4XB"], "--memory is '4XB'; it takes a size as 4GB, 1.5GiB or 512MiB"),
        (["--memory", "3"], "--memory is 3 bytes; one element of each matrix takes 16"),
        (["--device", "tpu"], "--device is 'tpu'; it takes one of auto, gpu, host"),
        (["-o", "none/C.npy"], "can't write none/C.npy: there is no folder none"),
        (["-o", "A.npy"], "the output A.npy is A itself; name another file"),
        (["-o", "C.txt"], "can't write C.txt: it would hold a matrix as numpy.save writes it, so "
         "the file's name must end in .npy, as C.npy"),
        (["-o", "C"], "the file's name must end in .npy, as C.npy"),
        (["-o", "-"], "the file's name must end in .npy"),
        (["-o", ""], "can't write .: it is a folder"),
        (["-o", "/dev/full"], "can't write /dev/full: it is no regular file"),
        (["-o", "../C.npy.gz"], "must end in .npy, as ../C.npy.npy"),
    ],
)  # fmt: skip
def test_bad_arguments(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *words]) == 2
    assert told in capsys.readouterr().err
    assert sorted(x.name for x in Path().iterdir()) == ["A.npy", "B.npy"]


def test_an_output_is_refused_before_an_input_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MatrixFile, "__init__", None)
    assert main([*WORDS, "-o", "C.txt"]) == 2
    assert "the file's name must end in .npy" in capsys.readouterr().err


def test_a_suffix_in_upper_case(folder: Path) -> None:
    assert main([*WORDS, "-o", "C.NPY"]) == 0
    assert np.load("C.NPY").shape == (70, 60)
    Path("A.npy").rename("A.NPY")
    assert main(["multiply", "A.NPY", *WORDS[2:], "-o", ".npy"]) == 0
    assert np.load(".npy").shape == (70, 60)


def test_outputs_that_are_links(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "to.npy").symlink_to("A.npy")
    (folder / "hard.npy").hardlink_to("A.npy")
    (folder / "dangling.npy").symlink_to("none/C.npy")
    (folder / "loop.npy").symlink_to("loop.npy")
    (folder / "new.npy").symlink_to("here.npy")
    before = Path("A.npy").read_bytes()
    for out, told in (
        ("to.npy", "the output to.npy is A itself"),
        ("hard.npy", "the output hard.npy is A itself"),
        ("dangling.npy", f"can't write dangling.npy: there is no folder {folder.resolve()}/none"),
        ("loop.npy", "can't write loop.npy: it is a symbolic link that leads back to itself"),
    ):
        assert main([*WORDS, "-o", out, "--force"]) == 2
        assert told in capsys.readouterr().err
    assert Path("A.npy").read_bytes() == before
    assert main([*WORDS, "-o", "new.npy"]) == 0
    assert Path("new.npy").is_symlink()
    assert np.load("here.npy").shape == (70, 60)


@pytest.mark.parametrize("suffix", [".part", ".journal", ".journal.new", ".lock"])
def test_an_input_that_lies_where_the_output_is_written(
    suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted run leaves such files, and the next run removes them before it begins."""
    there = Path("A.npy").rename(f"C.npy{suffix}")
    before = there.read_bytes()
    assert main(["multiply", str(there), *WORDS[2:]]) == 2
    told = f"A is {there}, and {there} is where C.npy is written until it is complete"
    assert told in capsys.readouterr().err
    assert there.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_limit_on_the_size_of_files(folder: Path) -> None:
    """Python writes no bytecode (-B): the limit would truncate those files, too."""
    program = (
        "import resource, sys\nfrom tilewise.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        f"sys.exit(main({WORDS!r}))"
    )
    found = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert found.returncode == 2
    assert found.stderr == f"tilewise: {folder.resolve()}/C.npy.part: File too large\n"
    assert sorted(each.name for each in folder.iterdir()) == ["A.npy", "B.npy"]


def test_a_full_disk_at_the_first_byte(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock can't be written either, and the message names it rather than standard output."""

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tilewise.files.unfinished.os.write", full)
    assert main(WORDS) == 2
    monkeypatch.undo()
    assert "C.npy.lock: No space left on device" in capsys.readouterr().err
    assert not Path("C.npy.lock").exists()


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
