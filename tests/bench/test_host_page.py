"""benchmarks/host_page.py: the least time of a product of the host's matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import script

LEAST = script("host_page.py")["least_in_any_order"]


@pytest.mark.parametrize("kernel", [0.1, 0.5, 1.0, 2.0, 4.0, 40.0])
def test_the_least_time_in_any_order_of_the_copies(kernel: float) -> None:
    """It is the largest bound over all times at which a share of A and B may have arrived."""
    size, item, rate = 1000, 4, 8e6  # A and B take a second
    arrived = np.linspace(0, 1, 100_001)
    bounds = arrived + (1 - arrived**2) * kernel
    assert LEAST(size, item, rate, kernel) == pytest.approx(bounds.max())
