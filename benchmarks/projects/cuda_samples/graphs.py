"""Launch segmentationTreeThrust of 2_Concepts_and_Techniques, which joins a graph's clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from projects.case import Array, Case
from projects.cuda_samples.shapes import sample, written

Made = tuple[Sequence[Any], Array, Array]
N = 1000
NONE = 2**32 - 1


def indices(rng: np.random.Generator, n: int, most: int = N) -> Array:
    """Draw indices below ``most``."""
    return rng.integers(0, most, n, dtype=np.uint32)


def add_scalar(rng: np.random.Generator) -> Made:
    """Make (numbers, what is added, how many)."""
    found = indices(rng, N)
    return (found, -1, N), found, found - np.uint32(1)


def mark_segments(rng: np.random.Generator) -> Made:
    """Make (where segments begin, flags, how many segments)."""
    begins, found = np.sort(rng.permutation(N)[:100]).astype(np.uint32), np.zeros(N, np.uint32)
    wanted = np.zeros(N, np.uint32)
    wanted[begins] = 1
    return (begins, found, 100), found, wanted


def mapping(rng: np.random.Generator) -> Made:
    """Make (vertices by cluster, their new number, the mapping, how many)."""
    vertices, new = rng.permutation(N).astype(np.uint32), np.sort(indices(rng, N, 50))
    found, wanted = np.zeros(N, np.uint32), np.zeros(N, np.uint32)
    wanted[vertices] = new
    return (vertices, new, found, N), found, wanted


def successors(rng: np.random.Generator) -> Made:
    """Make (a vertex's first edge, the scanned edges, successors, vertices, edges)."""
    begins = np.append(0, np.sort(rng.permutation(np.arange(1, N))[:99])).astype(np.uint32)
    edges, found = indices(rng, N), np.zeros(100, np.uint32)
    return (begins, edges, found, 100, N), found, edges[np.append(begins[1:], N) - 1]


def chains(rng: np.random.Generator) -> Array:
    """Draw successors whose chains all end in one of two: every cycle is a pair."""
    return np.array([1, 0, 3, 2, *(rng.integers(0, at) for at in range(4, N))], np.uint32)


def remove_cycles(rng: np.random.Generator) -> Made:
    """Make (successors, how many): of a pair, the first becomes its own."""
    found = chains(rng)
    wanted = found.copy()
    wanted[[0, 2]] = 0, 2
    return (found, N), found, wanted


def representatives(rng: np.random.Generator) -> Made:
    """Make (successors, the ends of their chains, how many)."""
    read, found = chains(rng), np.zeros(N, np.uint32)
    read[[0, 2]] = 0, 2
    wanted = read.copy()
    while (wanted[wanted] != wanted).any():
        wanted = wanted[wanted]
    return (read, found, N), found, wanted


def invalidate_loops(rng: np.random.Generator) -> Made:
    """Make (starts, the mapping, ends, how many edges)."""
    starts, numbers, found = indices(rng, N), indices(rng, N, 3), indices(rng, N)
    loops = numbers[starts] == numbers[found]
    return (starts, numbers, found, N), found, np.where(loops, NONE, found).astype(np.uint32)


def edges_info(rng: np.random.Generator) -> Made:
    """Make (starts, mapping, ends, weights, new starts and survivors, edges, new vertices)."""
    starts, numbers, ends = indices(rng, N), indices(rng, N, 50), indices(rng, N)
    ends[::3] = NONE
    weights, found = rng.random(N).astype(np.float32), np.zeros((2, N), np.uint32)
    lost = ends == NONE
    new = numbers[starts] + np.where(lost, 50, 0)
    wanted = np.stack([new, np.where(lost, NONE, np.arange(N))]).astype(np.uint32)
    return (starts, numbers, ends, weights, found[0], found[1], N, 50), found, wanted


def new_edges(rng: np.random.Generator) -> Made:
    """Make (survivors, the mapping, ends, weights, new ends, new weights, how many)."""
    left = np.sort(rng.permutation(N)[:300]).astype(np.uint32)
    numbers, ends = indices(rng, N, 50), indices(rng, N)
    weights, new = rng.random(N).astype(np.float32), np.zeros(300, np.float32)
    found = np.zeros((2, 300), np.uint32)
    wanted = np.stack([numbers[ends[left]], weights[left].view(np.uint32)])
    new = found[1].view(np.float32)
    return (left, numbers, ends, weights, found[0], new, 300), found, wanted


def graph(kernel: str, make: Any, threads: int = N) -> Case:
    """Return one of the kernels; a thread has a vertex or an edge."""
    return sample(
        "2_Concepts_and_Techniques/segmentationTreeThrust/kernels.cuh", kernel,
        -(-threads // 256), 256, written(make),
    )  # fmt: skip


GRAPHS = (
    graph("addScalar", add_scalar),
    graph("markSegments", mark_segments, 100),
    graph("getVerticesMapping", mapping),
    graph("getSuccessors", successors, 100),
    graph("removeCycles", remove_cycles),
    graph("getRepresentatives", representatives),
    graph("invalidateLoops", invalidate_loops),
    graph("calculateEdgesInfo", edges_info),
    graph("makeNewEdges", new_edges, 300),
)
