"""Epilogues of a product: functions in Python, traced once, that become part of a kernel."""

import tilewise.epilogue.pickled  # noqa: F401  (it says what a pickle of them holds)
from tilewise.epilogue.traced import Epilogue, Traced, trace

__all__ = ["Epilogue", "Traced", "trace"]
