"""Kernels of files, listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewise import compiler, list_kernels
from tilewise.cli.main import main
from tilewise.compiler.ptx import assembler

OWN = """#include <vector>
__global__ void __launch_bounds__(256, 2) scale(const float* __restrict__ x, unsigned n = 3) {}
template <typename T, int TILE = 16> __global__ void tiled(T (&a)[TILE], T* x) {}
template <typename T> __global__ void copied(T* x, const T* y) { *x = *y; }
namespace space { __global__ void __cluster_dims__(2, 1, 1) broken(int n) { nothing(); } }
template <int N> __global__ void never(float* x) {}
extern "C" __global__ void declared(int);
template <typename T> void run(double* y) {
    constexpr int SIZE = 4 * 8;
    tiled<T, SIZE><<<1, 1>>>(nullptr, nullptr);
    float* to = nullptr;
    copied<<<1, 1>>>(to, (const float*)nullptr);
    copied<<<1, 1>>>(y, y);
}
int main() { run<int>(nullptr); run<float>(nullptr); std::vector<int> v; }
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    compiler.forget()
    path = Path("own.cu")
    path.write_text(OWN)
    return path


def test_what_is_said_of_a_kernel(own: Path) -> None:
    found = {each.name: each for each in list_kernels(own)}
    assert list(found) == ["scale", "tiled", "copied", "space::broken", "never", "declared"]
    assert [each.line for each in found.values()] == [2, 3, 4, 5, 6, 7]
    scale = found["scale"]
    assert (scale.file, scale.source, scale.template) == ("own.cu", "own.cu", ())
    assert scale.parameters == ("const float* __restrict__ x", "unsigned n")
    assert (scale.launch_bounds, scale.compiles, scale.problem) == ("256, 2", True, "")
    tiled = found["tiled"]
    assert tiled.template == ("typename T", "int TILE = 16")
    assert tiled.parameters == ("T (&a)[TILE]", "T* x")
    assert tiled.instances == ("tiled<int, 32>", "tiled<float, 32>")
    assert [(each.line, each.text, each.block) for each in tiled.launches] == [
        (10, "<<<1, 1>>>", (1, 1, 1))
    ]
    assert (tiled.tried, tiled.compiles) == ("tiled<int, 32>", True)
    assert found["copied"].instances == ("copied<float>", "copied<double>")
    broken = found["space::broken"]
    assert (broken.cluster_dims, broken.compiles) == ("2, 1, 1", False)
    assert 'own.cu:5: error: identifier "nothing" is undefined' in broken.problem
    never = found["never"]
    assert (never.instances, never.tried, never.compiles) == ((), "", None)
    assert found["declared"].compiles is False


def test_several_files_and_folders(own: Path) -> None:
    Path("part").mkdir()
    Path("part/small.cuh").write_text(
        "template <int N> __global__ void small(float* x) { *x = N * M; }\n"
    )
    Path("user.cu").write_text(
        '#define M 3\n#include "part/small.cuh"\nint main() { small<7><<<1, 1>>>(nullptr); }\n'
    )
    every = list_kernels(".", compiled=False)
    assert [each.name for each in every].count("small") == 1
    [small] = [each for each in list_kernels(["part", "user.cu"]) if each.name == "small"]
    # By itself the header does not compile: it is named by the file that includes it.
    assert (small.file, small.source) == ("user.cu", "part/small.cuh")
    assert (small.tried, small.compiles) == ("small<7>", True)
    assert [each.name for each in list_kernels("user.cu", compiled=False)] == ["small"]


def test_kernels_of_a_name(own: Path) -> None:
    [found] = list_kernels(own, name="tiled<float, 8>")
    assert (found.name, found.tried, found.compiles) == ("tiled", "tiled<float, 8>", True)
    with pytest.raises(ValueError, match=r"no kernel called 'scael'; did you mean scale\?"):
        list_kernels(own, name="scael")


@pytest.mark.parametrize(
    ("paths", "error", "told"),
    [
        ("nowhere.cu", FileNotFoundError, "no file nowhere.cu"),
        (["own.cu", "nowhere"], FileNotFoundError, "no file nowhere"),
        (3, TypeError, "paths is 3; it takes a path, or several"),
        ("empty", FileNotFoundError, r"no file \*\.cu, \*\.cuh or \*\.ptx in empty"),
    ],
)
def test_paths_that_name_nothing(own: Path, paths: object, error: type, told: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(error, match=told):
        list_kernels(paths)  # type: ignore[arg-type]


def test_the_command(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "own.cu"]) == 0
    told = capsys.readouterr().out
    assert "scale(const float* __restrict__ x, unsigned n)" in told
    assert "launch bounds 256, 2" in told
    assert "launched as tiled<int, 32>, tiled<float, 32>" in told
    assert "own.cu:10 launches it as <<<1, 1>>>: grid 1 x 1, block 1 x 1" in told
    assert "6 kernels, of which 3 compile for sm_90a" in told
    assert main(["kernels", "own.cu", "--json", "--no-compile"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert [each["name"] for each in kernels][:2] == ["scale", "tiled"]
    assert {each["compiles"] for each in kernels} == {None}
    assert kernels[1]["launches"] == [
        {"file": "own.cu", "line": 10, "text": "<<<1, 1>>>", "grid": [1, 1, 1], "block": [1, 1, 1]}
    ]
    assert main(["kernels", "own.cu:scale"]) == 0
    assert "1 kernel, of which 1 compile" in capsys.readouterr().out
    assert main(["kernels", "own.cu:scael"]) == 2
    assert "did you mean scale?" in capsys.readouterr().err
    assert main(["kernels", "own.cu:"]) == 2
    assert main(["kernels", "nowhere.cu"]) == 2
    assert main(["kernels", "--no-compile", "--arch", "sm_1", "own.cu"]) == 2


def test_headers_that_are_missing(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text(
        "#include <nothere.h>\n__global__ void k(float* x) { *x = 1; }\n"
        "__global__ void needs(float* x) { *x = nothere(); }\nint main() { std::vector<int> v; }\n"
    )
    k, needs = list_kernels(own)
    assert k.compiles
    assert k.notes[0].startswith("own.cu:1: <nothere.h> is left out: there is no such header")
    assert needs.problem.startswith("own.cu:1: <nothere.h> is left out: ")
    assert main(["kernels", "own.cu"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "compiles note: own.cu:1: <nothere.h> is left out: " in told
    assert "name its folder with --include" in told
    assert "does not compile for sm_90a: own.cu:1: <nothere.h> is left out: " in told
    assert main(["occupancy", "own.cu:k", "--block", "32", "--arch", "sm_80"]) == 0
    assert "note: own.cu:1: <nothere.h> is left out" in capsys.readouterr().out


def test_a_launch_of_another_file_is_none_of_this_one(own: Path) -> None:
    Path("other.cu").write_text("__global__ void scale(float* x) {}\n")
    own.write_text(OWN + "void run() { scale<<<2, 3>>>(nullptr, 1); }\n")
    found = {each.file: each for each in list_kernels(".", name="scale", compiled=False)}
    assert [each.text for each in found["own.cu"].launches] == ["<<<2, 3>>>"]
    assert found["other.cu"].launches == ()


def test_an_instance_of_another_file_is_none_of_this_one(own: Path) -> None:
    own.unlink()
    asks = "int main() {{ tk<{}><<<1, 1>>>(nullptr); }}\n"
    template = "template <class T> __global__ void tk(T* x) { *x = 1; }\n"
    Path("a.cu").write_text("__global__ void tk(int n) {}\n")
    Path("b.cu").write_text(template + asks.format("float"))
    Path("c.cu").write_text(template)
    Path("d.cu").write_text("__global__ void tk(int n) {}\n" + template + asks.format("int"))
    found = [(x.file, x.instances, x.tried, x.problem) for x in list_kernels(".")]
    assert found == [
        ("a.cu", (), "tk", ""),
        ("b.cu", ("tk<float>",), "tk<float>", ""),
        ("c.cu", (), "", ""),
        ("d.cu", (), "tk(int)", ""),
        ("d.cu", ("tk<int>",), "tk<int>", ""),
    ]


def test_a_file_without_kernels(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text("int main() {}\n")
    assert list_kernels(own) == ()
    assert main(["kernels", "own.cu"]) == 0
    assert "own.cu: no kernel" in capsys.readouterr().out


PTX = """//
.version 8.0
.target sm_90
.address_size 64

.visible .entry _Z5tiledILi4EfEvPT0_i(
    .param .u64 .ptr .global x,
    .param .u32 n
)
.maxntid 128, 1, 1
.minnctapersm 2
{
ret;
}
.visible .entry one(.param .align 16 .b8 v[16], .param .f32 a)
.reqntid 16, 8, 1
.reqnctapercluster 2, 1, 1
{ ret; }
"""


@pytest.fixture
def ptx(own: Path) -> Path:
    path = Path("own.ptx")
    path.write_text(PTX)
    return path


def test_kernels_of_ptx(ptx: Path) -> None:
    tiled, one = list_kernels(ptx, compiled=False)
    assert (tiled.name, tiled.file, tiled.line, tiled.target) == (
        "tiled<4, float>", "own.ptx", 6, "sm_90",
    )  # fmt: skip
    assert tiled.parameters == (".u64 .ptr x", ".u32 n")
    assert (tiled.launch_bounds, tiled.cluster_dims, tiled.compiles) == ("128, 2", "", None)
    assert (one.name, one.line, one.parameters) == ("one", 15, (".b8 v[16]", ".f32 a"))
    assert (one.launch_bounds, one.cluster_dims) == ("16, 8", "2, 1, 1")
    assert [each.name for each in list_kernels(ptx, name="one", compiled=False)] == ["one"]
    # Each by its own name, that a command takes too.
    for each in (tiled, one):
        assert list_kernels(ptx, name=each.name, compiled=False) == (each,)


@pytest.mark.skipif(not assembler.tools(), reason="neither nvJitLink nor ptxas is here")
def test_kernels_of_ptx_are_compiled_for_their_target(ptx: Path) -> None:
    [one] = list_kernels(ptx, name="tiled<4, float>")
    assert (one.tried, one.compiles, one.problem) == ("tiled<4, float>", True, "")
    [one] = list_kernels(ptx, name="tiled<4, float>", arch="sm_80")
    assert one.compiles is False
    assert "PTX for sm_90 runs on sm_90 and on later ones" in one.problem


def test_a_file_that_cannot_be_read_beside_others(
    ptx: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {
        "binary.cu": (b"ab\xff", "binary.cu can't be read: it is not UTF-8 text"),
        "binary.ptx": (b"ab\xff", "binary.ptx can't be read: it is not UTF-8 text"),
        "comma.ptx": (
            PTX.replace(".f32 a)", ".f32 a,)").encode(),
            "comma.ptx:15: one: the PTX's parameter '' can't be read",
        ),
        "open.ptx": (PTX[:-4].encode(), "open.ptx: line 18 of the PTX: a '{' is never closed"),
        "zero.cu": (b"a\0", "zero.cu has a NUL character in it"),
    }
    good = [each.name for each in list_kernels(".", compiled=False)]
    for name, (data, _) in bad.items():
        Path(name).write_bytes(data)
    found = list_kernels(".", compiled=False)
    assert [each.name for each in found if each.name] == good
    unread = {each.file: each for each in found if not each.name}
    assert list(unread) == list(bad)
    assert main(["kernels", ".", "--no-compile"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "8 kernels; 5 files can't be read" in told
    for name, (_, problem) in bad.items():
        assert unread[name].problem.startswith(problem)
        assert unread[name].compiles is None
        assert f"{name} {problem}" in told
        # Alone it is refused.
        assert main(["kernels", name]) == 2
        assert problem in " ".join(capsys.readouterr().err.split())


def test_ptx_beside_sources(ptx: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [each.name for each in list_kernels(".", compiled=False)]
    assert names[:2] == ["scale", "tiled"]
    assert names[-2:] == ["tiled<4, float>", "one"]
    assert main(["kernels", "own.ptx", "--no-compile"]) == 0
    out = capsys.readouterr().out
    assert "tiled<4, float>(.u64 .ptr x, .u32 n)" in out
    assert "PTX for sm_90" in out
    assert "2 kernels" in out
    assert main(["kernels", "own.ptx:other"]) == 2
    assert "own.ptx has no kernel called 'other'" in capsys.readouterr().err
    ptx.write_text("nothing;")
    assert main(["kernels", "own.ptx"]) == 2
    assert "own.ptx has no .target, as PTX begins with" in capsys.readouterr().err
    ptx.write_text(".version 8.0\n.target sm_90\n.address_size 64\n")
    assert main(["kernels", "own.ptx"]) == 0
    assert "no kernel (__global__ function, or .entry of PTX)" in capsys.readouterr().out
