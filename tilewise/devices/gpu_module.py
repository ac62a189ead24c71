"""A kernel's module on a GPU: its ``__constant__`` and ``__device__`` variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewise.devices.cuda import Context, GpuArray
from tilewise.devices.gpu_kernel import GpuKernel


class GpuModule:
    """The variables of one module, which keep their values from one launch to the next.

    Parameters
    ----------
    context : Context
    code : cuda.core.ObjectCode
        The loaded module, which only this object uses.
    loaded : GpuKernel
        The kernel that a launch calls.
    """

    def __init__(self, context: Context, code: Any, loaded: GpuKernel) -> None:
        self.context, self.loaded = context, loaded
        self._code = code

    def read(self, symbol: str) -> bytes:
        """Return a variable's bytes, once all work on the GPU is done."""
        with self.context.current():
            address, size = self._place(symbol)
            data = np.empty(size, np.uint8)
            self.context.synchronize()
            self.context.download(data, address)
        return data.tobytes()

    def write(self, symbol: str, data: bytes) -> None:
        """Set a variable, all of it, once all work on the GPU is done."""
        with self.context.current():
            address, _ = self._place(symbol)
            self.context.synchronize()
            self.context.upload(address, np.frombuffer(data, np.uint8))

    def accept(self, value: Any) -> None:
        """Raise TypeError for a :class:`tilewise.devices.DeviceArray` that is no GPU's."""
        if hasattr(value, "to_numpy") and not isinstance(value, GpuArray):
            raise TypeError(
                f"an array of shape {value.shape} and dtype {value.dtype} lies on another device; "
                "make it on the device of the launch"
            )

    def _place(self, symbol: str) -> tuple[int, int]:
        """Return a variable's device address and bytes (``cuLibraryGetGlobal``)."""
        address, size = self.context.call("cuLibraryGetGlobal", self._code.handle, symbol.encode())
        return int(address), int(size)
