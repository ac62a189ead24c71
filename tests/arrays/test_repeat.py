"""A call like one before it: the shorter way, with all that the longer one sees."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matmul_reference import assert_right, assert_tensors_right, normal

from tilewise.arrays import repeat
from tilewise.arrays.libraries import library_of
from tilewise.arrays.operands import span
from tilewise.errors import DeviceUnavailableError
from tilewise.matmul import matmul

FRONT_DOOR = sys.modules[matmul.__module__]


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="torch is not installed")
    # A process's first call with arrays of a library makes it known, and is not remembered yet.
    assert library_of(found.zeros(1)) is not None
    return found


def key(a: Any, b: Any, c: Any = None, out: Any = None, alpha: Any = 1, beta: Any = 0) -> Any:
    return found(a, b, c, out, alpha, beta, False, False, None, "auto")


def found(*call: Any) -> Any:
    return repeat.find(*call)[0]


def test_a_key_has_all_that_decides(torch: Any) -> None:
    x = torch.zeros(17, 16)
    a, b = x[:16], torch.zeros(16, 16)
    known = key(a, b)
    assert known is not None
    assert known == key(torch.ones(16, 16), b) == key(a, b, alpha=1.0)
    others = [
        key(a[:8], b),
        key(a.T, b),
        key(a, b.T),
        key(a.double(), b.double()),
        key(a, b, a),
        key(a, b, None, a),
        key(a, b, alpha=2),
        key(a, b, beta=1),
        key(x.flatten()[1:257].view(16, 16), b),  # 4 bytes from a multiple of 16
        key(torch._neg_view(a), b),
        found(a, b, None, None, 1, 0, True, False, None, "auto"),
        found(a, b, None, None, 1, 0, False, False, torch.float32, "auto"),
        found(a, b, None, None, 1, 0, False, False, None, "emulator"),
    ]
    assert None not in others
    assert len({known, *others}) == 1 + len(others)
    assert key(a, b.detach().requires_grad_()) == key(a, torch.nn.Parameter(b)) == known


def test_where_the_bytes_of_an_array_end(torch: Any) -> None:
    x = torch.zeros(5, 7, 9)
    library = library_of(x)
    assert library is not None
    arrays = (
        x, x[1:, ::2, ::3], x.permute(2, 1, 0), x[:, :, 4], x[0, 0, 0], x[:0], x[:, :0],
        x[2:3, :1, 4:], x.expand(3, 5, 7, 9), x[:1].expand(4, 7, 9),
    )  # fmt: skip
    for array in arrays:
        view = library.view(array)
        assert view is not None
        place = array.numpy()
        begin, end = np.lib.array_utils.byte_bounds(place)
        assert array.element_size() * span(view) == (end - begin if place.size else 0)


def test_what_has_no_key(torch: Any) -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    a = torch.zeros(4, 4)
    for arguments in (
        (a.numpy(), a.numpy()),
        (a, a.numpy()),
        (a, a, a.numpy()),
        (a, a, None, a.numpy()),
        (a, a, None, None, True),
        (a, a, None, None, 1, np.float32(0)),
        (a, a, None, None, torch.tensor(1.0)),
        (a.as_subclass(Own), a),
        (a.to_sparse(), a),
        ([1], [1]),
    ):
        assert key(*arguments) is None
    assert found(a, a, None, None, 1, 0, [], False, None, "auto") is None  # not hashable


def test_records_are_bounded(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "RECORDS", 2)
    monkeypatch.setattr(repeat, "_records", {})
    records: list[Any] = [object() for _ in range(3)]
    shapes = [torch.zeros(n, n) for n in range(3)]
    for x, record in zip(shapes, records, strict=True):
        repeat.remember(key(x, x), record)
    call = None, None, 1, 0, False, False, None, "auto"
    kept = [repeat.find(x, x, *call)[1] for x in shapes]
    assert kept == [None, None, records[2]]


@pytest.mark.parametrize("several", [{}, {"is_tuple": True}, {"workspace": True}])
def test_a_call_is_repeated_with_new_results(
    torch: Any, several: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a new result is not aligned, the call is planned anew."""
    library, launched = library_of(torch.zeros(1)), list[Any]()
    assert library is not None
    monkeypatch.setattr(library, "stream", lambda _: 0)
    context = SimpleNamespace(is_ready=True, ordinal=0)
    launch: Any = SimpleNamespace(enqueue=lambda stream, where: launched.append(where))
    gpu: Any = SimpleNamespace(context=context)
    x, w, result = torch.ones(4, 4), torch.ones(4, 4), torch.empty(4, 4)
    given: dict[str, Any] = {"is_tuple": False, **several}
    if "workspace" in given:
        given["workspace"] = result
    results = [result, result] if given["is_tuple"] else [result]

    def repeated() -> Any:
        record = repeat.record(
            library, gpu, (launch,), matrices=(x, w), operands=[x[0]], results=results, c=None,
            are_given=False, **given,
        )  # fmt: skip
        return record.run([x.data_ptr(), w.data_ptr(), 48])

    found = repeated()
    assert type(found) is (tuple if given["is_tuple"] else torch.Tensor)
    first, *others = found if given["is_tuple"] else (found,)
    assert first.shape == result.shape
    a, b, c, d, space, *rest = launched.pop()
    assert (a, b, c, d) == (x.data_ptr(), w.data_ptr(), 0, first.data_ptr())
    assert (space != 0) == ("workspace" in given)
    assert rest == [48, *[each.data_ptr() for each in others]]
    odd = torch.empty(40)[1:17].view(4, 4)
    monkeypatch.setattr(library, "maker", lambda _: lambda: odd)
    assert repeated() is None
    assert not launched


@contextmanager
def only_repeats() -> Iterator[None]:
    """Calls that must all have been seen before."""

    def refuse(*_: Any) -> None:
        raise AssertionError("this call was looked at closely")

    kept, FRONT_DOOR.check = FRONT_DOOR.check, refuse  # type: ignore[attr-defined]
    try:
        yield
    finally:
        FRONT_DOOR.check = kept  # type: ignore[attr-defined]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_new_arrays_old_shapes(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)

    def new(*shape: int) -> Any:
        return torch.randn(shape, device="cuda").to(kind)

    layouts: list[Callable[[], tuple[Any, Any]]] = [
        lambda: (new(64, 72), new(72, 80)),
        lambda: (new(72, 64).T, new(80, 72).T),
        lambda: (new(64, 80)[:, 3:75], new(72, 162)[:, ::2]),
        lambda: (new(1, 16, 24), new(2, 2, 24, 8)),
        lambda: (new(3, 16, 24)[:, ::2], new(24, 8)),
        lambda: (new(24), new(4, 24, 8)),
        lambda: (new(0, 24), new(24, 8)),
        lambda: (new(24, 0), new(0, 8)),
    ]
    for layout in layouts:
        a, b = layout()
        first = matmul(a, b)
        assert_tensors_right(first, a, b)
        with only_repeats():
            assert torch.equal(matmul(a, b), first)
            for _ in range(3):
                a, b = layout()
                result = matmul(a, b)
                assert (result.shape, result.dtype) == (first.shape, first.dtype)
                assert_tensors_right(result, a, b)


@pytest.mark.usefixtures("gpu")
def test_what_is_copied_first(torch: Any) -> None:
    """No single stride describes A's batch; B's rows interleave; D's batch is turned."""
    a, b = torch.randn(3, 1, 16, 24, device="cuda"), torch.randn(4, 24, 8, device="cuda")
    whole = torch.randn(24, 15, device="cuda")
    interleaved = whole.as_strided((24, 8), (15, 2))
    out = torch.empty(4, 3, 16, 8, device="cuda").transpose(0, 1)
    for _ in range(2):
        assert_tensors_right(matmul(a, b), a, b)
        assert_tensors_right(matmul(a, interleaved), a, interleaved)
        assert_tensors_right(matmul(a, b, out=out), a, b)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("dtype", "out_dtype"), [("float32", None), ("bfloat16", "float32")])
def test_scalars_c_and_out(torch: Any, dtype: str, out_dtype: str | None) -> None:
    def call(alpha: float, beta: float) -> None:
        a, b = (torch.randn(40, 40, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
        c = torch.randn(40, 40, device="cuda")
        old = c.clone()
        for out in (None, torch.full_like(c, torch.nan), c):
            result = matmul(a, b, c, alpha=alpha, beta=beta, out=out, out_dtype=out_dtype)
            assert out is None or result is out
            assert_tensors_right(result, a, b, alpha, beta, old)

    numbers = (2, -1.5), (1, 0), (0, 1)
    for alpha, beta in numbers:
        call(alpha, beta)
    with only_repeats():
        for alpha, beta in numbers:
            call(alpha, beta)


@pytest.mark.usefixtures("gpu")
def test_what_only_the_addresses_show(torch: Any) -> None:
    whole = torch.randn(80, 40, device="cuda")
    a, b, out = whole[:40], torch.randn(40, 40, device="cuda"), torch.empty(40, 40, device="cuda")
    for _ in range(2):
        matmul(a, b, out=out)
        matmul(a, b, out, beta=1, out=out)
    before = whole.clone()
    for bad in (whole[:40], whole[20:60], whole[39:79]):
        with pytest.raises(ValueError, match="out overlaps a"):
            matmul(a, b, out=bad)
        with pytest.raises(ValueError, match="out overlaps b"):
            matmul(b, a, out=bad)
    with pytest.raises(ValueError, match="out overlaps c"):
        matmul(b, b, whole[:40], beta=1, out=whole[20:60])
    assert torch.equal(whole, before)
    matmul(a, b, out=whole[40:])
    assert_tensors_right(whole[40:], a, b)
    # Beside an input, in the same rows: they interleave, and share nothing.
    wide = torch.randn(40, 80, device="cuda")
    for _ in range(2):
        matmul(wide[:, :40], b, out=wide[:, 40:])
        assert_tensors_right(wide[:, 40:], wide[:, :40], b)


@pytest.mark.usefixtures("gpu")
def test_the_offset_of_a_slice(torch: Any) -> None:
    x = torch.randn(64, 80, device="cuda").bfloat16()
    b = torch.randn(64, 64, device="cuda").bfloat16()
    for _ in range(2):
        for first in (*range(9), 16):
            assert_tensors_right(matmul(x[:, first : first + 64], b), x[:, first : first + 64], b)


@pytest.mark.usefixtures("gpu")
def test_the_offset_of_an_operand(torch: Any) -> None:
    """An epilogue's matrix is copied by TMA only where its rows are 16-byte aligned."""
    a, b = (torch.randn(256, 256, device="cuda").bfloat16() for _ in range(2))
    x = torch.randn(256, 272, device="cuda").bfloat16()
    plain = matmul(a, b, out_dtype="float32")
    for _ in range(2):
        for first in (*range(9), 16):
            residual = x[:, first : first + 256]
            got = matmul(a, b, epilogue=lambda acc, residual: acc + residual, residual=residual)
            assert torch.equal(got, (plain + residual).bfloat16())


@pytest.mark.usefixtures("gpu")
def test_refusals_after_a_call_that_was_right(torch: Any) -> None:
    a, b = torch.randn(16, 16, device="cuda"), torch.randn(16, 16, device="cuda")
    expected = matmul(a, b)
    with only_repeats():
        assert torch.equal(matmul(a, b), expected)
    for kind, words, options in (
        (TypeError, "alpha", {"alpha": True}),
        (ValueError, "no C", {"beta": 1}),
        (ValueError, "emulator takes arrays on the host", {"device": "emulator"}),
        (ValueError, "no device called", {"device": "cpu"}),
        (TypeError, "can't be", {"out_dtype": "float16"}),
        (ValueError, "one place", {"out": torch.empty(16, 16)}),
    ):
        with pytest.raises(kind, match=words):
            matmul(a, b, **options)
    assert matmul(a, b.detach().requires_grad_()).requires_grad
    with torch.no_grad():
        assert torch.equal(matmul(a, b.detach().requires_grad_()), expected)
    with pytest.raises(TypeError, match="sparse"):
        matmul(a.to_sparse(), b)
    assert torch.equal(matmul(torch._neg_view(a), b), -expected)
    with pytest.raises(TypeError, match="negated"):
        matmul(a, b, out=torch._neg_view(torch.empty_like(a)))
    odd: Any = np.float32(1)
    assert torch.equal(matmul(a, b, alpha=odd), expected)


@pytest.mark.usefixtures("gpu")
def test_streams_graphs_and_threads(torch: Any) -> None:
    a, b = torch.zeros(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    matmul(a, b)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), only_repeats():
        torch.cuda._sleep(200_000_000)
        a.fill_(1)
        result = matmul(a, b)
        assert not stream.query()  # nobody waited
    stream.synchronize()
    assert_tensors_right(result, a, b)
    graph = torch.cuda.CUDAGraph()
    with only_repeats(), torch.cuda.graph(graph):
        captured = matmul(a, b)
    a.normal_()
    graph.replay()
    assert_tensors_right(captured, a, b)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = torch.full((512, 512), float(number), device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            for _ in range(50):
                y = matmul(x, b)
            torch.cuda.current_stream().synchronize()
        if not torch.equal(y, number * ones):
            wrong.append(number)

    ones = matmul(torch.ones_like(b), b)
    threads = [threading.Thread(target=work, args=(2**i,)) for i in range(4)]
    with only_repeats():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.usefixtures("gpu")
def test_a_thread_that_did_nothing_else(torch: Any) -> None:
    """There, no context is current yet."""
    a, b = torch.randn(32, 32, device="cuda"), torch.randn(32, 32, device="cuda")
    out = torch.empty_like(a)
    matmul(a, b, out=out)
    out.fill_(torch.nan)
    torch.cuda.synchronize()
    with only_repeats():
        thread = threading.Thread(target=lambda: matmul(a, b, out=out))
        thread.start()
        thread.join()
    assert_tensors_right(out, a, b)


@pytest.mark.usefixtures("gpu")
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    assert library_of(cupy.zeros(1)) is not None
    for dtype in ("float16", "float32", "float64"):
        x = cupy.asarray(normal(60, 50)).astype(dtype)
        for view in (x, x[:, 1:], x[::2, ::3], x.T):
            matmul(view, view.T)
            stream = cupy.cuda.Stream(non_blocking=True)
            fresh = view + 1 if view.flags.c_contiguous else view
            cupy.cuda.runtime.deviceSynchronize()
            with only_repeats(), stream:
                result = matmul(fresh, fresh.T)
            stream.synchronize()
            assert isinstance(result, cupy.ndarray)
            host = cupy.asnumpy(fresh)
            assert_right(cupy.asnumpy(result), host, host.T, dtype)
    backwards = x[::-1]
    for _ in range(2):
        host = cupy.asnumpy(backwards)
        assert_right(cupy.asnumpy(matmul(backwards, backwards.T)), host, host.T, dtype)


@pytest.mark.usefixtures("gpu")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_is_told(torch: Any) -> None:
    a = torch.ones(3, 3, device="cuda")
    matmul(a, a)
    child = os.fork()
    if not child:
        try:
            matmul(a, a)
        except DeviceUnavailableError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
