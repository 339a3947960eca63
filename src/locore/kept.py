"""What was made is kept within a bound, and what was not used for longest goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values by key, of which all together may not be larger than a bound. Threads may share it."""

    def __init__(self, most: float, size: Callable[[V], float] = lambda value: 1.0) -> None:
        """Nothing has been kept.

        Args:
            most: that all sizes together may be.
            size: of one value; what is larger than all may be is not kept.
        """
        self._most, self._size, self._total = most, size, 0.0
        self._values: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """What was put there; None if nothing was, or it is gone."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> V:
        """Keep a value, which is given back."""
        size = self._size(value)
        if size > self._most:
            return value
        with self._lock:
            self._total += size - self._values.pop(key, (value, 0.0))[1]
            self._values[key] = value, size
            while self._total > self._most:
                self._total -= self._values.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._values.clear()
            self._total = 0.0
