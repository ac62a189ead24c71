"""Wait in a test for what other threads or processes do a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable


def assert_soon(is_so: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until ``is_so`` returns true; fail if it takes more than so many seconds."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
