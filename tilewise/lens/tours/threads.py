"""The tours of rungs one to four: one thread, one block, many blocks, and neighbouring threads."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.limits import MAX_THREADS
from tilewise.devices.occupancy import WARP
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Ask, Stop, ask, many


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g} %"


def ends(run: Run, title: str, text: str, *look: str) -> Iterator[Stop]:
    """Yield the last stop, at which the last element of C is stored."""
    stores = run.each("store", "global", "c")
    if stores:
        yield Stop(stores[-1], title, text, look or ("c", "traffic"))


def single_thread(run: Run) -> Iterator[Stop]:
    k, each = run.size("k"), run.element("a")
    loads = run.each("load", "global")
    a, stores = run.first("load", "global", "a"), run.each("store", "global", "c")
    yield Stop(
        0, "One thread",
        f"The grid has {many(run.blocks, 'block')}, and the block {many(run.threads, 'thread')}. "
        f"That thread computes every element of C, row by row, as a loop on a CPU would.",
        ("threads", "c"),
    )  # fmt: skip
    if a is None or not stores:
        return
    sectors = run.sectors(a)
    yield Stop(
        a, "The first load of A",
        f"Memory delivers whole sectors of {SECTOR} bytes. The thread uses "
        f"{percent(each, sectors * SECTOR)} of what is moved for it.",
        ("a", "requests", "source"), shows_sectors=True,
        before="To multiply, the thread must fetch its factors first. It asks for one value of A: "
        f"{each} bytes.",
        ask=ask("How many bytes does memory deliver?", sectors * SECTOR, "byte",
                (each, SECTOR * 2, SECTOR * 4),
                {each: "A load may ask for so few bytes, but memory delivers nothing smaller than "
                 "a sector."}),
    )  # fmt: skip
    line = run.steps[a]["line"]
    adds = [i for i in run.each("compute", after=loads[0]) if run.steps[i]["line"] == line]
    if adds:
        yield Stop(
            adds[0], "One multiply-add",
            f"This is sum += a · b. For two operations the thread has loaded {2 * each} bytes, and "
            "the rest of the GPU is idle meanwhile.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    first = [i for i in adds if i < stores[0]]
    if first:
        yield Stop(
            first[-1], "Along k",
            f"An element of C is the product of a row of A and a column of B, which are k = {k} "
            "long.",
            ("a", "b", "threads"),
            before="The loop goes along a row of A and down a column of B.",
            ask=ask("How many multiply-adds does one element of C take?", len(first),
                    "multiply-add",
                    (k * run.size("n"), k * run.size("m") * run.size("n"), 2 * len(first)),
                    {2 * len(first): "That is how many values are loaded: two for each "
                     "multiply-add."}),
        )  # fmt: skip
    yield Stop(
        stores[0], "The first element",
        "The thread stores the first element of C. It has loaded "
        f"{many(run.loaded('a', 'b', before=stores[0]), 'value')} for "
        f"{many(len(first), 'multiply-add')}.",
        ("c", "traffic"),
    )  # fmt: skip
    if len(stores) > 1:
        before, again = (
            {x for i in run.each("load", "global", "a", after=after, before=end)
             for x in run.elements(i)}
            for after, end in ((-1, stores[0]), (stores[0], stores[1]))
        )  # fmt: skip
        next_load = run.first("load", "global", "a", after=stores[0])
        if next_load is not None:
            same = len(before & again)
            yield Stop(
                next_load, "The next element",
                "The thread kept none of them: it loads a value anew for each element of C that "
                "needs it." if same else
                "This element is in another row of C, so it needs another row of A.",
                ("a", "c", "source"),
                before="The thread goes on with the next element of C. It needs "
                f"{many(len(again), 'value')} of A.",
                ask=ask("How many of them has it loaded before?", same, "value",
                        (len(again), 0, len(again) // 2)),
            )  # fmt: skip
    yield Stop(
        stores[-1], "A warp with one lane",
        f"Threads run in warps of {WARP}, whose lanes execute one instruction together. Here "
        f"{many(run.threads, 'lane')} of {WARP} had work: {percent(run.threads, WARP)}.",
        ("threads", "source"),
    )  # fmt: skip
    loaded, distinct = run.loaded("a", "b"), len(loaded_once(run))
    yield from ends(
        run, "What it cost",
        f"The thread made {many(loaded, 'load')} of {many(distinct, 'different value')}, one after "
        "the other. The next rung, single_block, gives each element of C a thread of its own.",
    )  # fmt: skip


def loaded_once(run: Run) -> set[tuple[str, int]]:
    """Return the distinct elements of A and B that threads load."""
    return {(name, x) for name in "ab" for i in run.each("load", "global", name)
            for x in run.elements(i)}  # fmt: skip


def single_block(run: Run) -> Iterator[Stop]:
    a, b = run.first("load", "global", "a"), run.first("load", "global", "b")
    store = run.first("store", "global", "c")
    yield Stop(
        0, "A thread for each element",
        f"One block has {many(run.threads, 'thread')}, one for each element of C. threadIdx.x is "
        "the row and threadIdx.y the column; all of them run the same code.",
        ("threads", "c", "source"),
    )  # fmt: skip
    if a is None or b is None or store is None:
        return
    yield Stop(
        min(a, b), "A warp at once",
        f"Threads run in warps of at most {WARP}: {many(run.warps, 'warp')} here. A warp's lanes "
        "execute one load together, and that is one request to memory.",
        ("threads", "source"),
    )  # fmt: skip
    of_b = len(run.elements(b, 0))
    yield Stop(
        b, "What B is asked for",
        f"Lanes that want the same address share it. The warp stands in {many(of_b, 'column')} of "
        "C, and lanes of one column want the same value of B.",
        ("b", "threads"), shows_sectors=True,
        before=f"Warp 0 has {many(run.lanes, 'lane')}. Each loads a value of B, from row p and the "
        "column that the lane computes.",
        ask=ask("How many different values of B does the warp ask for?", of_b, "value",
                (run.lanes, 1, len(run.elements(a, 0))),
                {run.lanes: "That would be so if each lane stood in a column of its own.",
                 1: "That would be so if all lanes stood in one column."}),
    )  # fmt: skip
    of_a, sectors = len(run.elements(a, 0)), run.sectors(a)
    yield Stop(
        a, "What A is asked for",
        f"The warp stands in {many(of_a, 'row')} of C. Their values of A lie one below the other, "
        f"in {many(sectors, 'sector')} of {SECTOR} bytes.",
        ("a", "threads"), shows_sectors=True,
        before=f"The same lanes want {many(of_a, 'value')} of A, each in a row of its own.",
        ask=ask("How many sectors does warp 0's load of A touch?", sectors, "sector",
                (1, of_b, run.lanes, 2 * sectors),
                {1: "The values are neighbours in a column, but memory is laid out row by row."}),
    )  # fmt: skip
    add = run.first("compute", after=max(a, b))
    if add is not None:
        yield Stop(
            add, "All sums at once",
            f"All threads execute the same multiply-add: {many(run.threads, 'sum')}, one a thread. "
            "A GPU is fast because its threads are many, not because one of them is fast.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    yield Stop(
        store, "All of C at once",
        f"Each thread stores its element: {many(run.steps[store]['requests'], 'request')}, one a "
        f"warp, and {many(run.steps[store]['sectors'], 'sector')}.",
        ("c", "threads"), shows_sectors=True,
    )  # fmt: skip
    edge = isqrt(MAX_THREADS)
    yield Stop(
        store, "The ceiling",
        f"{edge} x {edge} is {MAX_THREADS:,}. And a block runs on one multiprocessor, so that all "
        "the others of the GPU are idle.",
        ("c", "source"),
        before=f"C is {run.size('m')} x {run.size('n')} here. A block has at most {MAX_THREADS:,} "
        "threads.",
        ask=Ask("How large is the largest square C that this kernel can compute?",
                tuple(f"{size} x {size}" for size in (edge // 2, edge, MAX_THREADS)), 1,
                ("That C takes only a quarter of the threads that a block may have.", "",
                 "A block has that many threads, but each element needs one, and not each row.")),
    )  # fmt: skip
    yield from ends(
        run, "What it cost",
        f"The block made {many(run.loaded('a', 'b'), 'load')} of "
        f"{many(len(loaded_once(run)), 'different value')}. The next rung, naive, spreads C over "
        "many blocks, so that C may have any size.",
    )  # fmt: skip


def naive(run: Run) -> Iterator[Stop]:
    yield from _grid(
        run,
        "row = blockIdx.x · TILE + threadIdx.x, so x counts rows, and a warp's threads stand one "
        "below the other, in a column of C.",
    )
    yield from _loads(run, is_by_rows=True)
    yield from ends(
        run, "What it cost",
        f"This block's loads touch {many(run.total('sectors', 'load', 'global'), 'sector')} in "
        f"{many(run.total('requests', 'load', 'global'), 'request')}. The next rung, coalesced, "
        "swaps two indices and nothing else.",
    )  # fmt: skip


def coalesced(run: Run) -> Iterator[Stop]:
    yield from _grid(
        run,
        "col = blockIdx.x · TILE + threadIdx.x, so x counts columns now, and a warp's threads "
        "stand side by side, in a row of C. That is all that differs from naive.",
    )
    yield from _loads(run, is_by_rows=False)
    a = run.each("load", "global", "a")
    if a:
        element = min(run.elements(a[0]))
        times = sum(list(run.at(i).values()).count(element) for i in a)
        yield Stop(
            a[-1], "Still loaded too often",
            "Coalescing makes each request cheap, but does not make the requests fewer: every "
            "thread of a row of C loads the whole row of A for itself.",
            ("a", "traffic"), mark={"array": "a", "at": element},
            before="Take one value of A: the first that this block loads. All threads of its row "
            "of C need it.",
            ask=ask("How many threads of this block load it?", times, "thread",
                    (1, run.threads, run.lanes, run.size("k")),
                    {1: "That would be so if the threads shared what they load, as in the next "
                     "rung."}),
        )  # fmt: skip
    yield from ends(
        run, "What it cost",
        f"This block's loads touch {many(run.total('sectors', 'load', 'global'), 'sector')} in "
        f"{many(run.total('requests', 'load', 'global'), 'request')}. Its threads load "
        f"{many(run.loaded('a', 'b'), 'value')}, of which "
        f"{len(loaded_once(run)):,} are different. The next rung, tiled, brings values to shared "
        "memory, where many threads use each of them.",
    )  # fmt: skip


def _grid(run: Run, text: str) -> Iterator[Stop]:
    """Yield the stop at the block in the grid, with its warps."""
    yield Stop(
        0, "A block of many",
        f"C is cut into {many(run.blocks, 'block')}, so that C may have any size and all "
        f"multiprocessors can share the work. This block computes {run.of_c()} elements, one a "
        "thread.",
        ("c", "threads"),
    )  # fmt: skip
    yield Stop(run.at_line("threadIdx.x"), "Who are neighbours?", text, ("threads", "source"))


def _loads(run: Run, is_by_rows: bool) -> Iterator[Stop]:
    """Yield the stops at a warp's load of each matrix and its store, for naive and coalesced."""
    a, b = run.first("load", "global", "a"), run.first("load", "global", "b")
    store = run.first("store", "global", "c")
    if a is None or b is None or store is None:
        return
    where = "column" if is_by_rows else "row"
    broadcast, spread = ("b", "a") if is_by_rows else ("a", "b")
    first, second = (b, a) if is_by_rows else (a, b)
    lanes, size = run.lanes, run.element("a")
    one = run.sectors(first)
    yield Stop(
        first, f"A warp loads {broadcast.upper()}",
        f"All its lanes in one {where} of C want the same value of {broadcast.upper()}, and one "
        "access serves them all: a broadcast.",
        (broadcast, "requests", "source"), shows_sectors=True,
        before=f"Warp 0 loads from {broadcast.upper()}. Its lanes stand in one {where} of C.",
        ask=ask(f"How many sectors does warp 0's load of {broadcast.upper()} touch?", one, "sector",
                (lanes, -(-lanes * size // SECTOR), 2),
                {lanes: "That would be so if each lane's value lay in a sector of its own."}),
    )  # fmt: skip
    touched, used = run.sectors(second), run.bytes(second, 0)
    neighbours = (
        "They lie one below the other, a whole row apart, so each lies in a sector of its own."
        if is_by_rows and touched == len(run.elements(second, 0)) else
        "They lie one below the other, a row apart; rows are so short here that some share a "
        "sector."
        if is_by_rows else
        f"They lie side by side, {SECTOR // size} to a sector: that is what coalesced means."
    )  # fmt: skip
    yield Stop(
        second, f"A warp loads {spread.upper()}",
        f"{neighbours} The load moves {touched * SECTOR:,} bytes.",
        (spread, "requests", "source"), shows_sectors=True,
        before=f"Warp 0 loads from {spread.upper()}: its {many(lanes, 'lane')} want "
        f"{many(len(run.elements(second, 0)), 'different value')} of {size} bytes.",
        ask=ask(f"How many sectors does warp 0's load of {spread.upper()} touch?", touched,
                "sector", (-(-lanes * size // SECTOR), lanes, 1, lanes // 2),
                {-(-lanes * size // SECTOR): "That would be enough if the values lay side by side.",
                 lanes: "That would be so if each value lay in a sector of its own."}),
    )  # fmt: skip
    yield Stop(
        second, "What was asked for",
        f"The warp asked for {used:,} bytes, and {touched * SECTOR:,} were moved: "
        f"{percent(used, touched * SECTOR)} "
        + ("of the bandwidth does useful work." if used < touched * SECTOR else
           "of it is used. Nothing is wasted."),
        (spread, "traffic"), shows_sectors=True,
    )  # fmt: skip
    add = run.first("compute", after=max(a, b))
    if add is not None:
        yield Stop(
            add, "A multiply-add each",
            "Every thread adds one product to its sum. The arithmetic is the same in naive and in "
            "coalesced: the two differ only in which thread computes which element.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    again = run.first("load", "global", spread, after=second)
    if again is not None:
        touched_again = run.sectors_of(again)
        same = len(run.sectors_of(second) & touched_again)
        yield Stop(
            again, "The next step along k",
            f"One step further along k the warp loads again: {many(len(touched_again), 'sector')}, "
            f"of which it has touched {same if same else 'none'} before. "
            + ("A cache may have kept them, but each request asks for them anew."
               if same else "Each step along k needs sectors of its own."),
            (spread, "requests", "source"), shows_sectors=True,
        )  # fmt: skip
    yield Stop(
        store, "C is stored",
        f"The warp's stores follow the same rule: {many(run.sectors(store), 'sector')} for "
        f"{run.bytes(store, 0):,} bytes of C.",
        ("c", "requests", "source"), shows_sectors=True,
    )  # fmt: skip
