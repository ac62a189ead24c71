"""List the projects, and find the kernels of those whose checkouts are in a folder."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from projects.case import Case, Program

PROJECTS = {
    "SGEMM_CUDA": "sgemm_cuda",
    "xGeMM": "xgemm",
    "fast.cu": "fast_cu",
    "triton": "triton_tutorials",
    "numba-cuda": "numba_examples",
    "cuda-samples": "cuda_samples",
}  # the folder's name and the module's


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the checkouts, and the options that choose some of the kernels."""
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="WORDS", help="kernels with this in the name")
    parser.add_argument("--project", choices=PROJECTS, help="of this project alone")


def cases(folder: Path, project: str | None, words: str) -> Iterator[tuple[str, Case | Program]]:
    """Yield the kernels to run, each with its project's name."""
    for name, module in PROJECTS.items():
        if project in (None, name) and (folder / name).is_dir():
            for case in import_module(f"projects.{module}").CASES:
                if words in f"{case.file}:{case.kernel}":
                    yield name, case


def origin(folder: Path) -> str:
    """Return the commit of a checkout; empty if the folder is no checkout."""

    def git(*words: str) -> str:
        asked = ["git", "-C", str(folder), "rev-parse", *words]
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip()

    return git("HEAD") if git("--show-toplevel") == str(folder.resolve()) else ""


def without_paths(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a record whose files are named by their paths in a project, tilewise or a package."""
    text = json.dumps(record)
    for root in (folder.resolve(), Path(__file__).parents[2]):
        text = text.replace(f"{root}/", "")
    found: dict[str, Any] = json.loads(re.sub(r"/[^\s\"]*/site-packages/", "", text))
    return found
