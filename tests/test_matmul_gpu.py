"""The front door with arrays that lie on a GPU: ``pytest --device gpu``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matmul_reference import assert_right, assert_tensors_right, normal
from reference import examples

from tilewise.errors import DeviceUnavailableError
from tilewise.matmul import matmul

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy", reason="cupy is not installed")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_views_where_they_lie(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.randn(300, 200, device="cuda").to(kind)
    for a, b in ((x, x.T), (x.T, x), (x[:, :77], x[:77]), (x[::2, 1:130:3], x[:43, ::2])):
        result = matmul(a, b)
        assert result.dtype == kind
        assert result.is_cuda
        assert_tensors_right(result, a, b)
        assert torch.equal(result, matmul(a, b))
        assert_tensors_right(matmul(a, b.T.contiguous(), transpose_b=True), a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_to_float32(torch: Any, dtype: str) -> None:
    a, b = (torch.randn(130, 130, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
    c = torch.randn(130, 130, device="cuda")
    result = matmul(a, b, c, alpha=0.5, beta=2, out_dtype=torch.float32)
    assert result.dtype == torch.float32
    assert_tensors_right(result, a, b, 0.5, 2, c)


def test_batches(torch: Any) -> None:
    a, b = torch.randn(3, 1, 20, 30, device="cuda"), torch.randn(4, 30, 10, device="cuda")
    assert_tensors_right(matmul(a, b), a, b)
    assert_tensors_right(matmul(a[:, 0], b[0]), a[:, 0], b[0])
    assert_tensors_right(matmul(a[0, 0].expand(4, 20, 30), b), a[0], b)
    assert_tensors_right(matmul(b.mT, b.new_ones(30)), b.mT, b.new_ones(30))
    many = torch.randn(70000, 2, 3, device="cuda")
    assert_tensors_right(matmul(many, many.mT), many, many.mT)


def test_out_alpha_beta_and_what_is_not_read(torch: Any) -> None:
    a, b = torch.randn(65, 30, device="cuda"), torch.randn(30, 70, device="cuda")
    c = torch.randn(65, 70, device="cuda")
    old = c.clone()
    assert matmul(a, b, c, alpha=-0.5, beta=3, out=c) is c
    assert_tensors_right(c, a, b, -0.5, 3, old)
    wide = torch.full((65, 200), torch.nan, device="cuda")
    matmul(a, b, wide[:, :70], out=wide[:, :70])
    assert_tensors_right(wide[:, :70], a, b)
    assert wide[:, 70:].isnan().all()
    nan = torch.full_like(a, torch.nan)
    assert torch.equal(matmul(nan, b, old, alpha=0, beta=1), old)
    with pytest.raises(ValueError, match="out overlaps a"):
        matmul(a[:30], b[:, :30], out=a[:30, :30])
    with pytest.raises(ValueError, match="one place"):
        matmul(a, b.cpu())


def test_gradients(torch: Any) -> None:
    a, b = (torch.randn(30, 30, device="cuda", requires_grad=True) for _ in range(2))
    result = matmul(a, b.mT, alpha=2)
    of_result = torch.randn(30, 30, device="cuda")
    result.backward(of_result)
    assert_tensors_right(result.detach(), a.detach(), b.detach().mT, 2)
    assert_tensors_right(a.grad, of_result, b.detach(), 2)
    assert_tensors_right(b.grad, of_result.mT, a.detach(), 2)
    with torch.no_grad():
        assert not matmul(a, a).requires_grad


def test_the_current_stream(torch: Any) -> None:
    """Behind work that takes a while on that stream, and before the host has waited for it."""
    a = torch.zeros(512, 512, device="cuda")
    b = torch.randn(512, 512, device="cuda")
    matmul(a, b)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        a.fill_(1)
        result = matmul(a, b)
        assert not stream.query()  # nobody waited
    stream.synchronize()
    assert_tensors_right(result, a, b)


SIZES = st.one_of(st.integers(1, 40), st.integers(1, 700))


@examples(150)
@given(data=st.data(), m=SIZES, n=SIZES, k=SIZES, dtype=st.sampled_from(["float16", "bfloat16"]))
def test_sixteen_bits_off_16_bytes(
    torch: Any, data: st.DataObject, m: int, n: int, k: int, dtype: str
) -> None:
    """Slices of larger arrays of either layout, batched and shared, read and written in place."""
    batch = data.draw(st.sampled_from([(), (), (3,), (2, 2)]))
    out_dtype = data.draw(st.sampled_from([dtype, dtype, "float32"]))
    alpha, beta = data.draw(st.sampled_from([(1, 0), (1, 0), (-0.5, 2)]))

    def cut(rows: int, columns: int, kind: str, leading: tuple[int, ...]) -> tuple[Any, Any]:
        """A view of normal numbers, among NaN, and all of its memory."""
        by_columns, step = data.draw(st.booleans()), data.draw(st.sampled_from([1, 1, 1, 2]))
        ahead, gap = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
        length, lines = (rows, columns) if by_columns else (columns, rows)
        whole = torch.full(
            (*leading, lines, ahead + length * step + gap),
            torch.nan,
            device="cuda",
            dtype=getattr(torch, kind),
        )
        view = whole[..., ahead : ahead + length * step : step]
        view.normal_()
        return (view.mT if by_columns else view), whole

    a, _ = cut(m, k, dtype, data.draw(st.sampled_from([batch, batch, ()])))
    b, _ = cut(k, n, dtype, data.draw(st.sampled_from([batch, batch, ()])))
    leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out, whole = cut(m, n, out_dtype, leading)
    old = out.clone()
    gaps = whole.isnan().sum()
    in_place = data.draw(st.booleans())
    c = out if in_place else old
    result = matmul(a, b, c, alpha=alpha, beta=beta, out=out)
    assert_tensors_right(result, a, b, alpha, beta, old)
    assert whole.isnan().sum() == gaps
    if not (in_place and beta):
        first = result.clone()
        assert torch.equal(first, matmul(a, b, c, alpha=alpha, beta=beta, out=out))


# A's rows, B's columns, their depth: by copies of A and B, of D too, and by the thin kernel.
OFF = [(255, 257, 259), (2001, 1001, 333), (1, 515, 1031), (517, 9, 1031)]


@pytest.mark.parametrize("size", OFF)
def test_a_graph_captures_a_workspace(torch: Any, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(n, k, device="cuda").bfloat16().T
    matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = matmul(a, b)
        second = matmul(a, b)  # its workspace may be where the first one's was
    for _ in range(3):
        a.normal_()
        graph.replay()
        assert_tensors_right(first, a, b)
        assert torch.equal(first, second)


@pytest.mark.parametrize("size", OFF)
def test_two_streams_have_a_workspace_each(torch: Any, size: tuple[int, int, int]) -> None:
    m, n, k = size
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [torch.randn(m, k, device="cuda").half() for _ in streams]
    b = torch.randn(k, n, device="cuda").half()
    expected = [matmul(a, b) for a in inputs]
    torch.cuda.synchronize()
    results: list[list[Any]] = [[], []]
    for _ in range(30):
        for stream, a, found in zip(streams, inputs, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(matmul(a, b))
    torch.cuda.synchronize()
    for right, a, found in zip(expected, inputs, results, strict=True):
        assert_tensors_right(right, a, b)
        assert all(torch.equal(right, x) for x in found)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_graph_captures_it(torch: Any, dtype: str) -> None:
    """Also where it is the kernel's first launch."""
    kind = getattr(torch, dtype)
    a, b = (torch.randn(96, 96, device="cuda").to(kind) for _ in range(2))
    out = torch.zeros(96, 96, device="cuda", dtype=kind)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        matmul(a, b, out=out)
        new = matmul(a, b.T)
    assert not out.any()
    for _ in range(2):
        a.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert_tensors_right(out, a, b)
        assert_tensors_right(new, a, b.T)


def test_tensors_on_the_host_go_there_and_back(torch: Any) -> None:
    a, b = torch.randn(40, 50).bfloat16(), torch.randn(50, 60).bfloat16()
    result = matmul(a, b, device="gpu")
    assert not result.is_cuda
    assert_tensors_right(result, a, b)


def test_numpy_goes_there_and_back() -> None:
    x = normal(90, 100)
    out = np.zeros((90, 200), np.float32)
    assert_right(matmul(x, x.T, device="gpu"), x, x.T, "float32")
    matmul(x[::-1], x.T[:, ::2], out=out[:, ::4][:, :45])
    assert_right(out[:, ::4][:, :45], x[::-1], x.T[:, ::2], "float32")


def test_cupy(cupy: Any) -> None:
    x = cupy.asarray(normal(60, 50))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        result = matmul(x[:, ::-1], x.T)
        batched = matmul(cupy.stack([x, 2 * x]).astype("float16"), x.T.astype("float16"))
    stream.synchronize()
    assert isinstance(result, cupy.ndarray)
    host = cupy.asnumpy(x)
    assert_right(cupy.asnumpy(result), host[:, ::-1], host.T, "float32")
    half = host.astype(np.float16)
    assert_right(cupy.asnumpy(batched), np.stack([half, 2 * half]), half.T, "float16")


def test_offsets_past_31_bits(torch: Any) -> None:
    rows = 2**31 // 64 + 70
    a = torch.zeros(rows, 64, device="cuda", dtype=torch.bfloat16)
    a[-3:] = torch.randn(3, 64, device="cuda").bfloat16()
    b = torch.randn(64, 64, device="cuda").bfloat16()
    assert_tensors_right(matmul(a, b)[-70:], a[-70:], b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_is_told() -> None:
    x = normal(3, 3)
    matmul(x, x, device="gpu")
    child = os.fork()
    if not child:
        try:
            matmul(x, x)
        except DeviceUnavailableError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
