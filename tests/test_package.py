"""The package as `pip install` brings it: what is in the wheel, its readme, and that it runs."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
import types
import venv
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from reference import thorough

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")
# Nothing of the checkout, and nothing of the environment that the tests run in.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
}


def call(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip")
    needed = PROJECT["build-system"]["requires"]
    asked = call(*pip, "download", "--no-deps", "-d", folder / "needed", *needed, folder=folder)
    if asked.returncode:
        pytest.skip(f"pip can't have {', '.join(needed)}: {asked.stderr.strip()[-200:]}")
    built = call(*pip, "wheel", "--no-deps", "-w", folder, ROOT, folder=folder)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@thorough
def test_all_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = call("git", "ls-files", "tilewise", "tilewise_command.py", folder=ROOT)
    if listed.returncode == 0:
        assert inside == set(listed.stdout.split())
    assert {"tilewise/py.typed", "tilewise/kernels/ladder/05_tiled.cu", "tilewise_command.py",
            "tilewise/exercises/data/01_index/exercise.toml"} <= inside  # fmt: skip


@thorough
def test_its_readme_leads_nowhere_that_is_not_there(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "pip install tilewise" in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []


@thorough
def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    installed = call(programs / "python", "-m", "pip", "install", wheel, folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    listed = call(
        programs / "python", "-m", "pip", "list", "--format", "json", folder=tmp_path
    ).stdout
    assert not {"nvidia-nvvm", "nvidia-nvjitlink"} & {each["name"] for each in json.loads(listed)}
    tilewise = programs / "tilewise"

    def said(*words: str) -> Any:
        done = call(tilewise, *words, "--json", folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    assert said("doctor")["ok"] is True
    found = said("run", "tiled_conflicts", "--device", "emulator")
    assert found["correct"] is True
    assert found["counters"]["shared_load_bank_conflicts"] > 0
    assert found["counted_as"] == "machine code"
    assert said("watch", "tiled")["correct"] is True
    packed = re.findall(r"[A-Za-z0-9+/]{1000,}={0,2}", (tmp_path / "tiled.html").read_text())
    parts = [gzip.decompress(base64.b64decode(each)).decode() for each in packed]
    assert any("function open(" in each for each in parts)
    assert any(each.startswith("{") and "blocks" in json.loads(each) for each in parts)
    assert said("explain", "-m", "64", "-n", "64", "-k", "64")["launches"]
    # Its GPU's part can be imported, with none of what a linker would need.
    core = call(
        programs / "python", "-c", "import cuda.core, cuda.bindings.driver", folder=tmp_path
    )
    assert core.returncode == 0, core.stderr


def abroad(text: str, source: str | None) -> str:
    """What ``hatch_build.py`` makes of a readme; hatchling itself need not be installed."""
    parts = ["hatchling", "metadata", "plugin", "interface"]
    stub: Any = types.ModuleType("stub")
    stub.MetadataHookInterface = object
    stubs = {".".join(parts[: i + 1]): stub for i in range(len(parts))}
    with mock.patch.dict(sys.modules, stubs):
        found: str = runpy.run_path(str(ROOT / "hatch_build.py"))["abroad"](text, source)
    return found


def test_links_of_the_readme_below_a_public_address() -> None:
    text = abroad("![p](docs/a.png) [b](docs/b.md#x) [c](https://c.d) [e](#f)", "https://g.h/i/")
    assert text == (
        "![p](https://g.h/i/raw/HEAD/docs/a.png) [b](https://g.h/i/blob/HEAD/docs/b.md#x) "
        "[c](https://c.d) [e](#f)"
    )


def test_links_of_the_readme_without_one() -> None:
    text = abroad("A\n\n![p](docs/a.png)\n\nB [b](docs/b.md#x), [docs/c.md](docs/c.md)", None)
    assert text == "A\n\nB b (`docs/b.md`), `docs/c.md`"


def test_what_it_names_is_there() -> None:
    for name, target in PROJECT["project"]["scripts"].items():
        module, function = target.split(":")
        assert name == "tilewise"
        assert callable(getattr(__import__(module), function))
    for path in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / path.lstrip("/")).exists(), path
    assert README.index("pip install tilewise") < README.index("make demo")
