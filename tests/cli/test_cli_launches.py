"""Any kernel on the command line: run, profile, watch, occupancy and roofline of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SIGNATURE, Tilewise
from reference import some
from signatures import SOURCE

from tilewise import compiler
from tilewise.cli.commands.launches import spread
from tilewise.cli.main import main
from tilewise.devices import Device
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("k_cu", "no_machine_code")

SAXPY = ("--grid", "ceil(n/256)", "--block", "256",
         "--args", "n=1000", "a=2.5", "x=random:n", "y=random:n")  # fmt: skip
LAUNCHED = """#include <cstdio>
#define N 1024
__global__ void scale(int n, float a, float* x) {
    __shared__ float s[128];
    s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    x[blockIdx.x * blockDim.x + threadIdx.x] = a * s[threadIdx.x];
}
__global__ void hidden(int* x) { x[threadIdx.x] = 1; }
__global__ void __launch_bounds__(64) bounded(int* x) { x[threadIdx.x] = 1; }
int main(int argc, char** argv) {
    const int block = 128;
    int b = std::atoi(argv[1]);
    scale<<<(N + block - 1) / block, block>>>(N, 2.f, nullptr);
    hidden<<<1, b>>>(nullptr);
}
"""
COMMANDS = ("run", "profile", "watch", "roofline")


def test_run(tilewise: Tilewise) -> None:
    found = tilewise("run", "k.cu:saxpy", *SAXPY, "--expect", "y = a*x + y")
    assert (found.code, found.err) == (0, "")
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert lines[0] == "saxpy(int n, float a, const float* x, float* y)"
    assert lines[1].startswith("launch grid 4 x 1 = 4 blocks of 256 x 1 = 256 threads, on the ")
    assert lines[2].startswith("check right: y = a*x + y, in 1,000 elements, as near as rounding")
    assert "arrays shape dtype changed least largest mean" in lines
    assert any(line.startswith("x 1,000 float32 0 ") for line in lines)
    assert any(line.startswith("y 1,000 float32 1,000 ") for line in lines)
    assert any(line.startswith("x begins ") and line.endswith(", ...") for line in lines)
    document = tilewise("run", "k.cu:saxpy", *SAXPY, "--json").json
    assert (document["correct"], document["checked"], document["out"]) == (True, False, {})
    assert document["grid"] == [4, 1, 1]
    assert [x["changed"] for x in document["arrays"]] == [0, 1000]


def test_a_wrong_result_is_exit_code_1(tilewise: Tilewise) -> None:
    words = ("run", "k.cu:saxpy", *SAXPY, "--expect", "y = a*x")
    found = tilewise(*words)
    assert found.code == 1
    assert "check WRONG: y = a*x, in 1,000 of 1,000 elements" in " ".join(found.out.split())
    document = tilewise(*words, "--json")
    assert document.code == 1
    assert document.json["expected"][0]["wrong"] == 1000
    assert tilewise(*words, "--atol", "10").code == 0


def test_arrays_are_written(tilewise: Tilewise, tmp_path: Path) -> None:
    np.save("x.npy", np.arange(6, dtype=np.float32))
    words = ("run", "k.cu:saxpy", "--grid", 1, "--block", 32, "--args", 6, 2, "x.npy", "ones:6")
    found = tilewise(*words, "--out", "y=out.npy")
    assert (found.code, found.err) == (0, "")
    assert found.out.endswith("out.npy: y written\n")
    wanted = 2 * np.arange(6, dtype=np.float32) + 1
    np.testing.assert_array_equal(np.load("out.npy"), wanted, strict=True)
    assert tilewise(*words, "--expect", "y=out.npy").code == 0
    Path("all").mkdir()
    assert tilewise(*words, "--out", "all", "--json").json["out"] == {
        "x": "all/x.npy", "y": "all/y.npy"
    }  # fmt: skip
    np.testing.assert_array_equal(np.load("all/y.npy"), wanted)
    reverse = ("run", "k.cu:reversed", "--grid", 1, "--block", 4, "--shared", 16, "--args")
    assert tilewise(*reverse, "arange:4", "--out", "r.npy").code == 0
    assert np.load("r.npy").tolist() == [3, 2, 1, 0]
    for out, told in (
        ("x=x.npy", "--out would overwrite x.npy, which is read; --force allows it"),
        (".", "--out would overwrite x.npy, which is read"),
        ("z=out.npy", "it takes NAME=FILE.npy with an array's name (x, y)"),
        ("out.npy", "it takes NAME=FILE.npy with an array's name (x, y)"),
        ("y=out.txt", "the file's name must end in .npy, as out.npy"),
        ("y=there/out.npy", "there is no folder there"),
        ("", "it takes NAME=FILE.npy"),
        ("y=", "it takes NAME=FILE.npy"),
    ):
        found = tilewise(*words, "--out", out)
        assert found.code == 2
        assert told in " ".join(found.err.split()), out
    assert tilewise(*words, "--out", "y=all/1.npy", "--out", "x=all/1.npy").code == 2
    assert tilewise(*words, "--out", "x=x.npy", "--force").code == 0
    for outs, told in (
        (("y=1.npy", "3=2.npy"), "--out names y twice, with 1.npy and 2.npy"),
        (("y=1.npy", "y=1.npy"), "--out names y twice, with 1.npy both times"),
        (("y=1.npy", "all"), "--out names y twice, with 1.npy and all/y.npy"),
        (("all", "x=1.npy"), "--out names x twice, with all/x.npy and 1.npy"),
    ):
        found = tilewise(*words, *(word for out in outs for word in ("--out", out)))
        assert (found.code, found.out) == (2, "")
        assert f"{told}; give each array one file" in " ".join(found.err.split())
        assert not Path("1.npy").exists()
    assert tilewise(*words, "--expect", "y=out.npy", "--out", "y=out.npy").code == 2


# Quickly, each command and each kernel once.
@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["saxpy", "transpose", "fill<64, float>"])
def test_a_kernel_of_another_signature_says_how_it_is_launched(
    command: str, name: str, tilewise: Tilewise
) -> None:
    """And what it says works."""
    target = f"k.cu:{name}"
    told = tilewise(command, target)
    assert told.code == 2
    first, line, *_ = told.err.splitlines()
    assert first.startswith(f"tilewise: {name}(")
    assert first.endswith("is launched with its own arguments, as")
    words = shlex.split(line)
    assert words[:3] == ["tilewise", command, target]
    found = tilewise(*words[1:])
    assert (found.code, found.err) == (0, ""), line


def test_roofline_says_how_a_kernel_is_launched_with_sizes_or_without(tilewise: Tilewise) -> None:
    Path("p.ptx").write_text(Kernel(SOURCE, "saxpy").compile().ptx)
    for sizes in ((), ("-m", 8), ("-m", 8, "-n", 8, "-k", 8)):
        for file in ("k.cu", "p.ptx"):
            found = tilewise("roofline", f"{file}:saxpy", *sizes)
            assert found.code == 2
            assert "is launched with its own arguments, as\n" in found.err
            assert f"  tilewise roofline {file}:saxpy --grid 4 --block 256 --args" in found.err


def test_roofline_takes_the_sizes_of_the_other_commands(tilewise: Tilewise) -> None:
    Path("plain.cu").write_text(f"__global__ void p{SIGNATURE.replace('real', 'float')} {{}}\n")
    for target in ("plain.cu:p", "tiled"):
        found = tilewise("roofline", target, "-m", 8, "--json")
        assert [found.json[size] for size in "mnk"] == [8, 64, 64], found.err
    found = tilewise("roofline", "multistage", "--json")
    assert [found.json[size] for size in "mnk"] == [64, 64, 64]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_launch_without_a_grid_says_what_is_missing(command: str, tilewise: Tilewise) -> None:
    missing = tilewise(command, "k.cu:saxpy", "--args", "1")
    assert missing.code == 2
    assert "--grid is missing; saxpy(int n, float a" in missing.err
    assert f"  tilewise {command} k.cu:saxpy --grid 4 --block 256 --args n=1024" in missing.err


def test_a_kernel_that_does_not_compile_as_a_product(tilewise: Tilewise) -> None:
    Path("t.cu").write_text("constexpr int TILE = 8;\n__global__ void k(int* x) { x[0] = TILE; }")
    found = tilewise("run", "t.cu:k")
    assert found.code == 2
    assert "tilewise run t.cu:k --grid 4 --block 256 --args x=zeros:1024" in found.err
    assert tilewise("run", "t.cu:k", "--grid", 1, "--block", 1, "--args", "empty:1").code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_products_and_launches_are_not_mixed(command: str, tilewise: Tilewise) -> None:
    found = tilewise(command, "tiled", "--grid", 1, "--block", 1)
    assert found.code == 2
    assert "--grid is for FILE.cu:NAME; tiled is a rung of the ladder" in found.err
    found = tilewise(command, "k.cu:saxpy", *SAXPY, "-m", 5)
    assert found.code == 2
    assert "-m is for products; with --grid, the kernel's arguments are all in --args" in found.err


@pytest.mark.parametrize("option", [["--expect", "c = a"], ["--rtol", "1"], ["--force"]])
def test_a_product_has_no_use_for_options_of_launches(
    option: list[str], tilewise: Tilewise
) -> None:
    told = f"{option[0]} is for launches with --grid, --block and --args"
    found = tilewise("run", "tiled", *option)
    assert (found.code, found.err) == (2, f"tilewise: {told}\n")
    Path("macros.cu").write_text(f"__global__ void p{SIGNATURE} {{}}\n")
    found = tilewise("run", "macros.cu:p", *option)
    assert (found.code, found.err) == (2, f"tilewise: {told}\n")
    # Of a kernel that is no product's it says what would be right.
    found = tilewise("run", "k.cu:saxpy", *option)
    assert found.code == 2
    assert f"{told}; saxpy(int n, float a, const float* x" in found.err
    assert "  tilewise run k.cu:saxpy --grid 4 --block 256 --args n=1024" in found.err


@pytest.mark.parametrize("option", ["--rtol", "--atol"])
def test_a_tolerance_is_named_as_the_option(option: str, tilewise: Tilewise) -> None:
    found = tilewise("run", "k.cu:saxpy", *SAXPY, "--expect", "y = a*x", option, "-1")
    told = f"tilewise: {option} is -1.0; it must be at least 0, and finite\n"
    assert (found.code, found.err) == (2, told)


def test_profile(tilewise: Tilewise) -> None:
    found = tilewise("profile", "k.cu:saxpy", *SAXPY, "--lines")
    assert found.code == 0
    (line,) = (x for x in found.out.splitlines() if "if (i < n)" in x)
    # 32 warps load x and 32 load y, of 125 sectors each; 32 store.
    assert line.split()[:4] == ["5", "96", "375", "2000"]
    words = ("--grid", "cdiv(n,256)", "--block", 256, "--args", "n=10000000", "a=2", "x=zeros:n",
             "y=zeros:n")  # fmt: skip
    document = tilewise("profile", "k.cu:saxpy", *words, "--json").json
    assert document["blocks"] == 39063
    assert document["blocks_run"] == 2
    assert document["counters"]["global_load_sectors"] == 2_500_000
    found = tilewise("profile", "k.cu:saxpy", "k.cu:saxpy", *SAXPY)
    assert found.code == 0


def test_profile_knows_what_nobody_wrote(tilewise: Tilewise) -> None:
    words = ("--grid", 1, "--block", 32, "--args", 8, 1, "zeros:8", "empty:8", "--json")
    found = tilewise("profile", "k.cu:saxpy", *words)
    assert found.code == 1
    assert found.json["findings"][0]["kind"] == "uninitialised"


def test_watch(tilewise: Tilewise) -> None:
    words = ("--grid", "2,2", "--block", "32,32", "--args", "random:mxn", "empty:n,m", 40, 50)
    found = tilewise("watch", "k.cu:transpose", *words, "--trace", "t.json", "--at", "1,1")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("k_transpose.html: written; open")
    assert "no result is compared" in " ".join(found.out.split())
    trace = json.loads(Path("t.json").read_text())
    assert trace["problem"] is None
    assert [block["index"] for block in trace["blocks"]] == [[1, 1, 0]]
    assert [(x["name"], x["rows"], x["columns"]) for x in trace["arrays"]] == [
        ("in", 40, 50), ("out", 50, 40)
    ]  # fmt: skip
    document = tilewise("watch", "k.cu:transpose", *words, "--json").json
    assert document["correct"] is None
    for more, told in (
        (["--gif", "t.gif"], "draw the tiles of a product, and this is none"),
        (["--at", "9,9"], "there is no block (9, 9, 0)"),
        (["--at", "x"], "--at is 'x'; it takes a block's index as X,Y"),
        (["--block", "8"], "--block is given twice; --at names the blocks to watch"),
    ):
        assert told in tilewise("watch", "k.cu:transpose", *words, *more).err


def test_watch_of_a_product_takes_at_too(tilewise: Tilewise) -> None:
    sizes = ("-m", 4, "-n", 4, "-k", 2, "--tile", 2, "--trace", "t.json")
    for option in ("--at", "--block"):
        assert tilewise("watch", "tiled", *sizes, option, "1,0").code == 0
        trace = json.loads(Path("t.json").read_text())
        assert [block["index"] for block in trace["blocks"]] == [[1, 0, 0]]


def test_roofline(tilewise: Tilewise) -> None:
    words = ("--grid", "cdiv(n,256)", "--block", 256, "--args", "n=1<<20", "a=2", "x=zeros:n",
             "y=zeros:n", "--on", "H200")  # fmt: skip
    found = tilewise("roofline", "k.cu:saxpy", *words)
    assert (found.code, found.err) == (0, "")
    shown = " ".join(found.out.split())
    assert "grid 4,096 x 1, blocks of 256 x 1 threads, float32, on NVIDIA H200" in shown
    (row,) = tilewise("roofline", "k.cu:saxpy", *words, "--json").json["kernels"]
    assert row["binding"] == "DRAM"
    assert row["work"]["dram_bytes"] == 3 * 4 << 20
    assert row["work"]["flops"] == 2 << 20
    assert row["work"]["other_flops"] == 0
    found = tilewise("roofline", "--grid", 1, "--block", 1)
    assert found.code == 2
    assert "--grid is for FILE.cu:NAME, and no kernel is named" in found.err


def test_what_has_no_ceiling_is_told(tilewise: Tilewise) -> None:
    Path("d.cu").write_text("__global__ void k(float* x) { x[threadIdx.x] /= 3 + x[threadIdx.x]; }")
    words = ("roofline", "d.cu:k", "--grid", 1, "--block", 32, "--args", "ones:32")
    (row,) = tilewise(*words, "--json").json["kernels"]
    assert 0 < row["work"]["other_flops"] < row["work"]["flops"]
    assert "operations have no ceiling here" in " ".join(tilewise(*words).out.split())


def test_occupancy_of_a_kernel_as_it_is(tilewise: Tilewise) -> None:
    Path("t.cu").write_text("constexpr int TILE = 8;\n__global__ void k(int* x) { x[0] = TILE; }")
    words = ("occupancy", "t.cu:k", "--arch", "sm_80", "--json")
    found = tilewise(*words, "--block", "256", "--shared", "20000").json
    assert (found["threads"], found["tile"], found["dtype"]) == (256, None, None)
    assert found["rows"][0]["blocks"] == 7
    assert "--block is missing, as --block 256: k(int* x) has no" in tilewise(*words).err


def test_occupancy_of_the_block_that_the_file_says(tilewise: Tilewise) -> None:
    """A kernel of another signature has no tile; where its block is not known, it is asked for."""
    Path("own.cu").write_text(LAUNCHED)
    words = ("--arch", "sm_80", "--json")
    found = tilewise("occupancy", "own.cu:scale", *words).json
    assert (found["block"], found["tile"], found["dtype"]) == ([128, 1, 1], None, None)
    assert found["block_from"] == "own.cu:13, <<<(N + block - 1) / block, block>>>"
    assert found["rows"][0]["blocks"] == 16
    found = tilewise("occupancy", "own.cu:bounded", *words).json
    assert (found["block"], found["block_from"]) == ([64, 1, 1], "its launch bounds")
    found = tilewise("occupancy", "own.cu:scale", *words, "--block", "64").json
    assert (found["block"], found["block_from"]) == ([64, 1, 1], "")
    told = tilewise("occupancy", "own.cu:hidden", "--arch", "sm_80")
    assert told.code == 2
    assert "--block is missing, as --block 256" in told.err
    assert "the file launches it as <<<1, b>>> at own.cu:14" in " ".join(told.err.split())
    shown = " ".join(tilewise("occupancy", "own.cu:scale", "--arch", "sm_80").out.split())
    assert "the block is that of own.cu:13, <<<(N + block - 1) / block, block>>>" in shown
    # A product's kernel has the ladder's block, as before.
    Path("p.cu").write_text(f"__global__ void mine{SIGNATURE} {{ c[TILE] = 0; }}")
    assert tilewise("occupancy", "p.cu:mine", *words).json["block"] == [16, 16, 1]


def test_the_launch_of_the_file_is_suggested(tilewise: Tilewise, emulator: Device) -> None:
    """And runs: with the block of 256 that is usual, it reads out of bounds."""
    Path("own.cu").write_text(LAUNCHED)
    told = tilewise("run", "own.cu:scale").err.splitlines()
    assert told[1:3] == [
        "  tilewise run own.cu:scale --grid 8 --block 128 --args n=1024 a=2 x=zeros:n",
        "(grid and block as own.cu:13 launches it: <<<(N + block - 1) / block, block>>>)",
    ]
    assert tilewise(*shlex.split(told[1])[1:]).code == 0
    told = tilewise("run", "own.cu:scale", "--args", "1").err.splitlines()
    assert "--grid 8 --block 128" in told[1]
    told = tilewise("run", "own.cu:hidden").err.splitlines()
    assert told[2].startswith("(the file launches it as <<<1, b>>> at own.cu:14")


def test_another_architecture(tilewise: Tilewise, emulator: Device) -> None:
    found = tilewise("run", "k.cu:saxpy", *SAXPY, "--arch", "sm_80", "--json").json
    assert found["arch"] == "sm_80"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--args 1 -2 -.5 -inf --json", "--args=1 --args=-2 --args=-.5 --args=-inf --json"),
        ("--args a=1 -m 5", "--args=a=1 -m 5"),
        ("--args=1 2", "--args=1 2"),
        ("x --args", "x --args"),
        ("--args 1 --args 2", "--args=1 --args=2"),
        ("--args --json", "--json"),
    ],
)
def test_all_words_behind_args_are_arguments(words: str, wanted: str) -> None:
    assert spread(words.split()) == wanted.split()


def test_help_names_the_launch(capsys: Any) -> None:
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert (
            "A kernel of any other signature is launched with --grid, --block and --args." in told
        )


def test_a_kernel_beside_one_that_does_not_compile(tilewise: Tilewise) -> None:
    """The message says that the error is in another kernel; of the asked one's own it does not."""
    good = 'extern "C" __global__ void good(float* x) { x[threadIdx.x] = 1; }\n'
    bad = "// bad: { in a comment\n__global__ void bad(float* x)\n{\n    x[0] = nothing;\n}\n"
    Path("two.cu").write_text(good + bad)
    launch = ("--grid", 1, "--block", 32, "--args", "zeros:32")
    told = "The first error is in another kernel of the file, bad"
    assert told in tilewise("run", "two.cu:good", *launch).err
    own = tilewise("run", "two.cu:bad", *launch).err
    assert 'two.cu:5: error: identifier "nothing" is undefined' in own
    assert "another kernel" not in own


def test_an_error_of_ptxas_in_another_kernel(
    tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the other kernel, and what leaves out an architecture is no warning."""
    Path("two.cu").write_text(
        "__global__ void good(float* x) { int unused; x[threadIdx.x] = 1; }\n"
        "__global__ void huge(float* x)\n"
        "{ __shared__ float s[15000]; s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[1]; }\n"
    )
    launch = ("--grid", 1, "--block", 32, "--args", "zeros:32")
    found = tilewise("run", "two.cu:good", *launch, "--arch", "sm_80")
    assert "warning" in found.err
    assert "The first error is in another kernel of the file, huge" in found.err
    assert "another" not in tilewise("run", "two.cu:huge", *launch, "--arch", "sm_80").err
    known = [*some(compiler.architectures(), 0), "sm_80", "sm_90", "sm_90a"]
    monkeypatch.setattr(compiler, "architectures", lambda: tuple(dict.fromkeys(known)))
    told = " ".join(tilewise("occupancy", "two.cu:good", "--block", 32).out.split())
    assert "two.cu does not compile for sm_80: ptxas error : Entry function" in told


def test_a_kernel_whose_symbol_can_not_be_read_is_not_told_as_another(tilewise: Tilewise) -> None:
    Path("two.cu").write_text(
        "template <int N> struct Tile {};\n"
        "template <class T> __global__ void k(float* x)\n"
        "{ __shared__ float s[15000]; s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[1]; }\n"
        "__device__ auto* p = &k<Tile<8>>;\n"
    )
    launch = ("--grid", 1, "--block", 32, "--args", "zeros:32", "--arch", "sm_80")
    found = tilewise("run", "two.cu:k<Tile<8>>", *launch)
    assert "Entry function '_Z1kI4TileILi8EEEvPf' uses too much shared data" in found.err
    assert "another kernel" not in found.err


def test_the_reason_of_many_architectures_is_said_once(tilewise: Tilewise) -> None:
    found = " ".join(tilewise("occupancy", "persistent").out.split())
    assert found.count("persistent needs compute capability 9.0 and no other") == 1
    assert "sm_75, sm_80, sm_86" in found
