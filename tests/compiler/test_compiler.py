"""The compiler: kernels found by name, resources, messages, and the cache."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import ROOT, thorough

from tilewise import compiler
from tilewise.compiler import Compiled, Parameter, includes, nvrtc, shipped, symbols
from tilewise.compiler import cache as compiler_cache
from tilewise.compiler.mangled import demangle
from tilewise.errors import CompileError, DeviceUnavailableError
from tilewise.explanation import of_shape
from tilewise.gemm.chip import H200
from tilewise.gemm.plan import kernels_of
from tilewise.kernel import SOURCES, Kernel

SOURCE = """
extern "C" __global__ void plain(int n, float* x) {
    __shared__ float s[33];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[n - threadIdx.x];
}
__global__ void mangled(double* x) { x[0] = 1; }
template <int N, typename T> __global__ void filled(T* x) { x[0] = N; }
namespace space {
struct Pair { int a; double b; };
__global__ void inner(Pair p, char c, const short* x, bool yes) { if (yes) *(int*)x = p.a + c; }
}
__device__ int helper(int x) { return x; }
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(place))
    compiler.forget()
    return place


def forget() -> None:
    """As in a new process: only what is on disk is left."""
    compiler.forget()


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    run = nvrtc.run

    def counted(source: str, file: str, options: Sequence[str], *more: Any) -> nvrtc.Output:
        if "--fdevice-syntax-only" not in options:  # the front end alone makes no code
            seen.append(source)
        return run(source, file, options, *more)

    monkeypatch.setattr(nvrtc, "run", counted)
    return seen


def test_kernels_of_one_source_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCE + 'extern "C" __global__ void other(float* x, long n) { x[n] = 2; }'
    names = ("plain", "other", "_Z7mangledPd")
    alone = []
    for name in names:
        forget()
        alone.append(compiler.compile(source, name, options=("-DALONE",)))
    forget()
    seen = count_compilations(monkeypatch)
    together = [compiler.compile(source, name) for name in names]
    assert len(seen) == 1
    for one, other in zip(alone, together, strict=True):
        assert replace(one, macros=other.macros) == other
    assert together[1].parameters[1].declared == "long"
    # Of a template, an instance is compiled that was asked for; other options are another module.
    compiler.compile(source, "filled<3, float>")
    compiler.compile(source, "other", defines={"UNUSED": 1})
    assert len(seen) == 3
    with pytest.raises(CompileError, match="no kernel called 'none'"):
        compiler.compile(source, "none")


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("plain", "plain"),
        ("mangled", "_Z7mangledPd"),
        ("_Z7mangledPd", "_Z7mangledPd"),
        ("filled<3, float>", "_Z6filledILi3EfEvPT0_"),
        ("space::inner", "_ZN5space5innerENS_4PairEcPKsb"),
    ],
)
def test_a_kernel_is_found_by_name(name: str, symbol: str) -> None:
    compiled = compiler.compile(SOURCE, name)
    assert (compiled.name, compiled.symbol) == (name, symbol)
    assert f".entry {symbol}(" in compiled.ptx
    assert compiled.cubin[:4] == b"\x7fELF"
    assert not compiled.ptx.endswith("\0")


def test_parameters() -> None:
    found = compiler.compile(SOURCE, "space::inner").parameters
    assert [(p.type, p.size, p.align) for p in found] == [
        ("b8", 16, 8), ("u8", 1, 1), ("u64", 8, 8), ("u8", 1, 1)
    ]  # fmt: skip
    assert compiler.compile('extern "C" __global__ void none() {}', "none").parameters == ()


def test_resources() -> None:
    found = compiler.compile(SOURCE, "plain").resources
    assert (found.shared_bytes, found.barriers, found.spill_bytes) == (132, 1, 0)
    assert 4 <= found.registers <= 32
    # sm_90's parameters begin at 0x210: an int, padding, a pointer.
    assert found.constant_bytes == 0x210 + 16


def test_spills_and_stack() -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* x, int n) {
        x += threadIdx.x * 64;
        float v[64];
        #pragma unroll
        for (int i = 0; i < 64; ++i) v[i] = x[i];
        for (int r = 0; r < n; ++r) {
            #pragma unroll
            for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 1) % 64] + x[r];
        }
        #pragma unroll
        for (int i = 0; i < 64; ++i) x[i] = v[i];
    }"""
    found = compiler.compile(source, "spilling").resources
    assert found.registers <= 32
    assert found.spill_bytes > 0
    assert found.stack_bytes > 0


def test_figures_of_both_forms_of_the_log() -> None:
    cubin = compiler.compile(SOURCE, "plain").cubin
    older = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers
ptxas info    : Compiling entry function 'plain' for 'sm_90'
ptxas info    : Function properties for plain
    40 bytes stack frame, 36 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 40 registers, 1 barriers, 8192 bytes smem, 412 bytes cmem[0]"""
    found = symbols.resources(older, cubin, "plain")
    assert (found.registers, found.shared_bytes, found.spill_bytes) == (40, 8192, 80)
    assert (found.stack_bytes, found.barriers) == (40, 1)
    newer = older.replace(", 1 barriers", ", used 1 barriers, 48 bytes cumulative stack size")
    found = symbols.resources(newer, cubin, "plain")
    assert (found.stack_bytes, found.barriers) == (48, 1)


@pytest.mark.parametrize("name", ["absent", "helper", "filled", "1 +"])
def test_a_missing_kernel_lists_those_there_are(name: str) -> None:
    with pytest.raises(CompileError, match="plain") as caught:
        compiler.compile(SOURCE, name)
    for there in ("plain", "mangled", "space::inner", "filled<...>"):
        assert there in str(caught.value)
    assert "helper" not in str(caught.value).split("it has")[1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x[0] = N;\n  unknown_name();", ["<source>:3: error:", '"unknown_name" is undefined']),
        (
            'x[0] = N;\n  static_assert(N % 8 == 0, "N must be a multiple of 8");',
            ["<source>:3: error:", "N must be a multiple of 8", "with N=4"],
        ),
        ('x[0] = N;\n  asm("no.such.instruction;");', ["<source>:3: error: ptxas refuses"]),
    ],
)
def test_an_instance_of_a_template_that_does_not_compile(body: str, words: list[str]) -> None:
    """The log says why; that there is no such kernel would be wrong."""
    source = f"template <int N> __global__ void f(float* x) {{\n  {body}\n}}"
    with pytest.raises(CompileError) as caught:
        compiler.compile(source, "f<4>")
    for word in ("f<4> of <source> does not compile", *words):
        assert word in str(caught.value)


def test_an_instance_where_a_constructor_is_the_last_definition() -> None:
    """NVRTC 13 alone makes nothing of the kernel here."""
    source = """
    template <typename T> struct Pair { __device__ Pair(T first); T first; };
    template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= 3; }
    template <typename T> __device__ Pair<T>::Pair(T first) : first(first) {}"""
    assert "mul" in Kernel(source, "scale<float>").compile().ptx


def test_an_instance_whose_arguments_do_not_fit_its_template() -> None:
    with pytest.raises(CompileError, match="cannot determine which instance"):
        compiler.compile("template <int N> __global__ void f(float* x) {}", "f<int>")


def test_a_source_with_no_kernel() -> None:
    with pytest.raises(CompileError, match="no kernel"):
        compiler.compile("int x;", "x")
    with pytest.raises(CompileError, match="is empty: it has no kernel called 'k'"):
        compiler.compile("\n", "k")


def test_errors_show_file_line_and_source(tmp_path: Path) -> None:
    source = (
        '__device__ int f() {\n  return unknown_name + 1;\n}\nextern "C" __global__ void k() {}'
    )
    path = tmp_path / "broken.cu"
    with pytest.raises(CompileError) as caught:
        compiler.compile(source, "k", path=path)
    assert f"{path}:2: error:" in str(caught.value)
    assert "  return unknown_name + 1;" in str(caught.value)


def test_a_line_that_ptxas_refuses_is_shown() -> None:
    source = 'extern "C" __global__ void k(int* x) {\n  asm("no.such.instruction;");\n}'
    with pytest.raises(CompileError) as caught:
        compiler.compile(source, "k")
    assert "<source>:2: error:" in str(caught.value)
    assert 'asm("no.such.instruction;");' in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(16, "16"), (2.5, "2.5"), ("8 + 8", "8 + 8"), (np.int32(7), "7"), (True, "1"), (-3, "-3")],
)
def test_macros(value: object, expected: str) -> None:
    source = f"""
    static_assert(VALUE == {expected}, "not the macro's value");
    extern "C" __global__ void k() {{}}"""
    assert compiler.compile(source, "k", defines={"VALUE": value}).name == "k"


def test_a_false_macro_is_not_defined() -> None:
    source = '#ifdef FLAG\n#error defined\n#endif\nextern "C" __global__ void k() {}'
    assert compiler.compile(source, "k", defines={"FLAG": False}).name == "k"


def test_only_macros_that_are_not_defined_are_named_beside_the_options() -> None:
    def kept_by(defines: dict[str, Any], *options: str) -> bytes | None:
        return compiler.key_of(compiler.Request(SOURCE, "plain", defines, options=options))

    given = kept_by({"A": 1})
    assert given == kept_by({}, "-DA=1")
    without = kept_by({"A": 1, "B": False})
    assert without not in (given, kept_by({"A": 1, "C": np.False_}), kept_by({"A": 1, "B": 0}))
    assert without == kept_by({"A": 1, "B": np.False_})


@pytest.mark.parametrize("macro", ["", "1A", "A B", "A=3", "A(x)", "défini", "A\n", "defined"])
def test_names_that_no_macro_can_have(macro: str) -> None:
    with pytest.raises(ValueError, match="macro"):
        compiler.compile(SOURCE, "plain", defines={macro: 1})


def test_arguments_of_other_types_and_values() -> None:
    with pytest.raises(TypeError, match="source is bytes"):
        compiler.compile(b"", "k")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name is int"):
        compiler.compile(SOURCE, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options"):
        compiler.compile(SOURCE, "plain", options="--std=c++17")
    with pytest.raises(TypeError, match="options"):
        Kernel(SOURCE, "plain", options="--std=c++17").compile()
    with pytest.raises(ValueError, match="architecture"):
        compiler.compile(SOURCE, "plain", options=["--gpu-architecture=sm_80"])
    with pytest.raises(ValueError, match="not the name"):
        compiler.compile(SOURCE, " ")
    with pytest.raises(TypeError, match="macro A"):
        compiler.compile(SOURCE, "plain", defines={"A": [1]})
    with pytest.raises(ValueError, match="no literal"):
        compiler.compile(SOURCE, "plain", defines={"A": float("nan")})
    with pytest.raises(ValueError, match="one line"):
        compiler.compile(SOURCE, "plain", defines={"A": "1\n2"})


def test_architectures() -> None:
    known = compiler.architectures()
    assert {"sm_80", "sm_90", "sm_90a", "sm_100f"} <= set(known)
    kernel = 'extern "C" __global__ void k() {}'
    for arch in ("sm_75", known[-1], known[-2]):
        assert f".target {arch}" in compiler.compile(kernel, "k", arch=arch).ptx
    with pytest.raises(ValueError, match=r"sm_1\b.*sm_90a"):
        compiler.compile(kernel, "k", arch="sm_1")


def test_the_file_is_called_what_it_was_given_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, name in ((None, "<source>"), (Path("a b/ü.cu"), "a b/ü.cu")):
        compiled = compiler.compile(SOURCE, "plain", path=path)
        assert compiled.file == name
        assert f'.file\t1 "{name}"' in compiled.ptx


def test_headers_are_found_beside_the_source_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "value.cuh").write_text("#define VALUE 1\n")
    source = '#include "value.cuh"\nextern "C" __global__ void k(int* x) { *x = VALUE; }'
    assert compiler.compile(source, "k", path=tmp_path / "k.cu").name == "k"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError, match=r"value\.cuh"):
        compiler.compile(source, "k")
    assert compiler.compile(source, "k", include=[tmp_path]).name == "k"


def test_a_changed_header_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"\n')
    inner = tmp_path / "inner.cuh"
    source = '#include "outer.cuh"\nextern "C" __global__ void k(int* x) { *x = VALUE; }'

    def constant(value: int) -> bool:
        inner.write_text(f"#define VALUE {value}\n")
        os.utime(inner, ns=(value, value))
        return f", {value};" in compiler.compile(source, "k", path=tmp_path / "k.cu").ptx

    assert constant(4321)
    assert constant(8765)
    forget()
    assert constant(4321)


def test_an_include_by_macro_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "value.cuh").write_text("#define VALUE 1\n")
    source = '#include HEADER\nextern "C" __global__ void k(int* x) { *x = VALUE; }'
    seen = count_compilations(monkeypatch)
    known = {"HEADER": '"value.cuh"'}  # a macro of the caller's, whose value is known
    unknown = "#define HEADER <value.cuh>\n" + source
    for text, defines, count in ((unknown, {}, 2), (source, known, 3)):
        for _ in range(2):
            compiler.compile(text, "k", defines=defines, path=tmp_path / "k.cu", trusted=True)
        assert len(seen) == count


def test_the_cache_saves_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_compilations(monkeypatch)
    first = compiler.compile(SOURCE, "plain")
    assert compiler.compile(SOURCE, "plain") is first
    forget()
    assert compiler.compile(SOURCE, "plain") == first
    assert len(seen) == 1
    compiler.compile(SOURCE, "plain", defines={"X": 1})
    compiler.compile(SOURCE, "plain", arch="sm_80")
    compiler.compile(SOURCE, "mangled")
    assert len(seen) == 4


def test_a_corrupt_entry_is_compiled_anew(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiler.compile(SOURCE, "plain")
    files = [file for file in own_cache.rglob("*") if file.is_file() and file.stat().st_size > 9]
    assert files
    seen = count_compilations(monkeypatch)
    for damage in (lambda data: data[:-7], lambda data: b"", lambda data: data[:90] + b"?" * 99):
        for file in files:
            file.write_bytes(damage(file.read_bytes()))
        forget()
        assert compiler.compile(SOURCE, "plain") == first
    assert len(seen) == 3


def test_a_place_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert compiler.compile(SOURCE, "plain").symbol == "plain"


@thorough  # a plain run has a process that stores in it below, and in test_underway.py
def test_two_processes_share_the_cache() -> None:
    code = (
        "from tilewise import compiler\n"
        f"print(compiler.compile({SOURCE!r}, 'plain').resources.shared_bytes)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [run.communicate(timeout=120)[0].strip() for run in runs] == [b"132", b"132"]
    assert compiler_cache.directory() is not None


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(compiler.__file__).parents[2]), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "entries").rglob("*") if path.is_file())


def test_a_process_that_ends_while_it_stores_leaves_nothing(own_cache: Path) -> None:
    code = (
        "import os\n"
        "from tilewise import compiler\n"
        "os.replace = os.link = os.rename = lambda *_, **__: os._exit(9)\n"
        f"compiler.compile({SOURCE!r}, 'plain')"
    )
    assert run_python(code).returncode == 9
    assert any(path.stat().st_size > 1000 for path in own_cache.rglob("*") if path.is_file())
    assert not entries(own_cache)
    assert compiler.compile(SOURCE, "plain").resources.shared_bytes == 132
    assert len(entries(own_cache)) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_is_read_on(
    code: int, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    compiler.compile(SOURCE, "mangled")
    seen = count_compilations(monkeypatch)
    for name in ("mkstemp", "NamedTemporaryFile"):
        monkeypatch.setattr(tempfile, name, refuses)
    for name in ("replace", "utime", "unlink"):
        monkeypatch.setattr(os, name, refuses)
    forget()
    assert compiler.compile(SOURCE, "mangled").symbol == "_Z7mangledPd"
    assert not seen
    assert compiler.compile(SOURCE, "plain").symbol == "plain"
    assert len(seen) == len(entries(own_cache)) == 1


LINES = """
extern "C" __global__ void lines(int n, float* x) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += x[i];
    x[threadIdx.x] = sum;
}"""


def code_of(compiled: compiler.Compiled) -> dict[str, bytes]:
    """The sections of machine code, and of constants."""
    names = symbols.sections(compiled.cubin)
    start = struct.unpack_from("<Q", compiled.cubin, 40)[0]
    width, count, _ = struct.unpack_from("<HHH", compiled.cubin, 58)
    heads = [
        struct.unpack_from("<IIQQQQ", compiled.cubin, start + at * width) for at in range(count)
    ]
    return {
        name: compiled.cubin[head[4] : head[4] + size]
        for (name, size), head in zip(names.items(), heads, strict=True)
        if name.startswith((".text", ".nv.constant"))
    }


def undeclared(compiled: Compiled) -> tuple[Parameter, ...]:
    return tuple(replace(each, declared="") for each in compiled.parameters)


def test_lines_change_no_instruction() -> None:
    with_lines, without = (compiler.compile(LINES, "lines", lines=on) for on in (True, False))
    assert ".loc" in with_lines.ptx
    assert ".loc" not in without.ptx
    assert len(without.cubin) < len(with_lines.cubin)
    assert ".text.lines" in code_of(without)
    assert code_of(without) == code_of(with_lines)
    assert without.resources == with_lines.resources
    assert without.parameters == undeclared(with_lines)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=thorough), "float64"])
def test_lines_change_no_instruction_of_a_product(dtype: str) -> None:
    for kernel in kernels_of(H200, [of_shape(300, 200, 500, dtype, "NT")]):
        with_lines, without = (kernel.compile("sm_90a", lines=on) for on in (True, False))
        assert code_of(without) == code_of(with_lines)
        assert without.resources == with_lines.resources
        assert without.parameters == undeclared(with_lines)


def test_ptx_from_the_cache_is_inflated_when_it_is_read(own_cache: Path) -> None:
    first = compiler.compile(LINES, "lines")
    (file,) = entries(own_cache)
    assert file.stat().st_size < len(first.cubin) + len(first.ptx)
    forget()
    again = compiler.compile(LINES, "lines")
    assert isinstance(again.__dict__["_ptx"], bytes)
    file.unlink()
    report = Kernel(LINES, "lines").launch(
        1, 32, (40, np.ones(32, np.float32)), device="emulator", checks="collect"
    )
    assert {(finding.kind, finding.line) for finding in report.findings} >= {("out of bounds", 5)}
    assert again.ptx == first.ptx
    assert again == first
    assert replace(again, ptx="other").ptx == "other"


def test_variables_from_the_cache_are_made_when_they_are_read(own_cache: Path) -> None:
    source = """__constant__ int few[3]; __device__ float one;
    extern "C" __global__ void k(float* x) { x[0] = one + few[2]; }"""
    first = compiler.compile(source, "k")
    forget()
    again = compiler.compile(source, "k")
    assert isinstance(again.__dict__["_variables"], list)
    assert [(x.name, x.space, x.shape) for x in again.variables] == [
        ("few", "constant", (3,)), ("one", "device", ()),
    ]  # fmt: skip
    assert again.variables == first.variables
    assert again == first
    assert pickle.loads(pickle.dumps(again)) == first


# The kernels that come with tilewise


@pytest.fixture
def own_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in the place of tilewise's own kernels, with one kernel and its header."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "value.cuh").write_text("#define VALUE 1234\n")
    (folder / "k.cu").write_text(
        '#include "value.cuh"\nextern "C" __global__ void k(int* x) { *x = VALUE + MORE; }\n'
    )
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "_BEGIN", f"{folder}{os.sep}")
    new_process(monkeypatch)
    yield folder
    shipped._first.cache_clear()


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_read", {})
    shipped._first.cache_clear()
    forget()


def stored(folder: Path, more: Any = 0) -> int:
    """What the kernel stores."""
    x = np.zeros(1, np.int32)
    Kernel(folder / "k.cu", "k", {"MORE": more}).launch(1, 1, (x,), device="emulator")
    return int(x[0])


def test_own_sources_are_read_once_a_process(
    own_kernels: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_compilations(monkeypatch)
    assert stored(own_kernels) == 1234
    (own_kernels / "value.cuh").write_text("#define VALUE 5678\n")
    assert stored(own_kernels) == 1234
    new_process(monkeypatch)
    assert stored(own_kernels) == 5678
    (own_kernels / "value.cuh").write_text("#define VALUE 1234\n")
    new_process(monkeypatch)
    assert stored(own_kernels) == 1234
    assert len(seen) == 2  # each compiled once: the first is found again
    with pytest.raises(FileNotFoundError):
        Kernel(own_kernels / "absent.cu", "k")


def test_threads_that_read_a_file_around_an_edit_have_one_text_of_it(
    own_kernels: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read_text = own_kernels / "value.cuh", Path.read_text
    found: list[str | None] = []

    def edited(path: Path, **given: Any) -> str:
        text = read_text(path, **given)
        if not found:
            path.write_text("#define VALUE 56789\n")
            found.append("")
            found.append(shipped.text(path))  # as another thread does
        return text

    monkeypatch.setattr(Path, "read_text", edited)
    first = shipped.text(path)
    assert first == found[1] == shipped.text(path) == "#define VALUE 56789\n"
    assert shipped.has(str(path), first)
    assert shipped.is_unchanged()


def test_a_text_is_the_one_that_the_digest_is_of(own_kernels: Path) -> None:
    path = own_kernels / "value.cuh"
    digest, before = shipped.digest(), path.read_text()
    path.write_text("#define VALUE 56789\n")
    assert (shipped.text(path), shipped.digest()) == (before, digest)
    assert shipped.has(str(path), before)
    assert not shipped.is_unchanged()


def test_a_file_of_other_text_and_the_same_size_and_time_is_edited(own_kernels: Path) -> None:
    path = own_kernels / "value.cuh"
    before = path.stat()
    text = shipped.text(path)
    assert text is not None
    assert shipped.is_unchanged()
    other = own_kernels.parent / "other"
    other.write_text(text.replace("1", "2"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not shipped.is_unchanged()


def test_what_was_compiled_of_edited_sources_is_not_kept(
    own_kernels: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored(own_kernels) == 1234
    count = len(entries(own_cache))
    (own_kernels / "value.cuh").write_text("#define VALUE 5678\n")
    stored(own_kernels, 1)  # of which header, nobody knows
    assert len(entries(own_cache)) == count
    new_process(monkeypatch)
    assert stored(own_kernels, 1) == 5679


def test_values_of_macros_that_are_equal_are_not_the_same(own_kernels: Path) -> None:
    """True is a macro with no value, and so is 1; 1.0 is another number, False no macro at all."""
    (own_kernels / "k.cu").write_text(
        'extern "C" __global__ void k(int* x) {\n'
        "#ifdef MORE\n*x = (int)(1000 * (MORE / 2));\n#else\n*x = -1;\n#endif\n}\n"
    )
    found = [stored(own_kernels, value) for value in (1, 1.0, True, False, 0, 0.0)]
    assert found == [0, 500, 0, -1, 0, 0]
    assert found == [stored(own_kernels, value) for value in (1, 1.0, True, False, 0, 0.0)]


def test_without_lines_it_does_not_matter_where_tilewise_is(
    own_kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_compilations(monkeypatch)
    kept = Kernel(own_kernels / "k.cu", "k", {"MORE": 2}).compile(lines=False)
    elsewhere = tmp_path / "elsewhere"
    own_kernels.rename(elsewhere)
    monkeypatch.setattr(shipped, "FOLDER", elsewhere)
    monkeypatch.setattr(shipped, "_BEGIN", f"{elsewhere}{os.sep}")
    new_process(monkeypatch)
    moved = Kernel(elsewhere / "k.cu", "k", {"MORE": 2})
    assert moved.compile(lines=False).cubin == kept.cubin
    assert len(seen) == 1
    assert str(elsewhere / "k.cu") in moved.compile().ptx
    assert len(seen) == 2


def test_an_own_file_with_another_text_is_a_user_s(
    own_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored(own_kernels) == 1234
    path = own_kernels / "k.cu"
    changed = path.read_text().replace("VALUE +", "VALUE -")
    (own_kernels / "value.cuh").write_text("#define VALUE 77\n")
    compiled = compiler.compile(changed, "k", defines={"MORE": 7}, path=path)
    assert ", 70;" in compiled.ptx


@thorough
def test_own_kernels_of_two_processes(own_cache: Path) -> None:
    code = (
        "from tilewise.kernel import SOURCES, Kernel\n"
        "path, defines = SOURCES / 'ladder' / '03_naive.cu', {'real': 'float', 'TILE': 8}\n"
        "kernel = Kernel(path, 'naive', defines)\n"
        "print(kernel.compile('sm_80', lines=False).resources.registers)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(compiler.__file__).parents[2])}
    runs = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [run.communicate(timeout=120)[0].strip() for run in runs]
    assert said[0] == said[1] != b""
    (file,) = entries(own_cache)
    before = file.read_bytes()
    refuses = "from tilewise.compiler import nvrtc\nnvrtc.run = None\n"
    assert run_python(refuses + code).stdout.strip() == said[0].decode()
    assert file.read_bytes() == before


def test_how_much_the_cache_keeps(own_kernels: Path, own_cache: Path, tmp_path: Path) -> None:
    user = tmp_path / "user.cu"
    user.write_text((own_kernels / "k.cu").read_text().replace("VALUE", "12"))
    (tmp_path / "value.cuh").write_text("\n")
    for path in (own_kernels / "k.cu", user):
        kernel = Kernel(path, "k", {"MORE": 3})
        for lines in (True, False):
            request = kernel.request(lines=lines)
            before = set(entries(own_cache))
            assert compiler.kept_bytes(request) is None
            kernel.compile(lines=lines)
            (file,) = set(entries(own_cache)) - before
            assert compiler.kept_bytes(request) == file.stat().st_size
            file.write_bytes(b"")
            assert compiler.kept_bytes(request) is None


def test_a_missing_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(nvrtc, "import_module", missing)
    nvrtc._nvrtc.cache_clear()
    nvrtc.architectures.cache_clear()
    try:
        with pytest.raises(DeviceUnavailableError, match="pip install"):
            compiler.compile(SOURCE, "plain")
    finally:
        nvrtc._nvrtc.cache_clear()


def test_importing_does_not_load_the_compiler() -> None:
    code = "import sys, tilewise.compiler; print('cuda.bindings' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, check=True, timeout=60
    )
    assert run.stdout.strip() == b"False"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain", "plain"),
        ("_Z1kPf", "k"),
        ("_Z5sgemmILi64ELi8EfEvPT1_", "sgemm<64, 8, float>"),
        ("_ZN1a1b1kILb1ELin3EEEvv", "a::b::k<true, -3>"),
        ("_Z1kIN1a1bEEvT_", "_Z1kIN1a1bEEvT_"),
    ],
)
def test_demangling(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


def test_a_source_is_gathered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a compilation that the cache does not have, and for one that it has."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "k.cu"
    (tmp_path / "value.cuh").write_text("#define VALUE 3\n")
    path.write_text(
        '#include "value.cuh"\nextern "C" __global__ void k(int* x) { x[0] = VALUE; }\n'
    )
    seen: list[str] = []
    gather = includes.gather

    def counted(source: str, *rest: Any, **more: Any) -> Any:
        seen.append(source)
        return gather(source, *rest, **more)

    monkeypatch.setattr("tilewise.compiler.job.gather", counted)
    for wanted in (1, 2):
        compiler.compile(path.read_text(), "k", path=path)
        assert len(seen) == wanted
        compiler.forget()
    (tmp_path / "value.cuh").write_text("#define VALUE 44\n")
    assert ", 44;" in compiler.compile(path.read_text(), "k", path=path).ptx
    (tmp_path / "value.cuh").write_text("#define VALUE 555\n")  # remembered by its files' times
    assert ", 555;" in compiler.compile(path.read_text(), "k", path=path).ptx


@pytest.mark.sampled(3)
@pytest.mark.parametrize("option", ["-G", "--Ofast-compile=max", "--optimization-info=inline"])
def test_options_change_nothing_that_is_compiled_later(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NVRTC itself compiles to other code from then on: accesses become generic ones."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    path = SOURCES / "gemm" / "unpack.cu"
    kernel = Kernel(path, "unpack", {"OVERLAP": 1})
    before = kernel.compile("sm_90a")
    other = Kernel('extern "C" __global__ void k(int* x) { *x = 3; }', "k", options=[option])
    assert other.compile("sm_90a").cubin
    shipped = Kernel(path, "unpack", {"OVERLAP": 0}, options=[option])
    assert shipped.compile("sm_90a").cubin
    compiler.forget()
    shutil.rmtree(tmp_path)
    assert kernel.compile("sm_90a") == before
