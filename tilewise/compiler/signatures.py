"""The types that a source declares parameters and variables with, by the compiler's own word.

PTX says ``.u64`` of every pointer, and ``.u32`` of ``int`` and ``unsigned`` alike. So NVRTC's front
end reads the source once more, with a template at its end that turns the type of each parameter
into a number; the numbers come back in a mangled name (Itanium C++ ABI, 5.1). Macros, typedefs,
headers and templates are thereby what they are to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tilewise.compiler import nvrtc
from tilewise.compiler.type_names import TOLD

# The types of cuda_fp16.h and cuda_bf16.h, which few sources include.
_HEADERS = ("__half", "__nv_bfloat16", "__half2", "__nv_bfloat162")
_POINTER = 100  # added to the code of what a pointer points to
_VARIABLES = 1 << 20  # the number of the first variable, larger than those of types
_SPACE = "tilewise_signature"
Run = Callable[[str, str, str], nvrtc.Output]
# A macro of the source could be any short name.
_PROBE = "\n".join(
    (
        "\n",
        *(f"struct {name};" for name in _HEADERS),
        f"namespace {_SPACE} {{",
        "template <class TwType_> struct TwNumber_ { enum { tw_number_ = 0 }; };",
        *(
            f"template <> struct TwNumber_<{name}> {{ enum {{ tw_number_ = {number} }}; }};"
            for number, name in enumerate(TOLD, 1)
        ),
        *(
            f"template <class TwType_> struct TwNumber_<{qualifiers} TwType_> : TwNumber_<TwType_> "
            "{};"
            for qualifiers in ("const", "volatile", "const volatile")
        ),
        "template <class TwType_> struct TwNumber_<TwType_*> {"
        f"  enum {{ tw_number_ = {_POINTER} + TwNumber_<TwType_>::tw_number_ }};"
        "};",
        "template <int... tw_numbers_> struct TwList_ {};",
        "template <class... TwLists_> struct TwMany_ {};",
        # The element's type and the extents of a variable, by its number.
        "template <int tw_number_, class TwType_, int... tw_extents_> struct TwShape_ {"
        "  typedef TwList_<tw_number_, TwNumber_<TwType_>::tw_number_, tw_extents_...> TwTold_;"
        "};",
        "template <int tw_number_, class TwType_, decltype(sizeof(0)) tw_extent_, "
        "int... tw_extents_>",
        "struct TwShape_<tw_number_, TwType_[tw_extent_], tw_extents_...>"
        "  : TwShape_<tw_number_, TwType_, tw_extents_..., int(tw_extent_)> {};",
        "template <class... TwTypes_>",
        "TwList_<TwNumber_<TwTypes_>::tw_number_...> tw_of_(void (*)(TwTypes_...));",
        "template <class TwList_> __global__ void tw_told_() {}",
        "}",
        "",
    )
)


@dataclass(frozen=True)
class Told:
    """The declarations that the compiler reports.

    Attributes
    ----------
    parameters : tuple of str
        The type of each parameter, without ``const`` and ``__restrict__``, such as
        ``"unsigned int"`` or ``"float*"``; ``""`` for a structure or another unknown type, and
        ``"*"`` for a pointer to one. Empty if nothing is known, as for a kernel that is asked for
        by its mangled name.
    variables : dict
        The type of an element and the extents of each variable that is visible at the end of the
        source.
    """

    parameters: tuple[str, ...] = ()
    variables: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


def told(kernel: str, names: Sequence[str], run: Run, most: int = 10) -> Told:
    """Return how a kernel's parameters and the module's variables are declared.

    Parameters
    ----------
    kernel : str
        The kernel's name, as in :func:`tilewise.compiler.compile`; empty to leave out its
        parameters.
    names : sequence of str
        The names of the variables in the source, with their namespaces.
    run : callable
        A function that compiles the kernel's source again with further text at its end, a further
        option for NVRTC and another name expression, its three arguments.
    most : int
        The most calls of it, since one name that is not visible spoils the answer for all.

    Returns
    -------
    Told
    """
    asked = [f"decltype({_SPACE}::tw_of_(&{kernel}))"] * bool(kernel)
    asked += (
        f"{_SPACE}::TwShape_<{number}, decltype({name})>::TwTold_"
        for number, name in enumerate(names, _VARIABLES)
    )
    if not asked or most < 1:
        return Told()
    wanted = f"{_SPACE}::tw_told_<{_SPACE}::TwMany_<{', '.join(asked)}>>"
    output = run(_PROBE, "--fdevice-syntax-only", wanted)
    if output.ok:
        return _read(names, output.symbol)
    if kernel and names:
        of_kernel = told(kernel, (), run, 1)
        return replace(told("", names, run, most - 2), parameters=of_kernel.parameters)
    middle, half = len(names) // 2, (most - 1) // 2
    if not middle:
        return Told()
    first, second = (told("", part, run, half) for part in (names[:middle], names[middle:]))
    return Told((), first.variables | second.variables)


def _read(names: Sequence[str], symbol: str) -> Told:
    """Return the types in a mangled name."""
    parameters: tuple[str, ...] = ()
    variables = {}
    for listed in re.findall(r"IJ((?:Li\d+E)*)E", symbol):
        numbers = [int(number) for number in re.findall(r"Li(\d+)E", listed)]
        if numbers and numbers[0] >= _VARIABLES:
            number, kind, *extents = numbers
            variables[names[number - _VARIABLES]] = _spelled(kind), tuple(extents)
        else:
            parameters = tuple(map(_spelled, numbers))
    return Told(parameters, variables)


def _spelled(number: int) -> str:
    stars, place = divmod(number, _POINTER)
    return (TOLD[place - 1] if place else "") + "*" * stars
