"""Plans of products from the host's memory, carried out in any order that events allow."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_channel import FakeChannel, FakeLauncher, helpers
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from tilewise.errors import LaunchError
from tilewise.host import at_once, choose, divided, execute, grouped, resident
from tilewise.host.choose import Seconds
from tilewise.host.copiers import Copiers
from tilewise.host.execute import Matrices
from tilewise.host.launcher import Operation
from tilewise.host.matrices import HostMatrix
from tilewise.host.plan import HostPlan, HostProblem
from tilewise.host.product import problem_of
from tilewise.host.strips import Strips

Array = np.ndarray[Any, Any]

COPIERS = Copiers(3)


def seconds(rate: float = 1e12) -> Seconds:
    return lambda m, n, k, is_piece=False: 1e-6 + 2 * m * n * k / rate


def drawn(draw: Any, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """An array with strides of any kind."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    kind = draw(st.sampled_from(["C", "F", "pitched", "backwards", "both", "alike"]))
    if kind == "alike" and len(shape) == 3 and shape[0] == 1:  # the same elements in each diagonal
        line = np.random.default_rng(seed).standard_normal(sum(shape)).astype(dtype)
        step = line.itemsize
        return np.lib.stride_tricks.as_strided(line, shape, (0, step, step))
    if kind == "F":
        return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if kind == "backwards":
        return x[..., ::-1, :].copy()[..., ::-1, :]
    if kind in ("pitched", "both"):
        wide = np.full((*shape[:-2], shape[-2] * 2, shape[-1] * 2 + 3), np.nan, dtype)
        view = wide[..., : shape[-2], : shape[-1]] if kind == "pitched" else wide[..., ::2, 1:-2:2]
        view[...] = x
        return view
    return x


def run(
    plan: HostPlan,
    p: HostProblem,
    matrices: Matrices,
    operation: Operation,
    seed: int,
    is_at_once: bool = False,
) -> FakeChannel:
    channel = FakeChannel(seed)
    launcher = FakeLauncher(channel, p, operation, plan)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("BUFFER", "LEAST_BUFFER"):  # of a few elements, so that there are many parts
            patch.setattr(execute, name, 64 << seed % 5)
        base = channel.allocate(plan.memory + execute.COMPUTE_STREAMS * launcher.workspace)
        if is_at_once:
            patch.setattr(at_once, "TINY", 500 * (seed % 3))
            patch.setattr(at_once, "TINY_RESULT", 500 * (seed // 3 % 3))
            patch.setattr(at_once, "MOST_BY_DRIVER", 1000 * (seed // 9 % 3))
            at_once.execute(launcher, matrices, channel, base, COPIERS)
        else:
            execute.execute(launcher, matrices, channel, base, helpers(COPIERS))
    assert channel.allocated == plan.memory + 2 * 256
    return channel


def reference(a: Array, b: Array, c: Array | None, operation: Operation) -> Array:
    wide = np.float64 if operation.dtype == "float64" else np.float32
    found: Array = np.multiply(operation.alpha, a.astype(wide) @ b.astype(wide), dtype=wide)
    if c is not None:
        found = found + np.multiply(operation.beta, c.astype(wide), dtype=wide)
    return found


@st.composite
def products(draw: Any) -> tuple[HostProblem, Matrices, Operation, Array, int]:
    dtype = draw(st.sampled_from(["float16", "float32", "float64"]))
    batch = draw(st.sampled_from([1, 1, 1, 2, 5]))
    m, n, k = (draw(st.integers(1, 40)) for _ in range(3))
    seed = draw(st.integers(0, 10**6))
    a = drawn(draw, (batch, m, k), dtype, seed)
    shared = draw(st.sampled_from(["", "", "same", "transposed", "one B", "one A"]))
    if shared == "same":
        a = drawn(draw, (batch, m, m), dtype, seed)
        b = a
    elif shared == "transposed":
        b = a.swapaxes(1, 2)
    else:
        b = drawn(draw, (batch, k, n), dtype, seed + 1)
        if shared == "one B":
            b = np.broadcast_to(b[:1], b.shape)
        elif shared == "one A":
            a = np.broadcast_to(a[:1], a.shape)
    m, n = a.shape[1], b.shape[2]
    out_dtype = draw(st.sampled_from([dtype, "float32"])) if dtype == "float16" else dtype
    out = drawn(draw, (batch, m, n), out_dtype, seed + 2)
    out = out if len(set(out.strides[1:])) == 2 else out.copy()
    reads_c = draw(st.booleans())
    alpha = draw(st.sampled_from([1.0, -0.5]))
    c = None
    if reads_c:
        c = out if draw(st.booleans()) else drawn(draw, (batch, m, n), out_dtype, seed + 3)
    operation = Operation(dtype, out_dtype, alpha, 2.0 if reads_c else 0.0)
    x = Matrices(
        HostMatrix(a, draw(st.booleans())), HostMatrix(b, draw(st.booleans())),
        None if c is None else HostMatrix(c, draw(st.booleans())),
        HostMatrix(out, draw(st.booleans())),
    )  # fmt: skip
    p = problem_of(x, alpha, 8 if dtype == "float64" else 4)
    with np.errstate(all="ignore"):
        expected = reference(a, b, c, operation)
    return p, x, operation, expected, seed


def plans(draw: Any, p: HostProblem) -> HostPlan:
    """A plan of any kind, not only the one that is fastest."""
    if p.batch > 1:
        return grouped.plan(p, draw(st.integers(1, p.batch)))
    kind = draw(st.sampled_from(["resident", "strips", "divided", "chosen"]))
    if kind == "resident":
        grain = draw(st.sampled_from([8, 16, 128]))
        return resident.plan(p, draw(st.integers(1, 5)), draw(st.integers(1, 5)), grain)
    if kind == "strips":
        height, width = draw(st.integers(1, 20)), draw(st.integers(1, 20))
        if p.shared == "transposed" and draw(st.booleans()):
            width = height
        slots = draw(st.integers(4, 9))
        held = draw(st.integers(1, slots - 2))
        return Strips(p, height, width, slots, held, draw(st.booleans())).plan()
    if kind == "divided":
        return divided.plan(p, divided.choose(p, draw(st.integers(4_000, 40_000))))
    return choose.choose(p, draw(st.integers(20_000, 10**6)), seconds())


def assert_matches(found: Array, expected: Array, operation: Operation, k: int) -> None:
    unit = np.finfo(operation.dtype).eps
    wide = np.finfo("float64" if operation.dtype == "float64" else "float32").eps
    tolerance = 40 * (unit if operation.out_dtype == operation.dtype else wide) + 40 * k * wide
    assert np.allclose(found, expected, rtol=tolerance, atol=tolerance * 10)


@examples(1000, quick=40)
@given(st.data())
def test_every_plan_gives_the_product(data: st.DataObject) -> None:
    p, x, operation, expected, seed = data.draw(products())
    plan = plans(data.draw, p)
    run(plan, p, x, operation, seed)
    assert_matches(x.d.array, expected, operation, p.k)


@examples(300, quick=60)
@given(products(), st.booleans())
def test_a_plan_of_one_product_at_once(drawn: Any, is_divided: bool) -> None:
    p, x, operation, expected, seed = drawn
    if p.batch > 1:
        plan = grouped.plan(p, p.batch)
    elif is_divided:
        plan = divided.plan(p, divided.choose(p, 10**6))
    else:
        plan = resident.plan(p, 1, 1)
    unpinned = (None if each is None else replace(each, is_pinned=False) for each in x)
    x = Matrices(*unpinned)  # type: ignore[arg-type]
    assert at_once.is_for(plan, x)
    run(plan, p, x, operation, seed, is_at_once=True)
    assert_matches(x.d.array, expected, operation, p.k)


def test_what_is_not_computed_at_once() -> None:
    a = HostMatrix(np.ones((1, 8, 8)))
    pinned = HostMatrix(np.ones((1, 8, 8)), is_pinned=True)
    p = problem_of(Matrices(a, a, None, a), 1.0, 8)
    assert at_once.is_for(resident.plan(p, 1, 1), Matrices(a, a, None, a))
    assert not at_once.is_for(resident.plan(p, 1, 1), Matrices(a, a, None, pinned))
    large = replace(resident.plan(p, 1, 1), bytes_in=at_once.MOST)
    assert not at_once.is_for(large, Matrices(a, a, None, a))
    padded = replace(resident.plan(p, 1, 1), memory=at_once.MOST + 1)
    assert not at_once.is_for(padded, Matrices(a, a, None, a))
    batch = HostMatrix(np.ones((2, 8, 8)))
    p = problem_of(Matrices(batch, a, None, batch), 1.0, 8)
    assert not at_once.is_for(grouped.plan(p, 1), Matrices(batch, a, None, batch))


class FailingChannel(FakeChannel):
    """A channel that fails at one of the calls that wait for an event or copy to the GPU."""

    def __init__(self, seed: int, error: BaseException, call: str, at: int) -> None:
        super().__init__(seed)
        self._error, self._call, self._left = error, call, at

    def _fails_at(self, call: str) -> None:
        if call == self._call:
            self._left -= 1
            if not self._left:
                raise self._error

    def finish(self, event: Any) -> None:
        self._fails_at("finish")
        super().finish(event)

    def copy_in(self, *args: Any) -> None:
        self._fails_at("copy_in")
        super().copy_in(*args)


@pytest.mark.parametrize(
    ("error", "call", "at"),
    [
        (LaunchError("a kernel failed"), "finish", 1),
        (LaunchError("a kernel failed"), "finish", 9),
        (KeyboardInterrupt(), "copy_in", 1),
        (KeyboardInterrupt(), "copy_in", 8),
    ],
)
def test_errors_end_the_threads(error: BaseException, call: str, at: int) -> None:
    """A thread's error is raised by the product, and after any error no thread goes on."""
    rng = np.random.default_rng(1)
    x = [HostMatrix(rng.standard_normal((1, 64, 64))) for _ in range(3)]
    matrices = Matrices(x[0], x[1], None, x[2])
    p = problem_of(matrices, 1.0, 8)
    plan = resident.plan(p, 4, 4, 8)
    channel = FailingChannel(1, error, call, at)
    operation = Operation("float64", "float64", 1.0, 0.0)
    launcher = FakeLauncher(channel, p, operation, plan)
    base = channel.allocate(plan.memory + execute.COMPUTE_STREAMS * launcher.workspace)
    copiers = Copiers(2)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("BUFFER", "LEAST_BUFFER"):
            patch.setattr(execute, name, 2048)
        with pytest.raises(type(error)):
            execute.execute(launcher, matrices, channel, base, helpers(copiers))
    left = {each.name for each in threading.enumerate()}
    assert not left & {"tilewise loads", "tilewise stores"}
    copiers.copy(np.zeros(10), np.ones(10)).wait()  # the copying threads are free again
    copiers.close()
