"""The answers to what programs with kernels of Triton's ask PyTorch about the GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.devices import Device, limits


@contextmanager
def answered_by(device: Device) -> Iterator[None]:
    """Let ``torch.cuda.get_device_capability`` return the emulator's, while the context lasts.

    Programs choose their kernels' configurations by it; without a GPU, PyTorch's own raises an
    error.
    """
    if device.name == "gpu" or importlib.util.find_spec("torch") is None:
        yield
        return
    torch = __import__("torch")
    own, capability = torch.cuda.get_device_capability, limits.compute_capability(device.arch)
    torch.cuda.get_device_capability = lambda device=None: divmod(capability, 10)
    try:
        yield
    finally:
        torch.cuda.get_device_capability = own
