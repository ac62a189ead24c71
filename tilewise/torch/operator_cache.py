"""The cached calls of an operator, which is called for all layers.

In a graph that a compiler made, a layer's weight may be a new tensor at each call, so the cached
call is found by shapes and dtypes: layers that are alike share one, because their launches differ
by addresses alone.
"""

from __future__ import annotations

from collections.abc import Hashable

from tilewise.arrays.repeat import also_forgets
from tilewise.torch.call_cache import LAYERS, CallCache


class OperatorCaches(dict[Hashable, CallCache]):
    """The cached call of each kind of call, by what the operator's kernel takes for its key.

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
