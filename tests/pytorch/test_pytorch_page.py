"""The programs of docs/pytorch.md print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reference import thorough

pytestmark = pytest.mark.usefixtures("torch")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n# (\w+\.py)\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_each_program_is_shown_with_what_it_prints() -> None:
    assert len(PROGRAMS) == PAGE.count("```python\n") >= 4


# A quick run runs them in tests/python_kernels/test_python_page.py, all in one process.
@thorough
@pytest.mark.parametrize(("name", "body", "shown"), PROGRAMS, ids=[x[0] for x in PROGRAMS])
def test_what_a_program_prints(name: str, body: str, shown: str, tmp_path: Path) -> None:
    """As a file, which is where the source of its classes is read."""
    path = tmp_path / name
    path.write_text(body)
    done = subprocess.run(
        [sys.executable, str(path)], text=True, capture_output=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, expected = (
        re.sub(r"(?<=loss )\S+|[ \t]+$", "", x, flags=re.M) for x in (done.stdout, shown)
    )
    assert found == expected
