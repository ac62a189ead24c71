"""The programs of docs/python.md and docs/pytorch.md print what the pages show.

``python tests/python_kernels/test_python_page.py`` writes these outputs anew.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {
        "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONWARNINGS": "ignore",
        "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, name], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    return done.stdout


def missing(body: str) -> str:
    """The package that a program needs and that is not installed; empty where all are."""
    for package, word in (
        ("triton", "import triton\n"), ("torch", "import torch\n"), ("numba_cuda", "from numba"),
    ):  # fmt: skip
        if word in body and importlib.util.find_spec(package) is None:
            return package
    return ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path) -> None:
    body, output = PROGRAMS[name]
    if package := missing(body):
        pytest.skip(f"{package} is not installed")
    assert printed(name, body, tmp_path) == output


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
