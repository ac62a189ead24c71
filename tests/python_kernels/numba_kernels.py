"""Kernels of Numba's of the kinds that people write: their lines are what the tests name."""

import math

import numba
import numpy as np
from numba import cuda
from numba.cuda.random import xoroshiro128p_uniform_float32

TILE = 16
WEIGHTS = np.array([0.25, 0.5, 0.25], np.float32)


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def add_without_bound(x, y, out):
    i = cuda.grid(1)
    out[i] = x[i] + y[i]  # the bound is missing here


@cuda.jit
def matmul(a, b, c):
    left = cuda.shared.array((TILE, TILE), numba.float32)
    right = cuda.shared.array((TILE, TILE), numba.float32)
    row, column = cuda.grid(2)
    y, x = cuda.threadIdx.x, cuda.threadIdx.y
    total = numba.float32(0)
    for phase in range((a.shape[1] + TILE - 1) // TILE):
        k = phase * TILE
        left[y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else 0
        right[y, x] = b[k + y, column] if k + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for i in range(TILE):
            total += left[y, i] * right[i, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def block_sums(x, out):
    parts = cuda.shared.array(128, numba.int64)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    parts[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            parts[t] += parts[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, parts[0])


@cuda.jit
def block_sums_without_barrier(x, out):
    parts = cuda.shared.array(128, numba.int64)
    t = cuda.threadIdx.x
    parts[t] = x[t]
    if t == 0:
        total = 0
        for i in range(128):
            total += parts[i]  # no barrier after the writes
        out[0] = total


@cuda.jit
def circle(states, tries, out):
    i = cuda.grid(1)
    if i < out.size:
        inside = 0
        for _ in range(tries):
            x = xoroshiro128p_uniform_float32(states, i)
            y = xoroshiro128p_uniform_float32(states, i)
            if x * x + y * y <= 1:
                inside += 1
        out[i] = 4 * inside / tries


@cuda.jit
def heat(now, then, steps):
    i = cuda.grid(1)
    for step in range(steps):
        source, target = (now, then) if step % 2 == 0 else (then, now)
        if 0 < i < now.size - 1:
            target[i] = source[i] + 0.25 * (source[i - 1] - 2 * source[i] + source[i + 1])
        cuda.syncthreads()


@cuda.jit
def reversed_in_block(x, out):
    mine = cuda.shared.array(0, numba.float32)
    t = cuda.threadIdx.x
    mine[t] = x[t]
    cuda.syncthreads()
    out[t] = mine[cuda.blockDim.x - 1 - t]


@cuda.jit(device=True)
def clamp(x, low, high):
    return min(max(x, low), high)


@cuda.jit
def smoothed(x, out):
    weights = cuda.const.array_like(WEIGHTS)
    near = cuda.local.array(3, numba.float32)
    i = cuda.grid(1)
    if i < x.size:
        for k in range(3):
            near[k] = x[clamp(i + k - 1, 0, x.size - 1)]
        total = numba.float32(0)
        for k in range(3):
            total += near[k] * weights[k]
        out[i] = total


@cuda.jit(fastmath=True)
def functions(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = math.sin(x[i])
        out[i, 1] = math.exp(x[i])
        out[i, 2] = math.sqrt(abs(x[i]))
        out[i, 3] = math.erf(x[i])


@cuda.jit
def histogram(x, low, high, counts):
    i = cuda.grid(1)
    if i < x.size:
        at = int((x[i] - low) / (high - low) * counts.size)
        if 0 <= at < counts.size:
            cuda.atomic.add(counts, at, 1)


@cuda.jit
def every_kind(pair, number, flag, record, both, out):
    i = cuda.grid(1)
    if i < out.size and flag:
        out[i] = pair[0][i] * pair[1] + record.scale * number.imag + both[1]


@cuda.jit
def transposed(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[j, i] = x[i, j]


@cuda.jit
def warp_sums(x, out):
    value = x[cuda.grid(1)]
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, distance)
    if cuda.laneid == 0:
        out[cuda.grid(1) // 32] = value


@cuda.jit
def told(x):
    i = cuda.grid(1)
    if i < x.size:
        print("element", i, x[i])


@cuda.jit
def wrong(x):
    x.nothing()


@cuda.jit
def turned(x):
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for row in range(1, x.shape[0]):
        x[row, i] = x[row - 1, x.shape[1] - 1 - i] + 1
        grid.sync()


def calling(function):
    """A kernel that calls a function of two numbers for each element."""

    @cuda.jit
    def each(x, y, out):
        i = cuda.grid(1)
        out[i] = function(x[i], y[i])

    return each


@cuda.jit(device=True)
def reversed_here(x, i):
    values = cuda.shared.array(16, numba.int32)
    values[i] = i
    return values[15 - i] + x[i]


@cuda.jit
def unordered(x, out):
    tile = cuda.shared.array((4, 8), numba.float32)
    values = cuda.shared.array(
        shape=(2, 2, 4),
        dtype=numba.int64,
    )
    i = cuda.threadIdx.x
    tile[1, i] = x[i]
    values[1, i // 4, i % 4] = i
    if x[0] > 0:
        part = cuda.shared.array((2, 4), numba.float32)
        part[1, i % 4] = i
        out[i] = part[1, 3 - i % 4]
    else:
        part = cuda.shared.array((4, 2), numba.float32)
        part[i % 4, 1] = i
        out[i] = part[3 - i % 4, 1]
    mine = cuda.shared.array(0, numba.float32)
    mine[i] = i
    out[i] += mine[7 - i]
    out[i] += tile[1, 7 - i]
    out[i] += values[1, 1 - i // 4, 3]
    out[i] += reversed_here(x, i)


def reversing():
    """A kernel whose qualified name is not a symbol of PTX."""

    @cuda.jit
    def inner(x):
        tile = cuda.shared.array((4, 8), numba.float32)
        i = cuda.threadIdx.x
        tile[1, i] = x[i]
        x[i] = tile[1, 7 - i]

    return inner


class Kernels:
    @cuda.jit
    def reversing(x):
        tile = cuda.shared.array((4, 8), numba.float32)
        i = cuda.threadIdx.x
        tile[1, i] = x[i]
        x[i] = tile[1, 7 - i]


@cuda.jit
def größer(x):
    tile = cuda.shared.array((4, 8), numba.float32)
    i = cuda.threadIdx.x
    tile[1, i] = x[i]
    x[i] = tile[1, 7 - i]


@cuda.jit(device=True)
def twice(i):
    first, second = cuda.shared.array((4, 8), numba.float32), cuda.shared.array((8, 4), numba.int32)
    first[1, i] = i
    second[i, 1] = i
    return first[1, 7 - i] + second[7 - i, 1]


@cuda.jit
def several(x):
    here, there = cuda.shared.array(8, numba.float32), cuda.shared.array(8, numba.float32)
    own, (low, high) = (
        cuda.local.array(8, numba.float32), (cuda.shared.array(8, numba.float32),
        cuda.shared.array(8, numba.float32))
    )  # fmt: skip
    i = cuda.threadIdx.x
    own[0] = here[i] = there[i] = low[i] = high[i] = x[i]
    x[i] = own[0] + here[7 - i] + there[7 - i] + low[7 - i] + high[7 - i] + twice(i)


IN_A_FUNCTION = reversing()
