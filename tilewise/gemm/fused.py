"""Give kernels the function of an epilogue: as a macro, and its operands as an argument."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple, Protocol

from tilewise.epilogue import Traced
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.product import ACCUMULATORS, FIRST_FUSED, REAL, Pairing
from tilewise.gemm.steps import KERNELS, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "fused.cuh"
MOST = 8
"""The most arrays that a function may have, and the most scalars (fused.cuh)."""

Access = tuple[str, str, str]
"""An array's dtype, and how its address depends on the row and on the column (fused.cuh)."""


class Fusing(Protocol):
    """A product's dtype, its epilogue or None, and the layout of its pairs of columns or None."""

    @property
    def dtype(self) -> str: ...
    @property
    def epilogue(self) -> Epilogue | None: ...
    @property
    def pairing(self) -> Pairing | None: ...


def step(kernel: Kernel, launch: Launch, product: Fusing) -> Step:
    """Return the step of a kernel that stores a product's D, with the product's epilogue if any.

    Parameters
    ----------
    kernel : Kernel
        A kernel whose source takes FUSED_PARAMETER (fused.cuh), and PAIRS if the product is one of
        pairs.
    launch : Launch
        The launch with the kernel's other arguments.
    product : Fusing
        The product as the kernel sees it: transposed, if the kernel computes D's transpose.
    """
    epilogue = product.epilogue
    if epilogue is None:
        return Step(kernel, launch)
    inputs = tuple(_access(x) if isinstance(x, Strided) else None for x in epilogue.inputs)
    text = _text(epilogue.function, inputs, tuple(_access(x) for x in epilogue.results))
    arrays = [
        {
            "pointer": Place(FIRST_FUSED + i), "row_stride": x.row_stride,
            "column_stride": x.column_stride, "batch_stride": x.batch_stride,
        }
        for i, x in enumerate(epilogue.arrays)
    ]  # fmt: skip
    scalars = [{"value": x} for x in epilogue.scalars]
    given = layout(SOURCE, "Fused").pack({"arrays": arrays, "scalars": scalars})
    is_paired = product.pairing is not None
    fusing = _fusing(kernel, text, REAL[ACCUMULATORS[product.dtype]], is_paired)
    return Step(fusing, replace(launch, args=(*launch.args, given)))


@lru_cache(maxsize=KERNELS)
def _fusing(kernel: Kernel, text: Text, real: str, is_paired: bool) -> Kernel:
    """Return the kernel with a function's text in its macros; the same object each time."""
    pairs = {"PAIRS": 1} if is_paired else {}
    macros = {
        "EPILOGUE": text.body, "EPILOGUE_INPUTS": text.inputs, "EPILOGUE_RESULTS": text.results,
        "EPILOGUE_INSTRUCTIONS": text.instructions,
    }  # fmt: skip
    return kernel.with_macros({**macros, "real": real, **pairs})


def _access(x: Strided) -> Access:
    row, column = (
        "NOT" if stride == 0 else "BY_ONE" if stride == 1 else "BY_STRIDE"
        for stride in (x.row_stride, x.column_stride)
    )
    return x.dtype, row, column


class Text(NamedTuple):
    """A function as text for fused.cuh: its body, and the arrays that it reads and stores.

    ``instructions`` is about how many instructions an element takes.
    """

    body: str
    inputs: str
    results: str
    instructions: int


@cache
def _text(function: Traced, inputs: tuple[Access | None, ...], results: tuple[Access, ...]) -> Text:
    """Return the function's text; its body stores the results besides the first one."""
    body: list[str] = []
    read: list[str] = []
    stored: list[str] = []
    scalars = 0
    for i, x in enumerate(inputs):
        if x is None:
            body.append(f"const real x{i} = scalars[{scalars}].value;")
            scalars += 1
        else:
            array = f"{len(read)}, {_of(x)}"
            body.append(f"const real x{i} = OPERAND({array});")
            read.append(f"ARRAY({array})")
    body.extend(function.statements)
    for value, x in zip(function.values[1:], results, strict=True):
        array = f"{len(read) + len(stored)}, {_of(x)}"
        body.append(f"RESULT({array}, {value});")
        stored.append(f"ARRAY({array})")
    body.append(f"return {function.values[0]};")
    return Text(" ".join(body), " ".join(read), " ".join(stored), round(function.instructions))


def _of(x: Access) -> str:
    dtype, row, column = x
    return f"{TYPES[dtype]}, {row}, {column}"
