"""Small kernels, each with one planted fault, or right though it looks like a faulty one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

MARK = "// fault"
PRELUDE = r"""
#define ALL 0xffffffffu
#define SHARED(p) ((unsigned)__cvta_generic_to_shared(p))
#define BAR_SYNC(n, c) asm volatile("bar.sync %0, %1;" ::"r"(n), "r"(c) : "memory")
#define BAR_ARRIVE(n, c) asm volatile("bar.arrive %0, %1;" ::"r"(n), "r"(c) : "memory")
#define COPY(to, from) \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SHARED(to)), "l"(from) : "memory")
#define COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#define WAIT_ALL() asm volatile("cp.async.wait_all;" ::: "memory")
#define MB_INIT(b, n) \
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SHARED(b)), "r"(n) : "memory")
#define MB_ARRIVE(b) \
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SHARED(b)) : "memory")
#define MB_ARRIVE_TIMES(b, n) asm volatile( \
    "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(SHARED(b)), "r"(n) : "memory")
#define MB_EXPECT(b, n) asm volatile( \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SHARED(b)), "r"(n) : "memory")
#define MB_WAIT(b, parity) asm volatile( \
    "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; " \
    "@!p bra again; }" ::"r"(SHARED(b)), "r"(parity) : "memory")
#define BULK_LOAD(to, from, n, b) asm volatile( \
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
    ::"r"(SHARED(to)), "l"(from), "r"(n), "r"(SHARED(b)) : "memory")
#define BULK_STORE(to, from, n) asm volatile( \
    "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" \
    ::"l"(to), "r"(SHARED(from)), "r"(n) : "memory")
#define BULK_COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define BULK_WAIT(n) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory")
#define ACQUIRE(x, from) \
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory")
#define RELEASE(to, x) \
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory")
#define PROXY_FENCE() asm volatile("fence.proxy.async;" ::: "memory")
"""


@dataclass(frozen=True)
class Case:
    """One kernel, called ``k``, and how it is launched.

    Attributes
    ----------
    kind : str
        Of the finding that is expected at the line with :data:`MARK`; empty for a right kernel.
    body : str
        The kernel's; it has ``a`` and ``out``, of 4096 ints, and the thread's number ``t``.
    empty : bool
        Whether nobody wrote ``out``.
    global_races : bool
        Whether races in global memory are looked for.
    """

    name: str
    kind: str
    body: str
    threads: int = 64
    grid: int = 1
    shared: int = 0
    empty: bool = False
    global_races: bool = False

    @property
    def source(self) -> str:
        before, _, body = self.body.rpartition("//////")
        return (
            f"{PRELUDE}{before}\n"
            'extern "C" __global__ void k(const int* a, int* out) {\n'
            "    int t = threadIdx.x;\n"
            f"{body}\n}}\n"
        )

    @property
    def line(self) -> int:
        """Where the finding is expected."""
        (line,) = (n for n, text in enumerate(self.source.splitlines(), 1) if MARK in text)
        return line


def arguments() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Values for ``a``, all of them different, and ``out``."""
    return np.arange(4096, dtype=np.int32), np.zeros(4096, np.int32)


def cases(text: str, kind: str = "", **options: Any) -> list[Case]:
    """The cases of a text: each begins with a line ``== name``, and what its launch has apart.

    ``@name`` in a body is replaced by an option's value, and a list of values makes as many cases.
    """
    found = []
    for part in re.split(r"^== ", text, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        name, *words = head.split()
        own: dict[str, Any] = dict(options)
        variants: list[tuple[str, dict[str, str]]] = [("", {})]
        for word in words:
            key, _, value = word.partition("=")
            if key.startswith("@"):
                variants = [
                    (f"{suffix}_{choice}", {**chosen, key: choice})
                    for suffix, chosen in variants
                    for choice in value.split(",")
                ]
            elif key == "kind":
                own["kind"] = value.replace("_", " ")
            elif key == "empty":
                own[key] = True
            else:
                own[key] = int(value)
        for suffix, chosen in variants:
            text_of = body.rstrip()
            for key, value in chosen.items():
                text_of = text_of.replace(key, value)
            case_kind = own.pop("kind", kind)
            found.append(Case(re.sub(r"\W+", "_", name + suffix), case_kind, text_of, **own))
            own["kind"] = case_kind
    return found
