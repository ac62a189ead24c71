"""Launch kernels that Triton compiles on a device of tilewise.

The emulator needs no GPU and no driver: Triton compiles for the device's architecture, and what
it compiled runs there, checked and counted by the lines of the kernel's own Python source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewise.devices import Device, device_of
from tilewise.launch import LaunchReport
from tilewise.tracebacks import front_door
from tilewise.triton.configurations import with_configuration
from tilewise.triton.driver import Driver, activated, unknown_names
from tilewise.triton.programs import answered_by
from tilewise.triton.values import wrapped

__all__ = ["launch", "on_device"]


@front_door
def launch(
    kernel: Any,
    grid: int | Sequence[int] | Callable[[dict[str, Any]], Sequence[int]],
    *args: Any,
    device: str | Device = "auto",
    checks: str = "raise",
    global_races: bool = False,
    config: Any = None,
    **meta: Any,
) -> LaunchReport:
    """Compile a kernel of Triton's for these arguments, launch it, wait for it, and report.

    Like ``kernel[grid](*args, **meta)``, this lets Triton's own compiler specialise the kernel by
    the arguments: by integers that are 1 or multiples of 16, by the alignment of arrays, by None.
    Heuristics are applied. For an autotuned kernel the configuration ``config`` is used, else the
    first one that its pruning leaves; none is timed.

    Parameters
    ----------
    kernel : triton.JITFunction
        A kernel from ``@triton.jit``, with or without ``@triton.heuristics`` and
        ``@triton.autotune``.
    grid : int, sequence of ints, or callable
        The programs of the grid, axis 0 first; or a function that returns them, called with all
        arguments by name.
    *args
        The kernel's arguments: NumPy arrays and tensors on the CPU (copied in and out), arrays on
        the device, numbers, None, tuples of these, tensor descriptors of Triton's.
    device : str or Device
        ``"auto"``, ``"gpu"``, ``"emulator"``, or a device.
    checks : str
        How the emulator treats a fault, as in :meth:`tilewise.Kernel.launch`.
    global_races : bool
        Whether the emulator looks for races in global memory too.
    config : triton.Config or int, optional
        For an autotuned kernel, the configuration, or its index in the kernel's list.
    **meta
        Further arguments of the kernel by name, including ``constexpr`` ones, and Triton's own
        options: ``num_warps``, ``num_stages``, ``num_ctas``, ``maxnreg``, ...

    Raises
    ------
    ImportError
        If Triton is not installed.
    CompileError
        If Triton does not compile it.
    LaunchError, CheckError, DeviceUnavailableError
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> import numpy as np, tilewise.triton, triton, triton.language as tl  # doctest: +SKIP
    >>> @triton.jit  # doctest: +SKIP
    ... def double(x, n, BLOCK: tl.constexpr):
    ...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> x = np.arange(100, dtype=np.float32)  # doctest: +SKIP
    >>> report = tilewise.triton.launch(  # doctest: +SKIP
    ...     double, 1, x, 100, BLOCK=128, device="emulator")
    """
    driver = Driver(device_of(device), checks, global_races)
    if isinstance(grid, int):
        grid = (grid,)
    with activated(driver), unknown_names():
        values = [wrapped(arg) for arg in args]
        options = {name: wrapped(value) for name, value in meta.items()}
        with_configuration(kernel, config, values, options)[grid](*values, **options)
    if not driver.reports:
        raise ValueError("the grid has no programs; every extent must be at least 1")
    return driver.reports[-1]


@contextmanager
def on_device(
    device: str | Device = "auto", *, checks: str = "raise", global_races: bool = False
) -> Iterator[list[LaunchReport]]:
    """Launch every kernel of Triton's on one of tilewise's devices, within a ``with`` statement.

    A program that launches its kernels as ``kernel[grid](...)`` then runs unchanged, with its
    tensors on the CPU. For an autotuned kernel, the first configuration runs. On the emulator,
    ``torch.cuda.get_device_capability()`` returns the emulator's.

    Parameters
    ----------
    device, checks, global_races
        The arguments of :func:`launch`.

    Yields
    ------
    list of LaunchReport
        The reports of the launches so far; the list grows.

    Raises
    ------
    ImportError
        If Triton is not installed.
    """
    driver = Driver(device_of(device), checks, global_races)
    with activated(driver), answered_by(driver.device):
        yield driver.reports
