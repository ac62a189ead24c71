"""Launch kernels that Numba compiles on a device of tilewise.

The emulator needs no GPU and no driver: Numba compiles for the device's architecture, and what it
compiled runs there, checked and counted by the lines of the kernel's own Python source.
"""

from __future__ import annotations

from typing import Any

from tilewise.devices import Device, device_of
from tilewise.launch import Launch, LaunchReport, dim3
from tilewise.numba.compile import compiled_of, types_of
from tilewise.numba.configured import Configured
from tilewise.numba.values import flattened, host
from tilewise.python_kernels.launching import launch_named
from tilewise.tracebacks import front_door

__all__ = ["launch"]


@front_door
def launch(
    kernel: Any,
    *args: Any,
    device: str | Device = "auto",
    checks: str = "raise",
    global_races: bool = False,
) -> LaunchReport:
    """Compile a kernel of Numba's for these arguments, launch it, wait for it, and report.

    Like ``kernel[grid, block](*args)``, this uses Numba's own compiler for the arguments' types.
    Its machine code is made from the PTX, without further optimisation in linking. Files of CUDA
    C++ and of PTX that ``link=`` names are linked with it. A kernel that waits for the whole grid
    (``cuda.cg.this_grid().sync()``) is launched cooperatively.

    Parameters
    ----------
    kernel : configured kernel
        ``kernel[grid, block]``, ``kernel[grid, block, stream, shared]`` or ``kernel.forall(n)`` of
        a kernel from ``@numba.cuda.jit``. The stream has no effect.
    *args
        The kernel's arguments: NumPy arrays and tensors on the CPU (copied in and out), arrays on
        the device, numbers, records, and tuples of these.
    device : str or Device
        ``"auto"``, ``"gpu"``, ``"emulator"``, or a device.
    checks : str
        How the emulator treats a fault, as in :meth:`tilewise.Kernel.launch`.
    global_races : bool
        Whether the emulator looks for races in global memory too.

    Raises
    ------
    ImportError
        If Numba or numba-cuda is not installed.
    CompileError
        If Numba does not compile it, or what it is linked with has no PTX.
    OSError
        If a file that it is linked with can't be read.
    LaunchError, CheckError, DeviceUnavailableError
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> import numpy as np, tilewise.numba  # doctest: +SKIP
    >>> from numba import cuda  # doctest: +SKIP
    >>> @cuda.jit  # doctest: +SKIP
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> x = np.arange(100, dtype=np.float32)  # doctest: +SKIP
    >>> report = tilewise.numba.launch(double[1, 128], x, device="emulator")  # doctest: +SKIP
    """
    configured = Configured.of(kernel)
    where = device_of(device)
    values = [host(arg) for arg in args]
    types = types_of(configured.dispatcher, values)
    compiled = compiled_of(configured.dispatcher, types, where.arch)
    flat = list(flattened(configured.names, types, values))
    if len(flat) != len(compiled.parameters):
        raise TypeError(
            f"Numba passes {len(compiled.parameters)} values to {compiled.name}, where "
            f"{len(flat)} are known of its arguments; this version of Numba is not supported"
        )
    asked = Launch(
        dim3(configured.grid, "grid"), dim3(configured.block, "block"),
        tuple(value for _, value in flat), configured.shared, checks, global_races=global_races,
        # Numba launches so, too, what uses the grid's workspace.
        cooperative="%envreg2" in compiled.ptx,
    )  # fmt: skip
    return launch_named(where, compiled, asked, [name for name, _ in flat])
