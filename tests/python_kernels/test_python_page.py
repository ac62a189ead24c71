"""The programs of docs/python.md and docs/pytorch.md print what the pages show.

``python tests/python_kernels/test_python_page.py`` writes these outputs anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from reference import is_thorough

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "python.md", ROOT / "docs" / "pytorch.md")
BLOCK = re.compile(r"```python\n(# (\w+\.py)\n.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)
PROGRAMS = {
    name: (body, output)
    for page in PAGES
    for body, name, output in BLOCK.findall(page.read_text("utf-8"))
}


def printed(name: str, body: str, folder: Path) -> str:
    """What a program prints, in a folder of its own."""
    (folder / name).write_text(body, encoding="utf-8")
    return _run([name], folder)


def _run(words: Sequence[str], folder: Path) -> str:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {
        "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONWARNINGS": "ignore",
        "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    return done.stdout


# A process for all programs: each runs as if it were the only one, and prints apart.
ALL = """
import contextlib, io, json, runpy, sys, traceback
found = {}
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            runpy.run_path(name, run_name="__main__")
        except Exception:
            traceback.print_exc(file=said)
    found[name] = said.getvalue()
print(json.dumps(found))
"""


def all_printed(programs: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What some programs print, one after another in one process: PyTorch is imported once."""
    for name, body in programs.items():
        (folder / name).write_text(body, encoding="utf-8")
    found: dict[str, str] = json.loads(_run(["-c", ALL, *programs], folder))
    return found


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, str]]:
    """Runs all programs that can run here, and gives what each printed."""

    @cache
    def run() -> dict[str, str]:
        programs = {name: body for name, (body, _) in PROGRAMS.items() if not missing(body)}
        return all_printed(programs, tmp_path_factory.mktemp("programs"))

    return run


def missing(body: str) -> str:
    """The package that a program needs and that is not installed; empty where all are."""
    for package, word in (
        ("triton", "import triton\n"), ("torch", "import torch\n"), ("numba_cuda", "from numba"),
    ):  # fmt: skip
        if word in body and importlib.util.find_spec(package) is None:
            return package
    return ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path, together: Callable[[], dict[str, str]]) -> None:
    """With ``--thorough`` each in a process of its own, as its reader runs it."""
    body, output = PROGRAMS[name]
    if package := missing(body):
        pytest.skip(f"{package} is not installed")
    assert (printed(name, body, tmp_path) if is_thorough() else together()[name]) == output


def test_what_is_looked_at() -> None:
    assert list(PROGRAMS) == [
        "double.py", "program.py", "reverse.py", "train.py", "fused.py", "mlp.py", "graph.py",
    ]  # fmt: skip


def _refresh() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        for body, name, output in BLOCK.findall(text):
            if missing(body):
                continue
            with tempfile.TemporaryDirectory() as folder:
                new = printed(name, body, Path(folder))
            text = text.replace(
                f"{body}```\n\n```text\n{output}```", f"{body}```\n\n```text\n{new}```"
            )
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _refresh()
