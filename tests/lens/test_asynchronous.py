"""Sentences about matrix products, bulk copies and waits."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from reference import is_thorough

from tilewise.ladder.rungs import rung
from tilewise.ladder.watched import TURNS, sizes
from tilewise.lens.trace import record

# The traces are the file's own: those of other files say what the machine code does.
pytestmark = pytest.mark.usefixtures("no_machine_code", "ptx_alone")
PHASES = TURNS if is_thorough() else 2  # of warpgroup and persistent


@cache
def traced(name: str) -> dict[str, Any]:
    """The trace at the sizes at which the rung is watched, or of fewer phases in a quick run."""
    at = sizes(rung(name))
    k = at.k * PHASES // TURNS if name in ("warpgroup", "persistent") else at.k
    found: dict[str, Any] = record(name, at.m, at.n, k, tile=at.tile).to_dict()
    return found


def steps(name: str, block: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = traced(name)["blocks"][block]["steps"]
    return found


def said(name: str, block: int = 0) -> list[str]:
    """Each sentence once, in order."""
    return list(dict.fromkeys(step["say"] for step in steps(name, block)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("tensor_core", [
            "All 128 threads multiply matrices: D (16 x 8) += A (16 x 16) · B (16 x 8), one "
            "product for each warp.",
        ]),
        ("ldmatrix", [
            "All 128 threads load 4 matrices of 8 x 8 a warp, sa, rows 0 to 31, columns 0 to 31: "
            "no bank conflict.",
        ]),
        ("multistage", [
            "All 128 threads close a group of their copies (cp.async).",
            "All 128 threads wait for all of their copies (cp.async) but the last 2 groups.",
            "All 128 threads wait for all of their copies (cp.async).",
        ]),
        ("specialized", [
            "Thread 0 initialises full[0].",
            "Thread 0 asks empty[3], whose parity has flipped.",
            "Thread 0 waits at empty[0] until its parity flips.",
            "Thread 0 arrives at full[0], and it expects more bytes.",
            "Thread 0 begins a bulk copy of 16,384 bytes to dynamic, bytes 0 to 16,383 (rows 0 to "
            "127, columns 0 to 63 of A). full[0] counts them.",
            "256 of 384 threads multiply matrices: D (64 x 256) += A · B, a product for each of 2 "
            "warpgroups; A and B lie in shared memory.",
            "256 of 384 threads close a group of their products.",
            "256 of 384 threads wait for all of their products but the last group.",
            "2 of 384 threads arrive at empty[0].",
        ]),
        ("persistent", [
            "All 384 threads arrive at the cluster's barrier.",
            "All 384 threads wait for all blocks of the cluster.",
            "Another block of the cluster begins a bulk copy of 8,192 bytes to dynamic, bytes "
            "24,576 to 32,767 (rows 0 to 63, columns 64 to 127 of B). full[0] counts them.",
            "4 of 384 threads arrive at empty[0] and one of another block.",
        ]),
    ],
)  # fmt: skip
def test_sentences(name: str, sentences: list[str]) -> None:
    found = said(name)
    assert [each for each in sentences if each in found] == sentences


def test_why_conflicts_matter_to_ldmatrix() -> None:
    step = next(s for s in steps("ldmatrix") if s.get("space") == "shared" and "layout" in s)
    assert "served by itself, at once" in step["why"]


def test_both_blocks_of_a_cluster_are_told() -> None:
    (first, second) = (
        sum("Another block" in step["say"] for step in steps("persistent", block))
        for block in (0, 1)
    )
    assert first == second == 2 * PHASES  # two boxes of B in each


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["warpgroup", "specialized", "persistent"])
def test_the_step_to_begin_with_is_a_product(name: str) -> None:
    block = traced(name)["blocks"][0]
    assert block["steps"][block["first"]]["kind"] == "matrix"


def test_phases_of_tiles_that_tensor_cores_read() -> None:
    """Each of the tiles along k is multiplied in a phase of its own."""
    products = [step for step in steps("warpgroup") if step["kind"] == "matrix"]
    assert [step["phase"] for step in products] == [p for p in range(PHASES) for _ in range(4)]
