"""Print what was watched: the files that were written, and whether the product is correct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from tilewise.cli.show.console import Output, console, named_rows, verdict_rows
from tilewise.shown import grid_line, plural, product_line

if TYPE_CHECKING:
    from tilewise.lens.watch import Watch


def watched(found: Sequence[Watch], written: Mapping[str, Path | None], drawn: int | None) -> None:
    """Print the files, what of each run is not in them, and the check.

    Parameters
    ----------
    found : sequence of Watch
        One run, or two that are shown side by side.
    written : mapping of str to Path or None
        The files by kind: ``"page"``, ``"trace"``, ``"gif"`` and ``"frames"``.
    drawn : int or None
        The number of pictures that were drawn; None if none were asked for.
    """
    out = console()
    _files(out, written, drawn)
    for each in found:
        _run(out, each)


def written(files: Mapping[str, Path | None], drawn: int | None = None) -> None:
    """The files alone, as :func:`watched` takes them."""
    _files(console(), files, drawn)


def _files(out: Output, written: Mapping[str, Path | None], drawn: int | None) -> None:
    page = written["page"]
    assert page is not None
    out.print(f"{page}: written; open it in a browser", markup=False, soft_wrap=True)
    if written["trace"] is not None:
        out.print(f"{written['trace']}: written", markup=False, soft_wrap=True)
    if drawn is not None:
        pictures = [str(written[name]) for name in ("gif", "frames") if written[name] is not None]
        frames = plural(drawn, "frame")
        out.print(f"{' and '.join(pictures)}: {frames}", markup=False, soft_wrap=True)


def _run(out: Output, found: Watch) -> None:
    """Print what of a run is not on its page, and whether its product is correct."""
    trace = found.trace.to_dict()
    is_cut = False
    for each in trace["blocks"]:
        if each["cut"]:
            is_cut = True
            index = ", ".join(map(str, each["index"]))
            out.print(
                f"block ({index}) is cut: its first {len(each['steps']):,} steps are kept; a "
                f"smaller {'product' if trace['problem'] else 'launch'} is seen to its end, unless "
                "the kernel has a loop without one"
            )
    if is_cut and trace["problem"] is None:
        out.print("Where it waits for other blocks, --cooperative lets all of them run.")
    if "source_note" in trace:
        out.print(f"note: {trace['source_note']}", markup=False)
    x = trace["problem"]
    if x is None:
        launched = grid_line(tuple(trace["grid"]), tuple(trace["block"]))
        not_compared = ": no result is compared; `tilewise run` does that with --expect"
        line = f", {launched}{'' if found.compared else not_compared}"
        out.print(Text.assemble((trace["kernel"], "bold"), line))
        for each in found.compared:
            out.print(each._summary(), markup=False)
        return
    tile = "" if x["tile"] is None else f", tile {x['tile']}"
    line = product_line(x["m"], x["n"], x["k"], x["alpha"], x["beta"])
    out.print(Text.assemble((trace["kernel"], "bold"), f": {line}, {x['dtype']}{tile}"))
    if found.verdict is not None:
        out.print(named_rows(verdict_rows(found.verdict)))
        return
    why = "it was not run to its end" if is_cut else "it is too large to be run whole here"
    out.print(f"C is not checked: {why}; `tilewise run` checks it", markup=False)
