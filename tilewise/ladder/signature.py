"""The signature of the ladder's kernels, and the check that a kernel has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from tilewise.compiler import Compiled
from tilewise.devices import arguments, elements
from tilewise.ladder.problem import Gemm
from tilewise.places import TensorMap
from tilewise.precision import HALVES
from tilewise.tensor_map import MappedArray

SIGNATURE = (
    "(int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb, "
    "real beta, real* c, int ldc)"
)
"""The signature of the ladder's kernels up to ``tuned``, and of others run in place of one."""
HALF_SIGNATURE = SIGNATURE.replace("real alpha", "float alpha").replace("real beta", "float beta")
HALF_SIGNATURE = HALF_SIGNATURE.replace("real*", "half_t*")
"""The signature for 16-bit matrices; ``half_t`` is any 16-bit type, such as ``unsigned short``."""
OTHERWISE = (
    "A kernel of any other signature is launched by kernel.launch(grid, block, args), profiled by "
    "kernel.profile(grid, block, args), and watched by `tilewise watch FILE.cu:NAME --grid ... "
    "--block ... --args ...`"
)
"""A sentence on how to run a kernel that does not compute a product."""
REAL = ("float", "double")
MATRICES = {"A": 4, "B": 6, "C": 9}
"""The indices of the matrices among the arguments."""


def in_order(
    gemm: Gemm, a: Any, b: Any, c: Any, trailing: Sequence[TensorMap | bytes] = ()
) -> tuple[Any, ...]:
    """Return the arguments of a product in the signature's order, with the matrices in any place.

    Parameters
    ----------
    gemm : Gemm
    a, b, c : array, or an address
    trailing : sequence of TensorMap or bytes
        The further arguments of a rung's kernel: tensor maps of the arrays 0, 1 and 2.
    """
    matrices = a, b, c
    return (
        gemm.m, gemm.n, gemm.k, gemm.alpha, a, gemm.lda, b, gemm.ldb, gemm.beta, c, gemm.ldc,
        *(
            MappedArray(matrices[x.place.array], x) if isinstance(x, TensorMap) else x
            for x in trailing
        ),
    )  # fmt: skip


def check_signature(compiled: Compiled, gemm: Gemm, args: Sequence[Any]) -> None:
    """Raise TypeError if a kernel does not take a product's arguments, and say what is right.

    Parameters
    ----------
    compiled : Compiled
    gemm : Gemm
    args : sequence
        The arguments, as :func:`in_order` returns them.
    """
    name, dtype = compiled.name, gemm.dtype.name
    signature = HALF_SIGNATURE if dtype in HALVES else SIGNATURE
    if len(compiled.parameters) == len(args):
        for matrix, index in MATRICES.items():
            declared = compiled.parameters[index].declared
            wanted = elements.refused(declared, gemm.dtype)
            if wanted:
                told = f"{name} declares {matrix} as {declared}, and the matrices are {dtype}. "
                if dtype in HALVES:
                    told += f"Take dtype {wanted}, or for {dtype} a type of 16 bits, as "
                    told += "`unsigned short*`"
                elif declared.strip("* ").removeprefix("const ") in REAL:
                    told += f"Take dtype {wanted}, or write `real` for {declared[:-1]} in the "
                    told += "kernel: that macro is the type of the matrices"
                else:
                    told += "A kernel that computes a product takes `real*`: that macro is the "
                    told += "type of the matrices"
                raise TypeError(told)
    try:
        arguments.bind(name, compiled.parameters, args)
    except TypeError as error:
        raise TypeError(
            f"{error}. A kernel that computes a product has the signature {name}{signature}. "
            f"{OTHERWISE}"
        ) from None


def refuse_launch(function: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise TypeError if a function of products is given arguments that it does not have.

    Parameters
    ----------
    function : str
        Its name.
    given : mapping
        The arguments that it does not have, by name.
    known : iterable of str
        The names of the arguments that it has.
    """
    for name in given:
        near = get_close_matches(name, list(known), 1)
        meant = f"; did you mean {near[0]}?" if near else f". It takes products. {OTHERWISE}"
        raise TypeError(f"{function}() has no argument {name!r}{meant}")


def takes_product(compiled: Compiled) -> bool:
    """Return whether a kernel has the ladder's signature, with any types."""
    pointers = [
        index for index, x in enumerate(compiled.parameters)
        if x.declared.endswith("*") or (not x.declared and arguments.takes_address(x))
    ]  # fmt: skip
    return len(compiled.parameters) == 11 and pointers == list(MATRICES.values())
