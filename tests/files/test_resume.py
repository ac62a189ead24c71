"""Products in files that are interrupted: what is left, and how they go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import hears_ctrl_c
from reference import thorough

import tilewise
from tilewise.files import execute, multiply
from tilewise.files.unfinished import InUseError, Unfinished

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
OPTIONS: dict[str, Any] = {"device": "host", "memory": 4_000}
FILES = ("A.npy", "B.npy", "C.npy")
posix = pytest.mark.skipif(os.name == "nt", reason="of signals that Windows has not")

# Ends itself by a signal in the middle of the work.
PROGRAM = """
import os, signal, sys
import tilewise, tilewise_command
from tilewise.files import execute, multiply

execute.RECORDED = 0

def stop(done, total, kill=os.kill, pid=os.getpid()):
    if done > total * {share}:
        kill(pid, signal.{signal})

real = multiply.execute
def run(*given, progress, **more):
    return real(*given, progress=stop, **more)
multiply.execute = run
sys.argv = ["tilewise", "multiply", "A.npy", "B.npy", "-o", "C.npy", "--device", "host",
            "--memory", "4000", *{more}]
sys.exit(tilewise_command.main())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    drawn = np.random.default_rng(0)
    for name, shape in (("A", (61, 50)), ("B", (50, 47))):
        np.save(tmp_path / f"{name}.npy", drawn.standard_normal(shape).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stopped(share: float, by: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(share=share, signal=by, more=list(more))],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=50,
        preexec_fn=hears_ctrl_c,
    )  # fmt: skip


def whole() -> bytes:
    """The result of a run that nothing interrupts."""
    tilewise.multiply_files("A.npy", "B.npy", "whole.npy", **OPTIONS)
    return Path("whole.npy").read_bytes()


def names(folder: Path) -> set[str]:
    return {x.name for x in folder.iterdir()}


@pytest.mark.sampled(2)
@posix
@pytest.mark.parametrize("share", [0.3, 0.97])
def test_killed_and_resumed_it_gives_the_same_bytes(folder: Path, share: float) -> None:
    assert stopped(share, "SIGKILL").returncode == -signal.SIGKILL
    assert names(folder) == {"A.npy", "B.npy", "C.npy.part", "C.npy.journal", "C.npy.lock"}
    found = tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True, check=True)
    assert 0 < found.resumed < found.tiles
    assert found.correct
    assert Path("C.npy").read_bytes() == whole()
    assert names(folder) == {*FILES, "whole.npy"}


@posix
@thorough
def test_killed_twice(folder: Path) -> None:
    stopped(0.3, "SIGKILL")
    first = json.loads(Path("C.npy.journal").read_text())["done"]
    stopped(0.7, "SIGKILL", "--resume")
    assert json.loads(Path("C.npy.journal").read_text())["done"] > first
    tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True)
    assert Path("C.npy").read_bytes() == whole()


@posix
def test_ctrl_c_leaves_no_output_and_can_be_resumed(folder: Path) -> None:
    found = stopped(0.5, "SIGINT")
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "tilewise: interrupted\n")
    assert names(folder) == {"A.npy", "B.npy", "C.npy.part", "C.npy.journal"}
    tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True)
    assert Path("C.npy").read_bytes() == whole()


@thorough
@posix
def test_ctrl_c_before_the_first_tile_leaves_nothing(folder: Path) -> None:
    assert stopped(-1, "SIGINT").returncode == 130
    assert names(folder) == {"A.npy", "B.npy"}


@posix
def test_json_of_ctrl_c(folder: Path) -> None:
    found = stopped(0.5, "SIGINT", "--json")
    assert json.loads(found.stdout) == {"error": "interrupted", "kind": "KeyboardInterrupt"}


def interrupted(monkeypatch: pytest.MonkeyPatch, share: float = 0.5) -> None:
    """Leave a part that is not finished, in this process."""

    def stop(done: int, total: int) -> None:
        if done > total * share:
            raise KeyboardInterrupt

    monkeypatch.setattr(execute, "RECORDED", 0)
    with pytest.raises(KeyboardInterrupt):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, progress=stop)
    assert Path("C.npy.journal").exists()


@pytest.mark.usefixtures("folder")
def test_without_resume_it_begins_anew_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch)
    found = tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS)
    assert found.resumed == 0
    assert found.notes == ("what an interrupted run had left was removed",)
    assert Path("C.npy").read_bytes() == whole()


@pytest.mark.usefixtures("folder")
def test_a_run_that_is_refused_leaves_what_another_has_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted(monkeypatch)
    before = Path("C.npy.part").read_bytes()
    with pytest.raises(ValueError, match="memory is 3 bytes"):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", device="host", memory=3)
    monkeypatch.setattr(multiply, "_MOST_PRODUCTS", 5)
    with pytest.raises(ValueError, match=r"which cuts the product into .*; give so much that"):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS)
    assert Path("C.npy.part").read_bytes() == before
    assert Path("C.npy.journal").exists()


def test_ctrl_c_in_the_check_leaves_no_output_and_only_the_check_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(multiply, "check_sample", stop)
    with pytest.raises(KeyboardInterrupt):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, check=True)
    assert names(folder) == {"A.npy", "B.npy", "C.npy.part", "C.npy.journal"}
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    found = tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True, check=True)
    assert (found.resumed, found.bytes_read, found.bytes_written) == (found.tiles, 0, 0)
    assert found.correct
    assert Path("C.npy").read_bytes() == whole()


@pytest.mark.usefixtures("folder")
def test_with_nothing_to_resume_it_begins_and_says_so() -> None:
    found = tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True)
    assert found.notes == ("there was nothing to resume: it began with the first tile",)


@pytest.mark.usefixtures("folder")
def test_more_memory_does_not_matter_and_less_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch)
    with pytest.raises(ValueError, match=r"the tiles of the interrupted run take .*give that much"):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", device="host", memory=900, resume=True)
    found = tilewise.multiply_files("A.npy", "B.npy", "C.npy", device="host", resume=True)
    assert found.resumed
    assert Path("C.npy").read_bytes() == whole()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("matrix", ["A", "B"])
def test_other_inputs_are_refused(matrix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch)
    path = Path(f"{matrix}.npy")
    os.utime(path, ns=(1, 1))
    told = f"is of another run: {matrix} was another file, or was changed since; give what .*anew"
    with pytest.raises(ValueError, match=told):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True)
    assert Path("C.npy.part").exists()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"device": "gpu"}, "it ran on 'gpu', and this would be on 'host'"),
        ({"version": 0}, "is no journal that can be resumed"),
        ({"done": 10**6}, "is damaged; run it without resume=True"),
        ({"plan": {"block_m": 0}}, "is damaged"),
        (None, "is no journal that can be resumed"),
    ],
)
def test_journals_that_do_not_fit(
    change: dict[str, Any] | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch)
    journal = Path("C.npy.journal")
    text = journal.read_text()
    journal.write_text(text[:50] if change is None else json.dumps({**json.loads(text), **change}))
    with pytest.raises(ValueError, match=told):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True)


@pytest.mark.usefixtures("folder")
def test_a_part_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch)
    os.truncate("C.npy.part", 1000)
    with pytest.raises(ValueError, match="has 1,000 bytes, and should have"):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, resume=True)


@posix
def test_two_processes_with_one_output(folder: Path) -> None:
    """The second refuses; what a killed process left is no lock."""
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tilewise.files.unfinished import Unfinished\n"
        "with Unfinished(Path('C.npy')).locked():\n"
        "    print('locked', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(InUseError, match=f"process {other.pid} writes .* at this moment"):
            tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS)
        other.kill()
    assert names(folder) == {"A.npy", "B.npy", "C.npy.lock"}
    tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS)
    assert names(folder) == set(FILES)


@pytest.mark.usefixtures("folder")
def test_two_threads_with_one_output() -> None:
    told: list[str] = []

    def again(done: int, total: int) -> None:
        with ThreadPoolExecutor() as pool, pytest.raises(InUseError) as error:
            pool.submit(tilewise.multiply_files, "A.npy", "B.npy", "C.npy", **OPTIONS).result()
        told.append(str(error.value))

    tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, progress=again)
    assert "another thread of this process writes" in told[0]
    assert not Path("C.npy.lock").exists()


@pytest.mark.usefixtures("folder")
def test_an_input_that_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def touch(done: int, total: int) -> None:
        if done == total:
            os.utime("A.npy", ns=(1, 1))

    with pytest.raises(OSError, match=r"matrix A: A\.npy was changed while it was read"):
        tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, progress=touch)
    assert not Path("C.npy").exists()


@pytest.mark.usefixtures("folder")
def test_progress_goes_on_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch)
    seen: list[int] = []
    tilewise.multiply_files(
        "A.npy", "B.npy", "C.npy", **OPTIONS, resume=True,
        progress=lambda done, total: seen.append(100 * done // total),
    )  # fmt: skip
    assert 25 < seen[0] < 75
    assert seen == sorted(seen)
    assert seen[-1] == 100


def test_a_new_output_has_the_mode_of_the_old_one(folder: Path) -> None:
    Path("C.npy").touch()
    Path("C.npy").chmod(0o600)
    tilewise.multiply_files("A.npy", "B.npy", "C.npy", **OPTIONS, force=True)
    assert Path("C.npy").stat().st_mode & 0o777 == 0o600
    assert not Unfinished(folder / "C.npy").discard()
