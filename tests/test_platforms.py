"""What runs where Linux does not: without what only POSIX has, and without NVIDIA's packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from reference import thorough

ROOT = Path(__file__).parents[1]

# As on Windows: these modules and functions are not there.
WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("fork", "sysconf", "sched_getaffinity", "getuid", "geteuid", "killpg", "link"):
    if hasattr(os, name):
        delattr(os, name)
"""
# As on macOS: pip installs none of them.
WITHOUT_NVIDIA = """
import sys
sys.modules["cuda"] = None
"""
COMMANDS = """
import json
from tilewise.cli.main import main
for words in {words!r}:
    print(words, main(words.split()), file=sys.stderr)
"""


def run(before: str, words: list[str], folder: Path) -> tuple[dict[str, int], str]:
    """The exit code of each command line, and what was printed."""
    found = subprocess.run(
        [sys.executable, "-c", before + COMMANDS.format(words=words)], cwd=folder, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEWISE_CACHE_DIR": str(folder / "cache")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    lines = found.stderr.splitlines()
    codes = {w: int(x.rpartition(" ")[2]) for w in words for x in lines if x.startswith(f"{w} ")}
    return codes, found.stdout + found.stderr


@thorough
def test_without_what_only_posix_has(tmp_path: Path) -> None:
    words = [
        "run tiled --device emulator", "watch tiled", "profile tiled -m 256 -n 256 -k 256",
        "explain -m 64 -n 64 -k 64", "occupancy tiled --arch sm_90", "doctor",
    ]  # fmt: skip
    codes, told = run(WITHOUT_POSIX, words, tmp_path)
    assert codes == dict.fromkeys(words, 0), told
    assert (tmp_path / "tiled.html").exists()


@thorough
def test_without_nvidias_packages(tmp_path: Path) -> None:
    """What compiles says what is missing; what only counts works."""
    fine = ["explain -m 64 -n 64 -k 64", "tiles -m 64 -n 64 -k 64", "kernels"]
    missing = ["run tiled --device emulator", "watch tiled", "doctor"]
    codes, told = run(WITHOUT_NVIDIA, fine + missing, tmp_path)
    assert codes == {**dict.fromkeys(fine, 0), **dict.fromkeys(missing, 2)}, told
    assert "NVRTC" in told
    assert "Traceback" not in told


def test_no_file_names_a_folder_of_one_system() -> None:
    for path in sorted((ROOT / "tilewise").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "/tmp" not in text, path
        # Linux alone has the server that forks.
        assert ("os.fork()" in text) == (path.name == "fork_server.py"), path
        assert "import fcntl" not in text, path
