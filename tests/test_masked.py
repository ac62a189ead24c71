"""Masked arrays are told from others, and the module that makes them is imported by nobody here."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from tilewise.masked import is_masked

SCRIPT = """
import sys, numpy as np, tilewise
x = np.zeros(4, np.float32)
kernel = tilewise.Kernel('extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }', "k")
kernel.launch(1, 4, (x,), device="emulator", counts=False)
tilewise.matmul(x[None], x)
assert x.all()
print("numpy.ma" in sys.modules)
"""


def test_masked_arrays_are_told() -> None:
    assert is_masked(np.ma.masked_array([1.0, 2.0], [True, False]))
    assert not is_masked(np.ones(2))
    assert not is_masked([1.0])


def test_no_launch_imports_what_makes_masks() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("False\n", "")
