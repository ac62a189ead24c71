"""Macros on the command line: -D and -U, of every command that compiles a file's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import SIGNATURE, Tilewise

from tilewise.cli.commands.sources import macros_of

pytestmark = pytest.mark.usefixtures("no_machine_code")

COMMANDS = ("run", "profile", "watch", "roofline", "occupancy")


@pytest.mark.parametrize("command", COMMANDS)
def test_macros(command: str, tilewise: Tilewise) -> None:
    Path("m.cu").write_text(
        '__global__ void k(int* x) {\n#ifndef SIZE\n#error "no size"\n#endif\n'
        "#ifdef EMPTY\nx[0] = SIZE;\n#endif\n}"
    )
    words = ["--grid", "1", "--block", "1", "--args", "zeros:1"]
    if command == "occupancy":  # of one architecture, for it compiles for each
        words = [*words[2:4], "--arch", "sm_90"]
    assert "no size" in tilewise(command, "m.cu:k", *words).err
    assert tilewise(command, "m.cu:k", *words, "-D", "SIZE=7", "-DEMPTY").code == 0
    told = tilewise(command, "m.cu:k", *words, "-D", "7=SIZE").err
    assert "-D is '7=SIZE'; it takes NAME=VALUE or NAME, as TILE=16" in told
    told = tilewise(command, "m.cu:k", *words, "-D", "SIZE=7", "-U", "FAST=1").err
    assert "-U is 'FAST=1'; it takes a macro's name, as FAST" in told
    told = tilewise(command, "m.cu:k", *words, "-D", "SIZE=7", "-U", "SIZE").err
    assert "-D SIZE and -U SIZE say the opposite" in told
    assert tilewise(command, "m.cu:k", *words, "-D", "SIZE=7", "--undefine", "EMPTY").code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_macros_that_are_not_defined(command: str, tilewise: Tilewise) -> None:
    Path("m.cu").write_text(
        '#include "config.h"\n__global__ void k(int* x) {\n#ifdef FAST\nx[0] = 5;\n#else\n'
        "x[0] = 3;\n#endif\n}\nint main() { std::vector<int> v; }\n"
    )
    words = ["--grid", "1", "--block", "1", "--args", "zeros:1"]
    if command == "occupancy":
        words = [*words[2:4], "--arch", "sm_90"]
    found = tilewise(command, "m.cu:k", *words)
    assert found.code == 2
    told = " ".join(found.err.split())
    assert "with --include, or define FAST, or say that it is not defined (-U FAST)" in told
    assert "defines=" not in told
    assert tilewise(command, "m.cu:k", *words, "-U", "FAST").code == 0
    if command == "run":
        for macro, value in (("-UFAST", 3), ("-DFAST", 5), ("-DFAST=False", 5)):
            assert tilewise(command, "m.cu:k", *words, macro, "--expect", f"x = {value}").code == 0


def test_macros_of_products_are_numbers(tilewise: Tilewise) -> None:
    assert macros_of(["A=16", "B=-2", "C=a b", "D", "E="]) == {
        "A": 16, "B": -2, "C": "a b", "D": True, "E": ""
    }  # fmt: skip
    assert macros_of(["A=False"], ["B", "B"]) == {"A": "False", "B": False}
    Path("p.cu").write_text(
        f"__global__ void k{SIGNATURE} {{\n"
        "int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;\n"
        "if (row >= m || col >= n) return;\nreal sum = 0;\n"
        "for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];\n"
        "c[row * ldc + col] = alpha * sum;\n}"
    )
    assert tilewise("run", "p.cu:k", "-D", "TILE=8", "--json").json["tile"] == 8
    assert "-D is for FILE.cu:NAME" in tilewise("run", "tiled", "-D", "TILE=8").err
    assert "-U is for FILE.cu:NAME" in tilewise("run", "tiled", "-U", "FAST").err
