"""Launches whose addresses come later: what reaches the driver, or on a GPU, the kernel."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from tilewise.compiler import Parameter
from tilewise.compiler.ptx import assembler
from tilewise.devices import Device, get_device, late_arguments
from tilewise.devices.cuda import Context
from tilewise.devices.gpu import Gpu
from tilewise.devices.late_arguments import bind_later, bind_words
from tilewise.devices.prepared import Prepared
from tilewise.devices.tensor_maps import TensorMaps
from tilewise.errors import LaunchError
from tilewise.gemm.steps import Plan, Step, execute
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.places import Packed, Place, TensorMap

# *first += number; *second += *first
ADD = r"""
struct Pair { long long number; int* first; int* second; };
extern "C" __global__ void add(const Pair pair, int* also) {
    *pair.first += (int)pair.number;
    *pair.second += *pair.first;
    *also += 100;
}"""
# After whatever ran before it in the stream.
WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
WAITING = ADD.replace("*pair", f"{WAIT} *pair", 1)
# The 32 x 8 box at (x, y) of a matrix of floats, by a bulk copy.
BOX = r"""
struct __align__(64) TensorMap { unsigned long long words[16]; };
extern "C" __global__ void box(const __grid_constant__ TensorMap map, int x, int y, float* out) {
    __shared__ __align__(1024) float tile[32 * 8];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned to = __cvta_generic_to_shared(tile), full = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;\n"
                     "fence.proxy.async;\n"
                     "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
                     :: "r"(full), "r"((int)sizeof tile) : "memory");
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5];"
                     :: "r"(to), "l"(&map), "r"(x), "r"(y), "r"(0), "r"(full) : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(full) : "memory");
    // 16-byte pieces change places by the row, of 128 bytes.
    int row = threadIdx.x / 32, column = threadIdx.x % 32;
    out[threadIdx.x] = tile[row * 32 + (column / 4 ^ row) * 4 + column % 4];
}"""
# The same with the map in a structure, behind others.
HELD = BOX.replace(
    'extern "C"', 'struct Held { int* beside; int x; TensorMap maps[2]; int y; };\nextern "C"', 1
)
for _old, _new in (
    ("TensorMap map, int x, int y,", "Held held,"),
    ('"l"(&map), "r"(x), "r"(y)', '"l"(&held.maps[1]), "r"(held.x), "r"(held.y)'),
    ("    // 16-byte", "    if (threadIdx.x == 0) *held.beside = held.x;\n    // 16-byte"),
):
    assert HELD.count(_old) == 1
    HELD = HELD.replace(_old, _new)
FIELDS = struct.Struct("<Qi52x256xi60x")
PAIR = struct.Struct("<qQQ")


def pair(number: int, first: Place, second: Place) -> Packed:
    return Packed(PAIR.pack(number, 0, 0), ((8, first), (16, second)))


def held(place: Place, beside: Place, x: int, y: int) -> Packed:
    """Of two maps, the first is of something else."""
    maps = (64, matrix_map(beside, extents=(4, 4, 1))), (192, matrix_map(place))
    return Packed(FIELDS.pack(0, x, y), ((0, beside),), maps)


def matrix_map(place: Place, **changes: Any) -> TensorMap:
    fields: dict[str, Any] = {
        "dtype": "float32", "extents": (64, 16, 1), "strides": (256, 16), "box": (32, 8),
    }  # fmt: skip
    return TensorMap.of_matrices(place, **(fields | changes))


def test_places_on_the_emulator() -> None:
    device = get_device("emulator")
    arrays = [device.array(np.arange(4, dtype=np.int32)) for _ in range(2)]
    kernel = Kernel(ADD, "add")
    steps = (
        Step(kernel, Launch((1, 1, 1), (1, 1, 1), (pair(5, Place(0, 4), Place(1)), Place(1, 12)))),
        Step(kernel, Launch((1, 1, 1), (1, 1, 1), (pair(7, Place(1), Place(0)), Place(0, 12)))),
    )
    execute(Plan(steps, 0, "", ""), device, 0, [array.pointer for array in arrays])
    assert arrays[0].to_numpy().tolist() == [13, 6, 2, 103]
    assert arrays[1].to_numpy().tolist() == [13, 1, 2, 103]


@pytest.mark.parametrize(
    ("kind", "words", "parameter", "value"),
    [
        (TypeError, "not an address", Parameter("p", "f64", 8, 8), Place(0)),
        (TypeError, "not an address", Parameter("p", "u32", 4, 4), Place(0)),
        (TypeError, "takes a struct", Parameter("p", "b8", 8, 8), Place(0)),
        (TypeError, "no arrays", Parameter("p", "u64", 8, 8), np.zeros(3)),
        (TypeError, "not one of 128 bytes", Parameter("p", "b8", 64, 8), matrix_map(Place(0))),
        (TypeError, "384 bytes", Parameter("p", "b8", 128, 8), held(Place(0), Place(0), 0, 0)),
        (ValueError, "byte 4", Parameter("p", "b8", 16, 8), Packed(bytes(16), ((4, Place(0)),))),
        (ValueError, "byte 16", Parameter("p", "b8", 16, 8), Packed(bytes(16), ((16, Place(0)),))),
    ],
)
def test_what_takes_no_address(
    kind: type[Exception], words: str, parameter: Parameter, value: Any
) -> None:
    with pytest.raises(kind, match=words):
        bind_later("k", [parameter], [value])


ARGUMENTS = st.one_of(
    st.integers(-(1 << 65), 1 << 65),
    st.sampled_from((0, -1, 255, 256, -128, -129, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)),
    st.booleans(),
    st.none(),
    st.floats(),
    st.binary(min_size=16, max_size=16),
    st.builds(np.int64, st.integers(-5, 5)),
    st.builds(Place, st.integers(0, 4), st.integers(0, 99)),
    st.builds(
        lambda size, at: Packed(bytes(size), ((at, Place(1)), (0, Place(2)))),
        st.sampled_from((8, 16, 24)), st.integers(-8, 24),
    ),
    st.builds(
        lambda size, at: Packed(bytes(size), ((0, Place(1)),), ((at, matrix_map(Place(0, 3))),)),
        st.sampled_from((128, 192, 256)), st.sampled_from((-64, 0, 8, 64, 128, 192)),
    ),
    st.builds(lambda at: matrix_map(Place(at)), st.integers(0, 3)),
)  # fmt: skip
PARAMETERS = st.sampled_from(
    [Parameter("p", f"{kind}{8 * size}", size, size) for kind in "us" for size in (1, 2, 4, 8)]
    + [Parameter("p", f"f{8 * size}", size, size) for size in (4, 8)]
    + [Parameter("p", "b8", size, 8) for size in (8, 16, 24, 128, 192, 256)]
)


@given(st.lists(st.tuples(PARAMETERS, ARGUMENTS), max_size=3), st.sampled_from((0, 0, 0, 1, -1)))
@examples(600)
def test_the_usual_arguments_are_bound_as_any(both: list[tuple[Parameter, Any]], more: int) -> None:
    """The brief way gives what the long one gives, and refuses nothing else."""
    parameters, args = [p for p, _ in both], [value for _, value in both]
    args = args[:-1] if more < 0 else args + [0] * more
    usual = late_arguments._usual_words(parameters, args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_arguments, "_usual_words", lambda *_: None)
        try:
            whole = bind_words("k", parameters, args)
        except (TypeError, ValueError):
            assert usual is None
        else:
            assert usual in (None, whole._replace(first=tuple(whole.first)))


def test_the_usual_arguments_take_the_brief_way() -> None:
    parameters = [
        Parameter("p", "u32", 4, 4), Parameter("p", "u64", 8, 8), Parameter("p", "u64", 8, 8),
        Parameter("p", "b8", 24, 8), Parameter("p", "b8", 128, 64), Parameter("p", "b8", 384, 64),
        Parameter("p", "b8", 128, 64), Parameter("p", "s32", 4, 4),
    ]  # fmt: skip
    args = (
        7, 1 << 40, Place(1, 8), pair(5, Place(0, 4), Place(1)), matrix_map(Place(2)),
        held(Place(1, 64), Place(0), 5, 6), bytes(128), -1,
    )  # fmt: skip
    found = late_arguments._usual_words(parameters, args)
    assert found is not None
    assert found.first == (0, 1, 2, 3, 6, 22, 70, 86)
    assert len(found.data) == 8 * 87
    assert [word for word, _ in found.places] == [2, 4, 5, 6, 22, 30, 46]
    assert [word for word, _ in found.maps] == [6, 30, 46]
    assert found.data[:16] == (7).to_bytes(8, "little") + (1 << 40).to_bytes(8, "little")
    assert found.data[-8:] == b"\xff\xff\xff\xff\0\0\0\0"


def test_arguments_that_are_not_the_usual_ones_are_known_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sought, seek = [], late_arguments._new_form

    def count(parameters: Any, kinds: Any) -> Any:
        sought.append(kinds)
        return seek(parameters, kinds)

    monkeypatch.setattr(late_arguments, "_new_form", count)
    parameters = [Parameter("p", "f32", 4, 4)]
    found = [bind_words("k", parameters, (value,)).data for value in (1.0, 2.0)]
    assert found == [struct.pack("<f4x", value) for value in (1.0, 2.0)]
    assert len(sought) == 1
    other = [Parameter("p", "f32", 4, 4)]
    bind_words("k", other, (1.0,))
    assert len(sought) == 2


def test_a_structure_is_filled() -> None:
    """Its tensor maps too, where it is told how, and else not at all."""
    first, second = matrix_map(Place(1, 64)), matrix_map(Place(0, -16))
    packed = Packed(
        bytes(range(1, 25)) + bytes(256) + b"end.....", ((8, Place(0, 4)),),
        ((24, first), (152, second)),
    )  # fmt: skip
    asked = []

    def encode(x: TensorMap, address: int) -> bytes:
        asked.append((x, address))
        return bytes([len(asked)]) * 128

    for filled in (packed.filled((1000, 2000)), packed.filled((1000, 2000), None)):
        assert filled is packed
    data = packed.filled((1000, 2000), encode)
    assert asked == [(first, 2064), (second, 984)]
    assert data == (
        bytes(range(1, 9)) + (1004).to_bytes(8, "little") + bytes(range(17, 25))
        + b"\1" * 128 + b"\2" * 128 + b"end....."
    )  # fmt: skip
    # One without maps needs no encoder, and takes one.
    plain = pair(5, Place(0, 4), Place(1))
    for filled in (plain.filled((1000, 2000)), plain.filled((1000, 2000), encode)):
        assert filled == PAIR.pack(5, 1004, 2000)
    launch = Launch((1, 1, 1), (1, 1, 1), (packed, plain, first, Place(1, 4), 7))
    assert launch.filled((1000, 2000)).args == (packed, PAIR.pack(5, 1004, 2000), first, 2004, 7)
    *known, _, _ = launch.filled((1000, 2000), encode).args
    assert [len(value) for value in known] == [288, 24, 128]


_VALUES = {
    "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": (
        "programmaticStreamSerializationAllowed"
    ),
    "CU_LAUNCH_ATTRIBUTE_COOPERATIVE": "cooperative",
}


class Recorder:
    """Stands for a context and its driver; keeps the parameters that each launch is made with."""

    def __init__(self, sizes: list[int], encode: Any = None, status: int = 0) -> None:
        self.driver = self
        self.launches: list[tuple[Any, list[bytes]]] = []
        self._sizes = sizes
        self._status = status
        if encode is not None:
            self.cuTensorMapEncodeTiled = encode
        self.tensor_maps = TensorMaps(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("cuda.bindings.driver"), name)

    def cuLaunchKernelEx(self, made: Any, _function: Any, values: int, _extra: int) -> tuple[int]:
        pointers = (ctypes.c_void_p * len(self._sizes)).from_address(values)
        grid = made.gridDimX, made.gridDimY, made.gridDimZ
        block = made.blockDimX, made.blockDimY, made.blockDimZ
        attributes = [
            (name := x.id.name, getattr(x.value, _VALUES[name]))
            for x in (made.attrs if made.numAttrs else ())
        ]
        said = grid, block, made.sharedMemBytes, int(made.hStream), attributes
        read = [ctypes.string_at(p, n) for p, n in zip(pointers, self._sizes, strict=True)]
        self.launches.append((said, read))
        return (self._status,)

    def error(self, status: int, function: str) -> Exception:
        return LaunchError(f"{function} says {status}")


def prepared(context: Recorder, kernel: Kernel, *args: Any, **options: Any) -> Prepared:
    launch = Launch((2, 3, 4), (32, 1, 1), args, **options)
    return Prepared(cast(Context, context), kernel.compile("sm_90a"), 7, launch)


def test_what_reaches_the_driver() -> None:
    context = Recorder([24, 8])
    arguments = pair(5, Place(1, 4), Place(0)), Place(2, 12)
    overlap, together = (dict.fromkeys((name,), True) for name in ("overlap", "cooperative"))
    for how in ({}, overlap, together, overlap | together):
        ready = prepared(context, Kernel(ADD, "add"), *arguments, shared=64, **how)
        ready.enqueue(9, (1000, 2000, 3000))
        ready.enqueue(10, (4000, 5000, 6000))
    one, other = ((name, 1) for name in _VALUES)
    for at, attributes in enumerate(([], [one], [other], [one, other])):
        (first, values), (second, others) = context.launches[2 * at : 2 * at + 2]
        assert first == ((2, 3, 4), (32, 1, 1), 64, 9, attributes)
        assert second == ((2, 3, 4), (32, 1, 1), 64, 10, attributes)
        assert values == [PAIR.pack(5, 2004, 1000), (3012).to_bytes(8, "little")]
        assert others == [PAIR.pack(5, 5004, 4000), (6012).to_bytes(8, "little")]


def test_launches_at_one_time_have_parameters_of_their_own() -> None:
    """Even a launch from within the driver's call of another one; and none are made in vain."""
    context = Recorder([24, 8])
    launch, depth = context.cuLaunchKernelEx, 3
    begun: list[int] = []

    def within(made: Any, _function: Any, values: int, _extra: int) -> tuple[int]:
        begun.append(values)
        if len(begun) < depth:
            ready.enqueue(10 + len(begun), (len(begun), 0, 0))
        return launch(made, _function, values, _extra)

    context.cuLaunchKernelEx = within  # type: ignore[method-assign]
    ready = prepared(context, Kernel(ADD, "add"), pair(5, Place(1, 4), Place(0)), Place(2, 12))
    for _ in range(2):
        ready.enqueue(10, (0, 0, 0))
        streams = [said[3] for said, _ in context.launches]
        firsts = [int.from_bytes(values[0][16:24], "little") for _, values in context.launches]
        assert streams == [12, 11, 10]
        assert firsts == [2, 1, 0]
        assert len(set(begun)) == len(ready._free) == depth
        context.launches.clear()
        begun.clear()


def test_a_refusal_by_the_driver_is_an_error() -> None:
    ready = prepared(
        Recorder([24, 8], status=3), Kernel(ADD, "add"), pair(0, Place(0), Place(0)), 8
    )
    with pytest.raises(LaunchError, match="cuLaunchKernelEx says 3"):
        ready.enqueue(0, (1000,))


class Driven(Recorder):
    """And for all of a GPU's driver: says which functions were called."""

    def __init__(self) -> None:
        super().__init__([24, 8])
        self.called: list[str] = []
        self.is_ready = True
        self.core = self

    @property
    def ObjectCode(self) -> Any:
        return self

    def from_cubin(self, _code: bytes) -> Any:
        self.called.append("from_cubin")
        return self

    def from_ptx(self, code: bytes) -> Any:
        self.called.append(f"from_ptx {len(code)}")
        return self

    def get_kernel(self, _symbol: str) -> Any:
        return self

    handle = 1

    def call(self, function: str, *_: Any) -> int:
        self.called.append(function)
        return 1024 if function == "cuFuncGetAttribute" else 7

    @contextmanager
    def current(self) -> Iterator[None]:
        self.called.append("current")
        yield

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        self.called.append("relaxed_capture")
        yield


def driven_gpu() -> tuple[Gpu, Driven]:
    """A GPU, and what stands for its driver and notes what is asked of it."""
    context = Driven()
    gpu = Gpu.__new__(Gpu)
    gpu.__dict__.update(
        context=context, _lock=threading.RLock(), _loaded={}, _capability=90, max_shared=200_000,
        description="made up", arch="sm_90a",
    )  # fmt: skip
    return gpu, context


def test_ptx_without_machine_code_is_the_drivers_to_assemble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    gpu, context = driven_gpu()
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    for text in ("ret;", "exit;", "ret;"):  # the third is the first
        compiled = Kernel.from_ptx(f"{head}.entry k() {{ {text} }}\n").compile("sm_90a")
        gpu.prepare(compiled, Launch((1, 1, 1), (32, 1, 1), ()))
    codes = [each for each in context.called if each.startswith("from_")]
    assert len(set(codes)) == len(codes) == 2
    assert all(each.startswith("from_ptx") for each in codes)


def test_a_kernel_that_is_loaded_asks_the_driver_nothing() -> None:
    """But for a context that is not current, or for more shared memory."""
    gpu, context = driven_gpu()
    compiled = Kernel(ADD, "add").compile("sm_90a", lines=False)
    arguments = pair(5, Place(1, 4), Place(0)), Place(2, 12)

    def called(shared: int) -> list[str]:
        context.called.clear()
        launch = Launch((1, 1, 1), (32, 1, 1), arguments, shared)
        gpu.prepare(compiled, launch).enqueue(0, (1000, 2000, 3000))
        return list(context.called)

    loading = ["current", "relaxed_capture", "from_cubin", "cuKernelGetFunction"]
    assert called(0)[:4] == loading
    assert called(0) == []
    assert called(100_000) == ["current", "relaxed_capture", "cuFuncSetAttribute"]
    assert called(90_000) == called(100_000) == []
    assert called(110_000)[-1] == "cuFuncSetAttribute"
    context.is_ready = False
    assert called(0) == ["current", "relaxed_capture"]
    context.is_ready = True
    with pytest.raises(LaunchError, match="at most 200,000"):
        called(200_000)


@pytest.mark.parametrize("is_patched", [True, False])
def test_tensor_maps_get_their_address(is_patched: bool) -> None:
    """Written over where the driver's own have it in their first bytes, else made anew."""
    success = import_module("cuda.bindings.driver").CUresult.CUDA_SUCCESS
    encoded: list[int] = []

    class Map:
        def __init__(self, address: int) -> None:
            words = [address, 11, 12] if is_patched else [11, address, 12]
            self._words = (ctypes.c_uint64 * 16)(*words)

        def getPtr(self) -> int:
            return ctypes.addressof(self._words)

    def encode(_kind: Any, _rank: int, address: int, *_: Any) -> tuple[Any, Map]:
        encoded.append(address)
        return success, Map(address)

    context = Recorder([128, 4, 4, 8], encode)
    ready = prepared(context, Kernel(BOX, "box"), matrix_map(Place(1, 64)), 1, 2, Place(0))
    ready.enqueue(0, (1024, 2048))
    ready.enqueue(0, (3008, 4000))
    for (_, values), address in zip(context.launches, (2112, 4064), strict=True):
        words = (address, 11, 12) if is_patched else (11, address, 12)
        assert struct.unpack("<3Q", values[0][:24]) == words
        assert values[0][24:] == bytes(104)
    tried = 3 if is_patched else 2
    assert encoded[tried:] == ([] if is_patched else [2112, 4064])
    # A kind is tried once: of others like it, each is made once, or with each address.
    encoded.clear()
    other = matrix_map(Place(0), extents=(96, 8, 2), strides=(512, 4096))
    ready = prepared(context, Kernel(BOX, "box"), other, 1, 2, Place(1))
    ready.enqueue(0, (1024, 2048))
    assert len(encoded) == 1
    assert (encoded == [1024]) != is_patched
    prepared(context, Kernel(BOX, "box"), matrix_map(Place(0), promotion=256), 1, 2, Place(1))
    assert len(encoded) == 1 + tried
    # One like another, of whichever array, is not made again.
    ready = prepared(context, Kernel(BOX, "box"), matrix_map(Place(0, 128)), 1, 2, Place(1))
    assert len(encoded) == 1 + tried
    ready.enqueue(0, (1024, 2048))
    assert encoded[1 + tried :] == ([] if is_patched else [1152])

    context = Recorder([384, 8], encode)
    encoded.clear()
    ready = prepared(context, Kernel(HELD, "box"), held(Place(1, 64), Place(0), 5, 6), Place(0))
    ready.enqueue(0, (1024, 2048))
    ready.enqueue(0, (3008, 4000))
    for (_, values), beside, address in zip(
        context.launches, (1024, 3008), (2112, 4064), strict=True
    ):
        first, second = (
            struct.pack("<3Q", *((at, 11, 12) if is_patched else (11, at, 12))).ljust(128, b"\0")
            for at in (beside, address)
        )
        fields = FIELDS.pack(beside, 5, 6)
        assert values[0] == fields[:64] + first + second + fields[320:]
    tried = 4 if is_patched else 2  # its maps are of one kind, and not alike
    assert encoded[tried:] == ([] if is_patched else [1024, 2112, 3008, 4064])


@pytest.mark.parametrize(
    ("box", "swizzle"),
    [((8, 8), "32B"), ((16, 8), "64B"), ((32, 8), "128B"), ((36, 8), "NONE"), ((4, 8), "NONE")],
)
def test_boxes_are_swizzled_by_their_width(box: tuple[int, int], swizzle: str) -> None:
    success = import_module("cuda.bindings.driver").CUresult.CUDA_SUCCESS
    asked = []

    class Encoded:
        words = (ctypes.c_uint64 * 16)()

        def getPtr(self) -> int:
            return ctypes.addressof(self.words)

    def encode(*args: Any) -> tuple[Any, Encoded]:
        asked.append(args[8].name)
        return success, Encoded()

    prepared(
        Recorder([128, 4, 4, 8], encode), Kernel(BOX, "box"), matrix_map(Place(0), box=box), 0, 0,
        Place(0),
    )  # fmt: skip
    assert set(asked) == {f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"}


@pytest.mark.parametrize("changes", [{"dtype": "int8"}, {"promotion": 32}])
def test_tensor_maps_that_there_are_not(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="there is no tensor map"):
        prepared(
            Recorder([128, 4, 4, 8]), Kernel(BOX, "box"), matrix_map(Place(0), **changes), 0, 0, 0
        )


def test_places_on_a_gpu_in_the_stream_s_order(gpu: Gpu) -> None:
    x, y = (gpu.array(np.zeros(2, np.int32)) for _ in range(2))
    waits = gpu.arch.startswith("sm_9")
    steps = tuple(
        Step(
            Kernel(WAITING if waits else ADD, "add"),
            Launch(
                (1, 1, 1), (1, 1, 1), (pair(1, first, second), Place(0, 4)), overlap=waits
            ),
        )
        for first, second in ((Place(0), Place(1)), (Place(1), Place(0)))
    )  # fmt: skip
    plan = Plan(steps, 0, "", "")
    first, second = 0, 0
    for _ in range(15):
        execute(plan, gpu, 0, (x.pointer, y.pointer))
        first += 1
        second += first + 1
        first += second
    assert x.to_numpy().tolist() == [first, 15 * 2 * 100]
    assert y.to_numpy().tolist() == [second, 0]


def test_threads_share_a_prepared_launch(gpu: Gpu) -> None:
    ready = gpu.prepare(
        Kernel(ADD, "add").compile(gpu.arch),
        Launch((1, 1, 1), (1, 1, 1), (pair(1, Place(0), Place(0, 4)), Place(0, 8))),
    )
    arrays = [gpu.array(np.zeros(3, np.int32)) for _ in range(4)]

    def work(address: int) -> None:
        for _ in range(300):
            gpu.enqueue(ready, 0, (address,))

    threads = [threading.Thread(target=work, args=(array.pointer,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for array in arrays:
        assert array.to_numpy().tolist() == [300, 300 * 301 // 2, 30000]


def test_bulk_copies_of_any_address(gpu: Gpu) -> None:
    if not gpu.arch.startswith("sm_9"):
        pytest.skip("needs bulk copies: compute capability 9.0")
    host = np.arange(2 * 16 * 64, dtype=np.float32).reshape(2, 16, 64)
    out = gpu.empty((8, 32), np.float32)
    ready = gpu.prepare(
        Kernel(BOX, "box").compile(gpu.arch),
        Launch((1, 1, 1), (256, 1, 1), (matrix_map(Place(0, 4096)), 8, 3, Place(1))),
    )
    for factor in (1, 2):
        x = gpu.array(host * factor)
        gpu.enqueue(ready, 0, (x.pointer, out.pointer))
        np.testing.assert_array_equal(out.to_numpy(), x.to_numpy()[1, 3:11, 8:40])


def test_maps_in_a_structure(hopper: Device) -> None:
    """The same box comes by a map in a structure as by one that is an argument."""
    host = np.arange(2 * 16 * 64, dtype=np.float32).reshape(2, 16, 64)
    beside, (out, other) = (
        hopper.array(np.zeros(4 * 64, np.int32)), (hopper.empty((8, 32), np.float32) for _ in "ab"),
    )  # fmt: skip
    boxes = (
        (Kernel(BOX, "box"), (matrix_map(Place(0, 4096)), 8, 3, Place(1))),
        (Kernel(HELD, "box"), (held(Place(0, 4096), Place(2), 8, 3), Place(1))),
    )
    steps = [Step(kernel, Launch((1, 1, 1), (256, 1, 1), args)) for kernel, args in boxes]
    for factor in (1, 2):
        x = hopper.array(host * factor)
        for step, to in zip(steps, (out, other), strict=True):
            execute(Plan((step,), 0, "", ""), hopper, 0, (x.pointer, to.pointer, beside.pointer))
        np.testing.assert_array_equal(out.to_numpy(), x.to_numpy()[1, 3:11, 8:40])
        np.testing.assert_array_equal(other.to_numpy(), out.to_numpy())
        assert beside.to_numpy()[0] == 8
