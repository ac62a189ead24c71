"""The front door: on the emulator and by the arrays' own library anywhere, and on a GPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from matmul_reference import assert_right, normal
from numpy.lib.stride_tricks import as_strided

import tilewise
from tilewise import matmul as the_function
from tilewise.devices import Device, get_device
from tilewise.devices.emulator import Emulator
from tilewise.errors import DeviceUnavailableError
from tilewise.gemm import plan
from tilewise.gemm.families import general
from tilewise.gemm.product import Operand, Product, offset
from tilewise.gemm.steps import Plan, execute
from tilewise.matmul import matmul

Array = npt.NDArray[Any]
PLACES = ("auto", "emulator")


def dtype_of(name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    return pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 needs ml_dtypes").bfloat16


@st.composite
def matrices(draw: st.DrawFn, rows: int, columns: int, batch: tuple[int, ...], seed: int) -> Array:
    """Views of every layout: by rows or columns, cut out, stepping, backwards, broadcast."""
    by_columns, down, across = draw(st.booleans()), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    own = tuple(1 if draw(st.booleans()) else extent for extent in batch)
    shape = (*own[draw(st.integers(0, len(own))) :], rows * down + 1, columns * across + 2)
    x = normal(*shape, seed=seed)
    if by_columns:
        x = np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    x = x[..., : rows * down : down, 1 : 1 + columns * across : across]
    return x[..., ::-1, :] if draw(st.booleans()) else x


def test_the_name_is_the_function() -> None:
    assert callable(tilewise.matmul)
    assert tilewise.matmul is the_function is matmul


@pytest.mark.parametrize("place", PLACES)
@limits(max_examples=15)
@given(data=st.data())
def test_shapes_layouts_and_batches(place: str, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(0, 9)) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (2,), (3, 2)]))
    a = data.draw(matrices(m, k, batch, 1))
    b = data.draw(matrices(k, n, batch, 2))
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    alpha, beta = data.draw(st.sampled_from([0, 1, -0.75])), data.draw(st.sampled_from([0, 1, 2.5]))
    c = normal(*shape, m, n, seed=3)
    out = data.draw(st.sampled_from([None, c, np.empty((*shape, n, m), "f").swapaxes(-1, -2)]))
    transpose_a, transpose_b = data.draw(st.booleans()), data.draw(st.booleans())
    old = c.copy()
    result = matmul(
        a.swapaxes(-1, -2) if transpose_a else a,
        b.swapaxes(-1, -2) if transpose_b else b,
        c,
        alpha=alpha,
        beta=beta,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        out=out,
        device=place,
    )
    assert out is None or result is out
    assert_right(result, a, b, "float32", alpha, beta, old)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("dtype", "out_dtype"),
    [
        ("float16", None),
        ("float16", np.float32),
        ("bfloat16", None),
        ("bfloat16", "float32"),
        ("float32", None),
        ("float64", None),
    ],
)
def test_dtypes(place: str, dtype: str, out_dtype: Any) -> None:
    a, b = (normal(70, 70, dtype=dtype_of(dtype), seed=seed) for seed in (1, 2))
    result = matmul(a[:, :19], b[:19], out_dtype=out_dtype, device=place)
    assert result.dtype == (a.dtype if out_dtype is None else np.float32)
    assert_right(result, a[:, :19], b[:19], dtype)
    again = matmul(a[:, :19], b[:19], out_dtype=out_dtype, device=place)
    assert again.tobytes() == result.tobytes()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("a", "b"), [((4,), (4,)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (4,)), ((1, 4), (4, 1))]
)
def test_vectors_as_numpy_has_them(place: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = normal(*a), normal(*b, seed=1)
    result = matmul(x, y, device=place)
    assert type(result) is type(np.matmul(x, y))
    assert_right(result, x, y, "float32")


@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_read_does_not_spread(place: str) -> None:
    a, nan = normal(3, 3), np.full((3, 3), np.nan, np.float32)
    assert_right(matmul(a, a, nan, beta=0, device=place), a, a, "float32")
    assert (matmul(nan, nan, a, alpha=0, beta=2, device=place) == 2 * a).all()
    assert np.isnan(matmul(a, nan, device=place)).all()
    assert (matmul(a[:, :0], a[:0], device=place) == 0).all()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_alpha_0_takes_no_memory_for_a_and_b(place: str, dtype: str) -> None:
    """One element, broadcast to more bytes than an address space has for a copy."""
    k = 1 << 50
    one, c = np.ones((), dtype), np.arange(6, dtype=dtype).reshape(2, 3)
    a, b = np.broadcast_to(one, (2, k)), np.broadcast_to(one, (k, 3))
    assert (matmul(a, b, alpha=0, device=place) == 0).all()
    assert (matmul(a, b, c, alpha=0, beta=2, device=place) == 2 * c).all()
    turned = matmul(a.T, b.T, alpha=0, transpose_a=True, transpose_b=True, device=place)
    assert turned.shape == (2, 3)
    assert (matmul(a[0], b, alpha=0, epilogue=lambda acc: acc + 1, device=place) == 1).all()
    both = matmul(a, (b, b), alpha=0, epilogue=lambda x, y: x + y + 3, device=place)
    assert (both == 3).all()
    assert (matmul(np.broadcast_to(a, (3, 2, k)), b, alpha=0, device=place) == 0).all()


@pytest.mark.parametrize("place", PLACES)
def test_infinity_and_subnormals(place: str) -> None:
    tiny = np.full((2, 2), np.finfo(np.float32).smallest_subnormal)
    one = np.eye(2, dtype=np.float32)
    assert (matmul(tiny, one, device=place) == tiny).all()
    big = np.full((2, 2), 3e38, np.float32)
    assert np.isposinf(matmul(big, big, device=place)).all()


def test_columns_of_one_array() -> None:
    """An output beside an input in the same rows does not overlap it."""
    whole = normal(4, 8)
    a, expected = whole[:, :4], whole[:, :4].copy()
    assert matmul(a, a, out=whole[:, 4:], device="emulator") is not None
    assert_right(whole[:, 4:], expected, expected, "float32")
    assert (a == expected).all()


A, B = normal(3, 4), normal(4, 5)
RIGHT = np.empty((3, 5), np.float32)


@pytest.mark.parametrize(
    ("kind", "words", "arguments", "options"),
    [
        (TypeError, "float16, bfloat16, float32, float64", (A.astype(int), B.astype(int)), {}),
        (TypeError, "must be the same", (A, B.astype(float)), {}),
        (TypeError, "a is a list; ", (A.tolist(), B), {}),
        (TypeError, "can't be float16", (A, B), {"out_dtype": "float16"}),
        (TypeError, "out_dtype is '>f4'.* byte order", (A, B), {"out_dtype": ">f4"}),
        (TypeError, "c has dtype float64", (A, B, RIGHT.astype(float)), {}),
        (TypeError, "byte order", (A.astype(">f4"), B), {}),
        (TypeError, "alpha", (A, B), {"alpha": True}),
        (TypeError, "transpose_a is 'N'; it takes True or False", (A, B), {"transpose_a": "N"}),
        (TypeError, "transpose_b is None; it takes True", (A, B), {"transpose_b": None}),
        (ValueError, "alpha", (A, B), {"alpha": 1e300}),
        (ValueError, "4 is not 3", (A, A), {}),
        (ValueError, "do not broadcast", (normal(2, 3, 3), normal(3, 3, 3)), {}),
        (ValueError, "one dimension", (A, np.zeros((), np.float32)), {}),
        (ValueError, "no C", (A, B), {"beta": 1}),
        (ValueError, "c has shape", (A, B, RIGHT[:1]), {"beta": 1}),
        (ValueError, "out has shape", (A, B), {"out": RIGHT.T}),
        (ValueError, "no device called 'cpu'", (A, B), {"device": "cpu"}),
        (ValueError, "interleave", (A, B), {"out": as_strided(RIGHT, (3, 5), (0, 4))}),
    ],
)
def test_refusals(
    kind: type[Exception], words: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=words):
        matmul(*arguments, **options)


def test_out_must_not_overlap_what_is_read() -> None:
    a = normal(4, 4)
    for out in (a, a.T, a[::-1]):
        with pytest.raises(ValueError, match="out overlaps a"):
            matmul(a, normal(4, 4), out=out)
    c = normal(5, 4)
    with pytest.raises(ValueError, match="out overlaps c"):
        matmul(a, a, c[:4], beta=1, out=c[1:])
    locked = normal(4, 4)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        matmul(a, a, out=locked)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> Device:
        raise DeviceUnavailableError("there is none")

    # By its module, whose name in the package is the function's.
    monkeypatch.setattr(sys.modules[matmul.__module__], "device_of", none)
    with pytest.raises(DeviceUnavailableError, match="there is none"):
        matmul(A, B, device="gpu")


@limits(max_examples=10)
@given(data=st.data())
def test_the_kernel_takes_any_strides(data: st.DataObject) -> None:
    """Past a tile's edge, strided in both directions, C read and written in place."""
    device = get_device("emulator")
    m, n, k = (data.draw(st.sampled_from([1, 15, 17, 65])) for _ in range(3))
    hosts: list[Array] = []
    operands, arrays = [], []
    for rows, columns in ((m, k), (k, n), (m, n)):
        down, across = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
        whole = normal(2, rows * down, columns * across, seed=len(hosts))
        hosts.append(whole[:, ::down, ::across].copy())
        arrays.append(device.array(whole))
        strides = (columns * across * down, across, whole[0].size)
        operands.append(Operand(*strides))
        view = (slice(None), slice(None, None, down), slice(None, None, across))
    a, b, c = operands
    product = Product(m, n, k, 2, "float32", "float32", 0.5, -1.5, a, b, c, c)
    x, y, z = (array.pointer for array in arrays)
    execute(plan.plan_product(product, device), device, 0, (x, y, z, z, 0))
    result = arrays[2].to_numpy()
    assert_right(result[view], hosts[0], hosts[1], "float32", 0.5, -1.5, hosts[2])


def test_nothing_is_copied_for_a_result_of_no_elements() -> None:
    """A would take terabytes on the emulator, where an array's rows that are one are many."""
    a = np.broadcast_to(np.float32(1), (2**40, 1))
    assert matmul(a, np.zeros((1, 0), np.float32), device="emulator").shape == (2**40, 0)


def test_a_batch_beyond_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one launch, in which each block takes several."""
    monkeypatch.setattr(general, "MAX_GRID", (2, 1, 3))
    a, b = normal(5, 65, 2), normal(2, 70)
    assert_right(matmul(a, b, device="emulator"), a, b, "float32")


def test_one_b_for_a_batch_is_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Product] = []

    def planned(product: Product, device: Device) -> Plan:
        asked.append(product)
        return plan.plan_product(product, device)

    monkeypatch.setattr(sys.modules[matmul.__module__], "plan_product", planned)
    a, b = normal(2, 3, 4, 5), normal(5, 6)
    assert_right(matmul(a, b, device="emulator"), a, b, "float32")
    assert_right(matmul(a[:, :, :3], b, device="emulator"), a[:, :, :3], b, "float32")
    assert [(product.m, product.batch) for product in asked] == [(24, 1), (3, 6)]


def test_offset() -> None:
    found = {address: offset(address) for address in (0, 1, 6, 24, 48, 2**40 + 2)}
    assert found == {0: 0, 1: 1, 6: 6, 24: 8, 48: 0, 2**40 + 2: 2}


def product_on(device: Device, a: Array, b: Array) -> Array:
    """The bits of a 16-bit product of two square matrices."""
    n, dtype = len(a), a.dtype.name
    x, y = (device.array(host.view(np.uint16)) for host in (a, b))
    d = device.empty((n, n), np.uint16)
    each = Operand(n, 1)
    product = Product(n, n, n, 1, dtype, dtype, 1.0, 0.0, each, each, None, each)
    addresses = (x.pointer, y.pointer, 0, d.pointer, 0)
    execute(plan.plan_product(product, device), device, 0, addresses)
    return d.to_numpy()


def test_bfloat16_before_its_instructions() -> None:
    """sm_75 rounds by integers, to the same bits: ties, overflow, infinity, NaN, subnormals."""
    kind = dtype_of("bfloat16")
    a = np.diag([1, 1.0078125, 1.0078125, 3e38, -3e38, np.inf, np.nan, 1e-38, -0.0]).astype(kind)
    b = normal(9, 9, dtype=kind)
    b[1, 0], b[2, 0], b[3, 0] = 1.5, 1.0078125, 2
    old, new = (product_on(Emulator(arch), a, b) for arch in ("sm_75", "sm_90"))
    assert (old == new).all()


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("place", PLACES)
def test_tensors_on_the_host(torch: Any, place: str) -> None:
    a, b = torch.randn(2, 5, 7), torch.randn(7, 3)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        kind = getattr(torch, dtype)
        result = matmul(a.to(kind), b.to(kind), device=place)
        assert result.dtype == kind
        x, y = a.to(kind).double(), b.to(kind).double()
        assert_right(result.double().numpy(), x, y, dtype, out_dtype=dtype)
