"""Families of kernels: what the planner asks of one, a new one, and the kernels that they name."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from timeit import repeat
from typing import Any

import numpy as np
import pytest
from reference import is_thorough

from tilewise.devices.emulator import Emulator
from tilewise.explain import explain
from tilewise.explanation import explain_product, of_shape
from tilewise.gemm import kept, plan
from tilewise.gemm.chip import H200, MEASURED_MEMORY, MEMORY_SHARE, Chip, chip_by
from tilewise.gemm.families.hopper.family import Hopper
from tilewise.gemm.families.mma.family import Mma
from tilewise.gemm.families.thin.family import ThinHalf
from tilewise.gemm.family import Family, Offer
from tilewise.gemm.plan import best, offers, plan_on
from tilewise.gemm.product import A, B, D, Operand, Product
from tilewise.gemm.steps import Plan, Step, execute
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.matmul import matmul
from tilewise.places import Place
from tilewise.tune import Tuned

TUNE = sys.modules["tilewise.tune"]


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    plan_on.cache_clear()
    yield
    plan_on.cache_clear()


# A new family

NAIVE = """
extern "C" __global__ void naive(int m, int n, int k, const double* a, const double* b, double* d) {
    int i = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n) return;
    double sum = 0;
    for (int x = 0; x < k; ++x) sum += a[i * k + x] * b[x * n + j];
    d[i * n + j] = sum;
}
"""


class Naive:
    """A family of one kernel: row-major float64, a thread an element."""

    name = "naive"

    def objection(self, product: Product, chip: Chip | None) -> str:
        x = product
        plain = of_shape(x.m, x.n, x.k, "float64", "NN") if min(x.m, x.n, x.k) else None
        a, b, d = (each._replace(batch_stride=0) for each in (x.a, x.b, x.d))
        same = x._replace(a=a, b=b, d=d)
        return "" if same == plain else "it takes float64 in one piece"

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        return next(iter(self.offers(product, chip)), None)

    def offers(self, product: Product, chip: Chip | None) -> Iterable[Offer]:
        found = (self.offer(product, chip, {"threads": threads}) for threads in (64, 128))
        return [offer for offer in found if offer is not None]

    def offer(self, product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        if self.objection(product, chip) or choice.get("threads") not in (64, 128):
            return None
        make = partial(_naive, product, choice["threads"])
        seconds = 1e-9 * choice["threads"]
        return Offer(self.name, seconds, make, choice, f"naive, {choice['threads']} threads")

    def kernels(self, chip: Chip | None, dtype: str) -> Iterable[Kernel]:
        return [Kernel(NAIVE, "naive")] if dtype == "float64" else []


def _naive(x: Product, threads: int) -> Plan:
    args = (x.m, x.n, x.k, Place(A), Place(B), Place(D))
    launch = Launch((-(-x.n // threads), x.m, 1), (threads, 1, 1), args)
    return Plan((Step(Kernel(NAIVE, "naive"), launch),), 0, "the naive kernel", "")


@pytest.fixture
def naive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner with one family more, ahead of the general one, and nothing else."""
    families: list[Family] = [*plan.FAMILIES[:-1], Naive(), plan.FAMILIES[-1]]
    monkeypatch.setattr(plan, "FAMILIES", families)
    plan_on.cache_clear()


@pytest.mark.usefixtures("naive")
def test_a_new_family_answers_matmul() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 37)), rng.standard_normal((37, 70))
    np.testing.assert_allclose(matmul(a, b, device="emulator"), a @ b, rtol=1e-12, atol=1e-12)
    found = explain(a, b, device="emulator")
    assert found.chosen == "the naive kernel"
    assert [step.kernel.name for step in found.steps] == ["naive"]
    assert "it should be the fastest, 0.1 µs" in found.why
    # What it objects to is answered as before, and its objection is told.
    single = a.astype(np.float32), b.astype(np.float32)
    found = explain(*single, device="emulator")
    assert found.chosen.startswith("the general kernel")
    assert "it takes float64 in one piece" in found.why


@pytest.mark.usefixtures("naive")
def test_a_new_family_is_executed_as_planned_for_a_gpu() -> None:
    m, n, k = 3, 130, 8
    device, rng = Emulator(), np.random.default_rng(0)
    a, b, d = (rng.standard_normal(shape) for shape in ((m, k), (k, n), (m, n)))
    x, y, z = (device.array(host) for host in (a, b, d))
    found = plan_on(of_shape(m, n, k, "float64", "NN"), H200)
    execute(found, device, 0, (x.pointer, y.pointer, 0, z.pointer, 0))
    np.testing.assert_allclose(z.to_numpy(), a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("naive")
def test_a_new_family_is_explained_and_kept() -> None:
    asked = of_shape(64, 65, 66, "float64", "NN")
    found = explain_product(asked, H200)
    assert found.offer is not None
    assert (found.offer.family, found.offer.choice) == ("naive", {"threads": 64})
    assert "naive, 128 threads" in str(found)
    assert {"naive", "simt"} <= {offer.family for offer in found.alternatives}
    kept.keep(asked, H200, "naive", {"threads": 128}, {})
    plan_on.cache_clear()
    offer = plan.kept_offer(asked, H200)
    assert offer is not None
    assert offer.words == "naive, 128 threads"
    launch = plan_on(asked, H200).steps[0].launch
    assert launch.block == (128, 1, 1)
    assert "fastest of those that were measured" in plan_on(asked, H200).why


def offered(asked: Product, monkeypatch: pytest.MonkeyPatch) -> tuple[Tuned, list[Offer]]:
    """What :func:`tilewise.tune` would measure of a product on an H200."""
    seen: list[Offer] = []

    def measure(product: Product, gpu: Any, chip: Chip, choices: Any, *_: Any) -> Tuned:
        seen.extend(choices)
        return Tuned(product, chip)

    monkeypatch.setattr(TUNE, "chip_of", lambda gpu: H200)
    monkeypatch.setattr(TUNE, "compile_ahead", lambda *_, **__: [])
    monkeypatch.setattr(TUNE, "_measure", measure)
    gpu: Any = Emulator()
    return TUNE._tune(asked, gpu, 1.0, lambda _: None), seen


@pytest.mark.usefixtures("naive")
def test_a_new_family_is_offered_to_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = offered(of_shape(64, 65, 66, "float64", "NN"), monkeypatch)
    assert [offer.words for offer in found[:2]] == ["naive, 64 threads", "naive, 128 threads"]
    assert {"naive", "simt"} == {offer.family for offer in found}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_what_is_offered_to_tune(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = of_shape(512, 384, 1024, dtype, "NT")
    _, found = offered(asked, monkeypatch)
    every = offers(asked, H200)
    assert len(found) == min(TUNE.CANDIDATES, len(every)) >= 2
    chosen = best(asked, H200)
    assert (found[0].family, found[0].choice) == (chosen.family, chosen.choice)
    names = [(offer.family, str(offer.choice)) for offer in found]
    assert len(set(names)) == len(names)
    assert [offer.rank for offer in found] == sorted(offer.rank for offer in found)


def test_where_there_is_nothing_to_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "FAMILIES", plan.FAMILIES[-1:])
    tuned, found = offered(of_shape(64, 64, 64, "float32", "NN"), monkeypatch)
    assert found == []
    assert "nothing to tune: the general kernel, tiles of 64 x 64 is all there is" in tuned.note


def test_every_offer_is_found_again_by_its_choice() -> None:
    for asked in (
        of_shape(512, 384, 1024, "bfloat16", "NT"),
        of_shape(4, 4095, 515, "float16", "NN"),
    ):
        for family in plan.FAMILIES:
            first = family.best(asked, H200)
            every = list(family.offers(asked, H200))
            assert (first is None) == (not every) == bool(family.objection(asked, H200))
            if first is not None:
                assert (first.choice, first.seconds) == (every[0].choice, every[0].seconds)
            for offer in every:
                again = family.offer(asked, H200, offer.choice)
                assert again is not None
                assert again.seconds == pytest.approx(offer.seconds, rel=1e-12)
                assert again.words == offer.words


# Every kernel


def drawn(rng: random.Random, dtype: str) -> Product:
    """Any product of these inputs: sizes, layouts, alignments, batches, C and D."""

    def size() -> int:
        most = rng.choice([3.0, 6.5, 9.0, 13.5])
        found = int(2 ** rng.uniform(0, most))
        return -(-found // 8) * 8 if rng.random() < 0.6 else found

    def operand(rows: int, columns: int, item: int, own: int, inner: int = 1) -> Operand:
        by_rows = rng.random() < 0.5
        length, lines = (columns, rows) if by_rows else (rows, columns)
        pitch = inner * length
        pitch = -(-pitch // 64) * 64 if rng.random() < 0.6 else pitch + rng.choice([0, 0, 1, 8])
        step = lines * pitch + rng.choice([0, 0, 0, 8, 1]) if own > 1 else 0
        offset = rng.choice([0, 0, 0, 0, item, 16 - item])
        return Operand(*((pitch, inner) if by_rows else (inner, pitch)), step, offset)

    m, n, k, batch = size(), size(), size(), rng.choice([1, 1, 1, 2, 7])
    out = rng.choice([dtype, dtype, "float32"])
    item = 4 if out == "float32" else 2
    a = operand(m, k, 2, rng.choice([1, batch]), rng.choice([1, 1, 1, 1, 2]))
    b = operand(k, n, 2, rng.choice([1, batch]), rng.choice([1, 1, 1, 1, 2]))
    d = operand(m, n, item, batch, rng.choice([1, 1, 1, 1, 2]))
    c = rng.choice([None, None, d, operand(m, n, item, batch)])
    beta = 0.0 if c is None else rng.choice([0.0, 1.0, 2.0])
    return Product(m, n, k, batch, dtype, out, 1.0, beta, a, b, c, d)


def key(kernel: Kernel) -> tuple[Any, ...]:
    """What a kernel is compiled from."""
    return kernel.path, kernel.name, frozenset(kernel.defines.items()), kernel.options


@pytest.mark.sampled(4)
@pytest.mark.parametrize("multiprocessors", [132, 78])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_kernel_of_a_plan_is_named(dtype: str, multiprocessors: int) -> None:
    chip = replace(H200, multiprocessors=multiprocessors)
    families: dict[str, Family] = {family.name: family for family in (Hopper(), ThinHalf())}
    named = {}
    for name, family in families.items():
        found = [key(kernel) for kernel in family.kernels(chip, dtype)]
        named[name] = set(found)
        assert len(found) == len(named[name])  # none twice
    rng = random.Random(f"{dtype}, {multiprocessors}")
    seen: dict[str, set[Any]] = {name: set() for name in families}
    draws, share, fewest, thin = (4000, 0.85, 300, 20) if is_thorough() else (1200, 0.7, 120, 10)
    for _ in range(draws):
        asked = drawn(rng, dtype)
        for name, family in families.items():
            offer = family.best(asked, chip)
            if offer is not None:
                seen[name] |= {key(step.kernel) for step in offer.make().steps}
    for name, kernels in seen.items():
        assert kernels <= named[name], next(iter(kernels - named[name]))
    # So that the test sees what there is: most macros take each of their values.
    assert {name for _, name, _, _ in seen["hopper"]} == {"hopper", "hopper_sum", "pack", "unpack"}
    every = {pair for kernel in named["hopper"] for pair in kernel[2]}
    met = {pair for kernel in seen["hopper"] for pair in kernel[2]}
    assert len(met) >= share * len(every)
    assert len(seen["hopper"]) > fewest
    assert len(seen["thin_half"]) > thin


@pytest.mark.parametrize("family", [Hopper(), ThinHalf(), Mma()], ids=lambda family: family.name)
def test_no_kernel_of_what_is_never_taken(family: Family) -> None:
    older = replace(H200, capability=80)
    assert list(family.kernels(H200, "float32")) == []
    assert list(family.kernels(None, "float16")) == []
    assert any(family.kernels(older, "float16")) is not isinstance(family, Hopper)
    assert not any(kernel.defines["OVERLAP"] for kernel in family.kernels(older, "float16"))


# What planning costs the host


def random_shapes(count: int) -> list[Product]:
    rng = random.Random(0)
    found = []
    for _ in range(count):
        m, n, k = (8 * int(2 ** rng.uniform(3, 10.5)) for _ in range(3))
        found.append(of_shape(m, n, k, "bfloat16", rng.choice(["NN", "NT", "TN", "TT"])))
    return found


def test_planning_is_quick() -> None:
    """The quickest of several: what else the machine does is none of its fault."""
    times = [
        min(repeat(partial(plan_on.__wrapped__, asked, H200), number=1, repeat=5))
        for asked in random_shapes(40)
    ]
    assert statistics.median(times) < 0.002


MOST_CALLS = 660  # of Python functions; 530 were counted at most


def test_planning_takes_few_calls() -> None:
    """Of Python functions: a count that is the same on every machine."""
    for asked in random_shapes(40):
        plan_on.__wrapped__(asked, H200)  # what is computed once for each layout
        calls = 0

        def count(_: Any, event: str, __: Any) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            plan_on.__wrapped__(asked, H200)
        finally:
            sys.setprofile(before)
        assert calls <= MOST_CALLS


# Chips


@pytest.mark.parametrize("name", sorted(MEASURED_MEMORY))
def test_the_memory_of_a_chip_as_it_was_measured(name: str) -> None:
    chip = chip_by(name, 132, 90, 1.98e9, 4.8e12, 60 << 20)
    assert chip.memory == MEASURED_MEMORY[name]
    assert (chip.name, chip.multiprocessors, chip.l2) == (name, 132, 60 << 20)


def test_the_memory_of_a_chip_that_nobody_measured() -> None:
    """A copy reaches as much of the datasheet's bandwidth as on an H200."""
    chip = chip_by("NVIDIA H20", 78, 90, 1.98e9, 4.0e12, 60 << 20)
    assert chip.memory == MEMORY_SHARE * 4.0e12
    assert pytest.approx(H200.memory, rel=0.01) == MEMORY_SHARE * 4.8e12
    # Drivers that tell nothing.
    unknown = chip_by("NVIDIA H20", 78, 90, 0.0, 0.0, 60 << 20)
    assert (unknown.clock, unknown.memory) == (H200.clock, H200.memory)
