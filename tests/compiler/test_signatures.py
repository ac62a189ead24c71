"""The types that sources declare parameters with: what the compiler says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reference import KERNELS

from tilewise import compiler
from tilewise.compiler import make, nvrtc
from tilewise.ladder.rungs import RUNGS

pytestmark = pytest.mark.usefixtures("ptx_alone")

PREAMBLE = """
#define T float  // names that a careless probe would use, too
#define N 3
typedef float scalar;
using constant = const scalar;
using index_type = unsigned int;
enum Mode { OFF, ON };
template <class A> struct Pair { A x, y; };
namespace deep { struct Inner { int i; }; }
"""


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is asked, even where the declaration would do."""
    monkeypatch.setattr(make, "plain_types", lambda *_: None)


def declared(parameters: str, name: str = "k", before: str = "", **defines: Any) -> tuple[str, ...]:
    source = f'{PREAMBLE}{before}extern "C" __global__ void k({parameters}) {{}}'
    compiled = compiler.compile(source, name, defines=defines)
    return tuple(each.declared for each in compiled.parameters)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ("int n", "int"),
        ("const int n", "int"),
        ("unsigned n", "unsigned int"),
        ("index_type n", "unsigned int"),
        ("size_t n", "unsigned long"),
        ("long long n", "long long"),
        ("bool yes", "bool"),
        ("float x", "float"),
        ("char c", "char"),
        ("Mode mode", ""),
        ("Pair<float> by_value", ""),
        ("const float* __restrict__ x", "float*"),
        ("float* const x", "float*"),
        ("volatile double* x", "double*"),
        ("constant* x", "float*"),
        ("T* x", "float*"),
        ("float x[]", "float*"),
        ("unsigned short* halves", "unsigned short*"),
        ("void* x", "void*"),
        ("const unsigned char* bytes", "unsigned char*"),
        ("float4* x", "float4*"),
        ("float** rows", "float**"),
        ("Pair<double>* x", "*"),
        ("deep::Inner* x", "*"),
        ("Mode* x", "*"),
    ],
)
def test_a_parameter(parameter: str, expected: str) -> None:
    assert declared(f"int first, {parameter}, float* last") == ("int", expected, "float*")


def test_types_are_of_the_architecture_and_take_no_ptxas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    run, seen = nvrtc.run, []

    def noted(*args: Any) -> nvrtc.Output:
        seen.append(args[2])
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", noted)
    for arch, wanted in (("sm_90a", "int"), ("sm_90", "unsigned int")):
        source = (
            "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\ntypedef int type;\n#else\n"
            "typedef unsigned type;\n#endif\n__global__ void k(type x) {}\n"
        )
        compiled = compiler.compile(source, "k", arch=arch, defines={"ARCH": "sm_80"})
        assert [each.declared for each in compiled.parameters] == [wanted]
        (_, told) = seen[-2:]
        assert f"--gpu-architecture={arch.replace('sm', 'compute')}" in told
        assert any(each.endswith("ARCH=sm_80") for each in told)


@pytest.mark.parametrize(("real", "expected"), [("float", "float*"), ("double", "double*")])
def test_a_macro_of_the_caller(real: str, expected: str) -> None:
    assert declared("int n, const real* x", real=real) == ("int", expected)


@pytest.mark.parametrize(
    ("kernel", "name", "expected"),
    [
        ("template <class A, int M> __global__ void t(const A* x, int n) {}", "t<double, 4>",
         ("double*", "int")),
        ("template <class A> __global__ void t(A x, A* y) {}", "t<unsigned char>",
         ("unsigned char", "unsigned char*")),
        ("namespace a::b { __global__ void t(long* x) {} }", "a::b::t", ("long*",)),
        ("namespace { __global__ void t(short* x) {} }", "t", ("short*",)),
        ("static __global__ void t(int* x) {}", "t", ("int*",)),
        ("struct __half { unsigned short bits; };\n__global__ void t(__half* x) {}", "t",
         ("__half*",)),
        ("__global__ void t(const int* x);\n__global__ void t(const int* x) {}", "t", ("int*",)),
    ],
)  # fmt: skip
def test_a_kernel(kernel: str, name: str, expected: tuple[str, ...]) -> None:
    assert declared("", name, kernel + "\n") == expected


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        # Asked for by its symbol, which C++ can't name.
        ("__global__ void t(int* x) {}", "_Z1tPi"),
        # The probe does not compile behind such sources.
        ("typedef int __half;\n__global__ void t(__half* x) {}", "t"),
        ("#define namespace 1\n__global__ void t(int* x) {}", "t"),
    ],
)
def test_where_nothing_can_be_told(kernel: str, name: str) -> None:
    assert declared("", name, kernel + "\n") == ("",)


def test_it_is_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    compiler.forget()
    assert declared("int n, double* kept") == ("int", "double*")
    compiler.forget()
    monkeypatch.setattr(nvrtc, "run", None)
    assert declared("int n, double* kept") == ("int", "double*")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "rung", [x for x in RUNGS if "float64" in x.dtypes][::4], ids=lambda x: x.name
)
def test_of_the_ladder(rung: Any) -> None:
    real = "double"
    found = rung.kernel("float64", rung.tiles[0] if rung.tiles else None).compile().parameters
    assert [each.declared for each in found] == [
        "int", "int", "int", real, f"{real}*", "int", f"{real}*", "int", real, f"{real}*", "int",
    ]  # fmt: skip


def test_no_code_is_made_of_the_probe() -> None:
    compiled = compiler.compile((KERNELS / "shared.cu").read_text(), "reverse")
    assert "tilewise_signature" not in compiled.ptx
    assert b"tilewise_signature" not in compiled.cubin


@pytest.mark.parametrize(
    ("variables", "questions"),
    [
        ("__device__ int total; __constant__ float weights[2][3];", 1),
        # A name that is ambiguous at the end: then each is asked about by itself.
        ("__device__ int total; __constant__ float weights[2][3];"
         "__device__ int twin; namespace { __device__ int twin; }", 7),
    ],
)  # fmt: skip
def test_parameters_and_variables_are_told_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, variables: str, questions: int
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    compiler.forget()
    options: list[str] = []
    run = nvrtc.run

    def counted(*args: Any) -> nvrtc.Output:
        options.extend(args[2])
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", counted)
    # The list of the parameters' numbers must not be one of a variable's: a structure is 0.
    source = f'{PREAMBLE}{variables}extern "C" __global__ void k(Pair<int> p, int n) {{}}'
    compiled = compiler.compile(source, "k", lines=True)
    assert [each.declared for each in compiled.parameters] == ["", "int"]
    told = {each.name: (each.declared, each.shape) for each in compiled.variables if each.is_known}
    assert told == {"total": ("int", ()), "weights": ("float", (2, 3))}
    assert options.count("--fdevice-syntax-only") == questions
