"""One forward pass for rows behind different prompts.

All layers but attention see one batch. Attention gathers what all rows have read and looks at them together where that is
little: prompts and tails are short, and a request by itself would hardly keep the processor busy. Where it is much it looks at
the rows of each prompt by themselves, as if these were alone, and no prompt is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache, DynamicLayer

from locore.kernel.limits import may_stop
from locore.kernel.plugins import cached_property
from locore.models.attention import KeyValues, SharedCache, Tails

GATHERED_BYTES = 2**25  # of keys and values of one layer that are gathered for all rows


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
        self._parts, self._sizes = parts, [len(part) for part in parts]
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
        numbers = (self._longest + 1) * (key.numel() + value.numel())
        if numbers * key.itemsize <= GATHERED_BYTES:
            return self._together(query, key, value, scaling)
        attended = []
        split = (torch.split(tensor, self._sizes) for tensor in (query, key, value))
        for cache, queries, keys, values in zip(self.caches, *split, strict=True):
            cache.update(keys, values, self._layer)
            attended.append(cache.attend(queries, keys, values, scaling))
        return torch.cat(attended)

    @cached_property
    def _visible(self) -> Tensor | None:
        """Bool[rows, 1, 1, longest + 1]: which keys each row has, its new one at the end; None if all rows have as many."""
        read = torch.tensor([part.read for part in self._parts])
        if bool((read == self._longest).all()):
            return None
        of_rows = torch.repeat_interleave(read, torch.tensor(self._sizes))[:, None]
        places = torch.arange(self._longest + 1)
        seen = (places < of_rows) | (places == self._longest)
        return seen[:, None, None].to(self._parts[0].prompt.layers[0][0].device)

    def _together(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention of all rows at once, to copies of what each has read."""
        may_stop()
        (batch, heads, _, size), shared = query.shape, key.shape[1]
        new = torch.cat([key, value], -1)
        read = new.new_zeros(self._longest + 1, batch, shared, new.shape[-1])  # nothing undefined, also where nobody looks
        for cache, part, rows, some in zip(
            self.caches, self._parts, torch.split(read, self._sizes, 1), torch.split(new, self._sizes), strict=True
        ):
            cache.keep(self._layer, some)
            prompt = part.prompt.layers[self._layer]
            for stored, place in zip(prompt, torch.split(rows[: part.prompt.length], [size, value.shape[-1]], -1), strict=True):
                place.copy_(stored[0].transpose(0, 1)[:, None].expand_as(place))
            if part.tails.length:
                part.tails.fill(self._layer, rows[part.prompt.length : part.read])
        read[-1] = new[:, :, 0]
        keys, values = torch.split(read.permute(1, 2, 0, 3), [size, value.shape[-1]], -1)
        # Heads with the same keys are more queries to them.
        grouped = query.reshape(batch, shared, -1, size)
        attended = scaled_dot_product_attention(grouped, keys, values, self._visible, scale=scaling)
        return attended.reshape(batch, heads, 1, -1).transpose(1, 2)

    def record(self, hidden: Tensor) -> None:
        """As `SharedCache.record`, for the rows of each part."""
        for cache, part in zip(self.caches, torch.split(hidden, self._sizes), strict=True):
            cache.record(part)
