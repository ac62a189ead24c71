"""GPT-2 small with random weights, by PyTorch and by tilewise.

    python examples/gpt2.py --tiny
    python examples/gpt2.py --device cuda --json gpt2.json

Its vocabulary has 50,257 words, not padded: the logits' rows begin at odd addresses.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from side_by_side import Module, Subject, Tensor, parser, run
from torch import nn
from torch.nn import functional

Cache = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    vocabulary: int = 50257
    width: int = 768
    heads: int = 12
    layers: int = 12


class Block(nn.Module):  # type: ignore[misc]
    """Attention, and then two linear layers with a GELU between them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None) -> Tensor:
        """Of (batch, positions, width); with a cache, of the one position behind it."""
        qkv = self.qkv(self.before_attention(x))
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in qkv.chunk(3, -1)
        )
        if cache is not None:
            k, v = (
                torch.cat((old, new.to(old.dtype)), -2)
                for old, new in zip(cache, (k, v), strict=True)
            )
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(heads.transpose(1, 2).flatten(-2))
        return x + self.layers(self.before_layers(x))


class Gpt2(nn.Module):  # type: ignore[misc]
    """Logits of the next word for every position."""

    def __init__(self, sizes: Sizes, positions: int) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(positions, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.logits = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        for each in self.parameters():
            if each.ndim > 1:
                nn.init.normal_(each, std=0.02)
        self.logits.weight = self.words.weight

    def forward(self, words: Tensor, cache: Cache | None = None) -> Tensor:
        """Of (batch, positions); with a cache, of the one position behind it."""
        first = 0 if cache is None else cache[0][0].shape[-2]
        last = first + words.shape[-1]
        x = self.words(words) + self.positions.weight[first:last]
        for i, block in enumerate(self.blocks):
            x = block(x, None if cache is None else cache[i])
        return self.logits(self.norm(x))


class Gpt2Subject(Subject):
    """GPT-2 small, or a tiny one."""

    def __init__(self, sizes: Sizes, batch: int, context: int) -> None:
        self.name, self.sizes, self.of = "GPT-2", asdict(sizes), sizes
        self.shape = batch, context

    def model(self) -> Module:
        return Gpt2(self.of, self.shape[1] + 1)

    def batch(self, device: str, dtype: Any) -> tuple[Tensor, ...]:
        rows, context = self.shape
        words = torch.randint(self.of.vocabulary, (rows, context + 1)).to(device)
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def loss(self, output: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        return functional.cross_entropy(output.flatten(0, -2).float(), batch[1].flatten())

    def decoding(self, device: str, dtype: Any) -> tuple[Any, ...]:
        rows, context = self.shape
        shape = rows, self.of.heads, context, self.of.width // self.of.heads
        cache = [
            tuple(torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
            for _ in range(self.of.layers)
        ]
        return torch.randint(self.of.vocabulary, (rows, 1)).to(device), cache


def main() -> None:
    options = parser(__doc__).parse_args()
    sizes = Sizes()
    if options.tiny:
        sizes = Sizes(vocabulary=257, width=48, heads=3, layers=2)
        options.batch, options.context = min(options.batch, 2), min(options.context, 16)
    run(Gpt2Subject(sizes, options.batch, options.context), options)


if __name__ == "__main__":
    main()
