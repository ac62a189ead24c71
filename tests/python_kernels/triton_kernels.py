"""Kernels of Triton's of the kinds that people write: their lines are what the tests name."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def add_without_mask(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)  # the mask is missing here
    b = tl.load(y + at, mask=at < n)
    tl.store(out + at, a + b, mask=at < n)


@triton.jit
def softmax(x, out, x_stride, out_stride, rows, columns, WIDTH: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, WIDTH)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        value = tl.load(x + row * x_stride + at, mask=at < columns, other=-float("inf"))
        power = tl.exp(value - tl.max(value, axis=0))
        tl.store(out + row * out_stride + at, power / tl.sum(power, axis=0), mask=at < columns)


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(
    a, b, c, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    group = tl.program_id(0) // (GROUP * tiles_n)
    first = group * GROUP
    height = min(tiles_m - first, GROUP)
    within = tl.program_id(0) % (GROUP * tiles_n)
    tile_m, tile_n = first + within % height, within // height
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    depth = tl.arange(0, BLOCK_K)
    at_a = a + row[:, None] * stride_am + depth[None, :] * stride_ak
    at_b = b + depth[:, None] * stride_bk + column[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        left = tl.load(at_a, mask=depth[None, :] < k - step * BLOCK_K, other=0.0)
        right = tl.load(at_b, mask=depth[:, None] < k - step * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=ACCUMULATOR)
        at_a += BLOCK_K * stride_ak
        at_b += BLOCK_K * stride_bk
    if ACTIVATION == "leaky":
        total = leaky(total)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    at_c = c + row[:, None] * stride_cm + column[None, :] * stride_cn
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(at_c, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def matmul_of_descriptors(
    a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    of_a = tl.make_tensor_descriptor(a, (m, k), (k, 1), (BLOCK_M, BLOCK_K))
    of_b = tl.make_tensor_descriptor(b, (k, n), (n, 1), (BLOCK_K, BLOCK_N))
    of_c = tl.make_tensor_descriptor(c, (m, n), (n, 1), (BLOCK_M, BLOCK_N))
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(0, k, BLOCK_K):
        total = tl.dot(of_a.load([row, depth]), of_b.load([depth, column]), total)
    of_c.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def matmul_of_given_descriptors(
    of_a, of_b, of_c, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(0, k, BLOCK_K):
        total = tl.dot(of_a.load([row, depth]), of_b.load([depth, column]), total)
    of_c.store([row, column], total.to(tl.float16))


@triton.jit
def layer_norm(x, out, weight, bias, means, inverses, stride, n, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    mean = 0.0
    partial = tl.zeros([WIDTH], dtype=tl.float32)
    for start in range(0, n, WIDTH):
        at = start + tl.arange(0, WIDTH)
        partial += tl.load(x + row * stride + at, mask=at < n, other=0).to(tl.float32)
    mean = tl.sum(partial, axis=0) / n
    partial = tl.zeros([WIDTH], dtype=tl.float32)
    for start in range(0, n, WIDTH):
        at = start + tl.arange(0, WIDTH)
        value = tl.load(x + row * stride + at, mask=at < n, other=0).to(tl.float32)
        value = tl.where(at < n, value - mean, 0.0)
        partial += value * value
    inverse = 1 / tl.sqrt(tl.sum(partial, axis=0) / n + eps)
    tl.store(means + row, mean)
    tl.store(inverses + row, inverse)
    for start in range(0, n, WIDTH):
        at = start + tl.arange(0, WIDTH)
        value = tl.load(x + row * stride + at, mask=at < n, other=0).to(tl.float32)
        w, b = tl.load(weight + at, mask=at < n), tl.load(bias + at, mask=at < n)
        tl.store(out + row * stride + at, (value - mean) * inverse * w + b, mask=at < n)


@triton.jit
def layer_norm_gradients(
    dx, dy, dws, dbs, x, weight, means, inverses, locks, stride, n,
    GROUP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < n
    of_row = row * stride + at
    value = tl.load(x + of_row, mask=inside, other=0).to(tl.float32)
    grad = tl.load(dy + of_row, mask=inside, other=0).to(tl.float32)
    w = tl.load(weight + at, mask=inside).to(tl.float32)
    inverse = tl.load(inverses + row)
    normal = tl.where(inside, (value - tl.load(means + row)) * inverse, 0.0)
    scaled = tl.where(inside, w * grad, 0.0)
    along = tl.sum(normal * scaled, axis=0) / n
    whole = tl.sum(scaled, axis=0) / n
    tl.store(dx + of_row, (scaled - normal * along - whole) * inverse, mask=inside)
    slot = row % GROUP
    dw, db = grad * normal, grad
    while tl.atomic_cas(locks + slot, 0, 1) == 1:
        pass
    if tl.load(locks + GROUP + slot) == 0:
        tl.atomic_xchg(locks + GROUP + slot, 1)
    else:
        dw += tl.load(dws + slot * n + at, mask=inside)
        db += tl.load(dbs + slot * n + at, mask=inside)
    tl.store(dws + slot * n + at, dw, mask=inside)
    tl.store(dbs + slot * n + at, db, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(locks + slot, 0)


@triton.jit
def sum_of_rows(parts, out, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, m, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)
        inside = (row[:, None] < m) & (column[None, :] < n)
        total += tl.load(parts + row[:, None] * n + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, axis=0), mask=column < n)


@triton.jit
def attention(
    q, k, v, out, logs, scale, stride_head, n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DEPTH: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    q, k, v, out = (
        q + tl.program_id(1) * stride_head, k + tl.program_id(1) * stride_head,
        v + tl.program_id(1) * stride_head, out + tl.program_id(1) * stride_head,
    )  # fmt: skip
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, DEPTH)
    query = tl.load(q + row[:, None] * DEPTH + depth[None, :], mask=row[:, None] < n, other=0)
    most = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, DEPTH), tl.float32)
    end = (tl.program_id(0) + 1) * BLOCK_M if IS_CAUSAL else n
    for start in range(0, end, BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)
        key = tl.load(
            k + column[None, :] * DEPTH + depth[:, None], mask=column[None, :] < n, other=0
        )
        score = tl.dot(query, key) * (scale * 1.44269504)
        allowed = column[None, :] < n
        if IS_CAUSAL:
            allowed = allowed & (column[None, :] <= row[:, None])
        score = tl.where(allowed, score, -1.0e6)
        above = tl.maximum(most, tl.max(score, 1))
        power = tl.math.exp2(score - above[:, None])
        shrink = tl.math.exp2(most - above)
        weight = weight * shrink + tl.sum(power, 1)
        value = tl.load(
            v + column[:, None] * DEPTH + depth[None, :], mask=column[:, None] < n, other=0
        )
        total = tl.dot(power.to(v.dtype.element_ty), value, total * shrink[:, None])
        most = above
    tl.store(logs + tl.program_id(1) * n + row, most + tl.math.log2(weight), mask=row < n)
    at = out + row[:, None] * DEPTH + depth[None, :]
    tl.store(at, (total / weight[:, None]).to(out.dtype.element_ty), mask=row[:, None] < n)


@triton.jit
def histogram(x, counts, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(counts + bins, 1, mask=at < n)


@triton.jit
def extremes(x, least, most, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_min(least, tl.min(tl.where(at < n, value, float("inf")), 0))
    tl.atomic_max(most, tl.max(tl.where(at < n, value, -float("inf")), 0))
    tl.atomic_add(total, tl.sum(value, 0))


@triton.jit
def running_sum(x, out, last, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    row = tl.program_id(0) * WIDTH
    value = tl.load(x + row + at)
    tl.store(out + row + at, tl.cumsum(value, 0))
    tl.store(last + tl.program_id(0), tl.argmax(value, 0))


@triton.jit
def sorted_rows(x, out, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def transposed(x, out, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < m) & (column[None, :] < n)
    value = tl.load(x + row[:, None] * n + column[None, :], mask=inside)
    tl.store(out + column[:, None] * m + row[None, :], tl.trans(value), mask=tl.trans(inside))


@triton.jit
def every_kind(pair, nothing, factor, one, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(pair[0] + at, mask=at < n) * pair[1] * factor + one
    if nothing is not None:
        value += tl.load(nothing + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)


@triton.jit
def dropped(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(tl.rand(seed, at) > p, value / (1 - p), 0.0), mask=at < n)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 256}, num_warps=8),
    ],
    key=["n"],
)
@triton.heuristics({"IS_EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr, IS_EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if IS_EVEN:
        tl.store(out + at, 2 * tl.load(x + at))
    else:
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def told(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.device_print("value", value)


@triton.jit
def wrong(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.zeros((BLOCK, BLOCK), tl.float32))


@triton.jit
def raced(x, counter, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + tl.program_id(0))  # every program adds to the same


@triton.jit
def turned(count, x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, at + 1)
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="release")
    while tl.atomic_add(count, 0, sem="acquire") < tl.num_programs(0):
        pass
    tl.debug_barrier()
    tl.store(out + at, tl.load(x + tl.num_programs(0) * BLOCK - 1 - at))
