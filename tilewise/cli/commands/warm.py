"""The command that compiles kernels beforehand."""

from __future__ import annotations

from itertools import product as combinations
from typing import Annotated

import typer

from tilewise.cli.commands.options import RIGHT, WRONG, Dtype, Json, Layout, print_json


def warm(
    m: Annotated[list[int] | None, typer.Option("-m", metavar="M", help="Rows of A.")] = None,
    n: Annotated[list[int] | None, typer.Option("-n", metavar="N", help="Columns of B.")] = None,
    k: Annotated[list[int] | None, typer.Option("-k", metavar="K", help="Columns of A.")] = None,
    groups: Annotated[
        list[int] | None,
        typer.Option(
            metavar="G",
            help="For grouped products with so many groups, and for no others. M counts the rows "
            "of all groups; gradients are included.",
        ),
    ] = None,
    dtype: Annotated[
        list[Dtype] | None, typer.Option(help="Of A and B; by default all of them.")
    ] = None,
    layout: Annotated[
        list[Layout] | None,
        typer.Option(
            help="A's letter and B's: T is stored transposed. By default all of them, and with "
            "--groups NN and NT."
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="sm_XX",
            help="By default the GPU's that is here, or an H200's. It compiles what matmul takes "
            "on such a GPU, and for sm_90 it compiles for sm_90a.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Compile kernels into the cache beforehand.

    Then no call waits for the compiler. It compiles what usual products ask for (all of float32 and
    float64; of 16 bits those with rows that begin at multiples of 16 bytes, no C, and a result of
    the inputs' dtype), or with -m, -n and -k those of given products: each option may be repeated,
    and every combination counts. With --groups they are those of grouped_matmul. It needs no GPU,
    and uses up to 16 cores.
    """
    from tilewise.cli import show
    from tilewise.gemm.product import DTYPES
    from tilewise.warm import warm as compile_all

    sizes = list(combinations(m or (), n or (), k or ()))
    if not sizes and (m or n or k):
        lacking = [name for name, given in (("-m", m), ("-n", n), ("-k", k)) if not given]
        are = f"{lacking[0]} is" if len(lacking) == 1 else f"{' and '.join(lacking)} are"
        raise ValueError(f"{are} missing: -m, -n and -k go together")
    if layout and not sizes:
        raise ValueError("--layout is of given products: give -m, -n and -k too")
    with show.counting("compiling") as step:
        found = compile_all(
            sizes or None,
            groups=groups or None,
            dtypes=[each.value for each in dtype or ()] or DTYPES,
            layouts=[each.value for each in layout or ()] or None,
            arch=arch,
            step=step or (lambda done, total: None),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show.warmed(found)
    return RIGHT if found.ok else WRONG
