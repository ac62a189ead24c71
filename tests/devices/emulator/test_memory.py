"""Memories: parameters, global, constant, shared, local, generic; vectors; asynchronous copies."""

from __future__ import annotations

import gc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from reference import Launcher, assert_same

from tilewise.counted import Counters
from tilewise.devices import Device
from tilewise.devices.emulator.instructions import build
from tilewise.devices.emulator.machine import Machine
from tilewise.devices.emulator.memory.storage import Storage
from tilewise.devices.emulator.threads import registers
from tilewise.devices.emulator.threads.op import Op
from tilewise.devices.emulator.threads.registers import Registers
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")


def test_scalar_parameters(launch: Launcher) -> None:
    values = [-5, 250, -30000, 60000, -(2**31), 2**32 - 1, -(2**53), 2**53, 0.15625, 1e300, True]
    out = np.zeros(11)
    launch("parameters", "scalars", 1, 1, *values, out)
    assert out.tolist() == [float(v) for v in values]


def test_a_structure_by_value(launch: Launcher) -> None:
    values = np.random.default_rng(1).integers(-50, 50, 20).astype(np.int32)
    index = np.arange(19, -1, -1, dtype=np.int32)
    out = np.zeros(20, np.int32)
    launch("parameters", "indexed", 1, 32, 20, values.tobytes(), index, out)
    assert_same(out, values[::-1].copy())


VIEW = np.dtype(
    {
        "names": ["data", "shape", "strides", "flag", "bias", "scale"],
        "formats": ["u8", ("i4", 2), ("i8", 2), "u1", "i2", "f8"],
        "offsets": [0, 8, 16, 32, 34, 40],
        "itemsize": 48,
    }
)


@pytest.mark.parametrize("flag", [0, 1])
def test_a_structure_with_a_pointer(launch: Launcher, device: Device, flag: int) -> None:
    data = np.arange(60, dtype=np.float32).reshape(6, 10)
    there = device.array(data)
    view = np.zeros((), VIEW)
    address = there.pointer
    view["data"], view["shape"], view["strides"] = address, (5, 7), (10, 1)
    view["flag"], view["bias"], view["scale"] = flag, -3, 0.5
    out = np.zeros((5, 7), np.float32)
    launch("parameters", "by_value", (2, 2), (4, 4), view, -7, 40000, True, 2**20, out)
    expected = data[:5, :7] * 0.5 - 3 + (flag * (40000 - 7)) + 2**20
    assert_same(out, expected.astype(np.float32))


def test_device_arrays_keep_what_was_written(launch: Launcher, device: Device) -> None:
    x = device.array(np.arange(64, dtype=np.float32))
    y = device.empty((64,), np.float32)
    launch("shared", "dynamic", 1, 64, 64, x, y, shared=64 * 16)
    once = y.to_numpy()
    launch("shared", "dynamic", 1, 64, 64, y, x, shared=64 * 16)
    assert_same(once, np.roll(np.arange(64, dtype=np.float32), -1) * 3)
    assert_same(x.to_numpy(), np.roll(once, -1) * 3)


def test_pitched_arrays(launch: Launcher) -> None:
    """A view's gaps are not touched."""
    whole = np.arange(100, dtype=np.int32)
    a, out = np.arange(32, dtype=np.int32), whole.reshape(10, 10)[:4, :8]
    launch("shared", "reverse", 1, 8, a, out)
    assert out[0].tolist() == list(range(7, -1, -1))
    assert whole[8:].tolist() == list(range(8, 100))


def test_constants(launch: Launcher) -> None:
    index = np.arange(50, dtype=np.int32) * 3
    out = np.zeros(50, np.int32)
    launch("module", "constants", 1, 64, 50, index, out)
    primes = np.array([2, 3, 5, 7, 11, 13, 17, 19])
    text = np.frombuffer(b"tilewise", np.uint8).astype(np.int64)
    assert_same(out, (primes[index & 7] + 3 + text[index & 7]).astype(np.int32))


def test_module_variables(launch: Launcher) -> None:
    i = np.arange(4)
    weights = np.array([[1, 2, 3], [4, 5, 6.5]])
    rest = np.array([-1, 2, -3, 4]) + weights[i & 1, i % 3] + np.array([5, 6.5])[i & 1]
    out = np.zeros(4)
    launch("module", "variables", 1, 4, out)
    # A module may be kept loaded or loaded anew for each launch: its variables then differ.
    first = 42 + i + rest
    assert out.tolist() in [(first + k * (2 + i)).tolist() for k in range(20)]


def test_module_tables(launch: Launcher) -> None:
    out = np.zeros(12, np.int32)
    launch("module", "tables", 1, 6, out)
    words, primes = ["one", "three", "seven"], [5, 13]
    expected = [len(w) * 1000 + ord(w[-1]) + primes[i & 1] for i, w in enumerate(words * 2)]
    expected += [[(-5 >> 8) + ord("a"), 2**32 + ord("b")][i & 1] for i in range(6)]
    assert out.tolist() == [np.int64(v).astype(np.int32) for v in expected]


def test_float_vectors(launch: Launcher) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 9, (70, k)).astype(np.float32) for k in (4, 2))
    out4, out2 = np.zeros_like(a), np.zeros_like(b)
    launch("vectors", "float_vectors", 2, 64, 70, a, b, out4, out2)
    x, y, z, w = a.T
    p, q = b.T
    assert_same(out4, np.stack([w, x + p, y * q, z], 1))
    assert_same(out2, np.stack([q, p + w], 1))


def test_mixed_vectors(launch: Launcher) -> None:
    rng = np.random.default_rng(3)
    n = 45
    a, c, d, e, f = (
        rng.integers(0, 2**62, (n, k)).astype(t)
        for k, t in [(2, "i4"), (4, "i1"), (4, "i2"), (2, "i8"), (2, "u1")]
    )
    b = rng.standard_normal((n, 2))
    outs = [np.zeros_like(v) for v in (a, b, c, d, e, f)]
    launch("vectors", "mixed_vectors", 1, 64, n, a, b, c, d, e, *outs[:5], f, outs[5])
    one = np.ones(n)
    expected = [
        [a[:, 1], -a[:, 0]],
        [b[:, 1], b[:, 0] + 1],
        [c[:, 3], c[:, 2], c[:, 1] + one.astype("i1"), c[:, 0]],
        [d[:, 1], d[:, 0], d[:, 3], d[:, 2] - one.astype("i2")],
        [e[:, 1], e[:, 0] ^ e[:, 1]],
        [f[:, 1], f[:, 0] + f[:, 1]],
    ]
    for out, columns in zip(outs, expected, strict=True):
        assert_same(out, np.stack(columns, 1).astype(out.dtype))


def test_triples(launch: Launcher) -> None:
    a = np.arange(60, dtype=np.float32).reshape(20, 3)
    out = np.zeros_like(a)
    launch("vectors", "triples", 1, 32, 20, a, out)
    assert_same(out, a[:, [2, 0, 1]])


def test_cache_hints(launch: Launcher) -> None:
    a, b = np.arange(40, dtype=np.float32), np.arange(160, dtype=np.float32).reshape(40, 4)
    out = np.zeros(40, np.float32)
    launch("vectors", "hinted", 1, 64, 40, a, b, out)
    assert_same(out, b.sum(1) + 4 * a)


def test_shared_vectors(launch: Launcher) -> None:
    a = np.random.default_rng(4).integers(-9, 9, (64, 4)).astype(np.float32)
    out = np.zeros_like(a)
    launch("vectors", "shared_vectors", 1, 64, a, out)
    expected = np.roll(a, -5, axis=0)
    expected[:, 0] += a.ravel()[:64]
    assert_same(out, expected)


def test_generic_pointers(launch: Launcher) -> None:
    a = np.random.default_rng(5).integers(-9, 9, 67).astype(np.float32)
    out = np.zeros(64, np.float32)
    launch("generic", "anywhere", 1, 64, a, out)
    module = np.arange(1, 9)
    expected = [
        [a[t : t + 3].sum(), a[:t].sum(), 4 * t + 6, module[: t % 8].sum()][t % 4]
        for t in range(64)
    ]
    assert_same(out, np.array(expected, np.float32))


def test_generic_stores(launch: Launcher) -> None:
    out = np.zeros(32, np.float32)
    launch("generic", "stores", 1, 32, out)
    t = np.arange(32)
    assert_same(out, (2 * t + (t >= 16)).astype(np.float32))


def test_kinds_of_pointers(launch: Launcher) -> None:
    out = np.zeros(30, np.int32)
    launch("generic", "spaces", 1, 30, out, np.zeros(1, np.int32))
    assert out.tolist() == [[1, 2, 4][t % 3] + 8 * 4 for t in range(30)]


def test_generic_atomics(launch: Launcher) -> None:
    out = np.zeros(2, np.int32)
    launch("generic", "generic_atomics", 1, 64, out)
    assert out.tolist() == [sum(range(0, 64, 2)), sum(range(1, 64, 2))]


def test_static_shared(launch: Launcher) -> None:
    a = np.arange(600, dtype=np.int32)
    out = np.zeros_like(a)
    launch("shared", "reverse", 3, 200, a, out)
    assert_same(out, a.reshape(3, 200)[:, ::-1].reshape(-1))


def test_dynamic_shared(launch: Launcher) -> None:
    a = np.arange(96, dtype=np.float32)
    out = np.zeros_like(a)
    launch("shared", "dynamic", 1, 96, 96, a, out, shared=96 * 16)
    assert_same(out, np.roll(a, -1) * 3)


def test_static_and_dynamic_shared(launch: Launcher) -> None:
    a = np.random.default_rng(6).integers(0, 256, 64).astype(np.uint8)
    out = np.zeros_like(a)
    launch("shared", "both", 1, 64, a, out, shared=64)
    s = a[np.arange(64) ^ 21].astype(np.int64)
    assert_same(out, (s + s * 3 + (s + 1)).astype(np.uint8))


@pytest.mark.parametrize("n", [16, 33])
def test_transpose(launch: Launcher, n: int) -> None:
    a = np.arange(n * n, dtype=np.float32).reshape(n, n)
    out = np.zeros_like(a)
    side = -(-n // 16)
    launch("shared", "transpose", (side, side), (16, 16), n, a, out)
    assert_same(out, a.T.copy())


def test_shared_structures(launch: Launcher) -> None:
    a = np.random.default_rng(7).standard_normal(32)
    out = np.zeros_like(a)
    launch("shared", "structures", 1, 32, a, out)
    t = np.arange(32)
    assert_same(out, a[31 - t] + (31 - t))


def test_local_arrays(launch: Launcher) -> None:
    a = np.random.default_rng(8).integers(-99, 99, (50, 8)).astype(np.int32)
    out = np.zeros_like(a)
    launch("local", "sort_eight", 1, 64, 50, a, out)
    assert_same(out, np.sort(a, axis=1))


def test_local_histograms(launch: Launcher) -> None:
    a = np.random.default_rng(9).integers(0, 256, (40, 32)).astype(np.uint8)
    out = np.zeros((40, 16), np.int32)
    launch("local", "histogram", 1, 64, 40, a, out)
    assert out.tolist() == [np.bincount(row & 15, minlength=16).tolist() for row in a]


def test_local_arrays_of_two_widths(launch: Launcher) -> None:
    pick = np.random.default_rng(10).integers(0, 1000, 40).astype(np.int32)
    out = np.zeros(40)
    launch("local", "mixed_widths", 1, 64, 40, pick, out)
    i = np.arange(40)
    expected = i + 0.25 * (pick % 5) + (pick % 24 * 7 - i).astype(np.int8)
    assert_same(out, expected)


def test_wide_copies(launch: Launcher) -> None:
    a = np.random.default_rng(11).standard_normal(256).astype(np.float32)
    out = np.zeros_like(a)
    launch("cp_async", "wide_copy", 1, 64, a, out)
    assert_same(out, a[::-1].copy())


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("n", [0, 8, 64])
def test_copies_that_are_ignored(launch: Launcher, n: int, turned: int) -> None:
    """They read nothing, and write zeros."""
    a = np.arange(1, 65, dtype=np.float32)[: max(n, 4)].copy()
    out = np.full(64, -1, np.float32)
    launch("cp_async", "ignoring_copy", 1, 16, n, turned, a, out)
    expected = np.zeros(64, np.float32)
    expected[:n] = a[:n]
    assert_same(out, expected[::-1].copy())


@pytest.mark.parametrize("n", [0, 5, 64])
def test_padded_copies(launch: Launcher, n: int) -> None:
    a = np.arange(1, 65, dtype=np.float32)[: max(n, 1)].copy()
    out = np.full(64, -1, np.float32)
    launch("cp_async", "padded_copy", 1, 64, n, a, out)
    padded = np.zeros(64, np.float32)
    padded[:n] = a[:n]
    assert_same(out, padded[::-1].copy())


@pytest.mark.parametrize("phases", [1, 2, 7])
def test_pipeline_of_copies(launch: Launcher, phases: int) -> None:
    a = np.random.default_rng(phases).integers(-9, 9, (phases, 128)).astype(np.float32)
    out = np.zeros(32, np.float32)
    launch("cp_async", "pipeline", 1, 32, phases, a, out)
    weighted = (np.roll(a, -37, axis=1) * np.arange(1, phases + 1)[:, None]).sum(0)
    assert_same(out, weighted.reshape(32, 4).sum(1).astype(np.float32))


def test_launches_in_several_threads(emulator: Device) -> None:
    source = """extern "C" __global__ void fill(int n, int value, int* x) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = value + i;
    }"""
    kernel = Kernel(source, "fill")

    def work(value: int) -> bool:
        for _ in range(12):
            x = np.zeros(500, np.int32)
            kernel.launch(1, 64, (500, value, x), device=emulator)
            there = emulator.empty((500,), np.int32)
            kernel.launch(1, 64, (500, -value, there), device=emulator)
            expected = np.arange(500, dtype=np.int32)
            if (
                not (x == expected + value).all()
                or not (there.to_numpy() == expected - value).all()
            ):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_a_launch_leaves_nothing_to_the_garbage_collector(
    launch: Launcher, emulator: Device
) -> None:
    """Its registers and its shared memory are free when it has ended, not some time later."""
    a, out = np.ones(64, np.int32), np.zeros(64, np.int32)
    launch("shared", "reverse", 1, 64, a, out)
    gc.collect()
    gc.disable()
    try:
        launch("shared", "reverse", 1, 64, a, out)
        kinds = Counter(type(each) for each in gc.get_objects())
    finally:
        gc.enable()
    assert {kind.__name__: kinds[kind] for kind in (Machine, Registers, Storage, Op)} == {
        "Machine": 0, "Registers": len(registers.kept), "Storage": 0, "Op": 0,
    }  # fmt: skip
    assert 0 < len(registers.kept) <= registers.KEPT
    assert not any(value.ndim for each in registers.kept.values() for value in each.values)


def test_what_runs_an_instruction_on_registers_is_made_for_the_first_launch(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the next one with other numbers and arrays; what it counts is the same."""
    source = """extern "C" __global__ void scale(int n, float by, const float* x, float* y) {
        int i = blockIdx.x * 32 + threadIdx.x;
        if (i < n) y[i] = x[n - 1 - i] * by + (i & 1 ? 0.5f : x[i]);
    }"""
    kernel = Kernel(source, "scale")
    made: list[str] = []
    builder = build._arithmetic

    def builds(machine: Machine, op: Op) -> None:
        made.append(op.instruction.opcode)
        builder(machine, op)

    monkeypatch.setattr(build, "_arithmetic", builds)
    monkeypatch.setattr(build, "_OF_REGISTERS", build._OF_REGISTERS | {builds})
    monkeypatch.setattr(build, "_builder", build._builder.__wrapped__)
    counted: list[Counters | None] = []
    for n, by in ((50, 2.0), (50, -2.0), (33, 4.0)):
        x = np.arange(n, dtype=np.float32)
        y = np.zeros_like(x)
        report = kernel.launch(2, 32, (n, by, x, y), device=emulator, counts=True)
        y64 = x[::-1] * by + np.where(np.arange(n) % 2, 0.5, x)
        assert_same(y, y64.astype(np.float32))
        assert bool(made) == (not counted)
        made.clear()
        counted.append(report.counters)
    assert counted[0] == counted[1] != counted[2]
    assert counted[0] is not None
    assert counted[0].flops >= 100
