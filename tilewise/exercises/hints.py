"""Hints on what to look at next, from what a submission's launches did, by line of its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tilewise.counted import Counters
from tilewise.devices.occupancy import occupancy
from tilewise.errors import ADVICE
from tilewise.exercises.cases import WARP, Case
from tilewise.exercises.goals import GoalResult
from tilewise.exercises.running import Outcome, Wrong
from tilewise.launch import Finding, LaunchReport
from tilewise.shown import number, plural
from tilewise.specs.arrays import Array

SECTOR = 32
_MOST_LINES = 3
_SUMS = {
    "global_requests": ("global_load_requests", "global_store_requests"),
    "global_sectors": ("global_load_sectors", "global_store_sectors"),
    "shared_requests": ("shared_load_requests", "shared_store_requests"),
    "shared_bank_conflicts": ("shared_load_bank_conflicts", "shared_store_bank_conflicts"),
}


def of_findings(findings: Iterable[Finding]) -> list[str]:
    """Return advice for each kind of fault."""
    kinds: dict[str, None] = dict.fromkeys(each.kind for each in findings)
    return [ADVICE[kind] for kind in kinds if kind in ADVICE]


def of_result(outcome: Outcome) -> list[str]:
    """Return where a result is wrong, and how, for a test whose values may be shown."""
    found = []
    arrays = outcome.case.arrays
    wanted = {each.name: each.value for each in outcome.case.expected}
    for wrong in outcome.wrong:
        name = wrong.compared.name
        found.append(_where(name, wrong, outcome.case))
        found += _how(name, arrays[name], wanted[name], wrong)
    return found


def _where(name: str, wrong: Wrong, case: Case) -> str:
    """Return the elements that are wrong, or that nothing wrote, in words."""
    mask, verb = wrong.elements, "wrong"
    if wrong.unwritten.any() and not (wrong.elements & ~wrong.unwritten).any():
        mask, verb = wrong.unwritten, "never written"
    if mask.all():
        every = "No element" if verb == "never written" else "Every element"
        told = "was written" if verb == "never written" else "is wrong"
        few = int(np.count_nonzero(~wrong.unwritten))
        rest = f", and only {few:,} of them {'was' if few == 1 else 'were'} written"
        return f"{every} of {name} {told}{rest * (0 < few < mask.size)}."
    if mask.ndim != 1:
        rows, columns = (np.unique(x) for x in np.nonzero(mask.reshape(-1, mask.shape[-1])))
        block = np.ix_(rows, columns)
        is_whole = bool(mask.reshape(-1, mask.shape[-1])[block].all())
        total = math.prod(mask.shape[:-1])
        where = f"{_span('row', rows, total)}, {_span('column', columns, mask.shape[-1])}"
        some = "" if is_whole else ", not everywhere in them"
        return f"{name} is {verb} in {where}{some}; all else is right."
    at = np.flatnonzero(mask)
    if len(at) > 2:
        for period in sorted({*(1 << x for x in range(1, 11)), case.sizes["threads"]})[::-1]:
            is_class = len(np.unique(at % period)) == 1
            if period > 1 and is_class and len(at) == len(mask[at[0] % period :: period]):
                return (
                    f"{name}[i] is {verb} exactly where i % {period} is {at[0] % period}; all "
                    "else is right."
                )
    return f"{name} is {verb} in {_span('element', at, len(mask))}; all else is right."


def _span(what: str, at: npt.NDArray[np.intp], total: int) -> str:
    """Return rows, columns or elements in words."""
    if len(at) == total:
        return f"all {what}s"
    if len(at) == 1:
        return f"{what} {at[0]}" + (f", the last of {total:,}" if at[0] == total - 1 else "")
    if at[-1] - at[0] + 1 == len(at):
        end = f", the last {len(at):,} of {total:,}" if at[-1] == total - 1 else ""
        return f"{what}s {at[0]} to {at[-1]}{end}"
    return f"{len(at):,} of {total:,} {what}s, from {at[0]} to {at[-1]}"


def _how(name: str, got: Array, wanted: Array, wrong: Wrong) -> Iterator[str]:
    """Yield what the wrong values are, if they are those of a known mistake."""
    mask = wrong.elements & ~wrong.unwritten
    if np.count_nonzero(mask) < 3:
        return
    stored = np.asarray(wanted).astype(got.dtype)  # as a correct kernel would round it
    values, should = got.astype(np.float64), stored.astype(np.float64)
    with np.errstate(all="ignore"):
        ratio = values[mask] / should[mask]
    if np.isnan(values[mask]).all() and not np.isnan(should[mask]).any():
        yield f"The wrong elements of {name} are NaN: something in them was never set."
    elif (values[mask] == 0).all():
        yield f"The wrong elements of {name} are 0."
    elif np.isfinite(ratio).all() and np.ptp(ratio) <= 1e-3 * abs(ratio[0]):
        yield f"Each wrong element of {name} is {ratio[0]:.4g} times what it should be."
    elif values.ndim == 2 and values.shape[0] == values.shape[1] and (values == should.T).all():
        yield f"{name} is the transpose of what it should be."
    elif values.ndim == 1:
        for by, sign in ((1, "+ 1"), (-1, "- 1")):
            there = np.flatnonzero(mask) + by
            is_in = (there >= 0) & (there < len(values))
            at = np.flatnonzero(mask)[is_in]
            if len(at) >= 3 and (values[at] == should[at + by]).all():
                yield f"Where {name}[i] is wrong, it has what {name}[i {sign}] should have."
                return


def of_goal(missed: GoalResult, case: Case, report: LaunchReport) -> list[str]:
    """Return what each line of the submission adds to a figure that misses its goal."""
    figure = missed.goal.figure
    if figure in ("shared_bytes", "registers", "spill_bytes", "resident_warps"):
        return [_resources(report)] if figure != "shared_bytes" else []
    if missed.goal.rule == "at_least":
        return []
    found = []
    for counter in _SUMS.get(figure, (figure,)):
        lines = sorted(
            ((getattr(c, counter), line) for line, c in report.lines.items()), reverse=True
        )
        shown = [(count, line) for count, line in lines if count][:_MOST_LINES]
        for count, line in shown:
            told = _line(counter, line, count, report.lines[line], case)
            found += [told] if told else []
    return found


def _line(counter: str, line: int, count: int, counters: Counters, case: Case) -> str:
    """Return what one line does, by a counter; empty if there is nothing to say."""
    for ending, told in (
        ("_sectors", _sectors), ("_bank_conflicts", _conflicts), ("_requests", _requests)
    ):  # fmt: skip
        kind = counter.removesuffix(ending)
        requests = getattr(counters, f"{kind}_requests", 0)
        if kind != counter and requests:
            return told(kind, line, count, requests, counters)
    if counter == "barriers":
        warps = case.sizes["blocks"] * case.sizes["warps"]
        return f"Line {line}: each warp waits {count / warps:.3g} times at the barrier."
    return f"Line {line}: {number(count)} {counter.replace('_', ' ')}."


def _sectors(kind: str, line: int, count: int, requests: int, counters: Counters) -> str:
    verb = kind.rpartition("_")[2]
    needed = -(-getattr(counters, f"{kind}_bytes", 0) // SECTOR)
    least = max(1.0, needed / requests)
    if count > 1.25 * least * requests:
        return (
            f"Line {line}: a warp's {verb} touches {_few(count / requests)} on average; "
            f"{math.ceil(least)} would do for the bytes that it {verb}s."
        )
    return (
        f"Line {line}: warps {verb} {requests:,} times, {_few(count / requests)} each on average, "
        f"and use all of them: what is {verb}{'d' if verb[-1] == 'e' else 'ed'} twice could be "
        "kept."
    )


def _conflicts(kind: str, line: int, count: int, requests: int, counters: Counters) -> str:
    turns = getattr(counters, f"{kind}_wavefronts")
    least = max(1.0, (turns - count) / requests)
    return (
        f"Line {line}: a warp's {_words(kind)} takes {turns / requests:.3g} turns of the banks on "
        f"average; {least:.3g} would do if what one turn brings lay in different banks."
    )


def _requests(kind: str, line: int, count: int, _: int, counters: Counters) -> str:
    wide = getattr(counters, f"{kind}_bytes", 0) / count / WARP
    each = f", {wide:.3g} bytes a lane on average" if wide else ""
    more = "; lanes that move 16 bytes each need fewer" if 0 < wide <= 8 else ""
    return f"Line {line}: {plural(count, 'request')} of warps ({_words(kind)}){each}{more}."


def _words(kind: str) -> str:
    """Return what is counted, as in ``"load of shared memory"``."""
    space, _, verb = kind.rpartition("_")
    return f"{verb} of {space} memory" if space in ("global", "shared", "local") else kind


def _few(sectors: float) -> str:
    return f"{sectors:.3g} sector{'' if sectors == 1 else 's'}"


def _resources(report: LaunchReport) -> str:
    """Return how many blocks of the launch a multiprocessor holds, and what limits them."""
    x, y, z = report.launch.block
    resources = report.resources
    shared = resources.shared_bytes + report.launch.shared
    found = occupancy(report.arch, x * y * z, resources.registers, shared)
    return (
        f"A block has {plural(x * y * z, 'thread')} of {plural(resources.registers, 'register')} "
        f"and {shared:,} bytes of shared memory; a multiprocessor holds "
        f"{plural(found.blocks, 'block')} of these, {found.warps} of {found.max_warps} warps, "
        f"limited by {' and '.join(found.limits)}."
    )
