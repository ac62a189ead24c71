"""The rungs of 16-bit matrices: what they take, and what their instructions do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Tilewise
from hypothesis import given
from hypothesis import strategies as st
from reference import THOROUGH, examples, held, thorough

from tilewise import compiler
from tilewise.devices import Device
from tilewise.devices.emulated import emulator
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import Rung, rung
from tilewise.lens.profiling import profile
from tilewise.lens.watch import watch
from tilewise.numbers import check
from tilewise.precision import HALVES, dtype_of

NAMES = ("tensor_core", "ldmatrix", "multistage")
ARCHITECTURES = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120")
MOST_SHARED = 99 * 1024  # of a block of compute capability 8.6, 8.9 and 12.0

every_rung = pytest.mark.parametrize("name", NAMES)
every_tile = pytest.mark.parametrize(
    ("each", "tile"),
    [
        pytest.param(rung(name), tile, id=f"{name}-{tile}")
        for name in NAMES
        for tile in rung(name).tiles
    ],
)


in_one_dtype_each = pytest.mark.parametrize(
    ("name", "dtype"),
    [
        # A quick run has bfloat16 of one rung, which another test compiles for it too.
        pytest.param(
            name, dtype, marks=[thorough] * ((name == "multistage") != (dtype == "bfloat16"))
        )
        for name in NAMES
        for dtype in HALVES
    ],
    indirect=["dtype"],
)


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> str:
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 needs ml_dtypes")
    return str(request.param)


def every_tile_and_architecture() -> Iterator[Any]:
    """All tiles, architectures and dtypes of each rung; all but one case are thorough."""
    for place, name in enumerate(NAMES):
        each = rung(name)
        for tile, arch, dtype in combinations(each.tiles, ARCHITECTURES, HALVES):
            at = each.tiles.index(tile)
            is_its_turn = dtype == HALVES[at % 2] and arch == ("sm_80", "sm_120")[at % 2]
            marks = () if is_its_turn and at == place % 2 else (thorough,)
            name_of_case = f"{name}-{tile}-{arch}-{dtype}"
            yield pytest.param(each, tile, arch, dtype, id=name_of_case, marks=marks)


@pytest.mark.parametrize(("each", "tile", "arch", "dtype"), list(every_tile_and_architecture()))
def test_compiled_without_spills_for_every_gpu_since_ampere(
    each: Rung, tile: int, arch: str, dtype: str
) -> None:
    if arch not in compiler.architectures():
        pytest.skip(f"this NVRTC does not know {arch}")
    each.check_arch(arch)
    used = each.kernel(dtype, tile).compile(arch).resources
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)
    assert used.registers <= 255
    assert used.shared_bytes + each.shared(tile, dtype) <= MOST_SHARED


@every_tile
@pytest.mark.parametrize(("more_m", "more_n", "k"), [(0, 0, 128), (-8, 8, 72)])
@pytest.mark.sampled(6)
def test_swizzled_tiles_have_no_bank_conflicts(
    each: Rung, tile: int, more_m: int, more_n: int, k: int
) -> None:
    """In a whole tile, and in two that C and k end within."""
    found = profile(each, tile + more_m, tile + more_n, k, tile=tile, beta=0.5, whole=True)
    counters = found.counters
    assert found.correct
    assert found.check is not None
    if each.name == "tensor_core":
        assert counters.shared_load_bank_conflicts == 0  # of the fragments
        assert counters.ldmatrix_requests == 0
    else:
        assert counters.shared_bank_conflicts == 0
        assert counters.ldmatrix_wavefronts == 4 * counters.ldmatrix_requests > 0


def test_ldmatrix_takes_a_quarter_of_the_requests() -> None:
    requests = {
        name: profile(name, 64, 64, 128, tile=64, whole=True).counters.shared_requests
        for name in NAMES
    }
    assert requests["ldmatrix"] <= requests["tensor_core"] / 4
    # C goes through shared memory too, and two phases more than there are are copied.
    assert requests["multistage"] < requests["tensor_core"] / 2


def test_multistage_has_its_tile_by_the_size() -> None:
    each = rung("multistage")
    assert each.tile_by_size
    assert [each.tile_for(n, n, n) for n in (0, 512, 1024, 2048, 8192)] == [64, 64, 64, 256, 256]
    assert each.tile_for(2**22, 8, 8) == 128  # a grid has at most 65,535 blocks down C
    assert each.tile_for(8192, 8192, 8192, tile=128) == 128


def test_multistage_waits_at_one_barrier_a_phase() -> None:
    two, nine = (
        profile("multistage", 64, 64, k, tile=64, whole=True).counters.barriers
        for k in (2 * 32, 9 * 32)
    )
    assert nine - two == 7 * 4  # warps


@pytest.mark.sampled(2)
@every_rung
@examples(THOROUGH, quick=1)
@given(data=st.data())
def test_any_layout(name: str, data: st.DataObject) -> None:
    """Matrices that are parts of wider ones, anywhere in them, so that their rows are 16-byte
    aligned or not."""
    tile = data.draw(st.sampled_from(rung(name).tiles))
    size = st.one_of(st.integers(1, 40), st.integers(tile - 9, tile + 9))
    m, n, k = data.draw(size), data.draw(size), data.draw(st.integers(0, 100))
    kind = dtype_of(data.draw(st.sampled_from(held(HALVES))))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def part(rows: int, columns: int) -> Any:
        pitch = columns + data.draw(st.sampled_from([0, 1, 2, 8, -columns % 8]))
        ahead = data.draw(st.sampled_from([0, 0, 1, 8]))
        whole = rng.standard_normal(ahead + rows * pitch + 1).astype(kind)
        return whole[ahead : ahead + rows * pitch].reshape(rows, pitch)[:, :columns]

    alpha, beta = (data.draw(st.sampled_from([0.0, 1.0, -1.5, 0.1])) for _ in range(2))
    a, b, c = part(m, k), part(k, n), part(m, n)
    found = run(
        name, a, b, c if beta else None, alpha=alpha, beta=beta, tile=tile, device="emulator",
        checks="strict", global_races=True,
    )  # fmt: skip
    assert found.correct, found.verdict.lines()


@in_one_dtype_each
def test_in_both_dtypes(name: str, dtype: str, device: Device) -> None:
    a, b, c = random_problem(70, 90, 50, dtype, seed=3)
    found = run(name, a, b, c, alpha=0.1, beta=-2.5, tile=64, device=device)
    assert found.correct
    assert found.dtype == dtype
    assert found.result.dtype == dtype_of(dtype)
    # The scalars are float's: 0.1 is not rounded to 16 bits.
    wide = [x.astype(np.float64) for x in (a, b, c)]
    right = float(np.float32(0.1)) * (wide[0] @ wide[1]) - 2.5 * wide[2]
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert (np.abs(found.result.astype(np.float64) - right) <= 1.1 * unit * abs(right) + 1e-5).all()


@pytest.mark.sampled(3)
@every_rung
def test_sums_are_float(name: str, device: Device) -> None:
    """256 products of 1/32 behind one of 2,048: in 16 bits, even 16 of them together change no sum
    of that size."""
    a = np.full((1, 257), 1 / 32, np.float16)
    a[0, 0] = 2048
    assert np.float16(2048) + 16 * a[0, 1] == 2048
    found = run(name, a, np.ones((257, 1), np.float16), tile=64, device=device)
    assert found.result.item() == 2048 + 256 / 32


@every_rung
def test_float16_overflows_to_infinity(name: str, device: Device) -> None:
    a = np.full((2, 4), 256.0, np.float16)
    found = run(name, a, a.reshape(4, 2), tile=64, device=device)
    assert np.isinf(found.result).all()
    assert found.correct


@pytest.mark.sampled(2)
@every_rung
def test_a_gpu_that_is_too_old(name: str) -> None:
    a = np.ones((3, 3), "f2")
    with pytest.raises(
        LaunchError, match=f"{name} needs compute capability 8.0 or later, and this is sm_75"
    ):
        run(name, a, a, device=emulator("sm_75"))
    with pytest.raises(LaunchError, match=r"8\.0 or later"):
        profile(name, 8, 8, 8, arch="sm_75")
    with pytest.raises(LaunchError, match=r"8\.0 or later"):
        watch(name, arch="sm_75")
    assert run(name, a, a, tile=rung(name).tiles[0], device=emulator("sm_80")).correct


@pytest.mark.sampled(3)
@every_rung
def test_a_page_of_its_run(name: str) -> None:
    found = watch(name)
    assert found.correct
    assert found.check is not None
    assert found.trace.to_dict()["problem"]["dtype"] == "float16"


OWN = """extern "C" __global__ void own(
    int m, int n, int k, float alpha, const unsigned short* a, int lda, const unsigned short* b,
    int ldb, float beta, unsigned short* c, int ldc)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int p = 0; p < k; ++p) {
        float x = __uint_as_float((unsigned)a[row * lda + p] << 16);
        float y = __uint_as_float((unsigned)b[p * ldb + col] << 16);
        sum += x * y;
    }
    unsigned short rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(alpha * sum));
    c[row * ldc + col] = rounded;
}"""


def test_a_kernel_of_ones_own(device: Device) -> None:
    pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 needs ml_dtypes")
    a, b, _ = random_problem(20, 30, 25, "bfloat16")
    assert run(Kernel(OWN, "own"), a, b, device=device).correct
    right, wrong = (
        run(Kernel(OWN, "own", {"BFLOAT16": 1}), x, y, device=device)
        for x, y in ((a, b), (a * 2, b))
    )
    assert right.correct
    assert wrong.correct
    with pytest.raises(ValueError, match="BFLOAT16 = 1, and the matrices are float16: that is 0"):
        run(Kernel(OWN, "own", {"BFLOAT16": 1}), a.astype("f2"), b.astype("f2"), device=device)
    real = OWN.replace("unsigned short*", "float*").replace("(unsigned)", "")
    told = r"declares A as float\*, and the matrices are bfloat16.*for bfloat16 a type of 16 bits"
    with pytest.raises(TypeError, match=told):
        run(Kernel(real.replace(" << 16", "").replace("__uint_as_float", ""), "own"), a, b)


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match=r"no bfloat16 without ml_dtypes \(pip install ml_dtypes\)"):
        random_problem(3, 3, 3, "bfloat16")
    assert random_problem(3, 3, 3, "float16")[0].dtype == np.float16
    rung("multistage").kernel("bfloat16", 64).compile()


def test_matrices_in_files(tilewise: Tilewise, tmp_path: Path) -> None:
    a, b, _ = random_problem(20, 30, 40, "float16")
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    files = ("--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy"))
    out = tmp_path / "c.npy"
    found = tilewise("run", "multistage", *files, "--out", str(out))
    assert found.code == 0
    assert check(np.load(out), a, b).correct
    refused = tilewise("run", "tiled", *files)
    assert refused.code == 2
    assert "float16 is not supported: tiled takes float32 and float64" in refused.err
