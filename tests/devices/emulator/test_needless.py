"""What a profile need not compute, and what it must."""

from __future__ import annotations

import numpy as np
import pytest
from reference import thorough

from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.sampling.needless import needless
from tilewise.errors import UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import RUNGS, rung
from tilewise.launch import Launch
from tilewise.lens.prepared_gemm import PreparedGemm

pytestmark = pytest.mark.usefixtures("ptx_alone")

TILED = [x.name for x in RUNGS if x.default_tile is not None and "float64" in x.dtypes]
HEAD = 'extern "C" __global__ void k(int n, const float* a, float* out) {\n'
SUM = HEAD + "float sum = 0; for (int i = 0; i < n; ++i) sum += a[i] * a[i + 1]; "
NEEDED = {
    "branch": SUM + "if (sum > 3) out[0] = 1; }",
    "address": SUM + "out[(int)sum] = 1; }",
    "atomic": SUM + "atomicAdd(out, sum); }",
    "shuffle": SUM + "out[0] = __shfl_sync(~0u, sum, 3); }",
    "read again": SUM + "out[0] = sum; __syncthreads(); if (out[1] > 3) out[2] = 1; }",
    "shared": "__shared__ float s[32];" + SUM
    + "s[threadIdx.x] = sum; __syncthreads(); if (s[3] > 3) out[2] = 1; }",
    "printed": SUM + 'printf("%f", sum); }',
    "selected": SUM + "out[0] = sum > 3 ? a[0] : a[1]; }",
}  # fmt: skip


def left_out(source: str) -> int:
    compiled = Kernel(source, "k").compile(Emulator().arch)
    return len(needless(Program(parse(compiled.ptx), compiled.symbol)))


def test_a_sum_that_is_only_stored_is_left_out() -> None:
    assert left_out(SUM + "out[0] = sum; }") > 0
    shared = "__shared__ float s[32];" + SUM + "s[threadIdx.x] = sum; __syncthreads(); "
    assert left_out(shared + "out[0] = s[3] * 2; }") > 0


@pytest.mark.parametrize("name", NEEDED)
def test_what_decides_is_computed(name: str) -> None:
    assert left_out(NEEDED[name]) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[thorough] * (x not in ("naive", "tiled"))) for x in TILED],
)
def test_the_counts_are_the_same(name: str, dtype: str) -> None:
    """And C is not what it would be, so something was left out."""
    each, emulator = rung(name), Emulator()
    tile = 16 if 16 in each.tiles else each.tiles[0]
    m, n, k = 2 * tile + 4, tile + 8, 40
    grid, block = each.geometry(m, n, tile, dtype)
    compiled = each.kernel(dtype, tile).compile(emulator.arch)
    reports, results = [], []
    for computes in (True, False):
        a, b, c = (emulator.array(np.ones(shape, dtype)) for shape in ((m, k), (k, n), (m, n)))
        launch = Launch(grid, block, (m, n, k, 1.0, a, k, b, n, 0.5, c, n))
        reports.append(emulator.sample(compiled, launch, computes=computes))
        results.append(c.to_numpy())
    some, other = reports
    assert (some.counters, some.lines, some.footprint, some.alike, some.findings, some.notes) == (
        other.counters, other.lines, other.footprint, other.alike, other.findings, other.notes
    )  # fmt: skip
    assert (results[0] == 40.5).any()
    is_computed = name == "tiled_branchless"  # it selects what it stores by a predicate
    assert (results[1] == 40.5).any() == is_computed


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [x.name for x in RUNGS if "float16" in x.dtypes])
def test_products_by_tensor_cores_are_left_out(name: str) -> None:
    """Nothing is decided by what they give."""
    compiled = PreparedGemm.of(name, 256, 256, 64, tile=rung(name).tiles[0]).compile("sm_90a")
    program = Program(parse(compiled.ptx), compiled.symbol)
    products = {i for i, x in enumerate(program.instructions) if _multiplies(x)}
    assert products
    assert products <= needless(program)


def _multiplies(instruction: Instruction) -> bool:
    return instruction.opcode == "mma" or "mma_async" in instruction.modifiers


def test_what_nobody_wrote_is_found_all_the_same() -> None:
    emulator = Emulator()
    compiled = Kernel(SUM + "out[blockIdx.x] = sum; }", "k").compile(emulator.arch)
    unset, out = emulator.empty((32,), np.float32), emulator.array(np.zeros(8, np.float32))
    with pytest.raises(UninitializedReadError, match=r"reads what nobody wrote at a\[0\]"):
        emulator.sample(compiled, Launch((8, 1, 1), (1, 1, 1), (4, unset, out)), computes=False)
