"""The tours of rungs seventeen to nineteen: tensor cores with operands in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tilewise.devices.occupancy import WARP
from tilewise.lens.tours.fragments import products, second_fill
from tilewise.lens.tours.registers import VECTOR
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends

GROUP = 128  # threads of a warpgroup
SWIZZLE = 128  # bytes of a row, in which the swizzle permutes pieces of 16 bytes


def copies(run: Run, **more: Any) -> list[int]:
    """Return the steps in which this block begins bulk copies to its shared memory."""
    return run.each("copy", where=lambda i: _is_own(run, i), **more)


def _is_own(run: Run, i: int) -> bool:
    copy = run.steps[i].get("copy")
    return copy is not None and not copy["store"] and not copy["outside"]


def groups(run: Run) -> int:
    """Return the number of warpgroups of a block."""
    return run.threads // GROUP


def named(run: Run, i: int) -> str:
    """Return the names of the mbarriers that a step arrives at or waits for."""
    return " and ".join(run.steps[i]["sync"]["names"])


def share(run: Run, text: str) -> Iterator[Stop]:
    yield Stop(
        0, "A block of warpgroups",
        f"The block has {many(run.threads, 'thread')}, which are {many(groups(run), 'warpgroup')} "
        f"of four warps. It computes {run.of_c()} elements of C. {text}",
        ("c", "threads"),
    )  # fmt: skip


def barriers_in_memory(run: Run, text: str) -> Iterator[Stop]:
    init = run.syncs("mbarrier", "init")
    if init:
        yield Stop(
            init[-1], "Barriers in shared memory",
            f"{many(len(init), 'mbarrier')} are initialised. {text}",
            ("stages", "source"),
        )  # fmt: skip


def begins(run: Run, is_brief: bool = False) -> Iterator[Stop]:
    """Yield the first bulk copies, unless ``is_brief``; without a tensor map, the first loads."""
    first = copies(run)
    if not first:
        load = run.first("load", "global", "a")
        if load is not None:
            yield Stop(
                load, "Element by element",
                f"The TMA needs rows that are {VECTOR}-byte aligned. At this size they are not, so "
                "threads copy element by element. The first warp of this load touches "
                f"{many(run.sectors(load, min(run.who(load)) // WARP), 'sector')}. Choose n and k "
                f"as multiples of {VECTOR // run.element('a')} to see the TMA.",
                ("a", "requests", "source"), shows_sectors=True,
                before="The block loads its tiles.",
                ask=ask("How many threads take part in this load?", len(run.at(load)), "thread",
                        (1, run.threads, GROUP)),
            )  # fmt: skip
        return
    if is_brief:
        return
    tells = run.syncs("mbarrier", "arrive", before=first[0])
    if tells:
        yield Stop(
            tells[-1], "So many bytes will come",
            f"The thread tells {named(run, tells[-1])} how many bytes to expect. Those who wait at "
            "this mbarrier go on when all of the bytes have arrived: it counts bytes, not copies.",
            ("stages", "source"),
        )  # fmt: skip
    copy = run.steps[first[0]]["copy"]
    yield Stop(
        first[0], "A box is copied",
        "One thread begins the copy, and only says which box of the matrix it is. The TMA, a unit "
        "of its own, computes the addresses, swizzles, and fills with zeros past the edge.",
        ("a" if copy.get("array") != "b" else "b", "stages", "source"),
        before=f"A box of {copy['bytes']:,} bytes is to be copied to shared memory.",
        ask=ask("How many threads of the block are busy with it?", len(run.who(first[0])), "thread",
                (run.threads, GROUP, WARP, 2),
                {run.threads: "That is so with cp.async: each thread copies some of the bytes."}),
    )  # fmt: skip
    before = products(run)
    ahead = {name for i in copies(run, before=before[0] if before else len(run.steps))
             for name in [run.steps[i]["copy"].get("mbarrier")] if name}  # fmt: skip
    if ahead:
        yield Stop(
            copies(run, before=before[0] if before else len(run.steps))[-1], "The ring fills up",
            f"Before anything is multiplied, copies for {many(len(ahead), 'stage')} have begun. "
            f"A stage holds tiles that are {run.macro('BLOCK_K')} deep along k.",
            ("stages", "source"),
        )  # fmt: skip


def multiplies(run: Run, is_brief: bool = False) -> Iterator[Stop]:
    """Yield the wait for a stage, the first product, and unless ``is_brief`` its operands."""
    first = products(run)
    if not first:
        return
    waits = [i for i in run.syncs("mbarrier", "wait", before=first[0]) if len(run.who(i)) >= GROUP]
    if waits:
        yield Stop(
            waits[-1], "Wait for the stage",
            f"{many(len(run.who(waits[-1])), 'thread')} wait at {named(run, waits[-1])}, and go on "
            + ("once all of its bytes are there." if copies(run) else
               "once all threads that fill its stage have arrived."),
            ("warps", "stages", "source"),
        )  # fmt: skip
    shape = run.shape(first[0])
    if shape is None:
        return
    m, n, k = shape
    yield Stop(
        first[0], "wgmma",
        f"The tensor cores read A and B where they lie in shared memory. Registers hold only the "
        f"sums, {m} x {n} of them in the warpgroup, and no fragments of A and B.",
        ("pieces", "source"),
        before=f"A warpgroup executes one wgmma: a matrix of {m} x {k} times one of {k} x {n}.",
        ask=ask("How many multiply-adds does this one instruction do?", prod(shape), "multiply-add",
                (GROUP, m * n, prod(shape) // 4),
                {GROUP: "That is one a thread, as before the tensor cores.",
                 prod(shape) // 4: "That is one warp's share; four warps execute it together."}),
    )  # fmt: skip
    if run.steps[first[0]].get("reads") and not is_brief:
        yield Stop(
            first[0], "Where the operands lie",
            f"A descriptor says where a tile begins, and that its rows of {SWIZZLE} bytes are "
            "swizzled: the same piece of eight successive rows then lies in different banks.",
            ("pieces", "source"),
        )  # fmt: skip


def stores(run: Run, text: str) -> Iterator[Stop]:
    store = run.first("store", "global", "c")
    if store is not None:
        yield Stop(
            store, "C by way of shared memory",
            "The lanes have exchanged their sums through shared memory. Now a lane stores "
            f"{run.steps[store]['width']} bytes at once, and a warp touches "
            f"{many(run.sectors(store, min(run.who(store)) // WARP), 'sector')}. {text}",
            ("c", "requests", "source"), shows_sectors=True,
        )  # fmt: skip


def _conclusion(run: Run, text: str) -> Iterator[Stop]:
    adds = sum(prod(run.shape(i) or (0,)) * (len(run.who(i)) // GROUP) for i in products(run))
    yield from ends(
        run, "C is stored",
        f"This block loaded {many(run.loaded('a', 'b'), 'value')} from global memory for {adds:,} "
        f"multiply-adds. {text}",
    )  # fmt: skip


def warpgroup(run: Run) -> Iterator[Stop]:
    yield from share(
        run,
        "All warpgroups multiply, and one of their threads also begins the copies."
        if copies(run)
        else "All warpgroups both load and multiply.",
    )
    yield from barriers_in_memory(
        run, "Each stage of the ring has one, which counts what arrives there."
    )
    yield from begins(run)
    yield from multiplies(run)
    first = products(run)
    if not first:
        return
    done = run.syncs("wgmma", "wait")
    if done:
        yield Stop(
            done[0], "Wait for the tensor cores",
            "wgmma is asynchronous. Only after wgmma.wait_group may the threads read the sums and "
            "overwrite the stage.",
            ("warps", "stages", "source"),
        )  # fmt: skip
    barriers = run.barriers(after=first[0])
    if barriers:
        yield Stop(
            barriers[0], "What is left of the old order",
            "The thread that begins the copies multiplies, too, and may overwrite a stage only "
            "when all warps have read it. So the whole block waits at a barrier in each phase, and "
            "the tensor cores are idle meanwhile.",
            ("warps", "source"),
            before="The kernel goes through "
            f"{many(-(-run.size('k') // run.macro('BLOCK_K')), 'phase')} of k.",
            ask=ask("How many times does the whole block wait at a barrier in these phases?",
                    len(barriers), "time", (0, 2 * len(barriers), 1),
                    {0: "The next rung comes close to that."}),
        )  # fmt: skip
    again = second_fill(run)
    if again is not None:
        yield Stop(
            again, "The ring turns",
            "The stage that was read is filled again. "
            + ("One thread begins the copies, and it was busy multiplying until now."
               if copies(run) else "The threads that fill it were busy multiplying until now."),
            ("stages", "source"),
        )  # fmt: skip
    yield from _conclusion(run, "The next rung, specialized, makes loading a role of its own.")


def specialized(run: Run) -> Iterator[Stop]:
    yield from share(
        run,
        "One warpgroup, the producer, only loads. The others, the consumers, only multiply.",
    )
    yield from barriers_in_memory(
        run,
        "Each stage has two: full says that its tiles are there, and empty says that nobody reads "
        "them any more.",
    )
    yield from begins(run, is_brief=True)
    yield from _stuck(run)
    yield from multiplies(run, is_brief=True)
    yield from _released(
        run, "The producer waits for nothing else before it fills the stage again."
    )
    first = products(run)
    if not first:
        return
    barriers = run.barriers()
    last, phases = first[-1], -(-run.size("k") // run.macro("BLOCK_K"))
    yield Stop(
        last, "Who waits for whom",
        "Warpgroups wait for stages, and not for each other."
        + (" The one barrier is at the beginning: nobody may use an mbarrier before it is "
           "initialised." if len(barriers) == 1 and barriers[0] < first[0] else ""),
        ("warps", "source"),
        before=f"Each consumer has executed {many(len(first), 'wgmma')}. In the rung before, "
        "warpgroup, the block waited at a barrier in every phase.",
        ask=ask("At how many barriers has the whole block waited here?", len(barriers), "barrier",
                (phases, 0, 2, 2 * phases), {phases: "That is one a phase, as in warpgroup."}),
    )  # fmt: skip
    yield from stores(run, "The producer has nothing to do meanwhile.")
    yield from _conclusion(
        run, "In the next rung, persistent, the producer loads the next tile meanwhile."
    )


def _stuck(run: Run) -> Iterator[Stop]:
    """Yield the stop at which the producer must wait for an empty stage."""
    waits = [i for i in run.syncs("mbarrier", "wait") if not run.steps[i]["sync"].get("passes")
             and named(run, i).startswith("empty")]  # fmt: skip
    if waits:
        filled = [
            i for i in run.syncs("mbarrier", "arrive", before=waits[0])
            if named(run, i).startswith("full")
        ]  # fmt: skip
        yield Stop(
            waits[0], "As far as the ring reaches",
            f"The producer waits at {named(run, waits[0])}: the ring is full, and nobody has read "
            "a stage yet. From here on the consumers set its pace.",
            ("warps", "stages", "source"),
            before="The producer runs ahead: it fills one stage after another, and does not wait "
            "for the consumers.",
            ask=ask("After how many stages must it wait?", len(filled), "stage",
                    (1, len(filled) - 1, 2 * len(filled)),
                    {1: "That would be so with a single buffer."}),
        )  # fmt: skip


def _released(run: Run, text: str) -> Iterator[Stop]:
    """Yield the stop at which the consumers release a stage."""
    back = [i for i in run.syncs("mbarrier", "arrive") if named(run, i).startswith("empty")]
    if back:
        yield Stop(
            back[0], "A stage is given back",
            f"{many(len(run.who(back[0])), 'thread')} arrive at {named(run, back[0])}: the "
            f"stage's tiles have been read. {text}",
            ("stages", "warps", "source"),
        )  # fmt: skip
    again = second_fill(run)
    if again is not None:
        yield Stop(
            again, "And filled again",
            "The producer loads the tiles of a later phase, while the consumers multiply those of "
            "another stage.",
            ("stages", "warps", "source"),
        )  # fmt: skip


def persistent(run: Run) -> Iterator[Stop]:
    yield from share(
        run, f"Blocks take tile after tile of C; here the grid has {many(run.blocks, 'block')}."
    )
    meets = run.syncs("cluster", "wait")
    if meets:
        yield Stop(
            meets[0], "Two blocks, one cluster",
            "A cluster's blocks run at the same time and reach each other's shared memory. These "
            "two lie one below the other in C, and need the same columns of B.",
            ("c", "b", "source"),
        )  # fmt: skip
    yield from begins(run, is_brief=True)
    first = products(run)
    if not first:
        return
    of_b = [
        i
        for i in run.each("copy", before=first[0])
        if (run.steps[i].get("copy") or {}).get("array") == "b"
    ]
    if of_b:
        stage = run.steps[of_b[0]]["copy"].get("mbarrier")
        mine = [i for i in of_b if run.steps[i]["copy"].get("mbarrier") == stage]
        own = sum(not run.steps[i]["copy"]["outside"] for i in mine)
        yield Stop(
            mine[-1], "Who loads B?",
            f"This block loads {own} of them and the other block {len(mine) - own}. The TMA writes "
            "each box to the shared memory of both blocks, and its bytes count at the mbarriers of "
            "both.",
            ("b", "stages", "source"),
            before=f"A stage needs {many(len(mine), 'box')} of B.",
            ask=ask("How many of them does this block load itself?", own, "box",
                    (len(mine), 0, 1),
                    {len(mine): "That is so in specialized: every block loads all boxes itself."}),
        )  # fmt: skip
    yield from _stuck(run)
    yield from multiplies(run, is_brief=True)
    yield from _released(
        run,
        "They arrive at the barriers of both blocks, because each block also loads into the stages "
        "of the other.",
    )
    yield from stores(
        run, "If tiles of C are left, the producer fills the ring for the next one meanwhile."
    )
    yield from _conclusion(
        run, "tilewise.matmul is built on these ideas, and takes matrices of every shape."
    )
