"""The elements of a wrong C, with what they are and what they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise import numbers
from tilewise.devices.emulator import EmulatorArray
from tilewise.lens.sentences import Place
from tilewise.lens.steps import plain_numbers
from tilewise.lens.traced_arrays import MOST_VALUES
from tilewise.specs import expected as expectations
from tilewise.specs.expected import Compared, Expected

Matrix = npt.NDArray[Any]


def wrong_elements(
    result: Matrix, a: Matrix, b: Matrix, old: Matrix | None, alpha: float, beta: float,
    unwritten: npt.NDArray[np.bool_] | None,
) -> dict[str, Any] | None:  # fmt: skip
    """Return the elements of C that are wrong by the bound of :func:`tilewise.numbers.check`.

    Parameters
    ----------
    result, old : ndarray, (m, n)
        C after the launch, and C before it; None if there was none.
    a, b : ndarray, (m, k) and (k, n)
    alpha, beta : float
    unwritten : ndarray of bool, (m, n), or None
        The elements that no thread wrote, if they are known; they count as wrong.

    Returns
    -------
    dict or None
        The member ``wrong`` of docs/trace.md; None if no element is wrong, or if C is too large
        for its values to be shown.
    """
    if result.size > MOST_VALUES:
        return None
    wrong = numbers.wrong_elements(result, a, b, old, alpha, beta)
    if unwritten is not None:
        wrong |= unwritten
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        right = alpha * (a.astype(np.float64) @ b.astype(np.float64))
        if old is not None:
            right += beta * old.astype(np.float64)
    computed = plain_numbers(result[wrong])
    if unwritten is not None:
        pairs = zip(computed, unwritten[wrong].tolist(), strict=True)
        computed = [None if is_left else value for value, is_left in pairs]
    rows, columns = np.nonzero(wrong)
    return {
        "array": "c", "at": [[int(i), int(j)] for i, j in zip(rows, columns, strict=True)],
        "computed": computed, "right": plain_numbers(right[wrong]),
    }  # fmt: skip


def compare_arrays(
    expected: Sequence[Expected], arrays: Mapping[str, EmulatorArray]
) -> tuple[tuple[Compared, ...], dict[str, Any] | None]:
    """Compare arrays after a launch with their expected values, and list wrong elements.

    Parameters
    ----------
    expected : sequence of Expected
    arrays : mapping of str to EmulatorArray
        The arrays after the launch, by their names.

    Returns
    -------
    compared : tuple of Compared
        One for each member of ``expected``.
    wrong : dict or None
        The member ``wrong`` of a trace (docs/trace.md), for the first wrong array that is small
        enough to be shown with its values; None if there is no such array.
    """
    compared, marked = [], None
    for each in expected:
        array = arrays[each.name]
        result, unwritten = array.to_numpy(), array.unwritten_elements()
        compared.append(expectations.compare(each, result, unwritten=unwritten))
        wrong = expectations.wrong_elements(each, result, unwritten).reshape(-1)
        if marked is not None or not wrong.any() or result.size > MOST_VALUES:
            continue
        computed: list[Any] = plain_numbers(result.reshape(-1)[wrong])
        if unwritten is not None:
            pairs = zip(computed, unwritten.reshape(-1)[wrong].tolist(), strict=True)
            computed = [None if is_left else value for value, is_left in pairs]
        columns = Place.of(each.name, array).columns
        marked = {
            "array": each.name, "at": [divmod(i, columns) for i in np.flatnonzero(wrong).tolist()],
            "computed": computed, "right": plain_numbers(each.value.reshape(-1)[wrong]),
        }  # fmt: skip
    return tuple(compared), marked
