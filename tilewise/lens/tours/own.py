"""The tour of any kernel: sentences on its launch, and stops that its trace suggests."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.occupancy import WARP
from tilewise.lens.tours import fault
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, many


def launched(run: Run) -> str:
    """Return a sentence on the grid that runs, and on its matrices if it is a product."""
    warps = f" ({many(run.warps, 'warp')})" if run.threads > WARP else ""
    blocks = "One block" if run.blocks == 1 else many(run.blocks, "block")
    who, s = f"{blocks} of {many(run.threads, 'thread')}{warps}", "s" * (run.blocks == 1)
    if not run.trace.get("problem"):
        return f"{who} run{s}."
    m, n, k = (run.size(name) for name in "mnk")
    of_what = f"C ({m:,} x {n:,}) is the product of A ({m:,} x {k:,}) and B ({k:,} x {n:,})."
    return f"{of_what} {who} compute{s} it."


def moved(run: Run) -> str:
    """Return a sentence on what the block loads and stores, and how often it waits."""
    names = [x["name"] for x in run.trace["arrays"]]
    loads, sectors = run.loaded(*names), run.total("sectors", "load", "global")
    stores = sum(run.values(i) for i in run.each("store", "global"))
    found = []
    if loads:
        found.append(
            f"loads {many(loads, 'value')}" + (f" in {many(sectors, 'sector')}" if sectors else "")
        )
    if stores:
        found.append(f"stores {many(stores, 'value')}")
    if run.barriers():
        found.append(f"waits at {many(len(run.barriers()), 'barrier')}")
    if not found:
        return ""
    *others, last = found
    x, y, z = run.block["index"]
    name = f"Block ({x}, {y})" if not z else f"Block ({x}, {y}, {z})"
    cut = ", up to where the recording was cut" if run.block.get("cut") else ""
    if fault.is_there(run):
        cut = ", up to the fault"
    return f"{name} {', '.join(others)}{' and ' if others else ''}{last}{cut}."


def asked(run: Run, i: int) -> int:
    """Return the bytes of global memory that a step's warps ask for, added up over the warps."""
    return sum(run.bytes(i, warp) for warp in {t // WARP for t in run.who(i)})


def worst(run: Run) -> int | None:
    """Return the access to global memory that wastes the largest share; None if none is wasted."""
    found = [
        (asked(run, i) / (SECTOR * run.steps[i]["sectors"]), i)
        for i in run.each(space="global")
        if run.steps[i].get("sectors") and run.steps[i].get("array")
    ]  # fmt: skip
    share, step = min(found, default=(1.0, None))
    return step if share < 1 else None


def automatic(run: Run) -> Iterator[Stop]:
    """Yield stops that any kernel may have: first load, barrier, conflict, and its worst access."""
    seen: set[int] = set()
    for stop in sorted(_found(run), key=lambda each: each.step):
        if stop.step not in seen:
            seen.add(stop.step)
            yield stop


def _found(run: Run) -> Iterator[Stop]:
    worst_access = worst(run)
    if worst_access is not None:
        it = run.steps[worst_access]
        warps = {t // WARP for t in run.who(worst_access)}
        fewest = sum(-(-run.bytes(worst_access, warp) // SECTOR) for warp in warps)
        yield Stop(
            worst_access, "The access that wastes most",
            f"{many(it['requests'], 'request')} of {many(len(warps), 'warp')} touch "
            f"{many(it['sectors'], 'sector')} for {asked(run, worst_access):,} bytes of "
            f"{it['array']}. If the bytes lay side by side, {fewest:,} would be enough.",
            (it["array"], "requests", "source"), shows_sectors=True,
            warp=min(run.who(worst_access)) // WARP,
        )  # fmt: skip
    conflicts = max(run.each(space="shared"), default=None,
                    key=lambda i: (run.steps[i].get("conflicts") or 0, -i))  # fmt: skip
    if conflicts is not None and run.steps[conflicts].get("conflicts"):
        it = run.steps[conflicts]
        yield Stop(
            conflicts, "The worst bank conflict",
            f"{many(it['requests'], 'request')} to shared memory make "
            f"{many(it['conflicts'], 'conflict')}: lanes of a warp want different words of one "
            "bank, and are served in turn.",
            ("banks", "source"), warp=min(run.who(conflicts)) // WARP,
        )  # fmt: skip
    load = run.first("load", "global")
    if load is not None and run.steps[load].get("array"):
        yield Stop(
            load, "The first load",
            f"{many(len(run.at(load)), 'thread')} load from {run.steps[load]['array']}, and touch "
            f"{many(run.steps[load]['sectors'], 'sector')}.",
            (run.steps[load]["array"], "requests", "source"), shows_sectors=True,
            warp=min(run.who(load)) // WARP,
        )  # fmt: skip
    barriers = run.barriers()
    if barriers:
        yield Stop(
            barriers[0], "The first barrier",
            f"The whole block waits here, at the first of {len(barriers)} barriers."
            if len(barriers) > 1 else "The whole block waits here, at its only barrier.",
            ("arrivals", "threads", "source"),
        )  # fmt: skip
    stores = run.each("store", "global")
    if stores and run.steps[stores[-1]].get("array"):
        last = stores[-1]
        name = run.steps[last]["array"]
        yield Stop(
            last, "The last store",
            f"The last store to {name}, by {many(len(run.at(last)), 'thread')}.",
            (name, "source"), warp=min(run.who(last)) // WARP,
        )  # fmt: skip
