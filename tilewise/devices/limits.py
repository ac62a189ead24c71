"""Check a launch against the hardware's limits, and refuse it in words before the driver does."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from operator import gt

from tilewise.errors import LaunchError
from tilewise.launch import Launch

# CUDA C++ Programming Guide, "Compute Capabilities", technical specifications, alike for every
# architecture that NVRTC still knows.
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)

# Shared memory that a block may have without the kernel's asking for more than usual.
DEFAULT_SHARED = 48 * 1024

# Bytes of a multiprocessor's shared memory that the driver takes for each block, since 8.0.
RESERVED_SHARED = 1024

# The same guide gives the most shared memory a block, in KB, by compute capability; the major
# number alone stands for the members of its family that the guide does not list.
_SHARED_KB = {
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    103: 227,
    110: 227,
    120: 99,
    121: 99,
}
_FAMILY_SHARED_KB = {7: 64, 8: 99, 9: 227, 10: 227, 11: 227, 12: 99}


@cache
def compute_capability(arch: str) -> int:
    """Return the compute capability of an architecture: 90 for ``"sm_90a"`` or ``"compute_90"``.

    Raises
    ------
    ValueError
        If ``arch`` is not written so.
    """
    match = re.fullmatch(r"(?:sm|compute)_(\d{2,3})[af]?", arch)
    if match is None:
        raise ValueError(f"{arch!r} is no architecture; it takes the form 'sm_90' or 'sm_90a'")
    return int(match[1])


def max_shared(arch: str) -> int:
    """Return the most shared memory a block, static and dynamic together, in bytes.

    Source: CUDA C++ Programming Guide, technical specifications per compute capability. A family
    that is newer than the table counts as the smallest of the last ones.

    Raises
    ------
    ValueError
        If ``arch`` is not written as an architecture.
    """
    capability = compute_capability(arch)
    kilobytes = _SHARED_KB.get(capability) or _FAMILY_SHARED_KB.get(capability // 10, 99)
    return kilobytes * 1024


def best_architecture(capability: int, known: Sequence[str]) -> str:
    """Return the architecture to compile for, so that the code runs on a GPU of ``capability``.

    Parameters
    ----------
    capability : int
        The GPU's compute capability; 90 for 9.0.
    known : sequence of str
        The architectures that the compiler knows, as ``"sm_90"`` and ``"sm_90a"``.

    Returns
    -------
    str
        The GPU's own architecture, as its ``a`` variant where it has one: that has the
        instructions which later architectures don't keep (``wgmma``, for one), and runs on this
        one alone. Else the newest older one that the compiler knows.

    Raises
    ------
    ValueError
        If the compiler knows none that is old enough.
    """
    for own in (f"sm_{capability}a", f"sm_{capability}"):
        if own in known:
            return own
    portable = sorted(compute_capability(arch) for arch in known if arch[-1].isdigit())
    older = [arch for arch in portable if arch < capability]
    if not older:
        raise ValueError(
            f"the compiler knows no architecture as old as sm_{capability}; it knows "
            f"{', '.join(f'sm_{arch}' for arch in portable) or 'none'}"
        )
    return f"sm_{older[-1]}"


def check_launch(
    launch: Launch,
    static_shared: int,
    *,
    max_shared: int,
    max_threads: int = MAX_THREADS,
) -> None:
    """Refuse a launch that the hardware would refuse.

    Parameters
    ----------
    launch : Launch
    static_shared : int
        Bytes of shared memory a block that the kernel declares.
    max_shared : int
        Bytes of shared memory a block that the device allows (:func:`max_shared`).
    max_threads : int
        Threads a block that the kernel allows: fewer than the hardware's 1024 where its
        registers or its ``__launch_bounds__`` say so.

    Raises
    ------
    LaunchError
        Saying which limit, what was asked and what is allowed.
    TypeError
        If the dynamic shared memory is no integer.
    """
    x, y, z = launch.block
    threads = x * y * z
    if threads > MAX_THREADS:
        raise LaunchError(
            f"a block of {x}x{y}x{z} is {threads:,} threads; the hardware takes at most "
            f"{MAX_THREADS:,}"
        )
    for what, extents, limits in (
        ("block", launch.block, MAX_BLOCK),
        ("grid", launch.grid, MAX_GRID),
    ):
        if any(map(gt, extents, limits)):
            axis, extent, limit = next(
                each for each in zip("xyz", extents, limits, strict=True) if each[1] > each[2]
            )
            raise LaunchError(
                f"{what} {'x'.join(map(str, extents))}: {axis} is {extent:,}; the hardware takes "
                f"at most {limit:,}"
            )
    if threads > max_threads:
        raise LaunchError(
            f"a block of {x}x{y}x{z} is {threads:,} threads; this kernel takes at most "
            f"{max_threads:,}, by its registers or its __launch_bounds__"
        )
    if isinstance(launch.shared, bool) or not hasattr(launch.shared, "__index__"):
        raise TypeError(f"dynamic shared memory is {launch.shared!r}; it takes a number of bytes")
    if launch.shared < 0:
        raise LaunchError(f"dynamic shared memory is {launch.shared:,} bytes; it can't be negative")
    if launch.shared + static_shared > max_shared:
        raise LaunchError(
            f"a block asks for {launch.shared + static_shared:,} bytes of shared memory "
            f"({static_shared:,} static, {launch.shared:,} dynamic); the device has at most "
            f"{max_shared:,}"
        )


def check_together(launch: Launch, each: int, multiprocessors: int, chip: str) -> None:
    """Refuse a cooperative launch of more blocks than can be resident at once.

    Parameters
    ----------
    launch : Launch
    each : int
        The number of blocks that each multiprocessor holds.
    multiprocessors : int
        The number of multiprocessors.
    chip : str
        The GPU's name in the message.

    Raises
    ------
    LaunchError
        As the driver does (``cudaErrorCooperativeLaunchTooLarge``).
    """
    blocks, most = math.prod(launch.grid), each * multiprocessors
    if blocks > most:
        raise LaunchError(
            f"a cooperative launch of {blocks:,} blocks: {chip} holds {most:,} of them at once, "
            f"{each:,} on each of {multiprocessors:,} multiprocessors, and they must all be there"
        )
