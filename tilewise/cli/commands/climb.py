"""The ladder's speed beside the vendor's product."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Dtype,
    check_outputs,
    command_line,
    print_json,
    write_record,
)


def climb(
    sizes: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="m, n and k, comma between. By default 128 to 8192."),
    ] = None,
    kernels: Annotated[
        str | None,
        typer.Option(metavar="RUNG,RUNG", help="Of the rungs, and matmul. By default all."),
    ] = None,
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            "--dtype",
            metavar="float32|float64|float16|bfloat16",
            help="Of the rungs that take it; may be given again. By default float32 and bfloat16: "
            "each rung in one of them.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="The median of so many counts.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of each, a size and round.")] = 0.05,
    record_to: Annotated[
        Path | None,
        typer.Option("--json", metavar="F", help="Write what was measured; - prints it."),
    ] = None,
    plot_to: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="F.png", help="Draw the rungs at 4096, or at the largest size."
        ),
    ] = None,
    plot_sizes_to: Annotated[
        Path | None,
        typer.Option("--plot-sizes", metavar="F.png", help="Draw TFLOP/s over size, of each."),
    ] = None,
) -> int:
    """Time each rung beside the vendor's product, on a GPU.

    Each is checked, then all of one dtype are timed in turn: the rungs, matmul, and PyTorch's
    matmul without TF32. A rung stops where a launch would take more than 2 s, and is left out where
    the GPU can't run it.
    """
    from tilewise.bench import climb as asked
    from tilewise.bench import climb_plot, climb_sizes_plot, record
    from tilewise.cli import show
    from tilewise.cli.show import climb as shown

    settings = asked.Settings(
        asked.SIZES if sizes is None else _numbers(sizes),
        () if kernels is None else tuple(name.strip() for name in kernels.split(",")),
        tuple(each.value for each in dtype or ()),
        rounds,
        seconds,
    )
    if plot_to is not None and plot_to == plot_sizes_to:
        raise ValueError(
            f"--plot and --plot-sizes are both {plot_to}; each takes a file of its own"
        )
    asked_plots = ((plot_to, climb_plot.draw), (plot_sizes_to, climb_sizes_plot.draw))
    plots = [(path, draw) for path, draw in asked_plots if path is not None]
    for path, _ in plots:
        climb_plot.check(path)
    check_outputs(record_to, plot_to, plot_sizes_to)
    command = command_line("climb", {
        "--sizes": ",".join(map(str, settings.sizes)),
        "--kernels": ",".join(settings.kernels) or None, "--dtype": settings.dtypes,
        "--rounds": rounds, "--seconds": seconds, "--json": record_to, "--plot": plot_to,
        "--plot-sizes": plot_sizes_to,
    })  # fmt: skip
    gpu = record.find_gpu()
    from tilewise.bench import rungs  # PyTorch, which is slow to import, and may not be there

    with show.progress(settings.steps, "climb") as step:
        document = rungs.run(settings, gpu, step, command)
    if str(record_to) == "-":
        print_json(document)
    else:
        shown.climb(document)
        if record_to is not None:
            write_record(document, record_to)
    for path, draw in plots:
        draw(document, path)
    return RIGHT if document["correct"] else WRONG


def _numbers(words: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise ValueError(f"--sizes is {words!r}; it takes the form 128,256,512") from None
