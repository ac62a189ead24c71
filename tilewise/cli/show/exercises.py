"""Print exercises and grades."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console, named_rows, verdict
from tilewise.exercises.goals import said
from tilewise.exercises.grading import FULL, NOT_RUN
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.exercises.catalogue import Exercise
    from tilewise.exercises.grading import Grade


def exercises(found: Sequence[Exercise]) -> None:
    """Print a line for each exercise, in the order in which they teach."""
    out = console()
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row("", Text("exercise", "bold"), Text("what it teaches", "bold"))
    for number, each in enumerate(found, 1):
        table.add_row(str(number), each.name, each.teaches)
    out.print(table)
    out.print()
    out.print("tilewise exercises show NAME shows one; start NAME writes the file to complete.")


def exercise(found: Exercise) -> None:
    """Print the text, the launch, the visible tests and the goals."""
    out = console()
    for paragraph in found.text.rstrip("\n").split("\n\n"):
        is_verbatim = paragraph.startswith(("    ", "|", "#"))
        text = paragraph if is_verbatim else re.sub(r"\n(?!\d+\. )", " ", paragraph)
        out.print(f"{text}\n", markup=False)
    threads = f", {found.threads} threads where __launch_bounds__ says nothing else" * bool(
        found.threads
    )
    rows: list[tuple[str, Text | str]] = [
        ("kernel", found.signature),
        ("launch", f"grid {found.grid}, block {found.block}{threads}"),
        ("result", "; ".join(found.expect)),
    ]
    shown = [test for test in found.tests if not test.is_hidden]
    for test in shown:
        sizes = [f"{name} = {size}" for name, size in test.sizes.items()]
        sizes += [f"{name} = {text}" for name, text in test.given.items()]
        note = [test.note] * bool(test.note)
        rows.append((test.name, "; ".join([", ".join(sizes), *note])))
    rows.append(("hidden", plural(len(found.tests) - len(shown), "test")))
    for goal in found.goals:
        rule = goal.rule.replace("_", " ")
        rows.append(("goal", f"{said(goal.figure)} {rule} {goal.limit}: {goal.aim}"))
    out.print(named_rows([(name, Text(str(value))) for name, value in rows]))


def grade(found_of: Exercise, found: Grade) -> None:
    """Print points, tests, faults by line, goals and hints."""
    out = console()
    head = Text.assemble(
        (f"{found.file}: ", "bold"),
        (f"{found.score:g} of {FULL} points", "bold green" if found.is_right else "bold red"),
        f", {found_of.title}",
    )
    out.print(head)
    rows: list[tuple[str, Text | str]] = []
    if found.refused:
        rows.append(("not run", Text(found.refused)))
    for test in found.tests:
        about = f" {test.about}" if test.about else ""
        said_of = "" if test.is_right else f": {test.said}"
        told = Text.assemble(verdict(test.is_right), about, said_of)
        rows.append((test.name, Text(NOT_RUN) if test.said == NOT_RUN else told))
    if not found.refused:
        rows += [("fault", Text(told_of)) for told_of in found.faults_said]
        if not found.findings and found.faults:
            rows.append(("faults", "none found"))
    for goal in found.goal_results:
        mark = Text("met", "green") if goal.is_met else Text("missed", "bold red")
        rows.append(("goal", Text.assemble(mark, f"  {goal.said}")))
    if found.most[2] and not found.goal_results and not found.refused:
        rows.append(("goals", "count once every result is right"))
    rows += [("hint", Text(each)) for each in found.hints]
    if found.printed:
        rows.append(("printed", Text(found.printed)))
    out.print(named_rows(rows))
    if found.watch:
        # In one line, so that it can be copied.
        out.print(f"\nTo see it step by step:\n{found.watch}", markup=False, soft_wrap=True)


def grades(found_of: Exercise, found: Sequence[Grade]) -> None:
    """Print a row for each submission."""
    out = console()
    names = ("points", "results", "faults", "goals")
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for _ in names:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(*(Text(x, "bold") for x in ("submission", *names, "what is wrong first")))
    for each in found:
        style = "green" if each.is_right else "bold red"
        table.add_row(
            Text(each.file), Text(f"{each.score:g}", style), f"{each.results:g}",
            f"{each.faults:g}", f"{each.goals:g}", Text(_first(each)),
        )  # fmt: skip
    out.print(table)
    out.print()
    right = sum(each.is_right for each in found)
    out.print(f"{found_of.name}: {plural(len(found), 'submission')}, {right:,} of them right")


def _first(found: Grade) -> str:
    """Return what is wrong first, in a few words."""
    if found.refused:
        lines = found.refused.splitlines()
        first = next((line for line in lines if "error" in line), lines[0])
        return shorten(first.removeprefix(f"{found.file}:"), 100, placeholder=" ...")
    for kind, line in ((each.kind, each.line) for each, _ in found.findings):
        return f"line {line}: {kind}"
    for test in found.tests:
        if not test.is_right:
            return f"{test.name} {'was stopped at a limit' if test.is_stopped else 'is wrong'}"
    for goal in found.goal_results:
        if not goal.is_met:
            return f"goal missed: {said(goal.goal.figure)}"
    return ""
