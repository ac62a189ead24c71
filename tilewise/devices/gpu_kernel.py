"""A kernel that is loaded on a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tilewise.compiler import Compiled
from tilewise.devices import limits
from tilewise.devices.cuda import Context

# A module-scope variable, which a launch may change. Strings of printf and assert are constant.
_MODULE_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|weak)\s+)*\.global\b(?!.*(?:\$str|__unnamed_))", re.MULTILINE
)


@dataclass
class GpuKernel:
    """A kernel on the GPU.

    Attributes
    ----------
    code : cuda.core.ObjectCode
        Its module.
    function : CUfunction
        It can be launched as long as ``kept`` lives.
    max_threads : int
        A block's.
    static_shared : int
        Bytes of shared memory a block, beside the dynamic ones.
    opted_in : int
        Bytes of dynamic shared memory that it may have by now, above the usual.
    kept : object
        Keeps the module loaded.
    """

    code: Any
    function: Any
    max_threads: int
    static_shared: int
    opted_in: int = 0
    kept: Any = None

    def has_opted_in(self, shared: int) -> bool:
        """Return whether a launch may have ``shared`` bytes of dynamic shared memory by now."""
        return shared + self.static_shared <= limits.DEFAULT_SHARED or shared <= self.opted_in

    def opt_in(self, context: Context, shared: int) -> None:
        """Opt in to more than 48 KB (CUDA C++ Programming Guide, "Shared Memory")."""
        if self.has_opted_in(shared):
            return
        which = context.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        context.call("cuFuncSetAttribute", self.function, which, shared)
        self.opted_in = shared

    def occupancy(self, context: Context, threads: int, shared: int) -> int:
        """Return how many blocks a multiprocessor holds at once. The context must be current."""
        return int(
            context.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", self.function, threads, shared
            )
        )


def load(context: Context, compiled: Compiled, capability: int) -> GpuKernel:
    """Load a kernel now, and not in the time of its first launch. The context must be current.

    Parameters
    ----------
    context : Context
    compiled : Compiled
    capability : int
        The GPU's compute capability, as 90.

    Raises
    ------
    Exception
        Whatever cuda.core raises where the GPU does not take the code; its types are private.
    """
    wanted = limits.compute_capability(compiled.arch)
    # Machine code runs on its own major architecture, from its minor one on; PTX on all later.
    native = wanted // 10 == capability // 10 and wanted <= capability
    objects = context.core.ObjectCode
    code = (
        objects.from_cubin(compiled.cubin)
        if native and compiled.cubin
        else objects.from_ptx(compiled.ptx.encode())
    )
    kernel = code.get_kernel(compiled.symbol)
    function = context.call("cuKernelGetFunction", kernel.handle)

    def attribute(name: str) -> int:
        which = getattr(context.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(context.call("cuFuncGetAttribute", which, function))

    return GpuKernel(
        code, function, attribute("MAX_THREADS_PER_BLOCK"), attribute("SHARED_SIZE_BYTES"),
        kept=kernel,
    )  # fmt: skip


def key_of(compiled: Compiled) -> tuple[bytes, str]:
    """Return the key of a kernel on the GPU: its machine code, or its PTX if it has none."""
    return compiled.cubin or compiled.ptx.encode(), compiled.symbol


def has_module_variables(ptx: str) -> bool:
    """Return whether the module has variables of its own that a launch may change."""
    return bool(_MODULE_VARIABLE.search(ptx))
