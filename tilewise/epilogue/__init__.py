"""Epilogues of a product: functions in Python, traced once, that become part of a kernel."""

from tilewise.epilogue.traced import Epilogue, Traced, trace

__all__ = ["Epilogue", "Traced", "trace"]
