"""Attention over a prompt that all rows share, joined with attention over what each row has read since.

The prompt is there once, and its keys meet the queries of all rows in one product. The two parts are joined by their sums of
exponentials, so nothing is approximated. Only plain scaled dot-product attention is computed; whatever else a model asks for is
refused, which `CausalLM` finds out before it takes this road.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import causal_mask_function

from locore.kernel.errors import CannotScore
from locore.kernel.limits import may_stop
from locore.kernel.plugins import cached_property
from locore.models.head import product_of

NAME = "locore_shared_prompt"
BLOCK = 8  # steps of a row that are put together: while they are copied they are there twice
# Scores that are there at once: what the cache of a core holds, and what keeps an accelerator busy.
_SCORES_CPU, _SCORES_ELSEWHERE = 2**19, 2**26
_FEWEST_QUERIES = 64  # of one product
# What a model may hand to its attention without another result. Anything else must be missing, None or False.
_HARMLESS = {"position_ids", "cache_position", "position_embeddings", "use_cache"}
_HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")  # ends of names of what torch keeps hooks in

# Of each query: values weighted by exp(score − top), Float[batch, queries, size]; the largest score, and the sum of those
# weights, Float[batch, queries, 1].
_Weighted = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class KeyValues:
    """Keys and values of every token of every row.

    Attributes:
        layers: keys and values of each layer, Float[batch, heads, time, size].
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def from_cache(cls, cache: DynamicCache) -> KeyValues:
        """Of a cache, which is empty afterwards, in one piece of memory: many would leave holes between them."""
        layers: list[Any] = cache.layers
        pairs = [(layer.keys, layer.values) for layer in layers]
        parts = allocate([tensor.shape for pair in pairs for tensor in pair], pairs[0][0])
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

    @property
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

    def part(self, rows: slice) -> KeyValues:
        """Some of the rows; a view."""
        return KeyValues(tuple((k[rows], v[rows]) for k, v in self.layers))

    @classmethod
    def joined(cls, parts: Sequence[KeyValues]) -> KeyValues:
        """The rows of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        layers = zip(*(part.layers for part in parts), strict=True)
        return cls(tuple((torch.cat([k for k, _ in layer]), torch.cat([v for _, v in layer])) for layer in layers))

    def to_cache(self) -> DynamicCache:
        """A cache that a forward pass may change without changing this."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(self.layers):
            # An update with everything would copy it, and reading on copies it once more.
            cache.update(keys[:, :, :0], values[:, :, :0], index)
            layer: Any = cache.layers[index]
            layer.keys, layer.values = keys, values
        return cache


def allocate(shapes: Sequence[Sequence[int]], like: Tensor) -> list[Tensor]:
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


@dataclass(frozen=True, eq=False)
class Tails:
    """What rows have read token by token, in blocks of steps: a row is a list of places in them.

    A step is a block of its own, and nothing of it is copied, until there are `BLOCK` of them; then the paths that rows took
    through them are copied into one block, equal paths once. So rows share what they have in common, and few pieces are put
    together for a pass, however long the rows are.

    Attributes:
        blocks: of each block and layer, the keys and values of its paths, Float[time, paths, heads, key size + value size].
        places: Long[blocks, batch], which path of each block a row took, on the model's device.
    """

    blocks: tuple[tuple[Tensor, ...], ...]
    places: Tensor

    @classmethod
    def empty(cls, batch: int, device: torch.device) -> Tails:
        """Rows that have read the prompt only."""
        return cls((), torch.empty(0, batch, dtype=torch.int64, device=device))

    @classmethod
    def of_steps(cls, layers: tuple[Tensor, ...], places: Tensor) -> Tails:
        """Rows that took these places Long[length, batch] of layers Float[tokens, heads, key size + value size]."""
        return cls((tuple(layer[None] for layer in layers),) * len(places), places)

    @cached_property
    def length(self) -> int:
        """How many tokens each row has read after the prompt."""
        return sum(_steps_of(block) for block in self.blocks)

    def rows(self, index: Tensor) -> Tails:
        """These rows, in this order."""
        return Tails(self.blocks, self.places[:, index.to(self.places.device)])

    def part(self, rows: slice) -> Tails:
        """Some of the rows."""
        return Tails(self.blocks, self.places[:, rows])

    def then(self, step: Step) -> Tails:
        """With one more token of each row: those of the step, in their order."""
        last = torch.arange(len(step), device=self.places.device)
        block = tuple(layer[None] for layer in step.layers)
        longer = Tails((*self.blocks, block), torch.cat([self.places, last[None]]))
        single = sum(1 for _ in takewhile(lambda block: _steps_of(block) == 1, reversed(longer.blocks)))
        return longer if single < BLOCK else longer.with_last_together(single)

    def with_last_together(self, number: int) -> Tails:
        """The same rows, with the last blocks as one that has copies of the paths that rows took, and of no others."""
        paths, places = torch.unique(self.places[-number:], dim=1, return_inverse=True)
        last = Tails(self.blocks[-number:], paths)
        copies = []
        for layer, like in enumerate(self.blocks[-1]):
            copies.append(like.new_empty(last.length, paths.shape[1], *like.shape[2:]))
            last.fill(layer, copies[-1])
        return Tails((*self.blocks[:-number], tuple(copies)), torch.cat([self.places[:-number], places[None]]))

    def compacted(self) -> Tails:
        """The same rows, with copies of the tokens that they have read, and of no others."""
        parts = [Tails(self.blocks[at : at + BLOCK], self.places[at : at + BLOCK]) for at in range(0, len(self.blocks), BLOCK)]
        merged = [part.with_last_together(len(part.blocks)) for part in parts]
        return Tails(sum((part.blocks for part in merged), ()), torch.cat([part.places for part in merged])) if merged else self

    def fill(self, layer: int, out: Tensor) -> None:
        """Write keys and values of a layer to Float[length, batch, heads, key size + value size]."""
        parts = torch.split(out, [_steps_of(block) for block in self.blocks])
        for block, places, part in zip(self.blocks, self._by_block, parts, strict=True):
            torch.index_select(block[layer], 1, places, out=part)

    @cached_property
    def _by_block(self) -> tuple[Tensor, ...]:
        return self.places.unbind()


def _steps_of(block: tuple[Tensor, ...]) -> int:
    return block[0].shape[0]


class SharedCache(Cache):
    """What one forward pass reads: the prompt and the tails of its rows. It collects what the pass adds."""

    def __init__(self, prompt: KeyValues, tails: Tails | None, keeps: bool) -> None:
        """Rows that have read the prompt and a tail each; `keeps` if what they read now is wanted."""
        super().__init__(layers=[DynamicLayer() for _ in prompt.layers])  # type: ignore[no-untyped-call]
        self._prompt = prompt
        self._tails = tails
        self._before = 0 if tails is None else tails.length
        self._keeps = keeps
        self._new: list[Tensor] = []
        self._hidden_state: Tensor | None = None
        self._seen: set[int] = set()
        self._handed: tuple[int, Tensor, Tensor] | None = None
        self.was_asked = False  # for attention, by any layer

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
        may_stop()  # of large batches a single pass takes seconds
        self.was_asked = True
        if self._handed is None or self._handed[1] is not key or self._handed[2] is not value:
            raise _not_plain("other keys and values than it stores")
        layer, self._handed = self._handed[0], None
        new = torch.cat([key, value], -1)
        self.keep(layer, new)
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
        if self._tails is None or self._before == 0:
            return new
        batch, heads, time, size = new.shape
        all_steps = new.new_empty(self._before + time, batch, heads, size)
        self._tails.fill(layer, all_steps[: self._before])
        all_steps[self._before :] = new.permute(2, 0, 1, 3)
        return all_steps.permute(1, 2, 0, 3)

    def _hidden(self, time: int, groups: int, device: torch.device) -> Tensor | None:
        """Bool[groups · time, tail + time], which keys come after each query."""
        if time == 1:
            return None
        later = torch.ones(time, self._before + time, dtype=torch.bool, device=device).triu(self._before + 1)
        return later.repeat(groups, 1)

    def keep(self, layer: int, new: Tensor) -> None:
        """Remember what the rows read now, Float[batch, heads, time, key size + value size], if it is wanted.

        It goes into one piece of memory for all layers: many small ones would leave holes between what is needed for moments.
        """
        self._seen.add(layer)
        if not self._keeps:
            return
        if not self._new:
            shapes = [(len(new), keys.shape[1], keys.shape[3] + values.shape[3]) for keys, values in self._prompt.layers]
            self._new = allocate(shapes, new)
        self._new[layer].copy_(new[:, :, 0])

    def record(self, hidden: Tensor) -> None:
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


class Attending(Protocol):
    """What a forward pass reads."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """As `SharedCache.attend`."""

    def record(self, hidden: Tensor) -> None:
        """As `SharedCache.record`."""


_reading: ContextVar[Attending] = ContextVar("_reading")


@contextmanager
def reading(cache: Attending) -> Iterator[None]:
    """Let attention in this thread read this cache."""
    before = _reading.set(cache)
    try:
        yield
    finally:
        _reading.reset(before)


class RecordedHead(torch.nn.Module):
    """A head of a model that hands the cache its argument; in everything else it is that head."""

    def __init__(self, head: torch.nn.Module) -> None:
        """Calls `head`, and does not change it."""
        super().__init__()
        self.head = head
        self.product = product_of(head)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("head"), name)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states."""
        _reading.get().record(hidden)
        logits: Tensor = self.product(hidden)
        return logits


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
    return CannotScore(f"attention that shares a prompt is plain, but this model asks for {what}.")


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


def _joined(first: list[Tensor], second: list[Tensor]) -> Tensor:
    """Float[…, queries, size]: attention to the keys of both."""
    top = torch.maximum(first[1], second[1])
    scales = [(part[1] - top).exp_() for part in (first, second)]
    total = first[2] * scales[0] + second[2] * scales[1]
    return (first[0] * (scales[0] / total)).addcmul_(second[0], scales[1] / total)


def sharing_twin(module: Any) -> tuple[Any, torch.nn.Module | None]:
    """A module with the same tensors, not copies of them, whose attention can share a prompt.

    The implementation of attention is a setting of a module, which others may be using, in another thread or with another
    setting; so there is a second one. It takes no memory to speak of, sees every change of weights in place, and runs the hooks
    of the module, also later ones. Parts that know of no settings are the same in both, so an adapter that is switched off in
    one is off in the other.

    Returns:
        The module, and what makes logits of its last hidden states; None if there is no such layer.

    Raises:
        CannotScore: it cannot be told what belongs to the module, because hooks move its weights about.
    """
    if any(hasattr(part, "_hf_hook") for part in module.modules()):
        raise CannotScore("hooks of accelerate move the weights of this module about, so they cannot be shared.")
    common: list[Any] = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        common += [value for name, value in vars(part).items() if isinstance(value, Tensor) or name.endswith(_HOOKS)]
        if not any("config" in vars(inner) for inner in part.modules()):
            common.append(part)
    twin = copy.deepcopy(module, {id(piece): piece for piece in common})
    twin.set_attn_implementation(NAME)
    head = twin.get_output_embeddings()
    if head is None:
        return twin, None
    recorded = RecordedHead(head)
    twin.set_output_embeddings(recorded)
    return twin, recorded.product if twin.get_output_embeddings() is recorded else None
