"""The emulator's arithmetic against what an H200 made of the same operands, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hardware import FILE, carries, instructions, meaning

from tilewise.devices.emulator.ptx.types import DTYPES


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    with np.load(FILE) as file:
        return dict(file)


def test_every_instruction(recorded: dict[str, Any]) -> None:
    names = recorded["names"].tolist()
    assert names == instructions()
    results, offset, wrong = recorded["results"], 0, []
    for name in names:
        semantics = meaning(name)
        inputs = [recorded[f"{type_}/{i}"] for i, type_ in enumerate(semantics.inputs)]
        lanes = len(inputs[0])
        if "#" in name:
            inputs[3] = np.uint32(int(name.partition("#")[2]))
        if semantics.carry_in:
            inputs.append(carries())
        with np.errstate(all="ignore"):
            got = semantics.function(*inputs)
        got = got if isinstance(got, tuple) else (got,)
        types = [*semantics.outputs, *(["u32"] * semantics.carry_out)]
        for value, type_ in zip(got, types, strict=True):
            assert value.dtype == DTYPES[type_]
            assert value.shape == (lanes,)
            size = lanes * value.dtype.itemsize
            want = results[offset : offset + size].reshape(lanes, -1)
            offset += size
            bits = np.ascontiguousarray(value).view(np.uint8).reshape(lanes, -1)
            different = np.flatnonzero((bits != want).any(axis=1))
            if different.size:
                lane = int(different[0])
                given = [x if x.ndim == 0 else x[lane] for x in inputs]
                gpu = want[lane].view(value.dtype)[0]
                wrong.append(f"{name} {given}: {value[lane]!r}, the GPU has {gpu!r}")
    assert offset == results.size
    assert not wrong, "\n".join(wrong)


def test_scalars_are_lanes(recorded: dict[str, Any]) -> None:
    """Uniform operands give a scalar, the same as a lane's; one uniform operand, an array."""
    for name in instructions():
        semantics = meaning(name)
        whole = [recorded[f"{type_}/{i}"] for i, type_ in enumerate(semantics.inputs)]
        if "#" in name:
            whole[3] = np.uint32(int(name.partition("#")[2]))
        if semantics.carry_in:
            whole.append(carries())
        lane = 11
        scalars = [x if x.ndim == 0 else x[lane] for x in whole]
        mixed = [scalars[0], *(x if x.ndim == 0 else x[lane : lane + 2] for x in whole[1:])]
        before = [x.tobytes() for x in whole]
        with np.errstate(all="ignore"):
            calls = [semantics.function(*x) for x in (whole, scalars, mixed)]
        assert before == [x.tobytes() for x in whole], f"{name} writes to its operands"
        calls = [x if isinstance(x, tuple) else (x,) for x in calls]
        for lanes, scalar, pair in zip(*calls, strict=True):
            assert isinstance(scalar, np.generic), name
            assert scalar.dtype == lanes.dtype == pair.dtype, name
            assert scalar.tobytes() == lanes[lane].tobytes(), name
            if len(mixed) > 1:
                assert pair[0].tobytes() == scalar.tobytes(), name
