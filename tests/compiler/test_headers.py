"""Headers that are not the source's own: CUDA's, and what stands for the host's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference import thorough
from watched import folder as folder

from tilewise import compiler
from tilewise.compiler import headers, includes, nvrtc, toolkit
from tilewise.errors import CompileError
from tilewise.kernel import Kernel
from tilewise.limits import Limits

pytestmark = pytest.mark.usefixtures("ptx_alone")

KERNEL = 'extern "C" __global__ void k(int* x) { *x = VALUE; }\n'
VERSION = f"#define CUDART_VERSION {nvrtc.version()[0]}050\n"
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes folders with headers that look like CUDA's; no others are found."""
    compiler.forget()
    monkeypatch.setattr(toolkit, "USUAL", tmp_path / "usual")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    for variable in toolkit.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    places = toolkit._places

    def only_ours(include: tuple[Path, ...]) -> list[tuple[Path, str]]:
        return [each for each in places(include) if str(each[0]).startswith(str(tmp_path))]

    monkeypatch.setattr(toolkit, "_places", only_ours)

    def made(name: str, texts: dict[str, str], lacks: tuple[str, ...] = ()) -> Path:
        place = tmp_path / name
        texts = {
            "cuda_runtime_api.h": VERSION, "crt/host_defines.h": "", "cccl/cuda/std/version": "",
            **texts,
        }  # fmt: skip
        for header, text in texts.items():
            if not header.startswith(lacks or ("/",)):
                (place / header).parent.mkdir(parents=True, exist_ok=True)
                (place / header).write_text(text)
        compiler.forget()  # a place that comes before another is not seen by what was compiled
        return place

    return made


def value(source: str, **more: object) -> int:
    """The number that a kernel writes."""
    ptx = compiler.compile(source + KERNEL, "k", **more).ptx
    found = re.search(r"mov\.\w+\s+%r\d+, (\d+);", ptx)
    assert found is not None, ptx
    return int(found[1])


WHEELS = f"site/nvidia/cu{nvrtc.version()[0]}/include"


def test_the_order_of_the_places(make: Make, tmp_path: Path, folder: Path) -> None:
    source = "#include <cuda_fp16.h>\n"
    variables = {"CUDA_PATH": "by_path", "CUDA_HOME": "by_home"}
    places = ["usual/include", "by_path/include", "by_home/include", WHEELS]
    with pytest.MonkeyPatch.context() as patch:
        for variable, name in variables.items():
            patch.setenv(variable, str(tmp_path / name))
        for number, name in enumerate(places, 100):
            make(name, {"cuda_fp16.h": f"#define VALUE {number}\n"})
            assert value(source) == number
        given = make("given", {"cuda_fp16.h": "#define VALUE 200\n"})
        assert value(source, include=[given]) == 200
        assert value(source) == 103
        (folder / "cuda_fp16.h").write_text("#define VALUE 300\n")
        assert value(source, path=folder / "k.cu", include=[given]) == 300
        assert value(source, include=[given, folder]) == 300
    found = toolkit.find()
    assert found is not None
    assert found.origin == "the wheels"


def test_a_place_is_taken_whole(make: Make) -> None:
    make(WHEELS, {"cuda_fp16.h": "#define VALUE 1\n"}, lacks=("cccl",))
    assert value("#include <cuda_fp16.h>\n") == 1
    make("usual/include", {"cuda_fp16.h": "#define VALUE 2\n"})
    assert value("#include <cuda_fp16.h>\n") == 2


def test_headers_of_another_major_version_are_passed_over(make: Make) -> None:
    make(WHEELS, {"cuda_runtime_api.h": "#define CUDART_VERSION 12080\n"})
    assert toolkit.find() is None
    make("usual/include", {"cuda_fp16.h": "#define VALUE 4\n"})
    assert value("#include <cuda_fp16.h>\n") == 4


def test_what_is_not_installed_is_named_with_its_line_and_what_brings_it(make: Make) -> None:
    brings = r'pip install "tilewise\[headers\]" brings it'
    for is_trusted in (False, True):
        for name in ("cuda_fp16.h", "mma.h", "cooperative_groups/reduce.h", "cub/cub.cuh"):
            with pytest.raises(CompileError, match=rf"<source>:2: error: <{name}> .*{brings}"):
                value(f"\n#include <{name}>\n#define VALUE 1\n", trusted=is_trusted)
    make(WHEELS, {}, lacks=("crt", "cccl"))
    with pytest.raises(
        CompileError, match=rf"without nvidia-cuda-crt and nvidia-cuda-cccl; {brings}"
    ):
        value("#include <mma.h>\n")
    with pytest.raises(
        CompileError, match=r"<source>:1: error: <nothere.h> is not read: .*no such"
    ):
        value("#include <nothere.h>\n")
    assert value("#if __has_include(<mma.h>)\n#error\n#endif\n#define VALUE 3\n") == 3
    # What is installed later is found in the same process.
    make(WHEELS, {"mma.h": "#define VALUE 5\n"})
    assert value("#include <mma.h>\n") == 5


def test_another_version_or_place_is_another_kernel(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "#include <cuda_fp16.h>\n"
    place = make("usual/include", {})
    make("other/include", {"cuda_fp16.h": "#define VALUE 3\n"})
    for number in (1, 2, 1):
        (place / "cuda_fp16.h").write_text(f"#define VALUE {number}\n")
        (place / "cuda_fp16.hpp").write_text(f"// {number} of them\n")
        os.utime(place / "cuda_fp16.hpp", ns=(number, number))
        assert value(source) == number
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "other"))
    assert value(source) == 3
    monkeypatch.delenv("CUDA_HOME")
    assert value(source) == 1


def test_all_headers_are_looked_at_once_a_version(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    make("usual/include", {"cuda_fp16.h": "#define VALUE 1\n"})
    looked: list[Path] = []
    real = toolkit._looked_for

    def look(place: Path) -> toolkit.Misused:
        looked.append(place)
        return real(place)

    monkeypatch.setattr(toolkit, "_looked_for", look)
    for number in range(3):
        toolkit._misused.cache_clear()  # as another process has it
        includes.gather(f"#include <cuda_fp16.h>\n// {number}\n", "k.cu", None)
    assert len(looked) == 1


def test_headers_include_what_lies_beside_them(make: Make, folder: Path) -> None:
    """From a string as from a file; and they use macros in includes and ask for files."""
    texts = {
        "mma.h": '#include "crt/mma.h"\n',
        "crt/mma.h": '#include "mma.hpp"\n#include <cuda/std/inner>\n',
        "crt/mma.hpp": "#define NAME <cuda_name.h>\n#include NAME\n",
        "cuda_name.h": "#if __has_include(<cstdint>)\n#include <cstdint>\n#define A 40\n#endif\n",
        "cccl/cuda/std/inner": '#include "../../inner.h"\n',
        "cccl/inner.h": "#define VALUE A + 2 + sizeof(uint32_t) - 4\n",
    }
    make("usual/include", texts)
    limits = Limits(seconds=60)
    for path in (None, folder / "k.cu"):
        for is_trusted in (False, True):
            assert value("#include <mma.h>\n", path=path, trusted=is_trusted) == 42
            assert value("#include <mma.h>\n", path=path, trusted=is_trusted, limits=limits) == 42


def test_a_trusted_string_includes_headers_that_include_others(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text("#define VALUE 9\n")
    source = f'#define NAME "{tmp_path / "a.h"}"\n#include NAME\n'
    assert value(source, trusted=True) == 9


def test_a_folder_that_is_called_like_a_header(make: Make, folder: Path) -> None:
    make("usual/include", {"cuda_fp16.h": "#define VALUE 6\n"})
    (folder / "cuda_fp16.h").mkdir()
    (folder / "cstdint").mkdir()
    source = '#include "cuda_fp16.h"\n#include <cstdint>\n'
    assert value(source, path=folder / "k.cu") == 6


def test_a_sources_own_header_comes_before_the_hosts(folder: Path, tmp_path: Path) -> None:
    (folder / "helper_cuda.h").write_text("#define VALUE 7\n")
    (folder / "cstdint").write_text("#define VALUE 8\n")
    source = "#include <helper_cuda.h>\n"
    assert value(source, path=folder / "k.cu") == 7
    assert value(source, include=[folder]) == 7
    assert value("#include <cstdint>\n", include=[folder]) == 8


HOST = [
    "cstdio", "cassert", "cstdint", "cstdlib", "cmath", "climits", "cfloat", "cstring", "vector",
    "string", "iostream", "algorithm", "chrono", "random", "fstream", "iomanip", "stdexcept",
    "stdio.h", "stdlib.h", "math.h", "assert.h", "stdint.h", "stdbool.h", "string.h", "time.h",
    "limits.h", "float.h", "bits/stdc++.h", "omp.h", "sys/time.h", "unistd.h", "cublas_v2.h",
    "cublasLt.h", "curand.h", "cuda_runtime.h", "device_launch_parameters.h", "cuda.h",
    "helper_cuda.h", "helper_functions.h", "helper_timer.h", "torch/extension.h", "torch/types.h",
    "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h", "pybind11/pybind11.h",
    "thrust/device_vector.h", "thrust/sort.h",
]  # fmt: skip


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_headers_of_the_host_are_there_without_any_of_cudas(make: Make, standard: str) -> None:
    for names in (HOST, HOST[::-1]):
        source = "".join(f"#include <{name}>\n" for name in names)
        assert value(f"{source}#define VALUE 11\n", options=[f"--std={standard}"]) == 11


def test_every_header_of_ours_compiles_alone() -> None:
    for file in headers.FOLDER.rglob("*"):
        name = file.relative_to(headers.FOLDER).as_posix()
        if file.is_file() and file.suffix != ".txt" and not name.startswith(("without", "cub")):
            assert headers.find(name) == file
            assert value(f"#include <{name}>\n#include <{name}>\n#define VALUE 12\n") == 12


def test_what_device_code_uses_of_the_hosts_headers() -> None:
    source = """
    #include <algorithm>
    #include <array>
    #include <cfloat>
    #include <cmath>
    #include <cstddef>
    #include <cstdint>
    #include <limits>
    #include <type_traits>
    #include <utility>
    static_assert(sizeof(uint8_t) == 1 && sizeof(std::int16_t) == 2 && sizeof(uintptr_t) == 8);
    static_assert(std::is_same_v<std::remove_cv_t<const volatile float>, float>);
    static_assert(std::is_same_v<std::decay_t<int (&)[3]>, int*> && !std::is_integral_v<float>);
    static_assert(std::is_unsigned_v<std::make_unsigned_t<long>> && std::is_signed_v<double>);
    static_assert(std::is_pointer_v<int* const> && !std::is_pointer_v<int>);
    static_assert(std::is_same_v<std::conditional_t<true, int, float>, int>);
    static_assert(offsetof(float4, z) == 8 && SIZE_MAX == ~size_t(0) && UINT32_MAX == ~0u);
    static_assert(std::numeric_limits<std::int64_t>::max() == INT64_MAX && DBL_EPSILON < 1e-15);
    static_assert(std::index_sequence_for<int, float>::size() == 2);
    static_assert(std::is_same_v<std::make_integer_sequence<int, 5>,
                                 std::integer_sequence<int, 0, 1, 2, 3, 4>>);
    static_assert(std::make_index_sequence<1000>::size() == 1000);
    template <class T, std::enable_if_t<std::is_floating_point<T>::value, int> = 0>
    T half_of(T x) { return x / 2; }
    extern "C" __global__ void k(float* x, int n) {
        std::array<float, 3> three{{1, 2, 3}};
        float a = 4, b = 5;
        std::swap(a, b);
        x[0] = std::min(x[0], 2.0f) + std::max({1, 7, 3}) + std::clamp(n, 0, 3);
        x[1] = std::sqrt(16.0f) + std::abs(-2.5f) + std::fabs(-1.0) + std::pow(2.0f, 3);
        x[2] = std::numeric_limits<float>::infinity();
        x[3] = FLT_MAX;
        x[4] = half_of(three[2]) + three.size() + a * 10 + b;
        x[5] = std::isnan(NAN) + 2 * std::isinf(INFINITY) + std::make_pair(4, 0.5f).first;
    }
    """
    x = np.full(6, 9, np.float32)
    Kernel(source, "k").launch(1, 1, (x, 100), device="emulator")
    top = np.finfo(np.float32).max
    assert x.tolist() == [12, 15.5, np.inf, top, 58.5, 7]


def test_what_nvcc_has_without_an_include() -> None:
    source = """
    typedef unsigned int uint;  // many sources have it of their own
    extern "C" __global__ void k(uint* x, ushort* y, int32_t n) {
        dim3 size(blockDim); float4 four = make_float4(1, 2, 3, 4); size_t at = threadIdx.x;
        assert(n > 0);
        printf("%d\\n", n);
        x[at] = min(n, 3) + max(1u, 2u) + uint(four.w) + size.x + (INT_MAX > n) + uint(M_PI);
        y[at] = 7;
        cudaError_t error = cudaSuccess; memset(y, 0, 2);
    }
    """
    x, y = np.zeros(1, np.uint32), np.ones(1, np.uint16)
    Kernel(source, "k").launch(1, 1, (x, y, 5), device="emulator")
    assert (x[0], y[0]) == (3 + 2 + 4 + 1 + 1 + 3, 0)
    with pytest.raises(CompileError, match='"uint32_t" is undefined'):
        compiler.compile("__global__ void k(uint32_t* x) {}", "k")


@pytest.fixture(scope="module")
def installed() -> toolkit.Toolkit:
    """CUDA's real headers."""
    found = toolkit.find()
    if found is None or found.lacks:
        pytest.skip(f"CUDA's headers are not installed: {toolkit.INSTALL_HINT}")
    return found


OF_CUDA = {
    "cuda_fp16.h": "__half2 a = __hadd2(__float2half2_rn(NUMBER), __float2half2_rn(1)); "
                   "*x = int(__low2float(a)) - 1;",
    "cuda_bf16.h": "__nv_bfloat16 a = __float2bfloat16(NUMBER); *x = int(__bfloat162float(a));",
    "cuda_fp8.h": "__nv_fp8_e4m3 a(float(NUMBER)); *x = int(float(a));",
    "mma.h": "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> a; "
             "nvcuda::wmma::fill_fragment(a, NUMBER); *x = int(a.x[0]);",
    "cuda.h": "CUtensorMap* map = nullptr; *x = NUMBER + sizeof(*map) - 128;",
    "cudaTypedefs.h": "*x = NUMBER;",
    "cuda_pipeline.h": "__pipeline_commit(); __pipeline_wait_prior(0); *x = NUMBER;",
    "math_constants.h": "*x = NUMBER + (CUDART_INF_F < 0);",
    "cuComplex.h": "*x = int(cuCrealf(make_cuFloatComplex(NUMBER, 0)));",
}  # fmt: skip
OF_CCCL = {
    "cooperative_groups.h": "auto b = cooperative_groups::this_thread_block(); b.sync(); "
                            "*x = NUMBER + b.thread_rank();",
    "cooperative_groups/reduce.h": "auto b = cooperative_groups::this_thread_block(); "
        "auto t = cooperative_groups::tiled_partition<32>(b); "
        "*x = cooperative_groups::reduce(t, NUMBER, cooperative_groups::greater<int>());",
    "cooperative_groups/memcpy_async.h": "*x = NUMBER;",
    "cuda/barrier": "__shared__ cuda::barrier<cuda::thread_scope_block> b; init(&b, 1); "
                    "b.arrive_and_wait(); *x = NUMBER;",
    "cuda/pipeline": "auto p = cuda::make_pipeline(); p.producer_acquire(); "
                     "p.producer_commit(); p.consumer_wait(); p.consumer_release(); *x = NUMBER;",
    "cuda/atomic": "cuda::atomic_ref<int, cuda::thread_scope_device> a(*x); a.store(NUMBER);",
    "cuda/std/array": "cuda::std::array<int, 2> a{NUMBER, 2}; *x = a[0];",
    "cuda/std/limits": "*x = NUMBER + (cuda::std::numeric_limits<int>::max() < 0);",
    "cub/cub.cuh": "using Reduce = cub::BlockReduce<int, 32>; "
        "__shared__ typename Reduce::TempStorage kept; *x = Reduce(kept).Sum(NUMBER);",
    "cub/block/block_reduce.cuh": "*x = NUMBER + sizeof(cub::BlockReduce<int, 32>) * 0;",
    "thrust/tuple.h": "*x = thrust::get<0>(thrust::make_tuple(NUMBER, 2.0f));",
}  # fmt: skip


def compiles(name: str, body: str, folder: Path) -> None:
    source = f'#include <{name}>\nextern "C" __global__ void k(int* x) {{ {body} }}\n'
    (folder / "k.cu").write_text(source)
    defines = {"NUMBER": 21}
    assert Kernel(source, "k", defines).compile().ptx
    assert Kernel(folder / "k.cu", "k", defines).compile().ptx


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OF_CUDA)
def test_cudas_own_headers(name: str, installed: toolkit.Toolkit, folder: Path) -> None:
    compiles(name, OF_CUDA[name], folder)


@thorough
@pytest.mark.parametrize("name", OF_CCCL)
def test_headers_of_cccl(name: str, installed: toolkit.Toolkit, folder: Path) -> None:
    compiles(name, OF_CCCL[name], folder)


@thorough
def test_all_headers_together(installed: toolkit.Toolkit) -> None:
    for names in ([*HOST, *OF_CUDA, *OF_CCCL], [*OF_CCCL, *OF_CUDA, *HOST]):
        source = "".join(f"#include <{name}>\n" for name in names)
        assert value(f"{source}#define VALUE 33\n") == 33


def test_half_precision_runs(installed: toolkit.Toolkit) -> None:
    source = """
    #include <cuda_fp16.h>
    extern "C" __global__ void k(const __half* x, float* y) {
        y[threadIdx.x] = __half2float(__hmul(x[threadIdx.x], __float2half(2.0f)));
    }
    """
    x, y = np.arange(32, dtype=np.float16), np.zeros(32, np.float32)
    Kernel(source, "k").launch(1, 32, (x, y), device="emulator")
    assert y.tolist() == (2 * x.astype(np.float32)).tolist()


def test_cudas_headers_under_limits(installed: toolkit.Toolkit) -> None:
    source = "#include <cuda_fp16.h>\n#define VALUE 3\n"
    assert value(source, limits=Limits(seconds=60)) == 3
