"""A backend of ``torch.compile`` that records the graphs of the forward and the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def recording() -> tuple[Callable[[Any, Any], Any], list[list[str]]]:
    """Return the backend, and the list to which it appends what each graph calls, by name."""
    from functorch.compile import (
        aot_module_simplified,
        make_boxed_func,
    )

    graphs: list[list[str]] = []

    def look(graph: Any, _: Any) -> Any:
        graphs.append([str(x.target) for x in graph.graph.nodes if x.op == "call_function"])
        return make_boxed_func(graph.forward)

    def backend(graph: Any, inputs: Any) -> Any:
        return aot_module_simplified(graph, inputs, fw_compiler=look, bw_compiler=look)

    return backend, graphs
