"""Check small products of every kind, and rungs, by NVIDIA's Compute Sanitizer on a Hopper GPU.

    python benchmarks/sanitize.py [--json benchmarks/results/sanitize_h200.json]

Each tool checks one process that computes all products. Then it checks kernels that have one
planted fault each, which shows what the tool detects. The exit code is 1 if a product is wrong, a
tool reports anything about tilewise's kernels, or it reports none of the planted faults.

Errors of the driver's API are not reported: cuda.core asks for the current context before there is
one, which the driver answers with an error that is expected.

The tools do not see bulk copies by a tensor map (cp.async.bulk.tensor), because no thread makes
them. None reports the planted ``unwaited``, which reads a box before its copy has arrived, or
``beyond``, which copies a box that reaches past its allocation. So racecheck reports no false
hazard for the pipeline stages of the Hopper kernel, and no true one either (flash-attention's
AI/RACECHECK_TMA_HAZARD.md has found the same). The tools do check the threads' own accesses: sums
that go from block to block, buffers for D, direct stores, and all of the other kernels. The copies
are tested by tests/gemm/test_hopper.py, with NaN around and in all matrices.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import add_json, parser_of

from tilewise import matmul
from tilewise.devices import get_device
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.hopper.family import Hopper
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.readings import readings
from tilewise.gemm.families.simt.tiles import EVERY, TILES, AnyTiles, Tiles
from tilewise.gemm.plan import chip_of, plan_on
from tilewise.gemm.product import Operand, Product, offset
from tilewise.gemm.steps import Plan, Step, execute
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Sizes
from tilewise.ladder.rungs import RUNGS, rung
from tilewise.launch import Launch
from tilewise.numbers import check
from tilewise.places import Place, TensorMap
from tilewise.provenance import write
from tilewise.tensor_map import MappedArray

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MARK = "case: "
# Under it each tensor is an allocation of its own, whose end memcheck knows.
ALONE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass(frozen=True)
class Case:
    """A product of normal numbers; with a tiling, by its kernel, else as planned.

    Attributes
    ----------
    layout : str
        Of A and B: T is one that is stored transposed.
    pad : tuple of int
        Elements between the lines of A, B and D.
    """

    m: int
    n: int
    k: int
    layout: str = "NT"
    dtype: str = "bfloat16"
    out: str = "bfloat16"
    pad: tuple[int, int, int] = (0, 0, 0)
    batch: int = 1
    tiling: Tiling | AnyTiles | None = None


def bulk(dtype: str, a_is_k_major: bool) -> Tiles:
    """Return the smallest tiles without tensor cores that bulk copies fill from such an A."""
    every = (x for x in TILES[dtype] if x.bulk and x.takes(dtype, a_is_k_major, False, True, True))
    return min(every, key=lambda x: x.block_m * x.block_n)


def tensor(size: str, how: str = "") -> AnyTiles:
    """Return the tiles of a size by tensor cores, for float64."""
    return next(x for x in EVERY["float64"] if str(x) == f"{size} by tensor cores{how}")


CASES = (
    Case(300, 520, 200, "NN", tiling=Tiling(128, 256)),
    Case(304, 520, 200, "TT", "float16", "float16", tiling=Tiling(128, 128, 2, 1)),
    Case(400, 264, 328, "TN", tiling=Tiling(192, 64, 1, 2)),
    Case(136, 72, 520, "NT", tiling=Tiling(64, 64, split=4)),
    Case(500, 136, 1032, "NT", out="float32", tiling=Tiling(256, 64, stream_k=True)),
    Case(264, 400, 1032, "NN", tiling=Tiling(128, 192, 2, 1, stream_k=True, swapped=True)),
    Case(200, 168, 136, "NT", pad=(0, 0, 1), tiling=Tiling(128, 80, swapped=True)),
    Case(1536, 520, 200, "NN", tiling=Tiling(64, 64, 2, 1, ping_pong=True)),
    Case(1000, 2304, 520, "TN", tiling=Tiling(64, 64, 2, 4, stream_k=True, ping_pong=True)),
    Case(520, 400, 328, "TT", tiling=Tiling(64, 64, 4, 2)),
    Case(264, 376, 200, "TN", tiling=Tiling(128, 96, 2, 1)),
    Case(5, 100, 264, "NT", pad=(8, 8, 3), tiling=Tiling(64, 16)),
    Case(96, 136, 72, "NN", batch=3, tiling=Tiling(64, 64)),
    Case(200, 136, 333, "NN", tiling=Tiling(128, 128, a_unaligned=True)),
    Case(
        131,
        201,
        1033,
        "TT",
        tiling=Tiling(64, 128, stream_k=True, a_unaligned=True, b_unaligned=True),
    ),
    Case(256, 256, 256, "NN"),
    Case(131, 257, 133, "NN"),
    Case(1, 1000, 515, "NT"),
    Case(3, 515, 257, "NN"),
    Case(100, 90, 70, "NT", "float32", "float32", (1, 2, 3)),
    Case(65, 129, 33, "TN", "float64", "float64"),
    Case(3, 301, 1030, "NT", "float32", "float32", (0, 1, 0)),
    Case(150, 5, 20000, "NT", "float64", "float64", (0, 2, 0)),
    Case(70, 257, 100, "NN", "float32", "float32", (0, 3, 0), tiling=bulk("float32", True)),
    Case(132, 132, 52, "TN", "float32", "float32", tiling=bulk("float32", False)),
    Case(132, 130, 50, "NN", "float64", "float64", tiling=tensor("16x128")),
    Case(70, 66, 150, "NT", "float64", "float64", tiling=tensor("64x32")),
    Case(133, 17, 51, "TN", "float64", "float64", (0, 1, 2), tiling=tensor("32x128", ", cp.async")),
    Case(70, 67, 150, "NT", "float64", "float64", (1, 3, 0), tiling=tensor("64x64", ", cp.async")),
)


@dataclass(frozen=True)
class Climbed:
    """A product by a rung of the ladder.

    Attributes
    ----------
    pad : tuple of int
        Elements between the rows of A, B and C.
    """

    rung: str
    m: int
    n: int
    k: int
    dtype: str
    tile: int
    pad: tuple[int, int, int] = (0, 0, 0)


# Of the rungs that take a few large tiles: the smallest, of rows that are 16 bytes apart or a
# multiple of it, and the largest, of rows that are not.
LADDER = tuple(
    case
    for each in RUNGS
    if each.tiles and not isinstance(each.tiles, range)
    for dtype in each.dtypes
    if each.runs_on("sm_90a")
    for case in (
        Climbed(each.name, 72, 104, 40, dtype, each.tiles[0], (0, 8, 0)),
        Climbed(each.name, 131, 261, 27, dtype, each.tiles[-1], (0, 0, 1)),
    )
)

PLANTED = Path(__file__).with_name("sanitize_planted.cu").read_text(encoding="utf-8")


def planned(product: Product, chip: Chip | None, case: Case) -> Plan:
    """Return the plan by which a case is computed."""
    if case.tiling is None:
        return plan_on(product, chip)
    if isinstance(case.tiling, Tiling):
        offer = Hopper().offer(product, chip, case.tiling.choice)
        if offer is None:
            raise ValueError(f"the Hopper kernel can't compute {case} so")
        return offer.make()
    reading = next(x for x in readings(product) if x.fits(case.tiling))
    choice = fma.Choice(0.0, reading, case.tiling, 1)
    return fma.plan(choice, chip or H200, False)


def compute() -> None:
    """Compute every case, marked in the output; all kernels that are launched are tilewise's."""
    import torch

    gpu: Any = get_device("gpu")
    torch.manual_seed(0)
    for index, case in enumerate(CASES):
        m, n, k = case.m, case.n, case.k
        a, of_a = matrices(case, (m, k), case.layout[0] == "T", case.pad[0], case.dtype)
        b, of_b = matrices(case, (k, n), case.layout[1] == "T", case.pad[1], case.dtype)
        d, of_d = matrices(case, (m, n), False, case.pad[2], case.out)
        on_gpu = [x.cuda().as_strided(*of) for x, of in ((a, of_a), (b, of_b), (d, of_d))]
        product = Product(
            m, n, k, case.batch, case.dtype, case.out, 1.0, 0.0,
            operand(on_gpu[0]), operand(on_gpu[1]), None, operand(on_gpu[2]),
        )  # fmt: skip
        plan = planned(product, chip_of(gpu), case)
        print(f"{MARK}{json.dumps({'index': index, 'chosen': plan.chosen})}", flush=True)
        if case.tiling is None:
            matmul(on_gpu[0], on_gpu[1], out=on_gpu[2])
        else:
            workspace = torch.empty(plan.workspace, dtype=torch.uint8, device="cuda")
            addresses = [x.data_ptr() for x in (*on_gpu[:2], on_gpu[2], on_gpu[2], workspace)]
            execute(plan, gpu, torch.cuda.current_stream().cuda_stream, addresses)
        torch.cuda.synchronize()
        # The whole buffer, so that no kernel makes a copy of the view.
        flat = on_gpu[2].as_strided((len(d),), (1,)).cpu()
        host = [x.as_strided(*of) for x, of in ((a, of_a), (b, of_b), (flat, of_d))]
        right = is_right(*host)
        print(f"{MARK}{json.dumps({'index': index, 'right': right})}", flush=True)

    for index, climbed in enumerate(LADDER, len(CASES)):
        chosen = f"{climbed.rung}, tile {climbed.tile}"
        print(f"{MARK}{json.dumps({'index': index, 'chosen': chosen})}", flush=True)
        right = climb(climbed, gpu)
        print(f"{MARK}{json.dumps({'index': index, 'right': right})}", flush=True)


def climb(case: Climbed, gpu: Any) -> bool:
    """Compute a product by a rung, with C uninitialised; return whether it is right."""
    import torch

    m, n, k, each = case.m, case.n, case.k, rung(case.rung)
    leading = [width + pad for width, pad in zip((k, n, n), case.pad, strict=True)]
    kind = getattr(torch, case.dtype)
    a, b = (
        torch.randn(rows, pitch, dtype=kind) for rows, pitch in zip((m, k), leading, strict=False)
    )
    c = torch.empty(m, leading[2], dtype=kind, device="cuda")
    c[:, n:] = 0  # between the rows, which are copied back
    there = [a.cuda(), b.cuda()]
    grid, block = each.geometry(m, n, case.tile, case.dtype)
    trailing = each.trailing(Sizes(m, n, k, *leading), case.tile, case.dtype)
    args = (
        m, n, k, 1.0, there[0], leading[0], there[1], leading[1], 0.0, c, leading[2],
        *(MappedArray(there[x.place.array], x) if isinstance(x, TensorMap) else x
          for x in trailing),
    )  # fmt: skip
    shared = each.shared(case.tile, case.dtype)
    each.kernel(case.dtype, case.tile).launch(grid, block, args, shared, device=gpu)
    torch.cuda.synchronize()
    found, a, b = (x.double().cpu().numpy() for x in (c, a, b))  # NumPy may have no bfloat16
    return bool(check(found[:, :n], a[:, :k], b[:, :n], dtype=case.dtype).correct)


def is_right(a: Any, b: Any, d: Any) -> bool:
    """Return whether D is within the bound on the kernels' roundings."""
    from tilewise.bench.products import error_share

    if str(d.dtype) == "torch.float64":
        return bool(check(d.numpy(), a.numpy(), b.numpy()).correct)
    return error_share(a, b, d) <= 1


def matrices(
    case: Case, shape: tuple[int, int], swapped: bool, pad: int, dtype: str
) -> tuple[Any, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return random numbers on the host, and the shape and strides of the matrices in them."""
    import torch

    rows, columns = shape[::-1] if swapped else shape
    pitch = columns + pad
    flat = torch.randn(case.batch * rows * pitch).to(getattr(torch, dtype))
    strides = (1, pitch) if swapped else (pitch, 1)
    if case.batch == 1:
        return flat, (shape, strides)
    return flat, ((case.batch, *shape), (rows * pitch, *strides))


def operand(x: Any) -> Operand:
    """Return the strides and the offset of a tensor."""
    step = x.stride(0) if x.ndim == 3 else 0
    return Operand(x.stride(-2), x.stride(-1), step, offset(x.data_ptr()))


def plant() -> None:
    """Launch every kernel of PLANTED; their faults do no harm."""
    import torch

    gpu: Any = get_device("gpu")
    box = TensorMap(Place(0), "float32", (32, 8, 1), (128, 1024), (32, 8))
    for name, source, elements, args in (
        ("outside", 256, 255, (Place(1),)),
        ("race", 256, 256, (Place(1),)),
        ("unwritten", 256, 256, (Place(1),)),
        ("diverged", 256, 256, (Place(1),)),
        ("unwaited", 256, 256, (box, Place(1))),
        ("beyond", 128, 256, (box, Place(1))),
    ):
        x, y = torch.empty(source, device="cuda"), torch.empty(elements, device="cuda")
        block = 128 if name == "unwritten" else 256
        step = Step(Kernel(PLANTED, name), Launch((1, 1, 1), (block, 1, 1), args))
        execute(Plan((step,), 0, "", ""), gpu, 0, (x.data_ptr(), y.data_ptr()))
        torch.cuda.synchronize()


def command(tool: str, role: str) -> list[str]:
    """Return the command by which a tool checks a process of this script."""
    options = ["--report-api-errors", "no", "--print-limit", "1000"]
    return ["compute-sanitizer", "--tool", tool, *options, sys.executable, __file__, role]


def output(words: Sequence[str], seconds: float) -> str:
    """Return what a tool and the process under it printed."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=seconds, env={**os.environ, **ALONE}
    )
    return done.stdout + done.stderr


def reports(text: str) -> Iterator[tuple[int, str]]:
    """Yield, for each report, the number of its case (-1 before the first) and its first line.

    Its further lines are indented. Addresses, blocks and threads are left out.
    """
    index = -1
    for line in text.splitlines():
        if line.startswith(MARK):
            index = json.loads(line.removeprefix(MARK))["index"]
        elif found := re.match(r"========= (?! )(.+)", line):
            words = found[1]
            if not re.match(r"COMPUTE-SANITIZER|(ERROR|RACECHECK|LEAK) SUMMARY", words):
                yield index, re.sub(r"0x[0-9a-f]+|\(\d+,\d+,\d+\)", "…", words)


def summary(text: str) -> str:
    """Return a tool's summary of its reports, or the end of its output if it has none."""
    found = re.findall(r"========= ((?:ERROR|RACECHECK) SUMMARY: .*)", text)
    return found[-1] if found else "none: " + " / ".join(text.splitlines()[-3:])


def kernels(text: str) -> list[str]:
    """Return the kernels of PLANTED that a tool reported."""
    names = re.findall(r'extern "C" __global__ void (\w+)', PLANTED)
    return [name for name in names if re.search(rf"=========.* {name}\b", text)]


def main() -> None:
    """Run the tools, print their reports case by case, and write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("role", nargs="?", choices=("compute", "plant"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=600, help="that a tool may take")
    add_json(parser)
    options = parser.parse_args()
    if options.role:
        {"compute": compute, "plant": plant}[options.role]()
        return
    if shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer, of the CUDA toolkit, is not on the PATH")
    with ThreadPoolExecutor(2 * len(TOOLS)) as pool:
        texts = {
            (tool, role): pool.submit(output, command(tool, role), options.seconds)
            for tool in TOOLS
            for role in ("compute", "plant")
        }
    tools: dict[str, dict[str, Any]] = {}
    rows = [vars(case) | {"tiling": str(case.tiling or "planned")} for case in CASES]
    rows += [vars(case) | {"layout": "NN"} for case in LADDER]
    for tool in TOOLS:
        text, planted = (texts[tool, role].result() for role in ("compute", "plant"))
        found = Counter(reports(text))
        marks = [json.loads(line[len(MARK) :]) for line in text.splitlines() if line[:6] == MARK]
        for mark in marks:
            rows[mark.pop("index")].update(mark)
        tools[tool] = {
            "command": " ".join(command(tool, "")[:7]),
            "summary": summary(text),
            "computed": sum("right" in mark for mark in marks),
            "reports": [
                {"case": index, "report": words, "times": times}
                for (index, words), times in found.items()
            ],
            "planted_seen": kernels(planted),
            "planted_summary": summary(planted),
        }
    for index, row in enumerate(rows):
        counts = " ".join(
            f"{tool} {sum(x['times'] for x in tools[tool]['reports'] if x['case'] == index)}"
            for tool in TOOLS
        )
        size = "x".join(str(row[name]) for name in ("m", "n", "k"))
        verdict = "right" if row.get("right") else "WRONG"
        print(f"{size:15s} {row['dtype']:8s} {verdict}  {counts}  {row.get('chosen', 'not run')}")
    for tool, found_by in tools.items():
        print(f"{tool}: {found_by['summary']}; planted and seen: {found_by['planted_seen']}")
        for report in found_by["reports"]:
            print(f"  case {report['case']}, {report['times']} times: {report['report']}")
    if options.json:
        write(options.json, {"tools": tools, "cases": rows})
    clean = all(
        not found["reports"] and found["planted_seen"] and found["computed"] == len(rows)
        for found in tools.values()
    )
    if not (clean and all(row.get("right") for row in rows)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
