"""The types that a source declares a kernel's parameters with, by the compiler's own word.

PTX says ``.u64`` of every pointer, and ``.u32`` of ``int`` and ``unsigned`` alike. So NVRTC's front
end reads the source once more, with a template at its end that turns the type of each parameter
into a number; the numbers come back in a mangled name (Itanium C++ ABI, 5.1). Macros, typedefs,
headers and templates are thereby what they are to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tilewise.compiler import nvrtc

_TYPES = (
    "void", "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int",
    "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "float", "double",
    "__half", "__nv_bfloat16", "__half2", "__nv_bfloat162", "float2", "float3", "float4", "double2",
)  # fmt: skip
"""Those that are told apart; a parameter's number is a place in here, from 1."""
# Of cuda_fp16.h and cuda_bf16.h, which few sources include.
_HEADERS = ("__half", "__nv_bfloat16", "__half2", "__nv_bfloat162")
_POINTER = 100  # that much is added to what a pointer points to
_SPACE = "tilewise_signature"
# A macro of the source could be any short name.
_PROBE = "\n".join(
    (
        "\n",
        *(f"struct {name};" for name in _HEADERS),
        f"namespace {_SPACE} {{",
        "template <class TwType_> struct TwNumber_ { enum { tw_number_ = 0 }; };",
        *(
            f"template <> struct TwNumber_<{name}> {{ enum {{ tw_number_ = {number} }}; }};"
            for number, name in enumerate(_TYPES, 1)
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
        # Of the variable of a number: its element's type, and its extents.
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


def declared(name: str, run: Callable[[str, str, str], nvrtc.Output]) -> tuple[str, ...]:
    """How a kernel's parameters are declared, without ``const`` and ``__restrict__``.

    Parameters
    ----------
    name : str
        The kernel's, as :func:`tilewise.compiler.compile` has it.
    run : callable
        Compiles the kernel's source as it was compiled, but with a text behind it, with one more
        option for NVRTC and with another name expression: the three are its arguments.

    Returns
    -------
    tuple of str
        One a parameter, as ``"unsigned int"`` or ``"float*"``; ``""`` of a structure or another
        type that is not known here, and ``"*"`` of a pointer to one. Empty where nothing can be
        told, as of a kernel that is asked for by its mangled name.
    """
    told = f"{_SPACE}::tw_told_<decltype({_SPACE}::tw_of_(&{name}))>"
    output = run(_PROBE, "--fdevice-syntax-only", told)
    listed = re.search(r"7TwList_IJ((?:Li\d+E)*)EE", output.symbol)
    if not output.ok or listed is None:
        return ()
    return tuple(_spelled(int(number)) for number in re.findall(r"Li(\d+)E", listed[1]))


def variables(
    names: Sequence[str], run: Callable[[str, str, str], nvrtc.Output], most: int = 8
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """How variables of the module are declared: the type of an element, and the extents.

    Parameters
    ----------
    names : sequence of str
        As the source has them, with their namespaces.
    run : callable
        As :func:`declared` takes it.
    most : int
        How often it may be called: one name that is not visible spoils the answer for all.

    Returns
    -------
    dict
        Of those that are visible at the end of the source.
    """
    asked = ", ".join(
        f"{_SPACE}::TwShape_<{number}, decltype({name})>::TwTold_"
        for number, name in enumerate(names)
    )
    output = run(_PROBE, "--fdevice-syntax-only", f"{_SPACE}::tw_told_<{_SPACE}::TwMany_<{asked}>>")
    if not output.ok:
        if len(names) == 1 or most < 3:
            return {}
        middle, half = len(names) // 2, (most - 1) // 2
        return variables(names[:middle], run, half) | variables(names[middle:], run, half)
    found = {}
    for listed in re.findall(r"IJ((?:Li\d+E)+)E", output.symbol):
        number, kind, *extents = map(int, re.findall(r"Li(\d+)E", listed))
        found[names[number]] = _spelled(kind), tuple(extents)
    return found


def _spelled(number: int) -> str:
    stars, place = divmod(number, _POINTER)
    return (_TYPES[place - 1] if place else "") + "*" * stars
