"""Time what gradients, linear layers and PyTorch's dispatcher add to a call's cost on the host.

    python benchmarks/operator_cost.py [--device cuda] [--json FILE]

A figure is the µs of one call, the median of the rounds. A round calls one function --calls times
in a row without a wait for the GPU, and all functions take turns. The products are so small that
their own time does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from command_line import add_json, parser_of

import tilewise.torch
from tilewise.arrays.dispatched import answer, route
from tilewise.epilogue.derivative import trained
from tilewise.epilogue.written import written
from tilewise.provenance import write
from tilewise.torch.activations import epilogue_of

SIZE = 16


def works(device: str, dtype: Any) -> dict[str, Callable[[], object]]:
    """Return the functions that are timed, by name."""
    x, w, bias = (torch.randn(shape) for shape in ((SIZE, SIZE), (SIZE, SIZE), (SIZE,)))
    x, w, bias = (each.to(device, dtype) for each in (x, w, bias))
    leaf, of_d = torch.nn.Parameter(w), torch.randn(SIZE, SIZE).to(device, dtype)
    out, added = torch.empty_like(x), torch.nn.Parameter(bias)
    biased = tilewise.Epilogue(lambda acc, bias: acc + bias)
    experts, ends = w.expand(2, SIZE, SIZE).contiguous(), torch.tensor([SIZE // 2, SIZE])
    ends = ends.to(device, torch.int32)
    functional, ours = torch.nn.functional, tilewise.torch
    operators = torch.ops.tilewise
    operator, layer, of_layer = (
        each.default for each in (operators.matmul, operators.linear, operators.linear_backward)
    )
    # An MLP as a graph calls it: the text of its activation, and that of its derivative.
    activation = epilogue_of("gelu_tanh", 1, True)
    text, made = written(activation), trained(activation, (0,)).backward((0,))
    derivative = written(made.function)

    # No tensor is given twice: a cached call takes none twice.
    down, down_bias, hidden = w.clone(), bias.clone(), x.clone()
    kept = [x.clone() for _ in made.operands]

    def mlp_in_graph() -> object:
        return operators.mlp.default(x, [w], [bias], down, down_bias, text, [0], True)

    def mlp_backward_in_graph() -> object:
        return operators.mlp_backward.default(of_d, x, [w], down, hidden, kept, derivative)

    def backward(function: Callable[[Any, Any], Any]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x, leaf), leaf, of_d)

    return {
        "tilewise's kernels alone": lambda: answer(x, w, transpose_b=True),
        "the choice of the way": lambda: route(x, w),
        "tilewise.matmul": lambda: tilewise.matmul(x, w, transpose_b=True),
        "tilewise.matmul, out": lambda: tilewise.matmul(x, w, transpose_b=True, out=out),
        "tilewise.matmul, epilogue": lambda: tilewise.matmul(
            x, w, transpose_b=True, epilogue=biased, bias=bias
        ),
        "tilewise.matmul, epilogue and out": lambda: tilewise.matmul(
            x, w, transpose_b=True, epilogue=biased, bias=bias, out=out
        ),
        "tilewise.grouped_matmul": lambda: tilewise.grouped_matmul(x, experts, ends),
        "tilewise.torch.matmul": lambda: ours.matmul(x, w, transpose_b=True),
        "torch.ops.tilewise.matmul": lambda: operator(x, w.mT),
        "torch.ops.tilewise.linear": lambda: layer(x, w, bias),
        "torch.ops.tilewise.linear_backward": lambda: of_layer(of_d, x, w),
        "torch.ops.tilewise.mlp": mlp_in_graph,
        "torch.ops.tilewise.mlp_backward": mlp_backward_in_graph,
        "tilewise.torch.linear": lambda: ours.linear(x, w),
        "F.linear": lambda: functional.linear(x, w),
        "tilewise.torch.linear, bias": lambda: ours.linear(x, w, bias),
        "F.linear, bias": lambda: functional.linear(x, w, bias),
        "tilewise.torch.linear, recorded": lambda: ours.linear(x, leaf),
        "F.linear, recorded": lambda: functional.linear(x, leaf),
        "tilewise.torch.linear, bias, recorded": lambda: ours.linear(x, leaf, added),
        "F.linear, bias, recorded": lambda: functional.linear(x, leaf, added),
        "tilewise.torch.linear and backward": backward(ours.linear),
        "F.linear and backward": backward(functional.linear),
    }


def microseconds(
    timed: dict[str, Callable[[], object]], device: str, calls: int, rounds: int
) -> dict[str, float]:
    """Return the µs of one call of each function, the median of the rounds after the first one."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    found: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds + 1):
        for name, work in timed.items():
            wait()
            start = time.perf_counter()
            for _ in range(calls):
                work()
            if turn:  # the first one warms up
                found[name].append(1e6 * (time.perf_counter() - start) / calls)
    wait()
    return {name: median(each) for name, each in found.items()}


def main() -> None:
    """Measure, print and write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--calls", type=int, default=250, help="in a row: no queue fills")
    parser.add_argument("--rounds", type=int, default=9)
    add_json(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    timed = works(options.device, getattr(torch, options.dtype))
    found = microseconds(timed, options.device, options.calls, options.rounds)
    for name, value in found.items():
        print(f"{name:36} {value:8.2f} µs")
    if options.json:
        kept = {name: getattr(options, name) for name in ("device", "dtype", "calls", "rounds")}
        write(options.json, {**kept, "microseconds": found})


if __name__ == "__main__":
    main()
