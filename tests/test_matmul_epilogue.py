"""``matmul(..., epilogue=...)``: from arrays to arrays, on the host, the emulator and a GPU."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.arrays import repeat
from tilewise.arrays.fusion import TAKEN
from tilewise.devices import Device

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


A, B = normal(6, 5), normal(5, 7)
BIAS, RESIDUAL = normal(7), normal(6, 7, dtype=np.float16)
PLACES = ["auto", "emulator"]


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_a_bias_an_activation_and_a_residual(place: str) -> None:
    found = tw.matmul(
        A, B, epilogue=lambda acc, bias, residual: tw.gelu(acc + bias) + residual, bias=BIAS,
        residual=RESIDUAL, device=place,
    )  # fmt: skip
    assert found.dtype == np.float32
    close(found, tw.gelu(A @ B + BIAS) + RESIDUAL)


@pytest.mark.parametrize("place", PLACES)
def test_several_results(place: str) -> None:
    def function(acc: Any, bias: Any) -> Any:
        before = acc + bias
        return tw.silu(before), before

    y, before = tw.matmul(A, B, epilogue=function, bias=BIAS, device=place)
    close(before, A @ B + BIAS)
    close(y, tw.silu(A @ B + BIAS))
    outs = np.empty((6, 7), np.float32), np.empty((7, 6), np.float32).T
    found = tw.matmul(A, B, epilogue=function, bias=BIAS, device=place, out=outs)
    assert found[0] is outs[0]
    assert found[1] is outs[1]
    close(outs[0], y)
    close(outs[1], before)
    (alone,) = tw.matmul(A, B, epilogue=lambda acc: (acc,), device=place)
    close(alone, A @ B)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "operand",
    [
        2.5, np.float64(2), 3, -np.inf, np.nan, np.float16(2),
        normal(7), normal(6, 1), normal(1, 1), normal(3, 6, 7),
        normal(3, 1, 7), np.float32(1) + np.zeros(()), normal(7, 6).T, normal(6, 14)[:, ::-2],
        normal(3, 1, 1, dtype=np.float64), normal(7, dtype=np.float16),
    ],
    ids=lambda x: f"{np.shape(x)}",
)  # fmt: skip
def test_operands_broadcast(place: str, operand: Any) -> None:
    a = normal(3, 6, 5)
    found = tw.matmul(a, B, epilogue=lambda acc, x: acc * x, x=operand, device=place)
    close(found, (a @ B) * operand)


@pytest.mark.parametrize("place", PLACES)
def test_a_zero_has_a_sign(place: str) -> None:
    """After a call with the other zero, too: the two are equal, and their quotients are not."""
    one = np.ones((1, 1), np.float32)
    for zero, wanted in ((0.0, np.inf), (-0.0, -np.inf), (-1e-60, -np.inf), (0, np.inf)):
        found = tw.matmul(one, one, epilogue=lambda acc, x: acc / x, x=zero, device=place)
        assert found.item() == wanted


@pytest.mark.parametrize("place", PLACES)
def test_alpha_beta_and_c_come_before(place: str) -> None:
    c = normal(6, 7)
    found = tw.matmul(
        A, B, c, alpha=2, beta=0.5, epilogue=lambda acc: tw.relu(acc), device=place
    )  # fmt: skip
    close(found, np.maximum(2 * A @ B + 0.5 * c, 0))


@pytest.mark.parametrize("place", PLACES)
def test_vectors_give_vectors_and_numbers(place: str) -> None:
    x = normal(5)
    close(tw.matmul(x, B, epilogue=lambda acc, y: acc + y, y=BIAS, device=place), x @ B + BIAS)
    close(
        tw.matmul(A, x, epilogue=lambda acc, y: acc + y, y=A[:, 0], device=place), A @ x + A[:, 0]
    )
    found = tw.matmul(x, x, epilogue=lambda acc: (acc, -acc), device=place)
    assert [np.ndim(value) for value in found] == [0, 0]
    close(found[1], -(x @ x))


@pytest.mark.parametrize("place", PLACES)
def test_a_result_may_be_an_operand(place: str) -> None:
    x = normal(6, 7)
    wanted = A @ B + x
    found = tw.matmul(A, B, out=x, epilogue=lambda acc, x: acc + x, x=x, device=place)
    assert found is x
    close(x, wanted)


@pytest.mark.parametrize("place", PLACES)
def test_sums_are_rounded_once(place: str) -> None:
    """A product beyond float16's range comes back into it."""
    a = np.full((2, 64), 100, np.float16)
    found = tw.matmul(a, a, transpose_b=True, epilogue=lambda acc: acc / 1000, device=place)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, np.full((2, 2), 640, np.float16))
    wide = tw.matmul(
        a, a, transpose_b=True, epilogue=lambda acc: acc + 0.5, out_dtype="float32", device=place
    )
    np.testing.assert_array_equal(wide, np.full((2, 2), 640000.5, np.float32))


@pytest.mark.parametrize("place", PLACES)
def test_nothing_to_sum(place: str) -> None:
    a, b = np.empty((2, 0), np.float32), np.empty((0, 3), np.float32)
    found = tw.matmul(a, b, epilogue=lambda acc, x: acc + x, x=2, device=place)
    np.testing.assert_array_equal(found, np.full((2, 3), 2, np.float32))
    empty = tw.matmul(A[:0], B, epilogue=lambda acc: (acc, acc), device=place)
    assert [x.shape for x in empty] == [(0, 7), (0, 7)]


def test_a_function_that_was_traced_once() -> None:
    biased = tw.Epilogue(lambda acc, bias: tw.relu(acc + bias))
    close(tw.matmul(A, B, epilogue=biased, bias=BIAS), tw.relu(A @ B + BIAS))


def give(**changes: Any) -> dict[str, Any]:
    return {"epilogue": lambda acc, x: acc + x, "x": BIAS, **changes}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (give(x=normal(6)), ValueError, r"x has shape \(6,\), .* the result's \(6, 7\)"),
        (give(x=normal(2, 6, 7)), ValueError, r"does not broadcast"),
        (give(x=np.ones(7, np.int32)), TypeError, "x has dtype int32; float16"),
        (give(x="text"), TypeError, "x is a str; an epilogue's operands"),
        (give(x=True), TypeError, "x is True; it must be a number"),
        (give(x=1e39), ValueError, r"x is 1e\+39; it must be finite as float32"),
        (give(out=(None,)), TypeError, "out has None among its arrays"),
        (give(y=1), tw.TraceError, "takes x, and not 'y'"),
        ({"epilogue": lambda acc, x: acc}, tw.TraceError, "takes 'x'; give x="),
        (
            {"epilogue": lambda acc, c: acc + c, "c": A}, tw.TraceError,
            "takes 'c', which is an argument of the product itself; call the operand otherwise",
        ),
        ({"x": 1}, TypeError, r"matmul\(\) got an unexpected keyword argument 'x'"),
        ({"epilogue": "relu"}, TypeError, "epilogue is 'relu'; it takes a function"),
        (give(out=(A, A)), ValueError, "out has 2 arrays; the epilogue has 1"),
        ({"out": (A, A)}, ValueError, "out has 2 arrays; without an epilogue there is 1"),
        ({"out": ()}, ValueError, "out has 0 arrays"),
        (
            {"epilogue": lambda acc: (acc, acc), "out": A}, ValueError,
            "out has 1 array; the epilogue has 2",
        ),
        (give(x=np.ma.masked_array(BIAS)), TypeError, "x is a masked array"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(given: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        tw.matmul(A, B, **given)


def test_names_that_no_operand_can_have() -> None:
    own = inspect.signature(tw.matmul).parameters.values()
    assert {x.name for x in own if x.kind is not x.VAR_KEYWORD} == TAKEN


def test_results_that_overlap() -> None:
    x = np.empty((6, 7), np.float32)
    function = tw.Epilogue(lambda acc: (acc, -acc))
    with pytest.raises(ValueError, match="out overlaps another result"):
        tw.matmul(A, B, out=(x, x), epilogue=function)
    with pytest.raises(ValueError, match="out overlaps x"):
        tw.matmul(A, B, out=x, epilogue=lambda acc, x: acc + x, x=x[0])


def test_more_operands_than_kernels_take() -> None:
    names = [f"x{i}" for i in range(9)]
    function = eval(f"lambda acc, {', '.join(names)}: acc + {' + '.join(names)}")
    with pytest.raises(ValueError, match=r"9 arrays, .* it may have 8 of either"):
        tw.matmul(A, B, epilogue=function, **dict.fromkeys(names, BIAS))


def test_it_is_explained(device: Device) -> None:
    given = {"epilogue": lambda acc, bias: tw.gelu(acc + bias), "bias": BIAS}
    for place in PLACES:
        said = str(tw.explain(A, B, device=place, **given))
        if device.name == "gpu" and place != "emulator":  # arrays on the host
            assert "by the host, of the sums in float32: gelu(acc + bias)" in " ".join(said.split())
        else:
            assert re.search(r"epilogue +gelu\(acc \+ bias\)", said), said
    plain = tw.explain(A, B, device="emulator", **given).to_dict()
    assert plain["epilogue"] == "gelu(acc + bias)"
    assert "epilogue" not in tw.explain(A, B).to_dict()


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_tensors(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    a, b, bias = (torch.randn(*shape).to(kind) for shape in ((6, 5), (5, 7), (7,)))

    def function(acc: Any, bias: Any, x: Any) -> Any:
        return tw.where(acc > 0, tw.gelu(acc + bias), tw.erf(acc) * x), acc

    y, acc = tw.matmul(a, b, epilogue=function, bias=bias, x=0.5)
    sums = a.double() @ b.double()
    wanted = torch.where(
        sums > 0, torch.nn.functional.gelu(sums + bias.double()), torch.erf(sums) * 0.5
    )
    assert y.dtype == acc.dtype == kind
    tolerance = 0.02 if dtype == "bfloat16" else 0.003 if dtype == "float16" else 1e-5
    torch.testing.assert_close(y.double(), wanted, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(acc.double(), sums, rtol=tolerance, atol=tolerance)
    with pytest.raises(TypeError, match="a is torch's and bias is numpy's"):
        tw.matmul(a, b, epilogue=function, bias=np.ones(7), x=1)


def test_a_record_is_of_one_function(torch: Any) -> None:
    """What a repeated call is known by."""
    from tilewise.arrays.fusion import asked

    tw.matmul(torch.ones(2, 2), torch.ones(2, 2))  # makes the library known

    def key(function: Any, **operands: Any) -> Any:
        x = torch.ones(2, 2)
        return repeat.find(x, x, None, None, 1, 0, asked=asked(function, operands))[0]

    one = key(lambda acc, x: acc + x, x=torch.ones(2))
    assert one is not None
    assert one == key(lambda total, x: total + x, x=torch.zeros(2))
    others = [
        key(lambda acc, x: acc - x, x=torch.ones(2)), key(lambda acc, x: acc + x, x=1.0),
        key(lambda acc, x: acc + x, x=2.0), key(lambda acc, x: acc + x, x=torch.ones(2, 2)),
        key(lambda acc, x: acc + x, x=torch.ones(2).double()),
    ]  # fmt: skip
    assert len({one, *others}) == 6
    assert key(lambda acc, x: acc + x, x=np.ones(2)) is None
    assert key(lambda acc, x: acc + x, x=True) is None


def test_on_a_gpu(device: Device, torch: Any) -> None:
    """Again and again, by the shorter way; with strides; several results; in place."""
    if device.name != "gpu":
        pytest.skip("needs a GPU: pytest --device gpu")
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        for m, n, k in ((1, 64, 64), (300, 301, 299), (512, 1024, 4096), (4096, 256, 512)):
            a, b = (torch.randn(*shape, device="cuda").to(dtype) for shape in ((m, k), (k, n)))
            bias = torch.randn(n, device="cuda").to(dtype)
            residual = torch.randn(n, m, device="cuda").T
            for _ in range(3):
                y, before = tw.matmul(
                    a, b, bias=bias, residual=residual, scale=0.5,
                    epilogue=lambda acc, bias, residual, scale: (
                        tw.gelu(acc + bias) * scale + residual, acc + bias,
                    ),
                )  # fmt: skip
                sums = a.double() @ b.double() + bias.double()
                wanted = torch.nn.functional.gelu(sums) * 0.5 + residual.double()
                limit = 0.02 if dtype.itemsize == 2 else 1e-3 if dtype.itemsize == 4 else 1e-9
                size = limit * (1 + sums.abs())
                assert ((y.double() - wanted).abs() <= size).all()
                assert ((before.double() - sums).abs() <= size).all()
            out = residual.to(dtype).clone(memory_format=torch.contiguous_format)
            tw.matmul(a, b, out=out, epilogue=lambda acc, x: acc + x, x=out)
            wanted = a.double() @ b.double() + residual.to(dtype).double()
            assert ((out.double() - wanted).abs() <= limit * (1 + wanted.abs())).all()


def test_from_the_host_by_a_gpu(device: Device) -> None:
    if device.name != "gpu":
        pytest.skip("needs a GPU: pytest --device gpu")
    a, b, bias = normal(700, 300), normal(300, 500), normal(500)
    y, before = tw.matmul(
        a, b, epilogue=lambda acc, bias: (tw.gelu(acc + bias), acc + bias), bias=bias
    )
    np.testing.assert_allclose(before, a @ b + bias, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(y, tw.gelu(a @ b + bias), rtol=1e-3, atol=1e-3)
