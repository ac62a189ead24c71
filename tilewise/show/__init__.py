"""Results as text for people: tables of at most 80 columns, units named."""

from tilewise.show.console import block_progress, error, progress
from tilewise.show.machine import diagnosis
from tilewise.show.product import bench, tuned
from tilewise.show.runs import demo, ladder, run_result

__all__ = [
    "bench",
    "block_progress",
    "demo",
    "diagnosis",
    "error",
    "ladder",
    "progress",
    "run_result",
    "tuned",
]
