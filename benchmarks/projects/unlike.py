"""Why the hardware counts otherwise than the emulator, where the emulator does not say so itself.

Each was looked into: in the machine code, or in several runs.
"""

from __future__ import annotations

_PRINTS = "what `printf` itself does to memory is not counted on the emulator"
_POLLS = "it polls, as often as the time allows"
_UNROLLED = (
    "ptxas unrolls a loop that some lanes of a warp leave a round earlier, and they load by other "
    "instructions than the rest; the sectors are the same"
)
_PREDICATED = (
    "lanes of a warp come to a store in different rounds of a loop, and ptxas, which predicates "
    "it, lets some of them store together; the sectors are the same"
)
_BULK = (
    "the counters of the banks have bulk copies and the reads of `wgmma` in them too: they differ "
    "from run to run, and some come out below zero"
)

UNLIKE = {
    ("fast.cu", "M10::"): _BULK,
    ("fast.cu", "M11::"): _BULK,
    ("fast.cu", "M12::"): _BULK,
    ("cuda-samples", "cgkernel"): _PRINTS,
    ("cuda-samples", "testKernel"): _PRINTS,
    ("cuda-samples", "normVecByDotProductAWBarrier"): _POLLS,
    ("cuda-samples", "waitWithTimeout"): _POLLS,
    ("cuda-samples", "mergeHistogram64Kernel"): _UNROLLED,
    ("cuda-samples", "mergeHistogram256Kernel"): _UNROLLED,
    ("cuda-samples", "test_interval_newton<double>"): _PREDICATED,
}
"""By project, and the kernel's name, or its namespace."""


def unlike(project: str, kernel: str) -> str:
    """Return why the hardware counts otherwise; nothing where it should count the same."""
    return UNLIKE.get(
        (project, kernel), UNLIKE.get((project, kernel.partition("::")[0] + "::"), "")
    )
