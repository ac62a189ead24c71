"""Plans of products from the host's memory: what they copy, and what they take."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from tilewise.gemm.blocking import Span
from tilewise.gemm.chip import H200
from tilewise.host import resident
from tilewise.host.choose import GROWING_A, LINK, choose
from tilewise.host.divided import TooLittleError
from tilewise.host.execute import Matrices
from tilewise.host.launcher import Operation
from tilewise.host.matrices import HostMatrix, MatrixLayout, parts_of, pitch_of
from tilewise.host.plan import Compute, CopyIn, CopyOut, HostPlan, HostProblem, Region
from tilewise.host.product import SecondsOf, problem_of
from tilewise.host.strips import Strips
from tilewise.host.timeline import HOST, KERNEL, seconds_of


def problem(m: int, n: int, k: int, item: int = 4, batch: int = 1, **given: Any) -> HostProblem:
    layout = MatrixLayout(True, item)
    return HostProblem(m, n, k, batch, layout, layout, layout, **given)


def seconds(p: HostProblem) -> SecondsOf:
    dtype = {2: "bfloat16", 4: "float32"}[p.a.item]
    return SecondsOf(p, Operation(dtype, dtype, 1.0, 0.0), H200)


def copied(p: HostProblem, plan: HostPlan) -> Counter[str]:
    """Bytes by matrix, D's being those that come back."""
    found: Counter[str] = Counter()
    for step in plan.steps():
        if isinstance(step, Compute):
            continue
        elements = step.batch.size * step.rows.size * step.columns.size
        name = step.matrix if isinstance(step, CopyIn) else "D"
        found[name] += elements * {"A": p.a, "B": p.b, "C": p.d, "D": p.d}[name].item
    return found


@examples(120, quick=40)
@given(
    st.sampled_from([1, 1, 1, 3, 40]), *(st.integers(1, 3000) for _ in "mnk"),
    st.sampled_from([2, 4]), st.booleans(), st.floats(0.02, 3),
)  # fmt: skip
def test_what_a_plan_says_is_what_its_steps_do(
    batch: int, m: int, n: int, k: int, item: int, reads_c: bool, share: float
) -> None:
    p = problem(m, n, k, item, batch, reads_c=reads_c)
    room = int(share * (p.bytes_in + p.bytes_out)) + 200_000
    plan = choose(p, room, seconds(p))
    assert plan.memory <= room
    found = copied(p, plan)
    assert found["A"] + found["B"] + found["C"] == plan.bytes_in >= p.bytes_in
    assert found["D"] == plan.bytes_out == p.bytes_out
    assert found["C"] == (p.bytes_out if reads_c else 0)
    work = sum(x.batch * x.m * x.n * x.k for x in plan.steps() if isinstance(x, Compute))
    assert work == batch * m * n * k
    for step in plan.steps():
        for region in (x for x in step if isinstance(x, Region)):
            assert 0 <= region.offset < plan.memory


@pytest.mark.parametrize("shared", ["", "same", "transposed"])
def test_what_fits_travels_once(shared: str) -> None:
    p = problem(5000, 5000, 5000, shared=shared)
    plan = choose(p, 10**9, seconds(p))
    each = 4 * 5000**2
    assert copied(p, plan) == Counter(A=each, D=each) + Counter({} if shared else {"B": each})
    assert plan.bytes_in == p.bytes_in


def test_the_order_from_pinned_memory() -> None:
    """What takes the longest decides; the bits are those of whole products of all of k."""
    for item, of_a, of_b in ((4, 6, 4), (2, 16, 1)):
        p = problem(8192, 8192, 8192, item, is_pinned=True)
        steps = list(choose(p, 70 * 10**9, seconds(p)).steps())
        found = Counter(step.matrix for step in steps if isinstance(step, CopyIn))
        assert found == {"A": of_a, "B": of_b}
        assert all(x.k == p.k for x in steps if isinstance(x, Compute))
        last = [step for step in steps if isinstance(step, CopyOut)][-1]
        assert last.rows.size * last.columns.size * 8 <= p.m * p.n  # nothing overlaps it
    wide = problem(8192, 8192, 8192, 2, is_pinned=True)
    wide = replace(wide, a=MatrixLayout(False, 2))  # strips of A would have short lines
    steps = list(choose(wide, 70 * 10**9, seconds(wide)).steps())
    assert min(x.rows.size for x in steps if isinstance(x, CopyIn) and x.matrix == "A") >= 2048
    q = problem(8192, 8192, 8192, 4, is_pinned=True, shared="transposed")
    steps = list(choose(q, 70 * 10**9, seconds(q)).steps())
    assert {step.matrix for step in steps if isinstance(step, CopyIn)} == {"A"}


def test_the_order_from_other_memory() -> None:
    """Strips are as wide as they are high, so that few copies allow much of the product."""
    for m, n, of_a, of_b in (
        (8192, 8192, 4, 4), (16384, 4096, 8, 2), (65536, 4096, 16, 1), (2048, 2048, 2, 2),
    ):  # fmt: skip
        p = problem(m, n, 8192)
        steps = list(choose(p, 70 * 10**9, seconds(p)).steps())
        found = Counter(step.matrix for step in steps if isinstance(step, CopyIn))
        assert found == {"A": of_a, "B": of_b}


def test_the_timeline() -> None:
    """Each copy follows the one before, a kernel its strips, and a copy back its kernel."""
    p = problem(2048, 1024, 512)
    rate, computing = 1e9, 4e-3
    of_a, of_b, of_d = (4 * x / rate for x in (2048 * 512, 512 * 1024, 2048 * 1024))
    # A's first half, B, the first product; A's second half, the second one. Then D's second half.
    half = computing / 2 + KERNEL
    first = HOST + of_a / 2 + of_b
    second = first + of_a / 2
    back = max(second + half, first + half + of_d / 2) + of_d / 2
    assert seconds_of(resident.plan(p, 2, 1), p, computing, rate) == pytest.approx(back)
    slow = seconds_of(resident.plan(p, 2, 1), p, 1.0, rate)  # now the kernels are the longest
    assert slow == pytest.approx(first + 1.0 + 2 * KERNEL + of_d / 2)
    empty = problem(64, 64, 0)
    assert 0 < seconds_of(resident.plan(empty, 1, 1), empty, 0.0, rate) < 1e-3


def test_a_product_from_pinned_memory_is_cut_in_the_best_of_several_ways() -> None:
    for m, n, k, item in ((8192, 8192, 8192, 4), (8192, 8192, 8192, 2), (20_000, 3000, 4000, 4)):
        p = problem(m, n, k, item, is_pinned=True)
        computing = seconds(p)(m, n, k)
        plan = choose(p, 70 * 10**9, seconds(p))
        taken = seconds_of(plan, p, computing, LINK)
        for of_a, of_b in ((1, 1), (2, 3), (4, 4), (5, 4), (6, 5), (10, 2), (16, 1), (1, 8)):
            assert taken <= 1.01 * seconds_of(resident.plan(p, of_a, of_b), p, computing, LINK)


def test_shares() -> None:
    growing = GROWING_A
    for size, shares in ((8192, growing), (100, (4, 2)), (130, (1, 1, 1)), (1, (4, 3, 1))):
        found = resident.cut_by(size, shares, 128)
        assert found[0].start == 0
        assert found[-1].stop == size
        assert all(x.stop == y.start for x, y in pairwise(found))
        assert all(x.size % 128 == 0 for x in found[:-1])
        assert min(x.size for x in found) > 0
    assert [x.size // 512 for x in resident.cut_by(8192, growing, 128)] == [*growing]


def test_strips_that_stay_are_not_copied_again() -> None:
    p = problem(8000, 8000, 100)
    for held in (2, 5, 8):
        for holds_b in (False, True):
            strips = Strips(p, 1000, 1000, 10, held, holds_b)
            found = copied(p, strips.plan())
            assert (found["A"] + found["B"]) / (4 * 1000 * 100) <= strips.copies
            stays, passes = ("B", "A") if holds_b else ("A", "B")
            assert found[stays] == 4 * 8000 * 100
            assert found[passes] <= strips.passes * 4 * 8000 * 100
            assert sorted(set(strips.order())) == sorted(strips.order())
            assert len(list(strips.order())) == 64


def test_a_large_product_is_bound_by_its_kernels() -> None:
    """30 GB each on 20 GB: the copies take no longer than the products."""
    for size, item in ((86_608, 4), (122_480, 2)):
        p = problem(size, size, size, item)
        plan = choose(p, 20 * 10**9, seconds(p))
        assert all(x.is_first for x in plan.steps() if isinstance(x, Compute))
        assert plan.bytes_in < 4.1 * size**2 * item
        assert plan.bytes_in / 20e9 < seconds(p)(size, size, size) * 1.1


def test_too_little_and_nothing_to_multiply() -> None:
    p = problem(300, 300, 300)
    with pytest.raises(TooLittleError) as raised:
        choose(p, 100, seconds(p))
    assert choose(p, raised.value.least, seconds(p)).memory <= raised.value.least
    empty = problem(300, 300, 0)
    assert choose(empty, 100_000, seconds(p)).memory <= 100_000


def test_cuts() -> None:
    for size, parts, grain in ((8192, 4, 128), (17, 1, 16), (100, 3, 8), (5, 4, 8)):
        found = resident.cut(size, parts, grain)
        assert len(found) <= parts
        assert found[0].start == 0
        assert found[-1].stop == size
        assert all(x.stop == y.start for x, y in pairwise(found))
        assert all(x.size % grain == 0 for x in found[:-1])


@examples(100, quick=40)
@given(
    *(st.integers(1, 30) for _ in "mlw"), st.sampled_from([2, 4, 8]), st.integers(16, 3000),
    st.booleans(),
)  # fmt: skip
def test_parts_of_a_piece(
    matrices: int, lines: int, width: int, item: int, most: int, is_packed: bool
) -> None:
    """Each element is in one part, each part fits, and lies where it should on the GPU."""
    elements = np.arange(matrices * lines * width).reshape(matrices, lines, width)
    piece = elements.astype(f"u{item}")
    pitch = pitch_of(width * item) + (0 if is_packed else 32)
    stride = lines * pitch
    on_gpu = np.zeros(matrices * stride, np.uint8)
    for part in parts_of(piece, pitch, stride, most):
        count, down, across = part.host.shape
        assert count * down * pitch_of(across * item) <= max(most, 16)
        assert count == 1 or (down, across) == (lines, width)
        for i, j in np.ndindex(count, down):
            at = part.ahead + (i * lines + j) * pitch
            on_gpu[at : at + across * item] = np.ascontiguousarray(part.host[i, j]).view(np.uint8)
    found = np.ndarray(piece.shape, piece.dtype, on_gpu.data, 0, (stride, pitch, item))
    assert np.array_equal(found, piece)


def test_one_matrix_given_twice_is_known() -> None:
    x = np.zeros((1, 6, 6), np.float32)
    d = HostMatrix(np.zeros((1, 6, 6), np.float32))

    def shared(a: Any, b: Any) -> str:
        return problem_of(Matrices(HostMatrix(a), HostMatrix(b), None, d), 1.0, 4).shared

    assert shared(x, x) == "same"
    assert shared(x, x.swapaxes(1, 2)) == "transposed"
    assert shared(x, x.copy()) == ""
    assert shared(x[:, ::-1], x) == ""
    # Where both strides are equal, A is its own transpose, and both are row-major.
    alike = np.lib.stride_tricks.as_strided(np.zeros(11, np.float32), (1, 6, 6), (0, 4, 4))
    assert shared(alike, alike.swapaxes(1, 2)) in ("", "same")


def test_with_alpha_0_nothing_travels() -> None:
    x = HostMatrix(np.zeros((1, 60, 60), np.float32))
    p = problem_of(Matrices(x, x, x, x), 0.0, 4)
    plan = choose(p, 10**6, lambda m, n, k, is_piece=False: 1e-6)
    assert plan.bytes_in == 4 * 60 * 60
    assert math.prod(x.size for x in next(iter(plan.steps()))[1:4] if isinstance(x, Span)) == 0
    assert any(isinstance(step, CopyOut) for step in plan.steps())
