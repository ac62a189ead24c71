"""Functions and modules of PyTorch as an epilogue: the message says what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.epilogue.foreign import OURS
from tilewise.errors import TraceError


def test_what_is_named_is_there() -> None:
    assert all(callable(getattr(tilewise, name)) for name in OURS.values())


def refused(epilogue: Any) -> str:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(TraceError) as found:
        tilewise.matmul(a, a, epilogue=epilogue)
    return str(found.value)


@pytest.mark.parametrize(
    ("name", "given", "written"),
    [
        ("SiLU", {}, "lambda acc: tilewise.silu(acc)"),
        ("ReLU", {}, "lambda acc: tilewise.relu(acc)"),
        ("GELU", {"approximate": "tanh"}, "lambda acc: tilewise.gelu(acc, 'tanh')"),
        ("Softplus", {}, "lambda acc: tilewise.softplus(acc)"),
        ("LeakyReLU", {"negative_slope": 0.2}, "lambda acc: tilewise.leaky_relu(acc, 0.2)"),
    ],
)
def test_a_module(torch: Any, name: str, given: dict[str, Any], written: str) -> None:
    message = refused(getattr(torch.nn, name)(**given))
    assert message.startswith(f"torch.nn.{name} is a module of PyTorch")
    assert message.endswith(f"write epilogue={written}")
    a = np.ones((2, 2), np.float32)
    own = eval(written, {"tilewise": tilewise})  # what is advised works
    assert tilewise.matmul(a, a, epilogue=own).shape == (2, 2)


def test_a_module_that_has_no_counterpart_and_one_of_ones_own(torch: Any) -> None:
    class Twice(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return 2 * x

    given = (torch.nn.Softmax(-1), "torch.nn.Softmax"), (Twice(), "Twice")
    for module, name in (*given, (torch.nn.Softplus(beta=2), "torch.nn.Softplus")):
        message = refused(module)
        assert f"{name} is a module of PyTorch" in message
        assert "give a function of the accumulator" in message


def test_functions(torch: Any) -> None:
    assert "lambda acc: tilewise.relu(acc)" in refused(torch.relu)
    assert "torch.silu can't be traced; tilewise.silu can" in refused(torch.nn.functional.silu)
    assert "tilewise has functions" in refused(lambda acc: torch.fft.fft(acc))
