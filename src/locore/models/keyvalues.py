"""What attention keeps of the tokens that were read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache


@dataclass(frozen=True, eq=False)
class KeyValues:
    """Keys and values of every token of every row.

    Attributes:
        layers: keys and values of each layer, Float[batch, heads, time, size].
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def taken(cls, cache: DynamicCache) -> KeyValues:
        """Of a cache, which is empty afterwards, in one piece of memory: many would leave holes between them."""
        layers: list[Any] = cache.layers
        pairs = [(layer.keys, layer.values) for layer in layers]
        parts = room_for([tensor.shape for pair in pairs for tensor in pair], pairs[0][0])
        for index, layer in enumerate(layers):
            layer.keys = layer.values = None
            for which, tensor in enumerate(pairs[index]):
                parts[2 * index + which].copy_(tensor)
            pairs[index] = (parts[2 * index], parts[2 * index + 1])
        return cls(tuple(pairs))

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.layers[0][0].shape[2]

    @cached_property
    def bytes_per_token(self) -> int:
        """Memory of one token of one row."""
        numbers = sum(k.shape[1] * (k.shape[3] + v.shape[3]) for k, v in self.layers)
        return numbers * self.layers[0][0].element_size()

    def first(self, length: int) -> KeyValues:
        """Of the first `length` tokens; a view."""
        return KeyValues(tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers))

    def repeated(self, batch: int) -> KeyValues:
        """One row seen as `batch` rows; a view."""
        shape = (batch, -1, -1, -1)
        return KeyValues(tuple((k.expand(shape), v.expand(shape)) for k, v in self.layers))

    def rows(self, index: Tensor) -> KeyValues:
        """These rows, in this order; a copy, unless they are all rows as they are."""
        keys = self.layers[0][0]
        if torch.equal(index, torch.arange(len(keys))):
            return self
        index = index.to(keys.device)
        return KeyValues(tuple((k[index], v[index]) for k, v in self.layers))

    def to_cache(self) -> DynamicCache:
        """A cache that a forward pass may change without changing this."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(self.layers):
            # An update with everything would copy it, and reading on copies it once more.
            cache.update(keys[:, :, :0], values[:, :, :0], index)
            layer: Any = cache.layers[index]
            layer.keys, layer.values = keys, values
        return cache


def room_for(shapes: Sequence[Sequence[int]], like: Tensor) -> list[Tensor]:
    """Tensors of these shapes, not filled, in one piece of memory."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.split(like.new_empty(sum(sizes)), sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(frozen=True, eq=False)
class Step:
    """What one more token of each row leaves behind.

    Attributes:
        layers: keys and values of each layer, Float[batch, heads, key size + value size].
        hidden: Float[batch, size], what the head of the model makes logits of; None if it could not be seen.
    """

    layers: tuple[Tensor, ...]
    hidden: Tensor | None

    def __len__(self) -> int:
        return len(self.layers[0])

    @classmethod
    def joined(cls, parts: Sequence[Step]) -> Step:
        """The rows of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        hidden = [part.hidden for part in parts if part.hidden is not None]
        layers = tuple(torch.cat(layer) for layer in zip(*(part.layers for part in parts), strict=True))
        return cls(layers, torch.cat(hidden) if len(hidden) == len(parts) else None)


class Tail(Protocol):
    """What rows have read after a prompt that they share."""

    @property
    def length(self) -> int:
        """How many tokens each row has read after the prompt."""

    def part(self, rows: slice) -> Tail:
        """Some of the rows."""

    def fill(self, layer: int, out: Tensor) -> None:
        """Write keys and values of a layer to Float[length, batch, heads, key size + value size]."""


@dataclass(frozen=True, eq=False)
class Tails:
    """What rows have read token by token. No step is ever copied: a row is a list of places in them.

    Attributes:
        steps: of each step and layer, the keys and values of its tokens, Float[tokens, heads, key size + value size].
        places: Long[length, batch], which token of each step a row has read, on the model's device.
    """

    steps: tuple[tuple[Tensor, ...], ...]
    places: Tensor

    @classmethod
    def empty(cls, batch: int, device: torch.device) -> Tails:
        """Rows that have read the prompt only."""
        return cls((), torch.empty(0, batch, dtype=torch.int64, device=device))

    @property
    def length(self) -> int:
        """How many tokens each row has read after the prompt."""
        return len(self.steps)

    def rows(self, index: Tensor) -> Tails:
        """These rows, in this order."""
        return Tails(self.steps, self.places[:, index.to(self.places.device)])

    def part(self, rows: slice) -> Tails:
        """Some of the rows."""
        return Tails(self.steps, self.places[:, rows])

    def then(self, step: Step, places: Tensor | None = None) -> Tails:
        """With one more token of each row: those of the step in their order, or at places Long[batch] of it."""
        last = torch.arange(len(step)) if places is None else places
        return Tails((*self.steps, step.layers), torch.cat([self.places, last[None].to(self.places.device)]))

    def fill(self, layer: int, out: Tensor) -> None:
        """Write keys and values of a layer to Float[length, batch, heads, key size + value size]."""
        for step, places, part in zip(self.steps, self._by_step, out.unbind(), strict=True):
            torch.index_select(step[layer], 0, places, out=part)

    @cached_property
    def _by_step(self) -> tuple[Tensor, ...]:
        return self.places.unbind()
