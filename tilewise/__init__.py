"""Matrix multiplication for Python, one tile at a time."""

import sys

# `python -m tilewise` runs this module first, and from here on Ctrl-C ends it with one line. While
# Python looks for the program, the first of its arguments is "-m".
if sys.argv[:1] == ["-m"] and ("-m", "tilewise") in zip(
    sys.orig_argv, sys.orig_argv[1:], strict=False
):
    from tilewise_command import end_at_once

    end_at_once()

from importlib import import_module
from typing import TYPE_CHECKING

from tilewise.arrays.invariance import set_invariant
from tilewise.counted import Counters, Resources
from tilewise.devices import Device, get_device
from tilewise.devices.emulated import emulator
from tilewise.epilogue import Epilogue
from tilewise.epilogue.functions import (
    clip,
    erf,
    exp,
    gelu,
    leaky_relu,
    log,
    log1p,
    maximum,
    minimum,
    relu,
    rsqrt,
    sigmoid,
    silu,
    softplus,
    sqrt,
    tanh,
    where,
)
from tilewise.errors import (
    BarrierError,
    CheckError,
    CompileError,
    DeviceUnavailableError,
    KernelAssertError,
    LaunchError,
    LimitError,
    MemoryAccessError,
    ParserMissingError,
    RaceError,
    TilewiseError,
    TraceError,
    UninitializedReadError,
    UnsupportedInstructionError,
    VariableError,
)
from tilewise.explain import explain
from tilewise.explanation import Explanation
from tilewise.files.multiply import multiply_files
from tilewise.files.result import FileProduct
from tilewise.grouped import grouped_matmul
from tilewise.host.staging import free_staging
from tilewise.kernel import Kernel
from tilewise.ladder.problem import Gemm
from tilewise.ladder.rungs import RUNGS, Rung, rung
from tilewise.launch import Finding, Launch, LaunchReport
from tilewise.limits import Limits
from tilewise.listed import ListedKernel
from tilewise.listing import list_kernels
from tilewise.matmul import matmul
from tilewise.pointer import Pointer, pointer
from tilewise.tensor_map import MappedArray, tensor_map
from tilewise.tune import Tuned, tune
from tilewise.variables import Variables
from tilewise.warm import Warmed, warm

__version__ = "0.1.0"


if TYPE_CHECKING:
    import tilewise.notebook
    import tilewise.numba
    import tilewise.torch
    import tilewise.triton  # noqa: F401
    from tilewise.lens.profiling import profile
    from tilewise.lens.watch import watch
else:

    def __getattr__(name: str) -> object:
        # What few programs use is imported where it is used: `import tilewise` stays quick.
        if name == "watch":
            from tilewise.lens.watch import watch as found
        elif name == "profile":
            from tilewise.lens.profiling import profile as found
        elif name in ("notebook", "numba", "torch", "triton"):
            return import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "RUNGS",
    "BarrierError",
    "CheckError",
    "CompileError",
    "Counters",
    "Device",
    "DeviceUnavailableError",
    "Epilogue",
    "Explanation",
    "FileProduct",
    "Finding",
    "Gemm",
    "Kernel",
    "KernelAssertError",
    "Launch",
    "LaunchError",
    "LaunchReport",
    "LimitError",
    "Limits",
    "ListedKernel",
    "MappedArray",
    "MemoryAccessError",
    "ParserMissingError",
    "Pointer",
    "RaceError",
    "Resources",
    "Rung",
    "TilewiseError",
    "TraceError",
    "Tuned",
    "UninitializedReadError",
    "UnsupportedInstructionError",
    "VariableError",
    "Variables",
    "Warmed",
    "__version__",
    "clip",
    "emulator",
    "erf",
    "exp",
    "explain",
    "free_staging",
    "gelu",
    "get_device",
    "grouped_matmul",
    "leaky_relu",
    "list_kernels",
    "log",
    "log1p",
    "matmul",
    "maximum",
    "minimum",
    "multiply_files",
    "pointer",
    "profile",
    "relu",
    "rsqrt",
    "rung",
    "set_invariant",
    "sigmoid",
    "silu",
    "softplus",
    "sqrt",
    "tanh",
    "tensor_map",
    "tune",
    "warm",
    "watch",
    "where",
]
