"""``FILE.ptx:NAME`` on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


COPY = """.version 8.0
.target {target}
.address_size 64
.visible .entry copy(.param .u32 copy_param_0, .param .u64 copy_param_1, .param .u64 copy_param_2)
{{
.reg .b32 %r<3>; .reg .f32 %f; .reg .b64 %rd<6>; .reg .pred p;
ld.param.u32 %r1, [copy_param_0]; mov.u32 %r2, %tid.x;
setp.ge.u32 p, %r2, %r1;
@p bra done;
ld.param.u64 %rd1, [copy_param_1]; ld.param.u64 %rd2, [copy_param_2];
mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f, [%rd4];
st.global.f32 [%rd5], %f;
done: ret;
}}
"""


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("copy.ptx")
    path.write_text(COPY.format(target="sm_80"))
    return path


LAUNCH = ("--grid", "1", "--block", "8", "--args", "8", "arange:8:float32", "zeros:8:float32")


@pytest.mark.parametrize("name", ["2", "copy_param_2"])
@pytest.mark.usefixtures("copy")
def test_parameters_are_named_by_place(name: str, tilewise: Tilewise) -> None:
    outcome = tilewise(
        "run", "copy.ptx:copy", *LAUNCH, "--expect", f"{name} = copy_param_1", "--out",
        f"{name}=y.npy",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "right: copy_param_2 = copy_param_1" in " ".join(outcome.out.split())
    assert np.load("y.npy").tolist() == list(range(8))
    outcome = tilewise("run", "copy.ptx:copy", *LAUNCH, "--expect", f"{name}=y.npy")
    assert outcome.code == 0, outcome.err


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", ["3", "0", "99999"])
@pytest.mark.usefixtures("copy")
def test_places_of_no_array_are_refused(place: str, tilewise: Tilewise) -> None:
    outcome = tilewise("run", "copy.ptx:copy", *LAUNCH, "--expect", f"{place} = 4")
    assert outcome.code == 2
    assert "is no array" in outcome.err
    assert "here are copy_param_1, copy_param_2" in outcome.err
    outcome = tilewise("run", "copy.ptx:copy", *LAUNCH, "--out", f"{place}=y.npy")
    assert outcome.code == 2
    assert "with an array's name (copy_param_1, copy_param_2)" in outcome.err


@pytest.mark.skipif(not assembler.tools(), reason="neither nvJitLink nor ptxas is here")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_occupancy_is_that_of_the_ptxs_target(arch: str, copy: Path, tilewise: Tilewise) -> None:
    copy.write_text(COPY.format(target=arch))
    outcome = tilewise("occupancy", "copy.ptx:copy", "--block", "128")
    assert outcome.code == 0, outcome.err
    assert arch.removesuffix("a") in outcome.out
    assert "sm_100" not in outcome.out
    assert "left out" not in outcome.out
