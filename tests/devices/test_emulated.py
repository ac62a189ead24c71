"""Emulators of one architecture or another: what each runs, allows and refuses."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tilewise
from tilewise.compiler import DEFAULT_ARCH
from tilewise.devices import Device, get_device
from tilewise.devices.emulator import Emulator, programs
from tilewise.devices.gpu import Gpu
from tilewise.errors import CompileError, LaunchError
from tilewise.kernel import Kernel

WHICH = 'extern "C" __global__ void which(int* x) { *x = __CUDA_ARCH__; }'
DYNAMIC = 'extern "C" __global__ void dynamic(char* x) { extern __shared__ char s[]; *x = 1; }'
ASYNC = r"""
extern "C" __global__ void copies(float* x) {
    __shared__ float s[1];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::
                 "r"((unsigned)__cvta_generic_to_shared(s)), "l"(x));
    asm volatile("cp.async.wait_all;");
    x[1] = s[0];
}"""
WGMMA = r"""
extern "C" __global__ void fences() { asm volatile("wgmma.fence.sync.aligned;"); }"""
CLUSTER = """
extern "C" __global__ void __cluster_dims__(2) pairs(int* x) { x[blockIdx.x] = 1; }"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100a", "sm_120"])
def test_kernels_are_compiled_for_it(arch: str, emulator: Device) -> None:
    place, x = tilewise.emulator(arch), np.zeros(1, np.int32)
    report = Kernel(WHICH, "which").launch(1, 1, (x,), device=place)
    assert x[0] == int(arch[3:].rstrip("a")) * 10
    assert report.device == place.name == "emulator"
    assert report.arch == place.arch == arch
    assert report.to_dict()["arch"] == arch
    assert f"on the emulator of {arch}" in str(report)
    assert arch in repr(place)


def test_by_default_it_is_the_one_of_that_name(emulator: Device) -> None:
    assert tilewise.emulator() is get_device("emulator")
    assert tilewise.emulator(DEFAULT_ARCH) is tilewise.emulator()
    assert tilewise.emulator("sm_80") is tilewise.emulator("sm_80")
    report = Kernel(WHICH, "which").launch(1, 1, (np.zeros(1, np.int32),), device=emulator)
    assert "on the emulator\n" in str(report)


def test_a_kernel_is_read_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches a launch, or profiles it, has an emulator of its own."""
    kernel = Kernel('extern "C" __global__ void once(int* x) { *x = 1; }', "once")
    kernel.launch(1, 1, (np.zeros(1, np.int32),), device="emulator")
    monkeypatch.setattr(programs, "parse", None)
    x = np.zeros(1, np.int32)
    kernel.launch(1, 1, (x,), device=Emulator())
    kernel.profile(1, 1, (x,))
    assert x[0] == 1


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("sm80", "'sm80' is no architecture; it takes the form 'sm_90' or 'sm_90a'"),
        ("sm_70", "NVRTC does not know arch 'sm_70'; it knows sm_75, sm_80"),
        ("sm_80a", "NVRTC does not know arch 'sm_80a'; it knows"),
        ("compute_80", "NVRTC does not know arch 'compute_80'; it knows"),
    ],
)
def test_one_that_there_is_not(arch: str, words: str, emulator: Device) -> None:
    with pytest.raises(ValueError, match=words):
        tilewise.emulator(arch)


def test_a_number_is_no_architecture(emulator: Device) -> None:
    with pytest.raises(TypeError, match="arch is 80; it takes an architecture, as 'sm_80'"):
        tilewise.emulator(80)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arch", "kilobytes"), [("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_90", 227)]
)
def test_shared_memory_is_as_large_as_there(arch: str, kilobytes: int, emulator: Device) -> None:
    kernel, place = Kernel(DYNAMIC, "dynamic"), tilewise.emulator(arch)
    most = kilobytes * 1024
    kernel.launch(1, 32, (np.zeros(1, np.int8),), shared=most, device=place)
    with pytest.raises(LaunchError, match=f"the device has at most {most:,}"):
        kernel.launch(1, 32, (np.zeros(1, np.int8),), shared=most + 1, device=place)


@pytest.mark.parametrize(("arch", "blocks"), [("sm_75", 4), ("sm_80", 8), ("sm_86", 6)])
def test_occupancy_is_that_of_its_multiprocessors(arch: str, blocks: int, emulator: Device) -> None:
    place = tilewise.emulator(arch)
    compiled = Kernel(WHICH, "which").compile(place.arch)
    assert place.blocks_per_multiprocessor(compiled, 256) == blocks


@pytest.mark.parametrize(
    ("source", "name", "lacks", "has"),
    [
        (ASYNC, "copies", "sm_75", "sm_80"),
        (WGMMA, "fences", "sm_90", "sm_90a"),
        (CLUSTER, "pairs", "sm_80", "sm_90"),
    ],
)
def test_what_an_architecture_lacks_does_not_compile_for_it(
    source: str, name: str, lacks: str, has: str, emulator: Device
) -> None:
    args = () if name == "fences" else (np.zeros(2, np.int32 if name == "pairs" else np.float32),)
    kernel, threads = Kernel(source, name), 128 if name == "fences" else 1
    with pytest.raises(CompileError, match=f"does not compile for {lacks}"):
        kernel.launch(2, threads, args, device=tilewise.emulator(lacks))
    kernel.launch(2, threads, args, device=tilewise.emulator(has))


def test_isolated_launches_are_of_the_same_architecture(emulator: Device) -> None:
    x = np.zeros(1, np.int32)
    place = tilewise.emulator("sm_80")
    report = Kernel(WHICH, "which").launch(1, 1, (x,), device=place, isolated=True)
    assert x[0] == 800
    assert report.arch == "sm_80"
    assert pickle.loads(pickle.dumps(report)).arch == "sm_80"


def test_matmul_and_explain_take_it(emulator: Device) -> None:
    place = tilewise.emulator("sm_80")
    a = np.random.default_rng(1).standard_normal((40, 30)).astype(np.float32)
    found = tilewise.matmul(a, a, transpose_b=True, device=place)
    np.testing.assert_allclose(found, a @ a.T, rtol=1e-4, atol=1e-4)
    assert "the emulator of sm_80" in str(tilewise.explain(a, a, transpose_b=True, device=place))


def test_matmul_refuses_what_is_no_device() -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(TypeError, match="device is 80; it takes a name, one of auto, gpu"):
        tilewise.matmul(a, a, device=80)  # type: ignore[arg-type]


def test_copies_and_pickles() -> None:
    """A copy of what holds a device has the same one; a pickle has the architecture."""
    for device in (tilewise.emulator(), tilewise.emulator("sm_80")):
        assert copy.deepcopy({"device": device})["device"] is device
        assert copy.copy(device) is device
        assert pickle.loads(pickle.dumps(device)) is device
    shown = Emulator(progress=print)
    assert copy.deepcopy(shown) is shown
    with pytest.raises(TypeError, match="so it can't be pickled; pickle its arch"):
        pickle.dumps(shown)


def test_a_gpu_is_copied_as_itself() -> None:
    gpu = object.__new__(Gpu)  # no GPU is needed
    gpu.description = "a GPU"
    assert copy.deepcopy([gpu])[0] is copy.copy(gpu) is gpu
    with pytest.raises(TypeError, match="can't be pickled; pickle the name of the device, 'gpu'"):
        pickle.dumps(gpu)
