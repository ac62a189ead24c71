"""What is asked of an array before it is multiplied."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tilewise.arrays.call import check


def test_checking_arrays_does_not_import_numpy_ma() -> None:
    """That takes several milliseconds, and more where files are slow to read."""
    code = (
        "import sys, numpy as np\n"
        "from tilewise.arrays.call import check\n"
        "a = np.ones((4, 4), np.float32)\n"
        "check(a, a, None, 1, 0, False, False, a.copy(), None, 'auto')\n"
        "assert 'numpy.ma' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_masked_arrays_are_refused() -> None:
    a = np.ones((4, 4), np.float32)
    with pytest.raises(TypeError, match="b is a masked array; pass b"):
        check(a, np.ma.masked_array(a), None, 1, 0, False, False, None, None, "auto")
