"""The cached calls of an operator, which all layers of a graph share.

In a compiled graph a layer's weight may be a new tensor at each call, so the cached call is found
by shapes and dtypes. Layers of the same shapes and dtypes share one, because their launches differ
only in addresses.
"""

from __future__ import annotations

from collections.abc import Hashable

from tilewise.arrays.repeat import also_forgets
from tilewise.torch.call_cache import LAYERS, CallCache


class OperatorCaches(dict[Hashable, CallCache]):
    """The cached call for each key, which the operator's kernel makes of shapes and dtypes.

    :meth:`tilewise.torch.call_cache.CachedCall.addresses` compares the tensors themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        also_forgets(self.clear)

    def of(self, key: Hashable) -> CallCache:
        """Return the cache of the calls with a key."""
        found = self.get(key)
        if found is None:
            if len(self) >= LAYERS:
                self.clear()
            found = self.setdefault(key, CallCache())
        return found
