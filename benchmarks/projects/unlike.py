"""Say why the hardware's counts differ from the emulator's, if the emulator itself does not.

Each reason was found in the machine code, or in several runs.
"""

from __future__ import annotations

_PRINTS = "what `printf` itself does to memory is not counted on the emulator"
_POLLS = "it polls memory, and how often depends on the time"
_UNROLLED = (
    "some lanes of a warp leave a loop an iteration earlier than others; ptxas unrolls it, so that "
    "these lanes load by other instructions than the rest; the sectors are the same"
)
_PREDICATED = (
    "lanes of a warp reach a store in different iterations of a loop, and ptxas predicates the "
    "store, so that some of them store together; the sectors are the same"
)
_BULK = (
    "the hardware's counters of bank conflicts include bulk copies and the reads of `wgmma`: they "
    "differ from run to run, and some are below zero"
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
"""The reasons, by the project and the kernel's name or its namespace."""


def unlike(project: str, kernel: str) -> str:
    """Return why the hardware's counts differ; empty if they should be equal."""
    return UNLIKE.get(
        (project, kernel), UNLIKE.get((project, kernel.partition("::")[0] + "::"), "")
    )
