"""``FILE.ptx:NAME`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import PLACE, SIGNATURE, Tilewise

from tilewise.compiler.ptx import assembler
from tilewise.kernel import Kernel

SOURCE = f"""extern "C" __global__ void k{SIGNATURE} {{{PLACE}
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum;
}}
"""
SIZES = ("-m", "8", "-n", "8", "-k", "8")


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A kernel of PTX that has the ladder's signature."""
    compiled = Kernel(SOURCE, "k", {"real": "float", "TILE": 16}).compile("sm_80")
    path = tmp_path / "mine.ptx"
    path.write_text(compiled.ptx)
    return f"{path}:k"


@pytest.mark.parametrize("command", ["run", "profile", "watch", "roofline"])
def test_every_command_takes_ptx(
    command: str, target: str, tilewise: Tilewise, tmp_path: Path
) -> None:
    page = ("--out", str(tmp_path / "page.html")) if command == "watch" else ()
    outcome = tilewise(command, target, *SIZES, *page)
    assert outcome.code == 0, outcome.err


@pytest.mark.skipif(not assembler.tools(), reason="neither nvJitLink nor ptxas is here")
def test_occupancy_takes_ptx(target: str, tilewise: Tilewise) -> None:
    outcome = tilewise("occupancy", target, "--arch", "sm_90")
    assert outcome.code == 0, outcome.err
    assert "sm_90" in outcome.out


def test_occupancy_without_an_assembler_says_what_is_missing(
    target: str, tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    outcome = tilewise("occupancy", target, "--arch", "sm_86")
    assert outcome.code == 2
    assert "the registers of k are not known: neither nvJitLink nor ptxas" in outcome.err


def test_what_is_wrong_with_a_name_is_said(target: str, tilewise: Tilewise) -> None:
    file = target.removesuffix(":k")
    for words, message in (
        ((file,), "say which kernel in it"),
        ((f"{file}:",), "names no kernel"),
        ((f"{file}:no",), "no kernel called 'no'; it has k"),
        ((f"{file}x:k",), "or a kernel of your own, as FILE.cu:NAME or FILE.ptx:NAME"),
        (("none.ptx:k",), "there is no file none.ptx"),
        ((target, "--trusted"), "trusted is for CUDA C++"),
    ):
        outcome = tilewise("run", *words, *SIZES)
        assert outcome.code == 2, outcome
        assert message in " ".join(outcome.err.split()), outcome.err
