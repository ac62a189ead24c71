"""Say how many bytes a PTX type takes, and which NumPy dtype holds it (PTX ISA 5.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

TYPE_BYTES = {
    "pred": 1, "u8": 1, "s8": 1, "b8": 1, "u16": 2, "s16": 2, "b16": 2, "f16": 2, "bf16": 2,
    "u32": 4, "s32": 4, "b32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "u64": 8, "s64": 8, "b64": 8, "f64": 8, "b128": 16,
}  # fmt: skip
DTYPES: dict[str, Any] = {
    **{f"u{width}": np.dtype(f"u{width // 8}") for width in (8, 16, 32, 64)},
    **{f"s{width}": np.dtype(f"i{width // 8}") for width in (8, 16, 32, 64)},
    **{f"b{width}": np.dtype(f"u{width // 8}") for width in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(np.bool_),
}
"""The NumPy dtype in which a value of each PTX type is held; bf16 and pairs are held as bits."""
UNSIGNED: dict[int, np.dtype[Any]] = {
    x.itemsize: x for x in map(np.dtype, ("u1", "u2", "u4", "u8"))
}
"""The unsigned dtype that holds the bits of a value, by the value's size in bytes."""
