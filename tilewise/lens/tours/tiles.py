"""The tours of rungs five to seven: tiles in shared memory, transposed, and without branches."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.devices.emulator.counting.transactions import BANKS, SECTOR
from tilewise.lens.tours.run import BYTES_OF_A_WORD, Run
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends, percent


def ratio(more: float, fewer: float) -> str:
    """Return a ratio as text: whole from ten on, and below with at most two decimals."""
    times = more / fewer
    return f"{times:,.0f}" if times >= 10 else f"{times:.2f}".rstrip("0").rstrip(".")


def fewer(run: Run) -> str:
    """Return a sentence on the block's loads beside those of threads that share nothing."""
    loads = run.loaded("a", "b")
    if loads >= run.untiled:
        return f"The block made {many(loads, 'load')}: at this size no fewer than without tiles."
    times = ratio(run.untiled, loads)
    return f"The block made {many(loads, 'load')} in place of {run.untiled:,}: {times} times fewer."


def tiled(run: Run) -> Iterator[Stop]:
    k, tile = run.size("k"), run.trace["problem"]["tile"]
    yield Stop(
        0, "A block and its tile of C",
        f"This block computes {run.of_c()} elements of C. If the thread of each element loaded a "
        f"row of A and a column of B by itself, that would be {many(run.untiled, 'load')} for "
        f"k = {k}.",
        ("c", "threads"),
    )  # fmt: skip
    yield from loads_a_tile(run)
    barriers = run.barriers()
    if not barriers:
        return
    own, wanted = _own(run, 0, barriers[0])
    if wanted:
        yield Stop(
            barriers[0], "The first barrier",
            "What the other threads stored must be there before anybody reads it. That is what "
            "__syncthreads() ensures.",
            ("arrivals", "threads", "shared"), mark={"thread": 0},
            before="Thread 0 has stored its value of A and its value of B. In this phase it will "
            f"read {many(wanted, 'value')} from shared memory.",
            ask=ask("How many of those has thread 0 stored itself?", own, "value",
                    (0, wanted, wanted // 2, 1),
                    {wanted: "Then no barrier would be needed, and nothing would be shared."}),
        )  # fmt: skip
    yield from reuses(run, barriers[0])
    if len(barriers) > 1:
        yield Stop(
            barriers[1], "The second barrier",
            "Everybody has read this phase's tiles. Without this barrier a fast warp would "
            "overwrite them for the next phase while a slow one still reads." if run.phases > 1 else
            "Everybody has read the tiles. If k were longer, the next phase would overwrite them "
            "now.",
            ("arrivals", "threads", "shared"),
        )  # fmt: skip
    second = run.first("load", "global", "a", phase=1)
    if second is not None:
        yield Stop(
            second, "The tiles slide on",
            f"In phase two A's tile has moved {many(tile, 'column')} to the right, and B's tile as "
            f"many rows down. The sums stay in registers for all {many(run.phases, 'phase')}.",
            ("a", "b", "source"), shows_sectors=True,
        )  # fmt: skip
    loads = run.loaded("a", "b")
    if loads:
        yield from ends(
            run, "The same product, fewer loads",
            f"{fewer(run)} {many(tile, 'thread')} use each value that is loaded. The "
            "next rung stores these tiles transposed, and pays for it.",
            "traffic", "c",
        )  # fmt: skip


def loads_a_tile(run: Run) -> Iterator[Stop]:
    """Yield the stops at which A's tile, and B's, is loaded and stored."""
    a, b = run.first("load", "global", "a"), run.first("load", "global", "b")
    if a is not None:
        sectors, lanes = run.sectors(a), len(run.at(a, 0))
        yield Stop(
            a, "One value each",
            f"The block loads {many(len(run.elements(a)), 'value')} of A, one a thread. Warp 0 "
            f"takes {many(_rows(run, a), 'row')} of the tile, and each row is a piece of memory of "
            "its own"
            + (". Some rows touch more than one sector." if sectors > _rows(run, a) else "."),
            ("a", "requests", "source"), shows_sectors=True,
            before="The block loads a tile of A, one value a thread. In warp 0, "
            f"{many(lanes, 'lane')} load.",
            ask=ask("How many sectors does warp 0's load touch?", sectors, "sector",
                    (lanes, 1, 2 * sectors, -(-lanes * run.element("a") // SECTOR)),
                    {1: f"A sector has {SECTOR} bytes. Rows of A lie far apart in memory."}),
        )  # fmt: skip
    store = run.first("store", "shared")
    if store is not None:
        yield Stop(
            store, "Into shared memory",
            f"Each thread stores what it loaded to {run.shared(store) or 'shared memory'}, which "
            "all threads of the block can read. The store makes "
            f"{many(run.steps[store]['conflicts'], 'bank conflict')}.",
            ("shared", "source"),
        )  # fmt: skip
    if b is not None:
        yield Stop(
            b, "The same for B",
            f"The block loads {many(len(run.elements(b)), 'value')} of B. Each thread has now "
            "loaded two values, and will use many more than two.",
            ("b", "requests", "source"), shows_sectors=True,
        )  # fmt: skip


def _rows(run: Run, i: int) -> int:
    """Return the number of rows of a matrix that warp 0 accesses."""
    name = run.steps[i]["array"]
    leading = next(x["leading"] for x in run.trace["arrays"] if x["name"] == name)
    return len({x // leading for x in run.elements(i, 0)})


def _own(run: Run, thread: int, barrier: int) -> tuple[int, int]:
    """Return how many of the cells that a thread reads in the first phase it stored, and all."""
    stored = {x for i in run.each("store", "shared", before=barrier)
              for t, x in run.at(i).items() if t == thread}  # fmt: skip
    phase = run.steps[barrier]["phase"]
    read = [x for i in run.each("load", "shared", after=barrier, phase=phase)
            for t, x in run.at(i).items() if t == thread]  # fmt: skip
    return sum(x in stored for x in read), len(read)


def reuses(run: Run, barrier: int) -> Iterator[Stop]:
    """Yield the stops at the first multiply-add from shared memory, and at the uses of a value."""
    phase = run.steps[barrier]["phase"]
    reads = run.each("load", "shared", after=barrier, phase=phase)
    add = run.first("compute", after=barrier)
    if not reads or add is None:
        return
    yield Stop(
        add, "The first product",
        "sum += a · b, with both factors from shared memory. The reads before it made "
        f"{many(sum(run.steps[i]['conflicts'] for i in reads if i < add), 'bank conflict')}: lanes "
        "that want the same word share it.",
        ("sum", "shared", "threads"),
    )  # fmt: skip
    of_a = run.each("load", "shared", "sa", after=barrier, phase=phase) or reads
    cell = min(run.at(of_a[0]).values())
    times = sum(list(run.at(i).values()).count(cell) for i in reads)
    yield Stop(
        reads[-1], "How often a value is read",
        "The value was loaded from global memory once, and all of these reads go to shared memory: "
        "this is where the loads are saved.",
        ("shared", "threads"), mark={"byte": cell},
        before="Look at the first value of the tile of A. One thread loaded it from global memory, "
        "once.",
        ask=ask("How many times do threads read it in this phase?", times, "time",
                (1, run.threads, 2 * times, times * times)),
    )  # fmt: skip


def tiled_conflicts(run: Run) -> Iterator[Stop]:
    yield Stop(
        0, "The same tiles, turned over",
        "This kernel differs from tiled in one thing: both tiles are stored transposed, sa[tx][ty] "
        "in place of sa[ty][tx]. The result is the same.",
        ("source", "c"),
    )  # fmt: skip
    a = run.first("load", "global", "a")
    if a is not None:
        yield Stop(
            a, "From global memory nothing changes",
            f"Warp 0 loads its values of A from {many(run.sectors(a), 'sector')}, as in tiled. The "
            "difference is on the other side, in shared memory.",
            ("a", "requests", "source"), shows_sectors=True,
        )  # fmt: skip
    store = run.first("store", "shared")
    if store is not None:
        yield Stop(
            max(store - 1, 0), f"Shared memory has {BANKS} banks",
            f"Successive words of {BYTES_OF_A_WORD} bytes lie in successive banks, and behind the "
            "last bank comes the first again. In one turn a bank serves one word, to all lanes "
            "that want it; lanes whose words lie in different banks are served at once.",
            ("banks", "source"),
        )  # fmt: skip
        turns = run.turns(store)
        if turns is not None:
            lanes, tile = len(run.at(store, 0)), int(run.trace["problem"]["tile"])
            yield Stop(
                store, "A column, not a row",
                f"Neighbouring lanes store to neighbouring rows of the tile, {many(tile, 'word')} "
                f"apart. {turns} of the lanes meet in one bank, and it serves their words in "
                "turn." if turns > 1 else
                "At this tile no two lanes of the warp meet in a bank. With larger tiles they do.",
                ("banks", "threads"),
                before=f"{many(lanes, 'lane')} of warp 0 store down the columns of sa.",
                ask=ask("In how many turns is warp 0's store served?", turns, "turn",
                        (1, lanes, 2 * turns),
                        {1: "That is so in tiled, where the lanes store along a row."}),
            )  # fmt: skip
    barriers = run.barriers()
    if barriers:
        yield Stop(
            barriers[0], "Everybody waits longer",
            f"Up to here the block made {many(_conflicts(run, before=barriers[0]), 'conflict')}. "
            "At the barrier all wait for the slowest warp, and each additional turn delays it.",
            ("arrivals", "threads", "banks"),
        )  # fmt: skip
        worst = max(run.each("load", "shared", after=barriers[0]), default=None,
                    key=lambda i: (run.steps[i]["conflicts"], -i))  # fmt: skip
        if worst is not None:
            it = run.steps[worst]
            name = run.shared(worst) or "shared memory"
            yield Stop(
                worst, "Reading down a column",
                "Lanes that read down a column want words a whole row apart, and several of those "
                "words lie in one bank."
                if it["conflicts"] else
                "At this tile there is no conflict. With larger tiles, lanes that read down a "
                "column meet in one bank.",
                ("banks", "source"),
                before=f"Now the threads read {name}, in {many(it['requests'], 'request')} of this "
                "step.",
                ask=ask("How many bank conflicts does this step make?", it["conflicts"], "conflict",
                        (0, it["requests"], run.lanes)),
            )  # fmt: skip
        fine = run.first(
            "load", "shared", after=barriers[0],
            where=lambda i: run.steps[i]["requests"] > 0 and not run.steps[i]["conflicts"],
        )  # fmt: skip
        if fine is not None:
            yield Stop(
                fine, "Not every read conflicts",
                "Here the lanes want the same words, or words of different banks, and are served "
                "at once. The layout alone does not tell what a read costs: it also matters which "
                "lane reads what.",
                ("banks", "source"),
            )  # fmt: skip
    if len(barriers) > 1:
        phase = run.total("requests", "load", "shared", phase=0) + run.total(
            "requests", "store", "shared", phase=0)  # fmt: skip
        last = run.each(space="shared", phase=0, where=lambda i: run.steps[i]["requests"] > 0)[-1]
        yield Stop(
            last, "A phase, added up",
            f"In this phase, which this read ends, {many(phase, 'request')} to shared memory made "
            f"{many(_conflicts(run, phase=0), 'bank conflict')}. Each conflict costs one more "
            "turn, and the requests behind it wait for that turn.",
            ("banks", "shared"),
        )  # fmt: skip
    yield from ends(
        run, "Right, and slow",
        f"C is right, after {many(_conflicts(run), 'bank conflict')} in this block. Only a counter "
        "or a clock shows what happened. The next rung stores the tiles by rows again.",
        "c", "banks",
    )  # fmt: skip


def _conflicts(run: Run, **more: int) -> int:
    return sum(run.total("conflicts", kind, "shared", **more) for kind in ("load", "store"))


def tiled_branchless(run: Run) -> Iterator[Stop]:
    yield Stop(
        0, "A block at the edge" if run.has_edge else "A block inside C",
        f"This block has {many(run.threads, 'thread')}, and computes "
        f"{many(len(run.stored), 'element')} of C. "
        + ("The other threads lie past the edge: in tiled, an if kept them from loading."
           if run.has_edge else "None of its threads lies past an edge of C."),
        ("c", "threads"), block=run.number,
    )  # fmt: skip
    a, b = run.first("load", "global", "a"), run.first("load", "global", "b")
    if b is not None:
        yield Stop(
            b, "Who loads?",
            "There is no branch: min(col, n - 1) brings a column past the edge back into the "
            "matrix, so that every thread's load is legal.",
            ("b", "threads", "source"), block=run.number, shows_sectors=True,
            before=f"The block loads its tile of B. It has {many(run.threads, 'thread')} for "
            f"{many(len(run.stored), 'element')} of C.",
            ask=ask("How many threads take part in this load?", len(run.at(b)), "thread",
                    (len(run.stored), run.threads - len(run.stored), run.threads // 2),
                    {len(run.stored): "That would be so with an if around the load."}),
        )  # fmt: skip
    if a is not None:
        threads, distinct = len(run.at(a)), len(run.elements(a))
        yield Stop(
            a, "What do they load?",
            "Threads whose index was clamped load the same element as a neighbour at the edge. "
            "Nobody needs those loads, but they cost no branch." if distinct < threads else
            "No index was clamped here: every thread has an element of A of its own.",
            ("a", "requests", "source"), block=run.number, shows_sectors=True,
            before=f"Now {many(threads, 'thread')} load from A, each from its own row, or from the "
            "last row of A where its own lies past the edge.",
            ask=ask("How many different elements of A do they load?", distinct, "element",
                    (threads, len(run.stored), distinct // 2)),
        )  # fmt: skip
    store = run.first("store", "shared")
    if store is not None and run.zeros(store):
        yield Stop(
            store, "Select, do not multiply",
            f"Now the condition selects, and {many(run.zeros(store), 'zero')} are stored. To "
            "multiply by the condition would be wrong: zero times a NaN at the clamped index is a "
            "NaN.",
            ("shared", "source"), block=run.number,
        )  # fmt: skip
    elif store is not None:
        yield Stop(
            store, "Select, do not multiply",
            "The condition selects the value or a zero; here it is the value everywhere. To "
            "multiply by the condition would be wrong: zero times a NaN is a NaN.",
            ("shared", "source"), block=run.number,
        )  # fmt: skip
    barriers = run.barriers()
    if barriers:
        yield Stop(
            barriers[0], "No warp has diverged",
            f"Up to the barrier {many(run.cut_across(barriers[0]), 'instruction')} ran with only a "
            "part of a warp. A branch costs time where the lanes of a warp diverge, and that "
            "happens only at the edge of C.",
            ("arrivals", "threads", "source"), block=run.number,
        )  # fmt: skip
        add = run.first("compute", after=barriers[0])
        if add is not None:
            yield Stop(
                add, "Zeros add nothing",
                "All threads multiply. Those past the edge add zeros to a sum that nobody will "
                "store."
                if run.has_edge else "All threads multiply, and each has an element of C.",
                ("sum", "threads", "shared"), block=run.number,
            )  # fmt: skip
    stores = run.each("store", "global", "c")
    if stores:
        yield Stop(
            stores[0], "Here warps must diverge",
            f"{many(len(run.at(stores[0])), 'thread')} of {run.threads} store C: "
            f"{percent(len(run.at(stores[0])), run.threads)}. This if can't be avoided."
            if run.has_edge else
            "All threads store. In a block at the edge this if can't be avoided.",
            ("c", "threads", "source"), block=run.number, shows_sectors=True,
        )  # fmt: skip
        yield Stop(
            stores[-1], "Was it worth it?",
            "Blocks inside C clamp and select for nothing, and blocks at the edge are few, so the "
            "speed hardly changes. Measure before you remove a branch. The next rung gives each "
            "thread several elements of C.",
            ("c", "traffic"), block=run.number,
        )  # fmt: skip
