"""Runs of NVRTC that are left out: what the source says itself, and what can't compile whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewise import CompileError, Kernel, compiler
from tilewise.compiler import make, nvrtc, toolkit
from tilewise.compiler.job import job_of
from tilewise.compiler.plain_types import plain_types
from tilewise.compiler.source.launches import has_host_launch
from tilewise.compiler.source.tree import parsed
from tilewise.ladder.rungs import RUNGS, Rung

pytestmark = pytest.mark.usefixtures("ptx_alone")

PLAIN = (
    "int n, unsigned u, long l, const float x, bool b, char c",
    "const float* __restrict__ x, double *y, unsigned long long const * z, void* v",
    "int** a, const char* const* b, float *const c, volatile int* d",
    "signed s, short int t, unsigned short w, signed char q, unsigned char *r, long long int m",
    "",
)
DEFAULT = "#ifndef real\n#define real short\n#endif\n"
has_toolkit = pytest.mark.skipif(toolkit.find() is None, reason="CUDA's headers are not here")


def read(source: str, name: str = "k", **more: Any) -> Any:
    job = job_of(Kernel(source, name, **more).request())
    return plain_types(job, job.gathered())


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of NVRTC's runs, the first that tells them apart."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    compiler.forget()
    found: list[str] = []
    run = nvrtc.run

    def counted(source: str, file: str, options: Any, *rest: Any) -> nvrtc.Output:
        found.append("syntax" if "--fdevice-syntax-only" in options else "whole")
        return run(source, file, options, *rest)

    monkeypatch.setattr(nvrtc, "run", counted)
    return found


@pytest.mark.parametrize("parameters", PLAIN)
def test_the_types_are_the_compilers(
    parameters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(make, "plain_types", lambda *_: None)
    source = f"__global__ void k({parameters}) {{}}"
    compiled = Kernel(source, "k").compile()
    assert read(source) == tuple(each.declared for each in compiled.parameters)


@pytest.mark.parametrize(
    "defines",
    [
        {"real": "float"}, {"real": "unsigned long long"}, {"real": "const int*"},
        {"real": "double", "OTHER": 3},
    ],
)  # fmt: skip
def test_macros_of_the_options_may_be_types(
    defines: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DEFAULT + "__global__ void k(const real* __restrict__ x, real n, long l) {}"
    found = read(source, defines=defines)
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(make, "plain_types", lambda *_: None)
    compiled = Kernel(source, "k", defines).compile()
    assert found == tuple(each.declared for each in compiled.parameters)


@pytest.mark.parametrize("rung", RUNGS[:12], ids=lambda rung: rung.name)
def test_the_types_of_the_ladders_small_kernels_are_read(
    rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(rung.kernel("float64", rung.default_tile).request())
    real = plain_types(job, job.gathered())
    assert real is not None
    assert real[3:5] == ("double", "double*")


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("__global__ void k(size_t n) {}", {}),
        ("__global__ void k(float4 x) {}", {}),
        ("__global__ void k(float x[4]) {}", {}),
        ("__global__ void k(int& x) {}", {}),
        ("__global__ void k(long double x) {}", {}),
        ("__global__ void k(void (*f)(int)) {}", {}),
        ("#define float double\n__global__ void k(float x) {}", {}),
        ("#if 0\n#define int \\\n long\n#endif\n__global__ void k(int x) {}", {}),
        ("__global__ void k(real x) {}", {"defines": {"real": "T", "T": "int"}}),
        ("__global__ void k(real x) {}", {"defines": {"real": "int", "int": "long"}}),
        ("__global__ void k(real x) {}", {"defines": {"real": "int", "x": "y"}}),
        ("__global__ void k(real x) {}", {"defines": {"real": "int", "k": "k"}}),
        ("__global__ void k(real x) {}", {"defines": {"real": "float4"}}),
        ("__global__ void k(real(int) x) {}", {"defines": {"real": "int"}}),
        ("__global__ void k(A(int) x) {}", {"options": ["-DA(x)=long"]}),
        (DEFAULT + "__global__ void k(real x) {}", {}),
        ("#define/**/int long\n__global__ void k(int x) {}", {}),
        (
            "#define /* a * of\n a line */ real float\n__global__ void k(real x) {}",
            {"defines": {"real": "double"}},
        ),
        (
            "#def\\\nine real float\n__global__ void k(real x) {}",
            {"defines": {"real": "double"}},
        ),
        ("// " + DEFAULT[:-7] + "__global__ void k(real x) {}", {"defines": {"real": "short"}}),
        (
            DEFAULT + "#define real float\n__global__ void k(real x) {}",
            {"defines": {"real": "float"}},
        ),
        (
            DEFAULT.replace("#def", "#define other\n#def") + "__global__ void k(real x) {}",
            {"defines": {"real": "float"}},
        ),
        (
            "#undef real\ntypedef float real;\n__global__ void k(real x) {}",
            {"defines": {"real": "int"}},
        ),
        (
            "typedef float real;\n__global__ void k(real x) {}",
            {"options": ["-Dreal=int", "-Ureal"]},
        ),
        ("#define k other\n__global__ void k(int x) {}", {}),
        ("#ifdef A\n__global__ void k(int x) {}\n#else\n__global__ void k(long x) {}\n#endif", {}),
        ("__global__ void k(\n#ifdef A\nint x\n#else\nlong x\n#endif\n) {}", {}),
        ("__global__ void k(int x) {}\n__global__ void k(float x) {}", {}),
        ("__global__ void k(int x);", {}),
        ("#define KERNEL __global__ void\nKERNEL k(int x) {}", {}),
        ("template <class T> __global__ void k(int x) {}", {}),
    ],
)
def test_what_only_the_compiler_can_tell(source: str, more: Any) -> None:
    assert read(source, **more) is None


def test_a_source_is_compiled_once(runs: list[str]) -> None:
    compiled = Kernel("__global__ void k(const float* x, unsigned n) {}", "k").compile()
    assert [each.declared for each in compiled.parameters] == ["float*", "unsigned int"]
    assert runs == ["whole"]
    compiled = Kernel("__global__ void k(const float4* x, size_t n) {}", "k").compile()
    assert [each.declared for each in compiled.parameters] == ["float4*", "unsigned long"]
    assert runs[1:] == ["whole", "syntax"]


def test_a_large_source_is_not_parsed(runs: list[str]) -> None:
    source = "__global__ void k(float* x) {}\n" + "// a comment\n" * 3000
    assert read(source) is None
    assert Kernel(source, "k").compile().parameters[0].declared == "float*"
    assert runs == ["whole", "syntax"]


@has_toolkit
def test_a_source_with_cudas_headers_is_read_once(runs: list[str]) -> None:
    head = "#include <cuda_fp16.h>\n"
    compiled = Kernel(head + "__global__ void k(const float* x, unsigned n) {}", "k").compile()
    assert [each.declared for each in compiled.parameters] == ["float*", "unsigned int"]
    assert runs == ["whole"]
    compiled = Kernel(head + "__global__ void k(const __half* x, unsigned n) {}", "k").compile()
    assert [each.declared for each in compiled.parameters] == ["__half*", "unsigned int"]
    assert runs[1:] == ["whole", "syntax"]


@has_toolkit
def test_a_source_that_launches_is_not_compiled_whole_first(runs: list[str]) -> None:
    source = "#include <cuda_fp16.h>\n__global__ void k(float* x) { *x = 1; }\n"
    host = "int main() { k<<<1, 1>>>(nullptr); }\n"
    assert Kernel(source + host, "k").compile().is_part
    assert runs == ["whole"]
    with pytest.raises(CompileError, match="has no kernel called 'other'; it has k"):
        Kernel(source + host, "other").compile()
    assert runs == ["whole"]
    # To be linked, it may launch.
    options = ["--relocatable-device-code=true"]
    assert not Kernel(source + host, "k", options=options).compile().is_part


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("void f() { k<<<1, 1>>>(); }", True),
        ("namespace a { static void f() { if (true) { k<<<1, 1>>>(); } } }", True),
        ('extern "C" { void f() { k<<<1, 1>>>(); } }', True),
        ("#if A\n#endif\nvoid f() { k<<<1, 1>>>(); }", True),
        ("template <class T> void f() { k<<<1, 1>>>(); }", False),
        ("struct A { void f() { k<<<1, 1>>>(); } };", False),
        ("#ifdef A\nvoid f() { k<<<1, 1>>>(); }\n#endif", False),
        ("void f() { auto l = [](auto x) { k<<<1, 1>>>(x); }; }", False),
        ("void f() { IGNORED(k<<<1, 1>>>()); }", False),
        ("#define F void f() { k<<<1, 1>>>(); }\n", False),
        ("// void f() { k<<<1, 1>>>(); }\n", False),
        ("void f() {}", False),
    ],
)
def test_where_a_launch_stands(text: str, wanted: bool) -> None:
    text = f"__global__ void k(int x = 0) {{}}\n{text}"
    assert has_host_launch(parsed(text)) is wanted
    if wanted:  # the compiler says so too
        job = job_of(Kernel(text, "k").request())
        assert not job.run(job.gathered(), job.options, "k").ok
