"""Bounds of the functions of ``--expect``: CUDA's own results are right by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewise import Kernel
from tilewise.devices import Device
from tilewise.specs.bounds import ULPS
from tilewise.specs.expected import compare, parse

pytestmark = pytest.mark.usefixtures("no_machine_code")

Array = npt.NDArray[Any]

DOCUMENTED = {
    "exp": (2, 1), "exp2": (2, 1), "expm1": (1, 1), "log": (1, 1), "log2": (1, 1), "log10": (2, 1),
    "log1p": (1, 1), "sqrt": (0, 0), "rsqrt": (2, 1), "cbrt": (1, 1), "tanh": (2, 1),
    "sinh": (3, 2), "cosh": (2, 1), "atan": (2, 2), "sin": (2, 2), "cos": (2, 2),
}  # fmt: skip
"""CUDA C++ Programming Guide 13.0, section 17.1, tables 17 and 18: ulp of float and of double."""
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")
KINDS = pytest.mark.parametrize("kind", [np.float32, np.float64])
SOURCE = """
extern "C" __global__ void k(int n, const REAL* x, REAL* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = FUNCTION(x[i]);
}
"""


def points(name: str, kind: type[np.floating[Any]], count: int) -> Array:
    """Numbers of many sizes; of exponential functions, up to results that are subnormal."""
    rng = np.random.default_rng(7)
    wide = rng.standard_normal(count // 2) * 2.0 ** rng.uniform(-30, 6, count // 2)
    x = np.concatenate([wide, rng.uniform(-104, 88, count - count // 2)])
    return (np.abs(x) if name in POSITIVE else x).astype(kind)


def correctly_rounded(name: str, x: Array) -> Array:
    """NumPy's own, in a wider type."""
    wide = x.astype(np.longdouble)
    with np.errstate(over="ignore"):
        if name == "rsqrt":
            return np.asarray((1 / np.sqrt(wide)).astype(x.dtype))
        return np.asarray(getattr(np, {"atan": "arctan"}.get(name, name))(wide).astype(x.dtype))


def is_right(name: str, x: Array, out: Array) -> bool:
    values = {"x": x, "out": out}
    return compare(parse(f"out = {name}(x)", values), out).correct


@KINDS
@pytest.mark.parametrize("name", DOCUMENTED)
def test_as_far_off_as_cuda_documents(name: str, kind: type[np.floating[Any]]) -> None:
    """So many units in the last place from the correctly rounded result, up or down."""
    assert ULPS.keys() == DOCUMENTED.keys()
    x = points(name, kind, 4000)
    exact = correctly_rounded(name, x)
    x, exact = x[np.isfinite(exact)], exact[np.isfinite(exact)]
    for end in (-np.inf, np.inf):
        out = exact
        for _ in range(DOCUMENTED[name][kind is np.float64]):
            out = np.nextafter(out, kind(end))
        assert is_right(name, x, out)
        # The bound is in units of the value, of which one in the last place is half at least, and
        # a float64's is doubled for the reference.
        for _ in range(2 * DOCUMENTED[name][kind is np.float64] + 5):
            out = np.nextafter(out, kind(end))
        assert not is_right(name, x, out)


@pytest.mark.sampled(2)
@KINDS
@pytest.mark.parametrize("name", DOCUMENTED)
def test_cudas_functions(name: str, kind: type[np.floating[Any]], device: Device) -> None:
    real, suffix = ("float", "f") if kind is np.float32 else ("double", "")
    x = points(name, kind, 2048)
    out = np.zeros_like(x)
    kernel = Kernel(SOURCE, "k", {"REAL": real, "FUNCTION": name + suffix})
    kernel.launch(8, 256, (len(x), x, out), device=device)
    assert is_right(name, x, out)
