"""``matmul`` of pairs of columns: from arrays to arrays, on the host, the emulator and a GPU."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.arrays import fusion, repeat
from tilewise.devices import Device

RNG = np.random.default_rng(0)
PLACES = ["auto", "emulator"]


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def swiglu(gate: Any, up: Any) -> Any:
    return tw.silu(gate) * up


A, W1, W3 = normal(6, 5), normal(5, 7), normal(5, 7)
WANTED = swiglu(A @ W1, A @ W3)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def weights(how: str, transposed: bool) -> tuple[Any, dict[str, Any]]:
    """The two matrices as an argument b, and what says how they lie."""
    if how == "apart":
        b: Any = W1, W3
        return tuple(x.T.copy() for x in b) if transposed else b, {}
    b = np.concatenate([W1, W3], 1) if how == "halves" else np.stack([W1, W3], 2).reshape(5, 14)
    return b.T.copy() if transposed else b, {"pairs": how}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["apart", "halves", "interleaved"])
@pytest.mark.parametrize("transposed", [False, True])
def test_two_matrices_and_one_of_both(place: str, how: str, transposed: bool) -> None:
    b, more = weights(how, transposed)
    found = tw.matmul(A, b, transpose_b=transposed, epilogue=swiglu, device=place, **more)
    assert found.dtype == np.float32
    close(found, WANTED)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["apart", "halves", "interleaved"])
def test_it_goes_together_with_all_else(place: str, how: str) -> None:
    """Several results into arrays of the caller's, a batch, alpha, operands, transposed A."""
    b, more = weights(how, transposed=False)
    a, b1, b3, residual = normal(2, 5, 6), normal(7), normal(7, dtype=np.float16), normal(2, 1, 7)

    def function(gate: Any, up: Any, b1: Any, b3: Any, residual: Any, scale: Any) -> Any:
        y = swiglu(gate + b1, up + b3) * scale + residual
        return y, gate

    outs = np.empty((2, 6, 7), np.float32), np.empty((2, 7, 6), np.float32).swapaxes(1, 2)
    found = tw.matmul(
        a, b, alpha=0.5, transpose_a=True, epilogue=function, device=place, out=outs, b1=b1, b3=b3,
        residual=residual, scale=2, **more,
    )  # fmt: skip
    assert found[0] is outs[0]
    gate, up = (0.5 * a.swapaxes(1, 2) @ x for x in (W1, W3))
    close(outs[0], swiglu(gate + b1, up + b3) * 2 + residual)
    close(outs[1], gate)


@pytest.mark.parametrize("place", PLACES)
def test_batches_of_weights_vectors_and_nothing(place: str) -> None:
    a, w1, w3 = normal(3, 1, 2, 5), normal(4, 5, 6), normal(4, 5, 6)
    wanted = swiglu(a @ w1, a @ w3)
    close(tw.matmul(a, (w1, w3), epilogue=swiglu, device=place), wanted)
    both = np.concatenate([w1, w3], -1)
    close(tw.matmul(a, both, pairs="halves", epilogue=swiglu, device=place), wanted)
    flipped = w1[::-1], w3[::-1]
    close(tw.matmul(a, flipped, epilogue=swiglu, device=place), swiglu(a @ w1[::-1], a @ w3[::-1]))
    close(tw.matmul(A[0], (W1, W3), epilogue=swiglu, device=place), WANTED[0])
    assert tw.matmul(A, (W1[:, :0], W3[:, :0]), epilogue=swiglu, device=place).shape == (6, 0)
    none = tw.matmul(A[:, :0], (W1[:0], W3[:0]), epilogue=lambda g, u: g + u + 1, device=place)
    assert (none == 1).all()


def test_rows_are_the_same_in_any_batch() -> None:
    whole = tw.matmul(A, (W1, W3), epilogue=swiglu, invariant=True, device="emulator")
    alone = tw.matmul(A[2:3], (W1, W3), epilogue=swiglu, invariant=True, device="emulator")
    assert whole[2:3].tobytes() == alone.tobytes()


def test_a_function_is_traced_once_for_pairs() -> None:
    traced = tw.Epilogue(swiglu, pairs=True)
    assert str(traced) == "silu(gate) * up"
    close(tw.matmul(A, (W1, W3), epilogue=traced), WANTED)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"b": (W1,), "epilogue": swiglu}, "a tuple of 1"),
        ({"b": (W1, None), "epilogue": swiglu}, "b\\[1\\] is None; of pairs"),
        ({"b": (None, W1), "epilogue": swiglu}, "b\\[0\\] is None; of pairs"),
        ({"b": [W1, W3], "epilogue": swiglu}, "a tuple, \\(gate, up\\)"),
        ({"b": (W1, W3)}, "an epilogue says"),
        ({"b": W1, "pairs": "halves"}, "an epilogue says"),
        ({"b": W1[:, :6], "pairs": "rows", "epilogue": swiglu}, "'halves', 'interleaved'"),
        ({"b": (W1, W3), "pairs": "halves", "epilogue": swiglu}, "b two matrices"),
        ({"b": (W1, W3[:, :3]), "epilogue": swiglu}, "b\\[1\\] \\(5, 3\\)"),
        ({"b": (W1, W3.astype(np.float64)), "epilogue": swiglu}, "must be the same"),
        ({"b": (W1, 3.0), "epilogue": swiglu}, "b\\[1\\] is a"),
        ({"b": W1, "pairs": "halves", "epilogue": swiglu}, "7 columns"),
        ({"b": W1[:, 0], "pairs": "halves", "epilogue": swiglu}, "columns of a matrix"),
        ({"b": (W1, W3), "epilogue": lambda acc: acc}, "first two"),
        ({"b": W1, "epilogue": tw.Epilogue(swiglu, pairs=True)}, "no pairs"),
        ({"b": (W1, W3), "epilogue": tw.Epilogue(lambda acc: acc)}, "pairs=True"),
        ({"b": (W1, W3), "epilogue": swiglu, "c": WANTED, "beta": 1}, "no C"),
        ({"b": (W1, W3), "epilogue": swiglu, "out": normal(6, 14)}, "has shape"),
    ],
)
def test_what_can_not_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        tw.matmul(A, **given)
    with pytest.raises((TypeError, ValueError), match=words):
        tw.explain(A, **given)


def test_a_result_may_not_overlap_either_matrix() -> None:
    memory = normal(12, 7)
    for out, w1, w3 in ((memory[4:10], memory[:5], W3), (memory[4:10], W1, memory[:5])):
        with pytest.raises(ValueError, match=r"out overlaps b\[[01]\]"):
            tw.matmul(A, (w1, w3), epilogue=swiglu, out=out)


def test_what_is_explained() -> None:
    a, w = normal(512, 64, dtype=np.float16), normal(256, 64, dtype=np.float16)
    more: dict[str, Any] = {"transpose_b": True, "epilogue": swiglu, "gpu": "h200"}
    words = " ".join(str(tw.explain(a, w, pairs="halves", **more)).split())
    assert "pairs of columns" in words
    assert "halves of one array" in words
    assert [x.kernel.name for x in tw.explain(a, (w, w), **more).steps] == ["hopper"]
    older = tw.explain(a, (w, w), **{**more, "gpu": "a100"})
    assert [x.kernel.name for x in older.steps] == ["gemm_mma", "gemm_mma", "pair_sums"]
    words = " ".join(str(tw.explain(a, w, pairs="interleaved", **more)).split())
    assert "columns of one array in turn" in words


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def test_a_record_is_of_one_way_to_lie(torch: Any) -> None:
    """What a repeated call is known by."""
    tw.matmul(torch.ones(2, 2), torch.ones(2, 2))  # makes the library known
    x, y = torch.ones(2, 2), torch.ones(2, 2)

    def key(b: Any, pairs: str | None) -> Any:
        asked = fusion.asked(swiglu, {}, b, pairs)
        return repeat.find(x, b, None, None, 1, 0, asked=asked)[0]

    keys = [
        key((x, y), None), key((x, y.T), None), key((y.T, x), None), key(x, "halves"),
        key(x, "interleaved"),
    ]  # fmt: skip
    assert None not in keys
    assert len(set(keys)) == 5
    assert key((y, x), None) == keys[0]
    assert key((x, np.ones((2, 2))), None) is None


@pytest.mark.parametrize("how", ["apart", "halves", "interleaved"])
def test_on_a_gpu(device: Device, torch: Any, how: str) -> None:
    """Again and again, by the shorter way, with the weights elsewhere each time."""
    if device.name != "gpu":
        pytest.skip("needs a GPU: pytest --device gpu")
    shapes = (
        (1, 64, 64), (5, 2048, 1024), (48, 1000, 512), (300, 301, 299), (512, 1024, 4096),
        (4096, 512, 256), (8192, 7168, 1024),
    )  # fmt: skip
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        for (m, n, k), transposed in product(shapes, (False, True)):
            x = torch.randn(m, k, device="cuda").to(dtype)
            residual = torch.randn(n, m, device="cuda").T
            for _ in range(3):
                w1, w3 = (torch.randn(k, n, device="cuda").to(dtype) / 8 for _ in range(2))
                b: Any = w1, w3
                if how == "halves":
                    b = torch.cat(b, 1)
                elif how == "interleaved":
                    b = torch.stack(b, 2).flatten(1)
                if transposed:
                    b = tuple(w.T.contiguous() for w in b) if how == "apart" else b.T.contiguous()
                y, gate = tw.matmul(
                    x, b, transpose_b=transposed, pairs=None if how == "apart" else how,
                    epilogue=lambda gate, up, residual: (swiglu(gate, up) + residual, gate),
                    residual=residual,
                )  # fmt: skip
                sums, up = x.double() @ w1.double(), x.double() @ w3.double()
                wanted = torch.nn.functional.silu(sums) * up + residual.double()
                limit = 0.02 if dtype.itemsize == 2 else 1e-3 if dtype.itemsize == 4 else 1e-9
                size = limit * (1 + sums.abs()) * (1 + up.abs())
                assert ((y.double() - wanted).abs() <= size).all(), (m, n, k, dtype)
                assert ((gate.double() - sums).abs() <= limit * (1 + sums.abs())).all()


def test_from_the_host_by_a_gpu(device: Device) -> None:
    if device.name != "gpu":
        pytest.skip("needs a GPU: pytest --device gpu")
    a, w1, w3 = normal(700, 300), normal(300, 500), normal(300, 500)
    wanted = swiglu(a @ w1, a @ w3)
    size = 1e-3 * (1 + np.abs(a @ w1)) * (1 + np.abs(a @ w3))
    both = np.concatenate([w1, w3], 1)
    for b, pairs in (((w1, w3), None), (both, "halves")):
        found = tw.matmul(a, b, pairs=pairs, epilogue=swiglu)
        assert (np.abs(found - wanted) <= size).all()
