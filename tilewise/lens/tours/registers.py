"""The tours of rungs eight to eleven: a thread's tile in registers, wider accesses, warp tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.occupancy import WARP
from tilewise.lens.tours.run import Run, served
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends, percent
from tilewise.lens.tours.tiles import fewer, ratio

VECTOR = 16  # bytes, the most that a thread accesses at once


def of_thread(run: Run, **more: Any) -> int:
    """Return the number of values that thread 0 reads from shared memory."""
    found = 0
    for i in run.each("load", "shared", **more):
        if 0 in run.at(i):
            found += run.steps[i]["width"] // run.element("a")
    return found


def group(run: Run, barrier: int) -> list[int]:
    """Return the multiply-adds of the first step of k after a barrier, one for each sum."""
    sums = run.macro("THREAD_M") * int(run.macros.get("THREAD_N", 1))
    return run.each("compute", after=barrier)[:sums]


def share(run: Run) -> Iterator[Stop]:
    """Yield the stop that shows what a block and one of its threads compute."""
    down, across = run.macro("THREAD_M"), int(run.macros.get("THREAD_N", 1))
    what = f"a column of {down}" if across == 1 else f"{down} x {across}"
    yield Stop(
        0, "Fewer threads, more each",
        f"This block computes {run.of_c()} elements of C with {many(run.threads, 'thread')}. Each "
        f"thread computes {what} elements, and keeps a sum in a register for each of them.",
        ("c", "threads"),
    )  # fmt: skip


def loads(run: Run, title: str, text: str) -> Iterator[Stop]:
    """Yield the stop at a warp's first load of A, with its sectors to predict."""
    a = run.first("load", "global", "a")
    if a is None:
        return
    sectors, lanes = run.sectors(a), len(run.at(a, 0))
    used = percent(run.bytes(a, 0), sectors * SECTOR)
    yield Stop(
        a, title, f"{text} The warp uses {used} of the sectors' bytes.",
        ("a", "requests", "source"), shows_sectors=True,
        before=f"The block loads its tile of A, {run.macro('BLOCK_K')} deep. In this instruction "
        f"warp 0 asks for {run.bytes(a, 0):,} bytes with {many(lanes, 'lane')}.",
        ask=ask("How many sectors does warp 0's load of A touch?", sectors, "sector",
                (lanes, -(-run.bytes(a, 0) // SECTOR), 1, 2 * sectors),
                {lanes: "That would be so if no two lanes loaded from the same sector."}),
    )  # fmt: skip


def barrier_stop(run: Run, barrier: int) -> Stop:
    return Stop(
        barrier, "Both tiles are whole",
        "The block waits at the barrier. It has loaded "
        f"{many(run.loaded('a', 'b', before=barrier), 'value')}, and every thread may now read all "
        "of them.",
        ("arrivals", "threads", "shared"),
    )  # fmt: skip


def slides(run: Run) -> Iterator[Stop]:
    """Yield the stop at the second phase."""
    second = run.first("load", "global", "a", phase=1)
    if second is not None:
        yield Stop(
            second, "The next phase",
            f"The tiles slide {many(run.macro('BLOCK_K'), 'step')} along k. All sums stay in "
            f"registers for all {many(run.phases, 'phase')}.",
            ("a", "b", "source"), shows_sectors=True,
        )  # fmt: skip


def thread_tile_1d(run: Run) -> Iterator[Stop]:
    down = run.macro("THREAD_M")
    yield from share(run)
    yield from loads(
        run,
        "Every thread loads several",
        "There are fewer threads than values in a tile, so each thread loads several, in a loop "
        "over the tile.",
    )
    barriers = run.barriers()
    if not barriers:
        return
    yield barrier_stop(run, barriers[0])
    adds = group(run, barriers[0])
    if adds:
        b = [i for i in run.each("load", "shared", "sb", after=barriers[0]) if i < adds[-1]]
        if b:
            yield Stop(
                b[0], "One value of B, into a register",
                f"of_b = sb[i][tx] is read once and then used for {many(down, 'multiply-add')}, "
                "one for each element of the thread's column.",
                ("shared", "source"),
            )  # fmt: skip
        yield Stop(
            adds[0], "The first of the column",
            "The thread multiplies a value of A by the value of B in its register, and adds the "
            "product to its first sum.",
            ("sum", "threads", "source"),
        )  # fmt: skip
        read = of_thread(run, after=barriers[0], before=adds[-1] + 1)
        yield Stop(
            adds[-1], "A column from few values",
            "In tiled, each multiply-add takes two values from shared memory. Here it takes one "
            "value of A, and all of them share the value of B.",
            ("sum", "shared", "threads"),
            before=f"Thread 0 has done {many(len(adds), 'multiply-add')} now, one for each element "
            "of its column.",
            ask=ask("How many values has it read from shared memory for them?", read, "value",
                    (2 * down, down, 2),
                    {2 * down: "That is so in tiled: two values for each multiply-add."}),
        )  # fmt: skip
    if len(barriers) > 1:
        phase = run.steps[barriers[0]]["phase"]
        requests = run.total("requests", "load", "shared", phase=phase)
        reads = run.each(
            "load", "shared", phase=phase, where=lambda i: run.steps[i]["requests"] > 0
        )
        yield Stop(
            reads[-1], "The phase in requests",
            f"This read is the last of {many(requests, 'request')} to shared memory in this phase. "
            "A request serves a whole warp, and the compiler joins a thread's neighbouring reads "
            "into wider ones.",
            ("banks", "source"),
        )  # fmt: skip
    yield from slides(run)
    yield from _conclusion(
        run,
        f"A value of B now serves {many(down, 'multiply-add')}. The next rung, "
        "thread_tile_2d, lets values of A serve several too.",
    )


def _conclusion(run: Run, text: str) -> Iterator[Stop]:
    yield from ends(run, "C is stored", f"{fewer(run)} {text}")


def thread_tile_2d(run: Run) -> Iterator[Stop]:
    down, across = run.macro("THREAD_M"), run.macro("THREAD_N")
    yield from share(run)
    yield from loads(
        run,
        "Lanes walk along k",
        "Neighbouring lanes load neighbours along k, so that a row of the tile is one piece of "
        "memory.",
    )
    store = run.first("store", "shared", "sa")
    if store is not None and (turns := run.turns(store)) is not None:
        pitch = run.macro("BLOCK_M") * run.element("a")
        padded = next(x["columns"] for x in run.trace["shared"] if x["name"] == "sa") * run.element(
            "a"
        )
        without = served(x // padded * pitch + x % padded for x in run.at(store, 0).values())
        yield Stop(
            store, "Padding",
            "Without the padding behind each row, the same store would take "
            f"{many(without, 'turn')}, because all rows would begin in the same bank.",
            ("banks", "source"),
            before="A's tile is stored transposed, so that a column of it is contiguous. The lanes "
            "store to different rows of sa, whose rows are longer than the tile.",
            ask=ask("In how many turns is warp 0's store served?", turns, "turn",
                    (without, WARP, 2 * turns),
                    {without: "That would be so if rows had no padding behind them."}),
        )  # fmt: skip
    barriers = run.barriers()
    if not barriers:
        return
    yield barrier_stop(run, barriers[0])
    adds = group(run, barriers[0])
    if adds:
        reads = run.each("load", "shared", after=barriers[0], before=adds[-1])
        if reads:
            yield Stop(
                reads[0], "A column of A, a row of B",
                f"Thread 0 reads {many(down, 'value')} of A and {many(across, 'value')} of B into "
                "registers. It needs the product of every one of A with every one of B.",
                ("shared", "source"),
            )  # fmt: skip
        products, read = len(adds), of_thread(run, after=barriers[0], before=adds[-1] + 1)
        yield Stop(
            adds[-1], "The outer product",
            "The work grows with the area of the thread's square, and the reads only with its "
            f"edges. In tiled, a thread would read {many(2 * products, 'value')} for as many "
            "multiply-adds.",
            ("sum", "shared", "threads"),
            before="Each thread has multiplied each of its values of A by each of its values of B: "
            f"{many(products, 'multiply-add')}.",
            ask=ask("How many values has thread 0 read from shared memory for them?", read, "value",
                    (2 * products, products, products // 2),
                    {2 * products: "That is so in tiled: two values for each multiply-add."}),
        )  # fmt: skip
        yield Stop(
            adds[-1], "What it costs",
            f"{many(products, 'sum')} stay in the registers of each thread for the whole loop. The "
            "more registers a thread takes, the fewer threads a multiprocessor holds.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    yield from slides(run)
    store_c = run.first("store", "global", "c")
    if store_c is not None:
        yield Stop(
            store_c, "A store of single elements",
            f"Warp 0 stores {many(len(run.at(store_c, 0)), 'element')} in "
            f"{many(run.sectors(store_c), 'sector')}: its lanes' squares lie apart. Wider stores "
            "would help, and wider loads: that is the next rung.",
            ("c", "requests", "source"), shows_sectors=True,
        )  # fmt: skip
    yield from _conclusion(run, "The next rung, vectorized, moves several neighbours at once.")


def vectorized(run: Run) -> Iterator[Stop]:
    yield from share(run)
    a = run.first("load", "global", "a")
    width = run.steps[a]["width"] if a is not None else 0
    each = width // run.element("a")
    if a is not None:
        is_wide, narrow = width == VECTOR, run.lanes * run.element("a")
        yield Stop(
            a, f"{width} bytes a lane",
            f"One instruction loads {many(each, 'value')} for each lane. The bytes are as many as "
            f"before, and the instructions {ratio(each, 1)} times fewer."
            if is_wide else
            f"The rows are not {VECTOR}-byte aligned at this size, so the kernel moves one value "
            f"at a time. Choose n and k as multiples of {VECTOR // run.element('a')} to see it "
            "move several.",
            ("a", "requests", "source"), shows_sectors=True,
            before=f"A lane's load is {width} bytes wide here.",
            ask=ask("How many bytes does warp 0 ask for in this one request?", run.bytes(a, 0),
                    "byte", (narrow, SECTOR, run.lanes * VECTOR),
                    {narrow: "That is one value a lane, as in thread_tile_2d."}),
        )  # fmt: skip
        phase = run.steps[a]["phase"] or 0
        yield Stop(
            run.each("load", "global", phase=phase)[-1], "All loads first",
            f"{many(run.total('requests', 'load', 'global', phase=phase), 'request')} load both "
            "tiles. All loads are under way before the first store waits for its value.",
            ("a", "b", "source"),
        )  # fmt: skip
    yield from _stores_b(run)
    barriers = run.barriers()
    if not barriers:
        return
    yield barrier_stop(run, barriers[0])
    adds = group(run, barriers[0])
    if adds:
        reads = run.each("load", "shared", "sb", after=barriers[0], before=adds[-1])
        if reads:
            it = run.steps[reads[0]]
            yield Stop(
                reads[0], "The lanes read B",
                "A thread's columns of C are neighbours, so the pieces of B that neighbouring "
                "lanes read lie apart, and some of them in the same banks. The next rung lays out "
                "the lanes so that they do not meet."
                if it["conflicts"] else
                "At this tile no lanes meet in a bank. With larger tiles they do, because the "
                "pieces that neighbouring lanes read lie apart.",
                ("banks", "source"),
                before=f"Now the threads read B's tile, {it['width']} bytes a lane. This "
                f"instruction makes {many(it['requests'], 'request')}, one a warp.",
                ask=ask("How many bank conflicts does it make?", it["conflicts"], "conflict",
                        (0, it["requests"], WARP - 1)),
            )  # fmt: skip
        yield Stop(
            adds[-1], "Sums in registers",
            f"Each thread does {many(len(adds), 'multiply-add')} with "
            f"{many(of_thread(run, after=barriers[0], before=adds[-1] + 1), 'value')}, as in "
            "thread_tile_2d. Only the accesses to memory are wider.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    yield from slides(run)
    store = run.first("store", "global", "c")
    if store is not None:
        yield Stop(
            store, "C, several at a time",
            f"A lane stores {run.steps[store]['width']} bytes, and warp 0 stores "
            f"{run.bytes(store, 0):,} bytes in {many(run.sectors(store), 'sector')}.",
            ("c", "requests", "source"), shows_sectors=True,
        )  # fmt: skip
    yield from _conclusion(run, "The next rung, warp_tile, avoids bank conflicts.")


def _stores_b(run: Run) -> Iterator[Stop]:
    store = run.first("store", "shared", "sb")
    if store is not None:
        it = run.steps[store]
        yield Stop(
            store, "Into shared memory",
            f"A row of B is stored as it was loaded, {it['width']} bytes a lane, with "
            f"{many(it['conflicts'], 'bank conflict')}. A's tile is transposed, so it is stored "
            "value by value.",
            ("shared", "banks", "source"),
        )  # fmt: skip


def warp_tile(run: Run) -> Iterator[Stop]:
    yield from share(run)
    yield Stop(
        0, "A tile for each warp",
        f"Each of the {many(run.warps, 'warp')} has a tile of its own within the block's tile. "
        "There the pieces of neighbouring lanes lie side by side. In vectorized, all elements of a "
        "lane are neighbours, and other lanes begin where they end.",
        ("c", "threads", "source"),
    )  # fmt: skip
    yield from loads(
        run,
        "Loads as before",
        "The loads from global memory are those of vectorized. What changes is which lane reads "
        "what from shared memory.",
    )
    yield from _stores_b(run)
    barriers = run.barriers()
    if not barriers:
        return
    yield barrier_stop(run, barriers[0])
    adds = group(run, barriers[0])
    if adds:
        for name in ("sa", "sb"):
            reads = run.each("load", "shared", name, after=barriers[0], before=adds[-1])
            if not reads:
                continue
            it, at = run.steps[reads[0]], run.at(reads[0], 0)
            distinct = len(set(at.values()))
            if name == "sa":
                yield Stop(
                    reads[0], "The lanes read A",
                    "Lanes of the same row want the same values of A, and share one access: a "
                    "broadcast.",
                    ("banks", "source"),
                    before=f"The {many(len(at), 'lane')} of warp 0 read A's tile, {it['width']} "
                    "bytes each.",
                    ask=ask("How many different places do they read?", distinct, "place",
                            (len(at), 1, 2 * distinct),
                            {len(at): "That is a place a lane: then nothing would be shared."}),
                )  # fmt: skip
            else:
                yield Stop(
                    reads[0], "The lanes read B",
                    "The pieces that differ lie side by side, in different banks."
                    if not it["conflicts"] else
                    "Some lanes still meet in a bank: at this size the kernel moves one value at a "
                    "time.",
                    ("banks", "source"),
                    before=f"The lanes read {many(distinct, 'different place')} of B's tile.",
                    ask=ask("How many bank conflicts does this instruction make?",
                            it["conflicts"], "conflict",
                            (it["requests"] * 4, it["requests"], distinct)),
                )  # fmt: skip
        yield Stop(
            adds[-1], "The same outer product",
            f"Each thread does {many(len(adds), 'multiply-add')}, as before: it owns other "
            "elements of C, but as many.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    yield from slides(run)
    conflicts = run.total("conflicts", "load", "shared")
    yield from _conclusion(
        run,
        f"All reads of shared memory together made {many(conflicts, 'bank conflict')}. The "
        "next rung, double_buffered, copies the next tiles while it computes.",
    )
