"""Writes docs/host.md: products that begin in the host's memory, from the records.

    python benchmarks/host_page.py

The records are ``benchmarks/results/host_products_h200.json`` and ``host_larger_h200.json``, as
``benchmarks/host_products.py`` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages import paragraph, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "host.md"
RESULTS = ROOT / "benchmarks" / "results"
RECORDS = RESULTS / "host_products_h200.json", RESULTS / "host_larger_h200.json"

HEAD = """\
# Arrays in the host's memory

<!-- Written by benchmarks/host_page.py from benchmarks/results/host_*.json. -->

```python
c = tilewise.matmul(a, b)  # NumPy arrays, or tensors on the CPU
tilewise.matmul(a, b, out=c, max_gpu_memory="20GB")
```

If there is a GPU, arrays in the host's memory are copied there in strips. The product begins with
the first strips, and finished parts of the result are copied back while the next strips are on
their way. Nothing else changes: shapes, strides, batches, `c`, `beta` and `out=`, which is filled
in place, are as for arrays on a GPU.

- **Copies.** Pageable memory goes through pinned buffers that up to 16 threads fill and empty, at
  most 512 MiB of them for each GPU. Pinned arrays and tensors are copied directly. Of products
  under 32 MiB the driver copies contiguous arrays by itself. One matrix given twice (`a @ a`, `a
  @ a.T`) is copied once, if it fits. A batch of small products is copied in groups, and one of
  large products one after the other.
- **Memory that is kept.** The buffers are kept for the next product, and so is at most a 32nd of
  the GPU's memory; `tilewise.free_staging()` frees both.
- **Products larger than the GPU's memory**, or than `max_gpu_memory`, are computed strip by strip
  with the whole of k, or if even that does not fit, by tiles of the result that sum up pieces of
  k. By default a product may take what is free, less 2% or 256 MiB, whichever is more. The
  arrays' parts and the kernels' workspaces together stay below it.
- **Files.** `numpy.memmap` arrays are read and written by pieces, as any other array. For `.npy`
  files there is [a command](files.md).
- **Threads and errors.** Two threads' products overlap, a third waits for its turn. Ctrl-C and
  errors leave no thread, no pinned memory and no memory on the GPU behind.
- **What would be copied?** `tilewise.explain(a, b)` says how the arrays would be copied, and how
  many bytes that is beside [the fewest](files.md#which-pieces-in-which-order) that any order of
  the same multiply-adds can move with so much memory.
- **Bits.** If k is not divided, the bits are those of the product of arrays on the GPU, if that
  does not divide k either. Pieces divide k only if that is more than four times as fast.
"""


def page(found: Mapping[str, Any], larger: Mapping[str, Any]) -> str:
    """Return the page."""
    link = {name: f"{rate / 1e9:.1f}" for name, rate in found["link"].items()}
    parts = [
        HEAD,
        "\n## Measured\n\n",
        paragraph(
            f"{found['machine']['gpu']}, {found['machine']['cores']} cores, "
            f"{found['date'][:10]}, by `python benchmarks/host_products.py`: medians, ours and "
            "PyTorch's in turn, from wall "
            "clocks; of the link, the best. PyTorch's is there and back, "
            "`(a.cuda() @ b.cuda()).cpu()`. The link copies "
            f"{link['in']} GB/s to the GPU and {link['out']} back, from pinned memory, and "
            f"{link['both']} each way at once."
        ),
    ]
    for each in found["squares"]:
        parts += ["\n", _square(each)]
    parts += ["\n", _larger(larger), "\n", _small(found)]
    return "".join(parts)


def _square(each: Mapping[str, Any]) -> str:
    least, torch = each["least_seconds"], each["seconds"]["torch"]
    lines = [
        (name, f"{1e3 * seconds:.1f}", f"{least / seconds:.2f}", f"{torch / seconds:.2f}")
        for name, seconds in each["seconds"].items()
    ]
    size = each["size"]
    told = (
        f"{each['dtype']}, {size} x {size} x {size}. The link and the kernel allow "
        f"{1e3 * least:.1f} ms: the longest of A and B one way, C the other way, and the kernel "
        f"with its matrices on the GPU, {1e3 * each['resident_seconds']:.1f} ms. The bits are "
        f"{'equal' if each['equal_bits'] else 'not equal'} to that one's."
    )
    heading = ("", "ms", "of what is allowed", "x PyTorch")
    return paragraph(told) + "\n" + table(heading, lines, "lrrr")


def _larger(found: Mapping[str, Any]) -> str:
    lines = [
        (
            f"{each['dtype']}, {each['size']:,}", f"{each['bytes_each'] / 1e9:.0f} GB",
            f"{each['memory'] / 1e9:.1f} of {each['budget'] / 1e9:.0f} GB",
            f"{each['bytes_in'] / 1e9:.0f} GB", f"{each['seconds']:.1f}",
            f"{each['resident_seconds']:.1f}", f"{each['share']:.2f}",
        )
        for each in found["larger"]
    ]  # fmt: skip
    told = (
        "Square products within a budget of the GPU's memory, from ordinary memory, beside the "
        "same product with all of it on the GPU (`--larger`). The GPU's power limit rules both."
    )
    if not all(each.get("is_warm") for each in found["larger"]):
        told += (
            " Ours is the first product of its kind: its kernels are compiled in that time, and "
            "its buffers pinned; of the resident one, before."
        )
    heading = (
        "product", "each matrix", "taken on the GPU", "copied there", "s", "resident, s",
        "of its rate",
    )  # fmt: skip
    return paragraph(told) + "\n" + table(heading, lines, "lrrrrrr")


def _small(found: Mapping[str, Any]) -> str:
    def cells(seconds: Mapping[str, float]) -> tuple[str, ...]:
        return tuple(f"{1e3 * seconds[name]:.2f}" for name in ("tilewise", "torch", "numpy"))

    lines = [(f"{x['size']} cubed", *cells(x["seconds"])) for x in found["singles"]]
    lines += [
        (f"{x['batch']:,} x {x['size']} cubed", *cells(x["seconds"])) for x in found["batches"]
    ]  # fmt: skip
    first = found["first"]
    told = (
        "Small and middling products of float32, ms. The way there and back takes longer than "
        "NumPy's product on the cores where the latter is less."
    )
    behind = (
        f"The first product of a process, 4096 cubed, takes {1e3 * first['pays']:.0f} ms longer "
        "than the later ones: buffers are allocated and pinned, and kernels are loaded."
    )
    heading = ("", "tilewise", "PyTorch", "NumPy")
    return paragraph(told) + "\n" + table(heading, lines, "lrrr") + "\n" + paragraph(behind)


def main() -> int:
    found, larger = (json.loads(path.read_text()) for path in RECORDS)
    PAGE.write_text(page(found, larger))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
