"""What ``import tilewise`` offers: names, documentation, types, examples that run."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import thorough

import tilewise
from tilewise.lens.profile import Profile
from tilewise.lens.watch import Watch

ROOT = Path(__file__).parent.parent


def test_names_are_there_before_they_are_used() -> None:
    """In a new process: here another test may have looked through the lens."""
    program = (
        "import sys, tilewise\n"
        f"assert set({tilewise.__all__!r}) <= set(dir(tilewise))\n"
        "assert not [x for x in sys.modules if x.startswith('tilewise.lens')]\n"
        "assert callable(tilewise.profile) and callable(tilewise.watch)\n"
        "assert tilewise.profile is tilewise.profile\n"
        "from tilewise import *\n"
        "assert watch is tilewise.watch\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'tilewise' has no attribute 'multiply'"):
        tilewise.multiply  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", tilewise.__all__)
def test_all_of_it_is_documented(name: str) -> None:
    found = getattr(tilewise, name)
    if not callable(found):
        return
    docstring = inspect.getdoc(found)
    assert docstring
    assert docstring.split("\n")[0].endswith("."), docstring.split("\n")[0]


@pytest.mark.parametrize("name", tilewise.__all__)
def test_examples_run(name: str, emulator: object) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for example in finder.find(getattr(tilewise, name), name, globs={"np": np}):
        assert doctest.DocTestRunner().run(example).failed == 0, example.name


def test_profile_and_watch() -> None:
    found = tilewise.profile("tiled", 40, 40, 8, tile=8)
    assert isinstance(found, Profile)
    assert found.problem is not None
    assert [found.problem[size] for size in "mnk"] == [40, 40, 8]
    default = tilewise.profile("tiled")
    assert default.problem is not None
    assert [default.problem[size] for size in "mnk"] == [64, 64, 64]
    assert isinstance(tilewise.watch("tiled"), Watch)


@pytest.mark.parametrize("function", [tilewise.profile, tilewise.watch])
def test_a_launch_of_ones_own_is_no_product(function: Any) -> None:
    """The error says where it belongs, and names no inner function."""
    source = 'extern "C" __global__ void twice(int n, float* x) { x[threadIdx.x] *= n; }'
    kernel = tilewise.Kernel(source, "twice")
    x = np.ones(32, np.float32)
    for args, more, first in (
        ((), {"grid": 1, "block": 32}, f"{function.__name__}() has no argument 'grid'"),
        ((1, 32, (2, x)), {}, "k is (2, array("),
        ((), {}, "twice takes 2 arguments, not 11"),
    ):  # fmt: skip
        with pytest.raises(TypeError) as caught:
            function(kernel, *args, **more)
        told = str(caught.value)
        assert told.startswith(first)
        assert "profiled by kernel.profile(grid, block, args)" in told
        assert "profile_product" not in told
    with pytest.raises(TypeError, match=r"\(\) has no argument 'dtpye'; did you mean dtype\?"):
        function("tiled", dtpye="float64")


def test_an_architecture_is_no_device_but_names_an_emulator() -> None:
    kernel = tilewise.Kernel("__global__ void k() {}", "k")
    with pytest.raises(ValueError, match=r"there are auto, gpu, emulator\. .*emulator\('sm_80'\)"):
        kernel.launch(1, 1, (), device="sm_80")
    with pytest.raises(ValueError, match=r"there are auto, gpu, emulator$"):
        tilewise.get_device("H100")


@thorough
def test_types_of_what_the_readme_shows(tmp_path: Path) -> None:
    """mypy, as strict as can be, of the README's programs, and of what the lens gives."""
    pytest.importorskip("mypy")
    from test_readme import README, programs

    program = tmp_path / "readme_programs.py"
    shown = (
        'reveal_type(tilewise.watch("tiled"))\n'
        'reveal_type(tilewise.profile("tiled", 512, 512, 512))\n'
        "reveal_type(kernel.launch(1, 1, ()))\n"
    )
    program.write_text(programs(README.read_text()) + shown)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml",
         "--cache-dir", ROOT / ".mypy_cache", program],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    for kind in ("lens.watch.Watch", "lens.profile.Profile", "launch.LaunchReport"):
        assert f'Revealed type is "tilewise.{kind}"' in found.stdout
