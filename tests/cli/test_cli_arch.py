"""``--arch``: every command that compiles or runs a kernel does so for that architecture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import SIGNATURE, Tilewise
from reference import is_thorough, some, thorough

from tilewise import compiler
from tilewise.cli.main import main
from tilewise.devices import Device
from tilewise.ladder.rungs import RUNGS

pytestmark = pytest.mark.usefixtures("emulator", "no_machine_code")


# It is right for this architecture alone.
OWN = f"""
extern "C" __global__ void own{SIGNATURE} {{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = __CUDA_ARCH__ == 800 ? alpha * sum : 1e9f;
}}
"""
SIZES = ("-m", 16, "-n", 16, "-k", 16)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("own.cu").write_text(OWN)
    return "own.cu:own"


@pytest.mark.parametrize("command", ["run", "profile", "watch"])
def test_commands_on_a_kernel(command: str, own: str, tilewise: Tilewise) -> None:
    assert tilewise(command, own, *SIZES, "--tile", 8, "--json").json["correct"] is False
    found = tilewise(command, own, *SIZES, "--tile", 8, "--arch", "sm_80", "--json")
    assert found.code == 0, found.err
    assert found.json["correct"]
    assert found.json["arch"] == "sm_80"


SMALL = ("-m", 16, "-n", 16, "-k", 16)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "persistent", *SMALL, "--arch", "sm_80"),
        ("profile", "persistent", *SMALL, "--arch", "sm_80"),
        pytest.param(
            ("profile", "tensor_core", "persistent", *SMALL, "--arch", "sm_80"), marks=thorough
        ),
        ("watch", "persistent", *SMALL, "--arch", "sm_80"),
        ("roofline", "persistent", *SMALL, "--on", "A100"),
        ("roofline", "persistent", *SMALL, "--on", "H200", "--arch", "sm_80"),
        ("occupancy", "persistent", "--arch", "sm_80"),
        pytest.param(
            ("occupancy", "persistent", "--arch", "sm_90a", "--arch", "sm_80"), marks=thorough
        ),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_a_rung_for_another_architecture(words: tuple[object, ...], tilewise: Tilewise) -> None:
    """One sentence that says which compute capability it needs, and not the assembler's errors."""
    found = tilewise(*words)
    assert found.code == 2
    assert found.err.splitlines()[0] == (
        "tilewise: persistent needs compute capability 9.0 and no other (sm_90a), and this is "
        "sm_80; an emulator of sm_90a runs it on any machine"
    )
    assert "error:" not in found.err


@thorough
def test_occupancy_leaves_out_what_cannot_run_a_rung(
    tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [*some(compiler.architectures(), 0), "sm_75", "sm_80", "sm_90", "sm_90a"]
    monkeypatch.setattr(compiler, "architectures", lambda: tuple(dict.fromkeys(known)))
    rows = tilewise("occupancy", "tensor_core", "--tile", 32, "--json").json
    assert {row["arch"] for row in rows["rows"]} >= {"sm_80", "sm_90a"}
    (old,) = (left for left in rows["left_out"] if left["arch"] == "sm_75")
    assert old["why"] == (
        "tensor_core needs compute capability 8.0 or later, and this is sm_75; an emulator of "
        "sm_80 runs it on any machine"
    )
    only = tilewise("occupancy", "warpgroup", "--json").json
    assert [row["arch"] for row in only["rows"]] == ["sm_90a"]


def test_the_trace_says_for_which(own: str, tilewise: Tilewise) -> None:
    words = (*SIZES, "--tile", 8, "--arch", "sm_80", "--trace", "t.json")
    assert tilewise("watch", own, *words).code == 0
    assert json.loads(Path("t.json").read_text())["arch"] == "sm_80"


@pytest.mark.parametrize("words", [["--dtype", "float16"], pytest.param([], marks=thorough)])
def test_the_ladder(words: list[str], tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        if not is_thorough():  # it compiles each rung
            few = [each for each in RUNGS if each.name == "tensor_core" or each.needs == "sm_90a"]
            patch.setattr("tilewise.ladder.climb.rungs_of", lambda dtype: tuple(few))
        found = tilewise("ladder", *SIZES, "--arch", "sm_80", *words, "--json")
    assert found.code == 0
    assert found.json["arch"] == "sm_80"
    assert {row["arch"] for row in found.json["rungs"]} == {"sm_80"}
    assert found.json["notes"] == [
        "not run on sm_80: warpgroup, specialized, persistent (sm_90a alone)"
    ]
    none = tilewise("ladder", *SIZES, "--arch", "sm_75", "--dtype", "float16")
    assert none.code == 2
    assert "no rung of float16: not run on sm_75: tensor_core, ldmatrix, " in none.err


def test_the_demo(tilewise: Tilewise) -> None:
    found = tilewise("demo", "--arch", "sm_80", "--json")
    assert found.json["tiled"]["arch"] == "sm_80"


def test_roofline(own: str, tilewise: Tilewise) -> None:
    words = ("roofline", *SIZES, own, "--tile", 8, "--on", "H200")
    assert tilewise(*words, "--json").json["arch"] == "sm_90a"
    found = tilewise(*words, "--arch", "sm_80", "--json").json
    assert found["arch"] == "sm_80"
    assert found["correct"]


def test_roofline_of_code_that_the_gpu_does_not_run(own: str, tilewise: Tilewise) -> None:
    found = tilewise("roofline", *SIZES, own, "--tile", 8, "--on", "H200", "--arch", "sm_100")
    assert found.code == 2
    assert "--arch is sm_100, and NVIDIA H200 is sm_90" in " ".join(found.err.split())


def test_on_the_page_and_in_the_report(own: str, tilewise: Tilewise) -> None:
    told = tilewise("run", own, *SIZES, "--tile", 8, "--arch", "sm_80").out
    assert "on the emulator of sm_80" in told
    assert "of sm_" not in tilewise("run", "tiled", *SIZES).out


@pytest.mark.parametrize("command", ["run tiled", "ladder", "demo"])
def test_a_gpu_has_an_architecture_of_its_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--device", "gpu", "--arch", "sm_80"]) == 2
    assert (
        "--arch is sm_80, and --device is gpu: a GPU runs code for its own architecture; give "
        "--device emulator" in " ".join(capsys.readouterr().err.split())
    )


@pytest.mark.parametrize(
    "command",
    [
        "run tiled",
        "demo",
        pytest.param("ladder -m 16 -n 16 -k 16 --dtype float16", marks=thorough),
    ],
)
def test_by_itself_it_asks_for_the_emulator(
    command: str, emulator: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--arch", "sm_80"]) == 0
    assert "on the emulator of sm_80" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "command", ["run tiled", "profile tiled", "watch tiled", "ladder", "demo", "roofline tiled"]
)
@pytest.mark.parametrize("arch", ["sm80", "sm_70"])
def test_one_that_there_is_not(
    command: str, arch: str, tilewise: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = SIZES if command.startswith("roofline") else ()
    found = tilewise(*command.split(), *sizes, "--arch", arch)
    assert found.code == 2
    assert repr(arch) in found.err
    assert not list(tmp_path.iterdir())
