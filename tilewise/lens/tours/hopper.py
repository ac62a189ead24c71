"""Rungs seventeen to nineteen: tensor cores that read shared memory, and who feeds it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tilewise.devices.occupancy import WARP
from tilewise.lens.tours.copies import VECTOR
from tilewise.lens.tours.fragments import products
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends

GROUP = 128  # threads of a warpgroup
SWIZZLE = 128  # bytes of a row, whose pieces are exchanged


def copies(run: Run, **more: Any) -> list[int]:
    """The steps in which this block begins bulk copies to its shared memory."""
    return run.each("copy", where=lambda i: _is_own(run, i), **more)


def _is_own(run: Run, i: int) -> bool:
    copy = run.steps[i].get("copy")
    return copy is not None and not copy["store"] and not copy["outside"]


def groups(run: Run) -> int:
    """Warpgroups of a block."""
    return run.threads // GROUP


def named(run: Run, i: int) -> str:
    return " and ".join(run.steps[i]["sync"]["names"])


def share(run: Run, text: str) -> Iterator[Stop]:
    yield Stop(
        0, "A block of warpgroups",
        f"{many(run.threads, 'thread')}: {many(groups(run), 'warpgroup')} of four warps. The block "
        f"computes {run.of_c()} elements of C. {text}",
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
    """The first bulk copies, unless ``is_brief``; where there is no tensor map, the elements'."""
    first = copies(run)
    if not first:
        load = run.first("load", "global", "a")
        if load is not None:
            yield Stop(
                load, "Element by element",
                f"A TMA needs rows that are {VECTOR}-byte aligned. At this size they are not, so "
                "that threads copy element by element: warp 0 touches "
                f"{many(run.sectors(load), 'sector')}. Choose n and k as multiples of "
                f"{VECTOR // run.element('a')} to see the TMA.",
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
            f"The thread tells {named(run, tells[-1])} how many bytes to expect. Its round ends "
            "when all of them are there: nobody counts copies, only bytes.",
            ("stages", "source"),
        )  # fmt: skip
    copy = run.steps[first[0]]["copy"]
    yield Stop(
        first[0], "One thread begins a copy",
        "The TMA, a unit of its own, computes the addresses, swizzles and writes zeros past the "
        "edge. The thread only says which box of the matrix.",
        ("a" if copy.get("array") != "b" else "b", "stages", "source"),
        before=f"A box of {copy['bytes']:,} bytes is to be copied to shared memory.",
        ask=ask("How many threads of the block are busy with it?", len(run.who(first[0])), "thread",
                (run.threads, GROUP, WARP, 2),
                {run.threads: "So it was with cp.async: each thread copied its own bytes."}),
    )  # fmt: skip
    before = products(run)
    ahead = {name for i in copies(run, before=before[0] if before else len(run.steps))
             for name in [run.steps[i]["copy"].get("mbarrier")] if name}  # fmt: skip
    if ahead:
        yield Stop(
            copies(run, before=before[0] if before else len(run.steps))[-1], "The ring fills up",
            f"Before anything is multiplied, copies for {many(len(ahead), 'stage')} are under way, "
            f"{run.macro('BLOCK_K')} of k each.",
            ("stages", "source"),
        )  # fmt: skip


def multiplies(run: Run, is_brief: bool = False) -> Iterator[Stop]:
    """The wait for the first stage, and the first product; unless ``is_brief``, its operands."""
    first = products(run)
    if not first:
        return
    waits = [i for i in run.syncs("mbarrier", "wait", before=first[0]) if len(run.who(i)) >= GROUP]
    if waits:
        yield Stop(
            waits[-1], "Wait for the stage",
            f"{many(len(run.who(waits[-1])), 'thread')} wait at {named(run, waits[-1])} until "
            + ("its bytes are there." if copies(run) else "all who fill its stage have arrived."),
            ("warps", "stages", "source"),
        )  # fmt: skip
    shape = run.shape(first[0])
    if shape is None:
        return
    m, n, k = shape
    yield Stop(
        first[0], "wgmma",
        f"{m} x {n} x {k}, with A and B read where they lie in shared memory. There are no "
        "fragments any more: what registers hold are sums.",
        ("pieces", "source"),
        before=f"A warpgroup executes one wgmma: a matrix of {m} x {k} times one of {k} x {n}.",
        ask=ask("How many multiply-adds does this one instruction do?", prod(shape), "multiply-add",
                (GROUP, m * n, prod(shape) // 4),
                {GROUP: "One a thread: so it was before the tensor cores.",
                 prod(shape) // 4: "That is one warp's share; four warps execute it together."}),
    )  # fmt: skip
    if run.steps[first[0]].get("reads") and not is_brief:
        yield Stop(
            first[0], "Where the operands lie",
            f"A descriptor says where a tile begins, and that its rows of {SWIZZLE} bytes are "
            "swizzled: they are laid out so that eight rows below one another lie in all banks.",
            ("pieces", "source"),
        )  # fmt: skip


def stores(run: Run, text: str) -> Iterator[Stop]:
    store = run.first("store", "global", "c")
    if store is not None:
        yield Stop(
            store, "C by way of shared memory",
            f"A lane stores {run.steps[store]['width']} bytes, and a warp touches "
            f"{many(run.sectors(store, min(run.who(store)) // WARP), 'sector')}. {text}",
            ("c", "requests", "source"), shows_sectors=True,
        )  # fmt: skip


def _conclusion(run: Run, text: str) -> Iterator[Stop]:
    adds = sum(prod(run.shape(i) or (0,)) * (len(run.who(i)) // GROUP) for i in products(run))
    yield from ends(
        run, "C is stored",
        f"{many(run.loaded('a', 'b'), 'value')} came from global memory by this block's own doing, "
        f"for {adds:,} multiply-adds. {text}",
    )  # fmt: skip


def _again(run: Run) -> int | None:
    again = [x["fills"][1]["begin"] for x in run.block.get("stages", ()) if len(x["fills"]) > 1]
    return min(again, default=None)


def warpgroup(run: Run) -> Iterator[Stop]:
    yield from share(run, "All of them both load and multiply.")
    yield from barriers_in_memory(
        run, "One stands beside each stage of the ring, and counts what arrives there."
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
            "wgmma goes on by itself. Only behind wgmma.wait_group may the sums be read, and the "
            "stage overwritten.",
            ("warps", "stages", "source"),
        )  # fmt: skip
    barriers = run.barriers(after=first[0])
    if barriers:
        yield Stop(
            barriers[0], "What is left of the old order",
            "The thread that asks for tiles multiplies, too, and may overwrite a stage only when "
            "all warps have read it. So the whole block meets in each phase, and the tensor cores "
            "stand still meanwhile.",
            ("threads", "warps", "source"),
            before="The kernel goes through "
            f"{many(-(-run.size('k') // run.macro('BLOCK_K')), 'phase')} of k.",
            ask=ask("How many times does the whole block meet at a barrier in them?",
                    len(barriers), "time", (0, 2 * len(barriers), 1),
                    {0: "Not yet: the next rung does almost without."}),
        )  # fmt: skip
    again = _again(run)
    if again is not None:
        yield Stop(
            again, "The ring turns",
            "The stage that was read is filled again. There is one thread for it, and it was busy "
            "multiplying until now.",
            ("stages", "source"),
        )  # fmt: skip
    yield from _conclusion(run, "The next rung, specialized, makes loading a role of its own.")


def specialized(run: Run) -> Iterator[Stop]:
    yield from share(run, "One warpgroup only loads, and the others only multiply.")
    yield from barriers_in_memory(
        run,
        "Each stage has two: full says that its tiles are there, empty that nobody reads them "
        "any more.",
    )
    yield from begins(run, is_brief=True)
    yield from _stuck(run)
    yield from multiplies(run, is_brief=True)
    yield from _released(
        run, "Now the loader may fill it again, and did not have to ask anybody else."
    )
    first = products(run)
    if not first:
        return
    barriers = run.barriers()
    last, phases = first[-1], -(-run.size("k") // run.macro("BLOCK_K"))
    yield Stop(
        last, "No barrier of the whole block",
        "Warpgroups wait for stages, and no more for each other.",
        ("warps", "source"),
        before=f"{many(len(first), 'product instruction')} of each consumer are done. In warpgroup "
        "the block met at a barrier in every phase.",
        ask=ask("At how many barriers has the whole block met here?", len(barriers), "barrier",
                (phases, 0, 2, 2 * phases), {phases: "One a phase: so it was in warpgroup."}),
    )  # fmt: skip
    yield from stores(run, "The loader has long ended.")
    yield from _conclusion(run, "The next rung, persistent, has the next tile loaded meanwhile.")


def _stuck(run: Run) -> Iterator[Stop]:
    """Where the loader must wait for an empty stage."""
    waits = [i for i in run.syncs("mbarrier", "wait") if not run.steps[i]["sync"].get("passes")
             and named(run, i).startswith("empty")]  # fmt: skip
    if waits:
        filled = [
            i for i in run.syncs("mbarrier", "arrive", before=waits[0])
            if named(run, i).startswith("full")
        ]  # fmt: skip
        yield Stop(
            waits[0], "As far as the ring reaches",
            f"It waits at {named(run, waits[0])}: the ring is full, and nobody has read a stage "
            "yet. From here on the consumers set its pace.",
            ("warps", "stages", "source"),
            before="The loader runs ahead: a stage after another, with no regard to who "
            "multiplies.",
            ask=ask("After how many stages must it wait?", len(filled), "stage",
                    (1, len(filled) - 1, 2 * len(filled)),
                    {1: "It would if there were one buffer."}),
        )  # fmt: skip


def _released(run: Run, text: str) -> Iterator[Stop]:
    """Where the consumers give a stage back."""
    back = [i for i in run.syncs("mbarrier", "arrive") if named(run, i).startswith("empty")]
    if back:
        yield Stop(
            back[0], "A stage is given back",
            f"{many(len(run.who(back[0])), 'thread')} arrive at {named(run, back[0])}: its tiles "
            f"have been read. {text}",
            ("stages", "warps", "source"),
        )  # fmt: skip
    again = _again(run)
    if again is not None:
        yield Stop(
            again, "And filled again",
            "The loader asks for the tiles of a later phase, while the consumers multiply from "
            "another stage.",
            ("stages", "warps", "source"),
        )  # fmt: skip


def persistent(run: Run) -> Iterator[Stop]:
    yield from share(
        run, f"Blocks stay and take tile after tile; here the grid has {many(run.blocks, 'block')}."
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
            mine[-1], "Load B once for both",
            f"It loads {own} and the other block {len(mine) - own}; the TMA writes each to the "
            "shared memory of both, and counts the bytes at both mbarriers.",
            ("b", "stages", "source"),
            before=f"A stage needs {many(len(mine), 'box')} of B.",
            ask=ask("How many of them does this block load itself?", own, "box",
                    (len(mine), 0, 1),
                    {len(mine): "So it was in specialized: every block loaded all of its own."}),
        )  # fmt: skip
    yield from _stuck(run)
    yield from multiplies(run, is_brief=True)
    yield from _released(
        run,
        "They arrive at both blocks' barriers, for each block loads into the other's stages, too.",
    )
    yield from stores(
        run, "Where tiles are left, the loader fills the ring for the next one meanwhile."
    )
    yield from _conclusion(
        run, "From here to tilewise.matmul there is no new idea of this kind, but every shape."
    )
