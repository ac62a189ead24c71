"""Compiling to PTX alone: the same PTX, with no machine code, and kept apart in the caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference import thorough

from tilewise import compiler
from tilewise.compiler import Request, compile_request, key_of
from tilewise.devices import get_device
from tilewise.errors import CompileError
from tilewise.ladder.rungs import rung
from tilewise.limits import Limits

SOURCE = """
__constant__ float weights[3];
extern "C" __global__ void __launch_bounds__(96) k(const float* x, int n, float* y)
{
    __shared__ float s[96];
    s[threadIdx.x] = x[threadIdx.x] * weights[n];
    __syncthreads();
    y[threadIdx.x] = s[95 - threadIdx.x];
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    compiler.forget()


@pytest.mark.parametrize(
    "request_",
    [
        Request(SOURCE, "k"),
        Request(SOURCE, "k", {"N": 3}, "sm_80", limits=Limits()),
        Request(SOURCE, "k", options=("--ptxas-options=-O1", "--maxrregcount=32")),
        rung("tiled").kernel("float32", 8).request("sm_120"),
    ],
    ids=["own", "with limits", "with options", "shipped"],
)
def test_the_ptx_is_the_same(request_: Request) -> None:
    alone = request_._replace(machine_code=False)
    assert key_of(alone) != key_of(request_)
    for _ in range(2):  # compiled, and then from the cache on disk
        found = [compile_request(each) for each in (alone, request_, alone)]
        assert found[0] == found[2]
        assert (found[0].ptx, found[0].parameters, found[0].variables) == (
            found[1].ptx, found[1].parameters, found[1].variables
        )  # fmt: skip
        assert [bool(each.cubin) for each in found] == [False, True, False]
        assert [bool(each.resources.missing) for each in found] == [True, False, True]
        compiler.forget()


@thorough
def test_of_every_architecture() -> None:
    for arch in compiler.architectures():
        whole = Request(SOURCE, "k", arch=arch)
        assert compile_request(whole._replace(machine_code=False)).ptx == compile_request(whole).ptx


@pytest.mark.usefixtures("emulator")
def test_a_launch_that_is_not_counted_takes_it(pytestconfig: pytest.Config) -> None:
    kernel, place = rung("tiled").kernel("float32", 8), get_device("emulator")
    counted, plain = (kernel.compiled_on(place, counts) for counts in (True, False))
    assert counted.cubin
    # With --thorough, every kernel is assembled: tests/conftest.py.
    assert bool(plain.resources.missing) == (not pytestconfig.getoption("--thorough"))
    assert plain.ptx == counted.ptx


def test_what_the_compiler_refuses_is_an_error_too() -> None:
    with pytest.raises(CompileError, match=r'<source>:1: error: identifier "y" is undefined'):
        compile_request(
            Request('extern "C" __global__ void k() { y = 1; }', "k", machine_code=False)
        )
