"""Rungs fourteen to sixteen: tensor cores that multiply what a warp's registers hold."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tilewise.devices.occupancy import WARP
from tilewise.lens.tours.copies import VECTOR, begins, begun, waits
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends

ROWS = 8  # of a matrix that ldmatrix loads


def tile(run: Run) -> Iterator[Stop]:
    """The block's tile and its warps'."""
    yield Stop(
        0, "A warp is the unit",
        f"This block computes {run.of_c()} elements of C with {many(run.warps, 'warp')}, each of "
        f"which has a tile of {run.macro('WARP_M')} x {run.macro('WARP_N')}. The matrices' numbers "
        f"have {run.element('a') * 8} bits.",
        ("c", "threads"),
    )  # fmt: skip


def products(run: Run, **more: Any) -> list[int]:
    return run.each("matrix", **more)


def wide(run: Run, title: str = "The loads") -> Iterator[Stop]:
    """The first load of A by a warp."""
    a = run.first("load", "global", "a")
    if a is None:
        return
    width = run.steps[a]["width"]
    yield Stop(
        a, title,
        f"A lane loads {width} bytes, {many(width // run.element('a'), 'value')}; warp 0's request "
        f"touches {many(run.sectors(a), 'sector')} for {run.bytes(a, 0):,} bytes."
        + ("" if width == VECTOR else f" Rows that are {VECTOR}-byte aligned allow {VECTOR}."),
        ("a", "requests", "source"), shows_sectors=True,
    )  # fmt: skip


def product_stop(run: Run, i: int, title: str, look: tuple[str, ...]) -> Iterator[Stop]:
    """A product, with its multiply-adds to predict."""
    shape = run.shape(i)
    if shape is None:
        return
    m, n, k = shape
    yield Stop(
        i, title,
        f"{m} x {n} elements of D, each a sum of {k} products. A multiply-add of the rungs before "
        f"is one a lane, {run.lanes} a warp.",
        look,
        before=f"A warp executes one mma.sync: a matrix of {m} x {k} times one of {k} x {n}.",
        ask=ask("How many multiply-adds does this one instruction do for a warp?", prod(shape),
                "multiply-add", (run.lanes, m * n, m * k, prod(shape) // 2),
                {run.lanes: "One a lane: so it was up to here.",
                 m * n: f"So many elements D has; each takes {k}."}),
    )  # fmt: skip


def tensor_core(run: Run) -> Iterator[Stop]:
    yield from tile(run)
    yield from wide(run)
    store = run.first("store", "shared")
    if store is not None:
        it = run.steps[store]
        yield Stop(
            store, "Into padded rows",
            "A tile's rows have padding behind them, so that lanes which load fragments later use "
            f"different banks. The store itself makes {many(it['conflicts'], 'bank conflict')}.",
            ("shared", "banks", "source"),
        )  # fmt: skip
    barriers, all_products = run.barriers(), products(run)
    if not barriers or not all_products:
        return
    first = all_products[0]
    of_a = [i for i in run.each("load", "shared", "sa", after=barriers[0]) if i < first]
    of_b = [i for i in run.each("load", "shared", "sb", after=barriers[0]) if i < first]
    for reads, whose in ((of_a, "A"), (of_b, "B")):
        if not reads:
            continue
        it = run.steps[reads[0]]
        pieces = len(reads)
        yield Stop(
            reads[-1], f"A lane gathers its part of {whose}",
            "Pairs of neighbours along k lie side by side in A, so that one load fetches a pair."
            if whose == "A" else
            "In B a pair along k lies one below the other. So each half of a pair is a load of its "
            "own, and the two are put together.",
            ("fragments", "shared", "source") if whose == "A" else ("shared", "source"),
            before=f"For the first products each lane needs its elements of {whose} in registers. "
            f"It loads them {it['width']} bytes at a time.",
            ask=ask("How many loads does a lane take for them?", pieces, "load",
                    (1, pieces // 2, 2 * pieces),
                    {1: "One instruction for all of them: that is ldmatrix, the next rung."}),
        )  # fmt: skip
    yield from product_stop(run, first, "The tensor core multiplies", ("fragments", "source"))
    yield Stop(
        first, "Who holds what",
        "Each lane holds a few elements of each matrix, at places that the instruction prescribes. "
        "One lane's are marked; choose another element to see who holds it.",
        ("fragments",),
    )  # fmt: skip
    per = products(run, phase=run.steps[first]["phase"])
    yield Stop(
        per[-1], "All of a phase",
        f"{many(len(per), 'product')} of each warp in this phase, and "
        f"{many(len(of_a) + len(of_b), 'load')} a lane in front of the first of them. The loads "
        "are now what costs instructions.",
        ("threads", "fragments", "source"),
    )  # fmt: skip
    yield from stores_c(run)
    yield from _conclusion(run, "The next rung, ldmatrix, loads fragments by whole matrices.")


def stores_c(run: Run) -> Iterator[Stop]:
    store = run.first("store", "global", "c")
    if store is not None:
        yield Stop(
            store, "Back to memory",
            f"The sums are rounded to {run.element('c') * 8} bits. A lane stores "
            f"{run.steps[store]['width']} bytes; warp 0 touches "
            f"{many(run.sectors(store), 'sector')} for {run.bytes(store, 0):,} bytes.",
            ("c", "requests", "source"), shows_sectors=True,
        )  # fmt: skip


def _conclusion(run: Run, text: str) -> Iterator[Stop]:
    adds = sum(
        prod(run.shape(i) or (0,)) * len({t // WARP for t in run.who(i)}) for i in products(run)
    )
    yield from ends(
        run, "C is stored",
        f"{many(len(products(run)), 'product instruction')} of each warp made {adds:,} "
        f"multiply-adds in this block. {text}",
    )  # fmt: skip


def ldmatrix(run: Run) -> Iterator[Stop]:
    yield from tile(run)
    yield from wide(run, "Loads as before")
    store = run.first("store", "shared")
    if store is not None:
        it = run.steps[store]
        yield Stop(
            store, "A swizzle in place of padding",
            "Each row has its pieces in another order: the piece's number XOR the row's. Eight "
            "rows below one another then lie in all banks, and no memory is given away.",
            ("pieces", "banks", "source"),
            before=f"The tile is stored, {it['width']} bytes a lane, with no padding behind its "
            "rows.",
            ask=ask("How many bank conflicts does the store make?", it["conflicts"], "conflict",
                    (it["requests"] * 4, it["requests"], 2 * it["requests"])),
        )  # fmt: skip
    barriers, all_products = run.barriers(), products(run)
    if not barriers or not all_products:
        return
    yield Stop(
        barriers[0], "Both tiles are whole",
        f"The barrier. {many(run.loaded('a', 'b', before=barriers[0]), 'value')} lie in shared "
        "memory.",
        ("arrivals", "threads", "shared"),
    )  # fmt: skip
    yield from matrices(run, barriers[0])
    yield from product_stop(
        run, all_products[0], "The tensor core multiplies", ("fragments", "source")
    )
    phase = run.steps[all_products[0]]["phase"]
    moves = run.each("load", "shared", phase=phase, where=lambda i: bool(run.steps[i].get("rows")))
    per = products(run, phase=phase)
    yield Stop(
        per[-1], "All of a phase",
        f"{many(len(moves), 'ldmatrix')} for {many(len(per), 'product')} of each warp, where "
        "tensor_core takes a load for every pair, and for every half of B's.",
        ("pieces", "fragments", "source"),
    )  # fmt: skip
    yield from stores_c(run)
    yield from _conclusion(
        run, "The next rung, multistage, keeps copies of several phases under way."
    )


def matrices(run: Run, after: int, is_brief: bool = False) -> Iterator[Stop]:
    """The first ldmatrix of each operand; where not ``is_brief``, with its banks."""
    moves = run.each("load", "shared", after=after, where=lambda i: bool(run.steps[i].get("rows")))
    if not moves:
        return
    rows = len(run.at(moves[0], 0))
    yield Stop(
        moves[0], "ldmatrix",
        f"Each lane gives the address of one row of {run.steps[moves[0]]['width']} bytes, {ROWS} "
        "rows to a matrix, and gets the elements that the product needs of it.",
        ("fragments", "pieces", "source"),
        before=f"A matrix has {ROWS} rows. In warp 0, {many(rows, 'lane')} give a row's address "
        "each.",
        ask=ask("How many matrices does this one instruction load?", rows // ROWS, "matrix",
                (1, 2, rows, 8)),
    )  # fmt: skip
    turned = next((i for i in moves if "trans" in _layout(run, i)), None)
    if not is_brief:
        yield Stop(
            moves[0], "One matrix after another",
            f"A matrix's {ROWS} rows are served at once where they lie in different banks. Here "
            f"that makes {many(run.steps[moves[0]]['conflicts'], 'bank conflict')}, thanks to the "
            "swizzle.",
            ("pieces", "source"),
        )  # fmt: skip
    if turned is not None:
        yield Stop(
            turned, "B is turned over on its way",
            "B's rows lie along n, and the product needs pairs along k. With .trans each matrix is "
            "transposed as it is loaded, so that B lies in shared memory as it does in global "
            "memory.",
            ("fragments", "source"),
        )  # fmt: skip


def _layout(run: Run, i: int) -> str:
    layout = run.steps[i].get("layout")
    return "" if layout is None else str(run.trace["layouts"][layout]["what"])


def multistage(run: Run) -> Iterator[Stop]:
    yield from tile(run)
    yield from begins(run)
    barriers, all_products = run.barriers(), products(run)
    if not barriers or not all_products:
        return
    waiting = run.syncs("cp.async", "wait", before=barriers[0] + 1)
    if waiting and begun(run, waiting[0]):
        stages = run.macro("STAGES")
        yield Stop(
            waiting[0], "A ring of stages",
            f"Shared memory holds {many(stages, 'stage')} in a ring. "
            + ("The first is waited for; the others have until their own phase to arrive."
               if run.loads_are_asynchronous else "Here the threads have stored all of them "
               "themselves."),
            ("stages", "source"),
            before="Nothing is multiplied yet, and the block has closed a group for each stage "
            "that it fills ahead.",
            ask=ask("How many stages are filled ahead?", begun(run, waiting[0]), "stage",
                    (1, 2, stages, stages + 1),
                    {stages: "One stage must be free: it is filled while the first is used."}),
        )  # fmt: skip
    yield from waits(run, is_brief=True)
    yield from matrices(run, barriers[0], is_brief=True)
    first = all_products[0]
    yield Stop(
        first, "Fragments a step ahead",
        "The fragments of the next step of k were loaded before this product: into a second set of "
        "registers, so that the tensor cores never wait for a load in front of them.",
        ("fragments", "source"),
    )  # fmt: skip
    turn = _second_fill(run)
    if turn is not None:
        yield Stop(
            turn, "The ring turns",
            "The stage that everybody has read is filled again, for a phase that is still far off.",
            ("stages", "source"),
        )  # fmt: skip
    before_c = run.first("store", "global", "c")
    inner = [i for i in barriers if i < all_products[-1] and i > barriers[0]]
    if inner:
        yield Stop(
            inner[-1], "One barrier a phase",
            "A barrier each phase says that the next tiles are whole, and that nobody reads these "
            "any more.",
            ("source", "stages"),
            before=f"Between the first product and the last the kernel goes through "
            f"{many(-(-run.size('k') // run.macro('BLOCK_K')), 'phase')} of k.",
            ask=ask("How many barriers lie between them?", len(inner), "barrier",
                    (2 * len(inner), 1, len(inner) + 2),
                    {2 * len(inner): "Two a phase: so it was with a single buffer."}),
        )  # fmt: skip
    if (
        before_c is not None
        and run.first("store", "shared", after=all_products[-1], before=before_c) is not None
    ):
        yield Stop(
            before_c, "C goes through shared memory",
            "A lane's sums lie in pairs. By way of shared memory each lane gets "
            f"{run.steps[before_c]['width']} bytes side by side: warp 0 stores "
            f"{run.bytes(before_c, 0):,} bytes in {many(run.sectors(before_c), 'sector')}.",
            ("c", "shared", "source"), shows_sectors=True,
        )  # fmt: skip
    yield from _conclusion(
        run, "The next rung, warpgroup, lets the tensor cores read shared memory themselves."
    )


def _second_fill(run: Run) -> int | None:
    """The step in which a stage begins to be filled for the second time."""
    again = [x["fills"][1]["begin"] for x in run.block.get("stages", ()) if len(x["fills"]) > 1]
    return min(again, default=None)
