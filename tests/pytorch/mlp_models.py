"""Modules whose ``forward`` is an MLP, and some that only look like one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import functional


class Up(nn.Module):  # type: ignore[misc]
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8, bias=bias), nn.Linear(8, 8, bias=bias)

    def forward(self, x: Any) -> Any:
        """Of (..., 8)."""
        hidden = F.gelu(self.one(x), approximate="tanh")
        return self.other(hidden)


class Gated(nn.Module):  # type: ignore[misc]
    """As transformers' LlamaMLP has it."""

    def __init__(self, bias: bool = False, act: Callable[[], Any] = nn.SiLU) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(8, 8, bias=bias) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(8, 8, bias=bias), act()

    def forward(self, x):  # type: ignore[no-untyped-def]
        down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return down_proj  # noqa: RET504


class Reversed(Gated):
    def forward(self, x: Any) -> Any:
        return self.down_proj(self.up_proj(x) * functional.relu(self.gate_proj(x)))


class Inherited(Gated):
    pass


class Scaled(Gated):
    def forward(self, x: Any) -> Any:
        return 2 * self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class OfTwo(Gated):
    def forward(self, x: Any, scale: Any = 1) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Branching(Up):
    def forward(self, x: Any) -> Any:
        if self.training:
            return self.other(F.gelu(self.one(x)))
        return self.other(self.one(x))


class Twice(Up):
    def forward(self, x: Any) -> Any:
        return self.one(F.relu(self.one(x)))


class OfAnother(Up):
    def forward(self, x: Any) -> Any:
        hidden = F.relu(self.one(x))  # noqa: F841
        return self.other(x)


class Unknown(Up):
    def forward(self, x: Any) -> Any:
        return self.other(F.elu(self.one(x)))


def shadowed(x: Any) -> Any:
    return x


class Shadowed(Up):
    def forward(self, x: Any) -> Any:
        F = torch
        return self.other(F.relu(self.one(x)))


class OwnFunction(Up):
    def forward(self, x: Any) -> Any:
        return self.other(shadowed(self.one(x)))


TABLE: Any = {}


class Unhashable(Up):
    def forward(self, x: Any) -> Any:
        return self.other(TABLE(self.one(x)))


class OwnAttributes(Up):
    def __getattr__(self, name: str) -> Any:
        return super().__getattr__({"one": "other", "other": "one"}.get(name, name))


class Rebound(Up):
    def forward(self, x: Any) -> Any:
        self = torch.nn.ModuleDict({"one": nn.ReLU(), "other": nn.ReLU()})
        return self.other(F.relu(self.one(x)))


class Chained(Up):
    def forward(self, x: Any) -> Any:
        hidden = y = F.relu(self.one(x))
        return self.other(hidden) + 0 * y


class InBlock(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Gated()

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.norm(x))


class _Calling(nn.Module):  # type: ignore[misc]
    def __call__(self, x: Any) -> Any:
        return 2 * super().__call__(x)


class Called(_Calling, Up):
    def forward(self, x: Any) -> Any:
        return self.other(F.relu(self.one(x)))


class Locked(Up):
    """One that holds what can't be pickled, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __getstate__(self) -> Any:
        return {name: value for name, value in vars(self).items() if name != "lock"}
