"""One kernel on one problem, from its name to the checked result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import held

from tilewise.devices import Device
from tilewise.errors import UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import RUNGS, rung
from tilewise.lens.profiling import profile as profile_product

pytestmark = pytest.mark.usefixtures("no_machine_code")

SIGNATURE = """(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)"""
BODY = """{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int p = FIRST; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum + EXTRA;
}
"""
PLAIN = BODY.replace("EXTRA", "(beta == 0 ? 0 : beta * c[row * ldc + col])").replace("FIRST", "0")
READS_C = BODY.replace("EXTRA", "beta * c[row * ldc + col]").replace("FIRST", "0")
FORGETS = BODY.replace("EXTRA", "0").replace("FIRST", "1")


def mine(body: str) -> str:
    return f'extern "C" __global__ void mine{SIGNATURE} {body}'


@pytest.mark.sampled(7)
@pytest.mark.parametrize("each", RUNGS, ids=lambda each: each.name)
def test_a_rung_by_name(each: Any, device: Device) -> None:
    a, b, c = random_problem(9, 7, 11, each.dtypes[0], seed=3)
    tile = each.tiles[-1] if each.tiles else None
    found = run(each.name, a, b, c, alpha=0.5, beta=-2, tile=tile, device=device)
    assert found.check.correct
    assert (found.kernel, found.m, found.n, found.k) == (each.name, 9, 7, 11)
    assert (found.dtype, found.tile, found.alpha, found.beta) == (each.dtypes[0], tile, 0.5, -2)
    assert found.device == device.name
    assert found.result.shape == (9, 7)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    near = 1e-4 if each.dtypes[0] == "float32" else 1e-2
    np.testing.assert_allclose(found.result, 0.5 * (wide[0] @ wide[1]) - 2 * wide[2], atol=near)
    assert found.report is not None
    assert found.report.seconds > 0
    for x, y in zip((a, b, c), random_problem(9, 7, 11, each.dtypes[0], seed=3), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("each", RUNGS, ids=lambda each: each.name)
def test_no_rung_reads_a_c_that_is_not_there(each: Any, device: Device) -> None:
    a, b, _ = random_problem(5, 6, 3, held(each.dtypes)[-1])
    assert run(each, a, b, device=device, checks="raise").check.correct


def test_views_with_a_pitch(device: Device) -> None:
    wide = np.random.default_rng(0).standard_normal((12, 40)).astype("f4")
    before = wide.copy()
    found = run(
        "tiled", wide[:5, :7], wide[:7, 10:19], wide[7:, 20:29], beta=1, tile=4, device=device
    )
    assert found.check.correct
    np.testing.assert_array_equal(wide, before)


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_an_empty_c_launches_nothing(m: int, n: int, device: Device) -> None:
    a, b, _ = random_problem(m, n, 3)
    found = run("tiled", a, b, device=device)
    assert found.report is None
    assert found.check.correct
    assert found.result.shape == (m, n)
    as_json = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert as_json["correct"] is True
    assert as_json["counters"] is None
    assert as_json["device"] == device.name


def test_an_empty_k_scales_c(device: Device) -> None:
    a, b, c = random_problem(5, 6, 0)
    found = run("tiled", a, b, c, beta=0.3, device=device)
    assert found.check.correct
    np.testing.assert_array_equal(found.result, np.float32(0.3) * c)
    np.testing.assert_array_equal(run("tiled", a, b, device=device).result, np.zeros((5, 6)))


def test_to_dict(device: Device) -> None:
    a, b, _ = random_problem(5, 6, 4)
    a[2, 1] = np.nan
    found = run("tiled", a, b, tile=2, device=device)
    as_json = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    expected = {
        "kernel": "tiled", "m": 5, "n": 6, "k": 4, "dtype": "float32", "tile": 2, "alpha": 1.0,
        "beta": 0.0, "grid": [3, 3, 1], "block": [2, 2, 1], "correct": True,
        "device": device.name, "findings": [],
    }  # fmt: skip
    assert expected.items() <= as_json.items()
    assert as_json["seconds"] > 0
    assert 0 <= as_json["max_error"] <= as_json["bound"] < 1e-5
    assert as_json["resources"]["shared_bytes"] == 32
    assert (as_json["counters"] is None) == (device.name == "gpu")
    if device.name == "emulator":
        # A warp holds a whole block here; 9 blocks, 2 phases, a load of A and one of B.
        assert as_json["counters"]["global_load_requests"] == 9 * 2 * 2
        assert as_json["counters"]["barriers"] > 0


def test_a_file(device: Device, tmp_path: Path) -> None:
    file = tmp_path / "my kernel.cu"
    file.write_text(mine(PLAIN))
    a, b, c = random_problem(21, 18, 5, "float64")
    found = run(f"{file}:mine", a, b, c, beta=1, device=device)
    assert found.check.correct
    assert (found.kernel, found.tile, found.dtype) == ("mine", 16, "float64")
    assert found.report is not None
    assert found.report.launch.grid == (2, 2, 1)
    assert run(f"{file}:mine", a, b, tile=8, device=device).tile == 8


def test_a_template_in_a_namespace(device: Device, tmp_path: Path) -> None:
    file = tmp_path / "t.cu"
    file.write_text(
        f"namespace ns {{ template <int FIRST> __global__ void mine{SIGNATURE} "
        f"{BODY.replace('EXTRA', '0')} }}"
    )
    a, b, _ = random_problem(3, 3, 3)
    assert run(f"{file}:ns::mine<0>", a, b, device=device).check.correct
    assert not run(f"{file}:ns::mine<1>", a, b, device=device).check.correct


def test_a_wrong_result_is_found(device: Device) -> None:
    a, b, _ = random_problem(4, 4, 8)
    found = run(Kernel(mine(FORGETS), "mine"), a, b, device=device)
    assert not found.check.correct
    assert found.check.max_error > found.check.bound
    assert found.to_dict()["correct"] is False
    a[1, 0] = np.nan
    missed = run(Kernel(mine(FORGETS), "mine"), a, b, device=device)
    assert missed.check.worst is not None
    assert missed.check.worst[0] == 1
    assert missed.to_dict()["max_error"] is None


def test_a_kernel_that_reads_c_is_found(emulator: Device) -> None:
    a, b, _ = random_problem(4, 4, 8)
    with pytest.raises(UninitializedReadError, match="c"):
        run(Kernel(mine(READS_C), "mine"), a, b, device=emulator)
    found = run(Kernel(mine(READS_C), "mine"), a, b, device=emulator, checks="collect")
    assert found.to_dict()["findings"]


def test_a_kernel_with_macros_of_its_own(device: Device) -> None:
    a, b, _ = random_problem(9, 9, 4)
    kernel = Kernel(mine(PLAIN), "mine", {"TILE": 8, "real": "float"})
    assert run(kernel, a, b, device=device).tile == 8
    assert run(kernel, a, b, tile=8, device=device).check.correct
    with pytest.raises(ValueError, match="TILE = 8, and tile 4"):
        run(kernel, a, b, tile=4, device=device)
    with pytest.raises(ValueError, match=r"real = float.*float64"):
        run(kernel, a.astype("f8"), b.astype("f8"), device=device)


@pytest.mark.parametrize(
    ("target", "kwargs", "error", "words"),
    [
        ("tilde", {}, ValueError, r"'tilde'.*single_thread.*FILE\.cu:NAME"),
        ("nowhere.cu:mine", {}, FileNotFoundError, r"no file nowhere\.cu"),
        ("nowhere.cu", {}, ValueError, r"nowhere\.cu:NAME"),
        ("nowhere.cu:", {}, ValueError, "names no kernel"),
        (7, {}, TypeError, "7 is no kernel"),
        ("tiled", {"tile": 33}, ValueError, "tile is 33"),
        ("single_thread", {"tile": 8}, ValueError, "has no tiles"),
        ("tiled", {"beta": 1}, ValueError, "no C"),
        ("tiled", {"device": "tpu"}, ValueError, "tpu"),
        ("tiled", {"checks": "some"}, ValueError, "some"),
        ("tiled", {"repeats": -1}, ValueError, "repeats is -1"),
    ],
)
def test_bad_input(
    target: Any, kwargs: dict[str, Any], error: type[Exception], words: str, device: Device
) -> None:
    a, b, _ = random_problem(4, 4, 4)
    with pytest.raises(error, match=words):
        run(target, a, b, **{"device": device, **kwargs})


def test_too_many_elements_for_one_block(device: Device) -> None:
    a, b, _ = random_problem(33, 32, 1)
    with pytest.raises(ValueError, match="33 x 32 is 1,056"):
        run(rung("single_block"), a, b, device=device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_of_another_type_than_the_matrices(dtype: str, device: Device) -> None:
    declared = {"float32": "double", "float64": "float"}[dtype]
    other = {"float32": "float64", "float64": "float32"}[dtype]
    signature = SIGNATURE.replace("real", declared)
    kernel = Kernel(f'extern "C" __global__ void own{signature} {{ c[0] = 1; }}', "own")
    a = np.ones((2, 2), dtype)
    told = (
        rf"own declares A as {declared}\*, and the matrices are {dtype}\. Take dtype {other}, or "
        rf"write `real` for {declared} in the kernel"
    )
    with pytest.raises(TypeError, match=told):
        run(kernel, a, a, device=device)
    with pytest.raises(TypeError, match=told):
        profile_product(kernel, 2, 2, 2, dtype=dtype)


def test_an_argument_on_a_device_is_told_without_the_name_of_a_class(device: Device) -> None:
    kernel = Kernel('extern "C" __global__ void f(float* x) { x[0] = 1; }', "f")
    with pytest.raises(TypeError, match=r"not an array on a device of shape \(3,\) and dtype flo"):
        kernel.launch(1, 1, (device.array(np.ones(3)),), device=device)
