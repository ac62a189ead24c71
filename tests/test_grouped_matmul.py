"""``tilewise.grouped_matmul``: arrays and the ends of groups in, array out, on every device."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matmul_reference import UNIT_ROUNDOFF, assert_right, assert_tensors_right, normal
from reference import examples, held

import tilewise
from tilewise.arrays import repeat
from tilewise.gemm.product import ACCUMULATORS
from tilewise.precision import dtype_of

SIZES = (0, 3, 70, 0, 1, 12)
ENDS = np.array(list(accumulate(SIZES)), np.int32)
ROWS = sum(SIZES)


def arrays(n: int, k: int, dtype: str = "float32", sizes: tuple[int, ...] = SIZES) -> Any:
    kind = dtype_of(dtype)
    return normal(sum(sizes), k, dtype=kind), normal(len(sizes), k, n, dtype=kind, seed=1)


def parts(ends: Any) -> list[slice]:
    starts = [0, *(int(x) for x in ends[:-1])]
    return [slice(a, int(b)) for a, b in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("where", ["auto", "emulator"])
@pytest.mark.parametrize("dtype", held(["float16", "bfloat16", "float32", "float64"]))
def test_each_group_times_its_matrix(where: str, dtype: str, emulator: object) -> None:
    x, w = arrays(17, 33, dtype)
    got = tilewise.grouped_matmul(x, w, ENDS, device=where)
    assert got.dtype == x.dtype
    for i, part in enumerate(parts(ENDS)):
        assert_right(got[part], x[part], w[i], dtype)
    dy = normal(ROWS, 9, dtype=x.dtype, seed=2)
    got = tilewise.grouped_matmul(x.T, dy, ENDS.astype(np.int64), device=where)
    for i, part in enumerate(parts(ENDS)):
        assert_right(got[i], x[part].T, dy[part], dtype)


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    n=st.integers(0, 70),
    k=st.integers(0, 40),
    turned=st.booleans(),
    out_dtype=st.sampled_from(["float16", "float32"]),
)
@examples(24)
def test_any_shape_and_strides(
    emulator: object, sizes: list[int], n: int, k: int, turned: bool, out_dtype: str
) -> None:
    x, w = arrays(n, k, "float16", tuple(sizes))
    ends = np.array(list(accumulate(sizes)))
    if turned:  # columns are contiguous, and lines backwards
        x, w = np.asfortranarray(x)[::-1], np.ascontiguousarray(w.swapaxes(1, 2)).swapaxes(1, 2)
    for where in ("auto", "emulator"):
        got = tilewise.grouped_matmul(x, w, ends, device=where, out_dtype=out_dtype)
        assert got.shape == (len(x), n)
        for i, part in enumerate(parts(ends)):
            assert_right(got[part], x[part], w[i], "float16", out_dtype=out_dtype)


@pytest.mark.parametrize("where", ["auto", "emulator"])
def test_epilogue(where: str, emulator: object) -> None:
    x, w = arrays(17, 24)
    bias, scale = normal(len(SIZES), 1, 17, seed=3), normal(ROWS, 1, seed=4)
    before, after = (np.full((ROWS, 17), np.nan, np.float32) for _ in range(2))
    got = tilewise.grouped_matmul(
        x, w, ENDS, device=where, out=(after, before), bias=bias, scale=scale, factor=2.0,
        epilogue=lambda acc, bias, scale, factor: (
            tilewise.relu(acc + bias) * scale * factor, acc,
        ),
    )  # fmt: skip
    assert got[0] is after
    assert got[1] is before
    for i, part in enumerate(parts(ENDS)):
        assert_right(before[part], x[part], w[i], "float32")
        value = np.maximum(before[part].astype(float) + bias[i], 0) * scale[part] * 2
        size = (abs(before[part]) + abs(bias[i])) * abs(scale[part]) * 2
        assert (abs(after[part] - value) <= 4 * UNIT_ROUNDOFF["float32"] * size).all()


@pytest.mark.parametrize("where", ["auto", "emulator"])
def test_epilogue_of_the_gradient_form(where: str, emulator: object) -> None:
    x, dy = normal(ROWS, 5), normal(ROWS, 7, seed=1)
    scale, add = normal(len(SIZES), 1, 7, seed=3), normal(5, 7, seed=4)
    got = tilewise.grouped_matmul(
        x.T, dy, ENDS, device=where, epilogue=lambda acc, scale, add: acc * scale + add,
        scale=scale, add=add,
    )  # fmt: skip
    plain = tilewise.grouped_matmul(x.T, dy, ENDS, device=where)
    size = abs(plain * scale) + abs(add)
    assert (abs(got - (plain.astype(float) * scale + add)) <= 3 * 2.0**-24 * size).all()


def test_out(emulator: object) -> None:
    x, w = arrays(8, 8)
    out = np.full((2 * ROWS, 8), np.nan, np.float32)[::2]
    for where in ("auto", "emulator"):
        out[...] = np.nan
        assert tilewise.grouped_matmul(x, w, ENDS, out=out, device=where) is out
        assert_right(out[3:73], x[3:73], w[2], "float32")


@pytest.mark.parametrize(
    ("changed", "error", "why"),
    [
        ({"x": normal(ROWS, 9)}, ValueError, "x is 86 x 9 and w has 8 rows"),
        ({"x": normal(2, ROWS, 8)}, ValueError, "x has two dimensions"),
        ({"w": normal(8)}, ValueError, "w three where each group has a matrix"),
        ({"w": normal(5, 8, 8)}, ValueError, "w has 5 matrices and offsets 6 ends"),
        ({"offsets": ENDS[None]}, ValueError, "it has one dimension"),
        ({"offsets": ENDS.astype(np.float32)}, TypeError, "it takes int32 or int64"),
        ({"offsets": ENDS.astype(np.uint32)}, TypeError, "it takes int32 or int64"),
        ({"offsets": list(ENDS)}, TypeError, "offsets is a list; "),
        ({"offsets": ENDS + 1}, ValueError, "the last group ends at 87; it must end at 86"),
        ({"offsets": ENDS[::-1].copy()}, ValueError, r"offsets\[1\] is 74, after 86"),
        ({"offsets": ENDS - 1}, ValueError, r"offsets\[0\] is -1"),
        ({"w": normal(6, 8, 8, dtype="float64")}, TypeError, "x has dtype float32 and w float64"),
        ({"x": np.ones((ROWS, 8), np.int32)}, TypeError, "x has dtype int32"),
        ({"out_dtype": "float16"}, TypeError, "can't be float16"),
        ({"out": normal(ROWS, 7)}, ValueError, r"out has shape \(86, 7\)"),
        ({"out": normal(ROWS, 8, dtype="float64")}, TypeError, "the result has|can't be float64"),
        ({"out": (normal(ROWS, 8), None)}, TypeError, "out has None"),
        ({"bias": normal(8)}, TypeError, r"grouped_matmul\(\) got an unexpected .* 'bias'"),
        ({"epilogue": lambda acc, bias: acc + bias, "bias": normal(7)}, ValueError,
         "does not broadcast"),
        ({"epilogue": lambda acc, bias: acc + bias, "bias": normal(5, 1, 8)}, ValueError,
         "does not broadcast"),
        ({"device": "gpux"}, ValueError, "no device called 'gpux'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["auto", "emulator"])
def test_what_is_wrong_is_said(
    changed: dict[str, Any], error: type[Exception], why: str, where: str, emulator: object
) -> None:
    x, w = arrays(8, 8)
    given = {"x": x, "w": w, "offsets": ENDS, "device": where, **changed}
    with pytest.raises(error, match=why):
        tilewise.grouped_matmul(**given)


def test_out_must_not_overlap() -> None:
    x, w = arrays(8, 8)
    with pytest.raises(ValueError, match="out overlaps x"):
        tilewise.grouped_matmul(x, w, ENDS, out=x)


# On a GPU.

LAYOUTS = ("nk", "kn")


def on_gpu(torch: Any, sizes: Any, n: int, k: int, major: str, dtype: str) -> Any:
    kind = getattr(torch, dtype)
    x = torch.randn(sum(sizes), k, device="cuda").to(kind)
    w = torch.randn(len(sizes), n, k, device="cuda").to(kind).mT
    ends = torch.tensor(list(accumulate(sizes)), dtype=torch.int32, device="cuda")
    return x, w if major == "nk" else w.contiguous(), ends


def assert_groups_right(got: Any, x: Any, w: Any, ends: Any) -> None:
    for i, part in enumerate(parts(ends.cpu().numpy())):
        assert_tensors_right(got[part], x[part], w[i])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("major", LAYOUTS)
@pytest.mark.parametrize(
    ("n", "k"), [(256, 512), (264, 136), (100, 72), (64, 33), (31, 64), (1024, 64)]
)
def test_tensors(gpu: object, torch: Any, dtype: str, major: str, n: int, k: int) -> None:
    random = np.random.default_rng(n)
    for mean in (1, 20, 300):
        sizes = random.multinomial(16 * mean, random.dirichlet(np.ones(16)))
        x, w, ends = on_gpu(torch, sizes, n, k, major, dtype)
        assert_groups_right(tilewise.grouped_matmul(x, w, ends), x, w, ends)
        assert_groups_right(tilewise.grouped_matmul(x, w, ends.long()), x, w, ends)
        dy = torch.randn(len(x), n, device="cuda").to(x.dtype)
        got = tilewise.grouped_matmul(x.mT, dy, ends)
        for i, part in enumerate(parts(ends.cpu().numpy())):
            assert_tensors_right(got[i], x[part].mT, dy[part])


def test_from_the_host_and_back(gpu: object) -> None:
    x, w = arrays(72, 64, "float16")
    bias = normal(len(SIZES), 1, 72, seed=3)
    y, pre = tilewise.grouped_matmul(
        x, w, ENDS, device="gpu", epilogue=lambda acc, b: (acc + b, acc), b=bias
    )
    for i, part in enumerate(parts(ENDS)):
        assert_right(pre[part], x[part], w[i], "float16")
        assert_right(y[part], x[part], w[i], "float16", 1, 1, bias[i])


def test_many_groups(gpu: object, torch: Any) -> None:
    for groups in (1024, 1025, 3000):
        sizes = np.random.default_rng(groups).integers(0, 6, groups)
        x, w, ends = on_gpu(torch, sizes, 64, 64, "nk", "bfloat16")
        assert_groups_right(tilewise.grouped_matmul(x, w, ends), x, w, ends)


@pytest.mark.parametrize("mean", [2, 400])
def test_replay_with_other_offsets(gpu: object, torch: Any, mean: int) -> None:
    """A graph reads the offsets, and all else, at each replay."""
    random = np.random.default_rng(mean)
    x, w, ends = on_gpu(torch, (mean,) * 8, 256, 128, "nk", "bfloat16")
    bias = torch.randn(8, 1, 256, device="cuda")

    def call() -> Any:
        plain = tilewise.grouped_matmul(x, w, ends)
        of_w = tilewise.grouped_matmul(x.mT, plain, ends)
        biased = tilewise.grouped_matmul(x, w, ends, epilogue=lambda acc, b: acc + b, b=bias)
        return plain, of_w, biased

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain, of_w, biased = call()
    for _ in range(6):
        sizes = random.multinomial(8 * mean, random.dirichlet(np.ones(8) / 2))
        ends.copy_(torch.tensor(list(accumulate(sizes)), device="cuda"))
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert_groups_right(plain, x, w, ends)
        for i, part in enumerate(parts(ends.cpu().numpy())):
            assert_tensors_right(of_w[i], x[part].mT, plain[part])
            sums = x[part].double() @ w[i].double() + bias[i].double()
            size = x[part].double().abs() @ w[i].double().abs() + bias[i].double().abs()
            bound = (2.0**-8 + (x.shape[1] + 2) * 2.0**-24) * size
            assert bool(((biased[part].double() - sums).abs() <= bound).all())


def test_no_neighbour_is_touched(gpu: object, torch: Any) -> None:
    """Rows in no group stay as they are, and a NaN of one group is in no other one's result."""
    x, w, ends = on_gpu(torch, (40, 200, 3, 57), 256, 128, "nk", "bfloat16")
    x[40:240] = float("nan")
    out = torch.full((300, 256), 7.0, device="cuda", dtype=torch.bfloat16)
    ends[3] = 290
    tilewise.grouped_matmul(x, w, ends, out=out)
    assert bool(out[40:240].isnan().all())
    for i, part in ((0, slice(0, 40)), (2, slice(240, 243)), (3, slice(243, 290))):
        assert_tensors_right(out[part], x[part], w[i])
    assert bool((out[290:] == 7).all())
    of_w = tilewise.grouped_matmul(x.mT, out, ends)
    assert bool(of_w[1].isnan().all())
    assert not bool(of_w[[0, 2, 3]].isnan().any())


def test_offsets_are_looked_at_on_demand(gpu: object, torch: Any) -> None:
    x, w, ends = on_gpu(torch, (40, 20), 64, 64, "nk", "bfloat16")
    tilewise.grouped_matmul(x, w, ends, check_offsets=True)
    ends[1] = 61
    tilewise.grouped_matmul(x, w, ends)
    with pytest.raises(ValueError, match="ends at 61; it must end at 60"):
        tilewise.grouped_matmul(x, w, ends, check_offsets=True)


def test_a_call_like_one_before(gpu: object, torch: Any) -> None:
    """It is answered at once, also with ``out`` or an epilogue, and overlaps are still found."""
    repeat.forget()
    x, w, ends = on_gpu(torch, (40, 20, 9), 64, 64, "nk", "bfloat16")
    out = torch.empty(69, 64, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(3, 1, 64, device="cuda")
    for _ in range(3):
        x.normal_()
        assert_groups_right(tilewise.grouped_matmul(x, w, ends), x, w, ends)
        out.fill_(float("nan"))
        tilewise.grouped_matmul(x, w, ends, out=out)
        assert_groups_right(out, x, w, ends)
        y, pre = tilewise.grouped_matmul(
            x, w, ends, epilogue=lambda acc, b: (tilewise.relu(acc + b), acc), b=bias
        )
        assert_groups_right(pre, x, w, ends)
        assert bool((y >= 0).all())
    assert len(repeat._records) == 3
    with pytest.raises(ValueError, match="out overlaps x"):
        tilewise.grouped_matmul(x, w, ends, out=x)


def test_sums_are_in_float32_until_they_are_stored(gpu: object, torch: Any) -> None:
    x, w, ends = on_gpu(torch, (40, 20), 64, 256, "kn", "float16")
    got = tilewise.grouped_matmul(x, w, ends, out_dtype="float32")
    assert got.dtype == torch.float32
    assert ACCUMULATORS["float16"] == "float32"
    assert_groups_right(got, x, w, ends)
