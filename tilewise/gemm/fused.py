"""How kernels take the function of an epilogue: as a macro, and its operands as an argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import Protocol

from tilewise.epilogue import Traced
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.product import ACCUMULATORS, FIRST_FUSED, REAL
from tilewise.gemm.steps import KERNELS, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "fused.cuh"
MOST = 8
"""The arrays that a function may have, and the numbers (fused.cuh)."""

Access = tuple[str, str, str]
"""An array's dtype, and how its address depends on the row and on the column (fused.cuh)."""


class Fusing(Protocol):
    """A product with an epilogue, or None for none, and the dtype of A and B."""

    @property
    def dtype(self) -> str: ...
    @property
    def epilogue(self) -> Epilogue | None: ...


def step(kernel: Kernel, launch: Launch, product: Fusing) -> Step:
    """Return the launch of a kernel that stores a product's D, with the product's epilogue if any.

    Parameters
    ----------
    kernel : Kernel
        Of a source that takes FUSED_PARAMETER (fused.cuh).
    launch : Launch
        With the kernel's other arguments.
    product : Fusing
        As the kernel sees it: transposed, where it computes D's transpose.
    """
    epilogue = product.epilogue
    if epilogue is None:
        return Step(kernel, launch)
    inputs = tuple(_access(x) if isinstance(x, Strided) else None for x in epilogue.inputs)
    body = _body(epilogue.function, inputs, tuple(_access(x) for x in epilogue.results))
    arrays = [
        {
            "pointer": Place(FIRST_FUSED + i), "row_stride": x.row_stride,
            "column_stride": x.column_stride, "batch_stride": x.batch_stride,
        }
        for i, x in enumerate(epilogue.arrays)
    ]  # fmt: skip
    scalars = [{"value": x} for x in epilogue.scalars]
    given = layout(SOURCE, "Fused").pack({"arrays": arrays, "scalars": scalars})
    fusing = _fusing(kernel, body, REAL[ACCUMULATORS[product.dtype]])
    return Step(fusing, replace(launch, args=(*launch.args, given)))


@lru_cache(maxsize=KERNELS)
def _fusing(kernel: Kernel, body: str, real: str) -> Kernel:
    """Return the kernel with a function's body; the same object each time."""
    return kernel.with_macros({"EPILOGUE": body, "real": real})


def _access(x: Strided) -> Access:
    row, column = (
        "NOT" if stride == 0 else "BY_ONE" if stride == 1 else "BY_STRIDE"
        for stride in (x.row_stride, x.column_stride)
    )
    return x.dtype, row, column


@cache
def _body(function: Traced, inputs: tuple[Access | None, ...], results: tuple[Access, ...]) -> str:
    """Return the function's body, which also stores the results besides the first."""
    return " ".join(_statements(function, inputs, results))


def _statements(
    function: Traced, inputs: tuple[Access | None, ...], results: tuple[Access, ...]
) -> Iterator[str]:
    arrays = scalars = 0

    def at(x: Access) -> str:
        dtype, row, column = x
        return f"*at<{TYPES[dtype]}, {row}, {column}>({arrays}, batch, row, column)"

    for i, x in enumerate(inputs):
        if x is None:
            yield f"const real x{i} = scalars[{scalars}].value;"
            scalars += 1
        else:
            yield f"const real x{i} = to_float({at(x)});"
            arrays += 1
    yield from function.statements
    for value, x in zip(function.values[1:], results, strict=True):
        yield f"{at(x)} = from_float<{TYPES[x[0]]}>({value});"
        arrays += 1
    yield f"return {function.values[0]};"
