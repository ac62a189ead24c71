"""The emulators, by the architecture that they emulate."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tilewise import compiler
from tilewise.compiler import DEFAULT_ARCH
from tilewise.devices.limits import compute_capability

if TYPE_CHECKING:
    from tilewise.devices.emulator import Emulator


def emulator(arch: str = DEFAULT_ARCH) -> Emulator:
    """Return the emulator of a GPU of ``arch``, a device for launches.

    Kernels are compiled for that architecture: ``__CUDA_ARCH__`` is its own, and code that needs
    more does not compile. Its limits hold: shared memory of a block, registers of a thread, blocks
    of a multiprocessor.

    Parameters
    ----------
    arch : str
        The architecture, as in ``"sm_80"``; :func:`tilewise.compiler.architectures` returns those
        that NVRTC compiles for. By default it is ``"sm_90a"``, which is also the device of
        ``device="emulator"``.

    Returns
    -------
    Emulator
        The emulator, the same object for the same architecture.

    Raises
    ------
    ValueError
        If ``arch`` is not the name of an architecture, or NVRTC does not know it.
    TypeError
        If ``arch`` is not a string.
    DeviceUnavailableError
        If NVRTC can't be loaded.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> source = 'extern "C" __global__ void which(int* x) { *x = __CUDA_ARCH__; }'
    >>> x = np.zeros(1, np.int32)
    >>> device = tilewise.emulator("sm_80")
    >>> report = tilewise.Kernel(source, "which").launch(1, 1, (x,), device=device)
    >>> x
    array([800], dtype=int32)
    """
    if not isinstance(arch, str):
        raise TypeError(f"arch is {arch!r}; it takes an architecture, as 'sm_80'")
    return _emulator(arch)


@cache
def _emulator(arch: str) -> Emulator:
    # Some 60 modules that most programs on a GPU never need, so `import tilewise` stays fast.
    from tilewise.devices.emulator import Emulator

    if arch != DEFAULT_ARCH:
        compute_capability(arch)
        compiler.check_architecture(arch)
    return Emulator(arch)
