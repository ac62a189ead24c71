"""Kernels of others on the command line: what they may read, and what they may take."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import PLACE, SIGNATURE, Tilewise
from reference import thorough

from tilewise import isolated
from tilewise.cli.commands.sources import limits_of
from tilewise.cli.main import main
from tilewise.devices import Device, get_device
from tilewise.kernel import Kernel
from tilewise.ladder.run import run
from tilewise.launch import LaunchReport
from tilewise.limits import Limits

ENDLESS = f'extern "C" __global__ void k{SIGNATURE} {{{PLACE}\n    while (1) c[0] = 2;\n}}\n'
RIGHT = f"""extern "C" __global__ void k{SIGNATURE} {{{PLACE}
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum;
}}
"""
COMMANDS = ("run", "profile", "watch", "roofline", "occupancy")


def words(command: str, target: str, folder: Path) -> list[str]:
    sizes = {"occupancy": [], "watch": ["--out", str(folder / "page.html")]}
    return [command, target, *sizes.get(command, ["-m", "8", "-n", "8", "-k", "8"])]


# occupancy compiles for each architecture.
@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", [*COMMANDS[:-1], pytest.param(COMMANDS[-1], marks=thorough)])
def test_every_command_reads_what_it_may(command: str, tilewise: Tilewise, tmp_path: Path) -> None:
    for folder, text in (("own", '#include "more.cuh"\n'), ("far", "// nothing\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(text + RIGHT)
    (tmp_path / "far" / "more.cuh").write_text("#define MORE\n")
    target = f"{tmp_path / 'own' / 'k.cu'}:k"
    given = words(command, target, tmp_path)
    outcome = tilewise(*given)
    assert outcome.code == 2
    assert "more.cuh" in outcome.err
    assert tilewise(*given, "--include", str(tmp_path / "far")).code == 0
    (tmp_path / "own" / "k.cu").write_text(f'#include "{tmp_path / "far" / "more.cuh"}"\n' + RIGHT)
    outcome = tilewise(*given)
    assert outcome.code == 2
    assert "outside the folder of the source" in outcome.err
    assert tilewise(*given, "--trusted").code == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["run", "profile", "roofline"])
def test_no_command_waits_for_ever(
    command: str, tilewise: Tilewise, device: Device, tmp_path: Path
) -> None:
    file = tmp_path / "k.cu"
    file.write_text(ENDLESS)
    Kernel(file, "k", {"real": "float", "TILE": 16}).compile()
    begin = time.monotonic()  # `watch` ends anyway, when it has seen enough
    outcome = tilewise(*words(command, f"{file}:k", tmp_path), "--limit", "seconds=0.5")
    assert outcome.code == 1
    on_emulator = command != "run" or device.name == "emulator"
    place = f"{file}:4" if on_emulator else str(file)  # a GPU does not tell the line
    assert f"{place}: the launch was stopped: limit of 0.5 seconds" in outcome.err
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("command", ["run", "watch"])
def test_a_rung_takes_no_options_of_a_file(
    command: str, tilewise: Tilewise, tmp_path: Path
) -> None:
    for option in (["--limit", "seconds=1"], ["--trusted"], ["--no-limits"], ["--include", "."]):
        outcome = tilewise(*words(command, "tiled", tmp_path), *option)
        assert outcome.code == 2
        assert (
            f"{option[0]} is for FILE.cu:NAME or FILE.ptx:NAME; tiled is a rung of the ladder"
            in outcome.err
        )


def test_a_bomb_is_stopped_while_it_compiles(tilewise: Tilewise, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    doubling = "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(40))
    file.write_text(f"#define A0 c[0] = 1;\n{doubling}" + RIGHT.replace("real sum", "A40 real sum"))
    outcome = tilewise("run", f"{file}:k", "--limit", "seconds=1", "--limit=memory=2G")
    assert outcome.code == 1
    assert f"{file}:46: the compilation was stopped: limit of 1 second" in outcome.err
    found = tilewise("run", f"{file}:k", "--limit", "memory=128M", "--json").json
    assert found["kind"] == "LimitError"
    assert "128 MiB of memory" in found["error"]


def test_limits_are_set_and_lifted(
    tilewise: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "k.cu"
    file.write_text(RIGHT)
    seen = []
    compile = Kernel.compile

    def told(self: Kernel, arch: str | None = None, *, lines: bool = True) -> object:
        seen.append(self.limits)
        return compile(self, arch, lines=lines)

    monkeypatch.setattr(Kernel, "compile", told)
    for given, wanted in (
        ((), Limits()),
        (("--no-limits",), None),
        (("--limit", "output=2K", "--limit", "seconds=2.5"), Limits(seconds=2.5, output=2048)),
    ):
        seen.clear()
        assert tilewise("profile", f"{file}:k", *given).code == 0
        assert set(seen) == {wanted}
    seen.clear()
    assert tilewise("profile", "tiled").code == 0  # tilewise's own have none
    assert set(seen) == {None}
    outcome = tilewise("profile", f"{file}:k", "--no-limits", "--limit", "seconds=1")
    assert outcome.code == 2
    assert "--no-limits" in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        "seconds",
        "seconds=",
        "seconds=-1",
        "years=1",
        "memory=2T",
        "=3",
        "seconds=10K",
        "memory=1e400",
        "seconds=1e400",
        "instructions=1e30",
        "output=1e308G",
    ],
)
def test_limits_that_are_none(text: str, tilewise: Tilewise) -> None:
    with pytest.raises(ValueError, match="--limit is"):
        limits_of([text])
    with pytest.raises(ValueError, match=r"seconds is 0\.0; it must be above 0"):
        limits_of(["seconds=0"])
    assert limits_of(["instructions=1e6"]).instructions == 10**6


def test_limits_on_a_gpu_run_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the emulator in the place of a GPU: matrices go there and back, their pitch kept."""
    file = tmp_path / "k.cu"
    file.write_text(RIGHT.replace("alpha * sum", "alpha * sum + beta * c[row * ldc + col]"))
    place = get_device("emulator")
    seen = []

    def on_the_emulator(device: str, *rest: Any) -> tuple[LaunchReport, set[str]]:
        seen.append(device)
        return isolated.launch("emulator", *rest)

    monkeypatch.setattr("tilewise.launchable.in_a_process", on_the_emulator)
    monkeypatch.setattr(place, "name", "gpu")
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((6, 9)).astype(np.float32)[:, :6] for _ in range(3))
    before = c.copy()
    kernel = Kernel(file, "k", limits=Limits())
    found = run(kernel, a, b, c, alpha=2, beta=0.5, device=place)
    assert seen == ["gpu"]
    assert found.check.correct
    np.testing.assert_array_equal(c, before)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("instructions=5", 5),
        ("instructions=2K", 2000),
        ("instructions=1M", 10**6),
        ("instructions=1.5g", 1_500_000_000),
        ("memory=1G", 1 << 30),
        ("memory=512m", 512 << 20),
        ("output=2k", 2048),
        ("seconds=1e3", 1000.0),
    ],
)
def test_letters_are_powers_of_ten_of_counts_and_of_two_of_bytes(text: str, wanted: float) -> None:
    assert getattr(limits_of([text]), text.partition("=")[0]) == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("instructions=2T", "instructions takes a count; K, M and G are 10^3, 10^6 and 10^9"),
        ("memory=2T", "memory takes bytes; K, M and G are 2^10, 2^20 and 2^30"),
        ("output=some", "output takes bytes; K"),
        ("seconds=10K", "seconds takes a number of seconds above 0, as seconds=10"),
    ],
)
def test_a_limit_that_is_none_says_its_unit(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"--limit is {text!r}; {told}")):
        limits_of([text])


def test_the_help_of_limits_says_the_units(tilewise: Tilewise, capsys: Any) -> None:
    assert main(["run", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "K, M and G: of instructions 10^3, 10^6 and 10^9, of bytes 2^10, 2^20 and 2^30" in told


@pytest.mark.parametrize("text", ["seconds=.5", "seconds=5e-1", "seconds=0.5"])
def test_a_half_is_written_in_any_way(text: str) -> None:
    assert limits_of([text]).seconds == 0.5


@pytest.mark.parametrize("name", ["nowhere", "k.cu"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_to_include_from_that_is_none(
    command: str, name: str, tilewise: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.cu").write_text(RIGHT)
    monkeypatch.setattr(Kernel, "compile", lambda *_, **__: pytest.fail("it was compiled"))
    outcome = tilewise(
        *words(command, f"{tmp_path / 'k.cu'}:k", tmp_path), "--include", tmp_path / name
    )
    assert outcome.code == 2
    what = "it is a file" if name == "k.cu" else "there is no such folder"
    assert f"--include is {tmp_path / name}: {what}" in outcome.err


def test_errors_of_includes_name_the_options_of_the_command_line(
    tilewise: Tilewise, tmp_path: Path
) -> None:
    file = tmp_path / "k.cu"
    for text in ('#include "../far.cuh"\n', "#include OTHER\n"):
        file.write_text(text + RIGHT)
        told = tilewise("run", f"{file}:k").err
        assert "--trusted" in told
        assert not re.search(r"trusted=|include=", told)
