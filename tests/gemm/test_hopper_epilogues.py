"""Epilogues of the Hopper kernel: matrices that come through the pipeline's stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_kernel import broken
from fused_reference import Case, operand, run, strided
from reference import held, thorough

import tilewise as tw
from tilewise.devices import Device
from tilewise.epilogue import trace
from tilewise.gemm.chip import known
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.plan import offers
from tilewise.gemm.product import ALIGNMENT, Operand, Product
from tilewise.gemm.steps import Plan
from tilewise.places import ITEM_SIZES
from tilewise.precision import dtype_of

UNITS = 6  # multiprocessors: so few that each has several tiles
M, N, K = 136, 264, 136
DTYPE = "float16"  # of A, B and D; NumPy has bfloat16 only with ml_dtypes


@dataclass(frozen=True)
class Residual:
    """A matrix that is added: its dtype, the elements before it, those between lines, its order."""

    dtype: str = DTYPE
    offset: int = 0
    padding: int = 0
    by_columns: bool = False

    def memory(self, rng: np.random.Generator, batch: int) -> tuple[Any, Any]:
        lines, length = (N, M) if self.by_columns else (M, N)
        pitch = length + self.padding
        flat = np.full(self.offset + batch * lines * pitch, np.nan, dtype_of(self.dtype))
        view = flat[self.offset :].reshape(batch, lines, pitch)[..., :length]
        view = view.swapaxes(1, 2) if self.by_columns else view
        view[...] = rng.standard_normal(view.shape)
        return flat, view


TILINGS = [
    Tiling(64, 48),
    Tiling(192, 128),
    Tiling(64, 256),
    Tiling(128, 192, 2, 1),
    Tiling(128, 192, 2, 1, ping_pong=True),
    Tiling(128, 128, 1, 2, stream_k=True),
    Tiling(64, 64, split=2),
    Tiling(256, 160),
    Tiling(128, 96, swapped=True),
    Tiling(128, 128, swapped=True, ping_pong=True),
]
RESIDUALS = [
    Residual(),
    *[Residual(dtype, padding=8) for dtype in held(["bfloat16"])],
    Residual(offset=8, padding=1),  # rows that are not 16-byte aligned
    Residual(offset=1),
    Residual("float32"),
    Residual(by_columns=True),
]


@pytest.mark.sampled(34)  # residuals and tilings from all parts of the lists
@pytest.mark.parametrize("residual", RESIDUALS, ids=str)
@pytest.mark.parametrize("tiling", TILINGS, ids=str)
def test_a_matrix_is_added(device: Device, tiling: Tiling, residual: Residual) -> None:
    check(device, tiling, residual, lambda acc, bias, x: tw.relu(acc + bias) + x)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("tiling", [TILINGS[0], *TILINGS[3::4]], ids=str)
def test_two_matrices_and_a_second_result(device: Device, tiling: Tiling) -> None:
    """Of two matrices only one comes through the pipeline."""
    check(device, tiling, Residual(), lambda acc, bias, x, y: (acc * x + y, acc + bias))


FUNCTIONS = [
    lambda acc, bias, x: tw.gelu(acc + bias),
    lambda acc, bias, x: acc + bias + x,
    lambda acc, bias, x: tw.tanh(acc + bias) * x,  # too long for its loop to be unrolled
]


@thorough
@pytest.mark.parametrize("function", FUNCTIONS, ids=["gelu", "residual", "tanh"])
@pytest.mark.parametrize("tiling", TILINGS, ids=str)
def test_compiles_without_spills(tiling: Tiling, function: Any) -> None:
    row, matrix = Strided("bfloat16", 0, 1), Strided("bfloat16", N, 1)
    epilogue = Epilogue(trace(function, ("bias", "x")), (row, matrix))
    a, b, d = Operand(K, 1), Operand(1, K), Operand(N, 1)
    asked = Product(M, N, K, 1, "bfloat16", "bfloat16", 1.0, 0.0, a, b, None, d, epilogue)
    used = hopper.plan(asked, UNITS, tiling).steps[0].kernel.compile("sm_90a").resources
    assert used.spill_bytes == used.stack_bytes == 0


@pytest.mark.parametrize("pairs", [None, "halves"])
def test_words_have_as_many_stages_as_the_kernel(pairs: str | None) -> None:
    """A staged operand leaves room for fewer, or, as D needs no buffers then, for more."""

    def gated(acc: Any, up: Any, x: Any) -> Any:
        return tw.silu(acc) * up + x

    def added(acc: Any, x: Any) -> Any:
        return tw.relu(acc) + x

    a, b = np.ones((512, 256), DTYPE), np.ones((256, 1024), DTYPE)
    x = np.ones((512, 1024 if pairs is None else 512), DTYPE)
    explanation = tw.explain(
        a, b, x=x, epilogue=added if pairs is None else gated, pairs=pairs, gpu="h200"
    )
    asked, differ = explanation.product, False
    assert isinstance(asked, Product)
    for offer in offers(asked, known("h200")):
        if offer.family != "hopper":
            continue
        plan = offer.make()
        (main,) = (step.kernel.defines for step in plan.steps if step.kernel.name == "hopper")
        assert f" {main['STAGES']} stages" in plan.chosen
        assert f" {main['STAGES']} stages" in offer.words
        differ |= main["STAGES"] != Tiling(**offer.choice).stages
    assert differ


RACE, UNWRITTEN, BARRIER = tw.RaceError, tw.UninitializedReadError, tw.BarrierError
WAITS_TO_LAND = "mbarrier_wait(shared_address(&landed[taken % BARRIERS]), taken / BARRIERS % 2);"
WAITS_TO_BE_FREE = "mbarrier_wait(shared_address(free_again), taken % 2 ^ 1);"
WAITS_TO_BE_READ = "if (thread % 32 == 0) tma_store_wait_group_read<0>();"
IN_STAGES, APART = Tiling(256, 160), Tiling(128, 192, ping_pong=True)
FAULTS: list[tuple[str, Tiling, str, str, type[tw.CheckError], str]] = [
    ("read too early", APART, WAITS_TO_LAND, "", UNWRITTEN, "which nobody wrote"),
    ("one barrier", APART, ": CONSUMERS / SHARERS;", ": 1;", BARRIER, "landed"),
    ("copied too early", APART, WAITS_TO_BE_FREE, "", RACE, "by a bulk copy with no barrier after"),
    ("a store unread", IN_STAGES, WAITS_TO_BE_READ, "", RACE, "after the read of a bulk copy"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tiling", "old", "new", "error", "words"),
    [
        pytest.param(*fault[1:], id=fault[0], marks=[thorough] * (place > 0))
        for place, fault in enumerate(FAULTS)
    ],
)
def test_finds_faults(
    tmp_path: Path, emulator: Device, tiling: Tiling, old: str, new: str,
    error: type[tw.CheckError], words: str,
) -> None:  # fmt: skip
    def change(plan: Plan) -> Plan:
        return broken(tmp_path, plan, old, new)

    with pytest.raises(error, match=words):
        check(emulator, tiling, Residual(), lambda acc, x: acc + x, 1, change)


def check(
    device: Device,
    tiling: Tiling,
    residual: Residual,
    function: Any,
    units: int = UNITS,
    changed: Callable[[Plan], Plan] = lambda plan: plan,
) -> None:
    batch, rng = 1 + tiling.ping_pong, np.random.default_rng(0)
    plain = Residual()

    def matrices(rows: int, columns: int) -> tuple[Any, Any]:
        flat = rng.standard_normal(batch * rows * columns).astype(dtype_of(DTYPE))
        return flat, flat.reshape(batch, rows, columns)

    traced = trace(function, tuple(function.__code__.co_varnames[1:]))
    of_b, by_columns = matrices(N, K)
    arrays = {"a": matrices(M, K), "b": (of_b, by_columns.swapaxes(1, 2))}
    arrays["d"] = plain.memory(rng, batch)
    inputs, operands = [], []
    for name in traced.operands:
        if name == "bias":
            flat = rng.standard_normal(N).astype(np.float32)
            arrays[name] = flat, flat.reshape(1, 1, N)
            dtype = "float32"
        else:
            dtype = residual.dtype
            arrays[name] = residual.memory(rng, batch)
        ahead = 0 if name == "bias" else residual.offset * ITEM_SIZES[dtype] % ALIGNMENT
        inputs.append(strided(arrays[name][1], dtype)._replace(offset=ahead))
        operands.append(arrays[name][1].astype(np.float64))
    results = []
    for i in range(1, len(traced.results)):
        arrays[f"result {i}"] = plain.memory(rng, batch)
        results.append(strided(arrays[f"result {i}"][1], plain.dtype))
    a, b, d = (operand(arrays[name][1]) for name in "abd")
    epilogue = Epilogue(traced, tuple(inputs), tuple(results))
    asked = Product(M, N, K, batch, DTYPE, DTYPE, -1.5, 0.0, a, b, None, d, epilogue)
    run(Case(asked, arrays, operands), changed(hopper.plan(asked, units, tiling)), device)
