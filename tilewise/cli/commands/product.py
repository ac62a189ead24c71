"""The commands about matmul."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Dtype,
    InGroups,
    Json,
    Layout,
    RequiredK,
    RequiredM,
    RequiredN,
    Rival,
    Stored,
    Suite,
    check_outputs,
    command_line,
    gpus,
    print_json,
    write_record,
)


def bench(
    suite: Annotated[
        Suite,
        typer.Option(
            help="square: 128 to 16384; llm: weights of language models; odd: strides, depths and "
            "layouts that don't fit; thin: a few rows or columns; or all."
        ),
    ] = Suite.square,
    random: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            help="Instead of a suite, as many products drawn at random: sizes log-uniform from 64 "
            "to 12288, each layout.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of --random: the same one draws the same.")] = 0,
    multiple: Annotated[int, typer.Option(help="Of --random: sizes are its multiples.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of A and B.")] = Dtype.bfloat16,
    rival: Annotated[Rival, typer.Option(help="What is timed beside ours.")] = Rival.torch,
    rounds: Annotated[int, typer.Option(help="The median of so many counts.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of each, a product and round.")] = 0.1,
    record_to: Annotated[
        Path | None,
        typer.Option("--json", metavar="F", help="Write what was measured; - prints it."),
    ] = None,
    plot_to: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="F.png", help="Draw the squares, and the ladder measured beside them."
        ),
    ] = None,
) -> int:
    """How fast matmul is beside PyTorch's, on an NVIDIA GPU.

    Each product is checked, then both are timed in turn.
    """
    from tilewise.bench import plot, record
    from tilewise.bench.suites import SUITES, Random
    from tilewise.cli import show

    suites = tuple(SUITES) if suite is Suite.all else (suite.value,)
    drawn = None
    if random:
        suites, drawn = (), Random(random, seed, multiple)
    settings = record.Settings(suites, dtype.value, rounds, seconds, drawn)
    if plot_to is not None:
        if "square" not in suites:
            what = "--random" if random else f"--suite {suite.value}"
            raise ValueError(f"--plot draws squares, and {what} has none")
        plot.check(plot_to)
    check_outputs(record_to, plot_to)
    of_random = {"--random": random, "--seed": seed, "--multiple": multiple}
    command = command_line("bench", {
        "--suite": suite.value, "--dtype": dtype.value, "--rival": rival.value,
        "--rounds": rounds, "--seconds": seconds, **(of_random if random else {}),
        "--json": record_to, "--plot": plot_to,
    })  # fmt: skip
    gpu = record.find_gpu()
    with show.progress(settings.steps, "bench") as step:
        document = record.run(settings, gpu, step, command)
    if str(record_to) == "-":
        print_json(document)
    else:
        show.bench(document)
        if record_to is not None:
            write_record(document, record_to)
    if plot_to is not None:
        plot.draw(document, plot_to)
    return RIGHT if document["correct"] else WRONG


def explain(
    m: RequiredM,
    n: RequiredN,
    k: RequiredK,
    dtype: Annotated[Dtype, typer.Option(help="Of all three matrices.")] = Dtype.bfloat16,
    layout: Annotated[
        Layout | None,
        typer.Option(
            help="A's letter and B's: T is stored transposed. By default NN, and TN where k is in "
            "groups."
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            metavar="G",
            help="Explain grouped_matmul with so many groups. M, or K with --in-groups k, is the "
            "total of all groups.",
        ),
    ] = None,
    in_groups: Annotated[
        InGroups,
        typer.Option(
            help="With --groups, the divided size: m if each group of rows of A has its own "
            "B; k for the gradient of these B, with a result for each group."
        ),
    ] = InGroups.m,
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu",
            metavar="GPU",
            help="The GPU to plan for, as a100 or rtx4090: any that `roofline --on` takes.",
            autocompletion=gpus,
        ),
    ] = "h200",
    multiprocessors: Annotated[
        int | None, typer.Option(help="The number to plan for, if not all of the GPU's are free.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say how a product would be computed on a GPU, and why.

    It shows the kernel, its tiles and launches, the time that the model expects, and the next best
    choices. It needs no GPU.
    """
    from tilewise.cli import show
    from tilewise.explanation import explain_product, of_groups, of_shape
    from tilewise.gemm.chip import known

    chip = known(gpu, multiprocessors)
    if groups is not None:
        stored = None if layout is None else layout.value
        grouped = of_groups(m, n, k, groups, dtype.value, stored, of=in_groups.value)
        found = explain_product(grouped, chip)
    elif in_groups is not InGroups.m:
        raise ValueError("--in-groups is for grouped products: give --groups too")
    else:
        product = of_shape(m, n, k, dtype.value, (layout or Layout.NN).value)
        found = explain_product(product, chip)
    if as_json:
        print_json(found.to_dict())
    else:
        print(found.text(min(show.console().width, 80)))
    return RIGHT


def tune(
    m: RequiredM,
    n: RequiredN,
    k: RequiredK,
    dtype: Annotated[Dtype, typer.Option(help="Of all three matrices.")] = Dtype.bfloat16,
    layout: Stored = Layout.NN,
    seconds: Annotated[float, typer.Option(help="Of timing, roughly.")] = 2.0,
    as_json: Json = False,
) -> int:
    """Measure what should be fastest, and keep the winner.

    matmul takes it from then on for products of this shape, layout and dtype.
    """
    from tilewise.cli import show
    from tilewise.tune import steps
    from tilewise.tune import tune as measure

    with show.progress(steps(1), "tune") as step:
        (found,) = measure(
            (m, n, k), dtype=dtype.value, layout=layout.value, seconds=seconds, step=step
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show.tuned(found)
    return RIGHT if found.correct else WRONG
