"""Sources that need no textures and no runtime are compiled without their declarations, alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tilewise import compiler
from tilewise.compiler import minimal, nvrtc
from tilewise.errors import CompileError

PLAIN = """
template <class T> __device__ T twice(T x) { return x + x; }
__constant__ float weights[3];
extern "C" __global__ void k(float4* x, const double* y, unsigned long long* n) {
    __shared__ float s[32];
    s[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x].z, 1) * weights[1];
    __syncthreads();
    assert(y[0] > 0);
    if (s[31 - threadIdx.x] != 0) printf("%f\\n", twice(sqrt(y[threadIdx.x])));
    atomicAdd(n, __popcll(clock64()));
    char* some = new char[3];
    x[threadIdx.x].w = erff(dim3(2).x + __ldg(y) + some[2]) + __CUDA_ARCH__;
    delete[] some;
}
"""
ONE = 'extern "C" __global__ void k(int* x) {{ {} }}\n'
TEXTURE = """extern "C" __global__ void k(cudaTextureObject_t t, float* x) {
    x[0] = tex2D<float>(t, 1, 2);
}
"""
Calls = list[tuple[str, ...]]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The options of every call of NVRTC."""
    found: Calls = []
    run: Callable[..., nvrtc.Output] = nvrtc.run

    def counted(source: str, file: str, options: Sequence[str], *rest: Any) -> nvrtc.Output:
        found.append(tuple(options))
        return run(source, file, options, *rest)

    monkeypatch.setattr(nvrtc, "run", counted)
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    compiler.forget()
    return found


def test_the_code_is_the_same(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compiler.compile(PLAIN, "k")
    assert calls
    assert all(minimal.OPTION in each for each in calls)
    calls.clear()
    monkeypatch.setattr(minimal, "is_enough", lambda _: False)
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "other"))
    compiler.forget()
    assert compiler.compile(PLAIN, "k") == found
    assert calls
    assert not any(minimal.OPTION in each for each in calls)


@pytest.mark.parametrize(
    ("source", "defines", "name"),
    [
        (TEXTURE, {}, "k"),
        (ONE.format("*x = cudaErrorMemoryAllocation;"), {}, "k"),
        (ONE.format("*x = CUDA_R_16BF + MAJOR_VERSION;"), {}, "k"),
        ("#ifdef cudaHostAllocMapped\n" + ONE.format("") + "#endif\n", {}, "k"),
        ("#ifndef __CUDACC_RTC_MINIMAL__\n" + ONE.format("") + "#endif\n", {}, "k"),
        (ONE.format("*x = sizeof(T);"), {"T": "cudaTextureDesc"}, "k"),
        (ONE.format("*x = TWO(cud, aSuccess);").replace("ext", "#define TWO(a, b) a##b\next", 1),
         {}, "k"),
        ("template <class T> __global__ void k(T x) {}\n", {}, "k<cudaError_t>"),
    ],
)  # fmt: skip
def test_what_names_them_has_them(
    source: str, defines: dict[str, str], name: str, calls: Calls
) -> None:
    assert compiler.compile(source, name, defines=defines).ptx
    assert minimal.OPTION not in calls[0]


def test_a_header_of_a_source_may_name_them(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "own.h").write_text("typedef cudaSurfaceBoundaryMode* Any;\n")
    source = '#include "own.h"\n' + ONE.format("Any p = 0; *x = p == 0;")
    assert compiler.compile(source, "k", path=tmp_path / "k.cu").ptx
    assert minimal.OPTION not in calls[0]


def test_what_another_version_leaves_out_is_no_error(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimal, "is_enough", lambda _: True)
    assert compiler.compile(TEXTURE, "k").ptx
    first, second, *_ = calls
    assert first == (*second, minimal.OPTION)
    calls.clear()
    # Another error is one with all declarations too: one call of NVRTC finds it.
    with pytest.raises(CompileError, match="expected a"):
        compiler.compile(ONE.format("*x = 1"), "k")
    assert all(minimal.OPTION in each for each in calls)
