"""The one place that talks to a `transformers` module: ids in, logits and keys and values out."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

# Cached and uncached log-probabilities of a self-check may differ by this many nats.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
_HALF_TOLERANCE = 0.1


@dataclass(frozen=True, eq=False)
class KeyValues:
    """What attention keeps of the tokens that were read.

    Attributes:
        layers: keys and values of each layer, Float[batch, heads, time, size].
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

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
        """These rows, in this order; a copy."""
        index = index.to(self.layers[0][0].device)
        return KeyValues(tuple((k[index], v[index]) for k, v in self.layers))

    def to_cache(self) -> DynamicCache:
        """A cache that a forward pass may change without changing this."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(self.layers):
            # An update with everything would copy it, and reading on copies it once more.
            cache.update(keys[:, :, :0], values[:, :, :0], index)
            cache.layers[index].keys, cache.layers[index].values = keys, values
        return cache


class CausalLM:
    """A causal model of any architecture, read in batches of equally long rows.

    Whether its cache is one of plain keys and values is found out once, by comparing a cached
    with an uncached pass. Every layer keeps all its keys, also one with a sliding window, whose
    mask does the rest; so a prefix of the cache is the cache of a prefix.

    Attributes:
        module: the module in evaluation mode.
        vocab_size: columns of its logits.
        context: how many tokens it can read; None if it has no limit.
        caches: can its keys and values be cut and continued?
        full_support: are all its logits finite?
        memory_bytes: what a batch may take beside the weights, roughly.
    """

    def __init__(self, module: Any, memory_bytes: int | None = None) -> None:
        self.module = module.eval().requires_grad_(False)
        self.device = torch.device(module.device)
        default = 2**28 if self.device.type == "cpu" else 2**31
        self.memory_bytes = default if memory_bytes is None else memory_bytes
        self.context: int | None = getattr(
            module.config.get_text_config(), "max_position_embeddings", None
        )
        self._accepted = set(inspect.signature(module.forward).parameters)
        logits = self._forward(torch.zeros(1, 1, dtype=torch.int64), None, 1)[0]
        self.vocab_size = logits.shape[-1]
        self.full_support = bool(torch.isfinite(logits).all())
        self.bytes_per_token = 0
        self.caches = "past_key_values" in self._accepted and self._check_cache()

    def read(self, tokens: Tensor, past: KeyValues | None = None, keep: int = 1) -> Tensor:
        """Logits of the last `keep` positions.

        Args:
            tokens: Long[batch, time], all rows equally long.
            past: what was read before, of as many rows.
            keep: how many positions to give.

        Returns:
            Float32[batch, keep, vocab] on the model's device, not normalised.
        """
        return self._forward(tokens, past.to_cache() if past else None, keep)[0]

    def read_on(
        self, tokens: Tensor, past: KeyValues | None = None, keep: int = 1
    ) -> tuple[Tensor, KeyValues]:
        """As `read`, with the keys and values of everything read so far. Only if `caches`."""
        logits, cache = self._forward(tokens, past.to_cache() if past else DynamicCache(), keep)
        return logits, KeyValues(tuple((layer.keys, layer.values) for layer in cache.layers))

    @torch.no_grad()
    def _forward(self, tokens: Tensor, cache: Any, keep: int) -> tuple[Tensor, Any]:
        tokens = tokens.to(self.device)
        options: dict[str, Any] = {"use_cache": cache is not None}
        start = 0
        if cache is not None:
            options["past_key_values"] = cache
            start = cache.get_seq_length()
        if "position_ids" in self._accepted:
            positions = torch.arange(start, start + tokens.shape[1], device=self.device)
            options["position_ids"] = positions.expand(len(tokens), -1)
        if "logits_to_keep" in self._accepted:
            options["logits_to_keep"] = keep
        output = self.module(tokens, **options)
        return output.logits[:, -keep:].float(), cache

    def _check_cache(self) -> bool:
        """Does reading in two parts give what reading at once gives?"""
        tokens = torch.arange(16).view(2, 8) % self.vocab_size
        if self.context is not None and self.context < 8:
            return False
        try:
            whole = self.read(tokens, keep=4).log_softmax(-1)
            _, past = self.read_on(tokens[:, :4])
            parts = self.read(tokens[:, 4:], past, keep=4).log_softmax(-1)
            plain = past.length == 4
        except Exception:  # an architecture without such a cache fails in a way of its own
            return False
        tolerance = _TOLERANCE.get(self.module.dtype, _HALF_TOLERANCE)
        self.bytes_per_token = past.bytes_per_token
        return plain and bool((whole - parts).abs().max() <= tolerance)
