"""Place arrays on the host, with any strides and overlaps, where a device can access them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.devices.extents import is_row_contiguous

Host = npt.NDArray[Any]


@dataclass(frozen=True)
class Given:
    """An array that a kernel is given.

    Attributes
    ----------
    name : str
        The kernel's parameter.
    value : object
        A NumPy array, a tensor of PyTorch's, or an array on the device.
    """

    name: str
    value: Any


@dataclass(frozen=True)
class Placed:
    """The arrays of a launch in the form that the device takes.

    Attributes
    ----------
    arguments : tuple
        For each array, the argument for the pointer to its first element.
    names : tuple of str
        The name of each array in findings.
    copy_back : callable
        A function that copies what the kernel wrote to the caller's arrays, if the launch itself
        does not.
    """

    arguments: tuple[Any, ...]
    names: tuple[str, ...]
    copy_back: Callable[[], None]


def is_array(value: Any) -> bool:
    """Return whether it is an array of some library, wherever it lies."""
    return all(hasattr(value, name) for name in ("shape", "dtype")) and not isinstance(
        value, np.generic
    )


def host_view(value: Any) -> Host | None:
    """Return the same elements as a NumPy array in the same memory; None of an array on a device.

    Raises
    ------
    TypeError
        If it is a tensor whose memory does not hold its elements.
    """
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or not value.is_cpu:
        return None
    plain = value.detach()
    if plain.layout != torch.strided or plain.is_neg() or plain.is_conj():
        raise TypeError(
            f"a {plain.layout} tensor, lazily negated {plain.is_neg()}, lazily conjugated "
            f"{plain.is_conj()}: its memory does not hold its elements; pass x.contiguous()"
        )
    try:
        view: Host = plain.numpy()
    except TypeError:  # a dtype that NumPy does not have
        bits = {1: torch.uint8, 2: torch.int16}[plain.element_size()]
        view = plain.view(bits).numpy()
    return view


def place(device: Device, given: Sequence[Given]) -> Placed:
    """Place arrays where a kernel can access them.

    An array whose axes follow one another in memory in some order is passed as it is, its axes in
    that order. Where it has other strides, or shares memory with another that begins or ends
    elsewhere, all of the memory that it spans is copied to the device at once.

    Parameters
    ----------
    device : Device
    given : sequence of Given

    Raises
    ------
    TypeError
        If a tensor's memory does not hold its elements.
    """
    arguments: list[Any] = [each.value for each in given]
    names = [each.name for each in given]
    hosts = {
        number: host for number, each in enumerate(given)
        if (host := host_view(each.value)) is not None
    }  # fmt: skip
    spans: list[_Span] = []
    for group in _groups(hosts):
        members = [hosts[number] for number in group]
        orders = [_order(host) for host in members]
        if len({_bounds(host) for host in members}) == 1 and None not in orders:
            for number, order in zip(group, orders, strict=True):
                assert order is not None
                arguments[number] = hosts[number].transpose(order)
                names[number] += _suffix(order)
            continue
        span = _Span(device, members)
        spans.append(span)
        for number in group:
            arguments[number] = span.argument(hosts[number])

    def copy_back() -> None:
        for span in spans:
            span.copy_back()

    return Placed(tuple(arguments), tuple(names), copy_back)


class _Span:
    """Host memory with several arrays, or one of odd strides, in it, copied to the device."""

    def __init__(self, device: Device, members: Sequence[Host]) -> None:
        bounds = [_bounds(host) for host in members]
        self._begin, end = min(low for low, _ in bounds), max(high for _, high in bounds)
        sizes = {host.dtype for host in members}
        dtype = sizes.pop() if len(sizes) == 1 else np.dtype(np.uint8)
        if any((low - self._begin) % dtype.itemsize for low, _ in bounds):
            dtype = np.dtype(np.uint8)
        # All of it lies in the arrays' common memory, which the members keep alive.
        memory = (ctypes.c_byte * (end - self._begin)).from_address(self._begin)
        self._host: Host = np.frombuffer(memoryview(memory), dtype)
        self._is_writeable = all(host.flags.writeable for host in members)
        self._members = tuple(members)
        self._array = device.array(self._host)

    def argument(self, host: Host) -> Any:
        """Return the argument of a launch for an array in this memory."""
        offset = int(host.__array_interface__["data"][0]) - self._begin
        return self._array if offset == 0 else self._array.pointer + offset

    def copy_back(self) -> None:
        """Give the caller's memory what the kernel wrote.

        Raises
        ------
        ValueError
            If it wrote, and one of the arrays is read-only.
        """
        result = self._array.to_numpy()
        if np.array_equal(result.view(np.uint8), self._host.view(np.uint8)):
            return
        if not self._is_writeable:
            raise ValueError("the kernel writes to memory of an array that is read-only")
        self._host[...] = result


def _bounds(host: Host) -> tuple[int, int]:
    """Return the addresses of an array's first byte and after its last one, for any strides."""
    low = high = int(host.__array_interface__["data"][0])
    if host.size == 0:
        return low, low
    for n, stride in zip(host.shape, host.strides, strict=True):
        if stride < 0:
            low += (n - 1) * stride
        else:
            high += (n - 1) * stride
    return low, high + host.itemsize


def _groups(hosts: dict[int, Host]) -> list[list[int]]:
    """Return arrays in groups that share memory, directly or through others."""
    groups: list[list[int]] = []
    end = -1
    for number in sorted(hosts, key=lambda number: _bounds(hosts[number])):
        low, high = _bounds(hosts[number])
        if groups and low < end and low < high:
            groups[-1].append(number)
        else:
            groups.append([number])
        end = max(end, high)
    return groups


def _order(host: Host) -> tuple[int, ...] | None:
    """Return the order of axes in which an array is row-contiguous; None where there is none."""
    plain = tuple(range(host.ndim))
    for order in (plain, tuple(sorted(plain, key=lambda axis: -host.strides[axis]))):
        shape = [host.shape[axis] for axis in order]
        strides = [host.strides[axis] for axis in order]
        if is_row_contiguous(shape, strides, host.itemsize):
            return order
    return None


def _suffix(order: Sequence[int]) -> str:
    """Return how findings name an array whose axes they give in another order than its own."""
    plain = tuple(range(len(order)))
    if tuple(order) == plain:
        return ""
    return ".T" if tuple(order) == plain[::-1] else f".transpose{tuple(order)}"
