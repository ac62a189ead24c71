"""Print results as text: tables of at most 80 columns, with units named."""

from tilewise.cli.show.console import block_progress, console, counting, parts, progress
from tilewise.cli.show.exercises import exercise, exercises, grade, grades
from tilewise.cli.show.files import multiplied
from tilewise.cli.show.launches import launch_result
from tilewise.cli.show.listing import listing
from tilewise.cli.show.machine import diagnosis
from tilewise.cli.show.nsight import hardware
from tilewise.cli.show.product import bench, tuned, warmed
from tilewise.cli.show.profile import compared, lines, profile
from tilewise.cli.show.runs import demo, kernels, ladder, run_result
from tilewise.cli.show.watched import watched, written

__all__ = [
    "bench",
    "block_progress",
    "compared",
    "console",
    "counting",
    "demo",
    "diagnosis",
    "exercise",
    "exercises",
    "grade",
    "grades",
    "hardware",
    "kernels",
    "ladder",
    "launch_result",
    "lines",
    "listing",
    "multiplied",
    "parts",
    "profile",
    "progress",
    "run_result",
    "tuned",
    "warmed",
    "watched",
    "written",
]
