"""``wmma``: matrices of a warp, loaded, multiplied and stored whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Array, assert_same, examples

from tilewise.compiler import machine_code
from tilewise.devices import Device
from tilewise.errors import BarrierError, MemoryAccessError, RaceError, UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

pytestmark = pytest.mark.usefixtures("uncounted")

SHAPES = ("m16n16k16", "m32n8k16", "m8n32k16")
WORD = {"f32": "float", "f64": "double"}


@dataclass(frozen=True)
class Case:
    """A product of a warp: what is multiplied, and where it lies.

    Attributes
    ----------
    shape, type, sum : str
        PTX's; ``sum`` is the type of C and D.
    layouts : (str, str, str)
        ``"row"`` or ``"col"`` for A, B, and both of C and D.
    space : str
        ``"shared"``, ``"global"`` or ``"generic"`` (which is shared).
    pads : (int, int, int)
        Elements between lines of A, B and C, in steps of 16 bytes.
    """

    shape: str = "m16n16k16"
    type: str = "f16"
    sum: str = "f32"
    layouts: tuple[str, str, str] = ("row", "col", "row")
    space: str = "shared"
    pads: tuple[int, int, int] = (0, 0, 0)
    tail: str = ""

    @property
    def sides(self) -> tuple[int, int, int]:
        m, n, k = (int(x) for x in self.shape[1:].replace("n", " ").replace("k", " ").split())
        return m, n, k

    def extents(self) -> tuple[tuple[int, int], ...]:
        m, n, k = self.sides
        return (m, k), (k, n), (m, n)

    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        return (*[np.dtype(STORED[self.type])] * 2, np.dtype(STORED[self.sum]))

    def registers(self) -> tuple[int, int, int]:
        """Of A, B and C, as PTX has them."""
        m, n, k = self.sides
        if self.type == "f16":
            return 8, 8, 8 if self.sum == "f32" else 4
        bits = BITS[self.type] * (8 if self.type == "f64" else 4)
        each = 64 if self.type == "f64" else 32
        held = (m * k // 32, k * n // 32, m * n // 32)
        a, b = (-(-x * BITS[self.type] // each) for x in held[:2])
        assert bits
        return a, b, held[2]

    def leads(self) -> tuple[int, ...]:
        """Elements from one line to the next."""
        out = []
        for (rows, columns), layout, pad, dtype in zip(
            self.extents(), self.layouts, self.pads, self.dtypes(), strict=True
        ):
            out.append((columns if layout == "row" else rows) + pad * 16 // dtype.itemsize)
        return tuple(out)

    def source(self) -> str:
        a, b, c = self.registers()
        letter = {"f32": "f", "f64": "d"}.get(self.sum, "r")
        of_ab = "d" if self.type == "f64" else "r"
        word = WORD.get(self.sum, "unsigned")
        word_ab = "double" if self.type == "f64" else "unsigned"
        space = "" if self.space == "generic" else f".{self.space}"
        ab_types = "" if self.type == "f16" else f".{self.type}.{self.type}"

        def vector(first: int, count: int) -> str:
            return "{" + ",".join(f"%{first + i}" for i in range(count)) + "}"

        def load(role: str, name: str, count: int, type_: str, letter: str, layout: str) -> str:
            outs = ",".join(f'"={letter}"({name}[{i}])' for i in range(count))
            return (
                f'asm volatile("wmma.load.{role}.sync.aligned.{layout}.{self.shape}{space}.{type_} '
                f'{vector(0, count)}, [%{count}], %{count + 1};" : {outs} : '
                f'PTR(p{name}), "r"(l{name}) : "memory");'
            )

        ins = ",".join(
            f'"{kind}"({name}[{i}])'
            for name, count, kind in (("a", a, of_ab), ("b", b, of_ab), ("c", c, letter))
            for i in range(count)
        )
        outs = ",".join(f'"={letter}"(d[{i}])' for i in range(c))
        stored = ",".join(f'"{letter}"(d[{i}])' for i in range(c))
        is_global = self.space == "global"
        cast = '"r"((unsigned)__cvta_generic_to_shared(x))' if self.space == "shared" else '"l"(x)'
        bit = ".xor.popc" if self.type == "b1" else ""
        sums = f"{self.sum}{ab_types}.{self.sum}"
        return f"""
        #define PTR(x) {cast}
        extern __shared__ __align__(128) char there[];
        extern "C" __global__ void product(char* ga, char* gb, char* gc, char* gd, int na, int nb,
                                           int nc, int la, int lb, int lc) {{
            char *pa = ga, *pb = gb, *pc = gc, *pd = gd;
            {
            ""
            if is_global
            else '''
            pa = there, pb = pa + na, pc = pb + nb, pd = pc + nc;
            for (int i = threadIdx.x; i < na; i += blockDim.x) pa[i] = ga[i];
            for (int i = threadIdx.x; i < nb; i += blockDim.x) pb[i] = gb[i];
            for (int i = threadIdx.x; i < nc; i += blockDim.x) pc[i] = gc[i], pd[i] = gd[i];
            __syncthreads();'''
        }
            {word_ab} a[{a}], b[{b}];
            {word} c[{c}], d[{c}];
            int ld = lc;
            {load("a", "a", a, self.type, of_ab, self.layouts[0])}
            {load("b", "b", b, self.type, of_ab, self.layouts[1])}
            {load("c", "c", c, self.sum, letter, self.layouts[2])}
            asm volatile("wmma.mma{bit}.sync.aligned.{self.layouts[0]}.{self.layouts[1]}"
                         ".{self.shape}.{sums}{self.tail} {vector(0, c)}, {vector(c, a)}, "
                         "{vector(c + a, b)}, {vector(c + a + b, c)};" : {outs} : {ins});
            asm volatile("wmma.store.d.sync.aligned.{self.layouts[2]}.{self.shape}{space}.{
            self.sum
        }"
                         " [%{c}], {vector(0, c)}, %{c + 1};" :: {stored}, PTR(pd), "r"(ld)
                         : "memory");
            {
            ""
            if is_global
            else '''
            __syncthreads();
            for (int i = threadIdx.x; i < nc; i += blockDim.x) gd[i] = pd[i];'''
        }
        }}
        """.replace("[%", "[%").replace(f"}}, [%{c}]", f"}}, [%{c}]")

    def run(
        self,
        device: Device,
        a: Array,
        b: Array,
        c: Array,
        checks: str = "raise",
        counts: bool = False,
    ) -> tuple[Array, LaunchReport]:
        """D, from matrices of stored elements."""
        images = []
        for x, layout, lead, dtype in zip(
            (a, b, c, c), (*self.layouts, self.layouts[2]),
            (*self.leads(), self.leads()[2]), (*self.dtypes(), self.dtypes()[2]), strict=True,
        ):  # fmt: skip
            lines = x if layout == "row" else x.T
            image = np.zeros((len(lines), lead), dtype)
            image[:, : lines.shape[1]] = lines
            images.append(image)
        images[3][:, :] = 99
        sizes = [x.nbytes for x in images[:3]]
        report = Kernel(self.source(), "product").launch(
            1, 32, (*images, *sizes, *self.leads()), shared=sum(sizes) + sizes[2], device=device,
            checks=checks, counts=counts,
        )  # fmt: skip
        lines = images[3]
        rows, columns = self.extents()[2]
        side = columns if self.layouts[2] == "row" else rows
        assert (lines[:, side:] == 99).all()
        found = lines[:, :side]
        return np.ascontiguousarray(found if self.layouts[2] == "row" else found.T), report


STORED = {
    "f16": "float16", "bf16": "uint16", "tf32": "float32", "f64": "float64", "s8": "int8",
    "u8": "uint8", "f32": "float32", "s32": "int32",
}  # fmt: skip
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8}
SUMS = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",),
        "s8": ("s32",), "u8": ("s32",)}  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Case:
    type_ = draw(st.sampled_from(sorted(SUMS)))
    shape = {"tf32": "m16n16k8", "f64": "m8n8k4"}.get(type_) or draw(st.sampled_from(SHAPES))
    layout = st.sampled_from(["row", "col"])
    pad = st.integers(0, 3)
    return Case(
        shape, type_, draw(st.sampled_from(SUMS[type_])),
        (draw(layout), draw(layout), draw(layout)),
        draw(st.sampled_from(["shared", "global", "generic"])), (draw(pad), draw(pad), draw(pad)),
    )  # fmt: skip


def matrices(case: Case, seed: int = 1) -> list[Array]:
    """Of numbers of which every sum of products is exact, as they are stored."""
    rng = np.random.default_rng(seed)
    out = []
    for place, (extent, dtype) in enumerate(zip(case.extents(), case.dtypes(), strict=True)):
        x: Array = rng.integers(0 if case.type == "u8" else -8, 9, extent)
        if case.type in ("f16", "bf16", "tf32", "f64"):
            x = x / 4.0
        if case.type == "bf16" and place < 2:
            x = x.astype(np.float32).view(np.uint32) >> 16
        out.append(x.astype(dtype))
    return out


def numbers(x: Array, type_: str) -> Array:
    if type_ == "bf16":
        return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return x.astype(np.float64)


@examples(300, quick=6)
@given(case=cases())
def test_a_product(device: Device, case: Case) -> None:
    a, b, c = matrices(case)
    d, _ = case.run(device, a, b, c)
    expected = numbers(a, case.type) @ numbers(b, case.type) + c.astype(np.float64)
    assert_same(d, expected.astype(c.dtype))


@pytest.mark.parametrize("type_", ["s4", "u4", "b1"])
def test_a_product_of_less_than_bytes(device: Device, type_: str) -> None:
    """Eight numbers of four bits a word, or 32 single bits of which the unlike ones count."""
    bits, k = (1, 128) if type_ == "b1" else (4, 32)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << bits, (8, k)) for _ in range(2))
    c = rng.integers(-50, 50, (8, 8)).astype(np.int32)
    kind = "xor.popc." if type_ == "b1" else ""
    source = f"""
    extern "C" __global__ void product(const unsigned* a, const unsigned* b, const int* c,
                                       int* d) {{
        asm volatile("{{ .reg .b32 a, b, c0, c1;"
            "wmma.load.a.sync.aligned.row.m8n8k{k}.global.{type_} {{a}}, [%0], {k};"
            "wmma.load.b.sync.aligned.col.m8n8k{k}.global.{type_} {{b}}, [%1], {k};"
            "wmma.load.c.sync.aligned.row.m8n8k{k}.global.s32 {{c0, c1}}, [%2], 8;"
            "wmma.mma.{kind}sync.aligned.row.col.m8n8k{k}.s32.{type_}.{type_}.s32 "
            "{{c0, c1}}, {{a}}, {{b}}, {{c0, c1}};"
            "wmma.store.d.sync.aligned.col.m8n8k{k}.global.s32 [%3], {{c0, c1}}, 8; }}"
            :: "l"(a), "l"(b), "l"(c), "l"(d) : "memory");
    }}"""

    def packed(x: Array) -> Array:
        each = 32 // bits
        words = x.astype(np.uint64).reshape(8, -1, each) << np.arange(0, 32, bits).astype(np.uint64)
        found: Array = words.sum(axis=2).astype(np.uint32)
        return found

    d = np.zeros((8, 8), np.int32)
    Kernel(source, "product").launch(1, 32, (packed(a), packed(b), c, d), device=device)
    if type_ == "b1":
        expected = (a[:, None, :] != b[None, :, :]).sum(axis=2) + c
    else:
        if type_ == "s4":
            a, b = ((x ^ 8) - 8 for x in (a, b))
        expected = a @ b.T + c
    assert_same(d.T, expected.astype(np.int32))


@pytest.mark.parametrize("tail", ["", ".satfinite"])
def test_sums_of_integers_wrap_around_or_do_not(device: Device, tail: str) -> None:
    case = Case(type="s8", sum="s32", tail=tail)
    a, b = np.full((16, 16), 127, np.int8), np.full((16, 16), 127, np.int8)
    b[:, 1] = -128
    c = np.full((16, 16), 2**31 - 1, np.int32)
    c[:, 1] = -(2**31)
    d, _ = case.run(device, a, b, c)
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    limited = np.clip(exact, -(2**31), 2**31 - 1) if tail else exact.astype(np.uint32)
    assert_same(d, limited.astype(np.uint32).astype(np.int32))


def test_tf32_has_ten_bits_of_fraction(device: Device) -> None:
    case = Case("m16n16k8", "tf32")
    a, b, c = (np.zeros(x, np.float32) for x in case.extents())
    a[:, 0], b[0] = 1 + 2**-10 + 2**-11, 1
    d, _ = case.run(device, a, b, c)
    assert (d == np.float32(1 + 2**-10)).all()


HELD = """
#define CONCAT(x) x
extern "C" __global__ void held(const void* from, unsigned* out) {
    unsigned a[8];
    asm volatile("wmma.load.ROLE.sync.aligned.LAYOUT.SHAPE.global.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], LEAD;"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]), "=r"(a[4]), "=r"(a[5]),
                   "=r"(a[6]), "=r"(a[7]) : "l"(from) : "memory");
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = a[i];
}"""


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize(("role", "shape"), [
    ("a", "m16n16k16"), ("b", "m16n16k16"), ("a", "m32n8k16"), ("b", "m32n8k16"),
    ("a", "m8n32k16"), ("b", "m8n32k16"),
])  # fmt: skip
def test_what_lanes_hold(device: Device, role: str, shape: str, layout: str) -> None:
    """What ``mma``'s fragments hold, as machine code for compute capability 8.0 and 9.0 has it."""
    m, n, k = Case(shape).sides
    rows, columns = (m, k) if role == "a" else (k, n)
    whole = np.arange(rows * columns, dtype=np.uint16).reshape(rows, columns)
    lines = whole if layout == "row" else np.ascontiguousarray(whole.T)
    source = HELD.replace("ROLE", role).replace("LAYOUT", layout).replace("SHAPE", shape)
    source = source.replace("LEAD", str(lines.shape[1]))
    out = np.zeros((32, 8), np.uint32)
    Kernel(source, "held").launch(1, 32, (lines, out), device=device)
    by_k = whole if role == "a" else whole.T  # lines along k
    expected = np.zeros((32, 16), np.uint16)
    for lane in range(32):
        group, number = divmod(lane, 4)
        takes_turns = len(by_k) > 8 and (role == "a" or m < n)  # the left side of mma.m16n8k16
        for x in range(16):
            if takes_turns:
                line = x // 8 * 16 + x // 2 % 2 * 8
                along = x // 4 % 2 * 8
            else:
                line, along = x // 4 * 8, x // 2 % 2 * 8
            line = (group + line) % len(by_k)
            expected[lane, x] = by_k[line, along + 2 * number + x % 2]
    assert_same(out.view(np.uint16).reshape(32, 16), expected)


# Counts


@examples(60, quick=1)
@given(case=cases(), arch=st.sampled_from(["sm_80", "sm_90a"]))
def test_accesses_are_those_of_the_machine_code(emulator: Device, case: Case, arch: str) -> None:
    """As many shared and global ones, of one width each, as ptxas makes of one instruction."""
    if machine_code.find_nvdisasm() is None:
        pytest.skip("needs nvdisasm")
    a, b, c = matrices(case)
    _, report = case.run(emulator, a, b, c, counts=True)
    assert report.counted_as == "machine code", report.notes
    compiled = Kernel(case.source(), "product").compile(arch)
    found = machine_code.disassemble(compiled)
    assert found.instructions is not None
    assert report.counters is not None
    lines = case.source().splitlines()
    for line, text in enumerate(lines, 1):
        if "wmma.load" not in text and "wmma.store" not in text:
            continue
        mine = report.lines.get(line)
        counted = 0
        if mine is not None:
            counted = (
                mine.shared_load_requests + mine.shared_store_requests
                + mine.global_load_requests + mine.global_store_requests
            )  # fmt: skip
        made = sum(
            i.line == line and i.opcode in ("LDS", "STS", "LDG", "STG", "LD", "ST")
            for i in found.instructions
        )
        assert counted == made, text


# What is wrong


def test_reads_of_what_nobody_wrote(emulator: Device) -> None:
    source = """
    extern "C" __global__ void lacks(unsigned* out) {
        __shared__ __align__(128) unsigned there[128];
        for (int i = threadIdx.x; i < 128; i += 32) if (i != 77) there[i] = i;
        __syncwarp();
        unsigned a[8];
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], 16;"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]), "=r"(a[4]), "=r"(a[5]),
                       "=r"(a[6]), "=r"(a[7])
                     : "r"((unsigned)__cvta_generic_to_shared(there)) : "memory");
        out[threadIdx.x] = a[0];
    }"""
    with pytest.raises(UninitializedReadError, match=r"reads there\[76\] in shared memory"):
        Kernel(source, "lacks").launch(1, 32, (np.zeros(32, np.uint32),), device=emulator)


def test_a_matrix_beyond_its_array(emulator: Device) -> None:
    case = Case(space="global")
    a, b, c = matrices(case)
    kernel = Kernel(case.source(), "product")
    args = a[:15].copy(), b, c, c.copy(), a.nbytes, b.nbytes, c.nbytes, 16, 16, 16
    with pytest.raises(MemoryAccessError, match=r"global memory at ga\[15\]\[0\]"):
        kernel.launch(1, 32, args, device=emulator)


@pytest.mark.parametrize(
    ("lead", "words"), [(20, "loads a matrix that has a stride 8 bytes past a multiple of 16 by")]
)
def test_strides_are_multiples_of_16_bytes(emulator: Device, lead: int, words: str) -> None:
    case = Case(space="global")
    a, b, c = (np.zeros((32, 32), x.dtype) for x in matrices(case))
    kernel = Kernel(case.source(), "product")
    args = a, b, c, c.copy(), a.nbytes, b.nbytes, c.nbytes, lead, 32, 32
    with pytest.raises(MemoryAccessError, match=words):
        kernel.launch(1, 32, args, device=emulator)


def test_a_warp_gives_one_address(emulator: Device) -> None:
    source = Case(space="global").source().replace("*pa = ga,", "*pa = ga + 32 * threadIdx.x,")
    args = *(np.zeros((64, 64), np.float32) for _ in range(4)), 0, 0, 0, 16, 16, 16
    with pytest.raises(BarrierError, match="another address of its matrix than the first thread"):
        Kernel(source, "product").launch(1, 32, args, device=emulator)


def test_a_barrier_that_is_missing(emulator: Device) -> None:
    """Two warps: the second one reads what the first one stores."""
    source = """
    extern "C" __global__ void races(float* out) {
        __shared__ __align__(128) float there[256];
        float d[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        if (threadIdx.x < 32)
            asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], "
                         "{%1, %2, %3, %4, %5, %6, %7, %8}, 16;"
                         :: "r"((unsigned)__cvta_generic_to_shared(there)), "f"(d[0]), "f"(d[1]),
                            "f"(d[2]), "f"(d[3]), "f"(d[4]), "f"(d[5]), "f"(d[6]), "f"(d[7])
                         : "memory");
        BARRIER
        if (threadIdx.x >= 32) out[threadIdx.x - 32] = there[threadIdx.x];
    }"""
    out = np.zeros(32, np.float32)
    right = Kernel(source.replace("BARRIER", "__syncthreads();"), "races")
    right.launch(1, 64, (out,), device=emulator)
    assert (out[0], out[8], out[9]) == (1, 5, 6)  # row 2, from column 0 on
    with pytest.raises(RaceError, match="no barrier after the write of another thread"):
        Kernel(source.replace("BARRIER", ""), "races").launch(1, 64, (out,), device=emulator)


def test_blocks_of_one_kind_are_profiled_once(emulator: Device) -> None:
    source = """
    extern "C" __global__ void gemm(int k, const unsigned short* a, const unsigned short* b,
                                    float* c, int n) {
        float s[8] = {};
        unsigned x[8], y[8];
        a += 16 * blockIdx.y * k, b += 16 * blockIdx.x, c += 16 * (blockIdx.y * n + blockIdx.x);
        for (int i = 0; i < k; i += 16) {
            asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
                "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]),
                  "=r"(x[6]), "=r"(x[7]) : "l"(a + i), "r"(k));
            asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.global.f16 "
                "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]), "=r"(y[4]), "=r"(y[5]),
                  "=r"(y[6]), "=r"(y[7]) : "l"(b + i * n), "r"(n));
            asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 "
                "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, "
                "{%16, %17, %18, %19, %20, %21, %22, %23}, {%0, %1, %2, %3, %4, %5, %6, %7};"
                : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]),
                  "+f"(s[6]), "+f"(s[7])
                : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]),
                  "r"(x[7]), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]),
                  "r"(y[6]), "r"(y[7]));
        }
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], "
            "{%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
            :: "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]), "f"(s[4]), "f"(s[5]), "f"(s[6]),
               "f"(s[7]), "l"(c), "r"(n) : "memory");
    }"""
    m, n, k = 96, 128, 48
    rng = np.random.default_rng(2)
    a, b = ((rng.integers(-8, 9, x) / 4).astype(np.float16) for x in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float32)
    kernel = Kernel(source, "gemm")
    launch = (n // 16, m // 16), 32, (k, a, b, c, n)
    found = kernel.profile(*launch)
    assert found.blocks_run < 4
    assert not c.any()
    report = kernel.launch(*launch, device=emulator, counts=True)
    assert_same(c, a.astype(np.float32) @ b.astype(np.float32))
    assert found.counters == report.counters
    with pytest.raises(MemoryAccessError, match=r"global memory at b\[48\]\[0\]"):
        kernel.profile(launch[0], 32, (k + 16, a, b, c, n))
