"""What is compiled beside the first calls: which kernels, when, and that nothing waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewise import compiler
from tilewise.compiler import ahead, apart, nvrtc
from tilewise.compiler.underway import underway
from tilewise.epilogue import trace
from tilewise.explanation import of_shape
from tilewise.gemm import beside, steps
from tilewise.gemm.chip import H200
from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.plan import kernels_of, plan_on
from tilewise.gemm.product import ORDERS, Pairing, Product, paired
from tilewise.gemm.transpose import kernel as transposing
from tilewise.kernel import Kernel


@pytest.fixture(autouse=True)
def nothing_begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(beside, "_begun", set())
    monkeypatch.delenv(beside.VARIABLE, raising=False)
    return iter(())


def weight(m: int) -> Product:
    """Of x W^T with m rows of x."""
    return of_shape(m, 6144, 4096, "bfloat16", "NT")


def test_products_of_the_same_kind() -> None:
    asked = weight(96)
    found = list(beside.alike(asked))
    assert len(found) == 2 * beside.SAMPLES
    assert all((x.n, x.k) == (6144, 4096) for x in found[: beside.SAMPLES])
    for x in found:
        assert (x.dtype, x.a.column_stride, x.b.row_stride) == ("bfloat16", 1, 1)
        assert (x.n % 8, x.k % 8) == (0, 0)
    assert {x.m % 8 for x in found} == set(range(8))  # no matrix has rows of m elements
    odd = list(beside.alike(of_shape(97, 6143, 4095, "bfloat16", "TT")))
    assert all(size % 8 for x in odd if x.m > 8 for size in (x.m, x.n, x.k))


@pytest.mark.parametrize("order", ["", *ORDERS])
def test_of_pairs_the_matrices_lie_alike(order: str) -> None:
    asked = weight(96)
    b, pairing = paired(asked.b, order, 3072, "bfloat16") if order else (asked.b, Pairing(asked.b))
    epilogue = Epilogue(trace(lambda gate, up: gate * up, (), pairs=True), ())
    asked = asked._replace(n=3072, b=b, pairing=pairing, epilogue=epilogue)
    for x in beside.alike(asked):
        assert x.pairing is not None
        assert x.epilogue is epilogue
        assert x.order == order
        assert x.pairing.operand.row_stride == x.b.row_stride == 1
        if x.pairing.whole is not None:
            assert (x.b, x.pairing) == paired(x.pairing.whole, order, x.n, "bfloat16")
    kernels = {x.name for x in kernels_of(H200, list(beside.alike(asked))[:20])}
    assert kernels <= {"hopper", "hopper_sum"}


def test_most_of_what_follows_is_foreseen() -> None:
    foreseen = {repr(kernel) for kernel in kernels_of(H200, beside.alike(weight(96)))}
    sizes = range(16, 4096, 136)
    asked = [repr(step.kernel) for m in sizes for step in plan_on(weight(m), H200).steps]
    assert sum(kernel in foreseen for kernel in asked) >= 0.7 * len(asked)


def test_a_kernel_that_is_not_kept_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    kernel = transposing("float32", True).with_macros({"NOBODY_ELSE_COMPILES": 1})
    with pytest.raises(steps.NotKeptError, match="transpose"):
        steps._compiled(kernel, "sm_90a", compiles=False)
    compiled = kernel.compile("sm_90a", lines=False)
    assert steps._compiled(kernel, "sm_90a", compiles=False) is compiled


def test_each_kind_is_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Product] = []
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    monkeypatch.setattr(beside, "_compile", lambda product, *_: begun.append(product))
    assert beside.expect(weight(96), (), H200, "sm_90a")
    assert not beside.expect(weight(511), (), H200, "sm_90a")
    assert beside.expect(weight(7), (), H200, "sm_90a")  # a few rows
    assert beside.expect(of_shape(96, 96, 96, "float32", "NN"), (), H200, "sm_90a")
    off = weight(96)
    assert beside.expect(off._replace(a=off.a._replace(offset=2)), (), H200, "sm_90a")
    for _ in range(6000):  # a minute at most
        if len(begun) == 4:
            break
        time.sleep(0.01)
    assert len(begun) == 4


def test_not_where_it_is_turned_off_or_cores_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    assert not beside.expect(weight(96), (), H200, "sm_90a")
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    assert not beside.expect(weight(96), (), None, "sm_75")
    monkeypatch.setenv(beside.VARIABLE, "0")
    assert not beside.expect(weight(96), (), H200, "sm_90a")


def test_a_plans_other_kernels_are_begun_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    monkeypatch.setattr(beside, "_compile", lambda *_: None)
    monkeypatch.setattr(
        ahead, "compile_beside", lambda kernels, *_, is_urgent: begun.append((kernels, is_urgent))
    )
    kernels = [transposing(dtype, True) for dtype in ("float32", "float64")]
    beside.expect(weight(96), kernels, H200, "sm_90a")
    beside.expect(weight(512), kernels, H200, "sm_90a")  # of a kind that was begun
    assert begun == [(kernels[1:], True)] * 2


@pytest.fixture
def nothing_underway() -> None:
    """Wait for compilations that other tests of this process began; drop those in the queue."""
    end = time.monotonic() + 600
    while not beside.wait(0):
        assert time.monotonic() < end
        while (taken := underway.take()) is not None:
            underway.end(taken[0])
        time.sleep(0.01)


@pytest.mark.usefixtures("nothing_underway")
def test_kernels_come_into_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    kernels = [
        transposing(dtype, True).with_macros({"NOBODY_ELSE_COMPILES": 2})  # else it is in memory
        for dtype in ("float32", "float64")
    ]

    def kept(kernel: Kernel) -> bool:
        return compiler.kept_bytes(kernel.request("sm_90a", lines=False)) is not None

    monkeypatch.setattr(apart, "has_server", lambda: False)
    may_compile, run = threading.Event(), nvrtc.run

    def late(*args: Any) -> nvrtc.Output:
        may_compile.wait(60)
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", late)
    ahead.compile_beside(kernels, "sm_90a", 2)
    assert not any(map(kept, kernels))  # it does not wait
    assert not beside.wait(0.05)
    may_compile.set()
    assert beside.wait(60)
    assert all(map(kept, kernels))
