"""Triton's tutorials (github.com/triton-lang/triton, python/tutorials), called as they call them.

A tutorial is a program: what its kernels need, the kernels, functions that launch them, and then
it tries and times them at sizes for a GPU. Here it is loaded up to there, and its own functions are
called at small sizes. Needs Triton, PyTorch (its build for CPUs is enough) and, as the tutorials
do, tabulate and pytest.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import tilewise
from projects.case import Array, Program, same, within
from projects.rounded import Rounded
from tilewise.devices import Device
from tilewise.launch import LaunchReport

EIGHTH = torch.float8_e5m2
HALF = torch.finfo(torch.float16)
Call = Callable[[ModuleType, np.random.Generator], str]


def loaded(path: Path) -> ModuleType:
    """Load what a tutorial defines: all of it up to its first bare call, then functions alone."""
    kept: list[ast.stmt] = []
    is_trying = False
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        is_trying |= isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if not is_trying or (
            isinstance(statement, ast.FunctionDef)
            and all(ast.unparse(each) == "triton.jit" for each in statement.decorator_list)
        ):
            kept.append(statement)
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(ast.Module(kept, []), str(path), "exec"), vars(module))
    return module


def tutorial(file: str, kernel: str, call: Call, fault: str = "") -> tuple[Program, Program]:
    """Return a call of a tutorial's functions, on both architectures."""

    def run(
        path: Path, device: Device, rng: np.random.Generator
    ) -> tuple[Sequence[LaunchReport], str]:
        with tilewise.triton.on_device(device, checks="collect") as reports:
            module = loaded(path)
            reports.clear()  # what a tutorial tried on its way
            wrong = call(module, rng)
        return reports, wrong

    name = f"python/tutorials/{file}.py"
    old, new = (Program(name, kernel, run, arch, fault) for arch in ("sm_80", "sm_90a"))
    return old, new


def normal(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Any:
    """Draw a tensor of normal numbers."""
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def exact(tensor: Any) -> Array:
    """Return a tensor's numbers in float64."""
    found: Array = tensor.detach().double().numpy()
    return found


def held(found: Any, wanted: Rounded, what: str) -> str:
    """Say where a tensor is not what it should be."""
    return within(exact(found), wanted.value, wanted.error, what)


def vector_add(tutorial: Any, rng: np.random.Generator) -> str:
    x, y = normal(rng, 5001), normal(rng, 5001)
    return same(tutorial.add(x, y).numpy(), x.numpy() + y.numpy())


def softmax(tutorial: Any, rng: np.random.Generator) -> str:
    x = normal(rng, 37, 781)
    value = exact(x)
    powers = (Rounded(value) - Rounded(value.max(1, keepdims=True))).exp()
    return held(tutorial.softmax(x), powers / powers.sum(1), "the softmax")


def product(tutorial: Any, rng: np.random.Generator) -> str:
    a = normal(rng, 200, 136, dtype=torch.float16)
    b = normal(rng, 136, 300, dtype=torch.float16)
    return right_half(tutorial.matmul(a, b), Rounded(exact(a)) @ Rounded(exact(b)))


def odd_product(tutorial: Any, rng: np.random.Generator) -> str:
    a = normal(rng, 130, 67, dtype=torch.float16)
    b = normal(rng, 67, 259, dtype=torch.float16)
    found = tutorial.matmul(a, b, activation="leaky_relu")
    plain = Rounded(exact(a)) @ Rounded(exact(b))
    slope = np.where(plain.value >= 0, 1, 0.01)
    # A sum that rounding carries over zero is off by no more than before.
    bent = Rounded(plain.value * slope, plain.error * 1.01)
    return right_half(found, bent)


def short_product(tutorial: Any, rng: np.random.Generator) -> str:
    a = normal(rng, 128, 256).to(torch.float8_e5m2)
    b = normal(rng, 256, 256).T.to(torch.float8_e5m2)
    return right_half(tutorial.matmul(a, b), Rounded(exact(a)) @ Rounded(exact(b)))


def right_half(found: Any, wanted: Rounded) -> str:
    """Say where a product that is stored in float16 is wrong."""
    return held(found, wanted.stored(HALF), "the product")


def dropout(tutorial: Any, rng: np.random.Generator) -> str:
    x, p = normal(rng, 3001), 0.3
    keep = torch.from_numpy(rng.integers(0, 2, 3001, dtype=np.int32))
    return dropped(tutorial.dropout(x, keep, p), x, keep.numpy() == 1, p)


def seeded_dropout(tutorial: Any, rng: np.random.Generator) -> str:
    x, p, seed = normal(rng, 3001), 0.3, 123
    # Triton makes a number from 0 to 1 of the first word's 31 bits (tl.rand).
    words = philox(np.arange(3001, dtype=np.uint64), seed).astype(np.uint32).view(np.int32)
    drawn = np.where(words < 0, ~words, words).astype(np.float32) * np.float32(4.6566127342e-10)
    return dropped(tutorial.seeded_dropout(x, p, seed), x, drawn > np.float32(p), p)


def dropped(found: Any, x: Any, keep: Array, p: float) -> str:
    """Say where a dropout is wrong."""
    kept = Rounded(exact(x)) / (Rounded(1) - Rounded(np.float32(p)))
    zeros = Rounded(np.where(keep, kept.value, 0), np.where(keep, kept.error, 0))
    return held(found, zeros, "the dropout")


def philox(counter: Array, key: int) -> Array:
    """Return the first word of Philox-4x32-10 (Salmon et al., SC11) of (counter, 0, 0, 0)."""
    low = np.uint64(0xFFFFFFFF)
    zero = np.zeros_like(counter)
    words, keys = [counter, zero, zero, zero], [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, third = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        k0, k1 = (np.uint64(each) for each in keys)
        words = [
            (third >> np.uint64(32)) ^ words[1] ^ k0, third & low,
            (first >> np.uint64(32)) ^ words[3] ^ k1, first & low,
        ]  # fmt: skip
        steps = (0x9E3779B9, 0xBB67AE85)
        keys = [(each + step) & 0xFFFFFFFF for each, step in zip(keys, steps, strict=True)]
    return words[0]


def layer_norm(dtype: torch.dtype) -> Call:
    """Return a call of the layer norm, forward and backward, in a dtype."""

    def call(tutorial: Any, rng: np.random.Generator) -> str:
        m, n, eps = 260, 70, 1e-5  # more rows than locks, and one column block that is not full
        x = (-2.3 + 0.5 * normal(rng, m, n)).to(dtype).requires_grad_()
        w, b = (torch.from_numpy(rng.random(n)).to(dtype).requires_grad_() for _ in range(2))
        dy = 0.1 * normal(rng, m, n, dtype=dtype)
        y = tutorial.layer_norm(x, (n,), w, b, eps)
        y.backward(dy)

        def short(value: Rounded) -> Rounded:
            return value if dtype == torch.float32 else value.stored(HALF)

        given, weight, slope = (Rounded(exact(each)) for each in (x, w, dy))
        count, one = Rounded(n), Rounded(1)
        off = given - given.sum(1) / count
        scale = one / ((off * off).sum(1) / count + Rounded(np.float32(eps))).sqrt()
        hat, pulled = off * scale, weight * slope
        across, along = (hat * pulled).sum(1) / count, pulled.sum(1) / count
        # Sums over rows: those of a lock are rounded to the weights' dtype each time.
        parts = short(slope * hat), slope
        both = [Rounded(p.value, p.error + partly(p, m, dtype)).sum(0) for p in parts]
        wanted = {
            "y": (y, hat * weight + Rounded(exact(b))),
            "dx": (x.grad, (pulled - (hat * across + along)) * scale),
            "dw": (w.grad, both[0][0]),
            "db": (b.grad, both[1][0]),
        }
        said = [held(found, short(value), name) for name, (found, value) in wanted.items()]
        return "; ".join(filter(None, said))

    return call


def partly(terms: Rounded, rows: int, dtype: torch.dtype) -> Array:
    """Return the error that a row's part may have with 256 locks, each of at most two rows."""
    if dtype == torch.float32:
        return np.zeros(terms.value.shape)
    largest = 2 * (np.abs(terms.value) + terms.error).max(0)
    # Each lock's sum is rounded once more where it has two rows: of all rows, those past 256.
    return np.broadcast_to(2.0**-11 * largest * (rows - 256) / rows, terms.value.shape)


def attention(is_causal: bool, dtype: torch.dtype = torch.float16, heads: int = 2) -> Call:
    """Return a call of the attention: forward, and in float16 backward, too."""

    def call(tutorial: Any, rng: np.random.Generator) -> str:
        shape, scale = (1, heads, 256, 64), 0.5
        q, k, v = (0.5 * normal(rng, *shape, dtype=torch.float16) for _ in range(3))
        q, k = q.to(dtype).requires_grad_(), k.to(dtype).requires_grad_()
        # In float8 the tutorial has the keys' axis last in memory.
        v = (v if dtype == torch.float16 else v.mT.contiguous().mT).to(dtype).requires_grad_()
        out = tutorial.attention(q, k, v, is_causal, scale, False)
        a, b, c = (Rounded(exact(each)) for each in (q, k, v))
        wanted, total = attended(a, b, c, scale, is_causal, torch.finfo(dtype))
        said = [held(out, wanted, "the attention")]
        if dtype == torch.float16:
            slope = normal(rng, *shape, dtype=dtype)
            out.backward(slope)
            pulled = Rounded(exact(slope))
            slopes = attended_back(a, b, c, wanted, pulled, total, scale, is_causal)
            for name, each, value in zip("qkv", (q, k, v), slopes, strict=True):
                said.append(held(each.grad, value.stored(HALF), f"d{name}"))
        return "; ".join(filter(None, said))

    return call


def visible(powers: Rounded, is_causal: bool) -> Rounded:
    """Return the powers of the keys that each query (a row) sees, and zeros for the others."""
    return Rounded(np.tril(powers.value), np.tril(powers.error)) if is_causal else powers


def attended(
    q: Rounded, k: Rounded, v: Rounded, scale: float, is_causal: bool, about: Any
) -> tuple[Rounded, Rounded]:
    """Return softmax(scale Q K') V, and a query's logarithm to 2 of the sum of its powers."""
    # The scale is multiplied by log2(e), of which each is rounded.
    scores = (q @ k.mT * Rounded(scale * math.log2(math.e))).again(3)
    hidden = np.triu(np.ones(scores.value.shape[-2:], bool), 1) & is_causal
    most = np.where(hidden, -np.inf, scores.value).max(-1, keepdims=True)
    powers = visible((scores - Rounded(most)).exp2(), is_causal)
    # The largest score rises from one block of 32 keys to the next, or more of them, and what
    # was added up is multiplied by 2 to the power of the difference.
    blocks, rise = k.value.shape[-2] // 32, 2 * float(np.abs(scores.value).max())
    total = powers.sum(-1).again(6 * blocks + rise)
    out = (powers.stored(about) @ v).again(6 * blocks + rise) / total
    return out.stored(about), Rounded(most) + total.log2()


def attended_back(
    q: Rounded, k: Rounded, v: Rounded, out: Rounded, slope: Rounded, total: Rounded,
    scale: float, is_causal: bool,
) -> tuple[Rounded, Rounded, Rounded]:  # fmt: skip
    """Return the slopes of Q, K and V."""
    scaled = (k * Rounded(scale * math.log2(math.e))).stored(HALF)
    powers = visible((q @ scaled.mT - total).exp2(), is_causal)
    pulled = (powers * (slope @ v.mT - (out * slope).sum(-1))).stored(HALF)
    return (
        (pulled @ scaled * Rounded(math.log(2))).again(1),
        (pulled.mT @ q * Rounded(scale)).again(1),
        powers.stored(HALF).mT @ slope,
    )


CASES = (
    *tutorial("01-vector-add", "add_kernel", vector_add),
    *tutorial("02-fused-softmax", "softmax_kernel", softmax),
    *tutorial("03-matrix-multiplication", "matmul_kernel, float16", product),
    *tutorial("03-matrix-multiplication", "matmul_kernel, float16, odd sizes", odd_product),
    *tutorial("03-matrix-multiplication", "matmul_kernel, float8", short_product),
    *tutorial("04-low-memory-dropout", "_dropout", dropout),
    *tutorial("04-low-memory-dropout", "_seeded_dropout", seeded_dropout),
    *tutorial("05-layer-norm", "forward and backward, float32", layer_norm(torch.float32)),
    *tutorial("05-layer-norm", "forward and backward, float16", layer_norm(torch.float16)),
    *tutorial("06-fused-attention", "forward and backward, float16", attention(False)),
    *tutorial("06-fused-attention", "forward and backward, float16, causal", attention(True)),
    *tutorial("06-fused-attention", "forward, float8, one head", attention(False, EIGHTH, 1)),
    *tutorial(
        "06-fused-attention",
        "forward, float8, two heads",
        attention(False, EIGHTH),
        "the descriptor of V ends behind the first head, and the second one's V is read as zeros; "
        "the tutorial's own test allows an error of 3",
    ),
)
