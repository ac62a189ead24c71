"""The tours of rungs fourteen to sixteen: tensor cores with operands in a warp's registers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tilewise.devices.occupancy import WARP
from tilewise.lens.tours.copies import begins, begun, waits
from tilewise.lens.tours.registers import VECTOR
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends

ROWS = 8  # rows of a matrix that ldmatrix loads


def tile(run: Run) -> Iterator[Stop]:
    """Yield the stop at the block's tile and its warps' tiles."""
    yield Stop(
        0, "A warp is the unit",
        f"This block computes {run.of_c()} elements of C with {many(run.warps, 'warp')}. Each warp "
        f"has a tile of {run.macro('WARP_M')} x {run.macro('WARP_N')}. Elements of A and B have "
        f"{run.element('a') * 8} bits.",
        ("c", "threads"),
    )  # fmt: skip


def products(run: Run, **more: Any) -> list[int]:
    return run.each("matrix", **more)


def wide(run: Run, title: str = "The loads") -> Iterator[Stop]:
    """Yield the stop at the first load of A by a warp."""
    a = run.first("load", "global", "a")
    if a is None:
        return
    width = run.steps[a]["width"]
    yield Stop(
        a, title,
        f"A lane loads {width} bytes, {many(width // run.element('a'), 'value')}; warp 0's request "
        f"touches {many(run.sectors(a), 'sector')} for {run.bytes(a, 0):,} bytes."
        + ("" if width == VECTOR else
           f" If the rows were {VECTOR}-byte aligned, a lane could load {VECTOR} bytes."),
        ("a", "requests", "source"), shows_sectors=True,
    )  # fmt: skip


def product_stop(run: Run, i: int, title: str, look: tuple[str, ...]) -> Iterator[Stop]:
    """Return the stop at a product of matrices, which asks for its multiply-adds."""
    shape = run.shape(i)
    if shape is None:
        return
    m, n, k = shape
    yield Stop(
        i, title,
        f"D has {m} x {n} elements, and each is a sum of {k} products. Without tensor cores, an "
        f"instruction does one multiply-add a lane, {run.lanes} a warp.",
        look,
        before=f"A warp executes one mma.sync: a matrix of {m} x {k} times one of {k} x {n}.",
        ask=ask("How many multiply-adds does this one instruction do for a warp?", prod(shape),
                "multiply-add", (run.lanes, m * n, m * k, prod(shape) // 2),
                {run.lanes: "That is one a lane, as without tensor cores.",
                 m * n: f"D has that many elements, and each takes {k} multiply-adds."}),
    )  # fmt: skip


def tensor_core(run: Run) -> Iterator[Stop]:
    yield from tile(run)
    yield from wide(run)
    store = run.first("store", "shared")
    if store is not None:
        it = run.steps[store]
        yield Stop(
            store, "Into padded rows",
            "A tile's rows have padding behind them, so that the lanes use different banks when "
            "they load fragments later. The store itself makes "
            f"{many(it['conflicts'], 'bank conflict')}.",
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
            reads[-1] if whose == "A" else reads[0], f"A lane gathers its part of {whose}",
            "Two neighbours along k lie side by side in A, so one load fetches the pair."
            if whose == "A" else
            "Two neighbours along k lie one below the other in B, so each takes a load of its own, "
            "and the thread packs the two into one register.",
            ("fragments", "shared", "source") if whose == "A" else ("shared", "source"),
            before=f"For the first products each lane needs its elements of {whose} in registers. "
            f"It loads them {it['width']} bytes at a time.",
            ask=ask("How many loads does a lane take for them?", pieces, "load",
                    (1, pieces // 2, 2 * pieces),
                    {1: "An instruction that loads whole matrices comes with ldmatrix, the next "
                     "rung."}),
        )  # fmt: skip
    yield from product_stop(run, first, "The tensor core multiplies", ("fragments", "source"))
    yield Stop(
        first, "Who holds what",
        "Each lane holds a few elements of each matrix, at places that the instruction prescribes. "
        "The elements of one lane are marked. Choose another element to see which lane holds it.",
        ("fragments",),
    )  # fmt: skip
    per = products(run, phase=run.steps[first]["phase"])
    yield Stop(
        per[-1], "All of a phase",
        f"Each warp multiplies with {many(len(per), 'mma.sync')} in this phase, and each lane made "
        f"{many(len(of_a) + len(of_b), 'load')} before the first of them. Now it is the loads "
        "that cost instructions.",
        ("fragments", "threads", "source"),
    )  # fmt: skip
    yield from stores_c(run)
    yield from _conclusion(run, "The next rung, ldmatrix, loads fragments by whole matrices.")


def stores_c(run: Run) -> Iterator[Stop]:
    store = run.first("store", "global", "c")
    if store is not None:
        yield Stop(
            store, "Back to memory",
            f"The sums have been rounded to {run.element('c') * 8} bits. A lane stores "
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
        f"Each warp executed {many(len(products(run)), 'mma.sync')}: together {adds:,} "
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
            f"In each row the pieces of {VECTOR} bytes are in another order: piece i lies at place "
            "i XOR a number that changes with the row. The same piece of successive rows then lies "
            "in different banks, and no memory is spent on padding.",
            ("pieces", "banks", "source"),
            before=f"The threads store the tile, {it['width']} bytes a lane, with no padding "
            "behind its rows.",
            ask=ask("How many bank conflicts does the store make?", it["conflicts"], "conflict",
                    (it["requests"] * 4, it["requests"], 2 * it["requests"])),
        )  # fmt: skip
    barriers, all_products = run.barriers(), products(run)
    if not barriers or not all_products:
        return
    yield Stop(
        barriers[0], "Both tiles are whole",
        f"After this barrier {many(run.loaded('a', 'b', before=barriers[0]), 'value')} lie in "
        "shared memory, and every warp may read them.",
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
        f"Each warp executes {many(len(moves), 'ldmatrix')} for {many(len(per), 'mma.sync')}. In "
        "tensor_core a lane takes a load for each pair of A and two for each pair of B.",
        ("pieces", "fragments", "source"),
    )  # fmt: skip
    yield from stores_c(run)
    yield from _conclusion(
        run, "The next rung, multistage, keeps the copies of several phases under way."
    )


def matrices(run: Run, after: int, is_brief: bool = False) -> Iterator[Stop]:
    """Yield the stops at each operand's first ldmatrix, and unless ``is_brief`` at its banks."""
    moves = run.each("load", "shared", after=after, where=lambda i: bool(run.steps[i].get("rows")))
    if not moves:
        return
    rows = len(run.at(moves[0], 0))
    yield Stop(
        moves[0], "ldmatrix",
        f"Each lane passes the address of one row of {run.steps[moves[0]]['width']} bytes, {ROWS} "
        "rows to a matrix. It gets the elements that mma.sync needs in its registers.",
        ("fragments", "pieces", "source"),
        before=f"A matrix has {ROWS} rows. In warp 0, {many(rows, 'lane')} each pass the address "
        "of a row.",
        ask=ask("How many matrices does this one instruction load?", rows // ROWS, "matrix",
                (1, 2, rows, 8)),
    )  # fmt: skip
    turned = next((i for i in moves if "trans" in _layout(run, i)), None)
    if not is_brief:
        yield Stop(
            moves[0], "One matrix after another",
            f"The {ROWS} rows of a matrix are served at once where they lie in different banks. "
            f"With the swizzle there is {many(run.steps[moves[0]]['conflicts'], 'bank conflict')}."
            if not run.steps[moves[0]]["conflicts"] else
            f"The {ROWS} rows of a matrix are served at once where they lie in different banks. "
            f"Here there are {many(run.steps[moves[0]]['conflicts'], 'bank conflict')}.",
            ("pieces", "source"),
        )  # fmt: skip
    if turned is not None:
        yield Stop(
            turned, "B is transposed on its way",
            "B's rows lie along n, and mma.sync needs pairs along k. With .trans each matrix is "
            "transposed as it is loaded, so B can lie in shared memory as it does in global "
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
            + ("The threads wait for the first; the others have until their own phase to arrive."
               if run.loads_are_asynchronous else "Here the threads have stored all filled stages "
               "themselves."),
            ("stages", "source"),
            before="Nothing is multiplied yet. The block has committed a group for each stage that "
            "it fills ahead.",
            ask=ask("How many stages are filled ahead?", begun(run, waiting[0]), "stage",
                    (1, 2, stages, stages + 1),
                    {stages: "One stage must be free: it is filled while the first is used."}),
        )  # fmt: skip
    yield from waits(run, is_brief=True)
    yield from matrices(run, barriers[0], is_brief=True)
    first = all_products[0]
    yield Stop(
        first, "Fragments a step ahead",
        "Before this product the warp loaded the fragments of the next step of k, into a second "
        "set of registers. So no product has to wait for a load right in front of it.",
        ("fragments", "source"),
    )  # fmt: skip
    turn = second_fill(run)
    if turn is not None:
        yield Stop(
            turn, "The ring turns",
            "Everybody has read this stage, and it is filled again, for a phase that comes later.",
            ("stages", "source"),
        )  # fmt: skip
    before_c = run.first("store", "global", "c")
    inner = [i for i in barriers if i < all_products[-1] and i > barriers[0]]
    if inner:
        yield Stop(
            inner[-1], "What a barrier says",
            "One barrier in each phase says that the next tiles are complete, and that nobody "
            "reads the present ones any more.",
            ("source", "stages"),
            before=f"Between the first product and the last the kernel goes through "
            f"{many(-(-run.size('k') // run.macro('BLOCK_K')), 'phase')} of k.",
            ask=ask("How many barriers lie between them?", len(inner), "barrier",
                    (2 * len(inner), 1, len(inner) + 2),
                    {2 * len(inner): "That is two a phase, as with a single buffer."}),
        )  # fmt: skip
    if (
        before_c is not None
        and run.first("store", "shared", after=all_products[-1], before=before_c) is not None
    ):
        yield Stop(
            before_c, "C goes through shared memory",
            "A lane's sums are pairs of neighbours. By way of shared memory each lane gets "
            f"{run.steps[before_c]['width']} bytes side by side, and warp 0 stores "
            f"{run.bytes(before_c, 0):,} bytes in {many(run.sectors(before_c), 'sector')}.",
            ("c", "shared", "source"), shows_sectors=True,
        )  # fmt: skip
    yield from _conclusion(
        run, "The next rung, warpgroup, lets the tensor cores read shared memory themselves."
    )


def second_fill(run: Run) -> int | None:
    """Return the step in which a stage begins to be filled for the second time."""
    again = [x["fills"][1]["begin"] for x in run.block.get("stages", ()) if len(x["fills"]) > 1]
    return min(again, default=None)
