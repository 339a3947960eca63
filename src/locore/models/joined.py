"""One forward pass for rows behind different prompts.

All layers but attention see one batch. Attention looks at the rows of each prompt by themselves, as if these were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from locore.models.attention import KeyValues, SharedCache, Tails


@dataclass(frozen=True, eq=False)
class Part:
    """Rows behind one prompt, each of which is fed one token.

    Attributes:
        prompt: what all of them have read.
        tails: what each has read since.
        tokens: Long[rows].
    """

    prompt: KeyValues
    tails: Tails
    tokens: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def read(self) -> int:
        """How many tokens each row has read."""
        return self.prompt.length + self.tails.length


class JoinedCache(Cache):
    """What one forward pass over several parts reads, and what it adds to each: a `SharedCache` for every part."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Rows in the order of the parts."""
        super().__init__(layers=[DynamicLayer() for _ in parts[0].prompt.layers])  # type: ignore[no-untyped-call]
        self.caches = [SharedCache(part.prompt, part.tails, keeps=True) for part in parts]
        self._sizes = [len(part) for part in parts]
        self._longest = max(part.read for part in parts)
        self._layer = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The most that a row has read; where each row stands is told by its position."""
        return self._longest

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """As many keys as the longest row has."""
        return self._longest + query_length, 0

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Note which layer comes next."""
        self._layer = layer_idx
        return key_states, value_states

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """As `SharedCache.attend`, for the rows of each part."""
        found = []
        split = (torch.split(tensor, self._sizes) for tensor in (query, key, value))
        for cache, queries, keys, values in zip(self.caches, *split, strict=True):
            cache.update(keys, values, self._layer)
            found.append(cache.attend(queries, keys, values, scaling))
        return torch.cat(found)

    def record(self, hidden: Tensor) -> None:
        """As `SharedCache.record`, for the rows of each part."""
        for cache, part in zip(self.caches, torch.split(hidden, self._sizes), strict=True):
            cache.record(part)
