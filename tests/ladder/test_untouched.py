"""Elements of C that a kernel leaves as they were, and results that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from commands import PLACE, SIGNATURE, Tilewise, save

from tilewise.devices import Device
from tilewise.kernel import Kernel
from tilewise.ladder.run import RunResult, run

BODY = """
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum + (beta == 0 ? 0 : beta * c[row * ldc + col]);
}
"""
HEAD = f'extern "C" __global__ void own{SIGNATURE} {{{PLACE}\n'
LEAVES = HEAD + "    if (row >= m || col >= n || (row > 1 && col != 0)) return;" + BODY
RIGHT = HEAD + "    if (row >= m || col >= n) return;" + BODY
MAKES = RIGHT.replace("alpha * sum", "(row == 1 && col == 2 ? MADE : alpha * sum)")
INFINITY = "1 / (alpha - alpha)"


def outcome(source: str, *matrices: Any, **given: Any) -> RunResult:
    return run(Kernel(source, "own"), *matrices, tile=4, **given)


def test_elements_that_nobody_wrote_are_told(emulator: Device) -> None:
    a = np.ones((5, 3), np.float32)
    found = outcome(LEAVES, a, np.ones((3, 4), np.float32), device=emulator)
    assert not found.correct
    assert found.untouched is not None
    assert (found.untouched.count, found.untouched.first) == (9, (2, 1))
    told = "9 elements of C were never written, the first of them C[2][1]"
    assert told in str(found)
    assert found.to_dict()["unwritten"] == {"count": 9, "first": [2, 1], "is_certain": True}
    assert outcome(RIGHT, a, np.ones((3, 4), np.float32), device=emulator).untouched is None


@pytest.mark.parametrize("checks", ["raise", "collect", "off"])
def test_what_was_never_written_is_wrong_even_where_it_is_zero_by_luck(
    checks: str, emulator: Device
) -> None:
    a = np.zeros((5, 3), np.float32)
    found = outcome(LEAVES, a, np.ones((3, 4), np.float32), device=emulator, checks=checks)
    assert found.check.correct
    assert not found.correct
    assert not found.to_dict()["correct"]


def test_elements_that_are_as_before_are_told_where_the_result_is_wrong(device: Device) -> None:
    a, b = np.ones((5, 3), np.float32), np.ones((3, 4), np.float32)
    c = np.arange(20, dtype=np.float32).reshape(5, 4)
    found = outcome(LEAVES, a, b, c, beta=1.0, device=device)
    assert found.to_dict()["unwritten"] == {"count": 9, "first": [2, 1], "is_certain": False}
    assert "9 elements of C are as they were before the launch, the first of them C[2][1]" in str(
        found
    )
    assert outcome(RIGHT, a * 0, b, c, beta=1.0, device=device).untouched is None


def test_the_command_line_says_that_c_was_not_written(
    tilewise: Tilewise, emulator: Device, tmp_path: Any
) -> None:
    path = tmp_path / "own.cu"
    path.write_text(HEAD + "}\n")
    found = tilewise("run", f"{path}:own", "-m", 2, "-n", 2, "-k", 2)
    assert found.code == 1
    assert "no element of C was ever written" in found.out
    found = tilewise("run", f"{path}:own", "-m", 2, "-n", 2, "-k", 2, "--json")
    assert found.json["unwritten"]["count"] == 4


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (INFINITY, "C has 1 infinity, at C[1][2], where the inputs have none"),
        (f"0 * ({INFINITY})", "C has 1 NaN, at C[1][2], where the inputs have none"),
    ],
)
def test_a_result_that_is_not_finite_is_wrong_and_told(
    made: str, told: str, device: Device
) -> None:
    a, b = np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)
    found = outcome(MAKES.replace("MADE", made), a, b, device=device)
    assert not found.correct
    assert told in " ".join(str(found).split())
    document = found.to_dict()
    assert document["nan"] + document["infinite"] == 1
    assert document["first_not_finite"] == [1, 2]


def test_an_overflow_is_right_and_told(device: Device) -> None:
    a, b = np.full((2, 3), 3e38, np.float32), np.ones((3, 2), np.float32)
    found = outcome(RIGHT, a, b, device=device)
    assert found.correct
    told = "C has 4 infinities, the first at C[0][0], where the inputs have none: sums overflow"
    assert told in " ".join(str(found).split())


def test_inputs_that_are_not_finite_are_told(tilewise: Tilewise, tmp_path: Any) -> None:
    a = np.ones((3, 3), np.float32)
    a[1, 2] = np.nan
    save(tmp_path, a=a, b=np.ones((3, 3), np.float32))
    files = ("--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy")
    found = tilewise("run", "tiled", *files)
    assert found.code == 0
    told = "C has 3 NaN, the first at C[1][0]; of the inputs 1 element is not finite"
    assert told in " ".join(found.out.split())
    path = tmp_path / "own.cu"
    path.write_text(RIGHT.replace("alpha * sum", "1"))
    found = tilewise("run", f"{path}:own", *files)
    assert found.code == 1
    told = "C is finite; of the inputs 1 element is not"
    assert told in " ".join(found.out.split())


def test_nothing_is_told_of_what_is_not_read(device: Device) -> None:
    a, b = np.full((2, 3), np.nan, np.float32), np.ones((3, 2), np.float32)
    found = outcome(RIGHT.replace("alpha * sum", "0"), a, b, alpha=0.0, device=device)
    assert found.correct
    assert "finite" not in str(found)
