"""The elements of a product that NaN and infinity among its inputs determine, by IEEE 754."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


class Certain:
    """The elements of C that infinity or NaN among the inputs determines, in any order of sums."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.up: Bool = np.zeros(shape, np.bool_)
        self.down: Bool = np.zeros(shape, np.bool_)
        self.nan: Bool = np.zeros(shape, np.bool_)

    def of_product(self, a: Float, b: Float, alpha: float) -> tuple[Float, Float]:
        """Enter alpha A B; return A and B with zeros in place of infinity and NaN."""
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        if finite_a.all() and finite_b.all():
            return a, b
        self.nan |= np.isnan(a).any(axis=1, keepdims=True) | np.isnan(b).any(axis=0)
        # Products with an infinite factor are counted by sign, as sums over indicator matrices,
        # because NumPy's own product of NaN and infinity depends on its BLAS.
        sign_a, sign_b = np.nan_to_num(np.sign(a)), np.nan_to_num(np.sign(b))
        endless_a, endless_b = np.isinf(a) * sign_a, np.isinf(b) * sign_b
        ended_a = sign_a - endless_a
        signed = endless_a @ sign_b + ended_a @ endless_b
        count = np.abs(endless_a) @ np.abs(sign_b) + np.abs(ended_a) @ np.abs(endless_b)
        by_zero = np.abs(endless_a) @ (b == 0) + (a == 0) @ np.abs(endless_b)
        up, down = count + signed > 0, count - signed > 0
        if alpha < 0:
            up, down = down, up
        self.nan |= by_zero > 0
        self._enter(up, down)
        return np.where(finite_a, a, 0.0), np.where(finite_b, b, 0.0)

    def of_old(self, old: Float, beta: float) -> Float:
        """Enter beta C0; return C0 with zeros in place of infinity and NaN."""
        endless = np.isinf(old)
        self.nan |= np.isnan(old)
        self._enter(endless & (beta * old > 0), endless & (beta * old < 0))
        return np.where(np.isfinite(old), old, 0.0)

    def _enter(self, up: Bool, down: Bool) -> None:
        self.up, self.down = self.up | up, self.down | down
        self.nan |= self.up & self.down
