"""Attention over a prompt that all rows share, joined with attention over what each row has read since.

The prompt is there once, and its keys meet the queries of all rows in one product. The two parts are joined by their sums of
exponentials, so nothing is approximated. Only plain scaled dot-product attention is computed; whatever else a model asks for is
refused, which `CausalLM` finds out before it takes this road.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import causal_mask_function

from locore.errors import CannotScore
from locore.models.keyvalues import KeyValues, Step, Tail, room_for

NAME = "locore_shared_prompt"
# Scores that are there at once: what the cache of a core holds, and what keeps an accelerator busy.
_SCORES_CPU, _SCORES_ELSEWHERE = 2**19, 2**26
_FEWEST_QUERIES = 64  # of one product
# What a model may hand to its attention without another result. Anything else must be missing, None or False.
_HARMLESS = {"position_ids", "cache_position", "position_embeddings", "use_cache"}

# Of each query: values weighted by exp(score − top), Float[batch, queries, size]; the largest score, and the sum of those
# weights, Float[batch, queries, 1].
_Weighted = tuple[Tensor, Tensor, Tensor]


class SharedCache(Cache):
    """What one forward pass reads: the prompt and the tails of its rows. It collects what the pass adds."""

    def __init__(self, prompt: KeyValues, tail: Tail | None, keeps: bool) -> None:
        """Rows that have read the prompt and a tail each; `keeps` if what they read now is wanted."""
        super().__init__(layers=[DynamicLayer() for _ in prompt.layers])  # type: ignore[no-untyped-call]
        self._prompt = prompt
        self._tail = tail
        self._before = 0 if tail is None else tail.length
        self._keeps = keeps
        self._new: list[Tensor] = []
        self._hidden_state: Tensor | None = None
        self._seen: set[int] = set()
        self._handed: tuple[int, Tensor, Tensor] | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens each row has read."""
        return self._prompt.length + self._before

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """How many keys there will be, and where they start."""
        return self.get_seq_length() + query_length, 0

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Note which layer comes next; `attend` must get exactly these two tensors."""
        self._handed = (layer_idx, key_states, value_states)
        return key_states, value_states

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Float[batch, time, heads, value size]: attention of the layer that was updated last."""
        if self._handed is None or self._handed[1] is not key or self._handed[2] is not value:
            raise _not_plain("other keys and values than it stores")
        layer, self._handed = self._handed[0], None
        self._seen.add(layer)
        new = torch.cat([key, value], -1)
        if self._keeps:
            self._keep(layer, new)
        batch, heads, time, size = query.shape
        shared = key.shape[1]
        # Heads with the same keys are more queries to them.
        grouped = (query * scaling).reshape(batch, shared, -1, size)
        together = grouped.transpose(0, 1).reshape(shared, -1, size)
        prompt_keys, prompt_values = self._prompt.layers[layer]
        prompt = _weighted(together, prompt_keys[0], prompt_values[0], None)
        per_row = [part.view(shared, batch, -1, part.shape[-1]).transpose(0, 1) for part in prompt]
        keys, values = torch.split(self._after_prompt(layer, new).flatten(0, 1), [size, value.shape[-1]], -1)
        own = _weighted(grouped.flatten(0, 1), keys, values, self._hidden(time, heads // shared, key.device))
        joined = _joined(per_row, [part.view(batch, shared, -1, part.shape[-1]) for part in own])
        return joined.reshape(batch, heads, time, -1).transpose(1, 2).to(query.dtype)

    def _after_prompt(self, layer: int, new: Tensor) -> Tensor:
        """Float[batch, heads, tail + time, key size + value size], with Float[batch, heads, time, …] at the end."""
        if self._tail is None or self._before == 0:
            return new
        batch, heads, time, size = new.shape
        all_steps = new.new_empty(self._before + time, batch, heads, size)
        self._tail.fill(layer, all_steps[: self._before])
        all_steps[self._before :] = new.permute(2, 0, 1, 3)
        return all_steps.permute(1, 2, 0, 3)

    def _hidden(self, time: int, groups: int, device: torch.device) -> Tensor | None:
        """Bool[groups · time, tail + time], which keys come after each query."""
        if time == 1:
            return None
        later = torch.ones(time, self._before + time, dtype=torch.bool, device=device).triu(self._before + 1)
        return later.repeat(groups, 1)

    def _keep(self, layer: int, new: Tensor) -> None:
        """Into one piece of memory for all layers: many small ones would leave holes between what is needed for moments."""
        if not self._new:
            shapes = [(len(new), keys.shape[1], keys.shape[3] + values.shape[3]) for keys, values in self._prompt.layers]
            self._new = room_for(shapes, new)
        self._new[layer].copy_(new[:, :, 0])

    def note(self, hidden: Tensor) -> None:
        """What the head of the model is given, Float[batch, time, size]."""
        if self._keeps:
            self._hidden_state = hidden[:, -1]

    def step(self) -> Step:
        """What the one token that each row has read leaves behind; nothing if that was not wanted.

        Raises:
            CannotScore: the pass computed some attention elsewhere.
        """
        if len(self._seen) != len(self.layers):
            raise _not_plain("an attention of its own")
        return Step(tuple(self._new), self._hidden_state)


_reading: ContextVar[SharedCache] = ContextVar("_reading")


@contextmanager
def reading(cache: SharedCache) -> Iterator[None]:
    """Let attention in this thread read this cache."""
    before = _reading.set(cache)
    try:
        yield
    finally:
        _reading.reset(before)


def noting(head: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A head that shows the cache what it is given."""

    def noted(hidden: Tensor) -> Tensor:
        _reading.get().note(hidden)
        return head(hidden)

    return noted


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What models call, through the interface of `transformers`."""
    asked = sorted(name for name, what in others.items() if name not in _HARMLESS and what is not None and what is not False)
    if asked or attention_mask is not None or dropout or is_causal is False:
        raise _not_plain(asked[0] if asked else "a mask, dropout or keys of the future")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _reading.get().attend(query, key, value, scaling), None


def _mask(*, mask_function: Any, attention_mask: Tensor | None = None, **_: Any) -> None:
    """Where models ask for a mask: the causal one is made above."""
    if mask_function is not causal_mask_function or attention_mask is not None:
        raise _not_plain("another mask than the causal one")


def _not_plain(what: str) -> CannotScore:
    return CannotScore(f"Attention that shares a prompt is plain, but this model asks for {what}.")


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)


def _weighted(queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> _Weighted:
    """Attention of queries Float[batch, queries, size], in blocks of few scores.

    Args:
        queries: scaled, and contiguous.
        keys: Float[batch, keys, size].
        values: Float[batch, keys, value size].
        hidden: Bool[queries, keys], which keys a query does not see; never all of them.
    """
    batch, count, _ = queries.shape
    width, exact = keys.shape[1], torch.promote_types(queries.dtype, torch.float32)
    at_once = _SCORES_CPU if queries.device.type == "cpu" else _SCORES_ELSEWHERE
    rows = min(count, max(_FEWEST_QUERIES, at_once // width))
    batches = min(batch, max(1, at_once // (rows * width)))
    buffer = queries.new_empty(batches * rows * width)  # the same for all blocks, so that it stays in the cache
    weighted = queries.new_empty(batch, count, values.shape[-1])
    top, total = queries.new_empty(2, batch, count, 1, dtype=exact)
    for some in _slices(batch, batches):
        for block in _slices(count, rows):
            asked, at = queries[some, block], (some, block)
            raw = buffer[: asked.shape[0] * asked.shape[1] * width].view(*asked.shape[:2], width)
            scores = torch.bmm(asked, keys[some].transpose(1, 2), out=raw).to(exact)
            if hidden is not None:
                scores.masked_fill_(hidden[block], -torch.inf)
            torch.amax(scores, -1, keepdim=True, out=top[at])
            scores.sub_(top[at]).exp_()
            torch.sum(scores, -1, keepdim=True, out=total[at])
            weighted[at] = scores.to(values.dtype) @ values[some]
    return weighted, top, total


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(at, at + size) for at in range(0, count, size))


def _joined(one: list[Tensor], other: list[Tensor]) -> Tensor:
    """Float[…, queries, size]: attention to the keys of both."""
    top = torch.maximum(one[1], other[1])
    scales = [(part[1] - top).exp_() for part in (one, other)]
    total = one[2] * scales[0] + other[2] * scales[1]
    return (one[0] * (scales[0] / total)).addcmul_(other[0], scales[1] / total)
