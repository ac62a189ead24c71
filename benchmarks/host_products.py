"""Time products of arrays in the host's memory, beside what the link and the kernel allow.

    python benchmarks/host_products.py [--json FILE]
    python benchmarks/host_products.py --larger float32:86603 --larger bfloat16:122474 --json FILE

Without ``--larger``, it measures

- the link's rate in bytes/s from pinned memory, each way and both ways at once;
- 8192 x 8192 x 8192 in float32 and bfloat16, from pageable and from pinned memory, in turn with
  PyTorch (to the GPU and back), NumPy and the vendor's cublasXt;
- small and middling products, and batches of small ones;
- how much longer the first product of a process takes.

The least time is the longest of: the copy of A and B, the copy of C, and the kernel with its
matrices on the GPU.

With ``--larger``, square products within a budget of the GPU's memory are timed beside the same
products with all matrices there, by the same kernels. The exit code is 1 if a result is wrong.
"""

from __future__ import annotations

from typing import Any

from command_line import add_json, parser_of

from tilewise import sizes
from tilewise.bench import host_products
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.provenance import write


def main() -> int:
    """Measure, print and write the record; return 1 if a result is wrong."""
    parser = parser_of(__doc__)
    add_json(parser)
    parser.add_argument("--larger", action="append", default=[], metavar="DTYPE:SIZE")
    parser.add_argument("--budget", default="20GB", help="of the GPU's memory, for --larger")
    parser.add_argument("--warm", action="store_true", help="with --larger, run each once before")
    options = parser.parse_args()
    gpu = get_device("gpu")
    assert isinstance(gpu, Gpu)
    found: dict[str, Any] = {"link": host_products.link(gpu)}
    print({name: f"{rate / 1e9:.1f} GB/s" for name, rate in found["link"].items()}, flush=True)
    if options.larger:
        found["larger"] = []
        for words in options.larger:
            dtype, size = words.split(":")
            budget = sizes.parse(options.budget, "budget")
            each = host_products.larger(
                gpu, int(size), dtype, budget, is_resident=True, is_warm=options.warm
            )
            found["larger"].append(each)
            print(each, flush=True)
            if options.json:
                write(options.json, found)
    else:
        rate = found["link"]["both"]
        found["squares"] = []
        for dtype in ("float32", "bfloat16"):
            each = host_products.square(gpu, 8192, dtype, rate)
            found["squares"].append(each)
            print(table(each), flush=True)
        for name, measure in (
            ("singles", host_products.singles), ("batches", host_products.batches),
            ("first", host_products.first),
        ):  # fmt: skip
            found[name] = measure()
            print(name, found[name], flush=True)
        if options.json:
            write(options.json, found)
    measured = [*found.get("squares", ()), *found.get("larger", ()), *found.get("batches", ())]
    return int(not all(each["correct"] for each in measured))


def table(each: dict[str, Any]) -> str:
    """Return the times of a square product as a table, in ms."""
    least = each["least_seconds"]
    lines = [
        f"{each['dtype']} {each['size']}: "
        + ("right" if each["correct"] else "WRONG")
        + f", bits {'equal' if each['equal_bits'] else 'unlike'} to the resident product's; "
        f"the link and the kernel allow {1e3 * least:.1f} ms"
    ]
    torch_seconds = each["seconds"]["torch"]
    for name, seconds in each["seconds"].items():
        lines.append(
            f"  {name:18}{1e3 * seconds:9.1f} ms{least / seconds:7.2f} of what is allowed"
            f"{torch_seconds / seconds:7.2f} x torch"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
