"""Write docs/host.md, products of arrays in the host's memory, from their records.

    python benchmarks/host_page.py

The records are ``host_products_h100.json``, ``host_larger_h200.json`` and
``host_products_h200.json`` of ``benchmarks/results``, as ``benchmarks/host_products.py`` writes
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from command_line import takes_no_options
from pages import DOCS, RESULTS, gpu_of, paragraph, read, table

from tilewise.places import ITEM_SIZES

PAGE = DOCS / "host.md"
RECORDS = tuple(
    RESULTS / f"host_{name}.json" for name in ("products_h100", "larger_h200", "products_h200")
)
PAGES = {PAGE: RECORDS}

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

- **Copies.** Pageable memory goes through pinned buffers that up to 12 threads fill and empty, at
  most 704 MiB of them for each GPU. Pinned arrays and tensors are copied directly. A product
  under 128 MiB that needs no strips is copied in one piece, by the driver if its matrices are at
  most 4 MiB each. One matrix given twice (`a @ a`, `a @ a.T`) is copied once, if it fits. A batch
  of small products is copied in groups, and one of large products one after the other.
- **Order, from pinned memory.** Strips of A and of B arrive in turn, since a share f of the copies
  allows a share f² of the product. If the link takes the longest, the smaller matrix may arrive
  whole, and then strips of the other one, each of which finishes its part of the result. Of a dozen
  ways to cut A and B, the one is taken whose copies and kernels should end first.
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


def page(found: Mapping[str, Any], larger: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    found : mapping
        The record of products.
    larger : mapping
        The record of products larger than the memory they may take.
    other : mapping
        A record of products on another GPU.
    """
    return "".join([HEAD, *_measured(found), *_measured(other), "\n", _larger(larger)])


def _measured(found: Mapping[str, Any]) -> list[str]:
    """Return the section of a record of products."""
    link = {name: f"{rate / 1e9:.1f}" for name, rate in found["link"].items()}
    gpu = found["machine"]["gpu"]
    parts = [
        f"\n## Measured on an {gpu_of(found)}\n\n",
        paragraph(
            f"{gpu}, {found['machine']['cores']} cores, "
            f"{found['date'][:10]}, by `python benchmarks/host_products.py`: medians, ours and "
            "PyTorch's in turn, from wall "
            "clocks; of the link, the best. PyTorch's is there and back, "
            "`(a.cuda() @ b.cuda()).cpu()`. The link copies "
            f"{link['in']} GB/s to the GPU and {link['out']} back, from pinned memory, and "
            f"{link['both']} each way at once." + (f" {found['note']}" if "note" in found else "")
        ),
    ]
    for each in found["squares"]:
        parts += ["\n", _square(each, found["link"]["in"])]
    return [*parts, "\n", _small(found)]


def least_in_any_order(size: int, item: int, rate: float, kernel: float) -> float:
    """Return the least seconds of a square product of the host's matrices whose k stays whole.

    When a share f of A and B has arrived, at most f^2 of the product can be computed: with shares
    x of A and y of B, x y of it, and x + y = 2 f. So the kernels end no earlier than t + (1 - f^2)
    times their time, for any time t at which a share f has arrived. This is the largest of these
    bounds over all t.

    Parameters
    ----------
    size : int
        The rows and columns of each matrix.
    item : int
        The bytes of an element.
    rate : float
        The bytes a second that the link copies to the GPU.
    kernel : float
        The seconds of the kernels, with all matrices on the GPU.
    """
    arriving = 2 * size * size * item / rate
    if arriving >= 2 * kernel:
        return arriving
    return kernel + arriving * arriving / (4 * kernel)


def _square(each: Mapping[str, Any], rate: float) -> str:
    least, torch = each["least_seconds"], each["seconds"]["torch"]
    size, item = each["size"], ITEM_SIZES[each["dtype"]]
    ordered = max(least, least_in_any_order(size, item, rate, each["resident_seconds"]))
    lines = [
        (
            name, f"{1e3 * seconds:.1f}", f"{least / seconds:.2f}", f"{ordered / seconds:.2f}",
            f"{torch / seconds:.2f}",
        )
        for name, seconds in each["seconds"].items()
    ]  # fmt: skip
    told = (
        f"{each['dtype']}, {size} x {size} x {size}. The link and the kernel allow "
        f"{1e3 * least:.1f} ms: the longest of A and B one way, C the other way, and the kernel "
        f"with its matrices on the GPU, {1e3 * each['resident_seconds']:.1f} ms. "
    )
    if ordered > least:
        told += (
            f"No order of the copies takes less than {1e3 * ordered:.1f} ms if k stays whole, "
            "since a share f of A and B allows at most f² of the product. "
        )
    told += (
        f"The bits are {'equal' if each['equal_bits'] else 'not equal'} to the resident product's."
    )
    heading = ("", "ms", "least by link and kernel / ms", "least in any order / ms", "x PyTorch")
    return paragraph(told) + "\n" + table(heading, lines, "lrrrr")


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


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(*map(read, RECORDS)), encoding="utf-8")


if __name__ == "__main__":
    main()
