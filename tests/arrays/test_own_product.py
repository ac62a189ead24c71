"""Products by the arrays' own library, where a GPU is too old for fast kernels of 16 bits.

The GPU is a stand-in, and so are the arrays that lie on it: they are the host's.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu
from hypothesis import given
from hypothesis import strategies as st
from matmul_reference import assert_right, assert_tensors_right, normal
from reference import examples

import tilewise
from tilewise.arrays import libraries, own_product
from tilewise.arrays.libraries import library_of
from tilewise.devices import gpu as gpu_module
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError, GpuTooOldError
from tilewise.matmul import matmul

MATMUL, EXPLAIN, FILES = (
    sys.modules[f"tilewise.{name}"] for name in ("matmul", "explain", "files.multiply")
)
HALVES = ("float16", "bfloat16")


class OldGpu(FakeGpu):
    """A GPU of Turing's, which launches nothing."""

    def __init__(self, arch: str = "sm_75") -> None:
        super().__init__("NVIDIA T4, made up")
        self.arch = arch


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="torch is not installed")
    assert library_of(found.zeros(1)) is not None
    return found


@pytest.fixture(autouse=True)
def nothing_launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Planning a product and sending one to a GPU fail, and so does a warning."""

    def refuse(*_: object) -> Any:
        raise AssertionError("a kernel was to answer")

    for name in ("plan_product", "multiply"):
        monkeypatch.setattr(MATMUL, name, refuse)
    own_product._no_kernel.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield
    own_product._no_kernel.cache_clear()


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The one GPU that is there."""
    gpu = OldGpu()
    monkeypatch.setattr(own_product, "gpu_of", lambda ordinal: gpu)
    for module in (MATMUL, EXPLAIN, FILES):
        monkeypatch.setattr(module, "first_gpu", lambda: gpu)
    return gpu


@pytest.fixture
def by_tensor_cores(torch: Any, old_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tensors that say they lie on that GPU, and what of PyTorch's was called for them."""
    called: list[str] = []
    monkeypatch.setattr(libraries._Torch, "ordinal", lambda self, x: 0)

    def wide(name: str) -> Callable[..., Any]:
        usual = getattr(torch, name)

        def function(a: Any, b: Any, *, out_dtype: Any = None) -> Any:
            if out_dtype is None:
                return usual(a, b)
            assert (a.dtype, b.dtype, out_dtype) == (torch.float16, torch.float16, torch.float32)
            called.append(name)
            return usual(a.float(), b.float())

        return function

    for name in ("mm", "bmm"):
        monkeypatch.setattr(torch, name, wide(name))
    return called


@examples(120, quick=30)
@given(data=st.data())
def test_tensors_on_an_old_gpu(by_tensor_cores: list[str], torch: Any, data: st.DataObject) -> None:
    """Every shape, layout, scalar and result that ``matmul`` takes."""
    m, n, k = (data.draw(st.sampled_from([0, 1, 2, 3, 7])) for _ in range(3))
    kind = getattr(torch, data.draw(st.sampled_from(HALVES)))
    wide = kind if data.draw(st.booleans()) else torch.float32
    batches = [(), (2,), (1, 2), (3, 1), (3, 2)]
    of_a, of_b = data.draw(st.sampled_from(batches)), data.draw(st.sampled_from(batches))
    shape = (*np.broadcast_shapes(of_a, of_b), m, n)
    seed = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))

    def drawn(*shape: int, dtype: Any = kind) -> Any:
        x = torch.randn(shape[:-2] + shape[:-3:-1], generator=seed).to(dtype).mT
        return x if data.draw(st.booleans()) else x.contiguous()

    a, b, c = drawn(*of_a, m, k), drawn(*of_b, k, n), drawn(*shape, dtype=wide)
    alpha = data.draw(st.sampled_from([0, 1, -0.75]))
    beta = data.draw(st.sampled_from([0, 1, 2.5]))
    where = data.draw(st.sampled_from(["new", "c", "out"]))
    out = {"new": None, "c": c, "out": torch.full_like(c, torch.nan)}[where]
    turned_a, turned_b = data.draw(st.booleans()), data.draw(st.booleans())
    old = c.clone()
    result = matmul(
        a.mT if turned_a else a, b.mT if turned_b else b, c if beta else None, alpha=alpha,
        beta=beta, transpose_a=turned_a, transpose_b=turned_b, out=out, out_dtype=wide,
    )  # fmt: skip
    assert (result.dtype, tuple(result.shape)) == (wide, shape)
    assert out is None or result is out
    assert_tensors_right(result, a, b, alpha, beta, old)


def test_float16_is_read_as_it_is(by_tensor_cores: list[str], torch: Any) -> None:
    """By the product of PyTorch's that has sums in float32; one B for a batch is one product."""
    a, b = torch.randn(5, 7).half(), torch.randn(7, 3).half()
    for x, y, name in (
        (a, b, "mm"), (a, b[:, 0], "mm"), (a[0], b, "mm"), (a[0], b[:, 0], "mm"),
        (torch.stack([a, 2 * a]), b, "mm"), (a, torch.stack([b, b]), "bmm"),
        (a[0], torch.stack([b, b]), "bmm"),
    ):  # fmt: skip
        result = matmul(x, y)
        assert by_tensor_cores == [name]
        by_tensor_cores.clear()
        assert result.shape == (x.float() @ y.float()).shape
        assert_tensors_right(result, x, y)
    matmul(a.bfloat16(), b.bfloat16())
    assert by_tensor_cores == []


def test_before_pytorch_had_such_a_product(
    by_tensor_cores: list[str], torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_of(torch.zeros(1))
    monkeypatch.setattr(library, "_has_out_dtype", False)
    a = torch.randn(5, 5).half()
    assert_tensors_right(matmul(a, a), a, a)
    assert by_tensor_cores == []


def test_what_is_not_read_does_not_spread(by_tensor_cores: list[str], torch: Any) -> None:
    a, nan = torch.randn(3, 3).half(), torch.full((3, 3), torch.nan).half()
    assert_tensors_right(matmul(a, a, nan, beta=0), a, a)
    assert (matmul(nan, nan, a, alpha=0, beta=2) == 2 * a).all()
    assert matmul(a, nan).isnan().all()
    assert (matmul(a[:, :0], a[:0]) == 0).all()
    # 65,504 is the largest float16: sums beyond it that come back are no infinity.
    large, signs = torch.full((1, 4), 6e4).half(), torch.tensor([[1.0], [1], [-1], [-1]]).half()
    assert matmul(large, signs) == 0


@pytest.mark.usefixtures("by_tensor_cores")
def test_what_is_wrong_is_refused_as_elsewhere(torch: Any) -> None:
    a, b = torch.randn(4, 5).half(), torch.randn(5, 4).half()
    with pytest.raises(ValueError, match="A must have as many columns"):
        matmul(a, a)
    with pytest.raises(TypeError, match="b float32; they must be the same"):
        matmul(a, b.float())
    with pytest.raises(ValueError, match="out overlaps a"):
        matmul(a[:, :4], b[:4], out=a[:, :4])
    with pytest.raises(ValueError, match="there is no C to multiply"):
        matmul(a, b, beta=1)
    with pytest.raises(ValueError, match="max_gpu_memory is for arrays on the host"):
        matmul(a, b, max_gpu_memory="1GB")


@pytest.mark.usefixtures("by_tensor_cores")
def test_explain_says_so(torch: Any) -> None:
    a = torch.randn(6, 6)
    found = tilewise.explain(a.half(), a.half())
    assert (found.chosen, found.place) == ("PyTorch's own product", "GPU 0")
    assert found.why == (
        "of 16 bits, tilewise has fast kernels for compute capability 8.0 and above, and this "
        "GPU's is 7.5"
    )
    assert (found.steps, found.copies) == ((), ())
    (copies,) = tilewise.explain(a.bfloat16(), a.bfloat16()).copies
    assert copies.startswith("a and b, as float32")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_120"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_other_products_are_for_kernels(
    old_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, arch: str, dtype: str
) -> None:
    monkeypatch.setattr(old_gpu, "arch", arch)
    is_by_library = arch == "sm_75" and dtype in HALVES
    assert bool(own_product.why_on_gpu(dtype, 0)) == is_by_library
    assert bool(own_product.why_on_host(dtype, old_gpu)) == is_by_library


def test_a_gpu_that_nothing_can_be_compiled_for(
    by_tensor_cores: list[str], torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library answers for every dtype; another reason why a GPU can't be used is an error."""
    tried = []

    def none(ordinal: int) -> Gpu:
        tried.append(ordinal)
        raise GpuTooOldError("a V100 can't be used: the compiler knows no architecture as old")

    monkeypatch.setattr(own_product, "gpu_of", none)
    for dtype in (torch.float16, torch.float32, torch.float64):
        a = torch.randn(4, 4).to(dtype)
        assert_tensors_right(matmul(a, a), a, a)
        assert "knows no architecture" in tilewise.explain(a, a).why
    assert tried == [0]  # once

    def broken(ordinal: int) -> Gpu:
        raise DeviceUnavailableError("it has fallen off the bus")

    own_product._no_kernel.cache_clear()
    monkeypatch.setattr(own_product, "gpu_of", broken)
    with pytest.raises(DeviceUnavailableError, match="fallen off"):
        matmul(a, a)


@pytest.mark.parametrize(
    ("capability", "driver", "told"),
    [
        ((5, 2), 13000, r"a Maxwell.* can't be used: .*as old as sm_52"),
        ((7, 5), 12040, r"CUDA 12.4 can't be used: kernels that NVRTC \d+ compiles need a driver"),
        ((7, 5), 13000, ""),
        ((7, 5), 14010, ""),
    ],
)
def test_a_gpu_or_a_driver_older_than_the_compiler_knows(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], driver: int, told: str
) -> None:
    """By a driver that has a GPU of 5.2, which no NVRTC that is taken knows, or an old driver."""

    class Context:
        device, stream = SimpleNamespace(name="a Maxwell"), None

        def __init__(self, ordinal: int | None) -> None:
            self.ordinal = ordinal

        def attribute(self, name: str) -> int:
            major, minor = capability
            of = {"COMPUTE_CAPABILITY_MAJOR": major, "COMPUTE_CAPABILITY_MINOR": minor}
            return of.get(name, 1)

        def current(self) -> AbstractContextManager[None]:
            return nullcontext()

        def call(self, name: str, *_: object) -> Any:
            return (1, 1) if name == "cuMemGetInfo" else driver

    monkeypatch.setattr(gpu_module, "Context", Context)
    if told:
        with pytest.raises(GpuTooOldError, match=told):
            Gpu(0)
    else:
        assert Gpu(0).arch == "sm_75"


# Arrays on the host


@pytest.mark.usefixtures("old_gpu")
@pytest.mark.parametrize("out_dtype", [None, "float32"])
def test_arrays_on_the_host_stay_there(out_dtype: str | None) -> None:
    a, b = normal(2, 5, 6, dtype="float16"), normal(6, 4, dtype="float16", seed=1)
    c = normal(2, 5, 4, dtype=out_dtype or "float16", seed=2)
    result = matmul(a, b, c, alpha=2, beta=-0.5, out_dtype=out_dtype)
    assert_right(result, a, b, "float16", 2, -0.5, c)
    assert isinstance(matmul(a[0, 0], b[:, 0]), np.float16)
    found = tilewise.explain(a, b)
    assert (found.place, found.chosen) == ("the host", "NumPy's own product")
    assert "this GPU's is 7.5" in found.why


@pytest.mark.usefixtures("old_gpu")
def test_a_gpu_that_is_asked_for_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []

    def multiply(call: Any, gpu: Gpu, room: int | None, key: object) -> Any:
        sent.append(gpu)
        return np.zeros(call.shape, call.out_dtype)

    monkeypatch.setattr(MATMUL, "multiply", multiply)
    gpu = OldGpu()
    monkeypatch.setattr(MATMUL, "device_of", lambda device: gpu)
    half, single = normal(3, 3, dtype="float16"), normal(3, 3)
    matmul(half, half, device="gpu")
    assert sent == [gpu]
    matmul(single, single)  # of 32 bits there are kernels for it
    assert len(sent) == 2


@pytest.mark.usefixtures("old_gpu")
def test_files_of_float16_are_multiplied_on_the_host(tmp_path: Path) -> None:
    a = normal(5, 6, dtype="float16")
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", a.T)
    done = tilewise.multiply_files(tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "c.npy")
    assert done.device == "host"
    assert_right(np.load(tmp_path / "c.npy"), a, a.T, "float16")


# CuPy


@pytest.mark.usefixtures("old_gpu")
def test_arrays_of_cupy_on_an_old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a module that is like it, on the GPU that the arrays lie on."""
    entered: list[int] = []

    class Array(np.ndarray[Any, Any]):
        @property
        def device(self) -> Any:
            return SimpleNamespace(id=1)

        @property
        def data(self) -> Any:
            return SimpleNamespace(ptr=self.ctypes.data, device_id=1)

    def on(ordinal: int) -> AbstractContextManager[None]:
        entered.append(ordinal)
        return nullcontext()

    cupy: Any = ModuleType("cupy")
    cupy.ndarray = Array
    cupy.empty = lambda shape, dtype: np.empty(shape, dtype).view(Array)
    cupy.cuda = SimpleNamespace(Device=on)
    monkeypatch.setitem(libraries.repeatable, Array, libraries._Arrays(cupy))
    a, b = (normal(2, 4, 4, dtype="float16", seed=seed).view(Array) for seed in (1, 2))
    result = matmul(a, b, a, alpha=0.5, beta=2)
    assert type(result) is Array
    assert entered[0] == 1
    assert_right(np.asarray(result), a, b, "float16", 0.5, 2, a)
    assert tilewise.explain(a, b).chosen == "CuPy's own product"
