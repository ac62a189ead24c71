"""Rings of stages that a producer fills and consumers empty, by mbarriers, with one mistake each.

The producer waits until a stage is empty, lets its mbarrier expect a bulk copy's bytes, and copies;
or a warp of producers stores the values themselves. The consumers wait until it is full, read it,
and release it.
"""

from __future__ import annotations

import re

from faults.cases import MARK, Case

RING = r"""
    __shared__ alignas(128) int s[STAGES][64];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    if (t == 0) {
        for (int i = 0; i < STAGES; ++i) {
            MB_INIT(full + i, FULL_COUNT);
            MB_INIT(empty + i, EMPTY_COUNT);
        }
    }
    __syncthreads();
    int stage = 0, sum = 0;
    unsigned parity = 0;
    if (PRODUCES) {
#pragma unroll 1
        for (int p = 0; p < FILLS; ++p) {
            WAIT_EMPTY
            EXPECT
            FILL
            NEXT_EMPTY
        }
    } else if (t >= 32) {
#pragma unroll 1
        for (int p = 0; p < READS; ++p) {
            WAIT_FULL
            READ
            PROXY_FENCE();
            RELEASE_STAGE
            NEXT_FULL
        }
        out[t] = sum;
    }
"""
NEVER, EACH = "if (++stage == STAGES) stage = 0;", "parity ^= 1; if (++stage == STAGES) stage = 0;"
EARLY = "if (++stage == STAGES) stage = 0; if (stage == STAGES - 1) parity ^= 1;"
PIECES = {
    "PRODUCES": "t == 0",
    "WAIT_EMPTY": "MB_WAIT(empty + stage, parity ^ 1);",
    "EXPECT": "MB_EXPECT(full + stage, 256);",
    "FILL": "BULK_LOAD(s[stage], a + p * 64, 256, full + stage);",
    "NEXT_EMPTY": "if (++stage == STAGES) stage = 0, parity ^= 1;",
    "WAIT_FULL": "MB_WAIT(full + stage, parity);",
    "READ": "sum += s[stage][63 - t];",
    "RELEASE_STAGE": "MB_ARRIVE(empty + stage);",
    "NEXT_FULL": "if (++stage == STAGES) stage = 0, parity ^= 1;",
    "FULL_COUNT": "1",
    "EMPTY_COUNT": "32",
    "FILLS": "6",
    "READS": "6",
    "STAGES": "3",
}
THREADS = {
    "PRODUCES": "t < 32",
    "EXPECT": "",
    "FILL": "s[stage][t] = s[stage][t + 32] = a[p * 32 + t]; MB_ARRIVE(full + stage);",
    "FULL_COUNT": "32",
}
"""A warp that stores in place of bulk copies."""


def ring(name: str, kind: str = "", at: str = "", **pieces: str) -> Case:
    """Return a ring with other pieces than a right one's, and the finding ``at`` one of them."""
    own: dict[str, str] = {**PIECES, **pieces}
    if at:
        own[at] += f"  {MARK}"
    text = RING
    while (made := re.sub(r"\b[A-Z_]{4,}\b", lambda m: own.get(m[0], m[0]), text)) != text:
        text = made
    return Case(name, kind, text)


CASES = [
    # Parities.
    ring("ring_parity_of_full_never_toggled", "barrier", "WAIT_EMPTY", NEXT_FULL=NEVER),
    ring("ring_parity_of_empty_never_toggled", "barrier", "WAIT_EMPTY", NEXT_EMPTY=NEVER),
    ring("ring_parities_never_toggled", "barrier", "WAIT_EMPTY",
         NEXT_EMPTY=NEVER, NEXT_FULL=NEVER),
    ring("ring_parities_never_toggled_twice_two_stages", "barrier", "WAIT_EMPTY",
         NEXT_EMPTY=NEVER, NEXT_FULL=NEVER, STAGES="2"),
    ring("ring_parity_of_full_toggled_at_each_stage", "barrier", "WAIT_EMPTY", NEXT_FULL=EACH),
    ring("ring_parity_of_empty_toggled_at_each_stage", "barrier", "WAIT_FULL", NEXT_EMPTY=EACH),
    ring("ring_parities_toggled_at_each_stage", "uninitialised", "READ",
         NEXT_EMPTY=EACH, NEXT_FULL=EACH),
    ring("ring_parity_of_full_toggled_a_stage_early", "barrier", "WAIT_EMPTY", NEXT_FULL=EARLY),
    ring("ring_parity_of_empty_toggled_a_stage_early", "barrier", "WAIT_FULL", NEXT_EMPTY=EARLY),
    ring("ring_producer_waits_for_the_first_fill", "barrier", "WAIT_FULL",
         WAIT_EMPTY="MB_WAIT(empty + stage, parity);"),
    ring("ring_consumer_begins_with_the_other_parity", "barrier", "WAIT_EMPTY",
         WAIT_FULL="MB_WAIT(full + stage, parity ^ 1);"),
    ring("ring_stores_parities_never_toggled", "barrier", "WAIT_FULL",
         NEXT_EMPTY=NEVER, NEXT_FULL=NEVER, **THREADS),
    ring("ring_consumers_take_turns_unordered", "uninitialised", "READ",
         WAIT_FULL="if (p / 3 % 2 == t / 48) MB_WAIT(full + stage, parity);",
         READ="if (p / 3 % 2 == t / 48) sum += s[stage][63 - t];",
         RELEASE_STAGE="if (p / 3 % 2 == t / 48) MB_ARRIVE(empty + stage);",
         EMPTY_COUNT="16", FILLS="9", READS="9"),
    ring("ring_thread_skips_a_turn", "barrier", "WAIT_FULL",
         WAIT_FULL="if (p / 3 != 1 || t != 40) MB_WAIT(full + stage, parity);",
         READ="if (p / 3 != 1 || t != 40) sum += s[stage][63 - t];", FILLS="9", READS="9"),
    # Waits.
    ring("ring_producer_does_not_wait", "race", "FILL", WAIT_EMPTY=""),
    ring("ring_producer_waits_a_turn_too_late", "race", "FILL",
         WAIT_EMPTY="if (p > STAGES) MB_WAIT(empty + stage, parity ^ 1);"),
    ring("ring_consumer_does_not_wait", "uninitialised", "READ", WAIT_FULL=""),
    ring("ring_consumer_waits_for_the_next_stage", "race", "READ",
         WAIT_FULL="MB_WAIT(full + (stage + 1) % STAGES, parity);"),
    ring("ring_consumer_waits_at_the_empty_one", "barrier", "WAIT_FULL",
         WAIT_FULL="MB_WAIT(empty + stage, parity);"),
    ring("ring_consumer_reads_the_next_stage", "race", "FILL",
         READ="sum += s[(stage + 1) % STAGES][63 - t];"),
    ring("ring_consumer_reads_once_too_often", "barrier", "WAIT_FULL", READS="7"),
    ring("ring_producer_fills_too_often", "barrier", "WAIT_EMPTY", FILLS="10"),
    # Releases.
    ring("ring_without_release", "barrier", "WAIT_FULL", RELEASE_STAGE=""),
    ring("ring_release_by_one_thread", "barrier", "WAIT_FULL",
         RELEASE_STAGE="if (t == 32) MB_ARRIVE(empty + stage);"),
    ring("ring_release_before_the_read", "race", "FILL",
         READ="MB_ARRIVE(empty + stage); sum += s[stage][63 - t];", RELEASE_STAGE=""),
    ring("ring_release_of_the_next_stage", "barrier", "WAIT_EMPTY",
         RELEASE_STAGE="MB_ARRIVE(empty + (stage + 1) % STAGES);"),
    ring("ring_release_twice", "barrier", "WAIT_EMPTY",
         RELEASE_STAGE="MB_ARRIVE(empty + stage); MB_ARRIVE(empty + stage);"),
    ring("ring_stores_release_of_the_next_stage", "barrier", "WAIT_EMPTY",
         RELEASE_STAGE="MB_ARRIVE(empty + (stage + 1) % STAGES);", **THREADS),
    ring("ring_stores_release_twice", "barrier", "WAIT_EMPTY",
         RELEASE_STAGE="MB_ARRIVE(empty + stage); MB_ARRIVE(empty + stage);", **THREADS),
    ring("ring_release_counted_as_one", "barrier", "WAIT_EMPTY", EMPTY_COUNT="1"),
    ring("ring_release_counted_as_a_half", "barrier", "WAIT_EMPTY", EMPTY_COUNT="16"),
    ring("ring_release_counted_as_one_more", "barrier", "WAIT_FULL", EMPTY_COUNT="33"),
    ring("ring_release_counted_as_the_block", "barrier", "WAIT_FULL", EMPTY_COUNT="64"),
    # What the full barriers count.
    ring("ring_expects_too_few_bytes", "barrier", "WAIT_FULL",
         EXPECT="MB_EXPECT(full + stage, 128);"),
    ring("ring_expects_too_many_bytes", "barrier", "WAIT_FULL",
         EXPECT="MB_EXPECT(full + stage, 512);"),
    ring("ring_expects_no_bytes", "race", "READ", EXPECT="MB_ARRIVE(full + stage);"),
    ring("ring_does_not_arrive", "barrier", "WAIT_FULL", EXPECT=""),
    ring("ring_copies_half", "barrier", "WAIT_FULL",
         FILL="BULK_LOAD(s[stage], a + p * 64, 128, full + stage);"),
    ring("ring_copy_completes_at_the_next_stage", "race", "READ",
         FILL="BULK_LOAD(s[stage], a + p * 64, 256, full + (stage + 1) % STAGES);"),
    ring("ring_copy_to_the_next_stage", "race", "FILL",
         FILL="BULK_LOAD(s[(stage + 1) % STAGES], a + p * 64, 256, full + stage);"),
    ring("ring_full_counts_two", "barrier", "WAIT_FULL", FULL_COUNT="2"),
    ring("ring_stores_full_counts_one", "barrier", "WAIT_FULL", **{**THREADS, "FULL_COUNT": "1"}),
]  # fmt: skip

RIGHT = [
    ring("ring_of_one_stage", STAGES="1"),
    ring("ring_of_two_stages", STAGES="2", FILLS="7", READS="7"),
    ring("ring_of_three_stages", FILLS="8", READS="8"),
    ring("ring_of_twenty_stages", STAGES="20", FILLS="45", READS="45"),
    ring("ring_by_stores", **THREADS),
    ring("ring_by_stores_of_one_stage", STAGES="1", **THREADS),
    ring("ring_copies_before_it_expects", EXPECT="", FILL=PIECES["FILL"] + PIECES["EXPECT"]),
    ring("ring_no_wait_in_the_first_turn",
         WAIT_EMPTY="if (p >= STAGES) MB_WAIT(empty + stage, parity ^ 1);"),
    ring("ring_release_by_a_warp_s_leader", EMPTY_COUNT="1",
         RELEASE_STAGE="__syncwarp(); if (t == 32) MB_ARRIVE(empty + stage);"),
    ring("ring_waits_twice", WAIT_FULL="MB_WAIT(full + stage, parity);" * 2,
         WAIT_EMPTY="MB_WAIT(empty + stage, parity ^ 1);" * 2),
    ring("ring_waits_by_a_leader",
         WAIT_FULL="if (t == 32) MB_WAIT(full + stage, parity); __syncwarp();"),
    ring("ring_waits_again_before_the_release",
         RELEASE_STAGE="__syncwarp(); MB_WAIT(full + stage, parity); MB_ARRIVE(empty + stage);"),
    ring("ring_consumers_take_turns_in_order",
         WAIT_FULL="if (p / 3 % 2 != t / 48) { __syncwarp(); __syncwarp(); } else {"
                   " __syncwarp(); MB_WAIT(full + stage, parity);",
         READ="sum += s[stage][63 - t];",
         RELEASE_STAGE="MB_ARRIVE(empty + stage); __syncwarp(); }",
         EMPTY_COUNT="16", FILLS="9", READS="9"),
    ring("ring_weights_that_stay",
         WAIT_FULL="MB_WAIT(full + stage, parity); MB_WAIT(full, 0);",
         NEXT_FULL="++stage;", NEXT_EMPTY="++stage;", STAGES="6"),
]  # fmt: skip
