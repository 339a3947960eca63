"""The one place that talks to a `transformers` module: ids in, logits and keys and values out."""

from __future__ import annotations

import copy
import hashlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from locore.kernel.errors import CannotScore
from locore.kernel.plugins import cached_property
from locore.models.abilities import (
    NO_CACHE,
    NO_JOINING,
    NO_PACKING,
    NO_SHARING,
    Hindrance,
    check_cache,
    check_joining,
    check_packing,
    check_sharing,
    hindrance,
    learn_options,
)
from locore.models.attention import KeyValues, SharedCache, Step, Tails, reading
from locore.models.hardware import CHOOSER, free_bytes, how_many_fit, in_batches, is_out_of_memory
from locore.models.joined import JoinedCache, Part

NextStep = Callable[[KeyValues, Tails, Tensor], tuple[Tensor, Step]]

# Two ways to read the same text may differ by this total variation, by the dtype of the weights; in 16 bits in the mean over
# positions: of SmolLM2 in bfloat16 it is .02 to .05, and .2 to .5 where one token is read wrong or left out.
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
_TOLERANCE_16_BITS = 0.06

_HASHED_NUMBERS = 1 << 20  # of each tensor, in a fingerprint
_ROWS_AT_ONCE = 8  # of a table that is normalised in its place: few enough to stay in a cache


class CausalLM:
    """A causal model of any architecture, read in batches of equally long rows.

    Whether its cache is one of plain keys and values is found out once, by comparing a cached with an uncached pass. Every
    layer keeps all its keys, also one with a sliding window, whose mask does the rest; so a prefix of the cache is the cache of
    a prefix.

    Attributes:
        module: the module in evaluation mode.
        vocab_size: columns of its logits.
        context: how many tokens it can read; None if it has no limit.
        caches: can its keys and values be cut and continued?
        packs: can several continuations share a row behind a mask?
        shares: can all rows read one copy of the prompt?
        twin: the same weights in a module whose attention shares a prompt.
        head: what makes logits of its hidden states; None if it could not be told.
        recomputes: are logits a function of the hidden state of a `Step`, by the head alone?
        cache_name: under which it takes a cache.
        lacks: options of a pass that it does not take, and why.
        hindrances: what it cannot do, and why.
        steps_elsewhere: what makes steps in place of this object, if anything does; see `locore.models.meeting`.
        full_support: are all its logits finite?
        memory_bytes: what a batch may take beside the weights, roughly.
    """

    def __init__(self, module: Any, memory_bytes: int | None = None) -> None:
        """Find out what the module can do.

        Raises:
            CannotScore: it is dynamically quantised.
        """
        _require_one_law(module)
        self.module = module.eval().requires_grad_(False)
        self.device = torch.device(module.device)
        default = 2**28 if self.device.type == "cpu" else 2**31
        self.memory_bytes = default if memory_bytes is None else memory_bytes
        self.context: int | None = getattr(module.config.get_text_config(), "max_position_embeddings", None)
        self.lacks = {"logits_to_keep": "not tried yet", "position_ids": "not tried yet"}
        logits = self._forward(torch.zeros(1, 1, dtype=torch.int64), None, 1)[0]
        self.vocab_size = logits.shape[-1]
        self.full_support = bool(torch.isfinite(logits).all())
        self.bytes_per_token = 0
        self.twin: Any = None
        self.recomputes = False
        self.steps_elsewhere: NextStep | None = None
        self.head: Callable[[Tensor], Tensor] | None = None
        self.cache_name = ""
        self.lacks = learn_options(self)
        self.hindrances: tuple[Hindrance, ...] = ()
        self.caches = self._can(NO_CACHE, check_cache)
        self.packs = self.caches and self._can(NO_PACKING, check_packing)
        self.shares = self.caches and self._can(NO_SHARING, check_sharing)
        self._parts = list(module.modules())

    def notice_changes(self) -> None:
        """Make another twin if parts of the module were replaced or added, as when an adapter is loaded into it."""
        parts = list(self._parts[0].modules())
        if self.shares and not are_same(parts, self._parts):
            self.shares = self._can(NO_SHARING, check_sharing)
        self._parts = parts

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the configuration and of the weights (of large tensors: of an even selection of their numbers)."""
        digest = hashlib.sha256(self.module.config.to_json_string().encode())
        for name, weight in sorted(self.module.state_dict().items()):
            flat = weight.detach().flatten()
            picked = flat[:: max(1, flat.numel() // _HASHED_NUMBERS)].float().cpu()
            digest.update(name.encode())
            digest.update(picked.numpy().tobytes())
        return digest.hexdigest()[:32]

    def stepping(self, elsewhere: NextStep) -> CausalLM:
        """The same model, whose steps are made by somebody else."""
        other = copy.copy(self)
        other.steps_elsewhere = elsewhere
        return other

    def read(self, tokens: Tensor, past: KeyValues | None = None, keep: int = 1) -> Tensor:
        """Logits of the last `keep` positions.

        Args:
            tokens: Long[batch, time], all rows equally long.
            past: what was read before, of as many rows.
            keep: how many positions to give.

        Returns:
            Float[batch, keep, vocab] on the model's device, not normalised, in 32 bits or more.
        """
        return self._forward(tokens, past.to_cache() if past else None, keep)[0]

    def read_on(self, tokens: Tensor, past: KeyValues | None = None, keep: int = 1) -> tuple[Tensor, KeyValues]:
        """As `read`, with the keys and values of everything read so far. Only if `caches`."""
        logits, cache = self._forward(tokens, past.to_cache() if past else DynamicCache(), keep)
        return logits, KeyValues(tuple((layer.keys, layer.values) for layer in cache.layers))

    def read_prompt(self, tokens: Tensor) -> tuple[Tensor, KeyValues]:
        """As `read_on`, of what will stay: its keys and values lie in one piece of memory. Only if `caches`."""
        logits, cache = self._forward(tokens, DynamicCache(), 1)
        return logits, KeyValues.from_cache(cache)

    def read_shared(
        self, tokens: Tensor, prompt: KeyValues, tails: Tails | None = None, keep: int = 1, keeps_step: bool = False
    ) -> tuple[Tensor, Step]:
        """As `read`, after a prompt that all rows share and the tail of each. Only if `shares`.

        Args:
            tokens: Long[batch, time], all rows equally long.
            prompt: of one row.
            tails: what each row has read since; nothing by default.
            keep: how many positions to give.
            keeps_step: is what the rows read now wanted? Then it is one token each.

        Returns:
            The logits, as those of `read`, and what the rows have read, if wanted.
        """
        cache = SharedCache(prompt, tails, keeps_step)
        return self.read_by(cache, tokens, keep), cache.step()

    def read_by(self, cache: SharedCache | JoinedCache, tokens: Tensor, keep: int, **options: Any) -> Tensor:
        """As `read`, with attention as this cache computes it."""
        with reading(cache):
            return self._forward(tokens, cache, keep, options, module=self.twin)[0]

    @property
    def hidden_bytes(self) -> int:
        """Memory of the hidden state of one token."""
        size: int = self.module.config.get_text_config().hidden_size * self.module.dtype.itemsize
        return size

    @torch.no_grad()
    def read_hidden(self, hidden: Tensor) -> Tensor:
        """Logits Float[batch, vocab] of the hidden states Float[batch, size] of steps. Only if `recomputes`."""
        assert self.head is not None
        logits = self.head(hidden[:, None])[:, 0]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def next_step(self, prompt: KeyValues, tails: Tails, tokens: Tensor) -> tuple[Tensor, Step]:
        """Feed one token to each row, in batches that fit into memory. Only if `shares`.

        Args:
            prompt: what all rows have read.
            tails: what each row has read since.
            tokens: Long[batch].

        Returns:
            Float[batch, vocab] on the model's device, log p of the token after, and what the rows have read now.
        """
        if self.steps_elsewhere is not None:
            return self.steps_elsewhere(prompt, tails, tokens)
        steps: list[Step] = []

        def work(rows: slice) -> Tensor:
            logits, step = self.read_shared(tokens[rows, None], prompt, tails.part(rows), keeps_step=True)
            log_probs = normalised(logits[:, 0])
            steps.append(step)  # at last: what is read again, since memory ran out, must not be there twice
            return log_probs

        # One layer's tails are gathered at a time.
        size = self.batch_size(tails.length // len(prompt.layers), 1)
        log_probs = in_batches(len(tokens), size, work)
        return log_probs, Step.joined(steps)

    def next_step_each(self, past: KeyValues, tokens: Tensor) -> tuple[Tensor, KeyValues]:
        """As `next_step`, for rows with keys and values of their own. Only if `caches`.

        Raises:
            CannotScore: there is no room for them.
        """
        self.require_room(len(tokens), past.length + 1)
        parts: list[KeyValues] = []

        def work(rows: slice) -> Tensor:
            logits, after = self.read_on(tokens[rows, None], past.part(rows))
            log_probs = logits[:, 0].log_softmax(-1)
            parts.append(after)
            return log_probs

        log_probs = in_batches(len(tokens), len(tokens), work)
        return log_probs, KeyValues.joined(parts)

    def require_room(self, rows: int, tokens: int) -> None:
        """Refuse rows whose own keys and values do not fit into what is left of the machine's memory.

        Raises:
            CannotScore: with how many rows fit. An operating system would rather end the process.
        """
        left, needed = free_bytes(self.device), rows * tokens * self.bytes_per_token
        if left is not None and needed > left:
            fit = how_many_fit(left, tokens * self.bytes_per_token)
            raise CannotScore(
                f"{rows} rows of {tokens:,} tokens need {needed / 1e9:.1f} GB for keys and values, as this model's rows cannot "
                f"share a prompt, and {left / 1e9:.1f} GB are free: {fit} rows fit. Ask for fewer particles, or give a shorter "
                "prompt."
            )

    def next_steps(self, parts: Sequence[Part]) -> list[tuple[Tensor, Step]]:
        """As `next_step`, for rows behind several prompts in one pass. Only if `joins`.

        Where memory runs out each part is read by itself.
        """
        if len(parts) > 1:
            try:
                return self._joined_steps(parts)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
        return [self.next_step(part.prompt, part.tails, part.tokens) for part in parts]

    def _joined_steps(self, parts: Sequence[Part]) -> list[tuple[Tensor, Step]]:
        sizes, cache = [len(part) for part in parts], JoinedCache(parts)
        places = torch.tensor([part.read for part in parts], device=self.device)
        positions = torch.repeat_interleave(places, torch.tensor(sizes, device=self.device))[:, None]
        tokens = torch.cat([part.tokens for part in parts])[:, None]
        logits = self.read_by(cache, tokens, 1, position_ids=positions)
        rows = torch.split(normalised(logits[:, 0]), sizes)
        return [(row, shared.step()) for row, shared in zip(rows, cache.caches, strict=True)]

    @cached_property
    def joins(self) -> bool:
        """Can rows behind different prompts share a pass? Found out once, by trying."""
        return self.shares and self._can(NO_JOINING, check_joining)

    def _can(self, what: str, check: Callable[[CausalLM], None]) -> bool:
        """Does a self-check pass? Else its reason is added to the hindrances."""
        reason = hindrance(what, lambda: check(self))
        if reason is not None:
            self.hindrances = (*self.hindrances, reason)
        return reason is None

    def batch_size(self, past: int, new: int) -> int:
        """How many rows of `new` tokens after `past` tokens fit into the memory of a batch."""
        # Keys and values are there twice while they are joined, logits while they are normalised.
        keys_and_values = 2 * self.bytes_per_token * (past + new)
        logits = 2 * 4 * self.vocab_size * new
        return max(1, how_many_fit(self.memory_bytes, keys_and_values + logits))

    def read_packed(self, tokens: Tensor, past: KeyValues, positions: Tensor, visible: Tensor) -> Tensor:
        """Logits after each token of rows that hold several continuations. Only if `packs`.

        Args:
            tokens: Long[batch, time].
            past: what was read before, of as many rows.
            positions: Long[batch, time], where each token stands in its own text.
            visible: Bool[batch, time, past + time], which tokens each token attends to.

        Returns:
            Float[batch, time, vocab] on the model's device, not normalised, in 32 bits or more.
        """
        # Always a mask of floats: eager attention adds a mask of Booleans as 0 and 1.
        hidden = torch.finfo(self.module.dtype).min
        mask = torch.zeros(visible.shape, dtype=self.module.dtype).masked_fill(~visible, hidden)
        options = {"attention_mask": mask[:, None].to(self.device), "position_ids": positions.to(self.device)}
        return self._forward(tokens, past.to_cache(), tokens.shape[1], options)[0]

    @torch.no_grad()
    def _forward(
        self, tokens: Tensor, cache: Any, keep: int, options: dict[str, Any] | None = None, module: Any = None
    ) -> tuple[Tensor, Any]:
        """Logits of the last positions, and the cache, which has grown."""
        CHOOSER.look()
        tokens = tokens.to(self.device)
        options = {**(options or {}), "use_cache": cache is not None}
        start = 0
        if cache is not None:
            options[self.cache_name] = cache
            start = cache.get_seq_length()
        if "position_ids" not in self.lacks and "position_ids" not in options:
            positions = torch.arange(start, start + tokens.shape[1], device=self.device)
            options["position_ids"] = positions.expand(len(tokens), -1)
        if "logits_to_keep" not in self.lacks:
            options["logits_to_keep"] = keep
        logits = (module or self.module)(tokens, **options).logits[:, -keep:]
        return logits.to(torch.promote_types(logits.dtype, torch.float32)), cache

    def keeps_all(self) -> bool:
        """Does no layer forget keys that are far back?"""
        layers = DynamicCache(config=self.module.config).layers
        return all(type(layer) is DynamicLayer for layer in layers)

    def trial(self) -> Tensor:
        """Long[2, 8], tokens from all over the vocabulary: many of the first were never trained, and drown 16 bits."""
        return (torch.arange(1, 17) * self.vocab_size // 17).view(2, 8)

    def agree(self, first: Tensor, second: Tensor) -> bool:
        """Are these the same distributions up to rounding?"""
        total_variation = (first.softmax(-1) - second.softmax(-1)).abs().sum(-1) / 2
        allowed = _TOLERANCE.get(self.module.dtype)
        return bool(total_variation.mean() <= _TOLERANCE_16_BITS if allowed is None else total_variation.max() <= allowed)


def are_same(parts: Sequence[Any], before: Sequence[Any]) -> bool:
    """Are these the modules that were there before, none replaced and none added?"""
    return len(parts) == len(before) and all(map(operator.is_, parts, before))


def _require_one_law(module: Any) -> None:
    """`CannotScore` for dynamic quantisation: it rounds the activations of a whole batch by one scale."""
    for name, part in module.named_modules():
        if ".quantized.dynamic" in type(part).__module__:
            raise CannotScore(
                f"{name or 'the module'} is dynamically quantised: it rounds by what else is in the batch, so the probability "
                "of a text depends on the texts beside it, and there is no one distribution to sample from. Give the module as "
                "it was before quantize_dynamic, or quantise the weights alone (a GGUF file, or dtype=torch.bfloat16)."
            )


def gathered_scores(logits: Tensor, tokens: Tensor) -> Tensor:
    """f64[..., k], log p of the tokens Long[..., k] under logits Float[..., vocab]."""
    # A second table of the logits' size; `logsumexp` keeps one as well, and takes five times as long on a CPU.
    return logits.log_softmax(-1).gather(-1, tokens.to(logits.device)).double().cpu()


def normalised(logits: Tensor) -> Tensor:
    """log p of Float[batch, vocab] under logits, in their place: a second table would be large."""
    for part in torch.split(logits, _ROWS_AT_ONCE):
        part.copy_(part.log_softmax(-1))
    return logits
