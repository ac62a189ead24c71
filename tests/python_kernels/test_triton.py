"""Kernels of Triton's on the emulator: right, no false finding, planted faults at their lines."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise
import tilewise.triton
from tilewise.devices import Device
from tilewise.errors import CompileError, LaunchError, MemoryAccessError, RaceError
from tilewise.launch import LaunchReport

# Before Triton is imported: it warns that the default will change.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
pytest.importorskip("triton._C", reason="Triton is not installed")
torch = pytest.importorskip("torch", reason="Triton's own tensors are PyTorch's")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
import triton_kernels as kernels  # noqa: E402

Array = np.ndarray[Any, Any]
ARCHITECTURES = ("sm_80", "sm_90a")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's cache of compiled kernels, one for all tests, and not the user's."""
    place = tmp_path_factory.getbasetemp() / "triton"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place))


@pytest.fixture(params=ARCHITECTURES)
def where(request: pytest.FixtureRequest, device: Device) -> Device:
    """The emulator of each architecture, or the GPU that the run is for."""
    if device.name == "gpu":
        if request.param != ARCHITECTURES[0]:
            pytest.skip("there is one GPU")
        return device
    return tilewise.emulator(request.param)


def random(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(*shape: int, dtype: Any = None, seed: int = 1) -> Any:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype or torch.float32)


def launch(kernel: Any, grid: Any, *args: Any, device: Device, **meta: Any) -> LaunchReport:
    """Launch, and see that nothing was found."""
    report = tilewise.triton.launch(kernel, grid, *args, device=device, **meta)
    assert report.findings == ()
    return report


def line_of(kernel: Any, text: str) -> int:
    """The line of a kernel's source that has a text."""
    lines, first = inspect.getsourcelines(kernel.fn)
    (found,) = (first + at for at, line in enumerate(lines) if text in line)
    return found


def test_sum_of_vectors(where: Device) -> None:
    # A multiple of 16, for which Triton loads four elements at once.
    n = 3008
    x, y, out = random(n), random(n, seed=2), np.zeros(n, np.float32)

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    report = launch(kernels.add, grid, x, y, out, n, BLOCK=1024, device=where)
    np.testing.assert_array_equal(out, x + y)
    assert report.launch.grid == (3, 1, 1)
    assert report.launch.block == (128, 1, 1)
    if report.counters is not None:
        assert report.counted_as == "machine code"
        assert report.counters.global_load_sectors == 2 * n / 8
        line = line_of(kernels.add, "tl.store")
        assert report.lines[line].global_load_sectors == 2 * n / 8


def test_programs_that_wait_for_each_other(where: Device) -> None:
    count, x, out = (np.zeros(n, np.int32) for n in (1, 128 * 200, 128 * 200))
    report = launch(
        kernels.turned, (200,), count, x, out, BLOCK=128, device=where,
        launch_cooperative_grid=True,
    )  # fmt: skip
    assert report.launch.cooperative
    np.testing.assert_array_equal(out, np.arange(128 * 200, 0, -1))


def test_softmax(where: Device) -> None:
    x, out = random(37, 300), np.zeros((37, 300), np.float32)
    launch(kernels.softmax, 8, x, out, 300, 300, 37, 300, WIDTH=512, STAGES=3, device=where)
    power = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, power / power.sum(axis=1, keepdims=True), rtol=1e-5)


CASES: dict[str, tuple[str, dict[str, Any], float]] = {
    "fp16": ("float16", {"ACTIVATION": "leaky"}, 1e-3),
    "fp16 one stage": ("float16", {"num_stages": 1}, 1e-3),
    "fp16 four stages": ("float16", {"num_stages": 4, "BLOCK_M": 32, "BLOCK_N": 32}, 1e-3),
    "fp16 small": ("float16", {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 1}, 1e-3),
    "bf16": ("bfloat16", {}, 8e-3),
    "tf32": ("float32", {}, 1e-3),
    "tf32x3": ("float32", {"PRECISION": "tf32x3"}, 1e-5),
    "ieee": ("float32", {"PRECISION": "ieee"}, 1e-5),
    "fp64": ("float64", {"PRECISION": "ieee", "ACCUMULATOR": tl.float64}, 1e-13),
    "int8": ("int8", {"ACCUMULATOR": tl.int32}, 0),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_matmul(where: Device, case: str) -> None:
    """Sizes that are no multiples of the tiles; the bound is a share of |A| |B|."""
    name, meta, bound = CASES[case]
    m, n, k = 100, 130, 90
    dtype = getattr(torch, name)
    a, b = tensor(m, k), tensor(k, n, seed=2)
    if name == "int8":
        a, b = 4 * a, 4 * b
    a, b = a.to(dtype), b.to(dtype)
    c = torch.zeros(m, n, dtype=torch.int32 if name == "int8" else dtype)
    options = {
        "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8, "ACTIVATION": "",
        "PRECISION": "tf32", "ACCUMULATOR": tl.float32,
    } | meta  # fmt: skip
    grid = triton.cdiv(m, options["BLOCK_M"]) * triton.cdiv(n, options["BLOCK_N"])
    strides = (*a.stride(), *b.stride(), *c.stride())
    launch(kernels.matmul, grid, a, b, c, m, n, k, *strides, **options, device=where)
    exact = a.double() @ b.double()
    if options["ACTIVATION"]:
        exact = torch.where(exact >= 0, exact, 0.01 * exact)
    error = (c.double() - exact).abs() / (a.double().abs() @ b.double().abs())
    assert float(error.max()) <= bound


@pytest.mark.parametrize(("name", "arch"), [("float8_e4m3fn", "sm_89"), ("float8_e5m2", "sm_90a")])
def test_matmul_of_8_bit_floats(emulator: Device, name: str, arch: str) -> None:
    dtype = getattr(torch, name)
    a, b, c = tensor(64, 64).to(dtype), tensor(64, 64, seed=2).to(dtype), torch.zeros(64, 64)
    launch(
        kernels.matmul, 1, a, b, c, 64, 64, 64, 64, 1, 64, 1, 64, 1, BLOCK_M=64, BLOCK_N=64,
        BLOCK_K=64, GROUP=1, ACTIVATION="", PRECISION="tf32", ACCUMULATOR=tl.float32,
        device=tilewise.emulator(arch),
    )  # fmt: skip
    exact = a.double() @ b.double()
    assert float((c.double() - exact).abs().max()) < 1e-4


def test_clusters(emulator: Device) -> None:
    """With ``num_ctas``, a program is a cluster of blocks."""
    a, b = tensor(128, 64, dtype=torch.float16), tensor(64, 128, dtype=torch.float16, seed=2)
    c = torch.zeros(128, 128)
    report = launch(
        kernels.matmul, 1, a, b, c, 128, 128, 64, 64, 1, 128, 1, 128, 1, BLOCK_M=128, BLOCK_N=128,
        BLOCK_K=32, GROUP=1, ACTIVATION="", PRECISION="tf32", ACCUMULATOR=tl.float32, num_ctas=2,
        device=tilewise.emulator("sm_90a"),
    )  # fmt: skip
    assert report.launch.grid == (2, 1, 1)
    assert float((c.double() - a.double() @ b.double()).abs().max()) < 1e-4


def test_matmul_of_tensor_descriptors(where: Device) -> None:
    """Made on the host: pointers for sm_80, tensor maps for sm_90."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    m, n, k = 120, 192, 128
    a, b = tensor(m, k, dtype=torch.float16), tensor(k, n, dtype=torch.float16, seed=2)
    c = torch.zeros(m, n, dtype=torch.float16)
    described = [TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, c)]
    tiles = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    launch(kernels.matmul_of_given_descriptors, (2, 3), *described, k, **tiles, device=where)
    exact = a.double() @ b.double()
    assert float((c.double() - exact).abs().max()) < 0.05


def test_descriptors_that_the_kernel_makes(where: Device) -> None:
    """For sm_90 a map in shared memory is filled field by field, and copied to global memory."""
    m, n, k = 120, 192, 128
    a, b = tensor(m, k, dtype=torch.float16), tensor(k, n, dtype=torch.float16, seed=2)
    c = torch.zeros(m, n, dtype=torch.float16)
    tiles = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    launch(kernels.matmul_of_descriptors, (2, 3), a, b, c, m, n, k, **tiles, device=where)
    assert float((c.double() - a.double() @ b.double()).abs().max()) < 0.05


def test_layer_norm_and_its_gradients(where: Device) -> None:
    """The gradients of the weights are summed behind locks that programs wait for."""
    rows, n, groups = 20, 300, 4
    x, w, b = (tensor(*shape, seed=s) for s, shape in enumerate([(rows, n), (n,), (n,)]))
    dy, out = tensor(rows, n, seed=5), torch.zeros(rows, n)
    mean, inverse = torch.zeros(rows), torch.zeros(rows)
    launch(
        kernels.layer_norm, rows, x, out, w, b, mean, inverse, n, n, 1e-5, WIDTH=256, device=where
    )
    exact = [part.double().requires_grad_() for part in (x, w, b)]
    expected = torch.nn.functional.layer_norm(exact[0], (n,), exact[1], exact[2], 1e-5)
    torch.testing.assert_close(out.double(), expected.detach(), rtol=1e-4, atol=1e-4)
    expected.backward(dy.double())
    dx, dws, dbs = torch.zeros(rows, n), torch.zeros(groups, n), torch.zeros(groups, n)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    launch(
        kernels.layer_norm_gradients, rows, dx, dy, dws, dbs, x, w, mean, inverse, locks, n, n,
        GROUP=groups, WIDTH=512, device=where,
    )  # fmt: skip
    dw, db = torch.zeros(n), torch.zeros(n)
    for parts, total in ((dws, dw), (dbs, db)):
        tiles = {"BLOCK_M": 32, "BLOCK_N": 128}
        launch(kernels.sum_of_rows, 3, parts, total, groups, n, **tiles, device=where)
    for found, of in zip((dx, dw, db), exact, strict=True):
        torch.testing.assert_close(found.double(), of.grad, rtol=1e-4, atol=1e-4)
    assert not locks[:groups].any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_attention(where: Device, is_causal: bool, name: str) -> None:
    n, depth = 130, 64
    q, k, v = (tensor(2, n, depth, dtype=getattr(torch, name), seed=s) for s in range(3))
    out, logs = torch.zeros_like(q), torch.zeros(2, n)
    launch(
        kernels.attention, (triton.cdiv(n, 64), 2), q, k, v, out, logs, 0.125, n * depth, n,
        BLOCK_M=64, BLOCK_N=32, DEPTH=depth, IS_CAUSAL=is_causal, num_stages=2, device=where,
    )  # fmt: skip
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=is_causal, scale=0.125
    )
    bound = 5e-3 if name == "float16" else 4e-2
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=bound)


def test_atomics(where: Device) -> None:
    whole = np.random.default_rng(3).integers(0, 16, 1000, dtype=np.int32)
    counts = np.zeros(16, np.int32)
    launch(kernels.histogram, 4, whole, counts, 1000, BINS=16, BLOCK=256, device=where)
    np.testing.assert_array_equal(counts, np.bincount(whole, minlength=16))
    x = random(1000)
    least, most = np.full(1, np.inf, np.float32), np.full(1, -np.inf, np.float32)
    total = np.zeros(1, np.float32)
    launch(kernels.extremes, 4, x, least, most, total, 1000, BLOCK=256, device=where)
    assert (least[0], most[0]) == (x.min(), x.max())
    np.testing.assert_allclose(total, x.sum(), rtol=1e-3)


def test_scans_and_sorting(where: Device) -> None:
    x = random(3, 128)
    out, ordered, last = np.zeros_like(x), np.zeros_like(x), np.zeros(3, np.int32)
    launch(kernels.running_sum, 3, x, out, last, WIDTH=128, device=where)
    np.testing.assert_allclose(out, x.cumsum(axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(last, x.argmax(axis=1))
    launch(kernels.sorted_rows, 3, x, ordered, WIDTH=128, device=where)
    np.testing.assert_array_equal(ordered, np.sort(x, axis=1))


def test_transposition(where: Device) -> None:
    x, out = random(50, 70), np.zeros((70, 50), np.float32)
    launch(kernels.transposed, (2, 3), x, out, 50, 70, BLOCK=32, device=where)
    np.testing.assert_array_equal(out, x.T)


def test_arguments_of_every_kind(where: Device) -> None:
    """Tuples, None, an integer that is 1, NumPy's numbers, arguments by name."""
    x, out = random(100), np.zeros(100, np.float32)
    one = np.int64(1)
    launch(kernels.every_kind, 1, (x, 2.0), None, 3, one, out, 100, BLOCK=128, device=where)
    np.testing.assert_allclose(out, 6 * x + 1, rtol=1e-6)
    launch(kernels.every_kind, 1, (x, 2.0), x, 3, 1, out, n=100, BLOCK=128, device=where)
    np.testing.assert_allclose(out, 7 * x + 1, rtol=1e-6)


def test_views_that_overlap(where: Device) -> None:
    """Sums in place, and of two parts of one array that begin elsewhere."""
    x = random(300)
    expected = x.copy()
    expected[:200] += x[100:]
    launch(kernels.add, 1, x, x[100:], x, 200, BLOCK=256, device=where)
    np.testing.assert_array_equal(x, expected)


def test_random_numbers(where: Device) -> None:
    x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    launch(kernels.dropped, 4, x, out, 1000, 0.5, 123, BLOCK=256, device=where)
    assert set(np.unique(out)) == {0, 2}
    assert 400 < np.count_nonzero(out) < 600


def test_the_configuration_of_an_autotuned_kernel(where: Device) -> None:
    """The first, or the one that is named; none is timed, and the kernel stays as it was."""
    x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(1000, meta["BLOCK"]),)

    def block(**how: Any) -> int:
        report = launch(kernels.doubled, grid, x, out, 1000, device=where, **how)
        np.testing.assert_array_equal(out, 2)
        out[:] = 0
        return report.launch.block[0]

    assert block() == 64
    assert block(config=1) == 256
    assert block(config=triton.Config({"BLOCK": 128}, num_warps=1)) == 32
    assert len(kernels.doubled.configs) == 2
    assert kernels.doubled.cache == {}


def test_what_it_prints(where: Device) -> None:
    x = np.arange(4, dtype=np.float32)
    report = launch(kernels.told, 1, x, 4, BLOCK=4, num_warps=1, device=where)
    assert "value: 3.000000" in report.output


def test_launches_of_a_program_as_it_is(where: Device) -> None:
    """``kernel[grid](...)`` within a ``with`` statement, and what programs ask of the driver."""
    with tilewise.triton.on_device(where) as reports:
        driver = triton.runtime.driver.active
        x = torch.ones(1000, device=driver.get_active_torch_device())
        assert driver.utils.get_device_properties(x.device.index)["max_shared_mem"] > 100_000
        major, minor = torch.cuda.get_device_capability()
        assert f"sm_{major}{minor}" == where.arch.rstrip("a")
        out = torch.zeros_like(x)
        kernels.doubled[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
        kernels.add[(4,)](x, x, out, 1000, BLOCK=256)
        ready = kernels.add.warmup(x, x, out, 1000, BLOCK=256, grid=(1,))
        ready._init_handles()
        assert ready.n_regs > 0
    assert [report.kernel for report in reports] == ["doubled", "add"]
    assert out.tolist() == [2] * 1000


def test_a_missing_mask_is_found(emulator: Device) -> None:
    x = random(1000)
    with pytest.raises(MemoryAccessError) as caught:
        tilewise.triton.launch(
            kernels.add_without_mask, 1, x, x.copy(), x.copy(), 1000, BLOCK=1024, device=emulator
        )
    found = caught.value.findings[0]
    assert found.line == line_of(kernels.add_without_mask, "is missing")
    assert Path(found.file).name == "triton_kernels.py"
    assert (found.array, found.index) == ("x", 1000)


def test_an_element_is_spelled_as_in_python(emulator: Device) -> None:
    x = random(10, 100)
    with pytest.raises(MemoryAccessError, match=r" x\[10, 0\], outside it"):
        tilewise.triton.launch(
            kernels.add_without_mask, 1, x, x.copy(), x.copy(), 1000, BLOCK=1024, device=emulator
        )


def test_races_between_programs_are_found(emulator: Device) -> None:
    x = random(128)
    with pytest.raises(RaceError) as caught:
        tilewise.triton.launch(
            kernels.raced, 2, x, None, BLOCK=128, device=emulator, global_races=True
        )
    assert caught.value.findings[0].line == line_of(kernels.raced, "adds to the same")


def test_what_does_not_compile(emulator: Device) -> None:
    line = line_of(kernels.wrong, "tl.store")
    with pytest.raises(CompileError, match=rf"triton_kernels\.py:{line}: "):
        tilewise.triton.launch(kernels.wrong, 1, random(16), BLOCK=16, device=emulator)


def test_what_takes_too_much_shared_memory(emulator: Device) -> None:
    a = torch.zeros(256, 256, dtype=torch.float16)
    with pytest.raises(LaunchError, match="shared memory"):
        tilewise.triton.launch(
            kernels.matmul, 1, a, a, a, 256, 256, 256, 256, 1, 256, 1, 256, 1, BLOCK_M=256,
            BLOCK_N=256, BLOCK_K=128, GROUP=1, ACTIVATION="", PRECISION="tf32",
            ACCUMULATOR=tl.float32, num_stages=3, device=emulator,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "grid", "meta", "error", "words"),
    [
        (print, 1, {}, TypeError, "kernel is <built-in"),
        (kernels.add, 0, {"BLOCK": 64}, ValueError, "at least 1"),
        (kernels.add, 1, {}, TypeError, "BLOCK"),
        (kernels.add, 1, {"BLOCK": 64, "WIDTH": 3}, TypeError, "WIDTH"),
        (kernels.add, 1, {"BLOCK": 64, "config": 0}, TypeError, "not autotuned"),
        (kernels.doubled, 1, {"config": 2}, ValueError, "0 to 1"),
        (kernels.doubled, 1, {"config": "best"}, TypeError, "best"),
    ],
    ids=["no kernel", "no programs", "too few", "unknown", "not tuned", "too far", "no config"],
)
def test_what_can_not_be(
    emulator: Device, kernel: Any, grid: Any, meta: dict[str, Any], error: type[Exception],
    words: str,
) -> None:  # fmt: skip
    x = random(10)
    args = (x, x, 10) if kernel is kernels.doubled else (x, x, x, 10)
    with pytest.raises(error, match=words):
        tilewise.triton.launch(kernel, grid, *args, device=emulator, **meta)


@pytest.fixture
def before() -> Iterator[None]:
    """Triton's driver is as it was."""
    config = triton.runtime.driver
    found = getattr(config, "_active", None)
    yield
    assert getattr(config, "_active", None) is found


def test_torchs_own_capability_is_given_back(emulator: Device) -> None:
    own = torch.cuda.get_device_capability
    with tilewise.triton.on_device(emulator):
        assert torch.cuda.get_device_capability(0) == (9, 0)
    assert torch.cuda.get_device_capability is own


@pytest.mark.usefixtures("before")
def test_the_driver_is_given_back(emulator: Device) -> None:
    with pytest.raises(ZeroDivisionError), tilewise.triton.on_device(emulator):
        _ = 1 / 0


def test_a_device_that_is_none() -> None:
    x = np.zeros(1, np.float32)
    with pytest.raises(TypeError, match="device is 3; "):
        tilewise.triton.launch(kernels.add, 1, x, x, x, 1, BLOCK=32, device=3)  # type: ignore[arg-type]
