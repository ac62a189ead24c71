"""A kernel out of a file with host code in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise import CompileError, Kernel, LimitError, Limits, compiler
from tilewise.compiler import nvrtc, toolkit
from tilewise.compiler.source import part as parts

pytestmark = pytest.mark.usefixtures("ptx_alone")

HOST = """#include <cstdio>
#include <vector>
#include <iostream>
using namespace std;
#define CHECK(call) do { if ((call) != cudaSuccess) { std::exit(1); } } while (0)
static int launches = 0;
std::vector<float> on_the_host;
float* buffer = (float*)malloc(64);
"""
MAIN = """int main(int argc, char** argv) {
    std::vector<float> v(64);
    CHECK(cudaMalloc(&buffer, 64));
    KERNEL<<<1, 32>>>(buffer, 32);
    std::cout << v.size() << std::endl;
    return 0;
}
"""
SCALE = (
    "__global__ void scale(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= FACTOR; }\n"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    compiler.forget()


def run(source: str | Path, name: str = "scale", **more: Any) -> float:
    """What the kernel makes of 32 ones, by a factor."""
    x = np.ones(32, np.float32)
    Kernel(source, name, **more).launch(1, 32, (x, 32), device="emulator")
    assert len(set(x.tolist())) == 1
    return float(x[0])


def test_host_code_does_not_stand_in_the_way() -> None:
    main = MAIN.replace("KERNEL", "scale")
    assert run(HOST + "const int FACTOR = 3;\n" + SCALE + main) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kept",
    [
        "#define FACTOR 3\n",
        "constexpr int three(int x) { return x; }\nconst int FACTOR = three(3);\n",
        "enum Sizes { ONE = 1, FACTOR = 3 };\n",
        "template <int N> struct Number { static const int value = N; };\n"
        "#define FACTOR Number<3>::value\n",
        "typedef int count;\nusing number = count;\n__device__ number get() { return 3; }\n"
        "#define FACTOR get()\n",
        "namespace a { namespace b { __constant__ int three = 3; } }\nusing a::b::three;\n"
        "#define FACTOR three\n",
        "namespace a::b { static __device__ int three() { return 3; } }\nnamespace c = a::b;\n"
        "#define FACTOR c::three()\n",
        "struct Three { int x; };\n__device__ int operator+(Three a, Three b) "
        "{ return a.x * b.x; }\n#define FACTOR (Three{3} + Three{1})\n",
        "float helper(float x) { return x; }\n#define FACTOR helper(3)\n",
        "#if 1\n__device__ int three() { return 3; }\n#else\nint three() { return rand(); }\n"
        "#endif\n"
        "#define FACTOR three()\n",
        'extern "C" { __device__ int three() { return 3; } int other() { exit(1); } }\n'
        "#define FACTOR three()\n",
    ],
)
def test_what_the_kernel_needs_is_kept(kept: str) -> None:
    assert run(HOST + kept + SCALE + MAIN.replace("KERNEL", "scale")) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "host",
    [
        "void scale(std::vector<float>& v) { scale<<<1, 32>>>(v.data(), 32); }\n",
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale, "scales"); }\n',
        'TORCH_LIBRARY(mine, m) { m.def("scale(Tensor x) -> Tensor"); }\n',
        "BENCHMARK(scale_on_the_host)\n",
        "REGISTER(scale, float);\n",
        "struct Timer { std::string name; Timer(std::string n) : name(n) {} ~Timer(); };\n"
        "Timer::~Timer() { std::cout << name; }\n",
        "template <typename T> std::vector<T> filled(T x) { return std::vector<T>(64, x); }\n"
        "template std::vector<float> filled<float>(float);\n",
        "void sort(thrust::device_vector<int>& v) { thrust::sort(v.begin(), v.end()); }\n",
        "#ifdef ON_WINDOWS\nint wmain(int argc) {\n#else\nint main2(int argc) {\n#endif\n"
        "    std::vector<int> v;\n    return 0;\n}\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n#ifdef _WIN32\ntypedef HANDLE thread;\n#else\n'
        "typedef pthread_t thread;\n#endif\nthread started(void* x);\n#ifdef __cplusplus\n}\n"
        "#endif\nthread running;\n",
        "int x(std::vector<int> n) { return n.size(); }\n",  # a name that the kernel has too
    ],
)
def test_what_is_the_hosts_is_left_out(host: str) -> None:
    assert run(HOST + "#define FACTOR 3\n" + SCALE + host) == 3
    assert run(HOST + "#define FACTOR 3\n" + host.replace("scale<<<", "run<<<") + SCALE) == 3


def test_methods_for_the_host_alone_are_left_out_of_a_type_that_is_needed() -> None:
    source = """struct Matrix {
    float* data; int n;
    Matrix(float* data, int n) : data(data), n(n) { std::cout << n; }
    std::vector<float> copy() const { return std::vector<float>(data, data + n); }
    void show() const { for (float x : copy()) std::cout << x; }
    __device__ void set(int i, float x) { data[i] = x; }
};
void Matrix_test() { Matrix m(nullptr, 1); m.show(); }
__global__ void fill(Matrix m) { m.set(threadIdx.x, 7); }
"""
    compiled = Kernel(HOST + source, "fill").compile()
    assert [parameter.size for parameter in compiled.parameters] == [16]


def test_lines_stay_the_files_own(tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text(HOST + "#define FACTOR 3\n" + MAIN.replace("KERNEL", "scale") + "\n\n" + SCALE)
    line = path.read_text().split("\n").index(SCALE.strip()) + 1
    x = np.ones(16, np.float32)
    report = Kernel(path, "scale").launch(1, 32, (x, 32), device="emulator", checks="collect")
    places = {(finding.file, finding.line) for finding in report.findings}
    assert places == {(str(path), line)}


def test_errors_are_those_of_the_kernels_part(tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    text = (
        HOST + "__device__ int f() { return nothing; }\n" + SCALE + MAIN.replace("KERNEL", "scale")
    )
    path.write_text("#define FACTOR f()\n" + text)
    with pytest.raises(CompileError) as caught:
        Kernel(path, "scale").compile()
    told = str(caught.value)
    line = path.read_text()[: path.read_text().index("nothing")].count("\n") + 1
    assert f'{path}:{line}: error: identifier "nothing" is undefined' in told
    assert told.count(": error:") == 1


def test_a_host_function_that_the_kernel_calls_is_named() -> None:
    source = HOST + "float helper(float x) { std::vector<float> v; return x; }\n"
    source += "#define FACTOR helper(3)\n" + SCALE
    with pytest.raises(CompileError, match=r"<source>:9: error: .*vector"):
        Kernel(source, "scale").compile()


def test_templates_and_their_instances() -> None:
    source = HOST + (
        "template <int N, typename T = float> __global__ void __launch_bounds__(N)\n"
        "fill(T* x, int n) { __shared__ T s[N]; s[threadIdx.x] = N; __syncthreads();\n"
        "    x[threadIdx.x] = s[n - 1]; }\n"
        "int main() { const int SIZE = 16 * 2; fill<SIZE><<<1, SIZE>>>(buffer, 32); }\n"
    )
    assert run(source, "fill<32>") == 32
    assert run(source, "fill<64, float>") == 64
    with pytest.raises(CompileError, match=r"fill is a template, <int N, typename T = float>.*"
                       r"such as fill<32>"):  # fmt: skip
        Kernel(source, "fill").compile()
    with pytest.raises(CompileError, match=r"fill<nothing> of <source>"):
        Kernel(source, "fill<nothing>").compile()


def test_kernels_of_one_name() -> None:
    source = HOST + (
        "__global__ void scale(float* x, int n) { x[threadIdx.x] *= 2; }\n"
        "__global__ void scale(float* x, unsigned n) { x[threadIdx.x] *= 3; }\n"
        "namespace a { __global__ void scale(float* x, int n) { x[threadIdx.x] *= 5; } }\n"
        "namespace b { __global__ void only(float* x, int n) { x[threadIdx.x] *= 7; } }\n"
    )
    assert run(source, "scale(float*, int)") == 2
    assert run(source, "scale( float *, unsigned int )") == 3
    assert run(source, "a::scale") == 5
    with pytest.raises(CompileError, match=r"2 kernels called scale: scale\(float\*, int\) "
                       r"\(line 9\), scale\(float\*, unsigned\) \(line 10\)"):  # fmt: skip
        Kernel(source, "scale").compile()
    with pytest.raises(CompileError, match=r"no kernel scale\(double\*\); it has scale\(float\*"):
        Kernel(source, "scale(double*)").compile()
    with pytest.raises(CompileError, match=r"Did you mean b::only"):
        Kernel(source, "onli").compile()


def test_kernels_that_macros_make() -> None:
    source = HOST + (
        "#define MAKE(op, by) __global__ void op##_by_##by(float* x, int n) "
        "{ x[threadIdx.x] op##_in_place by; }\n"
        "#define times_in_place *=\n"
        '#define HEAD(name) extern "C" __global__ void name(float* x, int n)\n'
        "#define KERNEL static __global__ void\n"
        "MAKE(times, 3)\nMAKE(times, 5);\n"
        "HEAD(seven) { x[threadIdx.x] = 7; }\n"
        "KERNEL nine(float* x, int n) { x[threadIdx.x] = 9; }\n"
        "int main() { times_by_3<<<1, 32>>>(buffer, 32); std::vector<int> v; }\n"
    )
    for name, expected in (("times_by_3", 3), ("times_by_5", 5), ("seven", 7), ("nine", 9)):
        assert run(source, name) == expected


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "scale.cuh").write_text(
        "#pragma once\n#include <iostream>\n\nvoid told() { std::cout << 1; }\n" + SCALE
    )
    (folder / "kernels.cuh").write_text('#pragma once\n#include "kernels/scale.cuh"\n')
    (folder / "run.cu").write_text(
        '#define FACTOR 3\n#include "kernels.cuh"\n#include <cublas_v2.h>\n'
        "cublasHandle_t handle;\nvoid go(float* x) { scale<<<1, 32>>>(x, 32); told(); }\n"
    )
    return folder


def test_kernels_in_headers_of_the_project(project: Path) -> None:
    assert run(project / "run.cu") == 3
    assert run(project / "kernels" / "scale.cuh", defines={"FACTOR": 5}) == 5
    assert run(str(project / "kernels" / "scale.cuh"), defines={"FACTOR": 5}) == 5
    x = np.ones(16, np.float32)
    report = Kernel(project / "run.cu", "scale").launch(
        1, 32, (x, 32), device="emulator", checks="collect"
    )
    file, line = report.findings[0].file, report.findings[0].line
    assert (Path(file).name, line) == ("scale.cuh", 5)


def test_headers_of_folders_that_are_searched(project: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "far.h").write_text(
        "#pragma once\n#define FACTOR 3\nvoid far() { std::vector<int> v; }\n"
    )
    source = "#include <vector>\n#include <far.h>\n" + SCALE + "int main() { far(); }\n"
    assert run(source, include=[tmp_path / "far"]) == 3


def test_a_header_that_is_not_there_is_left_out_where_the_kernel_does_without() -> None:
    host = "#include <nothere.h>\nint main() { nothere(); std::vector<int> v; }\n"
    assert run(host + "#define FACTOR 3\n" + SCALE) == 3
    told = r"^<source>:1: <nothere\.h> is left out: there is no such header (?s:.*)FACTOR"
    with pytest.raises(CompileError, match=told):
        Kernel(host + SCALE, "scale").compile()


def test_a_header_that_is_left_out_is_told(tmp_path: Path) -> None:
    """In the report, from the cache too; and not where no condition lets NVRTC come by it."""
    (tmp_path / "own.h").write_text("#pragma once\n#include <far/other.h>\n#define FACTOR 3\n")
    file = tmp_path / "k.cu"
    file.write_text(
        '#include "own.h"\n#ifdef ELSEWHERE\n#include <windows2.h>\n#endif\n#include <nothere.h>\n'
        + SCALE + "int main() { std::vector<int> v; }\n"
    )  # fmt: skip
    wanted = [f"{tmp_path}/own.h:2: <far/other.h>", f"{file}:5: <nothere.h>"]
    for options in ((), (), ("-w",), ("--diag-suppress=1105",), ("--diag-error=1105",)):
        x = np.ones(32, np.float32)
        kernel = Kernel(file, "scale", {"ELSEWHERE": False}, options)
        report = kernel.launch(1, 32, (x, 32), device="emulator", counts=False)
        assert sorted(each.partition(" is left out: ")[0] for each in report.notes) == sorted(
            wanted
        )
        assert all("name its folder in include=" in each for each in report.notes)
        assert f"note: {file}:5: <nothere.h> is left out: there is" in " ".join(str(report).split())
        compiler.forget()
    profile = Kernel(file, "scale", {"ELSEWHERE": False}).profile(1, 32, (x, 32))
    assert sum(" is left out: " in each for each in profile.report.notes) == 2


def test_what_a_header_that_is_left_out_may_decide_is_told() -> None:
    source = (
        "#include <nothere.h>\n#if defined(FAST) && LEVEL > 1\n#define FACTOR 5\n#else\n"
        "#define FACTOR 3\n#endif\n" + SCALE + "int main() { std::vector<int> v; }\n"
    )
    _, told = Kernel(source, "scale").compile().remarks
    assert told == (
        "<source>:2: what is compiled here depends on FAST, LEVEL, which the header that is left "
        "out at <source>:1 may define"
    )
    [_] = Kernel(source, "scale", {"FAST": False, "LEVEL": 0}).compile().remarks


def test_what_is_asked_for_in_vain_is_told(tmp_path: Path) -> None:
    """The same text with another name is another note, though NVRTC gets the same."""
    for name in ("thing", "other"):
        source = (
            f"// __has_include(<comment.h>)\n#if __has_include(<{name}.h>)\n#define FACTOR 5\n"
            "#elif defined(X) || __has_include(<cuda_fp16.h>)\n#define FACTOR 3\n#endif\n" + SCALE
        )
        for _ in range(2):
            [told] = Kernel(source, "scale").compile().remarks
            assert told.startswith(
                f"<source>:2: __has_include(<{name}.h>) is answered no: there is"
            )
            compiler.forget()
    (tmp_path / "thing.h").write_text("")
    assert (
        Kernel(source.replace("other", "thing"), "scale", include=[tmp_path]).compile().remarks
        == ()
    )


def test_an_include_that_stops_a_kernel_is_an_error_of_its_name() -> None:
    with pytest.raises(CompileError) as caught:
        Kernel("#include <nothere.h>\n" + SCALE, "scale").compile()
    second = str(caught.value).splitlines()[1]
    assert second.startswith("<source>:1: error: <nothere.h> is not read: there is no such header")


def test_a_header_that_may_decide_is_not_left_out() -> None:
    source = (
        '#include "config.h"\n#ifdef FAST\n#define FACTOR 5\n#else\n#define FACTOR 3\n#endif\n'
        + SCALE
        + "int main() { std::vector<int> v; }\n"
    )
    with pytest.raises(CompileError, match=r"(?s)<source>:1: .*<source>:2: .*depends on FAST"):
        Kernel(source, "scale").compile()
    assert run(source, defines={"FAST": False}) == 3
    assert run(source, defines={"FAST": True}) == 5
    for is_forgotten in (False, True):  # in memory, and on disk
        if is_forgotten:
            compiler.forget()
        with pytest.raises(CompileError, match="depends on FAST"):
            Kernel(source, "scale").compile()
    begin, end = source.index("#ifdef"), source.index(SCALE)
    host = "int f() {\n#ifdef FAST\nreturn 1;\n#endif\n}\n#define FACTOR 3\n"
    assert run(source[:begin] + host + source[end:]) == 3


DEFAULT = "#ifndef FACTOR\n#define FACTOR 3\n#endif\n"


@pytest.mark.parametrize("header", ['"config.h"', "<config.h>"])
@pytest.mark.parametrize(
    ("default", "line"),
    [
        (DEFAULT, 2),
        ("#if !defined(FACTOR)\n#define FACTOR 3\n#endif\n", 2),
        ("#ifdef FACTOR\n#else\n#define FACTOR 3\n#endif\n", 2),
        ("#ifndef STEP\n#define STEP 3\n#endif\n#define FACTOR STEP\n", 2),
        ("#ifndef STEP\n#define STEP 1\n#endif\n#if STEP > 1\n#define FACTOR 5\n#else\n"
         "#define FACTOR 3\n#endif\n", 5),
    ],
)  # fmt: skip
def test_a_default_that_a_header_which_is_left_out_may_decide_is_told(
    header: str, default: str, line: int
) -> None:
    source = f"#include {header}\n{default}{SCALE}int main() {{ std::vector<int> v; }}\n"
    assert run(source) == 3
    macro = "STEP" if "STEP" in default else "FACTOR"
    _, told = Kernel(source, "scale").compile().remarks
    assert told == (
        f"<source>:{line}: what is compiled here depends on {macro}, which the header that is left "
        "out at <source>:1 may define"
    )
    assert len(Kernel(source, "scale", {macro: 7}).compile().remarks) == 1
    assert run(source, defines={macro: 7}) == (5 if line == 5 else 7)


@pytest.mark.parametrize(
    "text",
    [
        DEFAULT + '#include "config.h"\n',  # the default comes first
        '#include "config.h"\n#define FACTOR 3\n' + DEFAULT,
        '#include "config.h"\n#undef FACTOR\n#define FACTOR 3\n',
        '#include "config.h"\n#ifndef HOST\n#define HOST 1\n#endif\n#define FACTOR 3\n',
    ],
)
def test_a_default_that_nothing_can_decide_is_not_told(text: str) -> None:
    source = text + SCALE + "int main() { std::vector<int> v(HOST); }\n"
    assert run(source) == 3
    [told] = Kernel(source, "scale").compile().remarks
    assert '"config.h" is left out' in told


def test_an_include_guard_is_no_default(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text(
        "// What it is.\n#ifndef OWN_H\n#define OWN_H\n#define FACTOR 3\n#endif\n"
    )
    file = tmp_path / "k.cu"
    file.write_text(
        '#include "config.h"\n#include "own.h"\n#ifndef OWN_H\n#error\n#endif\n'
        + SCALE + "int main() { std::vector<int> v; }\n"
    )  # fmt: skip
    [told] = Kernel(file, "scale").compile().remarks
    assert '"config.h" is left out' in told


def test_what_is_left_out_can_not_make_a_directive(tmp_path: Path) -> None:
    """Text that is spaces now must not put a file's name where NVRTC reads it."""
    (tmp_path / "secret.h").write_text("#define FACTOR 3\n")
    secret = tmp_path / "secret.h"
    source = f'int host = rand(); #include "{secret}"\n' + SCALE + "int main() { exit(1); }\n"
    with pytest.raises(CompileError) as caught:
        Kernel(source, "scale").compile()
    assert "<source>:1: " in str(caught.value)
    assert "outside the folder" in str(caught.value)


def test_what_compiles_as_it_is_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.compiler.make.extract", None)
    source = "#define FACTOR 3\nint other() { return 1; }\n__global__ void more() {}\n" + SCALE
    compiled = Kernel(source, "scale").compile()
    assert not compiled.is_part
    assert "more" in compiled.ptx


def test_a_part_is_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(HOST + "#define FACTOR 3\n" + SCALE + MAIN.replace("KERNEL", "scale"), "scale")
    compiled = kernel.compile()
    assert compiled.is_part
    compiler.forget()
    monkeypatch.setattr("tilewise.compiler.make.make", None)
    assert kernel.compile() == compiled
    compiler.forget()
    monkeypatch.setattr(compiler, "PART", -1)  # another version leaves out something else
    assert kernel.find() is None


def test_a_header_that_does_not_compile_is_left_out_where_the_kernel_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"#define CUDART_VERSION {nvrtc.version()[0]}000\n"
    for name, text in (
        ("cuda_runtime_api.h", version),
        ("crt/host_defines.h", ""),
        ("cccl/cuda/std/version", ""),
        ("cudaEGL.h", "#define FAR 3\n#include <EGL/egl.h>\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(toolkit, "_places", lambda _: [(tmp_path, "CUDA_HOME")])
    host = "#include <cudaEGL.h>\nint main() { std::vector<int> v; }\n"
    assert run(host + "#define FACTOR 3\n" + SCALE) == 3
    with pytest.raises(
        CompileError, match=r"^<source>:1: <cudaEGL.h> is left out: .*cudaEGL.h:2: (?s:.*)FAR"
    ):
        run(host + "#define FACTOR FAR\n" + SCALE)


def test_limits_hold() -> None:
    source = HOST + "template <int N> struct A { static const int v = A<N - 1>::v + A<N>::v; };\n"
    source += "#define FACTOR (A<1 << 20>::v)\n" + SCALE
    with pytest.raises((LimitError, CompileError)):
        Kernel(source, "scale", limits=Limits(seconds=20)).compile()
    assert run(HOST + "#define FACTOR 3\n" + SCALE, limits=Limits()) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "odd",
    [
        "int f( {{{ ((\n",
        "#define A(x) A(A(x) A(x))\nA(A(A(1)))\n",
        "#define B B2 B2\n#define B2 B3 B3\n#define B3 B4 B4\nB;\n",
        "namespace {\n",
        'const char* text = R"x(\n#include "none.h"\n__global__ void scale() {}\n)x";\n',
        "/* __global__ void scale(int) {} */ // __global__ void scale(\\\nint) {}\n",
        "é ü \u4e2d int x;\n",
        "(" * 20_000 + "\n",
    ],
    ids=range(8),
)
def test_odd_text_is_an_error_or_left_out(odd: str) -> None:
    source = HOST + "#define FACTOR 3\n" + SCALE + odd
    found: float | str
    try:
        found = run(source)
    except CompileError as error:
        found = str(error)
    assert found == 3 or "<source>:" in str(found)


def test_a_template_s_parameter_is_no_class_that_a_member_goes_with() -> None:
    """``T`` of ``Engine<T>::Engine`` is the member's own: a kernel's ``T`` needs no engine."""
    source = (
        "template <typename T> Engine<T>::Engine(int m) : m(m) {}\n"
        "template <> int space::Engine<Fast>::Part<int>::run() { return 1; }\n"
    )
    members = parts.read({"engine.cu": source}).declarations
    assert [each.with_names for each in members] == [{"Engine"}, {"space", "Engine", "Part"}]
