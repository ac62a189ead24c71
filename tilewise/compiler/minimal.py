"""Which sources need nothing that NVRTC leaves out with ``--minimal``.

NVRTC declares textures, surfaces and CUDA's runtime before every source, which is a good part of
its work for a small kernel. With ``--minimal`` it leaves them out (NVRTC's user guide, "Supported
Compile Options"); the code of a source that names none of them is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

OPTION = "--minimal"
# The beginnings of all names that are left out, except for members of structures. Launches from
# device code are left out too. And ## can paste such a name of pieces, and the option defines a
# macro that a source can ask for.
_LEFT_OUT = re.compile(
    r"\b_*(?:cuda|CU(?!DA_ARCH)|(?:nv_)?i?(?:tex|surf)|NV_TEX|libraryProperty|PATCH_LEVEL"
    r"|M(?:AJ|IN)OR_VERSION)|RTC_MINIMAL|<<<|##|%:%:|\?\?="
)


def is_enough(texts: Iterable[str]) -> bool:
    """Return whether texts, which are all that NVRTC reads, name nothing that is left out."""
    return not any(map(_LEFT_OUT.search, texts))
