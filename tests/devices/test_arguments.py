"""Arguments against parameters: what is taken, converted, and refused in words."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.compiler import Parameter
from tilewise.devices import Device
from tilewise.devices.arguments import ArrayArgument, ScalarArgument, bind
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "f32": 4, "f64": 8}


def parameter(kind: str, size: int | None = None) -> Parameter:
    size = SIZES[kind] if size is None else size
    return Parameter("k_param_0", kind, size, size)


def bound(kind: str, value: Any, size: int | None = None) -> ScalarArgument | ArrayArgument:
    return bind("k", [parameter(kind, size)], [value])[0]


def data(kind: str, value: Any, size: int | None = None) -> bytes:
    argument = bound(kind, value, size)
    assert isinstance(argument, ScalarArgument)
    return argument.data


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64"])
@given(st.data())
def test_an_integer_takes_signed_and_unsigned_values(kind: str, draw: st.DataObject) -> None:
    bits = 8 * SIZES[kind]
    value = draw.draw(st.integers(-(1 << (bits - 1)), (1 << bits) - 1))
    got = data(kind, value)
    assert len(got) == SIZES[kind]
    assert int.from_bytes(got, "little", signed=value < 0) == value


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64"])
@pytest.mark.parametrize("below", [True, False])
def test_an_integer_that_does_not_fit_is_refused(kind: str, below: bool) -> None:
    bits = 8 * SIZES[kind]
    value = -(1 << (bits - 1)) - 1 if below else 1 << bits
    with pytest.raises(ValueError, match=f"k, argument 0.*{value} does not fit {bits} bits"):
        bound(kind, value)


def test_numpy_and_bool_integers() -> None:
    assert data("u32", np.int64(-2)) == struct.pack("<i", -2)
    assert data("u8", True) == data("u8", np.True_) == b"\x01"
    assert data("u64", np.uint64(2**64 - 1)) == b"\xff" * 8


def test_none_is_the_null_pointer_and_an_address_a_pointer() -> None:
    assert data("u64", None) == bytes(8)
    assert data("u64", 0x7F0000001000) == struct.pack("<Q", 0x7F0000001000)
    with pytest.raises(TypeError, match="32-bit integer"):
        bound("u32", None)


@given(st.floats(allow_nan=False, width=32))
def test_floats(value: float) -> None:
    assert data("f32", value) == struct.pack("<f", value)
    assert data("f64", value) == struct.pack("<d", value)
    assert data("f32", np.float64(value)) == struct.pack("<f", value)


@pytest.mark.parametrize("value", [1, True, np.int32(1), np.float16(1), np.float32(1), 1.0])
def test_a_float_takes_any_real_number(value: Any) -> None:
    assert data("f32", value) == struct.pack("<f", 1)
    assert data("f64", value) == struct.pack("<d", 1)


def test_a_float_is_rounded_and_not_overflowed() -> None:
    assert data("f32", 0.1) == np.float32(0.1).tobytes()
    assert data("f32", float("inf")) == struct.pack("<f", float("inf"))
    assert np.isnan(np.frombuffer(data("f32", float("nan")), np.float32)[0])
    for kind, value in (("f32", 1e300), ("f32", 10**39), ("f64", 10**400)):
        with pytest.raises(ValueError, match="beyond the range"):
            bound(kind, value)


@pytest.mark.parametrize("kind", ["f32", "u32", "u8"])
@pytest.mark.parametrize("value", [np.zeros(1, np.float32), "1", [1], 1j])
def test_what_is_no_number_is_refused_for_one(kind: str, value: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"k, argument 0 \({kind}\): takes an? {8 * SIZES[kind]}-bit"
    ):
        bound(kind, value)


def test_a_float_is_refused_for_an_integer() -> None:
    with pytest.raises(TypeError, match=r"1\.5"):
        bound("u32", 1.5)
    with pytest.raises(TypeError, match="an array or a 64-bit integer"):
        bound("u64", 1.5)


def test_half_precision_goes_as_its_bits() -> None:
    assert data("u16", np.float16(-2)) == np.float16(-2).tobytes()
    assert data("b8", np.float16(-2), 2) == np.float16(-2).tobytes()
    with pytest.raises(TypeError):
        bound("u32", np.float16(1))


def test_structures() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("i", ctypes.c_int), ("x", ctypes.c_float))

    expected = struct.pack("<if", 3, 0.5)
    record = np.array([(3, 0.5)], np.dtype([("i", "<i4"), ("x", "<f4")]))[0]
    for value in (expected, bytearray(expected), Pair(3, 0.5), record):
        assert data("b8", value, 8) == expected
    with pytest.raises(TypeError, match="a struct of 8 bytes, not one of 12"):
        bound("b8", bytes(12), 8)
    with pytest.raises(TypeError, match="a struct of 8 bytes"):
        bound("b8", 5, 8)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_wrong_number_of_arguments(count: int) -> None:
    parameters = [parameter("u32"), parameter("u64")]
    with pytest.raises(TypeError, match=rf"k takes 2 arguments, not {count}.*32-bit.*an array"):
        bind("k", parameters, (1,) * count)
    with pytest.raises(TypeError, match=r"k takes 1 argument, not \d; in order: an 8-bit integer"):
        bind("k", [parameter("u8")], (1,) * (count + (count == 1)))


def test_the_message_counts_from_zero_and_names_the_type() -> None:
    with pytest.raises(TypeError, match=r"k, argument 1 \(f32\).*a numpy.ndarray of shape \(2,\)"):
        bind("k", [parameter("u32"), parameter("f32")], (1, np.zeros(2)))


def test_an_array_goes_through_as_it_is() -> None:
    x = np.zeros((3, 4), np.float32)
    argument = bound("u64", x)
    assert isinstance(argument, ArrayArgument)
    assert argument.value is x


class Elsewhere:
    """An array that speaks DLPack, on a device of this kind."""

    shape, dtype = (2, 3), "float32"

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def __dlpack__(self) -> object:
        raise AssertionError("not asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 0


def test_device_arrays_pass_and_host_ones_of_other_libraries_do_not() -> None:
    on_gpu = Elsewhere(2)
    argument = bound("u64", on_gpu)
    assert isinstance(argument, ArrayArgument)
    assert argument.value is on_gpu
    with pytest.raises(TypeError, match=r"Elsewhere of shape \(2, 3\).*lies on the host"):
        bound("u64", Elsewhere(1))


@pytest.mark.parametrize("value", [[1.0, 2.0], "x", object()])
def test_what_is_no_array_is_refused_for_one(value: Any) -> None:
    with pytest.raises(TypeError, match="takes an array or a 64-bit integer"):
        bound("u64", value)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((4, 6))[:, ::2],
        np.zeros((4, 6)).T,
        np.zeros(4)[::-1],
        np.zeros((4, 6))[::-1],
        np.ndarray((2, 2), np.float32, bytes(64), 0, (10, 4)),
    ],
    ids=["columns apart", "transposed", "reversed", "rows reversed", "odd pitch"],
)
def test_an_array_that_is_not_row_contiguous_is_refused(bad: npt.NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"k, argument 0.*not row-contiguous.*ascontiguousarray"):
        bound("u64", bad)


def test_objects_and_foreign_byte_order_are_refused() -> None:
    with pytest.raises(TypeError, match="Python objects"):
        bound("u64", np.zeros(2, object))
    with pytest.raises(ValueError, match="byte order"):
        bound("u64", np.zeros(2, np.dtype(np.float32).newbyteorder()))


def declared(kind: str, name: str, value: Any) -> ScalarArgument | ArrayArgument:
    """``value`` for a parameter whose declaration is known."""
    each = Parameter("k_param_0", kind, SIZES[kind], SIZES[kind], name)
    return bind("k", [each], [value])[0]


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("float*", "f4", "f8 i4 u4 u1 f2 c8 ? i8"),
        ("double*", "f8", "f4 i8 c16"),
        ("int*", "i4 u4", "f4 i8 i2 ?"),
        ("unsigned int*", "u4 i4", "f4 u8"),
        ("long long*", "i8 u8", "i4 f8"),
        ("unsigned long*", "u8 i8", "u4 f8"),
        ("short*", "i2 u2 f2", "f4 u1"),
        ("unsigned short*", "u2 i2 f2", "f4 u1"),
        ("__half*", "f2 u2 i2", "f4"),
        ("__nv_bfloat16*", "u2 i2", "f2 f4"),
        ("float2*", "f4 c8", "f8 c16"),
        ("double2*", "f8 c16", "f4 c8"),
        ("bool*", "? u1 i1", "i4 f4"),
        ("signed char*", "i1 u1", "f4"),
        # Bytes of anything, and what can't be told.
        ("void*", "f4 f8 u1 ?", ""),
        ("char*", "f4 f8 u1 ?", ""),
        ("unsigned char*", "f4 f8 u1 ?", ""),
        ("*", "f4 f8 u1 ?", ""),
        ("uint4*", "f4 f8 u1 ?", ""),
        ("", "f4 f8 u1 ?", ""),
        ("float**", "u8 f4", ""),
        ("unsigned long long", "f4 f8", ""),  # an address as an integer
    ],
)
def test_an_array_has_the_dtype_that_the_source_declares(
    name: str, taken: str, refused: str
) -> None:
    for dtype in taken.split():
        assert isinstance(declared("u64", name, np.zeros(3, dtype)), ArrayArgument)
    for dtype in refused.split():
        array = np.zeros(3, dtype)
        with pytest.raises(TypeError) as caught:
            declared("u64", name, array)
        message = str(caught.value)
        assert message.startswith(f"k, argument 0 ({name}): takes an array of ")
        assert f"dtype {array.dtype}" in message
        assert ".view(" in message


def test_halves_go_as_their_bits() -> None:
    bfloat16 = np.zeros(3, pytest.importorskip("ml_dtypes").bfloat16)
    for name in ("unsigned short*", "__nv_bfloat16*"):
        for array in (bfloat16, bfloat16.view(np.uint16)):
            assert isinstance(declared("u64", name, array), ArrayArgument)
    with pytest.raises(TypeError, match="takes an array of float16"):
        declared("u64", "__half*", bfloat16)


def test_a_view_is_how_bytes_are_read_otherwise() -> None:
    x = np.zeros(4, np.float64)
    with pytest.raises(TypeError, match=r"\.view\(float32\)"):
        declared("u64", "float*", x)
    assert isinstance(declared("u64", "float*", x.view(np.float32)), ArrayArgument)


def test_records_may_be_anything() -> None:
    record = np.zeros(3, [("x", np.float32), ("y", np.float32)])
    assert isinstance(declared("u64", "float*", record), ArrayArgument)


@pytest.mark.parametrize("dtype", ["float64", "torch.float64"])
def test_arrays_of_other_libraries_are_held_to_it_too(dtype: str) -> None:
    array = Elsewhere(2)
    assert isinstance(declared("u64", "float*", array), ArrayArgument)
    array.dtype = dtype
    with pytest.raises(TypeError, match=r"takes an array of float32, not a .*Elsewhere"):
        declared("u64", "float*", array)


@pytest.mark.parametrize(
    ("kind", "name", "low", "high"),
    [
        ("u8", "bool", 0, 1),
        ("u16", "short", -(2**15), 2**15 - 1),
        ("u32", "int", -(2**31), 2**31 - 1),
        ("u32", "unsigned int", 0, 2**32 - 1),
        ("u64", "long long", -(2**63), 2**63 - 1),
        ("u64", "unsigned long", 0, 2**64 - 1),
        ("u8", "char", -128, 255),
        ("u32", "", -(2**31), 2**32 - 1),
    ],
)
def test_an_integer_fits_what_the_source_declares(
    kind: str, name: str, low: int, high: int
) -> None:
    for value in (low, high):
        argument = declared(kind, name, value)
        assert isinstance(argument, ScalarArgument)
        signed = value < 0
        assert int.from_bytes(argument.data, "little", signed=signed) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"{value} does not fit .*{low} to {high}"):
            declared(kind, name, value)


@pytest.mark.parametrize("value", [None, np.zeros(3, np.int64)], ids=["None", "array"])
def test_a_signed_number_is_no_address(value: Any) -> None:
    with pytest.raises(TypeError, match=r"argument 0 \(long long\): takes a 64-bit integer, not"):
        declared("u64", "long long", value)


def test_a_masked_array_is_refused() -> None:
    masked = np.ma.masked_array(np.zeros(3, np.float32), [False, True, False])
    for name in ("float*", ""):
        with pytest.raises(TypeError, match=r"has a mask.*filled"):
            declared("u64", name, masked)


SCALED = """
#define REAL float
template <class T> __global__ void scaled(int n, T by, const T* __restrict__ x, REAL* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
"""


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({2: np.ones(4)}, TypeError, r"argument 2 \(float\*\): takes an array of float32"),
        ({3: np.ones(4, np.int32)}, TypeError, r"argument 3 \(float\*\).*dtype int32"),
        ({0: 2**31}, ValueError, r"argument 0 \(int\): 2147483648 does not fit int"),
        ({1: 10**400}, ValueError, "beyond the range"),
        ({2: np.ma.ones(4, np.float32)}, TypeError, "mask"),
    ],
    ids=["float64", "int32", "int", "float", "masked"],
)
def test_nothing_runs_with_a_wrong_argument(
    device: Device, change: dict[int, Any], kind: type[Exception], message: str
) -> None:
    y = np.full(4, 7, np.float32)
    args = {0: 4, 1: 2.0, 2: np.ones(4, np.float32), 3: y} | change
    kernel = Kernel(SCALED, "scaled<float>")
    with pytest.raises(kind, match=message):
        kernel.launch(1, 32, tuple(args.values()), device=device)
    with pytest.raises(kind, match=message):
        kernel.profile(1, 32, tuple(args.values()))
    assert (y == 7).all()
    kernel.launch(1, 32, (4, 2.0, np.ones(4, np.float32), y), device=device)
    assert (y == 2).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "k"), "source_or_path is 3; it takes"),
        ((b"void", "k"), "source_or_path is b'void'"),
        ((SCALED, 3), "name is 3"),
        ((SCALED, "k", 5), "defines is 5"),
        ((SCALED, "k", "TILE"), "defines is 'TILE'"),
    ],
)
def test_a_kernel_of_something_else(arguments: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Kernel(*arguments)


def test_limits_of_another_type() -> None:
    with pytest.raises(TypeError, match=r"limits is \{'seconds': 3\}; it takes tilewise.Limits"):
        Kernel("x", "k", limits={"seconds": 3})  # type: ignore[arg-type]
