"""The stages that asynchronous copies fill: when, by whom, and who reads them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from player import of_rung, recorded

from tilewise.kernel import Kernel

# Two stages of 256 bytes, by cp.async: the next is copied while this one is read.
RING = """
extern "C" __global__ void ring(int tiles, const float* from, float* to) {
    __shared__ __align__(16) float stage[2][64];
    int t = threadIdx.x;
    float sum = 0;
    auto copy = [&](int i) {
        unsigned at = __cvta_generic_to_shared(&stage[i % 2][4 * t]);
        if (t < 16 && i < tiles)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                         :: "r"(at), "l"(from + 64 * i + 4 * t) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    copy(0);
    for (int i = 0; i < tiles; ++i) {
        copy(i + 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        sum += stage[i % 2][t];
        __syncthreads();
    }
    to[t] = sum;
    stage[0][t] = sum;  // no copy any more: what is read of it now is not the stage's
    __syncthreads();
    to[t] += stage[0][63 - t];
}"""


def ring(tiles: int) -> dict[str, Any]:
    data = np.arange(64 * tiles, dtype=np.float32)
    found = Kernel(RING, "ring").watch(1, 64, (tiles, data, np.zeros(64, np.float32)))
    (block,) = found.trace.to_dict()["blocks"]
    return dict(block)


def test_a_ring_of_cp_async() -> None:
    block = ring(5)
    first, second = block["stages"]
    assert (first["bytes"], second["bytes"]) == ([[0, 256]], [[256, 256]])
    assert [len(each["fills"]) for each in (first, second)] == [3, 2]
    steps = block["steps"]
    for stage, place in ((first, 0), (second, 1)):
        for fill in stage["fills"]:
            begin, full, (read, last) = fill["begin"], fill["full"], fill["read"]
            assert begin < full < read == last
            assert (steps[begin]["kind"], steps[begin]["space"]) == ("load", "global")
            # It arrives where it is waited for, and is read behind the barrier.
            assert (steps[full]["kind"], steps[full]["space"]) == ("store", "shared")
            assert steps[read]["at"] == [256 * place + 4 * t for t in range(64)]
            assert (fill["writers"], fill["readers"]) == ([0], [0, 1])
        for one, other in pairwise(stage["fills"]):
            assert one["read"][1] < other["begin"]
    # The next one is copied before this one is read.
    assert second["fills"][0]["begin"] < first["fills"][0]["read"][0]


def test_a_kernel_without_copies_has_none() -> None:
    assert "stages" not in recorded("tiled", 8, 4)["blocks"][0]


@pytest.mark.parametrize("name", ["multistage", "warpgroup", "specialized", "persistent"])
def test_the_ladders_rings(name: str) -> None:
    """Each stage is filled, then read, then filled again; and nobody reads too early."""
    for block in of_rung(name)["blocks"]:
        assert len(block["stages"]) == 4
        (size,) = {sum(n for _, n in stage["bytes"]) for stage in block["stages"]}
        assert size == (64 * 32 * 2 * 2 if name == "multistage" else (128 + 256) * 64 * 2)
        fills = [fill for stage in block["stages"] for fill in stage["fills"]]
        # Six phases; rung 16 loads fragments a step ahead, at its end of a tile of zeros.
        assert sum(bool(fill["read"]) for fill in fills) == 6 + (name == "multistage")
        for stage in block["stages"]:
            for fill in stage["fills"]:
                assert fill["begin"] <= fill["full"]
                assert not fill["read"] or fill["full"] < fill["read"][0] <= fill["read"][1]
            for one, other in pairwise(stage["fills"]):
                assert one["read"][1] < other["begin"]
        loaders = {warp for fill in fills for warp in fill["writers"]}
        readers = {warp for fill in fills for warp in fill["readers"]}
        everybody = set(range(4))
        assert (loaders, readers) == {
            "multistage": (everybody, everybody), "warpgroup": ({0}, set(range(8))),
            "specialized": ({0}, set(range(4, 12))), "persistent": ({-1, 0}, set(range(4, 12))),
        }[name]  # fmt: skip


def test_wgmma_reads_until_it_is_waited_for() -> None:
    (block,) = of_rung("specialized")["blocks"]
    steps = block["steps"]
    for stage in block["stages"]:
        for fill in stage["fills"]:
            first, last = (steps[i] for i in fill["read"])
            assert first["kind"] == "matrix"
            assert (last["sync"]["on"], last["sync"]["do"]) == ("wgmma", "wait")


# The same ring, with a warp that copies and two mbarriers a stage, as CUDA's pipelines have it.
PIPELINE = """
__device__ void init(unsigned bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" :: "r"(bar));
}
__device__ void wait(unsigned bar, int round) {
    asm volatile("{ .reg .pred done;\\n again: mbarrier.try_wait.parity.shared::cta.b64 "
                 "done, [%0], %1;\\n @!done bra again; }" :: "r"(bar), "r"(round & 1) : "memory");
}
extern "C" __global__ void pipeline(int tiles, const float* from, float* to) {
    __shared__ __align__(16) float stage[2][128];
    __shared__ unsigned long long full[2], empty[2];
    int t = threadIdx.x;
    if (t == 0)
        for (int i = 0; i < 2; ++i) {
            init(__cvta_generic_to_shared(&full[i]));
            init(__cvta_generic_to_shared(&empty[i]));
        }
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < tiles; ++i) {
        unsigned at = __cvta_generic_to_shared(&stage[i % 2][t % 32 * 4]);
        unsigned a = __cvta_generic_to_shared(&full[i % 2]);
        unsigned b = __cvta_generic_to_shared(&empty[i % 2]);
        if (t < 32) {
            wait(b, i / 2 + 1);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                         :: "r"(at), "l"(from + 128 * i + 4 * t) : "memory");
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                         :: "r"(a) : "memory");
        } else {
            wait(a, i / 2);
            sum += stage[i % 2][t];
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b) : "memory");
        }
    }
    to[t] = sum;
}"""


def test_a_ring_whose_copies_arrive_at_mbarriers() -> None:
    data = np.arange(5 * 128, dtype=np.float32)
    found = Kernel(PIPELINE, "pipeline").watch(1, 64, (5, data, np.zeros(64, np.float32)))
    (block,) = found.trace.to_dict()["blocks"]
    first, second = block["stages"]
    assert (first["bytes"], second["bytes"]) == ([[0, 512]], [[512, 512]])
    assert [len(each["fills"]) for each in (first, second)] == [3, 2]
    for fill in (*first["fills"], *second["fills"]):
        assert fill["begin"] < fill["full"] < fill["read"][0]
        assert (fill["writers"], fill["readers"]) == ([0], [1])
    assert any(
        step["say"] == "32 threads of warp 0 arrive at full[1], once their copies (cp.async) are "
        "there." for step in block["steps"]
    )  # fmt: skip
