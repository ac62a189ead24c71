"""The front door with arrays that lie on a GPU: ``pytest --device gpu``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from test_matmul import assert_right, normal

from tilewise.errors import DeviceUnavailableError
from tilewise.matmul import matmul


@pytest.fixture(autouse=True)
def needs_gpu(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--device") != "gpu":
        pytest.skip("needs a GPU: pytest --device gpu")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy", reason="cupy is not installed")


def check(
    result: Any, a: Any, b: Any, alpha: float = 1, beta: float = 0, c: Any | None = None
) -> None:
    x, y, got = (v.double().cpu().numpy() for v in (a, b, result))
    old = 0 if c is None else c.double().cpu().numpy()
    # NumPy may not have their dtypes.
    dtype, out_dtype = (str(v.dtype).removeprefix("torch.") for v in (a, result))
    assert_right(got, x, y, dtype, alpha, beta, old, out_dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_views_where_they_lie(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.randn(300, 200, device="cuda").to(kind)
    for a, b in ((x, x.T), (x.T, x), (x[:, :77], x[:77]), (x[::2, 1:130:3], x[:43, ::2])):
        result = matmul(a, b)
        assert result.dtype == kind
        assert result.is_cuda
        check(result, a, b)
        assert torch.equal(result, matmul(a, b))
        check(matmul(a, b.T.contiguous(), transpose_b=True), a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_to_float32(torch: Any, dtype: str) -> None:
    a, b = (torch.randn(130, 130, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
    c = torch.randn(130, 130, device="cuda")
    result = matmul(a, b, c, alpha=0.5, beta=2, out_dtype=torch.float32)
    assert result.dtype == torch.float32
    check(result, a, b, 0.5, 2, c)


def test_batches(torch: Any) -> None:
    a, b = torch.randn(3, 1, 20, 30, device="cuda"), torch.randn(4, 30, 10, device="cuda")
    check(matmul(a, b), a, b)
    check(matmul(a[:, 0], b[0]), a[:, 0], b[0])
    check(matmul(a[0, 0].expand(4, 20, 30), b), a[0], b)
    check(matmul(b.mT, b.new_ones(30)), b.mT, b.new_ones(30))
    many = torch.randn(70000, 2, 3, device="cuda")
    check(matmul(many, many.mT), many, many.mT)


def test_out_alpha_beta_and_what_is_not_read(torch: Any) -> None:
    a, b = torch.randn(65, 30, device="cuda"), torch.randn(30, 70, device="cuda")
    c = torch.randn(65, 70, device="cuda")
    old = c.clone()
    assert matmul(a, b, c, alpha=-0.5, beta=3, out=c) is c
    check(c, a, b, -0.5, 3, old)
    wide = torch.full((65, 200), torch.nan, device="cuda")
    matmul(a, b, wide[:, :70], out=wide[:, :70])
    check(wide[:, :70], a, b)
    assert wide[:, 70:].isnan().all()
    nan = torch.full_like(a, torch.nan)
    assert torch.equal(matmul(nan, b, old, alpha=0, beta=1), old)
    with pytest.raises(ValueError, match="out overlaps a"):
        matmul(a[:30], b[:, :30], out=a[:30, :30])
    with pytest.raises(ValueError, match="one place"):
        matmul(a, b.cpu())


def test_gradients_are_refused(torch: Any) -> None:
    a = torch.randn(3, 3, device="cuda", requires_grad=True)
    with pytest.raises(ValueError, match="detach"):
        matmul(a, a)
    with torch.no_grad():
        check(matmul(a, a), a.detach(), a.detach())


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
    check(result, a, b)


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
        check(out, a, b)
        check(new, a, b.T)


def test_tensors_on_the_host_go_there_and_back(torch: Any) -> None:
    a, b = torch.randn(40, 50).bfloat16(), torch.randn(50, 60).bfloat16()
    result = matmul(a, b, device="gpu")
    assert not result.is_cuda
    check(result, a, b)


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
    check(matmul(a, b)[-70:], a[-70:], b)


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
