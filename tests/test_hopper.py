"""The Hopper kernel: what it takes, its tensor maps and tiles; on such a GPU, its results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise import hopper
from tilewise.devices import Device
from tilewise.devices.limits import max_shared
from tilewise.numbers import unit_roundoff
from tilewise.product import Operand, Product

ADDRESS = 0x7000_0000


def product(m: int = 300, n: int = 200, k: int = 136, **changes: Any) -> Product:
    """Row-major, bfloat16, without gaps."""
    plain = Product(
        m, n, k, 1, "bfloat16", "bfloat16", 1.0, 0.0,
        Operand(ADDRESS, k, 1), Operand(ADDRESS, n, 1), None, Operand(ADDRESS, n, 1),
    )  # fmt: skip
    return replace(plain, **changes)


def test_takes_what_bulk_copies_can_read() -> None:
    assert hopper.objection(product()) == ""
    assert hopper.objection(product(a=Operand(ADDRESS, 1, 304))) == ""
    assert hopper.objection(product(batch=3, b=Operand(ADDRESS, 200, 1, 200 * 136))) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float32"}, "not 16-bit"),
        ({"k": 0}, "nothing to multiply"),
        ({"alpha": 0.0}, "nothing to multiply"),
        ({"m": 2**31}, "too large"),
        ({"m": 2**20, "n": 2**20, "batch": 8}, "too large"),
        ({"a": Operand(ADDRESS + 2, 136, 1)}, "A does not begin"),
        ({"b": Operand(ADDRESS, 201, 1)}, "B has a stride of 402 bytes"),
        ({"a": Operand(ADDRESS, 272, 2)}, "A has no contiguous dimension"),
        ({"b": Operand(ADDRESS, 200, 1, 7), "batch": 2}, "B has a stride of 14 bytes"),
        ({"d": Operand(ADDRESS, 400, 2)}, "neither dimension of D"),
        ({"c": Operand(ADDRESS, 1, 300), "beta": 1.0}, "C does not lie as D"),
    ],
)
def test_says_why_not(changes: dict[str, Any], words: str) -> None:
    assert words in hopper.objection(product(**changes))


def test_tensor_maps() -> None:
    tiling = hopper.Tiling(128, 256, 4)
    a, b, d = hopper.plan(product(), tiling, 132).maps
    assert a == hopper.TensorMap(ADDRESS, (136, 300, 1), (272, 16), 128)
    # k is not B's contiguous dimension: 64 columns of it are a box.
    assert b == hopper.TensorMap(ADDRESS, (200, 136, 1), (400, 16), 64)
    assert d == hopper.TensorMap(ADDRESS, (200, 300, 1), (400, 16), 16)
    turned = product(b=Operand(ADDRESS, 1, 136), d=Operand(ADDRESS, 201, 1))
    _, b, no_d = hopper.plan(turned, tiling, 132).maps
    assert b == hopper.TensorMap(ADDRESS, (136, 200, 1), (272, 16), 256)
    assert no_d is None  # its rows don't begin at multiples of 16 bytes


def test_a_transposed_result_turns_the_product() -> None:
    turned = hopper.by_rows(product(d=Operand(ADDRESS, 1, 300)))
    assert (turned.m, turned.n) == (200, 300)
    assert turned.a == Operand(ADDRESS, 1, 200)
    assert turned.b == Operand(ADDRESS, 1, 136)
    assert turned.d == Operand(ADDRESS, 300, 1)


@pytest.mark.parametrize("tiling", hopper.TILINGS)
def test_tilings_fit(tiling: hopper.Tiling) -> None:
    compiled = hopper.plan(product(), tiling, 132).kernel.compile("sm_90a")
    assert compiled.resources.spill_bytes == 0
    assert tiling.shared + compiled.resources.shared_bytes <= max_shared("sm_90")


@given(
    m=st.integers(1, 20000), n=st.integers(1, 20000), k=st.integers(1, 20000),
    batch=st.integers(1, 5),
)  # fmt: skip
def test_every_tile_has_a_place(m: int, n: int, k: int, batch: int) -> None:
    asked = product(m, n, k, batch=batch)
    tiling = hopper.choose(asked, 132)
    ready = hopper.plan(asked, tiling, 132)
    _, _, _, _, a_batches, b_batches, m_tiles, n_tiles = ready.arguments[:8]
    assert (a_batches, b_batches) == (1, 1)
    assert m <= m_tiles * tiling.block_m < m + tiling.block_m * tiling.cluster
    assert n <= n_tiles * tiling.block_n < n + tiling.block_n
    assert 1 <= ready.grid[0] <= 132


@pytest.fixture
def torch(device: Device) -> Any:
    """PyTorch, on a Hopper GPU."""
    if device.name != "gpu" or not device.arch.startswith("sm_90"):
        pytest.skip("needs a Hopper GPU: pytest --device gpu")
    return pytest.importorskip("torch")


def matrix(torch: Any, shape: tuple[int, ...], turned: bool, dtype: Any) -> Any:
    """Normal numbers, contiguous along the last dimension or, if turned, the one before."""
    if turned:
        shape = (*shape[:-2], shape[-1], shape[-2])
    *outer, rows, columns = shape
    # Whole 16-byte rows, so that bulk copies can read them; the rest is NaN.
    wide = torch.full(
        (*outer, rows, -(-columns // 8) * 8), float("nan"), device="cuda", dtype=dtype
    )
    wide[..., :columns] = torch.randn(shape, device="cuda")
    x = wide[..., :columns]
    return x.transpose(-1, -2) if turned else x


def operand(x: Any) -> Operand:
    return Operand(x.data_ptr(), x.stride(-2), x.stride(-1), x.stride(0) if x.ndim == 3 else 0)


@settings(max_examples=150)
@given(
    m=st.integers(1, 700), n=st.integers(1, 700), k=st.integers(1, 700), batch=st.integers(1, 3),
    turns=st.tuples(*[st.booleans()] * 3), half=st.sampled_from(["float16", "bfloat16"]),
    is_float=st.booleans(), alpha=st.sampled_from([1.0, -0.5, 3.0]),
    beta=st.sampled_from([0.0, 1.0, -2.0]), tiling=st.sampled_from(list(hopper.TILINGS)),
    cluster=st.sampled_from([1, 2]), shares=st.booleans(),
)  # fmt: skip
def test_results(
    torch: Any, device: Any, m: int, n: int, k: int, batch: int, turns: tuple[bool, ...],
    half: str, is_float: bool, alpha: float, beta: float, tiling: hopper.Tiling, cluster: int,
    shares: bool,
) -> None:  # fmt: skip
    dtype = getattr(torch, half)
    out = "float32" if is_float else half
    out_dtype = getattr(torch, out)
    a = matrix(torch, (batch, m, k), turns[0], dtype)
    b = matrix(torch, (1 if shares else batch, k, n), turns[1], dtype)
    d = matrix(torch, (batch, m, n), turns[2], out_dtype)
    c = d.clone() if beta else torch.full_like(d, float("nan"))
    d.copy_(c)
    one = operand(b)
    asked = Product(
        m, n, k, batch, half, out, alpha, beta, operand(a),
        replace(one, batch_stride=0) if shares else one,
        replace(operand(d), pointer=d.data_ptr()), operand(d),
    )  # fmt: skip
    assert hopper.objection(asked) == ""
    stream = torch.cuda.current_stream().cuda_stream
    hopper.enqueue(asked, device, stream, replace(tiling, cluster=cluster))
    # Exact products, sums in float64; gamma for k products, their sums in float32, and
    # alpha, beta and the rounding of D. The tensor core truncates: twice the unit roundoff.
    exact = alpha * (a.double() @ b.double())
    size = abs(alpha) * (a.double().abs() @ b.double().abs())
    if beta:
        exact, size = exact + beta * c.double(), size + abs(beta) * c.double().abs()
    gamma = 2 * (k + 4) * float(unit_roundoff("float32"))
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[out]
    tiny = 2.0**-24 if out == "float16" else 1e-38
    bound = gamma * size + rounding * exact.abs() * (1 + gamma) + rounding * gamma * size + tiny
    wrong = ~((d.double() - exact).abs() <= bound)
    assert not bool(wrong.any()), f"{int(wrong.sum())} of {d.numel()} elements"


def test_the_same_bits_twice(torch: Any, device: Any) -> None:
    a, b = (matrix(torch, (1024, 1024), False, torch.float16) for _ in range(2))
    results = []
    for _ in range(2):
        d = torch.empty(1024, 1024, device="cuda", dtype=torch.float16)
        asked = Product(
            1024, 1024, 1024, 1, "float16", "float16", 1.0, 0.0, operand(a), operand(b), None,
            operand(d),
        )  # fmt: skip
        hopper.enqueue(asked, device, torch.cuda.current_stream().cuda_stream)
        results.append(d.cpu().numpy())
    np.testing.assert_array_equal(results[0].view(np.uint16), results[1].view(np.uint16))
