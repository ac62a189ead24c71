"""What ``torch.compile`` is told of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def constant_in_graphs(function: Function) -> Function:
    """Let graphs take what a function returns for a constant.

    ``torch.compiler.assume_constant_result`` does this and no more, but it imports the compiler,
    which takes as long as all the rest of PyTorch.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
