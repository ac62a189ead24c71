"""What the page "Try it" asks of tilewise: worker.js runs it in Pyodide, and tests here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tilewise
from tilewise.compiler import packed
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import RunResult
from tilewise.ladder.run import run as run_rung
from tilewise.notebook.tables import beside

MOST = 1024
"""The largest of m, n and k: what is emulated in a browser takes its memory."""


def prepare(path: str) -> int:
    """Take the kernels that were compiled beforehand; return how many they are."""
    return packed.unpack(Path(path).read_bytes())


def answer(text: str) -> str:
    """Answer one question, both as JSON.

    Parameters
    ----------
    text : str
        ``what``: ``"run"`` or ``"watch"``. ``m``, ``n``, ``k``, ``alpha``, ``beta``. ``rungs``: one
        or two, each with ``rung`` and ``tile`` (None of a rung without).

    Returns
    -------
    str
        Of a run ``results``, each with ``html``, ``counters`` and ``correct``, and ``beside``, the
        counters of two in a table. Of a watch ``page``. Of what is not possible ``error``.
    """
    asked = json.loads(text)
    try:
        _check(asked)
        found = _watched(asked) if asked["what"] == "watch" else _run(asked)
    except (tilewise.TilewiseError, ValueError, TypeError) as error:
        found = {"error": str(error)}
    except MemoryError:
        found = {"error": "That took more memory than a browser gives. Take smaller sizes."}
    return json.dumps(found)


def _check(asked: dict[str, Any]) -> None:
    for name in "mnk":
        if not 1 <= asked[name] <= MOST:
            raise ValueError(f"{name} is {asked[name]:,}; here it may be from 1 to {MOST:,}")
    first, *others = asked["rungs"]
    if asked["what"] == "run" and first in others:
        raise ValueError("both are the same rung with the same tile; choose another one beside it")


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    found = [_result(asked, each["rung"], each["tile"]) for each in asked["rungs"]]
    results = [
        {"html": each._repr_html_(), "correct": each.correct, "counters": _counters(each)}
        for each in found
    ]
    table = beside(dict(zip(_names(found), found, strict=True))) if len(found) > 1 else None
    return {"results": results, "beside": "" if table is None else table._repr_html_()}


def _result(asked: dict[str, Any], name: str, tile: int | None) -> RunResult:
    rung = tilewise.rung(name)
    a, b, c = random_problem(asked["m"], asked["n"], asked["k"], rung.dtypes[0], 0)
    return run_rung(
        rung, a, b, c if asked["beta"] else None, alpha=asked["alpha"], beta=asked["beta"],
        tile=tile, device="emulator",
    )  # fmt: skip


def _names(found: list[RunResult]) -> list[str]:
    """What the columns are called: by the tile too, where both are of one rung."""
    names = [each.kernel for each in found]
    if len(set(names)) == len(names):
        return names
    return [f"{each.kernel}, tile {each.tile}" for each in found]


def _counters(result: RunResult) -> dict[str, Any]:
    report = result.report
    return {} if report is None or report.counters is None else report.counters.to_dict()


def _watched(asked: dict[str, Any]) -> dict[str, Any]:
    first, *_ = asked["rungs"]
    found = tilewise.watch(
        first["rung"], asked["m"], asked["n"], asked["k"], tile=first["tile"],
        alpha=asked["alpha"], beta=asked["beta"],
    )  # fmt: skip
    return {"page": found.page}
