"""The tours of rungs twelve and thirteen: copies that go on while the threads compute."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.lens.tours.registers import VECTOR, group, of_thread, share
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, ask, many
from tilewise.lens.tours.threads import ends
from tilewise.lens.tours.tiles import fewer


def arrived(run: Run, before: int) -> int:
    """Return the number of values that have arrived in shared memory before a step."""
    return sum(len(run.at(i)) for i in run.each("store", "shared", before=before))


def begun(run: Run, before: int) -> int:
    """Return the number of cp.async groups that the block has committed before a step."""
    return len(run.syncs("cp.async", "commit", before=before))


def begins(run: Run) -> Iterator[Stop]:
    """Yield the stop at which the first copies begin; none of their values has arrived yet."""
    loads = run.each("load", "global")
    commits = run.syncs("cp.async", "commit")
    if not loads or not commits:
        return
    if not run.is_asynchronous(loads[0]):
        yield Stop(
            loads[0], "Element by element",
            f"cp.async moves {VECTOR} bytes at once, and the rows are not aligned to that at this "
            "size. So each thread loads single values, waits for them and stores them. Choose n "
            f"and k as multiples of {VECTOR // run.element('a')} to see the copies.",
            ("a", "requests", "source"), shows_sectors=True,
            before=f"Warp 0 loads from A, {run.steps[loads[0]]['width']} bytes a lane.",
            ask=ask("How many sectors does this load of warp 0 touch?", run.sectors(loads[0]),
                    "sector", (len(run.at(loads[0], 0)), 1, 2 * run.sectors(loads[0]))),
        )  # fmt: skip
        return
    yield Stop(
        loads[0], "A copy begins",
        "cp.async copies from global to shared memory by itself, without going through registers. "
        f"Warp 0 copies {run.steps[loads[0]]['width']} bytes a lane, and touches "
        f"{many(run.sectors(loads[0]), 'sector')}.",
        ("a", "requests", "source"), shows_sectors=True,
    )  # fmt: skip
    asked = run.loaded("a", "b", before=commits[0])
    yield Stop(
        commits[0], "A group of copies",
        "A thread may rely on none of the values until it has waited for their group. It goes on "
        "at once, and that is what asynchronous copies are for.",
        ("shared", "stages", "source"),
        before=f"The block has begun to copy {many(asked, 'value')}, and closes the group "
        "with cp.async.commit_group.",
        ask=ask("How many values may a thread rely on in shared memory now?",
                arrived(run, commits[0]), "value", (asked, asked // 2, run.threads),
                {asked: "They are on their way. Only a wait ensures that they are there."}),
    )  # fmt: skip


def waits(run: Run, is_brief: bool = False) -> Iterator[Stop]:
    """Yield the stops at the first wait and its barrier; only the barrier's if ``is_brief``."""
    wait, barriers = run.syncs("cp.async", "wait"), run.barriers()
    if wait and not is_brief:
        allowed = run.steps[wait[0]]["sync"].get("allowed") or 0
        yield Stop(
            wait[0], "Wait for a group",
            "cp.async.wait_group waits for all groups" + (
                f" but the last{'' if allowed == 1 else f' {allowed}'}: copies whose values are "
                "not needed yet may go on."
                if allowed else ". What this thread copied is in shared memory now."
            ),
            ("stages", "shared", "source"),
        )  # fmt: skip
    if barriers:
        yield Stop(
            barriers[0], "And for the others",
            "A wait covers only a thread's own copies. The barrier ensures that everybody's have "
            "arrived."
            if run.loads_are_asynchronous else
            "Each thread knows only of its own stores. The barrier ensures that everybody's are "
            "done.",
            ("arrivals", "threads", "shared"),
        )  # fmt: skip


def _meanwhile(run: Run, barrier: int) -> int | None:
    """Return the first copy from global memory after the first barrier."""
    return run.first("load", "global", after=barrier)


def double_buffered(run: Run) -> Iterator[Stop]:
    yield from share(run)
    yield from begins(run)
    yield from waits(run)
    barriers = run.barriers()
    if not barriers:
        return
    adds = group(run, barriers[0])
    if adds:
        yield Stop(
            adds[-1], "Multiply from one buffer",
            f"Each thread does {many(len(adds), 'multiply-add')}, with "
            f"{many(of_thread(run, after=barriers[0], before=adds[-1] + 1), 'value')} of the first "
            "buffer.",
            ("sum", "threads", "shared"),
        )  # fmt: skip
    copy = _meanwhile(run, barriers[0])
    if copy is not None:
        yield Stop(
            copy, "Fill the other meanwhile",
            "Halfway through the phase the copies of the next tiles begin, into the other buffer. "
            "They have the rest of the phase to arrive.",
            ("a", "stages", "source"), shows_sectors=True,
        )  # fmt: skip
    yield Stop(
        barriers[-1], "What a barrier says",
        "One barrier says two things: these tiles are complete, and everybody has finished with "
        "the other buffer. So one barrier a phase is enough where a single buffer needs two.",
        ("source", "stages"),
        before=f"The kernel goes through {many(run.phases, 'phase')} of k, and this is the last.",
        ask=ask("At how many barriers does the block wait in all phases together?", len(barriers),
                "barrier", (2 * run.phases, 1, run.phases + 2),
                {2 * run.phases: "That is so with a single buffer: two barriers a phase."}),
    )  # fmt: skip
    if len(barriers) > 1:
        read = run.first("load", "shared", after=barriers[1])
        if read is not None:
            yield Stop(
                read, "The buffers change places",
                "The threads now read the buffer that was filled meanwhile. The buffer that they "
                "read before is filled next.",
                ("shared", "stages", "source"),
            )  # fmt: skip
        yield Stop(
            barriers[-1], "The last phase",
            "No tile is left to copy. Threads wait at this barrier once more, and then only "
            "multiply.",
            ("stages", "threads"),
        )  # fmt: skip
    yield from _conclusion(run, "In the next rung, tuned, a sweep has chosen all sizes.")


def _conclusion(run: Run, text: str) -> Iterator[Stop]:
    yield from ends(run, "C is stored", f"{fewer(run)} {text}")


def tuned(run: Run) -> Iterator[Stop]:
    yield Stop(
        0, "Sizes from a sweep",
        f"The same kernel, but its sizes were chosen by measuring: {many(run.threads, 'thread')} "
        f"compute a tile of {run.macro('BLOCK_M')} x {run.macro('BLOCK_N')} elements, "
        f"{run.macro('BLOCK_K')} deep along k.",
        ("c", "threads"),
    )  # fmt: skip
    yield from begins(run)
    barriers = run.barriers()
    if not barriers:
        return
    waiting = run.syncs("cp.async", "wait", before=barriers[0] + 1)
    if waiting:
        yield Stop(
            waiting[0], "Several phases ahead",
            f"The ring has {many(run.macro('STAGES'), 'stage')}. While one is used, the copies for "
            "the others may be on their way.",
            ("stages", "source"),
            before="Before the first multiply-add the block has begun the copies of several "
            "phases, in one group a phase.",
            ask=ask("How many groups has the block committed?", begun(run, waiting[0]), "group",
                    (1, run.macro("STAGES"), run.macro("STAGES") + 1),
                    {1: "That is so in double_buffered, which copies one phase ahead.",
                     run.macro("STAGES"): "One stage must be free: it is filled while the first "
                     "is used."}),
        )  # fmt: skip
    yield from waits(run)
    adds = group(run, barriers[0])
    reads = run.each("load", "shared", after=barriers[0], before=adds[-1] if adds else None)
    if reads:
        at = run.at(reads[0], 0)
        yield Stop(
            reads[0], "Lanes that share what they read",
            f"{many(len(at), 'lane')} of warp 0 read "
            f"{many(len(set(at.values())), 'different place')}, with "
            f"{many(run.steps[reads[0]]['conflicts'], 'bank conflict')}. The lanes' places in the "
            "warp's tile are chosen for that.",
            ("banks", "source"),
        )  # fmt: skip
    if adds:
        yield Stop(
            adds[-1], "There and back",
            f"A thread's {many(len(adds), 'multiply-add')} go through its elements there and back, "
            "so that successive ones share a factor. That factor then comes from the register "
            "file's cache, and the register file is read less often.",
            ("sum", "threads", "source"),
        )  # fmt: skip
    copy = _meanwhile(run, barriers[0])
    if copy is not None:
        yield Stop(
            copy, "Copies go on",
            "While this phase is computed, the copies of a later phase begin. Their addresses are "
            "incremented from phase to phase, and not computed anew.",
            ("a", "stages", "source"), shows_sectors=True,
        )  # fmt: skip
    yield from _conclusion(
        run,
        "What is left in the loop is mostly multiply-adds and the reads of their factors. The next "
        "rung multiplies on the tensor cores.",
    )
