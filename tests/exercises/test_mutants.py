"""The variants are what they say."""

from __future__ import annotations

import pytest
from mutants import mutants

KERNEL = """__global__ void k(int n, float* x)  // n <= 3
{
    __shared__ float s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && n > 0) x[i] += 2;
    __syncthreads();
    for (int d = 16; d >= 1; d /= 2) {}
}
"""


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("a bound", "if (i <= n && n > 0) x[i] += 2;"),
        ("a bound", "if (i < n && n >= 0) x[i] += 2;"),
        ("a condition", "if (i < n || n > 0) x[i] += 2;"),
        ("a guard", "if (true) x[i] += 2;"),
        ("an update", "if (i < n && n > 0) x[i] = 2;"),
        ("a number", "if (i < n && n > 0) x[i] += 3;"),
        ("a barrier", ";"),
        ("a stride", "int i = blockIdx.x + blockDim.x + threadIdx.x;"),
        ("a sign", "int i = blockIdx.x * blockDim.x - threadIdx.x;"),
        ("an index", "int i = blockIdx.x * blockDim.x + blockIdx.x;"),
        ("a size", "int i = blockIdx.x * gridDim.x + threadIdx.x;"),
        ("a number", "__shared__ float s[31];"),
        ("a number", "for (int d = 16; d >= 1; d /= 3) {}"),
    ],
)
def test_a_change(kind: str, change: str) -> None:
    found = [(each.kind, each.change.partition("  ->  ")[2]) for each in mutants(KERNEL)]
    assert (kind, change) in found


def test_each_differs_in_one_line_and_not_in_a_comment() -> None:
    for each in mutants(KERNEL):
        pairs = zip(KERNEL.splitlines(), each.source.splitlines(), strict=True)
        assert [i for i, (a, b) in enumerate(pairs, 1) if a != b] == [each.line]
        assert "// n <= 3" in each.source
    assert not any("s[33]" in each.source for each in mutants(KERNEL))
