"""The registers of the kernels by ``mma.sync``: none spills, of any GPU and way to read A and B."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import examples, is_thorough, thorough

from tilewise.gemm.chip import Chip
from tilewise.gemm.families.mma import kernel
from tilewise.gemm.families.mma.family import Mma
from tilewise.gemm.families.mma.kernel import WIDTHS, Matrix
from tilewise.gemm.families.mma.model import table_of
from tilewise.gemm.families.mma.tiles import TILES, Tiles
from tilewise.gemm.product import Operand, Product
from tilewise.kernel import Kernel
from tilewise.precision import HALVES

A100 = Chip("NVIDIA A100-SXM4-80GB", 108, 80, 1.41e9, 1.8e12, 40 << 20)
CAPABILITIES = (80, 86, 87, 89, 90, 100, 120)


def arch_of(capability: int) -> str:
    return f"sm_{capability}" + "a" * (capability == 90)


def every_tiles_and_capability() -> Iterator[Any]:
    """Every eighth one of the tiles for one capability, in turn; the others are thorough.

    For 8.6, 8.7 and 8.9 ptxas gives every one of these kernels as many registers as for 8.0. Of
    the two layouts each takes one, in turn, and rows that begin anywhere or do not; the others are
    thorough too.
    """
    later = (90, 100, 120)
    for at, tiles in enumerate(TILES):
        for capability in (80, 86, 87, 89, *later):
            is_quick = at % 8 == 6 and capability == (80, *later)[at // 8 % 4]
            for a_is_k_major, unaligned in product((True, False), (False, True)):
                turn = at // 8 % 4
                is_its_turn = (a_is_k_major, unaligned) == (turn % 2 == 0, turn in (1, 2))
                marks = () if is_quick and is_its_turn else (thorough,)
                layout = ("KM" if a_is_k_major else "MK") + "-unaligned" * unaligned
                name = f"{tiles}-{capability}-{layout}"
                yield pytest.param(tiles, capability, a_is_k_major, unaligned, id=name, marks=marks)


@pytest.mark.parametrize(
    ("tiles", "capability", "a_is_k_major", "unaligned"), list(every_tiles_and_capability())
)
def test_kernels_compile_for_every_gpu_without_spills(
    tiles: Tiles, capability: int, a_is_k_major: bool, unaligned: bool
) -> None:
    """And a multiprocessor's registers suffice for as many blocks as it is to hold.

    Also where rows of A, B and D begin anywhere: ``unaligned``.
    """
    chip = replace(A100, capability=capability)
    if tiles not in table_of(chip).tiles:
        pytest.fail(f"{tiles} does not fit compute capability {capability / 10}")
    a, b = (Matrix(is_k_major, 0, WIDTHS[0]) for is_k_major in (a_is_k_major, not a_is_k_major))
    reads = (a.realigned, b.realigned) if unaligned else (a, b)
    made = kernel.kernel_of("bfloat16", "bfloat16", tiles, *reads, capability == 90, unaligned)
    resources = made.compile(arch_of(capability), lines=False).resources
    assert resources.spill_bytes == 0
    registers = -(-resources.registers // 8) * 8 * tiles.threads
    assert registers * tiles.residents <= 65536


@cache
def variants(capability: int, dtype: str) -> list[Kernel]:
    """Every kernel that the planner can ask for there, but those of copies and of split-K."""
    found = Mma().kernels(replace(A100, capability=capability), dtype)
    return [each for each in found if each.name == "gemm_mma"]


@thorough
@settings(examples(150, quick=1), derandomize=not is_thorough())
@given(capability=st.sampled_from(CAPABILITIES), dtype=st.sampled_from(HALVES), data=st.data())
def test_no_way_to_read_and_store_spills(capability: int, dtype: str, data: st.DataObject) -> None:
    """There are thousands for each GPU: with ``--thorough`` others are drawn in each run."""
    made = data.draw(st.sampled_from(variants(capability, dtype)))
    used = made.compile(arch_of(capability), lines=False).resources
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)


def asked(a: Operand, b: Operand, m: int = 1001, n: int = 1003, k: int = 901) -> Product:
    return Product(m, n, k, 1, "bfloat16", "bfloat16", 1.0, 0.0, a, b, None, Operand(n, 1))


BY_K, BY_LINES = Operand(902, 1), Operand(1, 1002)
ODD_BY_K, ODD_BY_LINES, REPEATED = Operand(901, 1), Operand(1, 1001), Operand(1, 0, offset=2)


@pytest.mark.parametrize("a", [BY_K, BY_LINES, ODD_BY_K, ODD_BY_LINES, REPEATED])
@pytest.mark.parametrize("b", [BY_K.transposed, Operand(1006, 1), Operand(1003, 1), Operand(0, 1)])
@pytest.mark.parametrize("capability", [80, 86, 100, 120])
def test_what_would_spill_is_never_asked_for(a: Operand, b: Operand, capability: int) -> None:
    """Copies of single elements; or of two elements of both matrices, of which an edge cuts some.

    Compiled for compute capability 8.6, those of MN-major matrices spill up to 456 bytes a thread;
    for 9.0, 10.0 and 12.0 those of two elements of whole rows do, too.
    """
    chip = replace(A100, capability=capability)
    listed = {*variants(capability, "bfloat16")}
    undivided = [x for x in Mma().offers(asked(a, b), chip) if x.choice["parts"] == 1]
    assert undivided
    for offer in undivided:
        (made,) = (x.kernel for x in offer.make().steps if x.kernel.name == "gemm_mma")
        macros = made.defines
        assert 1 not in (macros["A_WIDTH"], macros["B_WIDTH"])
        are_narrow = macros["A_WIDTH"] == macros["B_WIDTH"] == 2
        assert not (are_narrow and (macros["A_PARTIAL"] or macros["B_PARTIAL"]))
        assert capability < 90 or 2 not in (macros["A_WIDTH"], macros["B_WIDTH"])
        assert made in listed


def test_a_matrix_that_could_only_be_read_by_single_elements_is_left_to_others() -> None:
    """It is the same for each k, and too large to be repacked."""
    large = asked(Operand(1, 0, offset=2), Operand(8, 1), m=8, n=8, k=2**31 - 2**16)
    assert Mma().objection(large, A100) == ""
    tall = large._replace(batch=2)
    assert "A is too large to be repacked" in Mma().objection(tall, A100)
    assert list(Mma().offers(tall, A100)) == []
