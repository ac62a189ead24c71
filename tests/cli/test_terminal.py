"""The command line and where it prints: narrow and wide terminals, pipes, full disks, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import hears_ctrl_c
from reference import thorough

from tilewise.cli.main import main

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
TILEWISE = [sys.executable, "-m", "tilewise_command"]
QUICK = (
    "run tiled -m 8 -n 8 -k 8 --device emulator",
    "profile tiled naive -m 8 -n 8 -k 8",
    "profile tiled -m 8 -n 8 -k 8 --lines",
    "explain -m 999 -n 777 -k 555",
    "tiles -m 4096 -n 4096 -k 4096",
    "kernels",
)
SLOW = (
    "ladder -m 16 -n 16 -k 16 --device emulator",
    "profile tiled",
    "occupancy tiled --arch sm_90 --arch sm_80",
    "roofline naive tiled -m 64 -n 64 -k 64 --on H200",
    "demo --device emulator",
    "doctor",
)
posix = pytest.mark.skipif(os.name == "nt", reason="of signals and devices that Windows has not")


def slow(*cases: Any) -> list[Any]:
    """Cases that run only with ``--thorough``: each starts a process."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=thorough)
        for case in cases
    ]


def numbers(text: str) -> set[str]:
    """Those that no table may cut; times differ from run to run."""
    text = re.sub(r"[\d.,]+ (s|ms|µs|files|MiB)\b", "", text)
    return set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b", text))


@pytest.mark.parametrize("words", [*QUICK, *slow(*SLOW)])
def test_what_is_printed_fits_the_terminal(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(words.split()) == 0
        found[columns] = capsys.readouterr().out
        assert max(len(line.rstrip()) for line in found[columns].splitlines()) <= columns
    for columns in (60, 200):
        # In a cell that is too narrow a number goes on in the next line, or is left out.
        lost = numbers(found[80]) - numbers(found[columns])
        assert not lost or "--lines" in words, lost


@pytest.mark.parametrize("columns", [48, 60, 61, 66])
@pytest.mark.parametrize("command", ["occupancy tiled --arch sm_90", "tiles -m 99 -n 99 -k 99"])
def test_no_word_is_broken_and_none_is_lost(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {}
    for each in (200, columns):
        monkeypatch.setenv("COLUMNS", str(each))
        assert main(command.split()) == 0
        words[each] = set(re.findall(r"[A-Za-z_]{3,}", capsys.readouterr().out))
    assert words[columns] <= words[200]
    if command.startswith("occupancy"):  # a table that is told row by row has one heading less
        assert words[columns] == words[200]


LONG = ("run", "naive", "-m", "2147483647", "-n", "1", "-k", "1")  # a minute draws its matrices
BEGUN = "import sys, tilewise_command as c; print('begun', flush=True); sys.exit(c.main())"
AT_ONCE = 10  # seconds, on a machine that has much else to do


def interrupt(
    after: float, begun: tuple[str, ...] = ("-c", BEGUN), path: Path | None = None
) -> None:
    """Send Ctrl-C to a long command so many seconds after it has begun."""
    first = {} if path is None else {"PYTHONPATH": f"{path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}
    process = subprocess.Popen(
        [sys.executable, *begun, *LONG], env={**ENVIRONMENT, **first}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hears_ctrl_c,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    since = time.monotonic()
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "tilewise: interrupted\n")
    assert time.monotonic() - since < AT_ONCE


@posix
@pytest.mark.parametrize(
    "words", ["kernels", *slow("kernels --json", "run tiled --device emulator")]
)
def test_a_full_disk_is_one_line(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [*TILEWISE, *words.split()], env=ENVIRONMENT, text=True, stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert found.returncode == 2
    assert found.stderr == "tilewise: can't write to standard output: No space left on device\n"


@posix
@pytest.mark.parametrize(
    ("closed", "words", "code"),
    [
        ("<&- >&- 2>&-", "run tiled -m 8 -n 8 -k 8 --device emulator", 0),
        *slow((">&-", "kernels", 0), ("2>&-", "run tiled --device emulator --json", 0)),
        *slow((">&- 2>&-", "run nothing", 2)),
    ],
)
def test_closed_streams_change_nothing(closed: str, words: str, code: int) -> None:
    """Neither is one of them a file that is opened later."""
    script = f"{' '.join(TILEWISE)} {words} {closed}"
    found = subprocess.run(
        ["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert found.returncode == code
    assert found.stderr == ""
    assert not found.stdout or json.loads(found.stdout)["correct"]


@posix
@pytest.mark.parametrize(
    "words", ["kernels", *slow("kernels --json", "explain -m 9 -n 9 -k 9", "--help")]
)
def test_a_reader_of_one_line_is_enough(words: str) -> None:
    script = f"{' '.join(TILEWISE)} {words} | head -1; exit ${{PIPESTATUS[0]}}"
    found = subprocess.run(
        ["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    assert found.returncode in (0, 141)  # what fits the pipe's buffer is written
    assert found.stdout.count("\n") == 1


@posix
@thorough
@pytest.mark.parametrize("after", [0.05, 0.1, 0.2, 0.4, 0.8])
def test_imports_are_interrupted(after: float) -> None:
    interrupt(after)


@posix
@pytest.mark.parametrize(
    "after", [0.1, *(pytest.param(each, marks=thorough) for each in (0.05, 0.15, 0.2, 0.3, 0.6))]
)
def test_the_package_as_a_module_is_interrupted(after: float, tmp_path: Path) -> None:
    # Python imports this before anything else, and so it is known when the rest begins.
    (tmp_path / "sitecustomize.py").write_text("print('begun', flush=True)\n")
    interrupt(after, ("-m", "tilewise"), tmp_path)


@posix
@thorough
def test_a_long_call_is_interrupted_at_once() -> None:
    interrupt(2)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tilewise run tiled_", ["tiled_conflicts", "tiled_branchless"]),
        *slow(
            ("tilewise ru", ["run"]),
            ("tilewise profile warp_", ["warp_tile"]),
            ("tilewise run tiled --til", ["--tile"]),
            ("tilewise run tiled --device e", ["emulator"]),
        ),
    ],
)
def test_a_shell_completes(words: str, completed: list[str]) -> None:
    asked = {
        "_TILEWISE_COMPLETE": "complete_bash", "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    found = subprocess.run(
        TILEWISE, env={**ENVIRONMENT, **asked}, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.split() == completed


@thorough  # a plain run has the script that is installed above
def test_completion_is_installed(tmp_path: Path) -> None:
    detected = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
    here = {"HOME": str(tmp_path), "SHELL": "/bin/bash", detected: "1"}
    found = subprocess.run(
        [*TILEWISE, "--install-completion", "bash"], env={**ENVIRONMENT, **here},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    assert "_TILEWISE_COMPLETE" in (tmp_path / ".bash_completions" / "tilewise.sh").read_text()


@posix
@pytest.mark.parametrize("words", ["run tiled --device emulator --out", "watch tiled -o"])
def test_a_device_is_not_replaced_by_a_file(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for name in (pipe, tmp_path / "link"):
        assert main([*words.split(), str(name)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == f"tilewise: can't write {name}: it is no regular file\n"
        assert pipe.is_fifo()
