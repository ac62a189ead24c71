"""Run each arithmetic PTX instruction on a GPU, and keep the results for machines without one.

``python tests/hardware.py FILE`` assembles one kernel for each instruction, runs it on GPU 0 over
edge cases and random bits, and writes operands and results to FILE (NumPy's ``.npz``). The tests
of the emulator's arithmetic read ``tests/data/instructions.npz``, made that way.
"""

from __future__ import annotations

import ctypes
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.ptx.types import DTYPES

FILE = Path(__file__).parent / "data" / "instructions.npz"
LANES = 64
Array = npt.NDArray[Any]
# Bits of fraction, of exponent, and in all.
FLOATS = {"f16": (10, 5, 16), "bf16": (7, 8, 16), "f32": (23, 8, 32), "f64": (52, 11, 64)}

_COMPARE = "eq ne lt le gt ge"
_UNORDERED = "equ neu ltu leu gtu geu num nan"
_INT = "u16 s16 u32 s32 u64 s64"
_ALL_INT = "u8 s8 " + _INT
_DIRECTED = "rn rz rm rp"
_HALF = "f16 bf16 f16x2 bf16x2"
# Each word stands for itself, each group for one of its words; "-" is no word.
_PATTERNS: tuple[tuple[str, ...], ...] = (
    ("add sub mul fma", _DIRECTED, "- ftz", "- sat", "f32"),
    ("add sub mul fma div sqrt rcp", _DIRECTED, "f64"),
    ("div sqrt rcp", _DIRECTED, "- ftz", "f32"),
    ("abs neg", "- ftz", "f32"),
    ("abs neg copysign", "f64"),
    ("copysign", "f32"),
    ("min max", "- ftz", "- NaN", "- xorsign.abs", "f32"),
    ("min max", "f64"),
    ("testp", "finite infinite number notanumber normal subnormal", "f32 f64"),
    ("setp", f"{_COMPARE} {_UNORDERED}", "- and", "- ftz", "f32"),
    ("setp", f"{_COMPARE} {_UNORDERED}", "f64 f16x2 bf16x2"),
    ("setp", _COMPARE, "- or xor", _INT),
    ("setp", "eq ne", "b16 b32 b64"),
    ("setp", "lo ls hi hs", "u16 u32 u64"),
    ("set", "lt neu", "u32 s32 f32", "f32 f64"),
    ("set", "lt neu", "f16 u32 u16", "f16"),
    ("set", "lt neu", "f16x2", "f16x2"),
    ("selp", "b16 b32 b64 u16 s32 f32 f64"),
    ("slct", "b32 f32 u64", "s32"),
    ("slct", "- ftz", "b32 f32 u64", "f32"),
    ("add sub mul", "- rn", "- ftz", "- sat", "f16 f16x2"),
    ("add sub mul", "- rn", "bf16 bf16x2"),
    ("fma.rn", "- ftz", "- sat relu", "f16 f16x2"),
    ("fma.rn", "- relu", "bf16 bf16x2"),
    ("neg abs", "- ftz", "f16 f16x2"),
    ("neg abs", "bf16 bf16x2"),
    ("min max", "- NaN", "- xorsign.abs", _HALF),
    ("min.ftz max.ftz", "- NaN", "f16 f16x2"),
    ("add sub min max div rem sad", _INT),
    ("add sub", "sat.s32"),
    ("abs neg", "s16 s32 s64"),
    ("min max add", "u16x2 s16x2"),
    ("min max", "relu", "s32 s16x2"),
    ("add sub addc subc", "cc", "u32 s32 u64 s64"),
    ("addc subc", "u32 s32 u64"),
    ("mul mad", "lo hi", _INT),
    ("mul mad", "wide", "u16 s16 u32 s32"),
    ("mad", "hi.sat.s32"),
    ("mad madc", "lo hi", "cc", "u32 s32 u64 s64"),
    ("madc", "lo hi", "u32 s32 u64 s64"),
    ("mul24 mad24", "lo hi", "u32 s32"),
    ("dp4a", "u32 s32", "u32 s32"),
    ("dp2a", "lo hi", "u32 s32", "u32 s32"),
    ("and or xor not", "pred b16 b32 b64"),
    ("cnot", "b16 b32 b64"),
    ("shl", "b16 b32 b64"),
    ("shr", f"b16 b32 b64 {_INT}"),
    ("shf", "l r", "clamp wrap", "b32"),
    ("prmt.b32", "- f4e b4e rc8 ecl ecr rc16"),
    ("popc clz brev bfi", "b32 b64"),
    ("bfind", "- shiftamt", "u32 s32 u64 s64"),
    ("bfe", "u32 s32 u64 s64"),
    ("bmsk", "clamp wrap", "b32"),
    ("szext", "clamp wrap", "u32 s32"),
    ("cvt", _ALL_INT, _ALL_INT),
    ("cvt.sat", "u8 s8 u16 s16", "u32 s32 u64 s64"),
    ("cvt.sat", "u32 s32", "u64 s64"),
    ("cvt", _DIRECTED, "f32 f64", _ALL_INT),
    ("cvt", "rn rz", "f16", _ALL_INT),
    ("cvt", _DIRECTED, "bf16", _INT),
    ("cvt", "rn.sat", "f16 f32", "s32 u32"),
    ("cvt", "rni rzi rmi rpi", _ALL_INT, "f32 f64 f16"),
    ("cvt", "rni rzi rmi rpi", _INT, "bf16"),
    ("cvt.rzi.ftz", _ALL_INT, "f32"),
    ("cvt", _DIRECTED, "- ftz", "- sat", "f32.f64"),
    ("cvt", "- ftz", "f64.f32"),
    ("cvt", _DIRECTED, "f16 bf16", "f64"),
    ("cvt", _DIRECTED, "- ftz", "f16 bf16", "f32"),
    ("cvt", "rn rz", "relu satfinite relu.satfinite", "f16 bf16", "f32"),
    ("cvt", "- ftz", "f32", "f16 bf16"),
    ("cvt", "f64", "f16 bf16"),
    ("cvt", _DIRECTED, "f16.bf16 bf16.f16"),
    ("cvt", "- rni rzi rmi rpi", "- sat", "f32.f32 f64.f64 f16.f16"),
    ("cvt", "- rni rzi rmi rpi", "ftz", "- sat", "f32.f32"),
    ("cvt", "- rni rzi rmi rpi", "bf16.bf16"),
    ("cvt", "rn rz", "- relu satfinite relu.satfinite", "f16x2 bf16x2", "f32"),
    ("cvt", "rn rz", "- relu", "tf32.f32"),
    ("cvt", "rna", "tf32.f32"),
)
TABLES = (0x00, 0x80, 0xE2, 0x96, 0xCA, 0x1B, 0xFF, 0xFE, 0x7F, 0x0F, 0xF0, 0x3C, 0xAA, 0x55, 0x33)


def instructions() -> list[str]:
    """Return every instruction that is run; ``lop3`` has its table after a ``#``."""
    names = [
        ".".join(word for word in words if word != "-")
        for pattern in _PATTERNS
        for words in product(*(group.split() for group in pattern))
    ]
    names += [f"lop3.b32#{table}" for table in TABLES]
    return list(dict.fromkeys(names))


def meaning(name: str) -> Semantics:
    """Return the emulator's semantics of an instruction of the list."""
    opcode, *modifiers = name.partition("#")[0].split(".")
    return resolve(opcode, tuple(modifiers))


def _float_bits(random: np.random.Generator, n: int, form: tuple[int, int, int]) -> Array:
    """Return special values, and random bits whose exponents are often near each other."""
    fraction, exponent, width = form
    word = np.uint64
    bias = (1 << (exponent - 1)) - 1
    infinity = (2 * bias + 1) << fraction
    bits = random.integers(0, 1 << fraction, n, dtype=word)
    kind = random.integers(0, 4, n)
    bits = np.where(kind == 0, bits & word((1 << fraction) - (1 << (fraction // 2 + 2))), bits)
    one = word(1) << random.integers(0, fraction, n).astype(word)
    bits = np.where(kind == 1, one, bits)
    power = random.integers(0, 2 * bias + 2, n)
    near = np.clip(random.integers(-fraction - 2, fraction + 3, n) + bias, 0, 2 * bias)
    kind = random.integers(0, 8, n)
    power = np.where(kind < 4, near, power)
    power = np.where(kind == 4, random.integers(0, 3, n), power)
    power = np.where(kind == 5, random.integers(bias // 2 - 3, bias // 2 + 3, n), power)
    sign = random.integers(0, 2, n, dtype=word) << word(width - 1)
    bits = sign | (power.astype(word) << word(fraction)) | bits
    least = 1 << fraction
    special = [0, infinity, infinity | least // 2, infinity | 1, bias << fraction, 1, least]
    special += [infinity - 1, least - 1]
    special += [value | 1 << (width - 1) for value in special[:2]]
    chosen = random.choice(np.array(special, word), n)
    return np.where(random.random(n) < 0.15, chosen, bits).astype(f"u{width // 8}")


def values(type_: str, place: int) -> Array:
    """Return operands of a PTX type; ``place`` makes those of one instruction differ."""
    random = np.random.default_rng([place, *type_.encode()])
    if type_ == "pred":
        return random.random(LANES) < 0.5
    if type_ in FLOATS:
        return _float_bits(random, LANES, FLOATS[type_]).view(DTYPES[type_])
    if type_.endswith("x2"):
        return _float_bits(random, 2 * LANES, FLOATS[type_[:-2]]).view(np.uint32)
    dtype = DTYPES[type_]
    word = np.uint64
    width = 8 * dtype.itemsize
    bits = random.integers(0, 2**64, LANES, dtype=word) >> word(64 - width)
    kind = random.integers(0, 5, LANES)
    bits = np.where(kind == 1, bits & word(255), bits)
    bits = np.where(kind == 2, bits & word(63), bits)
    power = word(1) << random.integers(0, width, LANES).astype(word)
    bits = np.where(kind == 3, power - random.integers(0, 2, LANES, dtype=word), bits)
    bits = np.where(random.random(LANES) < 0.3, word(0) - bits, bits)
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


def carries() -> Array:
    """Return the carries that go into a chain."""
    return np.arange(LANES, dtype=np.uint32) & np.uint32(1)


def operands(semantics: Semantics) -> list[Array]:
    """Return the operands that an instruction is run with, without a carry."""
    return [values(type_, place) for place, type_ in enumerate(semantics.inputs)]


def _kernel(name: str, semantics: Semantics) -> str:
    """Return PTX that loads a lane's operands, executes an instruction and stores its results."""
    instruction, _, table = name.partition("#")
    inputs = list(semantics.inputs)[: 3 if table else None]
    inputs += ["u32"] * semantics.carry_in
    outputs = [*semantics.outputs, *(["u32"] * semantics.carry_out)]
    body = [".reg .b64 %p, %lane;", ".reg .b32 %t;", "mov.u32 %t, %tid.x;"]
    body.append("cvt.u64.u32 %lane, %t;")
    count = len(inputs) + len(outputs)
    for place, type_ in enumerate(inputs + outputs):
        size = DTYPES[type_].itemsize
        register = "pred" if type_ == "pred" else f"b{max(16, 8 * size)}"
        body.append(f".reg .{register} %r{place}; .reg .b16 %h{place};")
        if place >= len(inputs):
            continue
        body.append(f"ld.param.u64 %p, [q{place}]; mad.lo.u64 %p, %lane, {size}, %p;")
        if type_ == "pred":
            body.append(f"ld.global.u8 %h{place}, [%p]; setp.ne.u16 %r{place}, %h{place}, 0;")
        else:
            body.append(f"ld.global.b{8 * size} %r{place}, [%p];")
    sources = [f"%r{place}" for place in range(len(inputs))] + ([table] if table else [])
    if semantics.carry_in:
        body.append(f"neg.s32 %t, {sources.pop()}; add.cc.u32 %t, %t, 1;")
    named = range(len(inputs), len(inputs) + len(semantics.outputs))
    targets = "|".join(f"%r{place}" for place in named)
    body.append(f"{instruction} {targets}, {', '.join(sources)};")
    if semantics.carry_out:
        body.append(f"addc.u32 %r{count - 1}, 0, 0;")
    for place in range(len(inputs), count):
        type_ = outputs[place - len(inputs)]
        size = DTYPES[type_].itemsize
        body.append(f"ld.param.u64 %p, [q{place}]; mad.lo.u64 %p, %lane, {size}, %p;")
        if type_ == "pred":
            body.append(f"selp.u16 %h{place}, 1, 0, %r{place}; st.global.u8 [%p], %h{place};")
        else:
            body.append(f"st.global.b{8 * size} [%p], %r{place};")
    parameters = ", ".join(f".param .u64 q{place}" for place in range(count))
    head = f".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k({parameters})\n"
    return head + "{\n" + "\n".join(body) + "\nret;\n}\n"


def _call(function: Any, *args: Any) -> Any:
    error, *result = function(*args)
    if int(error):
        raise RuntimeError(f"{function.__name__}: {error!r}")
    return result[0] if result else None


def _run(driver: Any, name: str, semantics: Semantics) -> list[Array]:
    """Run one instruction on the GPU, and return its results."""
    inputs = operands(semantics)[: 3 if "#" in name else None]
    if semantics.carry_in:
        inputs.append(carries())
    types = [*semantics.outputs, *(["u32"] * semantics.carry_out)]
    outputs = [np.zeros(LANES, DTYPES[type_]) for type_ in types]
    source = _kernel(name, semantics).encode() + b"\0"
    try:
        module = _call(driver.cuModuleLoadData, source)
    except RuntimeError as error:
        raise RuntimeError(f"{name}: {error}\n{source.decode()}") from error
    function = _call(driver.cuModuleGetFunction, module, b"k")
    memory = [_call(driver.cuMemAlloc, array.nbytes) for array in inputs + outputs]
    for address, array in zip(memory, inputs, strict=False):
        _call(driver.cuMemcpyHtoD, address, array.ctypes.data, array.nbytes)
    holders = [ctypes.c_uint64(int(address)) for address in memory]
    arguments = (ctypes.c_void_p * len(holders))(*map(ctypes.addressof, holders))
    shape = (1, 1, 1, LANES, 1, 1)
    _call(driver.cuLaunchKernel, function, *shape, 0, 0, ctypes.addressof(arguments), 0)
    for address, array in zip(memory[len(inputs) :], outputs, strict=True):
        _call(driver.cuMemcpyDtoH, array.ctypes.data, address, array.nbytes)
    for address in memory:
        _call(driver.cuMemFree, address)
    _call(driver.cuModuleUnload, module)
    return outputs


def main(file: str) -> None:
    """Run all instructions on GPU 0, and write ``file``."""
    from cuda.bindings import driver

    _call(driver.cuInit, 0)
    gpu = _call(driver.cuDeviceGet, 0)
    _call(driver.cuCtxSetCurrent, _call(driver.cuDevicePrimaryCtxRetain, gpu))
    model = _call(driver.cuDeviceGetName, 100, gpu).split(b"\0")[0].decode()
    names = instructions()
    kept: dict[str, Array] = {
        "names": np.array(names),
        "device": np.array(model),
        "driver": np.array(_call(driver.cuDriverGetVersion)),
    }
    results = []
    for name in names:
        semantics = meaning(name)
        for place, array in enumerate(operands(semantics)):
            kept[f"{semantics.inputs[place]}/{place}"] = array
        results += [array.view(np.uint8) for array in _run(driver, name, semantics)]
    kept["results"] = np.concatenate(results)
    np.savez_compressed(file, **kept)  # type: ignore[arg-type]
    print(f"{len(names)} instructions on {model}: {file}")


if __name__ == "__main__":
    main(sys.argv[1])
