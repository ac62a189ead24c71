"""One block of a Llama-like model with random weights, by PyTorch and by tilewise.

    python examples/llama_block.py --tiny
    python examples/llama_block.py --device cuda --json llama_block.json

As in Llama 3 8B: width 4,096, 32 heads of which each 4 share keys and values, rotated by their
positions, and three linear layers of 14,336 with a SiLU between them; no biases.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from side_by_side import Module, Subject, Tensor, parser, run
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Of the block."""

    width: int = 4096
    heads: int = 32
    kept_heads: int = 8
    inner: int = 14336


def rotated(x: Tensor, first: int) -> Tensor:
    """Rotate pairs of a head's elements by their position, the first of which is ``first``."""
    half = x.shape[-1] // 2
    speeds = 500000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    places = torch.arange(first, first + x.shape[-2], device=x.device, dtype=torch.float32)
    angles = places[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class GatedLayers(nn.Module):  # type: ignore[misc]
    """Three linear layers: SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of (..., width)."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):  # type: ignore[misc]
    """Attention, and then the three linear layers."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, head = sizes.width, sizes.width // sizes.heads
        self.head = head
        self.before_attention, self.before_layers = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, sizes.kept_heads * head, bias=False)
        self.v = nn.Linear(width, sizes.kept_heads * head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.layers = GatedLayers(width, sizes.inner)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Of (batch, positions, width); with a cache, of the one position behind it."""
        first = 0 if cache is None else cache[0].shape[-2]
        y = self.before_attention(x)
        q, k, v = (
            layer(y).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        q, k = rotated(q, first), rotated(k, first)
        if cache is not None:
            k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
        heads = functional.scaled_dot_product_attention(
            q, k, v, is_causal=cache is None, enable_gqa=True
        )
        x = x + self.out(heads.transpose(1, 2).flatten(-2))
        return x + self.layers(self.before_layers(x))


class LlamaSubject(Subject):
    """One block; its loss is the mean square of what it is off random numbers."""

    def __init__(self, sizes: Sizes, batch: int, context: int) -> None:
        self.name, self.sizes, self.of = "a Llama-like block", asdict(sizes), sizes
        self.shape = batch, context

    def model(self) -> Module:
        return Block(self.of)

    def batch(self, device: str, dtype: Any) -> tuple[Tensor, ...]:
        shape = *self.shape, self.of.width
        return tuple(torch.randn(shape).to(device, dtype) for _ in range(2))

    def loss(self, output: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        return functional.mse_loss(output.float(), batch[1].float())

    def decoding(self, device: str, dtype: Any) -> tuple[Any, ...]:
        rows, context = self.shape
        shape = rows, self.of.kept_heads, context, self.of.width // self.of.heads
        cache = tuple(torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
        return torch.randn(rows, 1, self.of.width).to(device, dtype), cache


def main() -> None:
    options = parser(__doc__).parse_args()
    sizes = Sizes()
    if options.tiny:
        sizes = Sizes(width=64, heads=4, kept_heads=2, inner=96)
        options.batch, options.context = min(options.batch, 2), min(options.context, 16)
    run(LlamaSubject(sizes, options.batch, options.context), options)


if __name__ == "__main__":
    main()
