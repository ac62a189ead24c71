"""Every kind of bad input: exit code 2, a message that says what is right, no file left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SIGNATURE, Outcome, Tilewise, matrix, save
from reference import thorough

from tilewise.cli.main import _of_the_system, main
from tilewise.devices import Device
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.ladder.run import run


def refuse(outcome: Outcome, *parts: str) -> None:
    assert outcome.code == 2, outcome.out
    for part in parts:
        assert part in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["run", "tilde"], ["'tilde'", "single_thread", "tiled_branchless", "FILE.cu:NAME"]),
        (["run", "tiled", "-m", "-4"], ["m is -4", "at least 0"]),
        (["run", "tiled", "-k", "3000000000"], ["3,000,000,000", "2,147,483,647"]),
        (["run", "tiled", "-m", "wide"], ["-m"]),
        (["run", "tiled", "--tile", "33"], ["33", "2 to 32"]),
        (["run", "tiled", "--tile", "1"], ["1", "2 to 32"]),
        (["run", "single_thread", "--tile", "8"], ["single_thread has no tiles"]),
        (["run", "single_block", "-m", "33", "-n", "32"], ["1,024", "1,056"]),
        (["run", "tiled", "--dtype", "int8"], ["int8", "float64"]),
        (["run", "tiled", "--alpha", "nan"], ["alpha", "finite"]),
        (["run", "tiled", "--alpha", "1e39"], ["alpha", "finite"]),
        (["run", "tiled", "--seed", "-1"], ["seed", "at least 0"]),
        (["run", "tiled", "--bogus"], ["--bogus"]),
        (["run"], ["RUNG|FILE.cu:NAME"]),
        (["sprint"], ["sprint"]),
        (["run", "nowhere.cu:kernel"], ["nowhere.cu"]),
        (["run", "nowhere.cu"], ["nowhere.cu:NAME"]),
        (["run", "tiled", "--a", "nowhere.npy", "--b", "b.npy"], ["A", "nowhere.npy"]),
        (["run", "tiled", "--a", "a.npy"], ["--b is missing"]),
        (["run", "tiled", "--c", "a.npy"], ["--a is missing"]),
        (["run", "tiled", "--out", "no/such/folder.npy"], ["no/such"]),
        (["run", "tiled", "--out", "."], ["folder"]),
        (["ladder", "-n", "-1"], ["n is -1", "at least 0"]),
        (["ladder", "--tile", "65"], ["65", "2 to 32, 64, 96, 128, 192 or 256"]),
        (["run", "vectorized", "--tile", "8"], ["8", "16, 32, 64 or 128 for vectorized"]),
        (["profile", "tiled", "warp_tile", "--tile", "16"], ["32, 64 or 128 for warp_tile"]),
        (
            ["roofline", "warp_tile", *("-m", "9", "-n", "9", "-k", "9"), "--tile", "16"],
            ["32, 64 or 128 for warp_tile"],
        ),
        (["occupancy", "thread_tile_2d", "--tile", "4"], ["16, 32, 64 or 128"]),
        (["ladder", "--dtype", "int8"], ["int8", "float16", "float32"]),
        (["run", "tiled", "--dtype", "float16"], ["float16", "tiled takes float32 and float64"]),
        (["run", "multistage", "--dtype", "float32"], ["takes float16 and bfloat16"]),
        (["run", "ldmatrix", "--dtype", "bfloat16", "--out", "c.npy"], ["no name for bfloat16"]),
    ],
)
def test_bad_arguments(
    tilewise: Tilewise,
    words: list[str],
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuse(tilewise(*words), *parts)
    document = tilewise(*words, "--json").json
    assert document.keys() == {"error", "kind"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "words", "parts"),
    [
        ({"a": matrix(3, 4), "b": matrix(5, 6)}, [], ["3 x 4", "5 x 6"]),
        ({"a": matrix(3, 4), "b": matrix(4, 6, "float64")}, [], ["float64", "float32"]),
        ({"a": np.ones((3, 4), np.int32), "b": matrix(4, 6)}, [], ["int32", "float32"]),
        ({"a": np.ones((3, 4), np.float16), "b": matrix(4, 6)}, [], ["float16", "float32"]),
        ({"a": np.ones(4, np.float32), "b": matrix(4, 6)}, [], ["has 2 dimensions"]),
        ({"a": matrix(3, 4), "b": matrix(4, 6)}, ["-m", "4"], ["-m is 4", "3"]),
        ({"a": matrix(3, 4), "b": matrix(4, 6)}, ["-n", "4"], ["-n is 4", "6"]),
        ({"a": matrix(3, 4), "b": matrix(4, 6)}, ["--dtype", "float64"], ["float64", "float32"]),
        ({"a": matrix(3, 4), "b": matrix(4, 6)}, ["--beta", "1"], ["--c"]),
        ({"a": matrix(3, 4), "b": matrix(4, 6)}, ["--seed", "1"], ["--seed"]),
        (
            {"a": matrix(3, 4), "b": matrix(4, 6), "c": matrix(3, 6)},
            ["--c", "c.npy"],
            ["beta is 0"],
        ),
        (
            {"a": matrix(3, 4), "b": matrix(4, 6), "c": matrix(6, 3)},
            ["--c", "c.npy", "--beta", "1"],
            ["6 x 3", "3 x 6"],
        ),
    ],
)
def test_bad_matrices(
    tilewise: Tilewise,
    files: dict[str, Any],
    words: list[str],
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path, **files)
    refuse(
        tilewise("run", "tiled", "--a", "a.npy", "--b", "b.npy", "--out", "out.npy", *words), *parts
    )
    assert {path.stem for path in tmp_path.iterdir()} == files.keys()


@pytest.mark.parametrize("content", [b"", b"1 2\n3 4\n", b"\x93NUMPY\x01\x00", b"\x93NUMPY"])
def test_a_file_that_is_no_matrix(tilewise: Tilewise, tmp_path: Path, content: bytes) -> None:
    save(tmp_path, a=matrix(2, 2))
    (tmp_path / "b.npy").write_bytes(content)
    refuse(
        tilewise("run", "tiled", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy"),
        "matrix B", "b.npy is no .npy file",
    )  # fmt: skip


def test_a_file_that_says_it_is_larger_than_memory_is_named(
    tilewise: Tilewise, tmp_path: Path
) -> None:
    save(tmp_path, a=matrix(2, 2))
    with (tmp_path / "b.npy").open("wb") as file:
        described = {"descr": "<f4", "fortran_order": False, "shape": (2, 1 << 58)}
        np.lib.format.write_array_header_1_0(file, described)
    refuse(
        tilewise("run", "tiled", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy"),
        "too large for this machine: matrix B", "b.npy: Unable to allocate",
    )  # fmt: skip
    (tmp_path / "k.cu").write_text("__global__ void k(float* x) { x[0] = 1; }")
    launch = ("--grid", 1, "--block", 1, "--args", tmp_path / "b.npy")
    found = tilewise("run", tmp_path / "k.cu:k", *launch)
    refuse(found, "too large for this machine: argument x", "b.npy: Unable to allocate")


def test_pickles_are_not_loaded(tilewise: Tilewise, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[object()]]), allow_pickle=True)
    np.savez(tmp_path / "b.npz", b=matrix(2, 2))
    save(tmp_path, b=matrix(1, 2))
    good = tmp_path / "b.npy"
    refuse(tilewise("run", "tiled", "--a", tmp_path / "a.npy", "--b", good), "no .npy file")
    refuse(tilewise("run", "tiled", "--a", good, "--b", tmp_path / "b.npz"), "archive")
    refuse(tilewise("run", "tiled", "--a", good, "--b", tmp_path), "folder")
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 cut short")
    refuse(tilewise("run", "tiled", "--a", good, "--b", tmp_path / "b.npz"), "archive")


def test_a_kernel_that_is_not_in_the_source(tilewise: Tilewise, source: Path) -> None:
    refuse(tilewise("run", f"{source}:forget"), "forget", "forgets_last", "no_guard", "talks")


def test_a_source_that_does_not_compile(tilewise: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "broken.cu"
    path.write_text(f'extern "C" __global__ void f{SIGNATURE} {{\n  c[0] = nothing;\n}}\n')
    line = 1 + path.read_text()[: path.read_text().index("nothing")].count("\n")
    refuse(tilewise("run", f"{path}:f"), f"broken.cu:{line}: error", "nothing", "c[0] = nothing;")


def test_a_source_that_is_no_text(tilewise: Tilewise, tmp_path: Path) -> None:
    (tmp_path / "data.cu").write_bytes(b"\xe3\x00\xff")
    refuse(
        tilewise("run", f"{tmp_path / 'data.cu'}:f"), "data.cu can't be read: it is not UTF-8 text"
    )


def test_another_signature(tilewise: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "other.cu"
    path.write_text('extern "C" __global__ void other(int n, float* x) { x[n] = 1; }')
    refuse(tilewise("run", f"{path}:other"), "other takes 2 arguments, not 11")


def test_more_shared_memory_than_there_is(tilewise: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "wide.cu"
    path.write_text(
        f"""extern "C" __global__ void wide{SIGNATURE} {{
            __shared__ real tile[1 << 20];
            tile[threadIdx.x] = alpha;
            __syncthreads();
            c[0] = tile[threadIdx.y];
        }}"""
    )
    refuse(tilewise("run", f"{path}:wide", "-m", 2, "-n", 2, "-k", 2), "too much shared")


def test_launches_over_the_limits(device: Device) -> None:
    kernel = Kernel('extern "C" __global__ void f() {}', "f")
    with pytest.raises(LaunchError, match=r"1,?024"):
        kernel.launch(1, 1025, (), device=device)
    with pytest.raises(LaunchError, match="shared"):
        kernel.launch(1, 32, (), shared=1 << 20, device=device)


def test_an_architecture_that_nvrtc_lacks() -> None:
    with pytest.raises(ValueError, match=r"sm_12.*sm_90"):
        Kernel('extern "C" __global__ void f() {}', "f").compile("sm_12")


def test_rows_that_overlap_or_lie_apart(device: Device) -> None:
    good = matrix(4, 4)
    overlapping = np.lib.stride_tricks.as_strided(good, (3, 4), (8, 4))
    with pytest.raises(ValueError, match="leading dimension is 2; it must be at least"):
        run("tiled", overlapping, good, device=device)
    with pytest.raises(ValueError, match="ascontiguousarray"):
        run("tiled", np.asfortranarray(good), good, device=device)


@thorough  # a plain run has it in test_ceilings.py
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tilewise", "run", "tiled", "--device", "gpu", "--out", "c.npy"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("tilewise: ")
    assert "--device emulator" in found.stderr
    assert "Traceback" not in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_message_does_not_wait_for_what_shows_results() -> None:
    script = (
        "import sys; from tilewise.cli.main import main; main(['run', '--tile']);"
        "print([x for x in ('tilewise.cli.show', 'tilewise.devices.emulator') if x in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert found.stdout == "[]\n", found.stderr


def test_a_write_that_fails_leaves_what_was_there(
    tilewise: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.npy"
    out.write_bytes(b"before")

    def full(file: Any, *_: Any, **__: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    refuse(
        tilewise("run", "tiled", "-m", 3, "-n", 3, "-k", 3, "--out", out),
        f"tilewise: {out}: No space left on device\n",
    )
    assert out.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("name", "said"), [("a.npy", "a.npy: no"), (b"a.npy", "a.npy: no"), (5, "5: no"), (None, "no")]
)
def test_what_the_system_refuses_has_the_name_of_its_file(name: Any, said: str) -> None:
    """Which is a number if the file is open already."""
    assert _of_the_system(OSError(9, "no", name)).endswith(said)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_and_a_file_that_can_not_be_read(tilewise: Tilewise, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    save(tmp_path, a=matrix(3, 3))
    for name in ("kernels", "a.npy"):
        (tmp_path / name).chmod(0)
    folder, a = tmp_path / "kernels", tmp_path / "a.npy"
    refuse(tilewise("kernels", folder), f"tilewise: {folder}: Permission denied\n")
    refuse(tilewise("multiply", a, a, "-o", "c.npy"), f"tilewise: {a}: Permission denied\n")
    folder.chmod(0o755)


def test_a_folder_that_the_system_refuses(
    tilewise: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    refuse(tilewise("kernels", tmp_path), f"tilewise: {tmp_path}: Permission denied\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a working directory can't be removed there")
def test_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["watch", "tiled"]) == 2
    told = "tilewise: the working directory is gone; change to another one\n"
    assert capsys.readouterr() == ("", told)


def test_a_terminal_of_no_columns(tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    refuse(tilewise("run", "nothing"), "no kernel called 'nothing'")
    monkeypatch.setenv("COLUMNS", "0")
    assert "single_thread" in tilewise("kernels").out


def test_an_instance_of_a_template_is_asked_for(tilewise: Tilewise, tmp_path: Path) -> None:
    (tmp_path / "t.cu").write_text("template <int N,\n typename T> __global__ void fill(T* x) {}")
    words = ("run", f"{tmp_path / 't.cu'}:fill", "--grid", 1, "--block", 1, "--args", "zeros:1")
    refuse(tilewise(*words), "fill is a template, <int N, typename T>: ask for an instance")


def test_a_macro_by_the_long_option(tilewise: Tilewise, tmp_path: Path) -> None:
    (tmp_path / "d.cu").write_text("__global__ void fill(float* x) { x[0] = VALUE; }")
    words = ("profile", f"{tmp_path / 'd.cu'}:fill", "--grid", 1, "--block", 1, "--args", "zeros:1")
    assert tilewise(*words, "--define", "VALUE=3").code == 0
    refuse(tilewise(*words, "--define", "A B"), "it takes NAME=VALUE or NAME")
