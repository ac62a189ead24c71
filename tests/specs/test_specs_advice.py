"""A command line that a kernel can be launched with, of what its own file says."""

from __future__ import annotations

import pytest
from signatures import SOURCE

from tilewise.kernel import Kernel
from tilewise.specs.advice import advice, known_block

pytestmark = pytest.mark.usefixtures("ptx_alone")

SQUARE = (
    "__global__ void k(const float* a, float* c, int n) { c[threadIdx.y * n] = a[blockIdx.y]; }"
)
SUM = "template <int B> __global__ void k(const float* x, float* y, int n) { y[n] = x[B]; }"


def told(source: str, name: str = "k") -> tuple[str, str]:
    kernel = Kernel(source, name)
    found = advice(kernel, kernel.compile())
    return found.options, found.told


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("saxpy", "--grid 4 --block 256 --args n=1024 a=2.5 x=random:n y=zeros:n"),
        ("transpose", "--grid 2,2 --block 16,16 --args in=random:1024 out=zeros:1024 m=32 n=32"),
        ("fill<64, float>", "--grid 16 --block 64 --args x=zeros:1024 value=2.5"),
    ],
)
def test_without_a_launch_in_the_file(name: str, wanted: str) -> None:
    assert told(SOURCE, name) == (wanted, "")


def test_a_square_of_one_size() -> None:
    """A kernel that is launched in two dimensions and takes one size has n x n elements."""
    source = (
        SQUARE
        + """
void run(int size, const float* a, float* c) {
    dim3 threads(8, 4);
    dim3 grid((size + threads.x - 1) / threads.x, (size + 3) / 4);
    k<<<grid, threads, 2 * sizeof(float)>>>(a, c, size);
}"""
    )
    options, of = told(source)
    assert options == ("--grid 4,8 --block 8,4 --shared 8 --args a=random:nxn c=zeros:nxn n=32")
    assert of.startswith(
        "(grid and block as <source>:5 launches it, with sizes chosen here: <<<grid,"
    )


def test_sizes_too_large_to_emulate_are_made_small() -> None:
    source = SUM + "void run(float* x) { int n = 1 << 26; k<64><<<n / 64, 64>>>(x, x, n); }"
    options, of = told(source, "k<64>")
    assert options == "--grid 16 --block 64 --args x=random:n y=zeros:n n=1024"
    assert "with sizes chosen here" in of


def test_sizes_fill_the_tiles_of_the_grid() -> None:
    source = "__global__ void k(int m, int n, float* c) { c[m * n] = threadIdx.x; }\n"
    host = "void run(int M, int N, float* p) { dim3 g((N + 127) / 128, (M + 63) / 64); k<<<g, 99>>>"
    options, _ = told(source + host + "(M, N, p); }")
    assert options == "--grid 1,1 --block 99 --args m=64 n=64 c=zeros:4096".replace("1,1", "1")
    options, _ = told(source + "void run(int M, float* p) { k<<<3, 99>>>(M, M, p); }")
    assert options == "--grid 3 --block 99 --args m=32 n=32 c=zeros:1024"


def test_shared_memory_that_only_the_launch_sizes() -> None:
    kernel = "__global__ void k(float* x) { extern __shared__ float s[]; s[threadIdx.x] = *x; "
    kernel += "__syncthreads(); *x = s[0]; }\n"
    assert told(kernel) == ("--grid 4 --block 256 --shared 2048 --args x=zeros:1024", "")
    options, _ = told(kernel + "void run() { k<<<1, 32, 32 * sizeof(float)>>>(nullptr); }")
    assert options == "--grid 1 --block 32 --shared 128 --args x=zeros:1024"


WAITS = """__global__ void k(unsigned* x, int n) {
    unsigned high, low;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    *x = n + *((unsigned*)((unsigned long long)high << 32 | low) + 1);
}
"""
"""It takes the grid's workspace, as ``this_grid().sync()`` does."""


def test_a_kernel_that_waits_for_the_grid_is_launched_cooperatively() -> None:
    other = "__global__ void other(unsigned* x) { *x = 1; }\n"
    options, _ = told(WAITS)
    assert options == "--grid 4 --block 256 --cooperative --args x=zeros:n n=1024"
    # The PTX has both kernels, of which one waits.
    kernel = Kernel(WAITS + other, "other")
    compiled = kernel.compile()
    assert "%envreg2" in compiled.ptx
    assert "--cooperative" not in advice(kernel, compiled).options


@pytest.mark.parametrize("function", ["(void *)k", "reinterpret_cast<const void*>(&k)", "k"])
def test_a_cooperative_launch_in_the_file(function: str) -> None:
    source = f"""__global__ void k(const float* x, float* y, int n) {{ y[n] = x[blockIdx.x]; }}
void run(float* a, float* b, int size) {{
    dim3 grid((size + 63) / 64, 1, 1), block(64);
    void* all[] = {{(void*)&a, &b, (void *)&size}};
    CHECK(cudaLaunchCooperativeKernel({function}, grid, block, all, 16 * sizeof(float), 0));
}}"""
    options, of = told(source)
    assert options == (
        "--grid 16 --block 64 --shared 64 --cooperative --args x=random:n y=zeros:n n=1024"
    )
    assert of == (
        "(grid and block as <source>:5 launches it, with sizes chosen here: "
        "cudaLaunchCooperativeKernel(k, grid, block, ...))"
    )


def test_arrays_have_an_element_a_thread() -> None:
    source = "__global__ void k(int a, int b, float* x) { x[threadIdx.x] = a * b; }\n"
    options, _ = told(source + "void run() { k<<<8, 64>>>(2, 3, nullptr); }")
    assert options == "--grid 8 --block 64 --args a=2 b=3 x=zeros:512"


def test_a_block_that_no_gpu_has_is_not_suggested() -> None:
    source = "__global__ void k(int* x) { *x = 1; }\nvoid run() { k<<<1, 4096>>>(nullptr); }"
    assert told(source) == ("--grid 4 --block 256 --args x=zeros:1024", "")
    kernel = Kernel(source, "k")
    assert known_block(kernel, kernel.compile()) == (None, "")


@pytest.mark.parametrize(
    ("configuration", "block", "of"),
    [
        ("-1, 0", 256, "(the file launches it as <<<-1, 0>>> at <source>:2, and its grid is -1 and "
         "its block is 0, where each extent must be at least 1)"),
        ("0, 64", 64, "(the block as <source>:2 launches it: <<<0, 64>>>, but its grid is 0, where "
         "each extent must be at least 1)"),
    ],
)  # fmt: skip
def test_a_launch_that_cuda_refuses(configuration: str, block: int, of: str) -> None:
    source = "__global__ void k(int* x) { *x = 1; }\n"
    source += f"void run() {{ k<<<{configuration}>>>(nullptr); }}"
    options, found = told(source)
    grid = 1024 // block
    assert (options, found) == (f"--grid {grid} --block {block} --args x=zeros:1024", of)
    kernel = Kernel(source, "k")
    if block == 256:
        assert known_block(kernel, kernel.compile()) == (None, of.strip("()"))


def test_a_launch_of_another_instance_is_none_of_this_one() -> None:
    source = (
        SUM
        + """
constexpr int HALF = 32;
void run(float* x) { k<64><<<2, 64>>>(x, x, 9); k<HALF><<<4, HALF>>>(x, x, 5); }"""
    )
    assert "--grid 2 --block 64" in told(source, "k<64>")[0]
    assert "--grid 4 --block 32" in told(source, "k<32>")[0]
    assert told(source, "k<16>") == (
        "--grid 4 --block 256 --args x=random:n y=zeros:n n=1024", ""
    )  # fmt: skip


def test_a_grid_that_is_not_known() -> None:
    source = "__global__ void k(int* x) { *x = 1; }\nvoid run() { k<<<blocks(), 96>>>(nullptr); }"
    options, of = told(source)
    assert options == "--grid 11 --block 96 --args x=zeros:1056"
    assert of == "(the block as <source>:2 launches it: <<<blocks(), 96>>>)"


def test_a_block_that_is_not_known() -> None:
    source = "__global__ void k(int* x) { *x = 1; }\nvoid run(int b) { k<<<1, b>>>(nullptr); }"
    options, of = told(source)
    assert options == "--grid 4 --block 256 --args x=zeros:1024"
    assert of.startswith("(the file launches it as <<<1, b>>> at <source>:2")
    kernel = Kernel(source, "k")
    block, unknown = known_block(kernel, kernel.compile())
    assert block is None
    assert unknown in of
