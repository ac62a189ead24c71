"""Launch samples of 2_Concepts_and_Techniques: small ones, eigenvalues, intervals, particles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewise
from projects.case import Array, near, same
from projects.cuda_samples.shapes import added, sample, written

Drawn = tuple[Sequence[Any], Callable[[], str]]
FOLDER = "2_Concepts_and_Techniques"
SIZE = 100
PRECISION = 1e-5


def lanes(_: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (each thread's lane, how many threads)."""
    found = np.zeros(200, np.int32)
    return (found, 200), found, np.arange(200, dtype=np.int32) % 96 % 32


def counted_down(_: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make the numbers that become 32 less the thread's."""
    found = np.zeros(32, np.int32)
    return (found,), found, 32 - np.arange(32, dtype=np.int32)


def doubled(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (numbers, their doubles, how many)."""
    read = rng.integers(-1000, 1000, 1000, dtype=np.int32)
    found = np.zeros_like(read)
    return (read, found, 1000), found, 2 * read


def summed(rng: np.random.Generator) -> Drawn:
    """Make (numbers, sums of blocks, of which the first becomes that of all, how many)."""
    read, found = rng.random(5000).astype(np.float32), np.zeros(4, np.float32)
    wanted = np.array([read.astype(np.float64).sum()])
    return (read, found, 5000), lambda: near(found[:1], wanted, 8)


def tridiagonal(
    rng: np.random.Generator, size: int = SIZE
) -> tuple[Array, Array, Array, float, float]:
    """Draw a symmetric tridiagonal matrix: diagonal, what stands beside it, eigenvalues, bounds.

    What stands beside the diagonal begins with a zero.
    """
    diagonal = rng.random(size).astype(np.float32)
    beside = rng.random(size).astype(np.float32)
    beside[0] = 0
    inner = beside[1:].astype(np.float64)
    matrix = np.diag(diagonal.astype(np.float64)) + np.diag(inner, 1) + np.diag(inner, -1)
    radius = np.append(inner, 0) + np.append(0, inner)
    low, high = (diagonal - radius).min() - 0.01, (diagonal + radius).max() + 0.01
    return diagonal, beside, np.linalg.eigvalsh(matrix), float(low), float(high)


def close(found: Array, wanted: Array) -> str:
    """Say which eigenvalues are further off than an interval's width and the counts' roundings."""
    # An eigenvalue's count is exact of a matrix that differs by a few units in the last place of
    # its elements, which are below 1 (Demmel, Dhillon and Ren, 1995).
    bound = PRECISION + 8 * np.finfo(np.float32).eps * 3
    error = np.abs(found - wanted).max()
    return "" if error <= bound else f"an eigenvalue is off by {error:.3g}, may be by {bound:.3g}"


def bisected(rng: np.random.Generator) -> Drawn:
    """Make the arguments of a small matrix: intervals and counts come out."""
    diagonal, beside, wanted, low, high = tridiagonal(rng)
    left, right = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    counts = np.zeros((2, SIZE), np.uint32)
    args = (
        diagonal, tilewise.pointer(beside, 1), SIZE, left, right, counts[0], counts[1], low, high,
        0, SIZE, PRECISION,
    )  # fmt: skip

    def wrong() -> str:
        at = same(np.sort(counts[0]), np.arange(SIZE, dtype=np.uint32), "the set of counts")
        return at or close(left[np.argsort(counts[0])], wanted)

    return args, wrong


def bisected_first(rng: np.random.Generator) -> Drawn:
    """Make the arguments of a large matrix's first pass.

    Out of it come intervals that have one eigenvalue each, and blocks of those that have more.
    """
    n = 520
    diagonal, beside, wanted, low, high = tridiagonal(rng, n)
    ones, blocks = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    one, several = np.zeros((2, n), np.float32), np.zeros((2, n), np.float32)
    place, counts = np.zeros(n, np.uint32), np.zeros((2, n), np.uint32)
    first = [np.zeros(n + 1, np.uint32) for _ in range(2)]
    args = (
        diagonal, tilewise.pointer(beside, 1), n, low, high, 0, n, PRECISION, ones, blocks, one[0],
        one[1], place, several[0], several[1], counts[0], counts[1], *first,
    )  # fmt: skip

    def wrong() -> str:
        alone, starts = int(ones[0]), first[0][: int(blocks[0]) + 1]
        more = counts[:, : int(starts[-1])].astype(np.int64)
        has = [wanted[place[:alone].astype(np.intp) - 1]]
        has += [wanted[more[0]], wanted[more[1] - 1]]
        ends = [one[:, :alone], several[:, : more.shape[1]], several[:, : more.shape[1]]]
        for values, (left, right) in zip(has, ends, strict=True):
            if (values < left - PRECISION).any() or (values > right + PRECISION).any():
                return "an eigenvalue is outside of its interval"
        total = alone + int((more[1] - more[0]).sum())
        return "" if total == n else f"{total} of {n} eigenvalues have an interval"

    return args, wrong


def bisected_alone(rng: np.random.Generator) -> Drawn:
    """Make the arguments of intervals that have one eigenvalue each."""
    diagonal, beside, wanted, low, high = tridiagonal(rng)
    between = (wanted[1:] + wanted[:-1]) / 2
    left = np.append(low, between).astype(np.float32)
    right = np.append(between, high).astype(np.float32)
    place = np.arange(1, SIZE + 1, dtype=np.uint32)
    args = (diagonal, tilewise.pointer(beside, 1), SIZE, SIZE, left, right, place, PRECISION)
    return args, lambda: close(left, wanted)


def bisected_together(rng: np.random.Generator) -> Drawn:
    """Make the arguments of two blocks of intervals that have several eigenvalues each."""
    diagonal, beside, wanted, low, high = tridiagonal(rng)
    counts = np.array([0, 10, 37, 60, 100], np.uint32)
    inner = [(wanted[at - 1] + wanted[at]) / 2 for at in counts[1:-1]]
    ends = np.array([low, *inner, high], np.float32)
    found, place = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.uint32)
    blocks, sums = np.array([0, 2, 4], np.uint32), np.array([0, 37, 100], np.uint32)
    args = (
        diagonal, tilewise.pointer(beside, 1), SIZE, blocks, sums, ends[:-1].copy(),
        ends[1:].copy(), counts[:-1].copy(), counts[1:].copy(), found, place, PRECISION,
    )  # fmt: skip

    def wrong() -> str:
        at = same(np.sort(place), np.arange(1, SIZE + 1, dtype=np.uint32), "the set of places")
        return at or close(found[np.argsort(place)], wanted)

    return args, wrong


def roots(way: int) -> Callable[[np.random.Generator], Drawn]:
    """Make (intervals, how many a thread, where to look, the way): roots of a parabola a thread."""
    threads, first = 65536, 128

    def draw(_: np.random.Generator) -> Drawn:
        found, counts = np.zeros((16, threads, 2)), np.zeros(threads, np.int32)
        args = (found, counts, np.array([0.01, 4.0]).tobytes(), way)

        def wrong() -> str:
            for thread in range(1, first):
                alpha = thread / threads
                middle, half = 1 + alpha / 2, np.sqrt(alpha + alpha**2 / 4)
                each = found[: counts[thread], thread]
                for root in (middle - half, middle + half):
                    slack = 2e-6 / half  # where the parabola is within its own bound of zero
                    inside = (each[:, 0] - slack <= root) & (root <= each[:, 1] + slack)
                    if not inside.any():
                        return f"thread {thread} has no interval with {root}"
            return ""

        return args, wrong

    return draw


CELLS, PARTICLES, RADIUS = 8, 300, 0.125
PARAMETERS = {
    "colliderPos": [-0.5, -0.2, 0.1], "colliderRadius": 0.3, "gravity": [0.0, -0.0003, 0.0],
    "globalDamping": 1.0, "particleRadius": RADIUS, "gridSize": [CELLS] * 3,
    "numCells": CELLS**3, "worldOrigin": [-1.0] * 3, "cellSize": [2 / CELLS] * 3,
    "numBodies": PARTICLES, "maxParticlesPerCell": 4, "spring": 0.5, "damping": 0.02,
    "shear": 0.1, "attraction": 0.05, "boundaryDamping": -0.5,
}  # fmt: skip
WHOLE = {"gridSize", "numCells", "numBodies", "maxParticlesPerCell"}


def parameters() -> Array:
    """Return the bytes of the simulation's parameters, in the order of its structure."""
    values = (
        np.atleast_1d(np.array(value, np.uint32 if name in WHOLE else np.float32))
        for name, value in PARAMETERS.items()
    )
    return np.concatenate([each.view(np.uint8) for each in values])


def particles(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw positions, velocities and the cells of the positions; the fourth element is unused."""
    place = (rng.random((PARTICLES, 4)) * 2 - 1).astype(np.float32)
    speed = rng.standard_normal((PARTICLES, 4)).astype(np.float32)
    place[:, 3] = speed[:, 3] = 0
    x, y, z = np.floor((place[:, :3] + np.float32(1)) / np.float32(2 / CELLS)).astype(np.uint32).T
    return place, speed, ((z * CELLS + y) * CELLS + x).astype(np.uint32)


def hashed(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (cells, numbers, positions, how many)."""
    place, _, cells = particles(rng)
    found = np.zeros((2, PARTICLES), np.uint32)
    wanted = np.stack([cells, np.arange(PARTICLES, dtype=np.uint32)])
    return (found[0], found[1], place, PARTICLES), found, wanted


def ranges(cells: Array) -> tuple[Array, Array]:
    """Return where each cell's particles begin and end; -1 and 0 of empty cells."""
    begin, end = np.full(CELLS**3, 2**32 - 1, np.uint32), np.zeros(CELLS**3, np.uint32)
    for at, cell in enumerate(cells):
        begin[cell] = min(begin[cell], at)
        end[cell] = at + 1
    return begin, end


def reordered(rng: np.random.Generator) -> Drawn:
    """Make (begins, ends, sorted positions and velocities, cells, numbers, both, how many)."""
    place, speed, cells = particles(rng)
    order = np.argsort(cells, kind="stable").astype(np.uint32)
    begin, end = np.full(CELLS**3, 2**32 - 1, np.uint32), np.zeros(CELLS**3, np.uint32)
    places, speeds = np.zeros_like(place), np.zeros_like(speed)
    wanted = ranges(cells[order])
    args = (begin, end, places, speeds, cells[order], order, place, speed, PARTICLES)
    return args, lambda: (
        same(begin, wanted[0], "the begins") or same(end, wanted[1], "the ends")
        or same(places, place[order], "the positions") or same(speeds, speed[order], "velocities")
    )  # fmt: skip


def pushed(apart: Array, reach: float, relative: Array, attraction: float) -> Array:
    """Return the force of spheres that are ``apart`` and move so; none beyond their reach."""
    distance = np.linalg.norm(apart, axis=-1, keepdims=True)
    norm = apart / np.where(distance == 0, 1, distance)
    tangent = relative - (relative * norm).sum(axis=-1, keepdims=True) * norm
    force = -0.5 * (reach - distance) * norm + 0.02 * relative + 0.1 * tangent + attraction * apart
    pushing: Array = np.where((distance < reach) & (distance > 0), force, 0)
    return pushing


def collided(rng: np.random.Generator) -> Drawn:
    """Make (new velocities, sorted positions and velocities, numbers, begins, ends, how many)."""
    place, speed, cells = particles(rng)
    order = np.argsort(cells, kind="stable").astype(np.uint32)
    place, speed, cells = place[order], speed[order], cells[order]
    found = np.zeros_like(place)
    p, v = place[:, :3].astype(np.float64), speed[:, :3].astype(np.float64)
    forces = pushed(p[None] - p[:, None], 2 * RADIUS, v[None] - v[:, None], 0.05).sum(axis=1)
    forces += pushed(np.array([-0.5, -0.2, 0.1]) - p, RADIUS + 0.3, -v, 0.0)
    wanted = np.zeros((PARTICLES, 4))
    wanted[order, :3] = v + forces
    args = (found, place, speed, order, *ranges(cells), PARTICLES)
    # Of each neighbour some thirty roundings of forces no larger than a velocity; few have ten.
    return args, lambda: near(found, wanted, 300)


EIGENVALUES = f"{FOLDER}/eigenvalues/bisect"
PARTICLE = f"{FOLDER}/particles/particles_kernel_impl.cuh"
CONCEPTS = (
    *(
        sample(f"{FOLDER}/{file}", "sequence_gpu", 3, 96, written(lanes))
        for file in ("inlinePTX/inlinePTX.cu", "inlinePTX_nvrtc/inlinePTX_kernel.cu")
    ),
    sample(f"{FOLDER}/reductionMultiBlockCG/reductionMultiBlockCG.cu",
           "reduceSinglePassMultiBlockCG", 4, 128, summed, shared=1024, cooperative=True),
    sample(f"{FOLDER}/threadMigration/threadMigration_kernel.cu", "kernelFunction", 1, 32,
           written(counted_down)),
    sample(f"{FOLDER}/streamOrderedAllocation/streamOrderedAllocation.cu", "vectorAddGPU", 4, 256,
           added(1000)),
    sample(f"{FOLDER}/streamOrderedAllocationP2P/streamOrderedAllocationP2P.cu",
           "copyP2PAndScale", 4, 256, written(doubled)),
    sample(f"{EIGENVALUES}_small.cu", "bisectKernel", 1, 512, bisected),
    sample(f"{EIGENVALUES}_large.cu", "bisectKernelLarge_OneIntervals", 1, 256,
           bisected_alone),
    sample(f"{EIGENVALUES}_large.cu", "bisectKernelLarge_MultIntervals", 2, 256,
           bisected_together),
    sample(f"{EIGENVALUES}_large.cu", "bisectKernelLarge", 1, 256, bisected_first),
    *(
        sample(f"{FOLDER}/interval/interval.cu", "test_interval_newton<double>", 2, 64, roots(way))
        for way in range(3)
    ),
    sample(PARTICLE, "calcHashD", 3, 128, written(hashed),
           variables={"cudaParams": parameters()}),
    sample(PARTICLE, "reorderDataAndFindCellStartD", 3, 128, reordered, shared=129 * 4),
    sample(PARTICLE, "collideD", 3, 128, collided, variables={"cudaParams": parameters()}),
)  # fmt: skip
